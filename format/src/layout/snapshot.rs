//! Snapshots: bytes behind a pointer argument, kept before or after the call.

use crate::codec::{Decode, Encode};

/// A snapshot head's length.
pub const SNAPSHOT_HEAD_LENGTH: usize = 8;
/// Longer snapshots go into a blob of their own.
pub const INLINE_LIMIT: usize = 16 << 10;

/// How the bytes of a snapshot are to be read.
pub mod snapshot_flag {
    /// The memory could not be read; no bytes follow.
    pub const UNREADABLE: u16 = 1;
    /// The bytes are a `BlobRef`.
    pub const BLOB: u16 = 2;
    /// Left out by the payload policy; the bytes are the length alone (u64).
    pub const OMITTED: u16 = 4;
    /// The memory was longer than what was kept.
    pub const TRUNCATED: u16 = 8;
    /// Left out by the payload policy; the bytes are the length (u64) and a hash (16 bytes).
    pub const HASHED: u16 = 16;
    /// In a `LEAVE`: the bytes were the same before the call.
    pub const UNCHANGED: u16 = 32;
    /// The bytes are a [`crate::FileRange`]: the memory was mapped from that file, read-only.
    pub const IN_FILE: u16 = 64;
}

/// Eight bytes before the bytes of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct SnapshotHead {
    /// Position of the parameter.
    pub parameter: u8,
    /// A number of [`field`].
    pub field: u8,
    /// [`snapshot_flag`].
    pub flags: u16,
    /// Bytes that follow (not padded).
    pub length: u32,
}

impl SnapshotHead {
    /// The same as decoding it, faster.
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

/// Names a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct BlobRef {
    /// File position of its chunk in the unpacked trace; in a packed one a name only.
    pub position: u64,
    /// Bytes.
    pub length: u64,
}

/// Which piece of memory a snapshot holds. `SPEC.md` lists the functions that use each.
pub mod field {
    /// What the parameter itself points at.
    pub const POINTEE: u8 = 0;
    /// A launch's parameters, packed by the kernel's layout.
    pub const KERNEL_PARAMETERS: u8 = 1;
    /// The `extra` array of a launch, up to its end mark, as u64 words.
    pub const EXTRA: u8 = 2;
    /// The option numbers of a JIT option array (u32 each).
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
    /// Host bytes that a copy described by a struct reads or writes.
    pub const HOST_BYTES: u8 = 11;
    /// Symbol names of CU_JIT_GLOBAL_SYMBOL_NAMES, each ended by NUL.
    pub const SYMBOL_NAMES: u8 = 12;
    /// Addresses of CU_JIT_GLOBAL_SYMBOL_ADDRESSES (u64 each).
    pub const SYMBOL_ADDRESSES: u8 = 13;
    /// The byte behind the given size of a PTX input, if it could be read (1 byte).
    pub const BYTE_BEHIND: u8 = 14;
    /// The numbers of a library option array (u32 each).
    pub const LIBRARY_OPTIONS: u8 = 15;
    /// The values of that array (u64 each).
    pub const LIBRARY_OPTION_VALUES: u8 = 16;
    /// The driver's string that an out pointer to a string leads to.
    pub const TEXT: u8 = 17;
    /// An array behind a pointer: that a member of the pointee struct leads to, or that an out
    /// pointer to an array of the driver's leads to.
    pub const ELEMENTS: u8 = 18;
    /// The host memory that the copies of a graph read and write, as eight u64 each: 1 for reading
    /// or 2 for writing, address, row length, row distance, rows, slice distance, slices, node.
    pub const HOST_RANGES: u8 = 19;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    #[test]
    fn the_head_is_read_as_it_is_encoded() {
        let head = SnapshotHead {
            parameter: 1,
            field: 2,
            flags: 0x0304,
            length: 0x0506_0708,
        };
        let bytes = codec::encode_to_vec(head);
        let bytes = *bytes.first_chunk::<SNAPSHOT_HEAD_LENGTH>().unwrap();
        assert_eq!(SnapshotHead::read(bytes), head);
    }
}
