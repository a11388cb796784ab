//! The most frequent records, each written with a few unconditional stores.
//!
//! A caller makes sure once that a [`Slot`] is free; no store behind that checks for space. The
//! bytes are those that [`crate::write::Record`] writes (the tests compare them). What a call costs
//! in instructions is in `benches/instructions.txt`.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::layout::{
    RECORD_HEAD_LENGTH, RecordHead, SNAPSHOT_HEAD_LENGTH, record_kind, short_enter,
};

/// Offsets in an `ENTER`.
const TICKS: usize = RECORD_HEAD_LENGTH;
const CALLER: usize = TICKS + 8;
const ARGUMENTS: usize = CALLER + 8;
/// Offset of the result in a `LEAVE`, behind its ticks.
const RESULT: usize = TICKS + 8;

/// The start of the unfilled part of a chunk, with space for any record of this module and the zero
/// word behind it.
#[repr(C, align(8))]
pub struct Slot {
    bytes: [u8; Self::LENGTH],
}

/// Layout of the `ENTER` of a function with few arguments and no struct by value.
#[derive(Clone, Copy, Debug)]
pub struct EnterForm {
    head: u64,
    /// Offset of each argument. Unused ones lie at the end, where the padding overwrites them.
    offsets: [u8; Self::MOST_ARGUMENTS],
    /// Behind the last argument.
    end: u8,
}

impl EnterForm {
    /// Functions with more arguments have no such form.
    pub const MOST_ARGUMENTS: usize = 4;
    /// For functions that have no such form.
    pub const UNUSED: Self = Self {
        head: 0,
        offsets: [0; Self::MOST_ARGUMENTS],
        end: 0,
    };

    /// The form for arguments of these widths in bytes; `None` if there are too many, or a width is
    /// not 1 to 8.
    pub fn new(function: u16, widths: &[u8]) -> Option<Self> {
        if widths.len() > Self::MOST_ARGUMENTS
            || widths.iter().any(|width| !(1..=8).contains(width))
        {
            return None;
        }
        let mut end = ARGUMENTS as u8;
        let mut offsets = [0; Self::MOST_ARGUMENTS];
        let widths = widths.iter().chain(core::iter::repeat(&0));
        for (offset, width) in offsets.iter_mut().zip(widths) {
            *offset = end;
            end += width;
        }
        let length = end.next_multiple_of(8).into();
        let head = head(length, record_kind::ENTER, 0, function);
        Some(Self { head, offsets, end })
    }
}

/// Layout of the `ENTER_SHORT` of a function with many arguments and no struct by value.
#[derive(Clone, Copy, Debug)]
pub struct ShortForm {
    /// From `FEWEST_ARGUMENTS` to `short_enter::MOST_ARGUMENTS`.
    arguments: u8,
}

impl ShortForm {
    /// With fewer, the codes take less than the four bytes that are stored at once.
    pub const FEWEST_ARGUMENTS: usize = 5;
    /// For functions that have no such form.
    pub const UNUSED: Self = Self { arguments: 0 };

    /// The form for that many arguments; `None` if they are fewer than `FEWEST_ARGUMENTS` or more
    /// than [`short_enter::MOST_ARGUMENTS`].
    pub fn new(arguments: usize) -> Option<Self> {
        (Self::FEWEST_ARGUMENTS..=short_enter::MOST_ARGUMENTS)
            .contains(&arguments)
            .then_some(Self {
                arguments: arguments as u8,
            })
    }
}

/// What a `LEAVE_VALUE` holds besides the ticks and the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueForm(u8);

impl ValueForm {
    /// The number is behind that one of a function's first 16 parameters and has 4 or 8 bytes.
    pub const fn new(parameter: u8, is_four_bytes: bool) -> Self {
        Self(parameter & 15 | (is_four_bytes as u8) << 4)
    }
}

/// A number that the driver has written behind a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutNumber {
    /// From 0.
    pub parameter: u8,
    /// 4 or 8.
    pub bytes: u8,
    /// Zero above these bytes.
    pub number: u64,
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

/// The numbers of an `ENTER_SHORT` that is being written.
struct Numbers<'a> {
    slot: &'a mut Slot,
    at: usize,
    codes: u64,
}

impl Numbers<'_> {
    /// Appends a number; its code is the one at `place`.
    ///
    /// # Safety
    /// `at + 8` is at most `Slot::LENGTH`.
    #[inline(always)]
    unsafe fn put(&mut self, number: u64, place: u32) {
        let (code, bytes) = short_enter::form(number);
        // SAFETY: as the caller says.
        unsafe { self.slot.put(self.at, number) };
        self.at += bytes;
        self.codes |= code << (4 * place);
    }
}

impl Slot {
    /// Bytes that must be free.
    pub const LENGTH: usize = 256;

    /// # Safety
    /// `at + 8` is at most `LENGTH`.
    #[inline(always)]
    unsafe fn put(&mut self, at: usize, word: u64) {
        debug_assert!(at + 8 <= Self::LENGTH);
        // SAFETY: as the caller says.
        let place = unsafe { self.bytes.as_mut_ptr().add(at) };
        // SAFETY: as above; the store needs no alignment.
        unsafe { place.cast::<u64>().write_unaligned(word.to_le()) };
    }

    /// # Safety
    /// `at + 4` is at most `LENGTH`.
    #[inline(always)]
    unsafe fn put_half(&mut self, at: usize, word: u32) {
        debug_assert!(at + 4 <= Self::LENGTH);
        // SAFETY: as the caller says.
        let place = unsafe { self.bytes.as_mut_ptr().add(at) };
        // SAFETY: as above; the store needs no alignment.
        unsafe { place.cast::<u32>().write_unaligned(word.to_le()) };
    }

    /// Stores the head last, so that a reader that sees it sees the whole record.
    #[inline(always)]
    fn commit(&mut self, head: u64) {
        let place = self.bytes.as_mut_ptr().cast::<AtomicU64>();
        // SAFETY: the first 8 bytes, aligned by the type and borrowed mutably. A reader in another
        // process sees the word either as zero or complete.
        unsafe { &*place }.store(head.to_le(), Ordering::Release);
    }

    /// Writes an `ENTER`. Bits of a word above its width are ignored. `clock` is read after
    /// everything else is written, so that the time of these stores is not counted as the driver's.
    /// Returns the ticks and the record's length.
    #[inline(always)]
    pub fn put_enter(
        &mut self,
        form: &EnterForm,
        caller: u64,
        words: &[u64; EnterForm::MOST_ARGUMENTS],
        clock: impl FnOnce() -> u64,
    ) -> (u64, usize) {
        const _: () = assert!(ARGUMENTS + 8 * EnterForm::MOST_ARGUMENTS + 16 <= Slot::LENGTH);
        let end = usize::from(form.end);
        let length = form.head as u32 as usize;
        // SAFETY: by `EnterForm::new`, offsets and end are at most 8 bytes an argument behind
        // `ARGUMENTS`, and the length is that with padding. The assertion above leaves 16 more
        // bytes.
        unsafe {
            self.put(CALLER, caller);
            for (&word, &offset) in words.iter().zip(&form.offsets) {
                self.put(usize::from(offset), word);
            }
            self.put(end, 0);
            self.put(length, 0);
        }
        let ticks = clock();
        // SAFETY: a constant below `LENGTH`.
        unsafe { self.put(TICKS, ticks) };
        self.commit(form.head);
        (ticks, length)
    }

    /// Writes an `ENTER_SHORT`: ticks since the file head's, caller, and the first words, as many
    /// as the form says, each masked. Returns the record's length.
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
        const _: () = assert!(RECORD_HEAD_LENGTH + 8 + 8 * NUMBERS + 16 <= Slot::LENGTH);
        const _: () = assert!(short_enter::codes_length(ShortForm::FEWEST_ARGUMENTS) >= 4);
        let count = usize::from(form.arguments);
        let codes_length = short_enter::codes_length(count);
        let mut at = RECORD_HEAD_LENGTH + codes_length;
        let mut codes = 0_u64;
        let mut put = |number: u64| {
            let (code, bytes) = short_enter::form(number);
            // SAFETY: at most `NUMBERS` numbers of 8 bytes follow at most 8 bytes of codes
            // (asserted above).
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
        // SAFETY: as above, and 16 bytes are left. The form has enough arguments for four bytes of
        // codes.
        unsafe { self.commit_short_enter(function, codes, codes_length, at) }
    }

    /// As [`Slot::put_short_enter`] for the 11 arguments of `cuLaunchKernel`, of which those at 2,
    /// 3, 5 and 6 (depths of grid and block) are nearly always below 8: their codes are computed
    /// together. `None`, and nothing is written, if one is not. The arguments are zero above their
    /// width.
    #[inline(always)]
    pub fn put_short_enter_of_launch(
        &mut self,
        function: u16,
        ticks: u64,
        caller: u64,
        arguments: &[u64; 11],
    ) -> Option<usize> {
        const NUMBERS: usize = 11 + 2;
        const CODES_LENGTH: usize = short_enter::codes_length(11);
        // The code of 0 is 0, that of 1 to 7 is the number plus 8: adding 7 carries into bit 3 for
        // all but 0.
        const ONES: u64 = 1 << 16 | 1 << 20 | 1 << 28 | 1 << 32;
        const SEVENS: u64 = 7 * ONES;
        const EIGHTS: u64 = 8 * ONES;
        let [kernel, a, b, c, d, e, f, g, h, i, j] = *arguments;
        if b | c | e | f >= 8 {
            return None;
        }
        let small = b << 16 | c << 20 | e << 28 | f << 32;
        let mut numbers = Numbers {
            slot: self,
            at: RECORD_HEAD_LENGTH + CODES_LENGTH,
            codes: small | (small + SEVENS) & EIGHTS,
        };
        // SAFETY: at most `NUMBERS` numbers of 8 bytes follow at most 8 bytes of codes (asserted
        // below).
        unsafe {
            numbers.put(ticks, 0);
            numbers.put(caller, 1);
            numbers.put(kernel, 2);
            numbers.put(a, 3);
            numbers.put(d, 6);
            numbers.put(g, 9);
            numbers.put(h, 10);
            numbers.put(i, 11);
            numbers.put(j, 12);
        }
        const _: () = assert!(RECORD_HEAD_LENGTH + 8 + 8 * NUMBERS + 16 <= Slot::LENGTH);
        let Numbers { at, codes, .. } = numbers;
        // SAFETY: as above, and 16 bytes are left.
        Some(unsafe { self.commit_short_enter(function, codes, CODES_LENGTH, at) })
    }

    /// Ends an `ENTER_SHORT` whose numbers end at `at`. Returns the record's length.
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
        // SAFETY: as the caller says. The codes are stored as two halves that may overlap.
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

    /// Writes a `LEAVE_SHORT`: the call has returned 0, `ticks` after it was entered, fewer than
    /// [`crate::layout::SHORT_TICKS_END`]. Returns the record's length.
    #[inline(always)]
    pub fn put_short_leave(&mut self, ticks: u64) -> usize {
        const LENGTH: usize = RECORD_HEAD_LENGTH;
        // SAFETY: a constant below the slot's length.
        unsafe { self.put(LENGTH, 0) };
        self.commit(head(LENGTH as u32, record_kind::LEAVE_SHORT, 0, 0) | ticks << 40);
        LENGTH
    }

    /// Writes a `LEAVE_VALUE`: the call has returned 0, `ticks` after it was entered, fewer than
    /// [`crate::layout::VALUE_TICKS_END`], and wrote that number. Returns the record's length.
    #[inline(always)]
    pub fn put_leave_value(&mut self, ticks: u64, form: ValueForm, number: u64) -> usize {
        const LENGTH: usize = RECORD_HEAD_LENGTH + 8;
        // SAFETY: constants below the slot's length.
        unsafe {
            self.put(LENGTH, 0);
            self.put(RECORD_HEAD_LENGTH, number);
        }
        let packed = ticks << 5 | u64::from(form.0);
        self.commit(head(LENGTH as u32, record_kind::LEAVE_VALUE, 0, 0) | packed << 40);
        LENGTH
    }

    /// Writes a `LEAVE` without snapshots. Returns the record's length.
    #[inline(always)]
    pub fn put_leave(&mut self, function: u16, ticks: u64, result: i32) -> usize {
        const LENGTH: usize = (RESULT + 4).next_multiple_of(8);
        // SAFETY: constants below the slot's length.
        unsafe {
            self.put(LENGTH, 0);
            self.put(TICKS, ticks);
            self.put(RESULT, u64::from(result as u32));
        }
        self.commit(head(LENGTH as u32, record_kind::LEAVE, 0, function));
        LENGTH
    }

    /// Writes a `LEAVE` of a call that has returned 0 and wrote two numbers. Returns the record's
    /// length.
    #[inline(always)]
    pub fn put_leave_pair(&mut self, function: u16, ticks: u64, numbers: [OutNumber; 2]) -> usize {
        const MOST: usize = RESULT + 4 + 2 * (SNAPSHOT_HEAD_LENGTH + 8);
        const _: () = assert!(MOST + 16 <= Slot::LENGTH);
        // SAFETY: constants below the slot's length.
        unsafe {
            self.put(TICKS, ticks);
            self.put_half(RESULT, 0);
        }
        let mut at = RESULT + 4;
        for out in numbers {
            let bytes = if out.bytes == 4 { 4 } else { 8 };
            // SAFETY: two snapshots of at most 8 bytes with their heads end at `MOST`.
            unsafe {
                self.put(at, u64::from(out.parameter) | bytes << 32);
                self.put(at + SNAPSHOT_HEAD_LENGTH, out.number);
            }
            at += SNAPSHOT_HEAD_LENGTH + bytes as usize;
        }
        let length = at.next_multiple_of(8);
        // SAFETY: as above, and 16 bytes are left.
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
    use crate::layout::{EnterHead, LeaveHead, SHORT_TICKS_END, VALUE_TICKS_END};
    use crate::write::Record;
    use proptest::prelude::*;

    /// Aligned as a chunk is, and full of old bytes.
    #[derive(Clone)]
    #[repr(align(8))]
    struct Space([u8; 1024]);

    const USED: Space = Space([0xee; 1024]);

    impl Space {
        fn slot(&mut self) -> &mut Slot {
            // SAFETY: aligned, longer than a slot, and any bytes make one.
            unsafe { &mut *self.0.as_mut_ptr().cast::<Slot>() }
        }
    }

    /// Compares a record, with the zero word behind it, as a slot and as `Record` write it.
    fn same(
        slot: impl FnOnce(&mut Space) -> usize,
        reference: impl FnOnce(Record<'_>) -> Option<usize>,
    ) -> Result<(), TestCaseError> {
        let (mut one, mut other) = (USED, USED);
        let length = slot(&mut one);
        let expected = reference(Record::new(&mut other.0).unwrap()).unwrap();
        prop_assert_eq!(&one.0[..length + 8], &other.0[..expected + 8]);
        Ok(())
    }

    /// Numbers of every length.
    fn word() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0..=64_u32).prop_map(|(word, by)| word.checked_shr(by).unwrap_or(0))
    }

    proptest! {
        #[test]
        fn enters_are_as_the_reference(
            words in prop::array::uniform4(word()), widths in prop::collection::vec(1_u8..=8, 0..=4), caller in word(),
        ) {
            let form = EnterForm::new(513, &widths).unwrap();
            same(|space| space.slot().put_enter(&form, caller, &words, || 7).1, |mut record| {
                record.put_encoded(EnterHead { ticks: 7, caller })?;
                for (&word, &width) in words.iter().zip(&widths) {
                    record.put_number(word, width.into())?;
                }
                record.commit(record_kind::ENTER, 513)
            })?;
        }

        #[test]
        fn short_enters_are_as_the_reference(
            words in prop::array::uniform16(word()), widths in prop::collection::vec(1_u32..=8, 5..=14), ticks in word(), caller in word(),
        ) {
            let mut masks = [0; 16];
            for (mask, width) in masks.iter_mut().zip(&widths) {
                *mask = u64::MAX >> (64 - 8 * width);
            }
            let form = ShortForm::new(widths.len()).unwrap();
            same(|space| space.slot().put_short_enter(form, 513, ticks, caller, &words, &masks), |mut record| {
                let arguments = words.iter().zip(&masks).map(|(word, mask)| word & mask).take(widths.len());
                record.put_short_enter(ticks, caller, arguments.collect::<Vec<_>>().into_iter())?;
                record.commit(record_kind::ENTER_SHORT, 513)
            })?;
        }

        #[test]
        fn launches_are_as_the_reference(
            words in prop::array::uniform11(word()), small in prop::array::uniform4(0_u64..9), ticks in word(), caller in word(),
        ) {
            let mut words = words;
            for (at, small) in [2, 3, 5, 6].into_iter().zip(small) {
                words[at] = small;
            }
            let mut space = USED;
            let put = space.slot().put_short_enter_of_launch(513, ticks, caller, &words);
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
        fn leaves_are_as_the_reference(
            ticks in any::<u64>(), result in any::<i32>(), parameter in 0_u8..16, number in word(), bytes in prop_oneof![Just(4), Just(8)],
        ) {
            let short = ticks % SHORT_TICKS_END;
            same(|space| space.slot().put_short_leave(short), |record| record.commit_short_leave(short))?;
            let (short, number) = (ticks % VALUE_TICKS_END, if bytes == 4 { number & 0xffff_ffff } else { number });
            same(|space| space.slot().put_leave_value(short, ValueForm::new(parameter, bytes == 4), number), |record| {
                record.commit_leave_value(short, parameter, number, bytes)
            })?;
            same(|space| space.slot().put_leave(513, ticks, result), |mut record| {
                record.put_encoded(LeaveHead { ticks, result })?;
                record.commit(record_kind::LEAVE, 513)
            })?;
        }

        #[test]
        fn leaves_with_two_numbers_are_as_the_reference(
            ticks in any::<u64>(), numbers in prop::array::uniform2((0_u8..16, prop_oneof![Just(4_u8), Just(8)], word())),
        ) {
            let numbers = numbers.map(|(parameter, bytes, number)| OutNumber {
                parameter,
                bytes,
                number: if bytes == 4 { number & 0xffff_ffff } else { number },
            });
            same(|space| space.slot().put_leave_pair(513, ticks, numbers), |mut record| {
                record.put_encoded(LeaveHead { ticks, result: 0 })?;
                for out in numbers {
                    record.put_snapshot(out.parameter, 0, out.bytes.into(), |target| {
                        target.copy_from_slice(out.number.to_le_bytes().get(..target.len())?);
                        Some(0)
                    })?;
                }
                record.commit(record_kind::LEAVE, 513)
            })?;
        }
    }

    #[test]
    fn unsuitable_functions_have_no_form() {
        assert!(EnterForm::new(0, &[8; 5]).is_none());
        assert!(EnterForm::new(0, &[8, 9]).is_none() && EnterForm::new(0, &[0]).is_none());
        assert!(ShortForm::new(4).is_none() && ShortForm::new(15).is_none());
    }
}
