//! Notes: records about a call in progress or about a thread.

use crate::codec::{Decode, Encode};

/// What a note holds.
pub mod note_kind {
    /// [`super::ThreadNote`].
    pub const THREAD: u16 = 1;
    /// [`super::LayoutNote`], then as many `(u32 offset, u32 size)`.
    pub const LAYOUT: u16 = 2;
    /// [`super::ReadbackNote`], then one snapshot.
    pub const READBACK: u16 = 3;
    /// Text: why recording stops here.
    pub const STOPPED: u16 = 4;
    /// Text: a name that the program asked for and that the signature table lacks.
    pub const UNKNOWN_SYMBOL: u16 = 5;
    /// Further snapshots of the `ENTER` before. The recorder reads memory that may fault only when
    /// the call itself is already in the trace.
    pub const SNAPSHOTS: u16 = 6;
    /// [`super::OriginNote`], then the function's name as text.
    pub const ORIGIN: u16 = 7;
    /// [`super::HostChangedNote`], then one snapshot.
    pub const HOST_CHANGED: u16 = 8;
    /// [`super::HostSkippedNote`].
    pub const HOST_SKIPPED: u16 = 9;
    /// [`super::BufferNote`].
    pub const BUFFER: u16 = 10;
    /// The address ranges that the process has mapped before the call: `(u64 start, u64 end)` each,
    /// in ascending order. What may be an [`super::ARENA`] is not joined with others.
    pub const ADDRESS_SPACE: u16 = 11;
    /// The id of the call's stack, a u64.
    pub const STACK: u16 = 12;
    /// [`super::FramesNote`], then a u64 for each frame; only in chunks of stacks.
    pub const FRAMES: u16 = 13;
    /// [`super::PythonCodeNote`], then file, function and line table, each as
    /// [`super::TextHead`] and its bytes; only in chunks of stacks.
    pub const PYTHON_CODE: u16 = 14;
    /// [`super::ZeroedNote`].
    pub const ZEROED: u16 = 15;
    /// [`super::DigestSetupNote`].
    pub const DIGEST_SETUP: u16 = 16;
    /// [`super::DigestNote`], then `(u64 address, u64 length)` of each range.
    pub const DIGEST: u16 = 17;
    /// `(u64 number, u64 digest)` of each range whose digest this call found complete.
    pub const DIGEST_VALUES: u16 = 18;
    /// [`super::DigestSkippedNote`].
    pub const DIGEST_SKIPPED: u16 = 19;
    /// [`super::DigestVoidNote`].
    pub const DIGEST_VOID: u16 = 20;
    /// [`crate::layout::MarkerNote`], then the name of its domain and its text; only in chunks of
    /// markers.
    pub const MARKER: u16 = 21;
    /// [`super::DriverMessageNote`], then its text.
    pub const DRIVER_MESSAGE: u16 = 22;
    /// [`super::MemoryNote`], then the name of the variable, then one snapshot or none.
    pub const MEMORY: u16 = 23;
    /// [`super::SourceChangedNote`].
    pub const SOURCE_CHANGED: u16 = 24;
    /// [`super::DescriptorNote`].
    pub const DESCRIPTOR: u16 = 25;
    /// [`super::SharedMappingNote`], then the file's name as text.
    pub const SHARED_MAPPING: u16 = 26;
    /// [`super::ExchangeNote`].
    pub const EXCHANGE: u16 = 27;
    /// [`super::ExchangeOutputNote`], then one snapshot.
    pub const EXCHANGE_OUTPUT: u16 = 28;
    /// [`super::LookedNote`].
    pub const LOOKED: u16 = 29;
    /// [`super::LookedNote`].
    pub const LOOKED_BEFORE: u16 = 30;
    /// [`super::NestedCallNote`].
    pub const NESTED_CALL: u16 = 31;
    /// [`super::GapNote`].
    pub const GAP: u16 = 33;
    /// [`super::BreadcrumbNote`].
    pub const BREADCRUMB: u16 = 32;
    /// [`super::MemorySnapshotNote`].
    pub const MEMORY_SNAPSHOT: u16 = 34;
    /// [`super::HostChangedNote`], then one snapshot.
    pub const HOST_SEEN: u16 = 35;
    /// [`super::HostFunctionNote`].
    pub const HOST_FUNCTION: u16 = 36;
}

/// Bytes of what glibc's malloc maps for a thread's arena, at a multiple of that (malloc/arena.c,
/// HEAP_MAX_SIZE).
pub const ARENA: u64 = 64 << 20;

/// Identifies the thread; in its first call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ThreadNote {
    /// The operating system's number.
    pub number: u32,
    /// Its name, padded with zeros.
    pub name: [u8; 16],
}

/// First record of a thread buffer: what the head of its chunk of calls will say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct BufferNote {
    /// Position among the chunks of the thread, from 0.
    pub sequence: u32,
    /// Number in its thread of the first call that is entered here.
    pub first: u64,
    /// Clock when the buffer was begun.
    pub ticks: u64,
    /// Nanoseconds of the monotonic clock at that moment.
    pub nanoseconds: u64,
}

/// Length of the record with a [`BufferNote`], head and padding included.
pub const BUFFER_NOTE_LENGTH: usize = 40;
/// Length that recorders give that record, with zeros at its end. The records behind it then have
/// the alignment that they have behind a chunk head; otherwise copying them takes a quarter longer.
pub const BUFFER_NOTE_PADDED_LENGTH: usize = 64;

/// How a kernel takes its parameters; before its first launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct LayoutNote {
    /// The function or kernel handle.
    pub handle: u64,
    /// How many `(offset, size)` follow.
    pub count: u32,
}

/// Origin of a function that no recorded call returned; in the first call that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct OriginNote {
    /// The function or kernel handle.
    pub handle: u64,
    /// Its module, or its library if it is a kernel.
    pub owner: u64,
    /// 0 for a `CUfunction`, 1 for a `CUkernel`.
    pub is_kernel: u8,
}

/// Bytes of an asynchronous copy, read when this call proved the copy complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ReadbackNote {
    /// Thread of the copy.
    pub thread: u32,
    /// Number of the copy in its thread, from 0.
    pub number: u64,
    /// Host address of the bytes.
    pub address: u64,
}

/// Host memory that the device accesses without a copy has changed since it was last compared, or
/// the program can have seen this in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct HostChangedNote {
    /// Host address of the snapshot that follows.
    pub address: u64,
    /// 0 if read before the call, 1 if read after it returned (it waits for the device).
    pub is_after: u8,
}

/// When the recorder had read host memory, whose bytes the notes before this one hold as far as they
/// had changed: after the call had returned, or before the driver was called. Calls of other threads
/// that were entered until then may have changed them, and the program had not got the result. A
/// recording in which only one thread makes calls has no such note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct LookedNote {
    /// As those of calls.
    pub ticks: u64,
}

/// A call that the program has made, and that has returned, while the driver was at work on the call
/// in progress: in a callback that the driver had called, or in a signal handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct NestedCallNote {
    /// Its return address.
    pub caller: u64,
    /// Its `CUresult`.
    pub result: i32,
    /// The function, by its number in the signature table.
    pub function: u16,
}

/// Calls are missing before this one: recording is paused, or was. Then calls that only give the
/// device work, wait for it or ask are not recorded; those that make, change or end something are.
/// The first call of a thread in a pause has this note, the first after it, and each before which
/// the thread has left out calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct GapNote {
    /// Calls that this thread has left out since its last such note.
    pub calls: u64,
    /// The number of the pause in the process, from 1; 0 if calls are missing for another reason.
    pub pause: u32,
    /// When it began, as the ticks of calls; 0 if that is not known.
    pub paused: u64,
    /// When it ended; 0 while recording is paused.
    pub resumed: u64,
}

/// A word in memory of the recorder that a stream writes, so that its value shows how far the stream
/// is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct BreadcrumbNote {
    /// The context's handle.
    pub context: u64,
    /// The stream: its handle, or the one of a default stream.
    pub stream: u64,
    /// Where the word is in the process.
    pub address: u64,
    /// What is written or was read; values of a word grow by 1, modulo 2^32.
    pub value: u32,
    /// A number of [`breadcrumb`].
    pub kind: u8,
}

/// What happens to the word of a [`BreadcrumbNote`].
pub mod breadcrumb {
    /// The stream writes it before the work of the call.
    pub const BEFORE: u8 = 1;
    /// The stream writes it after the work of the call.
    pub const AFTER: u8 = 2;
    /// It was read during the call.
    pub const READ: u8 = 3;
    /// The driver refused, with the value as `CUresult`: the stream writes no more.
    pub const REFUSED: u8 = 4;
}

/// Host memory that the device can read and that is not compared; once a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct HostSkippedNote {
    /// Start of the range.
    pub address: u64,
    /// Its bytes.
    pub length: u64,
    /// A number of [`host_skip`].
    pub reason: u8,
}

/// A call stack, which many calls may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct FramesNote {
    /// A hash of flags and frames, by which calls name it.
    pub id: u64,
    /// [`stack_flag`].
    pub flags: u64,
}

/// Facts about a call stack.
pub mod stack_flag {
    /// The frames do not reach the thread's first function.
    pub const CUT: u64 = 1;
}

/// The words of a frame. A native frame is its return address, which is below bit 63. A frame of
/// Python has two words: one with bit 63, and the id of its code.
pub mod python_frame {
    /// Set in the first word.
    pub const MARK: u64 = 1 << 63;
    /// The frames above it run in another native frame of the interpreter.
    pub const LAST_OF_NATIVE: u64 = 1 << 62;
    /// Bits of the offset of the instruction: from the start of the bytecode, in bytes.
    pub const OFFSET: u64 = u32::MAX as u64;
}

/// A code object of Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct PythonCodeNote {
    /// By which frames name it.
    pub id: u64,
    /// The version of Python that made it: 0x030b for 3.11.
    pub version: u32,
    /// The first line of its source, from which the line table counts.
    pub first_line: u32,
}

/// Begins a text or a table of a [`PythonCodeNote`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct TextHead {
    /// Bytes of each character: 1, 2 or 4. Characters are code points of Unicode.
    pub width: u32,
    /// Bytes in all.
    pub length: u32,
}

/// Why host memory is not compared.
pub mod host_skip {
    /// The range is longer than the limit for one range (64 MiB).
    pub const LONG: u8 = 1;
    /// All ranges together exceed the limit (1 GiB), or memory for the copy ran out.
    pub const FULL: u8 = 2;
    /// Managed memory that the host must not touch while the device works (no
    /// concurrentManagedAccess).
    pub const EXCLUSIVE: u8 = 3;
    /// Its pages could not be read.
    pub const UNREADABLE: u8 = 4;
}

/// Memory that the recorder has set to zeros after this call had allocated it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ZeroedNote {
    /// Device address.
    pub address: u64,
    /// Its bytes.
    pub length: u64,
}

/// The recorder has prepared a context for digests, after this call had created it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct DigestSetupNote {
    /// The context.
    pub context: u64,
    /// A `CUresult`: 0, or why there are no digests in this context.
    pub result: i32,
}

/// The recorder has enqueued the digests of ranges of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct DigestNote {
    /// Number of the first range; the others follow. Counted from 0 over all contexts.
    pub first: u64,
    /// The context that is current for it.
    pub context: u64,
    /// 0 if the ranges are as the call left them, 1 if they are as it found them.
    pub is_before: u8,
    /// A number of [`digest_reach`].
    pub reach: u8,
}

/// Which memory was digested.
pub mod digest_reach {
    /// What the parameters of the launched kernel point into.
    pub const PARAMETERS: u8 = 1;
    /// All of the context.
    pub const ALL: u8 = 2;
}

/// A digest was due in this call and was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct DigestSkippedNote {
    /// A number of [`digest_skip`].
    pub reason: u8,
}

/// Digests of another thread do not count: they were taken before this call was given to the driver,
/// and a replay makes this call first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct DigestVoidNote {
    /// Number of the first.
    pub first: u64,
    /// How many.
    pub count: u64,
}

/// Page-locked memory that an asynchronous copy reads has changed between the copy's call and this
/// one, which proves the copy complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct SourceChangedNote {
    /// Thread of the copy.
    pub thread: u32,
    /// Number of the copy in its thread, from 0.
    pub number: u64,
    /// Start of the memory.
    pub address: u64,
    /// Its bytes.
    pub length: u64,
}

/// The driver has called a function of the program that a call has enqueued in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct HostFunctionNote {
    /// Thread of the call that enqueued it.
    pub thread: u32,
    /// Number of that call in its thread, from 0.
    pub number: u64,
    /// The clock before the function.
    pub begun: u64,
    /// The clock behind it.
    pub ended: u64,
}

/// The file descriptor that the call exports or imports, as fstat(2) describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct DescriptorNote {
    /// Its number in the process.
    pub descriptor: u32,
    /// Type and permissions (`st_mode`).
    pub mode: u32,
    /// Device of the file system.
    pub device: u64,
    /// Number in it. Not unique for a file of a device driver: all open files have the number of
    /// the device's name.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Of a file of a device driver: the process that the open file is marked with, as the system
    /// numbers it for this process (`F_GETOWN` of fcntl(2)); 0: none.
    pub owner: u32,
    /// The mark (`F_GETSIG`): the number of the export in that process, from 1 to 64 and again from
    /// 1 on.
    pub mark: u32,
}

/// A part of the host memory that the call registers which other processes can map, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct SharedMappingNote {
    /// Start of the part.
    pub address: u64,
    /// Its bytes.
    pub length: u64,
    /// Device of the mapped file.
    pub device: u64,
    /// Number of the file on it.
    pub inode: u64,
    /// Where in the file the part begins.
    pub offset: u64,
}

/// The call, a launch or a copy, reaches memory that the process shares with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ExchangeNote {
    /// Bytes of the process's own memory that the recorder compares: as they were before the call's
    /// work and as they are behind it.
    pub kept: u64,
    /// Bytes of such memory that it does not compare.
    pub left_out: u64,
    /// A number of [`exchange_skip`]: why not.
    pub reason: u8,
}

/// Why memory is not compared that an exchange may change.
pub mod exchange_skip {
    /// All of it is compared.
    pub const NONE: u8 = 0;
    /// The call is captured: its work runs when the graph is launched.
    pub const GRAPH: u8 = 1;
    /// The recorder's memory for copies is full.
    pub const FULL: u8 = 2;
    /// A range is longer than the limit for one range.
    pub const LONG: u8 = 3;
    /// The driver refused a copy.
    pub const REFUSED: u8 = 4;
}

/// Bytes of device memory that an exchange has changed, read when its work was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ExchangeOutputNote {
    /// Thread of the exchange.
    pub thread: u32,
    /// Number of the exchange in its thread, from 0.
    pub number: u64,
    /// Device address of the bytes.
    pub address: u64,
}

/// What the driver's error log said while the call was in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct DriverMessageNote {
    /// A `CUlogLevel`: 0 an error, 1 a warning.
    pub level: u32,
}

/// What memory held before the call: as a replay of the source of a cut trace has read it, or, in a
/// call with a [`MemorySnapshotNote`], the recorder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MemoryNote {
    /// Where it begins: an address, or with an owner an offset in the variable.
    pub address: u64,
    /// Its bytes.
    pub length: u64,
    /// Without a snapshot: the word that all of it repeats, little-endian, from the first byte on.
    pub fill: u64,
    /// The module or library that the variable belongs to; 0 for memory at an address.
    pub owner: u64,
    /// 0 if the owner is a `CUmodule`, 1 if it is a `CUlibrary`.
    pub is_library: u8,
    /// Bytes of the name of the variable.
    pub name_length: u16,
}

/// The recorder has read all device memory before the call, or should have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MemorySnapshotNote {
    /// Number of the snapshot in the process, from 1; 0 if none was taken.
    pub number: u64,
    /// Bytes of memory that the [`MemoryNote`]s of the call have.
    pub bytes: u64,
    /// Bytes of memory that could not be read.
    pub left_out: u64,
    /// For how long the call was kept waiting.
    pub nanoseconds: u64,
    /// A `CUresult` of the driver, if it refused something.
    pub result: i32,
    /// A number of [`memory_snapshot`].
    pub state: u8,
}

/// What became of a snapshot of memory.
pub mod memory_snapshot {
    /// It was taken. What the notes of the call hold is all that the process had allocated.
    pub const TAKEN: u8 = 1;
    /// The snapshot of that number does not count: a call of another thread did not wait for its end.
    pub const VOID: u8 = 2;
    /// None was taken: other threads were in calls that change memory.
    pub const BUSY: u8 = 3;
    /// None was taken: work was not complete in time.
    pub const RUNNING: u8 = 4;
    /// None was taken: the driver refused what it takes.
    pub const REFUSED: u8 = 5;
}

/// The word that bytes repeat, as [`MemoryNote::fill`] has it; the last repetition may be cut.
pub fn repeated_word(bytes: &[u8]) -> Option<u64> {
    let (words, rest) = bytes.as_chunks::<8>();
    let zeros = [0; 8];
    let first = words.first().unwrap_or(&zeros);
    let repeats = first.starts_with(rest) && words.iter().all(|word| word == first);
    repeats.then(|| u64::from_le_bytes(*first))
}

/// Why a digest was not taken.
pub mod digest_skip {
    /// Another thread was in a call that enqueues work.
    pub const CONCURRENT: u8 = 1;
    /// The driver refused a call that the recorder needs.
    pub const REFUSED: u8 = 2;
    /// The program lets streams wait for values in memory: they must not wait for one another.
    pub const WAITS_FOR_MEMORY: u8 = 3;
    /// The context was not prepared.
    pub const UNPREPARED: u8 = 4;
    /// The parameters of the kernel are not known.
    pub const PARAMETERS: u8 = 5;
}
