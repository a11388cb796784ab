//! Which calls of a trace wrote some bytes, and from what: the questions of `cutape why` and
//! `cutape first`.
//!
//! A [`Target`] names the bytes and the moment. [`ask`] has the trace replayed with the bytes
//! watched, and again with the memory that the last writer read, to the depth that is wanted. The
//! replay is the caller's: this crate gets what it has seen.
//!
//! [`first`] has all that calls write searched for a number, or watches bytes for their first change.
//!
//! Start with `target.rs`, then `chain.rs` and `first.rs`.
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
mod first;
mod target;
mod text;

pub use calls::CallFacts;
pub use chain::{Answer, Input, Question, Write, ask};
pub use first::{Finding, FirstAnswer, FoundNumbers, Sought, Wanted, first};
pub use target::{Bytes, Target};
pub use text::{first_text, numbers, text, written_by};
