//! What lies where in a trace file. `SPEC.md` is the grammar; these are its structs and numbers.
//!
//! Numbers are little-endian. Numbers of kinds, flags and fields are never reused.

mod chunk;
mod file;
mod marker;
mod note;
mod record;
#[allow(
    clippy::indexing_slicing,
    reason = "tables with an entry for every index, which a mask or a remainder bounds"
)]
pub mod short_enter;
mod snapshot;
#[cfg(feature = "read")]
mod table;

pub use chunk::{
    CHUNK_ALIGNMENT, CHUNK_CLOSED, CHUNK_COMPRESSED, CHUNK_COPIED, CHUNK_HEAD_LENGTH, CHUNK_MAGIC,
    ChunkHead, chunk_kind,
};
pub use file::{FILE_HEAD_ENCODED, FILE_HEAD_LENGTH, FILE_PACKED, FileHead, MAGIC, MAJOR, MINOR};
pub use marker::{MarkerNote, marker_action, marker_payload, marker_source};
pub use note::{
    ARENA, BUFFER_NOTE_LENGTH, BUFFER_NOTE_PADDED_LENGTH, BreadcrumbNote, BufferNote,
    DescriptorNote, DigestNote, DigestSetupNote, DigestSkippedNote, DigestVoidNote,
    DriverMessageNote, ExchangeNote, ExchangeOutputNote, FramesNote, GapNote, HostChangedNote,
    HostFunctionNote, HostSkippedNote, LayoutNote, LookedNote, MemoryNote, MemorySnapshotNote,
    NestedCallNote, OriginNote, PythonCodeNote, ReadbackNote, SharedMappingNote, SourceChangedNote,
    TextHead, ThreadNote, ZeroedNote, breadcrumb, digest_reach, digest_skip, exchange_skip,
    host_skip, memory_snapshot, note_kind, python_frame, repeated_word, stack_flag,
};
pub use record::{
    ENTER_HEAD_LENGTH, EnterHead, LEAVE_HEAD_LENGTH, LEAVE_VALUE_LENGTH, LeaveHead,
    RECORD_HEAD_LENGTH, RecordHead, SHORT_TICKS_END, VALUE_TICKS_END, record_kind,
};
pub use snapshot::{
    BlobRef, INLINE_LIMIT, SNAPSHOT_HEAD_LENGTH, SnapshotHead, field, snapshot_flag,
};
#[cfg(feature = "read")]
pub(crate) use table::{CallCount, ChunkIdentity, IndexEntry};
#[cfg(feature = "read")]
pub use table::{Mapping, ResolvedAddress, SourceFrame, Symbol};
