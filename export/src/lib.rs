//! What a trace shows as rows of tables, and the formats of other programs that take them.
//!
//! [`rows::Rows`] reads a trace once and hands rows to a [`rows::Sink`]: calls, launches, copies,
//! waits, objects, memory, ranges, findings. Start with `rows/row.rs`, the columns.
//!
//! Invariant: a row says what the trace shows; what it does not show is `None`, never guessed.
//! Times are those of the host, but for what a [`Replayed`] adds. Memory is bounded by live objects and distinct handles, not by the
//! length of the trace.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)
)]

mod error;
mod replayed;
pub mod rows;
pub mod tables;
pub mod timeline;

pub use error::Error;
pub use replayed::Replayed;
