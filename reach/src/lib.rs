//! Which memory a launch can get at from the words of its parameters.
//!
//! A library hands its kernels one structure, which leads to other memory through others. Copies
//! put those structures into device memory, so the bytes that copies bring say where a kernel can
//! get: [`Addresses`] remembers each word that is an address, and [`Addresses::reach`] follows them
//! from the words of the parameters.
//!
//! The caller says which memory there is: it implements [`Memory`] over its own table, or keeps
//! [`Areas`]. It names copies in the order of its calls.
//!
//! Not seen: addresses that kernels write, that the CPU writes without a call, and those that the
//! caller does not name, such as the rows of a copy of several. So a launch may reach more than is
//! found, and may leave alone what is found.
//!
//! Memory is bounded by the limit that [`Addresses::new`] takes, and by live memory for [`Areas`].
#![forbid(unsafe_code)]

mod addresses;
mod areas;
mod memory;

pub use addresses::{Addresses, PARAMETER_STEP, Reach, Reached, words};
pub use areas::{Area, Areas, Place};
pub use memory::Memory;
