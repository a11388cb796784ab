//! Host memory that the device reads and writes without a copy: pinned, registered and managed ranges. Before work that can
//! reach such a range, and after a wait for work that could write it, the range is compared with a shadow, and what has
//! changed goes into the trace.
//!
//! Nothing happens, and no lock is taken, for calls whose words point into no such range. Otherwise the table's lock is held
//! while ranges are compared, never across a call of the driver, so that a range is not freed meanwhile. What is not seen: what a kernel
//! reads while the host writes it, and what the host learns by polling instead of by a call that waits.

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::collections::BTreeMap;

use cutape_format::layout::{
    HostChangedNote, HostSkippedNote, field, host_skip, note_kind, record_kind,
};
use cutape_registry::{FUNCTIONS, Function, Role, Waits, id};

use crate::call::{Frame, payload_policy};
use crate::errno::Errno;
use crate::host_changes::changes;
use crate::host_places::Places;
use crate::memory::Scratch;
use crate::plan::Plan;
use crate::process_lock::ProcessLock;
use crate::settings::HostMemory;
use crate::thread::Thread;
use crate::trace_file::Rows;
use crate::{driver, memory, pending, snapshot};

/// Longer ranges are not looked at.
const MOST_OF_ONE: u64 = 64 << 20;
/// Nor are more bytes in all.
const MOST_OF_ALL: u64 = 1 << 30;

/// A function that begins or ends a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The first parameter says where the address is written, the second how many bytes there are.
    Allocate,
    /// As `Allocate`.
    AllocateManaged,
    /// Address and length are the first two parameters.
    Register,
    /// The first parameter is the address.
    Free,
}

impl Step {
    /// The step of a documented function.
    pub(crate) fn of(base: &str) -> Option<Self> {
        match base {
            "cuMemAllocHost" | "cuMemHostAlloc" => Some(Self::Allocate),
            "cuMemAllocManaged" => Some(Self::AllocateManaged),
            "cuMemHostRegister" => Some(Self::Register),
            "cuMemFreeHost" | "cuMemHostUnregister" | "cuMemFree" => Some(Self::Free),
            _ => None,
        }
    }
}

/// On what the last work ran that may write a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Touch {
    stream: u64,
    context: u64,
    /// There is more than one such stream.
    on_several: bool,
}

struct Range {
    length: u64,
    context: u64,
    /// Being freed by a call in progress.
    is_ending: bool,
    /// Nobody looks at it any more.
    is_skipped: bool,
    /// Managed, and not for the host while the device works.
    is_exclusive: bool,
    /// What the trace says that it holds; `None` until something can reach it.
    shadow: Option<Shadow>,
    touched: Option<Touch>,
}

struct Shadow(Scratch);

// SAFETY: the mapping belongs to the value alone and is used behind the table's lock.
unsafe impl Send for Shadow {}

#[derive(Default)]
struct Table {
    /// By start.
    ranges: BTreeMap<u64, Range>,
    /// Bytes of all shadows.
    shadows: u64,
    /// `PLACES` does not say the same any more.
    is_changed: bool,
}

/// Where the ranges lie that somebody looks at.
static PLACES: Places = Places::new();
static TABLE: ProcessLock<Table> = ProcessLock::new();
/// How many ranges there are, and how many the device may have written since they were last compared.
static RANGES: AtomicUsize = AtomicUsize::new(0);
static TOUCHED: AtomicUsize = AtomicUsize::new(0);
static POLICY: AtomicU8 = AtomicU8::new(OFF);
const OFF: u8 = 0;
const REACHABLE: u8 = 1;
const ALL: u8 = 2;

/// Sets what is to be recorded.
pub(crate) fn configure(policy: HostMemory) {
    let policy = match policy {
        HostMemory::Off => OFF,
        HostMemory::Reachable => REACHABLE,
        HostMemory::All => ALL,
    };
    POLICY.store(policy, Ordering::Relaxed);
}

/// In a forked child: the parent's memory is not usable with the driver here.
pub(crate) fn forget() {
    RANGES.store(0, Ordering::Relaxed);
    TOUCHED.store(0, Ordering::Relaxed);
    PLACES.forget();
    TABLE.forget();
}

/// Whether there is any such memory.
#[inline]
pub(crate) fn any() -> bool {
    RANGES.load(Ordering::Relaxed) != 0
}

/// Whether a call with these words may need a look at such memory: false if none of them points there.
#[inline]
pub(crate) fn may_reach(words: impl Iterator<Item = u64> + Clone) -> bool {
    any() && (POLICY.load(Ordering::Relaxed) == ALL || PLACES.may_hold(words))
}

/// Whether the device may have written a range since it was last compared.
#[inline]
pub(crate) fn is_touched() -> bool {
    TOUCHED.load(Ordering::Relaxed) != 0
}

impl Table {
    fn publish(&mut self) {
        if core::mem::take(&mut self.is_changed) {
            let looked_at = self.ranges.iter().filter(|(_, range)| !range.is_skipped);
            let places = looked_at.map(|(&start, range)| (start, range.length));
            PLACES.publish(&places.collect::<Vec<_>>());
        }
        let touched = self.ranges.values().filter(|range| range.touched.is_some());
        TOUCHED.store(touched.count(), Ordering::Release);
        RANGES.store(self.ranges.len(), Ordering::Release);
    }

    /// Adds a range. What it covers of others is gone: the system has given the addresses out again.
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

    /// The starts of the ranges that some words point into, each once; of all ranges without words.
    fn reached(&self, words: Option<&[u64]>) -> Vec<u64> {
        let Some(words) = words.filter(|_| POLICY.load(Ordering::Relaxed) != ALL) else {
            return self.ranges.keys().copied().collect();
        };
        let mut starts: Vec<u64> = words.iter().filter_map(|&word| self.find(word)).collect();
        starts.sort_unstable();
        starts.dedup();
        starts
    }

    /// Compares a range with its shadow and says in the trace what has changed.
    fn look(&mut self, state: &Thread, start: u64, is_after: bool) {
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
                    return skip(state, start, range, reason);
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
            // Says that the rest is zero.
            runs.push((0, 0));
        }
        for (at, length) in runs {
            let note = HostChangedNote {
                address: start + at as u64,
                is_after: is_after.into(),
            };
            // The shadow's bytes, since the memory may be written meanwhile.
            let bytes = Rows::flat(shadow.as_ptr() as u64 + at as u64, length as u64);
            state.write(record_kind::NOTE, note_kind::HOST_CHANGED, |record| {
                record.put_encoded(note)?;
                snapshot::payload(record, 0, field::POINTEE, &bytes, payload_policy().0)
            });
        }
        if !is_whole {
            self.is_changed = true;
            skip(state, start, range, host_skip::UNREADABLE);
        }
    }
}

/// Says that a range is not looked at from here on.
fn skip(state: &Thread, start: u64, range: &mut Range, reason: u8) {
    range.is_skipped = true;
    range.touched = None;
    let note = HostSkippedNote {
        address: start,
        length: range.length,
        reason,
    };
    state.write(record_kind::NOTE, note_kind::HOST_SKIPPED, |record| {
        record.put_encoded(note)
    });
}

/// Before a call that begins or ends a range: what is about to be freed is not looked at any more.
pub(crate) fn entered(frame: &Frame, step: Step) {
    if step == Step::Free && any() {
        set_ending(|start, _| start == frame.words[0], true);
    }
}

/// After such a call, whatever its result.
pub(crate) fn left(frame: &Frame, plan: &Plan, step: Step) {
    let succeeded = frame.result as i32 == 0;
    if step == Step::Free {
        if any() {
            ended(|start, _| start == frame.words[0], succeeded);
        }
        return;
    }
    if !succeeded || POLICY.load(Ordering::Relaxed) == OFF {
        return;
    }
    let _errno = Errno::keep();
    let start = match step {
        Step::Register => Some(frame.words[0]),
        _ => memory::word(frame.words[0]),
    };
    let length = match plan.widths[1] {
        4 => u64::from(frame.words[1] as u32),
        _ => frame.words[1],
    };
    let Some(start) = start.filter(|&start| start != 0 && length != 0) else {
        return;
    };
    let range = Range {
        length,
        context: pending::current_context(),
        is_ending: false,
        is_skipped: false,
        is_exclusive: step == Step::AllocateManaged && !concurrent_access(),
        shadow: None,
        touched: None,
    };
    let mut table = TABLE.lock();
    table.insert(start, range);
    table.publish();
}

/// Whether the host may touch managed memory while the current device works (cuMemAllocManaged, concurrentManagedAccess).
fn concurrent_access() -> bool {
    const CONCURRENT_MANAGED_ACCESS: u64 = 89;
    let (mut device, mut value) = (0u32, 0i32);
    // SAFETY: both outputs are valid for writing an int.
    unsafe {
        driver::call(id::cuCtxGetDevice, [(&raw mut device) as u64, 0, 0, 0]) == Some(0)
            && driver::call(
                id::cuDeviceGetAttribute,
                [
                    (&raw mut value) as u64,
                    CONCURRENT_MANAGED_ACCESS,
                    device.into(),
                    0,
                ],
            ) == Some(0)
            && value != 0
    }
}

/// A context is about to end, and the memory that was allocated in it.
pub(crate) fn context_ending(context: u64) {
    if any() {
        set_ending(|_, range| range.context == context, true);
    }
}

/// It has ended, or not after all.
pub(crate) fn context_ended(context: u64, succeeded: bool) {
    if any() {
        ended(|_, range| range.context == context, succeeded);
    }
}

/// Some primary context has ended; whose memory went with it is not asked.
pub(crate) fn forget_all() {
    if any() {
        ended(|_, _| true, true);
    }
}

fn set_ending(which: impl Fn(u64, &Range) -> bool, is_ending: bool) {
    let mut table = TABLE.lock();
    for (&start, range) in &mut table.ranges {
        if which(start, range) {
            range.is_ending = is_ending;
        }
    }
}

fn ended(which: impl Fn(u64, &Range) -> bool, succeeded: bool) {
    if !succeeded {
        return set_ending(which, false);
    }
    let _errno = Errno::keep();
    let mut table = TABLE.lock();
    let gone = table
        .ranges
        .iter()
        .filter(|(start, range)| which(**start, range));
    for start in gone.map(|(&start, _)| start).collect::<Vec<_>>() {
        table.remove(start);
    }
    table.publish();
}

/// The handle of a stream, the same for all ways to name the default ones.
fn normal(function: &Function, stream: u64) -> u64 {
    match stream {
        0 if function.per_thread => PER_THREAD,
        0 => LEGACY,
        other => other,
    }
}

/// CU_STREAM_LEGACY and CU_STREAM_PER_THREAD of cuda.h.
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;

/// Before a launch on a stream: looks at the ranges that these words point into, or at all where they are not known.
#[cold]
pub(crate) fn before_launch(state: &Thread, frame: &Frame, stream: u64, words: Option<&[u64]>) {
    let Some(function) = FUNCTIONS.get(frame.function as usize) else {
        return;
    };
    // Most launches reach no such memory: nothing more is asked for them.
    if TABLE.lock().reached(words).is_empty() {
        return;
    }
    let _errno = Errno::keep();
    // What is captured runs when its graph is launched, and nothing may be asked of the stream now.
    if pending::is_capturing(function, stream) {
        return;
    }
    let touch = touch(function, stream);
    let mut table = TABLE.lock();
    for start in table.reached(words) {
        table.look(state, start, false);
        table.touch(start, touch);
    }
    table.publish();
}

fn touch(function: &Function, stream: u64) -> Touch {
    Touch {
        stream: normal(function, stream),
        context: pending::current_context(),
        on_several: false,
    }
}

impl Table {
    /// Notes that work may write a range, if anybody looks at it.
    fn touch(&mut self, start: u64, new: Touch) {
        if let Some(range) = self.ranges.get_mut(&start)
            && range.shadow.is_some()
            && !range.is_skipped
        {
            let old = *range.touched.get_or_insert(new);
            range.touched = Some(Touch {
                stream: new.stream,
                // 0 is no context: of several, none alone proves anything.
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
pub(crate) fn before_operands(state: &Thread, frame: &Frame) {
    let Some(function) = FUNCTIONS.get(frame.function as usize) else {
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
        let is_shadowed = |start: &u64| table.ranges[start].shadow.is_some();
        let reads = operands(true).any(|word| table.find(word).is_some());
        let mut written = operands(false).filter_map(|word| table.find(word));
        if !reads && !written.any(|start| is_shadowed(&start)) {
            return;
        }
    }
    let _errno = Errno::keep();
    let stream = function.stream.map_or(0, |at| frame.words[usize::from(at)]);
    if function.stream.is_some() && pending::is_capturing(function, stream) {
        return;
    }
    let touch = touch(function, stream);
    let mut table = TABLE.lock();
    for start in operands(true)
        .filter_map(|word| table.find(word))
        .collect::<Vec<_>>()
    {
        table.look(state, start, false);
    }
    for start in operands(false)
        .filter_map(|word| table.find(word))
        .collect::<Vec<_>>()
    {
        table.touch(start, touch);
    }
    table.publish();
}

/// After a call that has waited for work: what that work has written is seen, so that the host's later changes are as well.
#[inline]
pub(crate) fn waited(state: &Thread, frame: &Frame) {
    if is_touched() {
        look_after_wait(state, frame);
    }
}

#[cold]
fn look_after_wait(state: &Thread, frame: &Frame) {
    let Some(function) = FUNCTIONS.get(frame.function as usize) else {
        return;
    };
    let _errno = Errno::keep();
    let context = match function.waits {
        Waits::Context if !function.params.is_empty() && frame.words[0] != 0 => frame.words[0],
        _ => pending::current_context(),
    };
    let stream = match function.waits {
        Waits::Stream(at) => Some(normal(function, frame.words[usize::from(at)])),
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
            table.look(state, start, true);
        }
        if is_proved && let Some(range) = table.ranges.get_mut(&start) {
            range.touched = None;
        }
    }
    table.publish();
}

/// Whether work may be complete now, and whether it is for certain.
fn proof(touch: Touch, waits: Waits, stream: Option<u64>, context: u64) -> (bool, bool) {
    match (waits, stream) {
        (Waits::Context, _) => (true, touch.context == context),
        (_, Some(stream)) => {
            let is_same = touch.stream == stream && !touch.on_several;
            let is_own = stream > PER_THREAD;
            let is_proved = is_same && (is_own || (stream == LEGACY && touch.context == context));
            // Default streams wait for others and are waited for.
            let is_unclear = touch.on_several || !is_own || touch.stream <= PER_THREAD;
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
                Some(LEGACY),
                (true, false),
            ),
            (
                touch(LEGACY, 1, false),
                Waits::Stream(0),
                Some(LEGACY),
                (true, true),
            ),
            (
                touch(LEGACY, 2, false),
                Waits::Stream(0),
                Some(LEGACY),
                (true, false),
            ),
            (
                touch(LEGACY, 1, false),
                Waits::Stream(0),
                Some(own),
                (true, false),
            ),
            (
                touch(PER_THREAD, 1, false),
                Waits::Stream(0),
                Some(PER_THREAD),
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
