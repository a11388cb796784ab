//! What the launches of two traces compute differently, and where that begins: the question of
//! `cutape diff --execute`.
//!
//! [`compare`] has both traces replayed, A twice. Each launch of A is compared with the launch of B
//! that corresponds, by digests of the memory that their parameters point into, before and after
//! (`launches.rs`). The few launches that this names are read in further replays (`contents.rs`),
//! where numbers may differ by a tolerance and addresses count by the memory that they point into.
//! Where inputs differ, B's kernel runs on A's inputs, if its code is another (`kernels.rs`).
//! `origin.rs` finds the copy that other input data come from.
//!
//! [`first_write`] compares what every call and every node of a graph writes to device memory, not only
//! launches: `cutape first --differs`.
//!
//! The replays are the caller's: this crate gets what they have seen ([`Replays`]).
//!
//! Invariant: a launch has introduced a difference only if the memory that it can reach was equal
//! before it, or if B's kernel has written something else on A's inputs. What was not looked at is
//! in the report. No bytes of a trace cause a panic.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)
)]

mod compare;
mod compared;
mod contents;
mod finding;
mod first_write;
mod first_write_text;
mod kernels;
mod launches;
mod names;
mod origin;
mod read;
mod report;
mod run;
mod text;

pub use compare::compare;
pub use compared::{Compared, Replays, Side};
pub use first_write::{DifferingWrite, FirstWrite, WriterFacts, first_write};
pub use first_write_text::first_write_text;
pub use kernels::loads_of;
pub use report::{
    Changed, DifferingMemory, Finding, IntroducedBy, LaunchFacts, NotReproducible, Origin, Report,
    Verdict,
};
pub use text::text;
