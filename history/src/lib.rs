//! What memory held along a trace, which calls wrote it, and what another order would change: the
//! questions of `cutape inspect`, `cutape why`, `cutape first` and `cutape race`.
//!
//! A [`Target`] names the bytes and the moment. For `why`, [`ask`] has the trace replayed with the
//! bytes watched, and again with the memory that the last writer read, to the depth that is wanted.
//! For `inspect`, a [`Plan`] says what a replay has to read and takes what it has read, and an
//! [`Inspection`] says what these bytes are as numbers. The replay is the caller's.
//!
//! [`first`] has all that calls write searched for a number, or watches bytes for their first change.
//! [`exact_observation`] and [`set_exact`] find the bytes in changed pages, for both.
//! [`races`] has the work of two calls run in both orders, [`explore`] that of several in many.
//!
//! Start with `target.rs`, then `chain.rs`, `first.rs`, `race.rs` and `snapshot.rs`.
//!
//! Invariant: a writer is named only if the bytes changed in a replay, not because a parameter
//! points there. What was not read is an error and not zeros. No bytes of a trace cause a panic.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)
)]

mod calls;
mod chain;
mod comparison;
mod contents;
mod difference;
mod exact;
mod explore;
mod first;
mod inspect_text;
mod inspection;
mod lifetimes;
mod loads;
mod number_format;
mod race;
mod snapshot;
mod statistics;
mod target;
mod text;
mod values;

pub use calls::{CallFacts, Facts, facts};
pub use chain::{Answer, Input, Question, Write, ask};
pub use comparison::{Comparison, DifferingPair, Largest};
pub use contents::{Contents, MemoryPairs, contains};
pub use difference::Difference;
pub use exact::{BUDGET, exact_observation, set_exact};
pub use explore::{Exploration, Explored, Interleaving, explore};
pub use first::{Finding, FirstAnswer, FoundNumbers, Sought, Wanted, first};
pub use inspect_text::inspection_text;
pub use inspection::{Inspection, Look, write_npy};
pub use lifetimes::When;
pub use number_format::NumberFormat;
pub use race::{Observe, Outcome, Race, listed, pair, races, unordered_pairs};
pub use snapshot::{Asked, Plan, Snapshot};
pub use statistics::{Bin, Extreme, Statistics};
pub use target::{Bytes, Place, Target};
pub use text::{explored_text, first_text, numbers, race_text, text, written_by};
pub use values::{Layout, Shown};
