//! Damaged traces and images with valid checksums, given to everything that reads them.
//!
//! `bytes` changes bytes, `records` the records of a chunk, `trace` the chunks of a trace, whose
//! checksums and index it makes valid again, so that what reads the contents sees them. `corpus` has
//! what inputs are made of, `cut` makes it small. `target` has the readers, `in_process` those that
//! read many inputs a second, `batch` gives them to these in processes of their own.

pub mod batch;
mod bytes;
pub mod corpus;
mod cut;
mod in_process;
mod records;
pub mod target;
mod trace;
