//! Filling a chunk with records, without allocation or system call; whoever owns the memory maps it.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use crate::codec;
use crate::layout::{
    CHUNK_CLOSED, CHUNK_HEAD_LENGTH, ChunkHead, EnterHead, LeaveHead, RECORD_HEAD_LENGTH,
    RecordHead, SNAPSHOT_HEAD_LENGTH, record_kind, short_enter,
};

/// Closes the chunk whose head is at `place`: `used` bytes of its body count, with the crc32 `body_checksum`.
///
/// The word with both checksums is stored last, so that a process that ends meanwhile leaves a head that is good as an open
/// one. `None`, and nothing changed, if there is no sound head or `place` is not aligned to 8 bytes.
pub fn close_chunk(
    place: &mut [u8; CHUNK_HEAD_LENGTH],
    used: u64,
    body_checksum: u32,
) -> Option<()> {
    let (head, _) = codec::decode::<ChunkHead>(place)?;
    let head = head.checked()?;
    let closed = ChunkHead {
        flags: head.flags | CHUNK_CLOSED,
        used,
        body_checksum,
        ..head
    }
    .encode();
    let (first, last) = closed.split_at(CHUNK_HEAD_LENGTH - 8);
    let value = u64::from_le_bytes(last.try_into().ok()?);
    if !place.as_ptr().cast::<AtomicU64>().is_aligned() {
        return None;
    }
    place.get_mut(..first.len())?.copy_from_slice(first);
    let word = place
        .as_mut_ptr()
        .wrapping_add(first.len())
        .cast::<AtomicU64>();
    // SAFETY: `word` is the last 8 bytes of `place`, aligned (checked above) and borrowed mutably; a reader in another
    // process sees either value.
    unsafe { &*word }.store(value, Ordering::Release);
    Some(())
}

/// Empties a stage, of whose body the start is given: without its first word the rest does not count, and whoever reads it
/// meanwhile notices.
pub fn empty_stage(body: &mut [u8]) {
    let Some(first) = body.first_chunk_mut::<RECORD_HEAD_LENGTH>() else {
        return;
    };
    let word = first.as_mut_ptr().cast::<AtomicU64>();
    if word.is_aligned() {
        // SAFETY: `word` is the first 8 bytes, aligned and borrowed mutably; a reader in another process sees either value.
        unsafe { &*word }.store(0, Ordering::Release);
    }
    // What follows is not to be seen before that.
    fence(Ordering::SeqCst);
}

/// A record in the making: bytes behind the place of its head. Every `put` says `None` once the space is used up.
pub struct Record<'a> {
    space: &'a mut [u8],
    filled: usize,
}

impl<'a> Record<'a> {
    /// Begins a record at the start of `space`, leaving room for its head.
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

    /// Appends the low `width` bytes of a number; `width` is 1 to 8.
    #[inline]
    pub fn put_number(&mut self, value: u64, width: usize) -> Option<()> {
        // One store of eight bytes where there is room; those above `width` are zero, as the chunk is behind the record.
        let value = if width < 8 {
            value & ((1 << (8 * width)) - 1)
        } else {
            value
        };
        if let Some(place) = self.space.get_mut(self.filled..)?.first_chunk_mut::<8>() {
            *place = value.to_le_bytes();
        } else {
            self.space
                .get_mut(self.filled..)?
                .get_mut(..width)?
                .copy_from_slice(value.to_le_bytes().get(..width)?);
        }
        self.filled += width;
        Some(())
    }

    /// Appends an encoded value.
    #[inline]
    pub fn put_encoded<T: codec::Encode>(&mut self, value: T) -> Option<()> {
        self.filled += codec::encode(value, self.space.get_mut(self.filled..)?)?;
        Some(())
    }

    /// Appends words, each with as many low bytes as `widths` says (1 to 8); there must be as many widths.
    #[inline]
    pub fn put_words(&mut self, words: &[u64], widths: &[u8]) -> Option<()> {
        // Room for each as a whole word, so that it is one store, whose upper bytes the next one overwrites.
        let room = self.space.get(self.filled..)?.len();
        if room < 8 * words.len() || widths.len() != words.len() {
            return None;
        }
        for (&word, &width) in words.iter().zip(widths) {
            // SAFETY: all widths before are at most 8, so this begins at most 8 times the number of words before behind
            // where there is room for all of them.
            unsafe { self.store(self.filled, word) };
            self.filled += usize::from(width.min(8));
        }
        Some(())
    }

    /// # Safety
    /// `at + 8` is at most the length of the space.
    #[inline]
    unsafe fn store(&mut self, at: usize, word: u64) {
        debug_assert!(at + 8 <= self.space.len());
        // SAFETY: as the caller says.
        let place = unsafe { self.space.as_mut_ptr().add(at) };
        // SAFETY: as above; bytes need no alignment.
        unsafe { place.cast::<u64>().write_unaligned(word.to_le()) };
    }

    /// Appends as many bytes, for the caller to fill.
    #[inline]
    pub fn space_for(&mut self, length: usize) -> Option<&mut [u8]> {
        let place = self.space.get_mut(self.filled..)?.get_mut(..length)?;
        self.filled += length;
        Some(place)
    }

    /// Appends a snapshot of the eight or fewer bytes of a number.
    #[inline]
    pub fn put_snapshot_number(&mut self, parameter: u8, number: u64, bytes: u8) -> Option<()> {
        let head = u64::from(parameter) | u64::from(bytes) << 32;
        self.put_words(&[head, number], &[8, bytes])
    }

    /// Appends a snapshot whose bytes `fill` writes; `fill` gets exactly `length` bytes and returns the flags to store, or
    /// `None` for "could not be read", in which case the snapshot is kept without bytes.
    #[inline]
    pub fn put_snapshot(
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
        let (flags, length) = match fill(behind.get_mut(..length)?) {
            Some(flags) => (flags, length),
            None => (crate::layout::snapshot_flag::UNREADABLE, 0),
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

    /// Begins a call's enter part.
    #[inline]
    pub fn put_enter(&mut self, head: EnterHead) -> Option<()> {
        self.put_encoded(head)
    }

    /// Begins a call's leave part.
    #[inline]
    pub fn put_leave(&mut self, head: LeaveHead) -> Option<()> {
        self.put_encoded(head)
    }

    /// Begins a call's enter part in the short form: ticks since the file head's, caller, and the arguments, which are at most
    /// [`short_enter::MOST_ARGUMENTS`] and have nothing in the bytes above their width.
    #[inline]
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
        // As long as it can become, so that each number is one store, whose upper bytes the next one overwrites.
        if self.space.get(self.filled..)?.len() < 8 * (short_enter::MOST_ARGUMENTS + 3) {
            return None;
        }
        let start = self.filled;
        let codes_length = short_enter::codes_length(count);
        let mut at = start + codes_length;
        let (mut codes, mut place) = (0, 0);
        let mut put = |number: u64| {
            let code = short_enter::code(number);
            // SAFETY: there is room for three words and the most arguments, of which no more are taken, and each place is at
            // most as far behind as all before it are long: eight bytes of codes, and as many for each number.
            unsafe { self.store(at, number) };
            at += short_enter::bytes(code);
            codes |= code << place;
            place += 4;
        };
        put(ticks);
        put(caller);
        arguments.take(short_enter::MOST_ARGUMENTS).for_each(put);
        // Not more bytes than the codes have: behind them are numbers.
        let codes: [u8; 8] = codes.to_le_bytes();
        let place = self.space.get_mut(start..)?;
        if let Some(last) = codes_length.checked_sub(4) {
            let (low, high) = (
                codes.first_chunk::<4>()?,
                codes.get(last..)?.first_chunk::<4>()?,
            );
            *place.first_chunk_mut()? = *low;
            *place.get_mut(last..)?.first_chunk_mut()? = *high;
        } else {
            place
                .get_mut(..codes_length)?
                .copy_from_slice(codes.get(..codes_length)?);
        }
        self.filled = at;
        Some(())
    }

    /// Ends a record that is one snapshot of the call entered before; its bytes have been put. As [`Record::commit`].
    #[inline]
    pub fn commit_snapshot(self, parameter: u8, field: u8) -> Option<usize> {
        let padding = self.filled.next_multiple_of(8) - self.filled;
        self.commit_with(
            record_kind::SNAPSHOT,
            parameter,
            u16::from(field) | (padding as u16) << 8,
        )
    }

    /// Ends a record without content: a call has returned 0 that many ticks after it was entered, fewer than
    /// [`crate::layout::SHORT_TICKS_END`]. As [`Record::commit`].
    #[inline]
    pub fn commit_short_leave(self, ticks: u64) -> Option<usize> {
        self.commit_with(record_kind::LEAVE_SHORT, ticks as u8, (ticks >> 8) as u16)
    }

    /// Ends a record of which nothing has been put: a call has returned 0 that many ticks after it was entered, fewer than
    /// [`crate::layout::VALUE_TICKS_END`], and behind one of its first 16 parameters stands that number of 4 or 8 bytes.
    #[inline]
    pub fn commit_leave_value(
        mut self,
        ticks: u64,
        parameter: u8,
        number: u64,
        bytes: u8,
    ) -> Option<usize> {
        self.put_words(&[number], &[8])?;
        let said = ticks << 5 | u64::from(bytes == 4) << 4 | u64::from(parameter);
        self.commit_with(record_kind::LEAVE_VALUE, said as u8, (said >> 8) as u16)
    }

    /// Ends the record: pads it, and stores its head last, so that whoever sees the head sees all of it.
    /// Returns the record's length; `None` if the padding does not fit.
    #[inline]
    pub fn commit(self, kind: u8, function: u16) -> Option<usize> {
        self.commit_with(kind, 0, function)
    }

    #[inline]
    fn commit_with(self, kind: u8, detail: u8, function: u16) -> Option<usize> {
        let length = self.filled.next_multiple_of(8);
        // Up to seven bytes of padding: one store of eight where there is room, since what follows is to be zero as well.
        match self.space.get_mut(self.filled..)?.first_chunk_mut::<8>() {
            Some(padding) => *padding = [0; 8],
            None => self.space.get_mut(self.filled..length)?.fill(0),
        }
        // A record begun here earlier and given up may have left bytes where the next head will be looked for.
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
        // SAFETY: `place` is valid for 8 bytes (checked in `new`), aligned (checked above), and borrowed mutably; a reader
        // in another process sees the word either as zero or complete.
        unsafe { &*place.cast::<AtomicU64>() }.store(head.word(), Ordering::Release);
        Some(length)
    }
}
