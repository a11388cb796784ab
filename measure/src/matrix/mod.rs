//! Measures many traces in several processes each, and compares such results.
//!
//! [`Results`] is the file of a machine. [`Comparison`] compares files, with `statistics`;
//! [`History`] looks for changes along many of them. Processes are the caller's.

mod comparison;
mod history;
mod results;
mod statistics;
mod text;

pub use comparison::{
    ChangeRow, ChangeVerdict, ComparedFile, Comparison, NotCompared, ReplayRow, Thresholds,
};
pub use history::{History, ReplayHistory, Trend, TrendChange, TrendPoint};
pub(crate) use results::WHOLE_TRACE;
pub use results::{
    Machine, MatrixBenchmark, MatrixSettings, MatrixSubject, Process, ReplayOutcome, Replayed,
    Results, Round, SCHEMA, TraceResults, digest_of,
};
