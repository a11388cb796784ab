//! Measures recorded work repeatedly and compares it with earlier measurements.
//!
//! [`Selection`] chooses and names what to measure, with the kernels of `replacement`. A guarded
//! child ([`measure()`], [`measure_as_child`]) replays the trace up to the selected calls, and
//! criterion measures them on the device's clock and the host's. `measurement` reads criterion's
//! files, [`Report`] judges and describes.
//!
//! `what_if` compares calls with edited ones. `gpu` profiles: it measures when the work of a replay
//! runs, for the crate `cutape-profile`. `ncu` adds what hardware counters say of its kernels.
//!
//! Invariant: a regression is reported only if mean and median agree on it. What was not measured
//! or not compared is in the report, with a reason. Nothing here prints, but for criterion if asked.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod child;
mod error;
mod gpu;
mod host_time;
pub mod matrix;
mod measure;
mod measurement;
mod ncu;
mod replacement;
mod selection;
mod settings;
mod text;
mod verdict;
mod what_if;

pub use child::measure_as_child;
pub use error::Error;
pub use gpu::{
    GpuState, GpuStates, NotFound, ProfileSettings, ProfiledRank, find_cupti, profile,
    profile_as_child, profile_ranks,
};
pub use measure::measure;
pub use measurement::{Benchmark, Change, Estimate, Results};
pub use ncu::{Counted, Measured, Ncu, count, count_as_child, counters};
pub use replacement::tolerance;
pub use selection::Selection;
pub use settings::{Comparison, Round, Settings, UNNAMED, is_baseline_name};
pub use verdict::Report;
pub use what_if::{EditSelection, EditSettings, Pair, Tried, try_as_child, try_edits};
