//! Who has written bytes of host memory that changed in the recording: the program, or work.

use cutape_model::PendingWrite;

/// Who has written bytes that changed in the recording. Of several, the last one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Writer {
    /// The program: no work could.
    Program,
    /// One kernel may have, and the program after it.
    KernelOrProgram,
    /// Work that was enqueued may have.
    Unknown,
    /// The program, after work that writes there: it would not use the bytes otherwise.
    ProgramLater,
    /// Work that was enqueued writes all of them, and the program may have written there after it.
    WorkOrProgram,
    /// Several of these, and the program may have after each: the memory may hold what the first of
    /// them have written.
    Unclear,
    /// Work that was enqueued writes all of them, and overwrites the program's.
    Device,
}

impl Writer {
    /// Beside work that may write the same bytes; the call reads them itself, or may. `is_over`: the
    /// recorder had seen that the work was complete.
    pub(crate) fn beside<'w>(
        pending: impl Iterator<Item = &'w PendingWrite> + Clone,
        is_read: bool,
        is_over: impl Fn(&PendingWrite) -> bool,
    ) -> Self {
        // What may write them without an order does not, if anything before the call does.
        let has_order = is_read && pending.clone().any(|write| write.is_before);
        let pending = pending.filter(|write| !has_order || write.is_before || write.is_exact);
        let mut writers = pending
            .clone()
            .filter(|write| !is_over(write))
            .map(
                |write| match (write.is_exact, write.known_since.is_some()) {
                    _ if is_read && !write.is_before => Self::ProgramLater,
                    (false, true) => Self::KernelOrProgram,
                    (false, false) => Self::Unknown,
                    (true, true) if write.hides_others => Self::Unclear,
                    (true, true) => Self::WorkOrProgram,
                    (true, false) => Self::Device,
                },
            );
        let Some(first) = writers.next() else {
            return match pending.count() {
                0 => Self::Program,
                _ => Self::ProgramLater,
            };
        };
        let may_be_known = |one: Self| {
            matches!(
                one,
                Self::KernelOrProgram | Self::WorkOrProgram | Self::Unclear
            )
        };
        let last = |one: Self, other: Self| match (one, other) {
            (Self::WorkOrProgram, Self::WorkOrProgram) => one,
            _ if may_be_known(one) && may_be_known(other) => Self::Unclear,
            // The program cannot have written there after the kernel, but it may not write there.
            (Self::WorkOrProgram, Self::Unknown) | (Self::Unknown, Self::WorkOrProgram) => {
                Self::Unclear
            }
            (Self::Unclear, Self::Unknown) | (Self::Unknown, Self::Unclear) => Self::Unknown,
            // The kernel is before the call; of the other work the program knew before that.
            (Self::ProgramLater, kernel) | (kernel, Self::ProgramLater) if kernel.is_inexact() => {
                kernel
            }
            _ => one.max(other),
        };
        writers.fold(first, last)
    }

    /// It may write some of the bytes.
    pub(crate) fn is_inexact(self) -> bool {
        matches!(self, Self::Unknown | Self::KernelOrProgram)
    }
}

/// Bytes that are told apart by who has written them: a single byte is often what it was before.
pub(crate) const WORD: usize = 4;

/// The words that runs (offset, length) of bytes at an address are in, of which there are so many:
/// offset of the first byte, behind the last.
pub(crate) fn whole_words(
    runs: &[(usize, usize)],
    address: u64,
    length: usize,
) -> Vec<(usize, usize)> {
    let skew = (address % WORD as u64) as usize;
    let mut words: Vec<(usize, usize)> = Vec::new();
    for &(at, run) in runs {
        let from = ((at + skew) / WORD * WORD).saturating_sub(skew);
        let end = ((at + run + skew).next_multiple_of(WORD) - skew).min(length);
        match words.last_mut() {
            Some(last) if last.1 >= from => last.1 = end,
            _ => words.push((from, end)),
        }
    }
    words
}

/// Changed bytes, by offset in a note's: first, behind the last.
pub(crate) type Part = (usize, usize, Writer);

/// Divides bytes (offset of the first, behind the last) by which work may have been writing them.
/// `is_read`: the call reads the bytes, so that it matters what they are. `is_over`: as in
/// [`Writer::beside`].
pub(crate) fn divide(
    bytes: &[(usize, usize)],
    address: u64,
    pending: &[PendingWrite],
    is_read: bool,
    is_over: impl Fn(&PendingWrite) -> bool,
) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for &(first, end) in bytes {
        // Where the writer may change.
        let mut borders = vec![first, end];
        for write in pending {
            let inside = [write.bytes.start, write.bytes.end]
                .map(|border| border.saturating_sub(address) as usize);
            borders.extend(
                inside
                    .into_iter()
                    .filter(|border| (first..end).contains(border)),
            );
        }
        borders.sort_unstable();
        borders.dedup();
        for pair in borders.windows(2) {
            let &[from, to] = pair else { continue };
            let byte = address.wrapping_add(from as u64);
            let here = pending.iter().filter(|write| write.bytes.contains(&byte));
            let mut here: Vec<&PendingWrite> = here.collect();
            // A graph may write the same bytes in several nodes.
            here.sort_by_key(|write| (write.call, write.is_exact));
            here.dedup_by_key(|write| (write.call, write.is_exact));
            let writer = Writer::beside(here.into_iter(), is_read, &is_over);
            match parts.last_mut() {
                Some(last) if last.1 == from && last.2 == writer => last.1 = to,
                _ => parts.push((from, to, writer)),
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Work of a call: all bytes or some, whether the program may know its end, whether it is ordered
    /// before the call that asks.
    fn write(call: u64, is_exact: bool, is_known: bool, is_before: bool) -> PendingWrite {
        PendingWrite {
            bytes: 0..8,
            is_exact,
            call,
            copy: None,
            entered: 0,
            is_before,
            hides_others: false,
            known_since: is_known.then_some(100 + call),
        }
    }

    #[test]
    fn who_has_written_follows_from_the_work_that_may_have() {
        use Writer::{
            Device, KernelOrProgram, Program, ProgramLater, Unclear, Unknown, WorkOrProgram,
        };
        let (copy, known_copy) = (write(1, true, false, true), write(2, true, true, true));
        let (kernel, known_kernel) = (write(3, false, false, true), write(4, false, true, true));
        let apart = write(5, true, false, false);
        let several = PendingWrite {
            hides_others: true,
            ..known_copy.clone()
        };
        // The work, whether the call reads the bytes, the call of work that the recorder saw complete.
        type Case<'w> = (Vec<&'w PendingWrite>, bool, u64, Writer);
        let table: [(&str, Case<'_>); 13] = [
            ("none", (vec![], false, 0, Program)),
            ("a copy", (vec![&copy], false, 0, Device)),
            ("a kernel", (vec![&kernel], false, 0, Unknown)),
            ("a known copy", (vec![&known_copy], false, 0, WorkOrProgram)),
            (
                "a known kernel",
                (vec![&known_kernel], false, 0, KernelOrProgram),
            ),
            (
                "both",
                (vec![&known_copy, &known_kernel], false, 0, Unclear),
            ),
            ("nodes of a graph", (vec![&several], false, 0, Unclear)),
            (
                "a known copy and a kernel",
                (vec![&known_copy, &kernel], false, 0, Unclear),
            ),
            (
                "both known and a kernel",
                (vec![&several, &kernel], false, 0, Unknown),
            ),
            (
                "one that was seen",
                (vec![&known_copy], false, 2, ProgramLater),
            ),
            (
                "and one that was not",
                (vec![&known_copy, &kernel], false, 2, Unknown),
            ),
            (
                "one without an order",
                (vec![&apart], true, 0, ProgramLater),
            ),
            (
                "and a kernel before the call",
                (vec![&apart, &kernel], true, 0, Unknown),
            ),
        ];
        for (what, (work, is_read, seen, expected)) in table {
            let found = Writer::beside(work.into_iter(), is_read, |write| write.call == seen);
            assert_eq!(found, expected, "{what}");
        }
    }

    #[test]
    fn runs_are_widened_to_words_and_divided_where_the_writer_changes() {
        let words = whole_words(&[(1, 1), (3, 2), (13, 1)], 0x1002, 14);
        assert_eq!(words, [(0, 6), (10, 14)]);
        let copy = PendingWrite {
            bytes: 0x1004..0x1008,
            ..write(1, true, false, true)
        };
        let parts = divide(&words, 0x1002, &[copy], false, |_| false);
        let expected = [
            (0, 2, Writer::Program),
            (2, 6, Writer::Device),
            (10, 14, Writer::Program),
        ];
        assert_eq!(parts, expected);
    }
}
