//! The trace container: chunks, records, blobs; knows no CUDA.
//!
//! `SPEC.md` beside this crate is the grammar, and [`layout`] has its structs and numbers. The
//! writing side (`write`, `slot`, `codec`) allocates nothing and needs no operating system; the
//! interposer builds on it. The reading side (`read`, `pack`) is behind the feature `read`.
//!
//! Invariant: a later version reads every earlier file; bytes of a file never cause a panic.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::string_slice
    )
)]

pub mod codec;
pub mod control;
pub mod file_range;
pub mod layout;
mod payload_policy;
pub mod rank;
pub mod slot;
pub mod write;

#[cfg(feature = "read")]
mod append;
#[cfg(feature = "build")]
#[allow(
    clippy::indexing_slicing,
    clippy::panic,
    reason = "builds traces for tests, which are to fail at a mistake"
)]
mod build;
#[cfg(feature = "read")]
mod erase;
#[cfg(feature = "read")]
mod pack;
#[cfg(feature = "read")]
mod parallel;
#[cfg(feature = "read")]
mod read;

#[cfg(feature = "read")]
pub use append::{LONGEST_MARK, LiveControl, append_mark};
#[cfg(feature = "build")]
pub use build::{NewCall, NewSnapshot, TraceBuilder};
#[cfg(feature = "read")]
pub use erase::{Erased, Needed};
pub use file_range::FileRange;
#[cfg(feature = "read")]
pub use layout::{Mapping, ResolvedAddress, SourceFrame, Symbol};
#[cfg(feature = "read")]
pub use pack::{
    AddedMemory, CallChange, CallPart, CallSelection, Contents, MemoryPiece, NewBytes, PackSummary,
    REDACTED, ReadPiece, Redaction, RepairSummary, Secret, Secrets, SnapshotChange, Subject,
    Synthetic, TemporaryFile, is_payload, pack, pack_calls, pack_counting, pack_redacted,
    pack_with_policies, remove_temporary_files, repair,
};
pub use payload_policy::{PayloadPolicies, PayloadPolicy, REDACT};
#[cfg(feature = "read")]
pub use read::{
    call::{Call, Leave},
    clock::{ClockStart, TraceClock},
    cursor::{Calls, Cursor},
    error::{Damage, Error},
    failed::FailedCall,
    incomplete::Shortfall,
    left_out::LeftOut,
    made_call::MadeCall,
    marker::{MarkedRange, Marker, MarkerAction, MarkerSource, Payload, marked_ranges},
    memory_snapshots::MemorySnapshots,
    note::Note,
    positions::CallPositions,
    provenance::{Provenance, StateOrigin, file_hash},
    ranges::Ranges,
    signature::{
        Enumeration, FieldLayout, Parameter, Signature, Signatures, StructLayout, ValueType,
    },
    snapshot::{Bytes, Snapshot, Snapshots},
    source::recorded_process,
    stack::{PythonCode, Stack, StackFrame},
    trace::{Thread, Trace},
    verify::{MissingFileRange, PayloadFile, RecordSizes, WalkSummary},
    walk::Walk,
    writer::writer,
};

/// The checksum of heads and bodies: crc32 (IEEE).
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}
