//! The ranges of host memory that the device can access, and a shadow copy of each.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::collections::{BTreeMap, HashMap, VecDeque};

use cutape_format::layout::{HostChangedNote, HostSkippedNote, field, host_skip, note_kind};
use cutape_order::{Latest, Moment};

use super::changes::changes;
use super::seen::{self, Seen};
use crate::file::rows::Rows;
use crate::hot::clock;
use crate::hot::recording::Direction;
use crate::hot::thread::Thread;
use crate::process::memory::{self, Scratch};
use crate::process::process_lock::ProcessLock;
use crate::snapshot;
use crate::state::contexts;
use crate::state::followed_work::{self, Work};
use crate::state::leads;

/// Longer ranges are skipped.
const MOST_OF_ONE: u64 = 64 << 20;
/// Ranges beyond this many bytes in all are skipped.
const MOST_OF_ALL: u64 = 1 << 30;
/// So many values are looked for, the last ones.
const MOST_VALUES: usize = 64;

#[derive(Default)]
pub(super) struct Range {
    pub(super) length: u64,
    pub(super) context: u64,
    /// A call in progress frees it.
    pub(super) is_ending: bool,
    /// It is not compared.
    pub(super) is_skipped: bool,
    pub(super) is_managed: bool,
    /// Managed, and the host must not touch it while the device works.
    pub(super) is_exclusive: bool,
    /// Its content as the trace has it; `None` until work can reach it.
    pub(super) shadow: Option<Shadow>,
    /// Work that may write it: the last of each stream.
    pub(super) writers: Vec<Work>,
    /// When threads have begun to compare all of it, and when they were done.
    pub(super) looks_begun: Latest,
    pub(super) looks_ended: Latest,
    /// The module or library whose variable it is.
    pub(super) owner: Option<u64>,
    pub(super) seen: Seen,
}

impl Range {
    /// Whether it is compared with what it held before: some of it, at some calls.
    fn is_compared(&self) -> bool {
        self.seen.has_pages() || self.shadow.is_some() && !self.is_skipped
    }
}

pub(super) struct Shadow(pub(super) Scratch);

// SAFETY: the mapping belongs to the value alone and is used under the table's lock.
unsafe impl Send for Shadow {}

#[derive(Default)]
pub(super) struct Table {
    /// By start.
    pub(super) ranges: BTreeMap<u64, Range>,
    /// Bytes of all shadows.
    shadows: u64,
    /// `leads::RANGES` is out of date.
    is_changed: bool,
    /// Values that streams are to write: address, value, its length.
    values: VecDeque<(u64, u64, u64)>,
    /// While outputs of exchanges are kept: words that changed before a launch, by its thread.
    pub(super) news: HashMap<u32, Vec<u64>>,
}

pub(super) static TABLE: ProcessLock<Table> = ProcessLock::new();
/// Whether `Table::news` is kept.
pub(super) static KEEPS_NEWS: AtomicBool = AtomicBool::new(false);
/// How many ranges exist, and how many the device may have written since they were last compared.
static RANGES: AtomicUsize = AtomicUsize::new(0);
static TOUCHED: AtomicUsize = AtomicUsize::new(0);

/// In a forked child: the parent's memory is not usable with the driver here.
pub(crate) fn forget() {
    RANGES.store(0, Ordering::Relaxed);
    TOUCHED.store(0, Ordering::Relaxed);
    TABLE.forget();
    leads::forget();
}

/// Whether there is any such range.
#[inline]
pub(crate) fn any() -> bool {
    RANGES.load(Ordering::Relaxed) != 0
}

/// Whether the device may have written a range since it was last compared.
#[inline]
pub(crate) fn is_touched() -> bool {
    TOUCHED.load(Ordering::Relaxed) != 0
}

/// Which ranges a call ends.
#[derive(Clone, Copy)]
pub(crate) enum Which {
    /// The one that begins there.
    At(u64),
    /// Those that were allocated in a context.
    OfContext(u64),
    /// Those that were allocated in the primary context of a device.
    OfPrimary(u64),
    /// The variables of a module or library.
    OfOwner(u64),
}

impl Which {
    fn includes(self, start: u64, range: &Range) -> bool {
        match self {
            Self::At(address) => start == address,
            Self::OfContext(_) | Self::OfPrimary(_) => self.is_in(range.context),
            Self::OfOwner(owner) => range.owner == Some(owner),
        }
    }

    /// Whether it ends what is in a context.
    pub(crate) fn is_in(self, context: u64) -> bool {
        match self {
            Self::At(_) | Self::OfOwner(_) => false,
            Self::OfContext(ended) => context == ended,
            Self::OfPrimary(device) => contexts::is_of_primary(context, device),
        }
    }
}

impl Table {
    /// Makes known what has changed to calls that do not lock the table.
    pub(super) fn publish(&mut self) {
        if core::mem::take(&mut self.is_changed) {
            let is_compared = |range: &Range| !range.is_skipped || range.seen.has_pages();
            let compared = self.ranges.iter().filter(|(_, range)| is_compared(range));
            let compared = compared.map(|(&start, range)| (start, range.length));
            leads::RANGES.publish(&compared.collect::<Vec<_>>());
        }
        let touched = self.ranges.values();
        let touched = touched.filter(|range| !range.writers.is_empty());
        TOUCHED.store(touched.count(), Ordering::Release);
        RANGES.store(self.ranges.len(), Ordering::Release);
    }

    /// Adds a range. Ranges that it overlaps are gone: the system has reused their addresses.
    pub(super) fn insert(&mut self, start: u64, range: Range) {
        let end = start.saturating_add(range.length);
        let covered: Vec<u64> = self
            .ranges
            .range(..end)
            .rev()
            .take_while(|(other, old)| other.saturating_add(old.length) > start)
            .map(|(&other, _)| other)
            .collect();
        for other in covered {
            self.remove(other);
        }
        self.ranges.insert(start, range);
        self.is_changed = true;
    }

    fn remove(&mut self, start: u64) {
        self.is_changed = true;
        let Some(old) = self.ranges.remove(&start) else {
            return;
        };
        followed_work::release(old.writers.len());
        if old.shadow.is_some() {
            self.shadows -= old.length;
        }
    }

    /// The start of the range that an address is in.
    pub(super) fn find(&self, address: u64) -> Option<u64> {
        let (&start, range) = self.ranges.range(..=address).next_back()?;
        (address - start < range.length).then_some(start)
    }

    /// Whether memory lies in one range that the host may read at any time and no call in progress
    /// ends.
    pub(super) fn is_lasting(&self, address: u64, length: u64) -> bool {
        let range = self.find(address).and_then(|start| {
            let range = self.ranges.get(&start)?;
            Some((address - start, range))
        });
        range.is_some_and(|(offset, range)| {
            !range.is_ending && !range.is_exclusive && length <= range.length - offset
        })
    }

    /// The starts of the ranges that some words, or device memory, point into, each once; of all
    /// ranges without words.
    pub(super) fn reached(&self, words: Option<&[u64]>) -> Vec<u64> {
        let Some(words) = words else {
            return self.ranges.keys().copied().collect();
        };
        let mut starts: Vec<u64> = words.iter().filter_map(|&word| self.find(word)).collect();
        if leads::any() {
            let led_to = self.ranges.iter().filter(|(_, range)| range.seen.has_lead);
            starts.extend(led_to.map(|(&start, _)| start));
        }
        starts.sort_unstable();
        starts.dedup();
        starts
    }

    /// Says that ranges are about to end, or that they do not end after all.
    pub(super) fn set_ending(&mut self, which: Which, is_ending: bool) {
        for (&start, range) in &mut self.ranges {
            if which.includes(start, range) {
                range.is_ending = is_ending;
            }
        }
    }

    /// Removes ranges.
    pub(super) fn end(&mut self, which: Which) {
        let gone = self.ranges.iter();
        let gone = gone.filter(|(start, range)| which.includes(**start, range));
        for start in gone.map(|(&start, _)| start).collect::<Vec<_>>() {
            self.remove(start);
        }
        if let Which::At(_) | Which::OfOwner(_) = which {
            return;
        }
        // No wait proves work of a context complete that has ended.
        let mut count = 0;
        followed_work::asking_contexts(|context_of| {
            for range in self.ranges.values_mut() {
                let before = range.writers.len();
                range.writers.retain(|&work| !which.is_in(context_of(work)));
                count += before - range.writers.len();
            }
        });
        followed_work::release(count);
    }

    /// Whether work was able to reach a range.
    pub(super) fn is_shadowed(&self, start: u64) -> bool {
        let range = self.ranges.get(&start);
        range.is_some_and(|range| range.shadow.is_some())
    }

    /// Whether a range is managed memory.
    pub(super) fn is_managed(&self, start: u64) -> bool {
        self.ranges
            .get(&start)
            .is_some_and(|range| range.is_managed)
    }

    /// Takes from the ranges the work that is complete, and returns the ranges that it may have
    /// written.
    pub(super) fn take_completed(&mut self) -> Vec<u64> {
        let mut written = Vec::new();
        let mut count = 0;
        followed_work::asking(|is_complete| {
            for (&start, range) in &mut self.ranges {
                let before = range.writers.len();
                range.writers.retain(|&work| !is_complete(work));
                if range.writers.len() != before {
                    count += before - range.writers.len();
                    written.push(start);
                }
            }
        });
        followed_work::release(count);
        written
    }

    /// A stream is to write a value at an address.
    pub(super) fn expect_value(&mut self, address: u64, value: u64, length: u64) {
        if self.values.len() == MOST_VALUES {
            self.values.pop_front();
        }
        self.values.push_back((address, value, length));
    }

    /// Records which of these values are there: the work before them is complete, and what changes
    /// later, the program has written. To be called before other looks of the same call.
    pub(super) fn look_for_values(&mut self, thread: &Thread) {
        if self.values.is_empty() {
            return;
        }
        let mut values = core::mem::take(&mut self.values);
        values.retain(|&(address, value, length)| {
            let range = self.find(address).filter(|&start| self.is_shadowed(start));
            let mut bytes = [0; 8];
            let there = bytes.get_mut(..length as usize);
            let (Some(start), Some(there)) = (range, there) else {
                return false;
            };
            let is_there =
                memory::read_all(address, there) && value.to_le_bytes().starts_with(there);
            if is_there {
                let end = address.saturating_add(length);
                // No call of another thread overtakes this look.
                self.look_at(thread, start, address..end, Some(Moment::MAX));
            }
            !is_there
        });
        self.values = values;
    }

    /// All work is complete that may write a range: the values that streams were to write there have
    /// been there, so that what is there instead, also what was before, is recorded.
    pub(super) fn take_values_in(&mut self, start: u64) {
        let Some(range) = self.ranges.get_mut(&start) else {
            return;
        };
        let Some(Shadow(shadow)) = range.shadow.as_mut().filter(|_| range.writers.is_empty())
        else {
            return;
        };
        let (shadow, end) = (shadow.bytes(), start.saturating_add(range.length));
        let mut noted = range.seen.noted.as_mut().map(Scratch::bytes);
        self.values.retain(|&(address, value, length)| {
            let is_inside = (start..end).contains(&address);
            let at = address.wrapping_sub(start) as usize;
            if is_inside
                && let Some(there) = shadow.get_mut(at..at.saturating_add(length as usize))
                && let Some(value) = value.to_le_bytes().get(..there.len())
            {
                there.copy_from_slice(value);
                let noted = noted
                    .as_mut()
                    .and_then(|noted| noted.get_mut(at..at + value.len()));
                if let Some(noted) = noted {
                    noted.copy_from_slice(value);
                }
            }
            !is_inside
        });
    }

    /// Compares a range with its shadow and records what has changed, before a call that was
    /// `entered` then, or behind one that has waited.
    pub(super) fn look(&mut self, thread: &Thread, start: u64, entered: Option<Moment>) {
        self.look_at(thread, start, 0..u64::MAX, entered);
    }

    /// Compares these addresses of a range.
    pub(super) fn look_at(
        &mut self,
        thread: &Thread,
        start: u64,
        addresses: core::ops::Range<u64>,
        entered: Option<Moment>,
    ) {
        let (is_after, number) = (entered.is_none(), thread.ordinal.get());
        let Some(range) = self.ranges.get_mut(&start) else {
            return;
        };
        if range.is_ending || range.is_skipped {
            return;
        }
        let is_first = range.shadow.is_none();
        if is_first {
            let shadow = if range.is_exclusive {
                Err(host_skip::EXCLUSIVE)
            } else if range.length > MOST_OF_ONE {
                Err(host_skip::LONG)
            } else if self.shadows + range.length > MOST_OF_ALL {
                Err(host_skip::FULL)
            } else {
                Scratch::new(range.length as usize).ok_or(host_skip::FULL)
            };
            match shadow {
                Ok(shadow) => range.shadow = Some(Shadow(shadow)),
                Err(reason) => {
                    self.is_changed = true;
                    skip(thread, start, range, reason);
                    range.seen.begin_pages(start, range.length, reason);
                    return;
                }
            }
            self.shadows += range.length;
        }
        let is_since_entry = |moment| entered.is_some_and(|entered| moment > entered);
        let is_overtaken = is_since_entry(range.looks_begun.of_others(number));
        // Another look ended since, and may have found what the program had written for this call.
        let is_overlapped = is_since_entry(range.looks_ended.of_others(number));
        let is_noted = addresses == (0..u64::MAX) && !is_overtaken;
        if is_noted {
            range.looks_begun.note(number, clock::ticks());
        }
        let Some(Shadow(shadow)) = &mut range.shadow else {
            return;
        };
        let whole = shadow.bytes();
        let from = addresses
            .start
            .saturating_sub(start)
            .min(whole.len() as u64) as usize;
        let end = addresses.end.saturating_sub(start).min(whole.len() as u64) as usize;
        let start = start + from as u64;
        let Some(shadow) = whole.get_mut(from..end) else {
            return;
        };
        let mut runs = Vec::new();
        let is_whole = match is_overtaken {
            // The look of a later call of another thread has found all of it. What has changed since
            // may be the work of that call.
            true => true,
            false => changes(start, shadow, memory::is_readable, &mut runs),
        };
        if is_noted {
            range.looks_ended.note(number, clock::ticks());
        }
        if is_overlapped {
            runs = vec![(0, shadow.len())];
        }
        let was_written = !is_after && !range.writers.is_empty();
        range.seen.take_over(shadow, from, &runs);
        if is_first && runs.is_empty() {
            // An empty change: the range begins as zeros.
            runs.push((0, 0));
        }
        if KEEPS_NEWS.load(Ordering::Relaxed) && !is_after {
            let of_thread = self.news.entry(number).or_default();
            for &(at, length) in &runs {
                let end = (at + length).next_multiple_of(8).min(shadow.len());
                let words = shadow
                    .get(at / 8 * 8..end)
                    .unwrap_or_default()
                    .as_chunks()
                    .0;
                of_thread.extend(words.iter().map(|word| u64::from_le_bytes(*word)));
            }
        }
        if !runs.is_empty() {
            // While the table is locked: a look of another thread at this range ends before or after.
            thread.looked.set(clock::ticks());
        }
        for (at, length) in runs {
            let note = HostChangedNote {
                address: start + at as u64,
                is_after: is_after.into(),
            };
            // The shadow's bytes: the memory may be written meanwhile.
            let bytes = Rows::flat(shadow.as_ptr() as u64 + at as u64, length as u64);
            if was_written && length != 0 && seen::is_long(range.length) {
                seen::note(thread, note, &bytes);
            }
            thread.note(note_kind::HOST_CHANGED, |draft| {
                draft.put_encoded(note)?;
                snapshot::payload(draft, 0, field::POINTEE, &bytes, Direction::ToDevice)
            });
        }
        if !is_whole {
            self.is_changed = true;
            skip(thread, start - from as u64, range, host_skip::UNREADABLE);
        }
    }

    /// Notes that work that a call begins may write those of some ranges that are compared. False if
    /// there are none; then it is released.
    pub(super) fn touch(&mut self, starts: &[u64], work: Work) -> bool {
        let mut owners = 0;
        let mut replaced = 0;
        for start in starts {
            let Some(range) = self.ranges.get_mut(start) else {
                continue;
            };
            if !range.is_compared() {
                continue;
            }
            let before = range.writers.len();
            range.writers.retain(|&old| !work.is_behind(old));
            replaced += before - range.writers.len();
            range.writers.push(work);
            owners += 1;
        }
        // In this order: work that is followed must not run out in between.
        followed_work::share(owners);
        followed_work::release(replaced + 1);
        owners != 0
    }

    /// The call of a thread that was entered then has enqueued the work that it began.
    pub(super) fn enqueued(&mut self, thread: u32, entered: Moment, now: Moment) {
        let works = self.ranges.values_mut();
        let works = works.flat_map(|range| &mut range.writers);
        followed_work::enqueued(works, thread, entered, now);
    }
}

/// Records that a range is skipped from now on.
fn skip(thread: &Thread, start: u64, range: &mut Range, reason: u8) {
    range.is_skipped = true;
    followed_work::release(core::mem::take(&mut range.writers).len());
    let note = HostSkippedNote {
        address: start,
        length: range.length,
        reason,
    };
    thread.note(note_kind::HOST_SKIPPED, |draft| draft.put_encoded(note));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(length: u64) -> Range {
        Range {
            length,
            context: 1,
            ..Range::default()
        }
    }

    #[test]
    fn addresses_lead_to_the_range_that_lives_there() {
        let mut table = Table::default();
        table.insert(0x1000, range(0x100));
        table.insert(0x1100, range(0x100));
        for (address, found) in [
            (0xfff, None),
            (0x1000, Some(0x1000)),
            (0x10ff, Some(0x1000)),
            (0x1100, Some(0x1100)),
            (0x1200, None),
            (u64::MAX, None),
        ] {
            assert_eq!(table.find(address), found, "{address:#x}");
        }
        assert!(table.is_lasting(0x1000, 0x100) && table.is_lasting(0x10ff, 1));
        assert!(!table.is_lasting(0x10ff, 2) && !table.is_lasting(0xfff, 1));
        table.set_ending(Which::At(0x1000), true);
        assert!(!table.is_lasting(0x1000, 1) && table.is_lasting(0x1100, 1));
        let words = [5, 0x1180, 0x1101, 0x1000];
        assert_eq!(table.reached(Some(&words)), [0x1000, 0x1100]);
        assert_eq!(table.reached(Some(&[])), []);
        assert_eq!(table.reached(None), [0x1000, 0x1100]);
        // The addresses are given out again, across the border of the two.
        table.insert(0x10f0, range(0x20));
        assert_eq!(table.find(0x1000), None);
        assert_eq!(table.find(0x10ff), Some(0x10f0));
        assert_eq!(table.find(0x1110), None);
        table.remove(0x10f0);
        assert_eq!(table.find(0x10ff), None);
        assert!(table.ranges.is_empty());
    }

    #[test]
    fn a_range_that_goes_gives_its_shadow_back() {
        let mut table = Table::default();
        table.insert(
            0x1000,
            Range {
                shadow: Scratch::new(0x100).map(Shadow),
                ..range(0x100)
            },
        );
        table.shadows = 0x100;
        table.insert(0x1080, range(0x10));
        assert_eq!(table.shadows, 0);
        table.remove(0x1080);
        assert_eq!(table.shadows, 0, "it had none");
    }
}
