//! The trace container: chunks, records, blobs; knows no CUDA.
//!
//! `SPEC.md` beside this crate is the grammar. The writing side (`layout`, `codec`, `write`) allocates nothing and needs no
//! operating system; the interposer builds on it. The reading side is behind the feature `read`.
//! Invariant: a reader of a later version reads every earlier file; bytes from a file never cause a panic.

pub mod codec;
pub mod control;
pub mod file_range;
pub mod fixed;
pub mod layout;
mod payloads;
pub mod rank;
pub mod write;

/// The checksum that guards heads and bodies: crc32 (IEEE).
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

#[cfg(feature = "build")]
mod build;
#[cfg(feature = "read")]
mod call;
#[cfg(feature = "read")]
mod compress;
#[cfg(feature = "read")]
mod contents;
#[cfg(feature = "read")]
mod cursor;
#[cfg(feature = "read")]
mod follow;
#[cfg(feature = "read")]
mod mover;
#[cfg(feature = "read")]
mod ordered;
#[cfg(feature = "read")]
mod outline;
#[cfg(feature = "read")]
mod pack;
#[cfg(feature = "read")]
mod packed_file;
#[cfg(feature = "read")]
mod records;
#[cfg(feature = "read")]
mod reduce;
#[cfg(feature = "read")]
mod repair;
#[cfg(feature = "read")]
mod scan;
#[cfg(feature = "read")]
mod signature;
#[cfg(feature = "read")]
mod trace;
#[cfg(feature = "read")]
mod verify;
#[cfg(feature = "read")]
mod walk;

#[cfg(feature = "build")]
pub use build::{NewCall, NewSnapshot, TraceBuilder};
#[cfg(feature = "read")]
pub use call::{Bytes, Call, Leave, Note, Snapshot, Snapshots};
#[cfg(feature = "read")]
pub use cursor::{Calls, Cursor};
pub use file_range::FileRange;
#[cfg(feature = "read")]
pub use mover::Mover;
#[cfg(feature = "read")]
pub use pack::{MissingFileRange, PackSummary, Symbol, pack, pack_with_policies};
pub use payloads::{PayloadPolicies, PayloadPolicy};
#[cfg(feature = "read")]
pub use records::RecordSizes;
#[cfg(feature = "read")]
pub use repair::{RepairSummary, repair};
#[cfg(feature = "read")]
pub use signature::{
    Enumeration, FieldLayout, Parameter, Signature, Signatures, StructLayout, ValueType,
};
#[cfg(feature = "read")]
pub use trace::{Damage, Error, Mapping, Thread, Trace, recorded_process};
#[cfg(feature = "read")]
pub use walk::{Walk, WalkSummary};
