//! The trace file and what is written to it besides records.

mod free_space;
pub(crate) mod identity;
pub(crate) mod kept_blobs;
mod mapping;
pub(crate) mod rows;
pub(crate) mod shared_chunk;
pub(crate) mod size_limit;
pub(crate) mod thread_buffer;
pub(crate) mod trace_file;
