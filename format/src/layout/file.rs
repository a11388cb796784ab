//! The file head.

use crate::codec::{self, Decode, Encode};

/// First bytes of every trace.
pub const MAGIC: [u8; 8] = *b"\x89CUTAPE\n";
/// The format that this build writes. A reader takes every minor version of the majors it knows.
pub const MAJOR: u32 = 1;
/// Grows when something is added that an older reader may skip.
pub const MINOR: u32 = 15;
/// The file head's length; the first chunk begins here.
pub const FILE_HEAD_LENGTH: usize = 4096;
/// The file was rewritten by `pack`: chunks are compressed, complete, and indexed.
pub const FILE_PACKED: u32 = 1;

/// Start of the file, followed by zeros up to `head_length`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct FileHead {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`MAJOR`].
    pub major: u32,
    /// [`MINOR`].
    pub minor: u32,
    /// Position of the first chunk, so that later versions can have longer heads.
    pub head_length: u32,
    /// `FILE_*`.
    pub flags: u32,
    /// The recorded process.
    pub process: u32,
    /// Source of the ticks: 0 the invariant time stamp counter, 1 a shared counter.
    pub clock: u32,
    /// Nanoseconds since 1970 at `start_ticks`.
    pub start_unix: u64,
    /// Clock at the start.
    pub start_ticks: u64,
    /// Ticks per second, or 0 if unknown (the clock pairs of the chunks then give the rate).
    pub ticks_per_second: u64,
    /// Position of the first index chunk in a packed trace, else 0.
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
