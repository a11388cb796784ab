//! Which calls of a trace wrote some bytes, and from what: the question of `cutape why`.
//!
//! A [`Target`] names the bytes and the moment. [`ask`] has the trace replayed with the bytes
//! watched, and again with the memory that the last writer read, to the depth that is wanted. The
//! replay is the caller's: this crate gets what it has seen.
//!
//! Start with `target.rs`, then `chain.rs`.
//!
//! Invariant: a writer is named only if the bytes changed in a replay, not because a parameter
//! points there. No bytes of a trace cause a panic.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)
)]

mod calls;
mod chain;
mod target;
mod text;

pub use calls::CallFacts;
pub use chain::{Answer, Input, Question, Write, ask};
pub use target::{Bytes, Target};
pub use text::{changed_numbers, text, writer};
