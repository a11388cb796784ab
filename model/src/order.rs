//! Which work is ordered before which, and which the host knows to be complete: stream order, the
//! legacy default stream, events, waits. Work whose order is uncertain counts as ordered and
//! complete.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

/// For each stream the number of the last work that is ordered before something. An entry may also
/// stand for the blocking streams of a context, or for all streams.
pub type Clock = Vec<(u32, u64)>;

/// How many destroyed streams keep their state.
const DEAD_STREAMS: usize = 1024;

/// The largest stream handle that names a default stream (cuda.h: CU_STREAM_PER_THREAD).
pub const STREAM_PER_THREAD: u64 = 2;

/// The entry of a [`Clock`] that stands for all streams.
const ALL_STREAMS: u32 = u32::MAX;

/// Identifies a stream: a handle with its generation, or a default stream with its context and
/// thread.
pub type StreamKey = (u64, u64);

/// How a stream takes part in the order of its context's legacy default stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamKind {
    /// Not at all.
    #[default]
    NonBlocking,
    /// It waits for the legacy default stream, which waits for it.
    Blocking,
    /// It is the legacy default stream.
    Legacy,
    /// Its creation was not seen.
    Unknown,
}

impl StreamKind {
    fn is_in_group(self) -> bool {
        self != Self::NonBlocking
    }
}

#[derive(Clone, Debug, Default)]
struct StreamWork {
    /// The index of its context.
    context: usize,
    kind: StreamKind,
    last: u64,
    done: u64,
    /// Work of other streams that this one has waited for.
    before: Clock,
    /// It waits for something that a trace does not show, such as a value in memory.
    opaque: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct ContextWork {
    /// The entry of a clock that stands for its blocking streams.
    group: Option<u32>,
    /// All work up to this number is complete.
    all: u64,
    /// All work up to this number in streams that take part in the legacy default stream's order is
    /// complete.
    blocking: u64,
    /// Last work in the legacy default stream.
    legacy: u64,
    /// The legacy default stream.
    legacy_stream: Option<u32>,
}

/// The work in all streams, numbered in the order in which it is enqueued.
#[derive(Clone, Debug, Default)]
pub struct Order {
    number: u64,
    next_stream: u32,
    streams: FxHashMap<u32, StreamWork>,
    by_key: FxHashMap<StreamKey, u32>,
    dead: VecDeque<u32>,
    contexts: Vec<ContextWork>,
    /// The index of a context by its handle.
    by_handle: FxHashMap<u64, usize>,
    /// The contexts of the entries that stand for blocking streams.
    groups: FxHashMap<u32, usize>,
    /// All work up to this number is complete.
    all: u64,
}

impl Order {
    /// The number of a stream. A stream that is not known yet gets the other properties: its
    /// context's handle and its kind.
    pub fn stream(&mut self, key: StreamKey, context: u64, kind: StreamKind) -> u32 {
        if let Some(&stream) = self.by_key.get(&key) {
            return stream;
        }
        let stream = self.next_number();
        let context = self.context(context);
        self.by_key.insert(key, stream);
        self.streams.insert(
            stream,
            StreamWork {
                context,
                kind,
                opaque: kind == StreamKind::Unknown,
                ..Default::default()
            },
        );
        if kind == StreamKind::Legacy
            && let Some(work) = self.contexts.get_mut(context)
        {
            work.legacy_stream = Some(stream);
        }
        stream
    }

    /// The index of a context.
    fn context(&mut self, handle: u64) -> usize {
        *self.by_handle.entry(handle).or_insert_with(|| {
            self.contexts.push(ContextWork::default());
            self.contexts.len() - 1
        })
    }

    fn next_number(&mut self) -> u32 {
        self.next_stream += 1;
        self.next_stream - 1
    }

    /// The entry of a clock that stands for the blocking streams of a context.
    fn group(&mut self, context: usize) -> Option<u32> {
        let number = self.next_stream;
        let group = &mut self.contexts.get_mut(context)?.group;
        if group.is_none() {
            *group = Some(number);
            self.next_stream += 1;
            self.groups.insert(number, context);
        }
        *group
    }

    /// The stream is destroyed; its work still runs.
    pub fn destroyed(&mut self, key: StreamKey) {
        if let Some(stream) = self.by_key.remove(&key) {
            self.dead.push_back(stream);
            if self.dead.len() > DEAD_STREAMS
                && let Some(oldest) = self.dead.pop_front()
            {
                self.streams.remove(&oldest);
            }
        }
    }

    /// Enqueues work; returns its number.
    pub fn submit(&mut self, stream: u32) -> Option<u64> {
        self.number += 1;
        let state = self.streams.get_mut(&stream)?;
        state.last = self.number;
        if state.kind == StreamKind::Legacy
            && let Some(context) = self.contexts.get_mut(state.context)
        {
            context.legacy = self.number;
        }
        Some(self.number)
    }

    /// Whether the host knows that this work is complete.
    pub fn is_done(&self, stream: u32, number: u64) -> bool {
        if self.all >= number {
            return true;
        }
        let (context, is_in_group) = match self.streams.get(&stream) {
            Some(state) if state.done >= number => return true,
            Some(state) => (state.context, state.kind.is_in_group()),
            None => match self.groups.get(&stream) {
                Some(&context) => (context, true),
                None => return stream != ALL_STREAMS,
            },
        };
        let context = self.contexts.get(context);
        context.is_some_and(|work| work.all >= number || (is_in_group && work.blocking >= number))
    }

    /// Whether a clock has this work of a stream.
    fn covers(&self, clock: &Clock, stream: u32, state: &StreamWork, number: u64) -> bool {
        clock.iter().any(|&(entry, last)| {
            last >= number
                && (entry == stream
                    || entry == ALL_STREAMS
                    || (state.kind.is_in_group()
                        && self.groups.get(&entry) == Some(&state.context)))
        })
    }

    /// Whether work is ordered before whatever is enqueued next in the stream `later`; true where
    /// that is uncertain.
    pub fn is_before(&self, (stream, number): (u32, u64), later: u32) -> bool {
        if stream == later || self.is_done(stream, number) {
            return true;
        }
        let (Some(state), Some(target)) = (self.streams.get(&stream), self.streams.get(&later))
        else {
            return true;
        };
        if state.opaque || target.opaque || self.covers(&target.before, stream, state, number) {
            return true;
        }
        if target.kind == StreamKind::NonBlocking {
            return false;
        }
        let same = state.context == target.context && state.kind.is_in_group();
        if same && (state.kind == StreamKind::Legacy || target.kind == StreamKind::Legacy) {
            return true;
        }
        // A blocking stream waits for the legacy default stream and all that was before that.
        let Some(context) = self.contexts.get(target.context) else {
            return false;
        };
        if same && context.legacy >= number {
            return true;
        }
        let legacy = context.legacy_stream.and_then(|id| self.streams.get(&id));
        legacy.is_some_and(|legacy| self.covers(&legacy.before, stream, state, number))
    }

    /// The stream's work so far, and what is ordered before its next work.
    pub fn clock(&mut self, stream: u32) -> Clock {
        let Some(state) = self.streams.get(&stream) else {
            return Clock::new();
        };
        let (context, kind, last) = (state.context, state.kind, state.last);
        let mut clock = self.pending(&state.before);
        clock.push((stream, last));
        let work = self.contexts.get(context).copied().unwrap_or_default();
        let group = match kind {
            StreamKind::Legacy => self.number,
            StreamKind::Blocking | StreamKind::Unknown => work.legacy,
            StreamKind::NonBlocking => 0,
        };
        if group > work.blocking.max(work.all)
            && let Some(entry) = self.group(context)
        {
            merge(&mut clock, (entry, group));
            let legacy = work.legacy_stream.filter(|&legacy| legacy != stream);
            let legacy = legacy.and_then(|legacy| self.streams.get(&legacy));
            let before = legacy.map(|legacy| self.pending(&legacy.before));
            for entry in before.unwrap_or_default() {
                merge(&mut clock, entry);
            }
        }
        clock
    }

    /// The part of a clock that is not known to be complete.
    fn pending(&self, clock: &Clock) -> Clock {
        let entries = clock.iter().copied();
        entries.filter(|&(s, n)| !self.is_done(s, n)).collect()
    }

    /// The clock of all work so far.
    pub fn everything(&self) -> Clock {
        vec![(ALL_STREAMS, self.number)]
    }

    /// The stream's later work waits for an event.
    pub fn wait(&mut self, stream: u32, clock: &Clock) {
        let Some(state) = self.streams.get_mut(&stream) else {
            return;
        };
        let old = std::mem::take(&mut state.before);
        let mut before = self.pending(&old);
        for &entry in clock {
            if entry.0 != stream && !self.is_done(entry.0, entry.1) {
                merge(&mut before, entry);
            }
        }
        let number = self.number;
        if let Some(state) = self.streams.get_mut(&stream) {
            state.before = before;
            // Blocking streams wait for it from now on.
            if state.kind == StreamKind::Legacy
                && let Some(context) = self.contexts.get_mut(state.context)
            {
                context.legacy = number;
            }
        }
    }

    /// The stream waits for something that the trace does not show.
    pub fn wait_for_unknown(&mut self, stream: u32) {
        if let Some(state) = self.streams.get_mut(&stream) {
            state.opaque = true;
        }
    }

    /// A call has proved all of this complete.
    pub fn complete(&mut self, clock: &Clock) {
        for &(stream, number) in clock {
            if stream == ALL_STREAMS {
                self.all = self.all.max(number);
            }
            let Some(state) = self.streams.get_mut(&stream) else {
                let context = self.groups.get(&stream);
                if let Some(entry) = context.and_then(|&context| self.contexts.get_mut(context)) {
                    entry.blocking = entry.blocking.max(number);
                }
                continue;
            };
            state.done = state.done.max(number);
            let kind = state.kind;
            let Some(entry) = self.contexts.get_mut(state.context) else {
                continue;
            };
            if kind == StreamKind::Legacy {
                entry.blocking = entry.blocking.max(number);
            } else if kind.is_in_group() && entry.legacy <= number {
                // This work waited for the legacy default stream, which had waited for all blocking
                // streams.
                entry.blocking = entry.blocking.max(entry.legacy);
            }
        }
    }

    /// A call has proved the stream's work complete.
    pub fn complete_stream(&mut self, stream: u32) {
        let clock = self.clock(stream);
        self.complete(&clock);
    }

    /// A call has proved all work of a context complete.
    pub fn complete_context(&mut self, context: u64) {
        let (context, number) = (self.context(context), self.number);
        if let Some(work) = self.contexts.get_mut(context) {
            work.all = number;
        }
    }

    /// A call has proved the work of the legacy default stream, and of the streams that wait for
    /// it, complete.
    pub fn complete_blocking(&mut self, context: u64) {
        let (context, number) = (self.context(context), self.number);
        if let Some(work) = self.contexts.get_mut(context) {
            work.blocking = number;
        }
    }

    /// Whether one stream has waited for an event that covers work of another which may still run.
    pub fn has_waited(&self, stream: u32, other: u32) -> bool {
        let before = self
            .streams
            .get(&stream)
            .map(|state| state.before.as_slice());
        let mut entries = before.unwrap_or_default().iter();
        entries.any(|&(entry, _)| entry == other || entry == ALL_STREAMS)
    }
}

fn merge(clock: &mut Clock, entry: (u32, u64)) {
    match clock.iter_mut().find(|known| known.0 == entry.0) {
        Some(known) => known.1 = known.1.max(entry.1),
        None => clock.push(entry),
    }
}

#[cfg(test)]
mod tests {
    use super::StreamKind::{Blocking, Legacy, NonBlocking};
    use super::*;

    #[test]
    fn a_wait_proves_what_was_enqueued_before_it() {
        let mut order = Order::default();
        let a = order.stream((10, 1), 7, NonBlocking);
        let b = order.stream((11, 2), 7, Blocking);
        let c = order.stream((12, 3), 7, Blocking);
        let legacy = order.stream((1, 7), 7, Legacy);
        let first = order.submit(a).unwrap();
        let second = order.submit(b).unwrap();
        assert!(!order.is_done(a, first) && !order.is_done(b, second));
        // b waits for what a had; completing b completes that, not what a gets later.
        let clock = order.clock(a);
        order.wait(b, &clock);
        let later = order.submit(a).unwrap();
        order.complete_stream(b);
        assert!(order.is_done(a, first) && order.is_done(b, second) && !order.is_done(a, later));
        // The legacy default stream waits for blocking streams only.
        let third = order.submit(c).unwrap();
        order.submit(legacy);
        order.complete_stream(legacy);
        assert!(order.is_done(c, third) && !order.is_done(a, later));
        order.complete_context(7);
        assert!(order.is_done(a, later));
    }

    #[test]
    fn order_between_streams() {
        let mut order = Order::default();
        let [a, b] = [(10, 1), (11, 2)].map(|key| order.stream(key, 7, NonBlocking));
        let [c, d] = [(12, 3), (13, 4)].map(|key| order.stream(key, 7, Blocking));
        let legacy = order.stream((1, 7), 7, Legacy);
        let on_a = (a, order.submit(a).unwrap());
        assert!(order.is_before(on_a, a) && !order.is_before(on_a, b));
        // Through an event and a third stream.
        let recorded = order.clock(a);
        order.wait(c, &recorded);
        let after = (a, order.submit(a).unwrap());
        let recorded = order.clock(c);
        order.wait(b, &recorded);
        assert!(order.is_before(on_a, b) && !order.is_before(after, b));
        assert!(order.has_waited(b, a) && !order.has_waited(a, b));
        // Blocking streams are ordered through the legacy default stream, not among themselves.
        let on_c = (c, order.submit(c).unwrap());
        assert!(!order.is_before(on_c, d) && order.is_before(on_c, legacy));
        assert!(!order.is_before(on_c, b));
        let on_legacy = (legacy, order.submit(legacy).unwrap());
        assert!(order.is_before(on_c, d) && order.is_before(on_legacy, d));
        assert!(!order.is_before(on_legacy, a) && !order.is_before(after, legacy));
        // What an event in a blocking stream brings along.
        let recorded = order.clock(d);
        order.wait(a, &recorded);
        assert!(order.is_before(on_c, a) && order.is_before(on_legacy, a));
        // What the legacy default stream waits for, blocking streams wait for.
        let fresh = (b, order.submit(b).unwrap());
        let recorded = order.clock(b);
        order.wait(legacy, &recorded);
        assert!(order.is_before(fresh, d));
        // A wait that the trace does not explain.
        let last = (a, order.submit(a).unwrap());
        assert!(!order.is_before(last, b));
        order.wait_for_unknown(b);
        assert!(order.is_before(last, b));
        // An event of all streams.
        let e = order.stream((14, 5), 7, NonBlocking);
        let everything = order.everything();
        order.wait(e, &everything);
        assert!(order.is_before(last, e));
        order.complete_stream(e);
        assert!(order.is_done(a, last.1));
    }
}
