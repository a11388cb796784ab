//! Which calls of a trace wrote some bytes, and from what, and what another order would change: the
//! questions of `cutape why`, `cutape first` and `cutape race`.
//!
//! A [`Target`] names the bytes and the moment. [`ask`] has the trace replayed with the bytes
//! watched, and again with the memory that the last writer read, to the depth that is wanted. The
//! replay is the caller's: this crate gets what it has seen.
//!
//! [`first`] has all that calls write searched for a number, or watches bytes for their first change.
//! [`races`] has the work of two calls run in both orders.
//!
//! Start with `target.rs`, then `chain.rs`, `first.rs` and `race.rs`.
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
mod race;
mod target;
mod text;

pub use calls::CallFacts;
pub use chain::{Answer, Input, Question, Write, ask};
pub use first::{Finding, FirstAnswer, FoundNumbers, Sought, Wanted, first};
pub use race::{Difference, Outcome, Race, listed, pair, races, unordered_pairs};
pub use target::{Bytes, Target};
pub use text::{first_text, race_text, text};
