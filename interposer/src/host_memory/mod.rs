//! Host memory that the device reads and writes without a copy: pinned, registered and managed
//! ranges.
//!
//! Before work that can reach such a range, and after a wait for work that may have written it, the
//! range is compared with a shadow copy, and what has changed is recorded. A call whose words point
//! into no such range takes no lock. Otherwise the lock of the table is held while ranges are
//! compared, so that they are not freed meanwhile, but never across a call of the driver. Not seen:
//! what a kernel reads while the host writes it, and what the host learns by polling.

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::collections::BTreeMap;

use cutape_format::layout::{HostChangedNote, HostSkippedNote, field, host_skip, note_kind};
use cutape_registry::{FUNCTIONS, Function, Role, Waits};

use crate::file::rows::Rows;
use crate::hot::frame::Frame;
use crate::hot::host_range_filter::HostRangeFilter;
use crate::hot::recording::payload_policy;
use crate::hot::thread::Thread;
use crate::process::errno::Errno;
use crate::process::memory::{self, Scratch};
use crate::process::process_lock::ProcessLock;
use crate::process::settings::HostMemory;
use crate::queries::{
    STREAM_LEGACY, STREAM_PER_THREAD, canonical_stream, current_context,
    has_concurrent_managed_access, is_capturing,
};
use crate::snapshot;

mod changes;

use changes::changes;

/// Longer ranges are skipped.
const MOST_OF_ONE: u64 = 64 << 20;
/// Ranges beyond this many bytes in all are skipped.
const MOST_OF_ALL: u64 = 1 << 30;

/// The last work that may write a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Touch {
    stream: u64,
    context: u64,
    /// There is such work on more than one stream.
    on_several: bool,
}

struct Range {
    length: u64,
    context: u64,
    /// A call in progress frees it.
    is_ending: bool,
    /// It is not compared.
    is_skipped: bool,
    /// Managed, and the host must not touch it while the device works.
    is_exclusive: bool,
    /// Its content as the trace has it; `None` until work can reach it.
    shadow: Option<Shadow>,
    touched: Option<Touch>,
}

struct Shadow(Scratch);

// SAFETY: the mapping belongs to the value alone and is used under the table's lock.
unsafe impl Send for Shadow {}

#[derive(Default)]
struct Table {
    /// By start.
    ranges: BTreeMap<u64, Range>,
    /// Bytes of all shadows.
    shadows: u64,
    /// `FILTER` is out of date.
    is_changed: bool,
}

/// The ranges that are not skipped.
static FILTER: HostRangeFilter = HostRangeFilter::new();
static TABLE: ProcessLock<Table> = ProcessLock::new();
/// How many ranges exist, and how many the device may have written since they were last compared.
static RANGES: AtomicUsize = AtomicUsize::new(0);
static TOUCHED: AtomicUsize = AtomicUsize::new(0);
static POLICY: AtomicU8 = AtomicU8::new(HostMemory::Off as u8);

/// Sets what is to be recorded.
pub(crate) fn configure(policy: HostMemory) {
    POLICY.store(policy as u8, Ordering::Relaxed);
}

fn is_policy(policy: HostMemory) -> bool {
    POLICY.load(Ordering::Relaxed) == policy as u8
}

/// In a forked child: the parent's memory is not usable with the driver here.
pub(crate) fn forget() {
    RANGES.store(0, Ordering::Relaxed);
    TOUCHED.store(0, Ordering::Relaxed);
    FILTER.forget();
    TABLE.forget();
}

/// Whether there is any such range.
#[inline]
pub(crate) fn any() -> bool {
    RANGES.load(Ordering::Relaxed) != 0
}

/// Whether a call with these words may reach such a range.
#[inline]
pub(crate) fn may_reach(words: impl Iterator<Item = u64> + Clone) -> bool {
    any() && (is_policy(HostMemory::All) || FILTER.may_hold(words))
}

/// Whether the device may have written a range since it was last compared.
#[inline]
pub(crate) fn is_touched() -> bool {
    TOUCHED.load(Ordering::Relaxed) != 0
}

impl Table {
    fn publish(&mut self) {
        if core::mem::take(&mut self.is_changed) {
            let compared = self.ranges.iter().filter(|(_, range)| !range.is_skipped);
            let compared = compared.map(|(&start, range)| (start, range.length));
            FILTER.publish(&compared.collect::<Vec<_>>());
        }
        let touched = self.ranges.values().filter(|range| range.touched.is_some());
        TOUCHED.store(touched.count(), Ordering::Release);
        RANGES.store(self.ranges.len(), Ordering::Release);
    }

    /// Adds a range. Ranges that it overlaps are gone: the system has reused their addresses.
    fn insert(&mut self, start: u64, range: Range) {
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
        let shadow = self
            .ranges
            .remove(&start)
            .filter(|old| old.shadow.is_some());
        self.shadows -= shadow.map_or(0, |old| old.length);
    }

    /// The start of the range that an address is in.
    fn find(&self, address: u64) -> Option<u64> {
        let (&start, range) = self.ranges.range(..=address).next_back()?;
        (address - start < range.length).then_some(start)
    }

    /// The starts of the ranges that some words point into, each once; of all ranges if the words
    /// are not known.
    fn reached(&self, words: Option<&[u64]>) -> Vec<u64> {
        let Some(words) = words.filter(|_| !is_policy(HostMemory::All)) else {
            return self.ranges.keys().copied().collect();
        };
        let mut starts: Vec<u64> = words.iter().filter_map(|&word| self.find(word)).collect();
        starts.sort_unstable();
        starts.dedup();
        starts
    }

    /// Compares a range with its shadow and records what has changed.
    fn look(&mut self, thread: &Thread, start: u64, is_after: bool) {
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
                    return skip(thread, start, range, reason);
                }
            }
            self.shadows += range.length;
        }
        let Some(Shadow(shadow)) = &mut range.shadow else {
            return;
        };
        let shadow = shadow.bytes();
        let mut runs = Vec::new();
        let is_whole = changes(start, shadow, memory::is_readable, &mut runs);
        if is_first && runs.is_empty() {
            // An empty change: the range begins as zeros.
            runs.push((0, 0));
        }
        for (at, length) in runs {
            let note = HostChangedNote {
                address: start + at as u64,
                is_after: is_after.into(),
            };
            // The shadow's bytes: the memory may be written meanwhile.
            let bytes = Rows::flat(shadow.as_ptr() as u64 + at as u64, length as u64);
            thread.note(note_kind::HOST_CHANGED, |draft| {
                draft.put_encoded(note)?;
                snapshot::payload(draft, 0, field::POINTEE, &bytes, payload_policy().0)
            });
        }
        if !is_whole {
            self.is_changed = true;
            skip(thread, start, range, host_skip::UNREADABLE);
        }
    }
}

/// Records that a range is skipped from now on.
fn skip(thread: &Thread, start: u64, range: &mut Range, reason: u8) {
    range.is_skipped = true;
    range.touched = None;
    let note = HostSkippedNote {
        address: start,
        length: range.length,
        reason,
    };
    thread.note(note_kind::HOST_SKIPPED, |draft| draft.put_encoded(note));
}

/// How a call makes a range of its first two parameters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Address and length.
    Registered,
    /// Where the address is written, and the length.
    Allocated,
    /// As `Allocated`.
    Managed,
}

/// After a call that makes a range.
pub(crate) fn created(frame: &Frame, origin: Origin) {
    if !frame.succeeded() || is_policy(HostMemory::Off) {
        return;
    }
    let _errno = Errno::keep();
    let [first, second, ..] = frame.words;
    let start = match origin {
        Origin::Registered => Some(first),
        Origin::Allocated | Origin::Managed => memory::word(first),
    };
    // `cuMemHostAlloc` and its like of CUDA 3.1 have a length of 32 bits.
    let is_narrow = FUNCTIONS
        .get(frame.index())
        .and_then(|function| function.params.get(1))
        .is_some_and(|length| length.width.bytes() == 4);
    let length = if is_narrow {
        u64::from(second as u32)
    } else {
        second
    };
    let Some(start) = start.filter(|&start| start != 0 && length != 0) else {
        return;
    };
    let range = Range {
        length,
        context: current_context(),
        is_ending: false,
        is_skipped: false,
        is_exclusive: origin == Origin::Managed && !has_concurrent_managed_access(),
        shadow: None,
        touched: None,
    };
    let mut table = TABLE.lock();
    table.insert(start, range);
    table.publish();
}

/// Which ranges a call ends.
#[derive(Clone, Copy)]
pub(crate) enum Which {
    /// The one that begins there.
    At(u64),
    /// Those that were allocated in a context.
    OfContext(u64),
    /// All: a primary context has ended, and which ranges went with it is not known.
    All,
}

impl Which {
    fn includes(self, start: u64, range: &Range) -> bool {
        match self {
            Self::At(address) => start == address,
            Self::OfContext(context) => range.context == context,
            Self::All => true,
        }
    }
}

/// Before a call that ends ranges: they are not compared any more.
pub(crate) fn ending(which: Which) {
    if any() {
        set_ending(which, true);
    }
}

/// After that call.
pub(crate) fn ended(which: Which, succeeded: bool) {
    if !any() {
        return;
    }
    if !succeeded {
        return set_ending(which, false);
    }
    let _errno = Errno::keep();
    let mut table = TABLE.lock();
    let gone = table
        .ranges
        .iter()
        .filter(|(start, range)| which.includes(**start, range));
    for start in gone.map(|(&start, _)| start).collect::<Vec<_>>() {
        table.remove(start);
    }
    table.publish();
}

fn set_ending(which: Which, is_ending: bool) {
    let mut table = TABLE.lock();
    for (&start, range) in &mut table.ranges {
        if which.includes(start, range) {
            range.is_ending = is_ending;
        }
    }
}

/// Before a launch on a stream: compares the ranges that these words point into, or all if the
/// words are not known.
#[cold]
pub(crate) fn before_launch(thread: &Thread, frame: &Frame, stream: u64, words: Option<&[u64]>) {
    let Some(function) = FUNCTIONS.get(frame.index()) else {
        return;
    };
    // Most launches reach no range.
    if TABLE.lock().reached(words).is_empty() {
        return;
    }
    let _errno = Errno::keep();
    // Captured work runs when its graph is launched, and the stream must not be asked anything now.
    if is_capturing(function, stream) {
        return;
    }
    let touch = touch(function, stream);
    let mut table = TABLE.lock();
    for start in table.reached(words) {
        table.look(thread, start, false);
        table.touch(start, touch);
    }
    table.publish();
}

fn touch(function: &Function, stream: u64) -> Touch {
    Touch {
        stream: canonical_stream(function, stream),
        context: current_context(),
        on_several: false,
    }
}

impl Table {
    /// Notes that work may write a range, if it is compared.
    fn touch(&mut self, start: u64, new: Touch) {
        if let Some(range) = self.ranges.get_mut(&start)
            && range.shadow.is_some()
            && !range.is_skipped
        {
            let old = *range.touched.get_or_insert(new);
            range.touched = Some(Touch {
                stream: new.stream,
                // 0 is no context: with several, none alone proves anything.
                context: if old.context == new.context {
                    new.context
                } else {
                    0
                },
                on_several: old.on_several || old.stream != new.stream,
            });
        }
    }
}

/// Before a call whose arguments are addresses that the device reads from or writes to.
#[cold]
pub(crate) fn before_operands(thread: &Thread, frame: &Frame) {
    let Some(function) = FUNCTIONS.get(frame.index()) else {
        return;
    };
    let operands = |reads: bool| {
        let of_kind = function
            .params
            .iter()
            .map(move |parameter| match parameter.role {
                Role::DeviceRead(_) => reads,
                Role::DeviceWrite(_) | Role::HostWrite(_) => !reads,
                _ => false,
            });
        frame
            .words
            .iter()
            .zip(of_kind)
            .filter_map(|(&word, is_one)| is_one.then_some(word))
    };
    if !may_reach(operands(true).chain(operands(false))) {
        return;
    }
    {
        let table = TABLE.lock();
        let is_shadowed = |start: &u64| {
            table
                .ranges
                .get(start)
                .is_some_and(|range| range.shadow.is_some())
        };
        let reads = operands(true).any(|word| table.find(word).is_some());
        let mut written = operands(false).filter_map(|word| table.find(word));
        if !reads && !written.any(|start| is_shadowed(&start)) {
            return;
        }
    }
    let _errno = Errno::keep();
    let stream = function.stream.map_or(0, |at| frame.word(at));
    if function.stream.is_some() && is_capturing(function, stream) {
        return;
    }
    let touch = touch(function, stream);
    let mut table = TABLE.lock();
    for word in operands(true) {
        if let Some(start) = table.find(word) {
            table.look(thread, start, false);
        }
    }
    for word in operands(false) {
        if let Some(start) = table.find(word) {
            table.touch(start, touch);
        }
    }
    table.publish();
}

/// After a call that has waited for work: records what the work has written, so that later changes
/// of the host show as such.
#[inline]
pub(crate) fn waited(thread: &Thread, frame: &Frame) {
    if is_touched() {
        look_after_wait(thread, frame);
    }
}

#[cold]
fn look_after_wait(thread: &Thread, frame: &Frame) {
    let Some(function) = FUNCTIONS.get(frame.index()) else {
        return;
    };
    let _errno = Errno::keep();
    let context = match function.waits {
        Waits::Context if !function.params.is_empty() && frame.word(0) != 0 => frame.word(0),
        _ => current_context(),
    };
    let stream = match function.waits {
        Waits::Stream(at) => Some(canonical_stream(function, frame.word(at))),
        _ => None,
    };
    let mut table = TABLE.lock();
    let touched = table
        .ranges
        .iter()
        .filter_map(|(&at, range)| Some((at, range.touched?)));
    for (start, touch) in touched.collect::<Vec<_>>() {
        let (may_be, is_proved) = proof(touch, function.waits, stream, context);
        if may_be {
            table.look(thread, start, true);
        }
        if is_proved && let Some(range) = table.ranges.get_mut(&start) {
            range.touched = None;
        }
    }
    table.publish();
}

/// Whether work may be complete now, and whether it is certain.
fn proof(touch: Touch, waits: Waits, stream: Option<u64>, context: u64) -> (bool, bool) {
    match (waits, stream) {
        (Waits::Context, _) => (true, touch.context == context),
        (_, Some(stream)) => {
            let is_same = touch.stream == stream && !touch.on_several;
            let is_own = stream > STREAM_PER_THREAD;
            let is_proved =
                is_same && (is_own || (stream == STREAM_LEGACY && touch.context == context));
            // Default streams synchronize with others.
            let is_unclear = touch.on_several || !is_own || touch.stream <= STREAM_PER_THREAD;
            (is_same || is_unclear, is_proved)
        }
        _ => (true, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(length: u64) -> Range {
        Range {
            length,
            context: 1,
            is_ending: false,
            is_skipped: false,
            is_exclusive: false,
            shadow: None,
            touched: None,
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

    #[test]
    fn waits_prove_what_they_wait_for() {
        let touch = |stream, context, on_several| Touch {
            stream,
            context,
            on_several,
        };
        let (own, other) = (0x5000, 0x6000);
        for (what, waits, stream, expected) in [
            (touch(own, 1, false), Waits::Context, None, (true, true)),
            (touch(own, 2, false), Waits::Context, None, (true, false)),
            (touch(own, 1, true), Waits::Context, None, (true, true)),
            (
                touch(own, 1, false),
                Waits::Stream(0),
                Some(own),
                (true, true),
            ),
            (
                touch(own, 1, false),
                Waits::Stream(0),
                Some(other),
                (false, false),
            ),
            (
                touch(own, 1, true),
                Waits::Stream(0),
                Some(own),
                (true, false),
            ),
            (
                touch(own, 1, false),
                Waits::Stream(0),
                Some(STREAM_LEGACY),
                (true, false),
            ),
            (
                touch(STREAM_LEGACY, 1, false),
                Waits::Stream(0),
                Some(STREAM_LEGACY),
                (true, true),
            ),
            (
                touch(STREAM_LEGACY, 2, false),
                Waits::Stream(0),
                Some(STREAM_LEGACY),
                (true, false),
            ),
            (
                touch(STREAM_LEGACY, 1, false),
                Waits::Stream(0),
                Some(own),
                (true, false),
            ),
            (
                touch(STREAM_PER_THREAD, 1, false),
                Waits::Stream(0),
                Some(STREAM_PER_THREAD),
                (true, false),
            ),
            (touch(own, 1, false), Waits::Event(0), None, (true, false)),
        ] {
            assert_eq!(
                proof(what, waits, stream, 1),
                expected,
                "{what:?} {waits:?} {stream:?}"
            );
        }
    }
}
