//! Damaged traces and images with valid checksums, given to everything that reads them.
//!
//! `bytes` changes bytes, `trace` the chunks of a trace, whose checksums and index it makes valid
//! again, so that what reads the contents sees them. `target` has the readers.

mod bytes;
pub mod target;
mod trace;

pub use bytes::mutated;
pub use trace::mutated_trace;
