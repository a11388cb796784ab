//! Re-issues one call: makes its arguments, calls the driver, compares what it returned, and notes
//! the objects and memory that it made or ended.

pub(crate) mod context;
mod fill;
mod host_bytes;
mod marshal;
pub(crate) mod outcome;
mod reissue;
pub(crate) mod structs;
pub(crate) mod values;
