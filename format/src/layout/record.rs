//! Record kinds, the word before each record, and the fixed parts of ENTER and LEAVE.

use crate::codec::{Decode, Encode};

/// A record head's length.
pub const RECORD_HEAD_LENGTH: usize = 8;

/// What a record holds.
pub mod record_kind {
    /// A call was entered: `EnterHead`, arguments, snapshots.
    pub const ENTER: u8 = 1;
    /// The call that the thread entered last was left: `LeaveHead`, snapshots.
    pub const LEAVE: u8 = 2;
    /// A note; the function field holds a number of [`crate::layout::note_kind`].
    pub const NOTE: u8 = 3;
    /// As `ENTER`, with numbers in as few bytes as they need: see [`crate::layout::short_enter`].
    pub const ENTER_SHORT: u8 = 4;
    /// As a `LEAVE` with result 0 and no snapshots: a head alone, with the ticks since the `ENTER`.
    pub const LEAVE_SHORT: u8 = 5;
    /// One more snapshot of the `ENTER` before; the record head takes the place of its own head.
    pub const SNAPSHOT: u8 = 6;
    /// As a `LEAVE` with result 0 and one snapshot of 4 or 8 bytes, which follow the record head.
    pub const LEAVE_VALUE: u8 = 7;

    /// Whether a call was entered.
    pub const fn is_enter(kind: u8) -> bool {
        matches!(kind, ENTER | ENTER_SHORT)
    }
}

/// Eight bytes before every record; a zero word ends the chunk's records. From low to high: length
/// (32 bits), kind (8), detail (8), function (16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead {
    /// Bytes, head included, padded to a multiple of 8.
    pub length: u32,
    /// A number of [`record_kind`].
    pub kind: u8,
    /// For a `SNAPSHOT` the parameter; for a short leave a part of its ticks; else 0.
    pub detail: u8,
    /// Position of the function in the signature table, or a note kind. For a `SNAPSHOT` the field
    /// and the number of padding bytes; for a short leave a part of its ticks.
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

    /// Whether it is a note, whose kind is the function field.
    #[cfg(feature = "read")]
    pub(crate) const fn is_note(self) -> bool {
        self.kind == record_kind::NOTE
    }

    /// Of a `LEAVE_SHORT`: ticks since the call was entered.
    pub const fn short_ticks(self) -> u64 {
        self.detail as u64 | (self.function as u64) << 8
    }

    /// Of a `LEAVE_VALUE`: ticks since the call was entered.
    pub const fn value_ticks(self) -> u64 {
        self.short_ticks() >> 5
    }

    /// Of a `LEAVE_VALUE`: the parameter, at most 15.
    pub const fn value_parameter(self) -> u8 {
        self.detail & 15
    }

    /// Of a `LEAVE_VALUE`: bytes written behind the parameter, 4 or 8.
    pub const fn value_bytes(self) -> usize {
        if self.detail & 16 != 0 { 4 } else { 8 }
    }

    /// Of a `SNAPSHOT`: its field.
    pub const fn snapshot_field(self) -> u8 {
        self.function as u8
    }

    /// Of a `SNAPSHOT`: padding bytes at its end.
    pub const fn snapshot_padding(self) -> usize {
        (self.function >> 8) as usize
    }
}

/// A `LEAVE_SHORT` holds fewer ticks than this.
pub const SHORT_TICKS_END: u64 = 1 << 24;
/// A `LEAVE_VALUE` holds fewer ticks than this.
pub const VALUE_TICKS_END: u64 = 1 << 19;
/// Length of a `LEAVE_VALUE`.
pub const LEAVE_VALUE_LENGTH: usize = 16;

/// Begins an `ENTER`; the arguments follow packed, each as wide as its signature says, then
/// snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct EnterHead {
    /// Clock before the driver was entered.
    pub ticks: u64,
    /// Where the program continues after the call.
    pub caller: u64,
}

/// Begins a `LEAVE`; snapshots follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct LeaveHead {
    /// Clock after the driver returned.
    pub ticks: u64,
    /// What it returned.
    pub result: i32,
}

/// Encoded length of [`EnterHead`].
pub const ENTER_HEAD_LENGTH: usize = 16;
/// Encoded length of [`LeaveHead`].
pub const LEAVE_HEAD_LENGTH: usize = 12;

#[cfg(feature = "read")]
impl EnterHead {
    /// The same as decoding it, faster.
    #[inline]
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (ticks, rest) = bytes.split_first_chunk()?;
        Some(Self {
            ticks: u64::from_le_bytes(*ticks),
            caller: u64::from_le_bytes(*rest.first_chunk()?),
        })
    }
}

#[cfg(feature = "read")]
impl LeaveHead {
    /// The same as decoding it, faster.
    #[inline]
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (ticks, rest) = bytes.split_first_chunk()?;
        Some(Self {
            ticks: u64::from_le_bytes(*ticks),
            result: i32::from_le_bytes(*rest.first_chunk()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    #[test]
    fn heads_are_read_as_they_are_encoded() {
        let enter = EnterHead {
            ticks: 0x0102_0304_0506_0708,
            caller: u64::MAX - 1,
        };
        let leave = LeaveHead {
            ticks: 77,
            result: -5,
        };
        assert_eq!(EnterHead::read(&codec::encode_to_vec(enter)), Some(enter));
        assert_eq!(LeaveHead::read(&codec::encode_to_vec(leave)), Some(leave));
        assert_eq!(EnterHead::read(&[0; ENTER_HEAD_LENGTH - 1]), None);
        assert_eq!(LeaveHead::read(&[0; LEAVE_HEAD_LENGTH - 1]), None);
    }
}
