//! Records whose form is known before the call, each put in one go: there is room for the longest of them, so that nothing is
//! asked on the way. What they say is what `write` puts by parts, byte for byte.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::layout::{RECORD_HEAD_LENGTH, RecordHead, record_kind, short_enter};

/// Where an `ENTER` has its ticks, its caller, and its arguments.
const TICKS: usize = RECORD_HEAD_LENGTH;
const CALLER: usize = TICKS + 8;
const ARGUMENTS: usize = CALLER + 8;
/// Where a `LEAVE` has its result, behind its ticks.
const RESULT: usize = TICKS + 8;

/// The beginning of the unfilled part of a chunk, with room for any record of this file and the zero word behind it.
#[repr(C, align(8))]
pub struct Room {
    bytes: [u8; Self::LENGTH],
}

/// How the `ENTER` of a function with few arguments, none of them a struct, is laid out.
#[derive(Clone, Copy, Debug)]
pub struct EnterForm {
    head: u64,
    /// Where each argument goes; one that is not there goes behind the last, where it is overwritten.
    places: [u8; Self::MOST_ARGUMENTS],
    /// Behind the last argument.
    end: u8,
}

impl EnterForm {
    /// Functions with more arguments have no such form.
    pub const MOST_ARGUMENTS: usize = 4;

    /// The form of a function whose arguments have these widths, in bytes; `None` if there are too many of them, or one has not
    /// 1 to 8 bytes.
    pub const fn new(function: u16, widths: &[u8]) -> Option<Self> {
        if widths.len() > Self::MOST_ARGUMENTS {
            return None;
        }
        let (mut places, mut end) = ([0; Self::MOST_ARGUMENTS], ARGUMENTS as u8);
        let mut index = 0;
        while index < places.len() {
            places[index] = end;
            if index < widths.len() {
                if widths[index] == 0 || widths[index] > 8 {
                    return None;
                }
                end += widths[index];
            }
            index += 1;
        }
        let length = end.next_multiple_of(8) as u32;
        let head = head(length, record_kind::ENTER, 0, function);
        Some(Self { head, places, end })
    }
}

/// How the `ENTER_SHORT` of a function with many arguments, none of them a struct, is laid out.
#[derive(Clone, Copy, Debug)]
pub struct ShortForm {
    /// From `FEWEST_ARGUMENTS` to `short_enter::MOST_ARGUMENTS`.
    arguments: u8,
}

impl ShortForm {
    /// So many have at least the four bytes of codes that are stored at once.
    pub const FEWEST_ARGUMENTS: usize = 5;

    /// The form of a function with that many arguments; `None` if these are fewer than `FEWEST_ARGUMENTS` or more than
    /// [`short_enter::MOST_ARGUMENTS`].
    pub const fn new(arguments: usize) -> Option<Self> {
        if arguments < Self::FEWEST_ARGUMENTS || arguments > short_enter::MOST_ARGUMENTS {
            return None;
        }
        Some(Self {
            arguments: arguments as u8,
        })
    }
}

const fn head(length: u32, kind: u8, detail: u8, function: u16) -> u64 {
    let head = RecordHead {
        length,
        kind,
        detail,
        function,
    };
    head.word()
}

impl Room {
    /// Bytes that must be free.
    pub const LENGTH: usize = 256;

    /// # Safety
    /// `at + 8` is at most `LENGTH`.
    #[inline(always)]
    unsafe fn put(&mut self, at: usize, word: u64) {
        debug_assert!(at + 8 <= Self::LENGTH);
        // SAFETY: as the caller says.
        let place = unsafe { self.bytes.as_mut_ptr().add(at) };
        // SAFETY: as above; bytes need no alignment.
        unsafe { place.cast::<u64>().write_unaligned(word.to_le()) };
    }

    /// Stores the head last, so that whoever sees it sees all of the record.
    #[inline(always)]
    fn commit(&mut self, head: u64) {
        let place = self.bytes.as_mut_ptr().cast::<AtomicU64>();
        // SAFETY: the first 8 bytes, aligned by the type and borrowed mutably; a reader in another process sees the word either
        // as zero or complete.
        unsafe { &*place }.store(head.to_le(), Ordering::Release);
    }

    /// Puts an `ENTER`; of each word counts what the form says. `clock` is asked when all else has been put.
    /// The ticks, and the record's length.
    #[inline(always)]
    pub fn put_enter(
        &mut self,
        form: &EnterForm,
        caller: u64,
        words: &[u64; EnterForm::MOST_ARGUMENTS],
        clock: impl FnOnce() -> u64,
    ) -> (u64, usize) {
        const _: () = assert!(ARGUMENTS + 8 * EnterForm::MOST_ARGUMENTS + 16 <= Room::LENGTH);
        let end = usize::from(form.end);
        let length = form.head as u32 as usize;
        // SAFETY: by `EnterForm::new`, a place is at most eight bytes for each argument behind the first one's, the end as well,
        // and the length no more than the padding behind that; for which there is room, and for eight bytes more.
        unsafe {
            self.put(CALLER, caller);
            for (&word, &place) in words.iter().zip(&form.places) {
                self.put(usize::from(place), word);
            }
            self.put(end, 0);
            self.put(length, 0);
        }
        let ticks = clock();
        // SAFETY: a constant within the length.
        unsafe { self.put(TICKS, ticks) };
        self.commit(form.head);
        (ticks, length)
    }

    /// Puts an `ENTER_SHORT`: ticks since the file head's, caller, and as many words as the form says, of which what their masks
    /// say counts. The record's length.
    #[inline(always)]
    pub fn put_short_enter(
        &mut self,
        form: ShortForm,
        function: u16,
        ticks: u64,
        caller: u64,
        words: &[u64; 16],
        masks: &[u64; 16],
    ) -> usize {
        const NUMBERS: usize = short_enter::MOST_ARGUMENTS + 2;
        const _: () = assert!(RECORD_HEAD_LENGTH + 8 + 8 * NUMBERS + 16 <= Room::LENGTH);
        const _: () = assert!(short_enter::codes_length(ShortForm::FEWEST_ARGUMENTS) >= 4);
        let count = usize::from(form.arguments);
        let codes_length = short_enter::codes_length(count);
        let mut at = RECORD_HEAD_LENGTH + codes_length;
        let mut codes = 0_u64;
        let mut put = |number: u64| {
            let code = short_enter::code(number);
            // SAFETY: there is room for eight bytes of codes and as many for each number, no more of which are taken.
            unsafe { self.put(at, number) };
            at += short_enter::bytes(code);
            codes = (codes | code).rotate_right(4);
        };
        put(ticks);
        put(caller);
        for (&word, &mask) in words.iter().zip(masks).take(count) {
            put(word & mask);
        }
        codes >>= 64 - 4 * (count + 2);
        let length = at.next_multiple_of(8);
        let head = head(length as u32, record_kind::ENTER_SHORT, 0, function);
        // SAFETY: as above, and there is room for 16 bytes more; the codes are at least four bytes, stored in two halves that may
        // overlap.
        unsafe {
            self.put(at, 0);
            self.put(length, 0);
            self.put_half(RECORD_HEAD_LENGTH, codes as u32);
            let last = codes_length - 4;
            self.put_half(RECORD_HEAD_LENGTH + last, (codes >> (8 * last)) as u32);
        }
        self.commit(head);
        length
    }

    /// # Safety
    /// `at + 4` is at most `LENGTH`.
    #[inline(always)]
    unsafe fn put_half(&mut self, at: usize, word: u32) {
        debug_assert!(at + 4 <= Self::LENGTH);
        // SAFETY: as the caller says.
        let place = unsafe { self.bytes.as_mut_ptr().add(at) };
        // SAFETY: as above; bytes need no alignment.
        unsafe { place.cast::<u32>().write_unaligned(word.to_le()) };
    }

    /// Puts a `LEAVE_SHORT`: the call has returned 0 that many ticks after it was entered, fewer than
    /// [`crate::layout::SHORT_TICKS_END`]. The record's length.
    #[inline(always)]
    pub fn put_short_leave(&mut self, ticks: u64) -> usize {
        const LENGTH: usize = RECORD_HEAD_LENGTH;
        // SAFETY: a constant within the length.
        unsafe { self.put(LENGTH, 0) };
        self.commit(head(LENGTH as u32, record_kind::LEAVE_SHORT, 0, 0) | ticks << 40);
        LENGTH
    }

    /// Puts a `LEAVE_VALUE`: the call has returned 0 that many ticks after it was entered, fewer than
    /// [`crate::layout::VALUE_TICKS_END`], and behind that one of its first 16 parameters stands that number of 4 or 8 bytes.
    /// The record's length.
    #[inline(always)]
    pub fn put_leave_value(
        &mut self,
        ticks: u64,
        parameter: u8,
        number: u64,
        is_four_bytes: bool,
    ) -> usize {
        const LENGTH: usize = RECORD_HEAD_LENGTH + 8;
        // SAFETY: constants within the length.
        unsafe {
            self.put(LENGTH, 0);
            self.put(RECORD_HEAD_LENGTH, number);
        }
        let said = ticks << 5 | u64::from(is_four_bytes) << 4 | u64::from(parameter & 15);
        self.commit(head(LENGTH as u32, record_kind::LEAVE_VALUE, 0, 0) | said << 40);
        LENGTH
    }

    /// Puts a `LEAVE` without captures. The record's length.
    #[inline(always)]
    pub fn put_leave(&mut self, function: u16, ticks: u64, result: i32) -> usize {
        const LENGTH: usize = (RESULT + 4).next_multiple_of(8);
        // SAFETY: constants within the length.
        unsafe {
            self.put(LENGTH, 0);
            self.put(TICKS, ticks);
            self.put(RESULT, u64::from(result as u32));
        }
        self.commit(head(LENGTH as u32, record_kind::LEAVE, 0, function));
        LENGTH
    }
}
