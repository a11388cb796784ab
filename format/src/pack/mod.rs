//! Packing: one complete, compressed, indexed file with the same content.

mod blobs;
mod file;
mod reduce;
mod repair;
mod rewrite;
mod summary;

pub use repair::{RepairSummary, repair};
pub use rewrite::{pack, pack_with_policies};
pub use summary::PackSummary;
