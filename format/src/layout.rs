//! What lies where in a trace file: the file head, chunk heads, record heads, snapshots.
//!
//! Every size is 64 bits or bounded by its chunk; every number is little-endian. NumberReader of kinds and flags are never reused.

use crate::codec::{self, Decode, Encode};

pub mod short_enter;

/// First bytes of every trace.
pub const MAGIC: [u8; 8] = *b"\x89CUTAPE\n";
/// The format that this build writes. A reader takes every minor version of the majors it knows.
pub const MAJOR: u32 = 1;
/// Grows when something is added that an older reader may skip.
pub const MINOR: u32 = 1;
/// The file head's length; the first chunk begins here.
pub const FILE_HEAD_LENGTH: usize = 4096;
/// Chunks of an unpacked trace begin at multiples of this, so that each can be mapped alone.
pub const CHUNK_ALIGNMENT: u64 = 4096;
/// A chunk head's length.
pub const CHUNK_HEAD_LENGTH: usize = 64;
/// First bytes of every chunk.
pub const CHUNK_MAGIC: u32 = u32::from_le_bytes(*b"CTCH");
/// A record head's length.
pub const RECORD_HEAD_LENGTH: usize = 8;
/// A snapshot head's length.
pub const SNAPSHOT_HEAD_LENGTH: usize = 8;
/// Longer snapshots go into a blob of their own.
pub const INLINE_LIMIT: usize = 16 << 10;

/// The file was rewritten by `pack`: chunks are compressed, complete, and indexed.
pub const FILE_PACKED: u32 = 1;

/// Start of the file. Followed by zeros up to `FILE_HEAD_LENGTH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct FileHead {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`MAJOR`].
    pub major: u32,
    /// [`MINOR`].
    pub minor: u32,
    /// Where the first chunk begins, so that later versions can have longer heads.
    pub head_length: u32,
    /// `FILE_*`.
    pub flags: u32,
    /// The recorded process.
    pub process: u32,
    /// What the times count: 0 the invariant time stamp counter, 1 a shared counter.
    pub clock: u32,
    /// Nanoseconds since 1970 at `start_ticks`.
    pub start_unix: u64,
    /// Clock at the start.
    pub start_ticks: u64,
    /// Ticks per second if known, else 0 (then the clock pairs of the chunks tell).
    pub ticks_per_second: u64,
    /// Where the index chunk begins in a packed trace, else 0.
    pub index: u64,
    /// crc32 of the encoded bytes before it.
    pub checksum: u32,
}

/// Encoded length of [`FileHead`].
pub const FILE_HEAD_ENCODED: usize = 68;

impl FileHead {
    /// Encodes with the right checksum.
    pub fn encode(mut self) -> [u8; FILE_HEAD_ENCODED] {
        let mut bytes = [0; FILE_HEAD_ENCODED];
        codec::encode(self, &mut bytes);
        self.checksum = crc32fast::hash(&bytes[..FILE_HEAD_ENCODED - 4]);
        codec::encode(self, &mut bytes);
        bytes
    }
}

/// What a chunk holds.
pub mod chunk_kind {
    /// `Vec<(String, String)>`: what is known of program and machine.
    pub const META: u16 = 1;
    /// The signature table as text.
    pub const SIGNATURES: u16 = 2;
    /// Records of one thread.
    pub const CALLS: u16 = 3;
    /// One blob.
    pub const BLOB: u16 = 4;
    /// `Vec<Mapping>`: the process's memory map at some moment.
    pub const MAPS: u16 = 5;
    /// `Vec<Symbol>`: callers' addresses with their symbols, added by `pack`.
    pub const SYMBOLS: u16 = 6;
    /// Where the chunks of a packed trace lie.
    pub const INDEX: u16 = 7;
    /// The records that a thread is writing: a NOTE `BUFFER`, then what becomes a chunk of `CALLS` elsewhere in the file once
    /// there is no more room; then the body is used again.
    pub const THREAD_BUFFER: u16 = 8;
    /// How many calls the chunks of a packed trace hold, for who wants one of them.
    pub const CALL_COUNTS: u16 = 9;
    /// What a recorder shares with its mover: see [`crate::control`]. Says nothing to a reader.
    pub const CONTROL: u16 = 10;
}

/// `used` and `body_checksum` of the chunk are final.
pub const CHUNK_CLOSED: u16 = 1;
/// The body is a u64 with the raw length, then one zstd frame.
pub const CHUNK_COMPRESSED: u16 = 2;
/// The chunk is a copy from its thread's stage; unless it is closed as well, it does not count.
pub const CHUNK_COPIED: u16 = 4;

/// Start of a chunk; its body follows, up to `length` bytes from the start of the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ChunkHead {
    /// [`CHUNK_MAGIC`].
    pub magic: u32,
    /// A number of [`chunk_kind`].
    pub kind: u16,
    /// `CHUNK_*`.
    pub flags: u16,
    /// Bytes from the start of the head to the next chunk.
    pub length: u64,
    /// Ordinal of the thread that filled it, from 0.
    pub thread: u32,
    /// Which chunk of that thread's it is, from 0.
    pub sequence: u32,
    /// For a closed chunk: bytes of the body that count, as they are stored (of a compressed chunk the frame with the eight
    /// bytes before it; its raw length is in those). 0 while the chunk is open.
    pub used: u64,
    /// For calls: number in its thread of the first call that is entered here. For a blob: the position it had when it was
    /// recorded, which is its name.
    pub first: u64,
    /// Clock when the chunk was opened.
    pub ticks: u64,
    /// Nanoseconds of the monotonic clock at that moment.
    pub nanoseconds: u64,
    /// crc32 of the used body of a closed chunk.
    pub body_checksum: u32,
    /// crc32 of the head's bytes before it, with `flags`, `used` and `body_checksum` as zero unless closed.
    pub head_checksum: u32,
}

impl ChunkHead {
    /// The head of the chunk that a stage becomes, as it is while the copy is made, and when that is complete: `length` bytes
    /// with the head, of which those of `body` count.
    pub fn of_copy(thread: u32, note: BufferNote, length: u64, body: &[u8]) -> (Self, Self) {
        let open = Self {
            magic: CHUNK_MAGIC,
            kind: chunk_kind::CALLS,
            flags: CHUNK_COPIED,
            length,
            thread,
            sequence: note.sequence,
            used: 0,
            first: note.first,
            ticks: note.ticks,
            nanoseconds: note.nanoseconds,
            body_checksum: 0,
            head_checksum: 0,
        };
        let closed = Self {
            flags: CHUNK_COPIED | CHUNK_CLOSED,
            used: body.len() as u64,
            body_checksum: crc32fast::hash(body),
            ..open
        };
        (open, closed)
    }

    /// Encodes with the right head checksum.
    pub fn encode(mut self) -> [u8; CHUNK_HEAD_LENGTH] {
        self.head_checksum = self.expected_checksum();
        let mut bytes = [0; CHUNK_HEAD_LENGTH];
        codec::encode(self, &mut bytes);
        bytes
    }

    /// The head if its checksum is right. A recorder that ends while it closes a chunk leaves a head whose checksum is still
    /// that of the open chunk: such a head counts as open.
    pub fn checked(self) -> Option<Self> {
        if self.head_checksum == self.expected_checksum() {
            return Some(self);
        }
        let open = Self {
            flags: 0,
            used: 0,
            body_checksum: 0,
            ..self
        };
        (open.head_checksum == open.expected_checksum()).then_some(open)
    }

    /// The checksum that a sound head carries.
    pub fn expected_checksum(mut self) -> u32 {
        if self.flags & CHUNK_CLOSED == 0 {
            self.flags = 0;
            self.used = 0;
            self.body_checksum = 0;
        }
        let mut bytes = [0; CHUNK_HEAD_LENGTH];
        codec::encode(self, &mut bytes);
        crc32fast::hash(&bytes[..CHUNK_HEAD_LENGTH - 4])
    }
}

/// What a record says.
pub mod record_kind {
    /// A call was entered: `EnterHead`, arguments, snapshots.
    pub const ENTER: u8 = 1;
    /// The call that the thread entered last was left: `LeaveHead`, snapshots.
    pub const LEAVE: u8 = 2;
    /// Something about the call in progress; the function field holds a number of [`super::note_kind`].
    pub const NOTE: u8 = 3;
    /// As `ENTER`, with the numbers in as few bytes as they need: see [`super::short_enter`].
    pub const ENTER_SHORT: u8 = 4;
    /// As a `LEAVE` with result 0 and no snapshots: a head alone, which has the ticks since the `ENTER`.
    pub const LEAVE_SHORT: u8 = 5;
    /// One more snapshot of the `ENTER` before, of which the head says what a snapshot's own head would.
    pub const SNAPSHOT: u8 = 6;
    /// As a `LEAVE` with result 0 and one snapshot of 4 or 8 bytes, which stand behind a head that has the rest.
    pub const LEAVE_VALUE: u8 = 7;

    /// Whether a call was entered.
    pub const fn is_enter(kind: u8) -> bool {
        matches!(kind, ENTER | ENTER_SHORT)
    }
}

/// What a note says; each is followed by the encoded struct of the same name.
pub mod note_kind {
    /// [`super::ThreadNote`].
    pub const THREAD: u16 = 1;
    /// [`super::LayoutNote`], then as many `(u32 offset, u32 size)`.
    pub const LAYOUT: u16 = 2;
    /// [`super::ReadbackNote`], then one snapshot.
    pub const READBACK: u16 = 3;
    /// Text: recording stops here, and why.
    pub const STOPPED: u16 = 4;
    /// Text: a name that the program asked for and that is not in the signature table.
    pub const UNKNOWN_SYMBOL: u16 = 5;
    /// Snapshots that belong to the `ENTER` before: what could only be looked at with the risk of a fault is looked at when
    /// the call itself is already in the trace.
    pub const SNAPSHOTS: u16 = 6;
    /// [`super::OriginNote`], then the function's name as text.
    pub const ORIGIN: u16 = 7;
    /// [`super::HostChangedNote`], then one snapshot: what host memory that the device can read held.
    pub const HOST_CHANGED: u16 = 8;
    /// [`super::HostSkippedNote`]: host memory that the device can read and whose changes are not recorded.
    pub const HOST_SKIPPED: u16 = 9;
    /// [`super::BufferNote`]: first in a stage, what the head of its chunk of calls will say.
    pub const BUFFER: u16 = 10;
}

/// Eight bytes before every record; a zero word ends the chunk's records.
/// From low to high: length of the record with its head (32 bits, a multiple of 8), kind (8), detail (8), function (16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead {
    /// Bytes, head included, padded to a multiple of 8.
    pub length: u32,
    /// A number of [`record_kind`].
    pub kind: u8,
    /// Of a `SNAPSHOT` the parameter, of a short leave part of what it says; else 0.
    pub detail: u8,
    /// Position of the function in the signature table, or a note kind. Of a `SNAPSHOT` its field, and above that how many of
    /// its bytes are padding; of a short leave part of what it says.
    pub function: u16,
}

impl RecordHead {
    /// The head as the word that is stored last.
    pub const fn word(self) -> u64 {
        self.length as u64
            | (self.kind as u64) << 32
            | (self.detail as u64) << 40
            | (self.function as u64) << 48
    }

    /// Reads it back.
    pub const fn from_word(word: u64) -> Self {
        Self {
            length: word as u32,
            kind: (word >> 32) as u8,
            detail: (word >> 40) as u8,
            function: (word >> 48) as u16,
        }
    }

    /// Of a `LEAVE_SHORT`: the ticks since its call was entered.
    pub const fn short_ticks(self) -> u64 {
        self.detail as u64 | (self.function as u64) << 8
    }

    /// Of a `LEAVE_VALUE`: the ticks since its call was entered.
    pub const fn value_ticks(self) -> u64 {
        self.short_ticks() >> 5
    }

    /// Of a `LEAVE_VALUE`: the parameter, at most 15.
    pub const fn value_parameter(self) -> u8 {
        self.detail & 15
    }

    /// Of a `LEAVE_VALUE`: how many bytes were written behind the parameter, 4 or 8.
    pub const fn value_bytes(self) -> usize {
        if self.detail & 16 != 0 { 4 } else { 8 }
    }

    /// Of a `SNAPSHOT`: its field.
    pub const fn snapshot_field(self) -> u8 {
        self.function as u8
    }

    /// Of a `SNAPSHOT`: how many bytes at its end are padding.
    pub const fn snapshot_padding(self) -> usize {
        (self.function >> 8) as usize
    }
}

/// Ticks that a `LEAVE_SHORT` has no room for.
pub const SHORT_TICKS_END: u64 = 1 << 24;

/// Ticks that a `LEAVE_VALUE` has no room for.
pub const VALUE_TICKS_END: u64 = 1 << 19;
/// Length of a `LEAVE_VALUE`.
pub const LEAVE_VALUE_LENGTH: usize = 16;

/// Begins an `ENTER` record; the arguments follow packed, each as wide as its signature says, then snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct EnterHead {
    /// Clock before the driver was entered.
    pub ticks: u64,
    /// Where the program continues after the call.
    pub caller: u64,
}

/// Begins a `LEAVE` record; snapshots follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct LeaveHead {
    /// Clock after the driver returned.
    pub ticks: u64,
    /// What it returned.
    pub result: i32,
}

impl EnterHead {
    /// Reads it where speed matters; the same as decoding it.
    #[cfg(feature = "read")]
    #[inline]
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (ticks, rest) = bytes.split_first_chunk()?;
        let (caller, _) = rest.split_first_chunk()?;
        Some(Self {
            ticks: u64::from_le_bytes(*ticks),
            caller: u64::from_le_bytes(*caller),
        })
    }
}

impl LeaveHead {
    /// Reads it where speed matters; the same as decoding it.
    #[cfg(feature = "read")]
    #[inline]
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (ticks, rest) = bytes.split_first_chunk()?;
        let (result, _) = rest.split_first_chunk()?;
        Some(Self {
            ticks: u64::from_le_bytes(*ticks),
            result: i32::from_le_bytes(*result),
        })
    }
}

/// Encoded length of [`EnterHead`].
pub const ENTER_HEAD_LENGTH: usize = 16;
/// Encoded length of [`LeaveHead`].
pub const LEAVE_HEAD_LENGTH: usize = 12;

/// What a snapshot's bytes are not.
pub mod snapshot_flag {
    /// The memory could not be read; no bytes follow.
    pub const UNREADABLE: u16 = 1;
    /// The bytes are a `BlobRef`.
    pub const BLOB: u16 = 2;
    /// Left out as the payload policy says; the bytes are the length alone (u64).
    pub const OMITTED: u16 = 4;
    /// Longer than what was kept.
    pub const TRUNCATED: u16 = 8;
    /// Left out as the payload policy says; the bytes are the length (u64) and a hash (16 bytes).
    pub const HASHED: u16 = 16;
    /// Set in `LEAVE`: what stood there before the call as well as after it was equal.
    pub const UNCHANGED: u16 = 32;
    /// The bytes are a [`crate::FileRange`]: the memory was mapped from that file and could not be written.
    pub const IN_FILE: u16 = 64;
}

/// Eight bytes before what was seen behind a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct SnapshotHead {
    /// Which parameter.
    pub parameter: u8,
    /// 0: what the parameter points at; others: further pieces, named by the function's override.
    pub field: u8,
    /// [`snapshot_flag`].
    pub flags: u16,
    /// Bytes that follow (not padded).
    pub length: u32,
}

impl SnapshotHead {
    /// Reads it where speed matters; the same as decoding it.
    #[cfg(feature = "read")]
    #[inline]
    pub(crate) const fn read(bytes: [u8; SNAPSHOT_HEAD_LENGTH]) -> Self {
        let [parameter, field, flags @ .., a, b, c, d] = bytes;
        Self {
            parameter,
            field,
            flags: u16::from_le_bytes(flags),
            length: u32::from_le_bytes([a, b, c, d]),
        }
    }
}

/// Where a blob is: the position of its chunk when it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct BlobRef {
    /// File position of the chunk in the unpacked trace; in a packed one a name only.
    pub position: u64,
    /// Bytes.
    pub length: u64,
}

/// Who a thread is; said in its first call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ThreadNote {
    /// The operating system's number.
    pub number: u32,
    /// Its name, padded with zeros.
    pub name: [u8; 16],
}

/// What the head of a chunk of calls says, for those that are still in their thread's stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct BufferNote {
    /// Which chunk of that thread's it is, from 0.
    pub sequence: u32,
    /// Number in its thread of the first call that is entered here.
    pub first: u64,
    /// Clock when it was begun.
    pub ticks: u64,
    /// Nanoseconds of the monotonic clock at that moment.
    pub nanoseconds: u64,
}

/// Length of the record with a [`BufferNote`], head and padding included.
pub const BUFFER_NOTE_LENGTH: usize = 40;
/// How long recorders make that record, by zeros at its end: then what is copied out of a stage lies behind a multiple of 64 bytes
/// there as it does behind a chunk's head, without which the copy takes a quarter longer.
pub const BUFFER_NOTE_PADDED_LENGTH: usize = 64;

/// How a kernel takes its parameters; said before its first launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct LayoutNote {
    /// The function or kernel handle.
    pub handle: u64,
    /// How many `(offset, size)` follow.
    pub count: u32,
}

/// Where a function comes from that no recorded call gave; said in the first call that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct OriginNote {
    /// The function or kernel handle.
    pub handle: u64,
    /// Its module, or its library if it is a kernel.
    pub owner: u64,
    /// 0 for a `CUfunction`, 1 for a `CUkernel`.
    pub is_kernel: u8,
}

/// Bytes that a copy enqueued earlier had brought when this call proved it complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ReadbackNote {
    /// Thread of the copy.
    pub thread: u32,
    /// Number of the copy in its thread, from 0.
    pub number: u64,
    /// Where in host memory the bytes are.
    pub address: u64,
}

/// Host memory that the device reads or writes without a copy held other bytes than when it was last looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct HostChangedNote {
    /// Where the program sees the bytes of the snapshot that follows.
    pub address: u64,
    /// 0 if they stood there before the call, 1 if only when it had returned (it waits for the device).
    pub is_after: u8,
}

/// Host memory that the device can read and that is not looked at; said once a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct HostSkippedNote {
    /// Start of the range.
    pub address: u64,
    /// Its bytes.
    pub length: u64,
    /// A number of [`host_skip`].
    pub reason: u8,
}

/// Why host memory is not looked at.
pub mod host_skip {
    /// The range is longer than what is compared (64 MiB).
    pub const LONG: u8 = 1;
    /// All ranges together are more than what is compared (1 GiB), or there was no memory to remember it.
    pub const FULL: u8 = 2;
    /// Managed memory that the host must not touch while the device works (no concurrentManagedAccess).
    pub const EXCLUSIVE: u8 = 3;
    /// Its pages could not be read.
    pub const UNREADABLE: u8 = 4;
}

/// The kinds of snapshots by field, for functions with an override; see `SPEC.md`.
pub mod field {
    /// What the parameter itself points at.
    pub const POINTEE: u8 = 0;
    /// A launch's parameters, packed by the kernel's layout.
    pub const KERNEL_PARAMETERS: u8 = 1;
    /// The `extra` array of a launch, up to its end mark, as u64 words.
    pub const EXTRA: u8 = 2;
    /// The option numbers of a JIT or library option array (u32 each).
    pub const OPTIONS: u8 = 3;
    /// The option values of that array (u64 each).
    pub const OPTION_VALUES: u8 = 4;
    /// Text in the information log buffer.
    pub const INFO_LOG: u8 = 5;
    /// Text in the error log buffer.
    pub const ERROR_LOG: u8 = 6;
    /// Content of a file that the call names.
    pub const FILE: u8 = 7;
    /// The working directory that a file name is relative to.
    pub const DIRECTORY: u8 = 8;
    /// What a fatbin wrapper (the pointee) points at.
    pub const FATBIN: u8 = 9;
    /// The attributes of a launch configuration.
    pub const ATTRIBUTES: u8 = 10;
    /// Host bytes that a struct-described copy reads or writes.
    pub const HOST_BYTES: u8 = 11;
    /// Symbol names of CU_JIT_GLOBAL_SYMBOL_NAMES, each ended by NUL.
    pub const SYMBOL_NAMES: u8 = 12;
    /// Addresses of CU_JIT_GLOBAL_SYMBOL_ADDRESSES (u64 each).
    pub const SYMBOL_ADDRESSES: u8 = 13;
    /// The byte behind the given size of a PTX input, if it could be read (1 byte).
    pub const BYTE_BEHIND: u8 = 14;
    /// The second array of option values: of library options (u32 numbers).
    pub const LIBRARY_OPTIONS: u8 = 15;
    /// Values of library options (u64 each).
    pub const LIBRARY_OPTION_VALUES: u8 = 16;
    /// The string that an out pointer to a string owned by the driver leads to.
    pub const TEXT: u8 = 17;
    /// The array that a member of the struct behind the parameter leads to, or the array of handles that an out pointer to an
    /// array of the driver's leads to.
    pub const ELEMENTS: u8 = 18;
    /// The host memory that the copies of a graph read and write, as eight u64 each: 1 for reading or 2 for writing, address,
    /// bytes of a row, distance of rows, rows, distance of slices, slices, node.
    pub const HOST_RANGES: u8 = 19;
}

#[cfg(all(test, feature = "read"))]
mod tests {
    use super::*;

    #[test]
    fn numbers_one_by_one_or_passed_over() {
        let values = [
            0,
            1,
            7,
            8,
            255,
            256,
            1 << 40,
            u64::MAX,
            0x0123_4567_89ab_cdef,
            9,
        ];
        for behind in [0, 3, 20] {
            let mut codes = 0_u64;
            let mut bytes = Vec::new();
            for (place, &value) in values.iter().enumerate() {
                let code = short_enter::code(value);
                codes |= code << (4 * place);
                bytes.extend_from_slice(&value.to_le_bytes()[..short_enter::bytes(code)]);
            }
            let arguments = values.len() - 2;
            let length = short_enter::codes_length(arguments);
            let mut record = codes.to_le_bytes()[..length].to_vec();
            record.extend_from_slice(&bytes);
            record.resize(record.len() + behind, 0xee);
            let numbers = short_enter::NumberReader::new(&record, arguments);
            let Some(numbers) = numbers else {
                panic!("there is room for the codes");
            };
            for (place, &value) in values.iter().enumerate() {
                assert_eq!(numbers.clone().nth(place), Some(value), "{place} {behind}");
                assert_eq!(numbers.at(place), Some(value), "{place} {behind}");
                assert_eq!(numbers.clone().take(place + 1).last(), Some(value));
            }
            let mut all = vec![5];
            let mut further = record[length..].to_vec();
            assert!(!numbers.read_all(&further, values.len(), &mut all));
            further.resize(further.len() + 128, 0xdd);
            assert!(numbers.read_all(&further, values.len(), &mut all));
            assert_eq!((all[0], &all[1..]), (5, &values[..]), "{behind}");
            let mut passed = numbers.clone();
            assert_eq!(passed.pass(values.len()), Some(()));
            assert_eq!(passed.rest(), &[0xee].repeat(behind)[..]);
            let cut =
                short_enter::NumberReader::new(&record[..record.len() - behind - 1], arguments);
            assert_eq!(cut.and_then(|mut cut| cut.pass(values.len() - 1)), Some(()));
        }
        let cut = short_enter::NumberReader::new(&[0x88, 1, 2, 3], 0);
        assert_eq!(cut.clone().and_then(|mut cut| cut.next()), None);
        assert_eq!(cut.clone().and_then(|cut| cut.at(0)), None);
        assert_eq!(cut.and_then(|mut cut| cut.pass(1)), None);
    }

    #[test]
    fn numbers_are_passed_over_as_they_are_read() {
        // Every code next to every other, and in every place.
        for code in 0..=15_u64 {
            for other in 0..=15_u64 {
                for count in 0..=short_enter::MOST_ARGUMENTS + 2 {
                    let codes = (0..16).fold(0, |codes, place| {
                        codes | if place % 2 == 0 { code } else { other } << (4 * place)
                    });
                    let mut record = codes.to_le_bytes().to_vec();
                    record.resize(200, 0x5a);
                    let Some(mut passed) =
                        short_enter::NumberReader::new(&record, short_enter::MOST_ARGUMENTS)
                    else {
                        panic!("there is room for the codes");
                    };
                    let mut read = passed.clone();
                    assert_eq!(read.by_ref().take(count).count(), count);
                    assert_eq!(passed.pass(count), Some(()));
                    assert_eq!(passed.rest(), read.rest(), "{code} {other} {count}");
                    if count < 16 {
                        let begun =
                            short_enter::NumberReader::new(&record, short_enter::MOST_ARGUMENTS);
                        let at = begun.and_then(|numbers| numbers.at(count));
                        assert_eq!(at, read.clone().next(), "{code} {other} {count}");
                    }
                    if count < 16 {
                        assert_eq!(passed.next(), read.next(), "{code} {other} {count}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_read_by_hand_is_what_is_encoded() {
        let enter = EnterHead {
            ticks: 0x0102_0304_0506_0708,
            caller: u64::MAX - 1,
        };
        let leave = LeaveHead {
            ticks: 77,
            result: -5,
        };
        let snapshot = SnapshotHead {
            parameter: 1,
            field: 2,
            flags: 0x0304,
            length: 0x0506_0708,
        };
        assert_eq!(EnterHead::read(&codec::encode_to_vec(enter)), Some(enter));
        assert_eq!(LeaveHead::read(&codec::encode_to_vec(leave)), Some(leave));
        let bytes: [u8; SNAPSHOT_HEAD_LENGTH] = codec::encode_to_vec(snapshot)
            .try_into()
            .unwrap_or_default();
        assert_eq!(SnapshotHead::read(bytes), snapshot);
        assert_eq!(EnterHead::read(&[0; ENTER_HEAD_LENGTH - 1]), None);
        assert_eq!(LeaveHead::read(&[0; LEAVE_HEAD_LENGTH - 1]), None);
    }
}
