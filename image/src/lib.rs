//! What a device code image holds: an ELF cubin, a fatbin or a PTX text.
//!
//! [`extent`], [`kind`] and [`wrapper_data`] read headers only and neither allocate nor panic: they
//! run inside recorded programs. With the feature `decompress`, [`parse`] lists functions,
//! parameters and variables, and [`unpack`] gives the entries of a fatbin; with the feature
//! `build`, [`build`] makes small images without code that read back the same.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

#[cfg(feature = "build")]
pub mod build;
#[cfg(feature = "decompress")]
mod code;
#[cfg(feature = "decompress")]
mod content;
#[cfg(feature = "decompress")]
mod cubin;
mod elf;
mod extent;
#[cfg(feature = "decompress")]
mod fatbin;
#[cfg(feature = "decompress")]
mod info;
mod kind;
#[cfg(feature = "decompress")]
mod parse;
#[cfg(feature = "decompress")]
mod problem;
#[cfg(feature = "decompress")]
mod ptx;
mod ptx_version;
mod target;
#[cfg(feature = "decompress")]
mod unused;

pub use extent::{Extent, WrapperHeader, extent, wrapper_data};
pub use kind::{ImageKind, kind};
pub use ptx_version::{first_cuda, newest_ptx};
pub use target::{CodeKind, Suffix, Target, runs_on};

#[cfg(feature = "decompress")]
pub use code::{Code, EntryCode, code};
#[cfg(feature = "decompress")]
pub use content::{Content, Function, Global, Parameter, Uses};
#[cfg(feature = "decompress")]
pub use fatbin::{MAX_DECOMPRESSED, MAX_DECOMPRESSED_TOTAL, MAX_ENTRIES, entries_for};
#[cfg(feature = "decompress")]
pub use parse::{Entry, Image, parse, unpack};
#[cfg(feature = "decompress")]
pub use problem::{Place, Problem, ProblemKind};
#[cfg(feature = "decompress")]
pub use unused::without_unused_code;
