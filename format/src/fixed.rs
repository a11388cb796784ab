//! Records whose form is known before the call, each put in one go: there is room for the longest of them, so that nothing is
//! asked on the way. What they say is what `write` puts by parts, byte for byte.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::layout::{
    RECORD_HEAD_LENGTH, RecordHead, SNAPSHOT_HEAD_LENGTH, note_kind, record_kind, short_enter,
};

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

/// What a `LEAVE_VALUE` says beside the ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueForm(u8);

impl ValueForm {
    /// The number is behind that one of a function's first 16 parameters, and has 4 bytes, or else 8.
    pub const fn new(parameter: u8, is_four_bytes: bool) -> Self {
        Self(parameter & 15 | (is_four_bytes as u8) << 4)
    }
}

/// What a call has left behind one of its function's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftNumber {
    /// From 0.
    pub parameter: u8,
    /// 4 or 8.
    pub bytes: u8,
    /// With nothing above these bytes.
    pub number: u64,
}

/// How a `SNAPSHOT` of so many bytes is laid out.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotForm {
    /// Without the parameter.
    head: u64,
    length: u32,
}

impl SnapshotForm {
    /// The form for a field of a parameter, of which at most 2^24 bytes are kept in this way.
    pub const fn new(field: u8, length: u32) -> Option<Self> {
        if length > 1 << 24 {
            return None;
        }
        let end = RECORD_HEAD_LENGTH as u32 + length;
        let whole = end.next_multiple_of(8);
        let said = field as u16 | ((whole - end) as u16) << 8;
        let head = head(whole, record_kind::SNAPSHOT, 0, said);
        Some(Self { head, length })
    }

    /// Bytes of the snapshot.
    #[inline(always)]
    pub const fn length(&self) -> usize {
        self.length as usize
    }

    /// Begins the record at the beginning of the unfilled part of a chunk; `None` if there is too little space.
    #[inline(always)]
    pub fn begin<'a>(&self, space: &'a mut [u8], parameter: u8) -> Option<Snapshot<'a>> {
        let whole = self.head as u32 as usize;
        if space.len() < whole + 16 || !space.as_ptr().cast::<AtomicU64>().is_aligned() {
            return None;
        }
        Some(Snapshot {
            space,
            head: self.head | u64::from(parameter) << 40,
            length: self.length,
        })
    }
}

/// A `SNAPSHOT` in the making: `space` begins with it, is aligned, and is longer by 16 bytes.
pub struct Snapshot<'a> {
    space: &'a mut [u8],
    head: u64,
    length: u32,
}

impl Snapshot<'_> {
    /// For its bytes, and eight more than these, which may be overwritten.
    #[inline(always)]
    pub fn bytes(&mut self) -> &mut [u8] {
        let length = self.length as usize + 8;
        // SAFETY: the record is no shorter than head and bytes together, and the space is longer than that.
        unsafe {
            let place = self.space.as_mut_ptr().add(RECORD_HEAD_LENGTH);
            core::slice::from_raw_parts_mut(place, length)
        }
    }

    /// Ends the record. Its length.
    #[inline(always)]
    pub fn commit(self) -> usize {
        let whole = self.head as u32 as usize;
        let place = self.space.as_mut_ptr();
        for at in [RECORD_HEAD_LENGTH + self.length as usize, whole] {
            // SAFETY: neither is behind the record, and the space is longer by 16 bytes; bytes need no alignment.
            unsafe { place.add(at).cast::<u64>().write_unaligned(0) };
        }
        // SAFETY: the first 8 bytes, aligned and borrowed mutably; a reader in another process sees the word either as zero or
        // complete.
        unsafe { &*place.cast::<AtomicU64>() }.store(self.head.to_le(), Ordering::Release);
        whole
    }
}

/// A note `SNAPSHOTS` in the making, at the beginning of the unfilled part of a chunk.
pub struct SnapshotsNote<'a> {
    space: &'a mut [u8],
    filled: usize,
}

impl<'a> SnapshotsNote<'a> {
    /// Begins a note that will be no longer than that with its snapshots, their heads included; `None` if there is too little
    /// space.
    #[inline(always)]
    pub fn new(space: &'a mut [u8], snapshots: usize) -> Option<Self> {
        // What pads the record, the word behind it, and what whoever fills the last snapshot may overwrite.
        let space = space.get_mut(..RECORD_HEAD_LENGTH + snapshots + 24)?;
        Some(Self {
            space,
            filled: RECORD_HEAD_LENGTH,
        })
    }

    /// Puts a snapshot of as many bytes, which the caller is to write; there are eight more of them, which may be overwritten.
    /// `None` if that is more than was said.
    #[inline(always)]
    pub fn put(&mut self, parameter: u8, field: u8, length: u32) -> Option<&mut [u8]> {
        let (head, behind) = self
            .space
            .get_mut(self.filled..)?
            .split_first_chunk_mut::<SNAPSHOT_HEAD_LENGTH>()?;
        let word = u64::from(parameter) | u64::from(field) << 8 | u64::from(length) << 32;
        *head = word.to_le_bytes();
        self.filled += SNAPSHOT_HEAD_LENGTH + length as usize;
        behind.get_mut(..length as usize + 8)
    }

    /// Ends the record. Its length.
    #[inline(always)]
    pub fn commit(self) -> Option<usize> {
        let length = self.filled.next_multiple_of(8);
        for at in [self.filled, length] {
            *self.space.get_mut(at..)?.first_chunk_mut::<8>()? = [0; 8];
        }
        let place = self.space.as_mut_ptr().cast::<AtomicU64>();
        if !place.is_aligned() {
            return None;
        }
        let head = head(length as u32, record_kind::NOTE, 0, note_kind::SNAPSHOTS);
        // SAFETY: the first 8 bytes (there are more, see `new`), aligned (checked above) and borrowed mutably; a reader in
        // another process sees the word either as zero or complete.
        unsafe { &*place }.store(head.to_le(), Ordering::Release);
        Some(length)
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

/// The numbers of an `ENTER_SHORT` in the making.
struct NumberReader<'a> {
    room: &'a mut Room,
    at: usize,
    codes: u64,
}

impl NumberReader<'_> {
    /// Puts a number, whose code is the one at that place.
    ///
    /// # Safety
    /// There is room for eight bytes.
    #[inline(always)]
    unsafe fn put(&mut self, number: u64, place: u32) {
        let (code, bytes) = short_enter::form(number);
        // SAFETY: as the caller says.
        unsafe { self.room.put(self.at, number) };
        self.at += bytes;
        self.codes |= code << (4 * place);
    }
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
            let (code, bytes) = short_enter::form(number);
            // SAFETY: there is room for eight bytes of codes and as many for each number, no more of which are taken.
            unsafe { self.put(at, number) };
            at += bytes;
            codes = (codes | code).rotate_right(4);
        };
        put(ticks);
        put(caller);
        for (&word, &mask) in words.iter().zip(masks).take(count) {
            put(word & mask);
        }
        codes >>= 64 - 4 * (count + 2);
        // SAFETY: as above, and there is room for 16 bytes more; there are enough arguments for four bytes of codes.
        unsafe { self.commit_short_enter(function, codes, codes_length, at) }
    }

    /// As [`Room::put_short_enter`], in less time, for 11 arguments of which those at 2, 3, 5 and 6 are usually small, as the
    /// depths of grids and blocks are; `None`, and nothing put, if one of them is not below 8. The arguments have nothing in
    /// the bytes above their width.
    #[inline(always)]
    pub fn put_short_enter_of_small(
        &mut self,
        function: u16,
        ticks: u64,
        caller: u64,
        arguments: &[u64; 11],
    ) -> Option<usize> {
        const NUMBERS: usize = 11 + 2;
        const CODES_LENGTH: usize = short_enter::codes_length(11);
        // Codes of the numbers 1 to 7 are 8 more than these, for which seven more makes a carry, and those of 0 are 0.
        const ONES: u64 = 1 << 16 | 1 << 20 | 1 << 28 | 1 << 32;
        const SEVENS: u64 = 7 * ONES;
        const EIGHTS: u64 = 8 * ONES;
        let [function_, a, b, c, d, e, f, g, h, i, j] = *arguments;
        if b | c | e | f >= 8 {
            return None;
        }
        let small = b << 16 | c << 20 | e << 28 | f << 32;
        let mut numbers = NumberReader {
            room: self,
            at: RECORD_HEAD_LENGTH + CODES_LENGTH,
            codes: small | (small + SEVENS) & EIGHTS,
        };
        // SAFETY: there is room for the codes and eight bytes for each number, no more of which are taken.
        unsafe {
            numbers.put(ticks, 0);
            numbers.put(caller, 1);
            numbers.put(function_, 2);
            numbers.put(a, 3);
            numbers.put(d, 6);
            numbers.put(g, 9);
            numbers.put(h, 10);
            numbers.put(i, 11);
            numbers.put(j, 12);
        }
        const _: () = assert!(RECORD_HEAD_LENGTH + 8 + 8 * NUMBERS + 16 <= Room::LENGTH);
        let NumberReader { at, codes, .. } = numbers;
        // SAFETY: as above, and there is room for 16 bytes more.
        Some(unsafe { self.commit_short_enter(function, codes, CODES_LENGTH, at) })
    }

    /// Ends an `ENTER_SHORT` whose numbers are put and end at `at`. The record's length.
    ///
    /// # Safety
    /// `at + 16` is at most `LENGTH`, and there are 4 to 8 bytes of codes.
    #[inline(always)]
    unsafe fn commit_short_enter(
        &mut self,
        function: u16,
        codes: u64,
        codes_length: usize,
        at: usize,
    ) -> usize {
        let length = at.next_multiple_of(8);
        let head = head(length as u32, record_kind::ENTER_SHORT, 0, function);
        // SAFETY: as the caller says. The codes are stored in two halves that may overlap.
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
    /// [`crate::layout::VALUE_TICKS_END`], and left that number. The record's length.
    #[inline(always)]
    pub fn put_leave_value(&mut self, ticks: u64, form: ValueForm, number: u64) -> usize {
        const LENGTH: usize = RECORD_HEAD_LENGTH + 8;
        // SAFETY: constants within the length.
        unsafe {
            self.put(LENGTH, 0);
            self.put(RECORD_HEAD_LENGTH, number);
        }
        let said = ticks << 5 | u64::from(form.0);
        self.commit(head(LENGTH as u32, record_kind::LEAVE_VALUE, 0, 0) | said << 40);
        LENGTH
    }

    /// Puts a `LEAVE` without snapshots. The record's length.
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

    /// Puts a `LEAVE` of a call that has returned 0, with snapshots of two numbers that it has left. The record's length.
    #[inline(always)]
    pub fn put_leave_pair(&mut self, function: u16, ticks: u64, numbers: [LeftNumber; 2]) -> usize {
        const MOST: usize = RESULT + 4 + 2 * (SNAPSHOT_HEAD_LENGTH + 8);
        const _: () = assert!(MOST + 16 <= Room::LENGTH);
        // SAFETY: constants within the length. The rest of the word behind the ticks is the first snapshot's.
        unsafe {
            self.put(TICKS, ticks);
            self.put_half(RESULT, 0);
        }
        let mut at = RESULT + 4;
        for left in numbers {
            let bytes = if left.bytes == 4 { 4 } else { 8 };
            // SAFETY: each is no longer than a snapshot head and eight bytes, and there is room for two of them.
            unsafe {
                self.put(at, u64::from(left.parameter) | bytes << 32);
                self.put(at + SNAPSHOT_HEAD_LENGTH, left.number);
            }
            at += SNAPSHOT_HEAD_LENGTH + bytes as usize;
        }
        let length = at.next_multiple_of(8);
        // SAFETY: as above, and there is room for 16 bytes more.
        unsafe {
            self.put(at, 0);
            self.put(length, 0);
        }
        self.commit(head(length as u32, record_kind::LEAVE, 0, function));
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{EnterHead, LeaveHead, SHORT_TICKS_END, VALUE_TICKS_END, field};
    use crate::write::Record;
    use proptest::prelude::*;

    /// Aligned as a chunk is, and full of what was there before.
    #[derive(Clone)]
    #[repr(align(8))]
    struct Space([u8; 1024]);

    const USED: Space = Space([0xee; 1024]);

    impl Space {
        fn room(&mut self) -> &mut Room {
            // SAFETY: aligned, longer than a room, and any bytes make one.
            unsafe { &mut *self.0.as_mut_ptr().cast::<Room>() }
        }
    }

    /// A record with the zero word behind it, put in one go and by parts.
    fn same(
        fixed: impl FnOnce(&mut Space) -> usize,
        parts: impl FnOnce(Record<'_>) -> Option<usize>,
    ) -> Result<(), TestCaseError> {
        let (mut one, mut other) = (USED, USED);
        let length = fixed(&mut one);
        let expected = parts(Record::new(&mut other.0).unwrap()).unwrap();
        prop_assert_eq!(&one.0[..length + 8], &other.0[..expected + 8]);
        Ok(())
    }

    /// NumberReader of every length.
    fn word() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0..=64_u32).prop_map(|(word, by)| word.checked_shr(by).unwrap_or(0))
    }

    proptest! {
        #[test]
        fn enters_are_as_by_parts(
            words in prop::array::uniform4(word()), widths in prop::collection::vec(1_u8..=8, 0..=4), caller in word(),
        ) {
            let form = EnterForm::new(513, &widths).unwrap();
            same(|space| space.room().put_enter(&form, caller, &words, || 7).1, |mut record| {
                record.put_enter(EnterHead { ticks: 7, caller })?;
                for (&word, &width) in words.iter().zip(&widths) {
                    record.put_number(word, width.into())?;
                }
                record.commit(record_kind::ENTER, 513)
            })?;
        }

        #[test]
        fn short_enters_are_as_by_parts(
            words in prop::array::uniform16(word()), widths in prop::collection::vec(1_u32..=8, 5..=14), ticks in word(), caller in word(),
        ) {
            let mut masks = [0; 16];
            for (mask, width) in masks.iter_mut().zip(&widths) {
                *mask = u64::MAX >> (64 - 8 * width);
            }
            let form = ShortForm::new(widths.len()).unwrap();
            same(|space| space.room().put_short_enter(form, 513, ticks, caller, &words, &masks), |mut record| {
                let arguments = words.iter().zip(&masks).map(|(word, mask)| word & mask).take(widths.len());
                record.put_short_enter(ticks, caller, arguments.collect::<Vec<_>>().into_iter())?;
                record.commit(record_kind::ENTER_SHORT, 513)
            })?;
        }

        #[test]
        fn short_enters_of_small_numbers_are_as_by_parts(
            words in prop::array::uniform11(word()), small in prop::array::uniform4(0_u64..9), ticks in word(), caller in word(),
        ) {
            let mut words = words;
            for (at, small) in [2, 3, 5, 6].into_iter().zip(small) {
                words[at] = small;
            }
            let mut space = USED;
            let put = space.room().put_short_enter_of_small(513, ticks, caller, &words);
            prop_assert_eq!(put.is_some(), small.into_iter().all(|number| number < 8));
            let Some(length) = put else {
                prop_assert_eq!(space.0, USED.0);
                return Ok(());
            };
            same(|again| { again.0 = space.0; length }, |mut record| {
                record.put_short_enter(ticks, caller, words.into_iter())?;
                record.commit(record_kind::ENTER_SHORT, 513)
            })?;
        }

        #[test]
        fn leaves_are_as_by_parts(
            ticks in any::<u64>(), result in any::<i32>(), parameter in 0_u8..16, number in word(), bytes in prop_oneof![Just(4), Just(8)],
        ) {
            let short = ticks % SHORT_TICKS_END;
            same(|space| space.room().put_short_leave(short), |record| record.commit_short_leave(short))?;
            let (short, number) = (ticks % VALUE_TICKS_END, if bytes == 4 { number & 0xffff_ffff } else { number });
            same(|space| space.room().put_leave_value(short, ValueForm::new(parameter, bytes == 4), number), |record| {
                record.commit_leave_value(short, parameter, number, bytes)
            })?;
            same(|space| space.room().put_leave(513, ticks, result), |mut record| {
                record.put_leave(LeaveHead { ticks, result })?;
                record.commit(record_kind::LEAVE, 513)
            })?;
        }

        #[test]
        fn leaves_with_two_numbers_are_as_by_parts(
            ticks in any::<u64>(), numbers in prop::array::uniform2((0_u8..16, prop_oneof![Just(4_u8), Just(8)], word())),
        ) {
            let numbers = numbers.map(|(parameter, bytes, number)| LeftNumber {
                parameter,
                bytes,
                number: if bytes == 4 { number & 0xffff_ffff } else { number },
            });
            same(|space| space.room().put_leave_pair(513, ticks, numbers), |mut record| {
                record.put_leave(LeaveHead { ticks, result: 0 })?;
                for left in numbers {
                    record.put_snapshot_number(left.parameter, left.number, left.bytes)?;
                }
                record.commit(record_kind::LEAVE, 513)
            })?;
        }

        #[test]
        fn snapshots_are_as_by_parts(
            pieces in prop::collection::vec((any::<u8>(), 0_u8..20, prop::collection::vec(any::<u8>(), 0..60)), 1..5),
        ) {
            let (parameter, field, bytes) = &pieces[0];
            let form = SnapshotForm::new(*field, bytes.len() as u32).unwrap();
            same(|space| {
                let mut snapshot = form.begin(&mut space.0, *parameter).unwrap();
                let (place, behind) = snapshot.bytes().split_at_mut(bytes.len());
                place.copy_from_slice(bytes);
                behind.fill(0xdd);
                snapshot.commit()
            }, |mut record| {
                record.put(bytes)?;
                record.commit_snapshot(*parameter, *field)
            })?;
            same(|space| {
                let length: usize = pieces.iter().map(|piece| SNAPSHOT_HEAD_LENGTH + piece.2.len()).sum();
                let mut note = SnapshotsNote::new(&mut space.0, length).unwrap();
                for (parameter, field, bytes) in &pieces {
                    let target = note.put(*parameter, *field, bytes.len() as u32).unwrap();
                    let (place, behind) = target.split_at_mut(bytes.len());
                    place.copy_from_slice(bytes);
                    behind.fill(0xdd);
                }
                note.commit().unwrap()
            }, |mut record| {
                for (parameter, field, bytes) in &pieces {
                    record.put_snapshot(*parameter, *field, bytes.len(), |target| {
                        target.copy_from_slice(bytes);
                        Some(0)
                    })?;
                }
                record.commit(record_kind::NOTE, note_kind::SNAPSHOTS)
            })?;
        }
    }

    #[test]
    fn what_has_no_form_gets_none() {
        assert!(EnterForm::new(0, &[8; 5]).is_none());
        assert!(EnterForm::new(0, &[8, 9]).is_none() && EnterForm::new(0, &[0]).is_none());
        assert!(ShortForm::new(4).is_none() && ShortForm::new(15).is_none());
        assert!(SnapshotForm::new(field::POINTEE, 1 << 25).is_none());
    }

    #[test]
    fn nothing_is_put_where_there_is_too_little_space() {
        let form = SnapshotForm::new(field::POINTEE, 13).unwrap();
        // Head, bytes, padding, and 16 bytes behind.
        for (length, fits) in [(39, false), (40, true)] {
            let mut space = USED;
            assert_eq!(
                form.begin(&mut space.0[..length], 0).is_some(),
                fits,
                "{length}"
            );
        }
        let mut space = USED;
        assert!(form.begin(&mut space.0[1..], 0).is_none(), "not aligned");
        let mut note = SnapshotsNote::new(&mut space.0, 8).unwrap();
        assert!(note.put(0, 0, 100).is_none());
        assert!(SnapshotsNote::new(&mut space.0[..39], 8).is_none());
    }
}
