//! What a trace shows, counted; and the trace as one HTML page: summary, timeline, memory over time,
//! kernels, findings.
//!
//! [`summary::Summary`] is what `cutape info` shows.
//! [`Collector`] takes the rows of `cutape-export` and keeps them as columns of small numbers.
//! [`Report`] joins them with the facts that others know (the summary of `cutape info`, findings, a
//! replay's report) and writes the page. `page/` has the page's sources: plain HTML, CSS and
//! JavaScript, joined by `page.rs`.
//!
//! Invariant: the page needs no network and cannot use any. Names of a trace reach it as data and
//! are shown as text, never as HTML. Equal inputs give equal pages. No unsafe code.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)
)]

mod call_kind;
mod collector;
mod columns;
mod completion;
mod dictionary;
mod facts;
mod gpu;
mod matrix;
mod page;
mod range_rows;
pub mod summary;

pub use call_kind::CallKind;
pub use collector::Collector;
pub use facts::{Added, Collected, Report};
pub use matrix::write_matrix_page;
