//! Writes records and chunk heads into memory, without allocation or system call. The owner of the
//! memory maps it.
//!
//! [`Record`] writes any record, part by part. [`crate::slot`] writes the most frequent ones with
//! fewer instructions; its tests compare the bytes with what `Record` writes.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use crate::codec;
use crate::layout::{
    RECORD_HEAD_LENGTH, RecordHead, SNAPSHOT_HEAD_LENGTH, record_kind, short_enter, snapshot_flag,
};

/// Empties a thread buffer, given its body: clears the first word, without which the rest does not
/// count. A reader in another process looks at this word before and after it reads the rest, and
/// notices.
pub fn empty_buffer(body: &mut [u8]) {
    let Some(first) = body.first_chunk_mut::<RECORD_HEAD_LENGTH>() else {
        return;
    };
    let word = first.as_mut_ptr().cast::<AtomicU64>();
    if word.is_aligned() {
        // SAFETY: `word` is the first 8 bytes, aligned and borrowed mutably. A reader in another
        // process sees the old or the new value.
        unsafe { &*word }.store(0, Ordering::Release);
    }
    // A reader must not see the records that follow before it sees the zero.
    fence(Ordering::SeqCst);
}

/// A record that is being written. Every `put` returns `None` once the space is used up.
pub struct Record<'a> {
    space: &'a mut [u8],
    filled: usize,
}

impl<'a> Record<'a> {
    /// Bytes behind the last one that `put_loosely` and `put_snapshot_loosely` let their caller
    /// overwrite.
    pub const SLACK: usize = 8;

    /// Begins a record at the start of `space`, behind the place of its head.
    #[inline]
    pub fn new(space: &'a mut [u8]) -> Option<Self> {
        (space.len() >= RECORD_HEAD_LENGTH).then_some(Self {
            space,
            filled: RECORD_HEAD_LENGTH,
        })
    }

    /// Bytes so far, the head's included.
    pub fn length(&self) -> usize {
        self.filled
    }

    /// Appends bytes.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) -> Option<()> {
        self.space
            .get_mut(self.filled..)?
            .get_mut(..bytes.len())?
            .copy_from_slice(bytes);
        self.filled += bytes.len();
        Some(())
    }

    /// Appends `length` bytes, for the caller to write. The caller gets `SLACK` more, which it may
    /// overwrite.
    #[inline(always)]
    pub fn put_loosely(&mut self, length: usize) -> Option<&mut [u8]> {
        let start = self.filled;
        self.filled += length;
        self.space.get_mut(start..)?.get_mut(..length + Self::SLACK)
    }

    /// Appends the low `width` bytes of a number; `width` is 1 to 8.
    #[inline]
    pub fn put_number(&mut self, value: u64, width: usize) -> Option<()> {
        self.put(value.to_le_bytes().get(..width)?)
    }

    /// Appends an encoded value.
    #[inline]
    pub fn put_encoded<T: codec::Encode>(&mut self, value: T) -> Option<()> {
        self.filled += codec::encode(value, self.space.get_mut(self.filled..)?)?;
        Some(())
    }

    /// Appends a snapshot whose bytes `fill` writes. `fill` gets exactly `length` bytes and returns
    /// the snapshot's flags, or `None` for "could not be read": then the snapshot has no bytes.
    #[inline]
    pub fn put_snapshot(
        &mut self,
        parameter: u8,
        field: u8,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Option<u16>,
    ) -> Option<()> {
        self.put_snapshot_loosely(parameter, field, length, |target| {
            fill(target.get_mut(..length)?)
        })
    }

    /// As [`Record::put_snapshot`], but `fill` gets `SLACK` more bytes, which it may overwrite.
    #[inline(always)]
    pub fn put_snapshot_loosely(
        &mut self,
        parameter: u8,
        field: u8,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Option<u16>,
    ) -> Option<()> {
        let (head, behind) = self
            .space
            .get_mut(self.filled..)?
            .split_first_chunk_mut::<SNAPSHOT_HEAD_LENGTH>()?;
        let (flags, length) = match fill(behind.get_mut(..length + Self::SLACK)?) {
            Some(flags) => (flags, length),
            None => (snapshot_flag::UNREADABLE, 0),
        };
        // A `SnapshotHead`, in one store.
        let word = u64::from(parameter)
            | u64::from(field) << 8
            | u64::from(flags) << 16
            | u64::from(u32::try_from(length).ok()?) << 32;
        *head = word.to_le_bytes();
        self.filled += SNAPSHOT_HEAD_LENGTH + length;
        Some(())
    }

    /// Overwrites a number of eight bytes that was put at `offset` from the start of the record.
    #[inline]
    pub fn patch(&mut self, offset: usize, value: u64) -> Option<()> {
        *self.space.get_mut(offset..)?.first_chunk_mut()? = value.to_le_bytes();
        Some(())
    }

    /// Begins a call's enter part in the short form: ticks since the file head's, caller, and the
    /// arguments, which are at most [`short_enter::MOST_ARGUMENTS`] and zero above their width.
    pub fn put_short_enter(
        &mut self,
        ticks: u64,
        caller: u64,
        arguments: impl ExactSizeIterator<Item = u64>,
    ) -> Option<()> {
        let count = arguments.len();
        if count > short_enter::MOST_ARGUMENTS {
            return None;
        }
        let codes_length = short_enter::codes_length(count);
        let start = self.filled;
        self.put([0; 8].get(..codes_length)?)?;
        let mut codes = 0_u64;
        for (place, number) in [ticks, caller].into_iter().chain(arguments).enumerate() {
            let code = short_enter::code(number);
            codes |= code << (4 * place);
            self.put(number.to_le_bytes().get(..short_enter::bytes(code))?)?;
        }
        let place = self.space.get_mut(start..)?.get_mut(..codes_length)?;
        place.copy_from_slice(codes.to_le_bytes().get(..codes_length)?);
        Some(())
    }

    /// Ends a record that is one snapshot of the call before; its bytes have been put. As
    /// [`Record::commit`].
    #[inline]
    pub fn commit_snapshot(self, parameter: u8, field: u8) -> Option<usize> {
        let padding = self.filled.next_multiple_of(8) - self.filled;
        self.commit_with(
            record_kind::SNAPSHOT,
            parameter,
            u16::from(field) | (padding as u16) << 8,
        )
    }

    /// Ends a record without content: a call has returned 0, `ticks` after it was entered, fewer
    /// than [`crate::layout::SHORT_TICKS_END`]. As [`Record::commit`].
    pub fn commit_short_leave(self, ticks: u64) -> Option<usize> {
        self.commit_with(record_kind::LEAVE_SHORT, ticks as u8, (ticks >> 8) as u16)
    }

    /// Ends a record without content: a call has returned 0, `ticks` after it was entered, fewer
    /// than [`crate::layout::VALUE_TICKS_END`], and wrote a number of 4 or 8 bytes behind one of
    /// its first 16 parameters.
    pub fn commit_leave_value(
        mut self,
        ticks: u64,
        parameter: u8,
        number: u64,
        bytes: u8,
    ) -> Option<usize> {
        self.put_number(number, 8)?;
        let packed = ticks << 5 | u64::from(bytes == 4) << 4 | u64::from(parameter);
        self.commit_with(record_kind::LEAVE_VALUE, packed as u8, (packed >> 8) as u16)
    }

    /// Ends the record: pads it, and stores its head last, so that a reader that sees the head sees
    /// the whole record. Returns the record's length; `None` if the padding does not fit.
    #[inline]
    pub fn commit(self, kind: u8, function: u16) -> Option<usize> {
        self.commit_with(kind, 0, function)
    }

    #[inline]
    fn commit_with(self, kind: u8, detail: u8, function: u16) -> Option<usize> {
        let length = self.filled.next_multiple_of(8);
        // Up to seven bytes of padding: one store of eight if they fit, since what follows is to be
        // zero as well.
        match self.space.get_mut(self.filled..)?.first_chunk_mut::<8>() {
            Some(padding) => *padding = [0; 8],
            None => self.space.get_mut(self.filled..length)?.fill(0),
        }
        // A record that was begun here earlier and given up may have left bytes in the place of the
        // next head.
        if let Some(next) = self
            .space
            .get_mut(length..)
            .and_then(|rest| rest.first_chunk_mut::<8>())
        {
            *next = [0; 8];
        }
        let head = RecordHead {
            length: u32::try_from(length).ok()?,
            kind,
            detail,
            function,
        };
        let place = self.space.as_mut_ptr();
        if !place.cast::<AtomicU64>().is_aligned() {
            return None;
        }
        // SAFETY: `place` is valid for 8 bytes (checked in `new`), aligned (checked above), and
        // borrowed mutably. A reader in another process sees the word either as zero or complete.
        unsafe { &*place.cast::<AtomicU64>() }.store(head.word(), Ordering::Release);
        Some(length)
    }
}
