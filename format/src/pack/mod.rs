//! Packing: one complete, compressed, indexed file with the same content.

mod blobs;
mod change;
mod file;
mod memory;
mod record;
mod redact;
mod reduce;
mod repair;
mod rewrite;
mod selection;
mod summary;
mod synthetic;

pub use change::{CallChange, CallPart, NewBytes, SnapshotChange};
pub use file::{TemporaryFile, remove_temporary_files};
pub use memory::{AddedMemory, MemoryPiece, ReadPiece};
pub use redact::{REDACTED, Redaction, Secret, Secrets, Subject};
pub use reduce::is_payload;
pub use repair::{RepairSummary, repair};
pub use rewrite::{pack, pack_calls, pack_counting, pack_redacted, pack_with_policies};
pub use selection::CallSelection;
pub use summary::PackSummary;
pub use synthetic::{Contents, Synthetic};
