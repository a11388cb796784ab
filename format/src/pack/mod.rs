//! Packing: one complete, compressed, indexed file with the same content.

mod blobs;
mod file;
mod record;
mod reduce;
mod repair;
mod rewrite;
mod selection;
mod summary;

pub use repair::{RepairSummary, repair};
pub use rewrite::{pack, pack_calls, pack_with_policies};
pub use selection::CallSelection;
pub use summary::PackSummary;
