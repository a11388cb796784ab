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
mod contents;
mod finding;
mod kernels;
mod launches;
mod names;
mod origin;
mod read;
mod report;
mod run;
mod text;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use cutape_diff::Aligned;
use cutape_format::Trace;
use cutape_replay::{Observation, Observed, Outcome, Replacement, Tolerance};

pub use compare::compare;
pub use kernels::loads_of;
pub use report::{
    Changed, DifferingMemory, Finding, IntroducedBy, LaunchFacts, NotReproducible, Origin, Report,
    Verdict,
};
pub use text::text;

/// One of the two traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The trace that is compared with.
    A,
    /// The other one.
    B,
}

/// Replays the traces. Errors are messages.
pub trait Replays {
    /// Digests each launch before and after, with new memory filled.
    ///
    /// # Errors
    /// The replay is not possible, or the process died.
    fn launches(&mut self, side: Side) -> Result<cutape_replay::Report, String>;

    /// Reads memory around launches, with new memory filled.
    ///
    /// # Errors
    /// As [`Self::launches`].
    fn observe(&mut self, side: Side, observation: &Observation) -> Result<Observed, String>;

    /// Runs kernels on the inputs of launches of A.
    ///
    /// # Errors
    /// As [`Self::launches`], or a kernel cannot be loaded.
    fn run(
        &mut self,
        kernels: HashMap<u64, Replacement>,
        tolerance: &Tolerance,
    ) -> Result<Outcome, String>;
}

/// What is compared.
#[derive(Debug)]
pub struct Compared<'t> {
    /// A and B; the same trace if B is A with another image.
    pub traces: [&'t Trace; 2],
    /// Which calls correspond.
    pub aligned: &'t Aligned,
    /// The image that B has instead of A's, and its file.
    pub image: Option<(Arc<[u8]>, String)>,
    /// By how much numbers may differ. Empty: bytes are compared.
    pub tolerance: Tolerance,
    /// How many launches are read in one replay.
    pub most: usize,
    /// Where contents of memory go.
    pub folder: PathBuf,
}

/// Counts by reason.
type Reasons = BTreeMap<String, u64>;
