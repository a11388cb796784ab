//! The order of work in all streams.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, RandomState};

/// A time, by a clock of the caller's that does not go back.
pub type Moment = u64;

/// For each stream the moment up to which its work is ordered before something. An entry may also
/// stand for the blocking streams of a context, or for all streams.
pub type Clock = Vec<(u32, Moment)>;

/// How many destroyed streams keep their state.
const DEAD_STREAMS: usize = 1024;

/// The largest stream handle that names a default stream (cuda.h: CU_STREAM_PER_THREAD).
pub const STREAM_PER_THREAD: u64 = 2;

/// The entry of a [`Clock`] that stands for all streams.
const ALL_STREAMS: u32 = u32::MAX;

/// Identifies a stream: a handle with its generation, or a default stream with its context and
/// thread.
pub type StreamKey = (u64, u64);

/// What work counts as whose order or completion is uncertain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Doubt {
    /// Ordered and complete: for findings, which must not accuse a correct program.
    #[default]
    Complete,
    /// Unordered and running: for whoever uses what the work writes.
    Running,
}

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

#[derive(Clone, Debug, Default)]
struct StreamWork {
    /// The index of its context.
    context: usize,
    kind: StreamKind,
    /// When its last work had been enqueued.
    last: Moment,
    done: Moment,
    /// Work of other streams that this one has waited for.
    before: Clock,
    /// When the last call had returned that made it wait.
    waited: Moment,
    /// Its first work behind the latest of the legacy default stream.
    behind_legacy: BehindLegacy,
    /// It waits for something that a trace does not show, such as a value in memory.
    opaque: bool,
}

/// Work that waited for the legacy default stream.
#[derive(Clone, Copy, Debug, Default)]
struct BehindLegacy {
    enqueued: Moment,
    /// Up to this moment, it waited for all blocking streams.
    blocking: Moment,
    /// Up to this moment, it waited for the legacy default stream itself.
    legacy: Moment,
}

#[derive(Clone, Copy, Debug, Default)]
struct ContextWork {
    /// The entry of a clock that stands for its blocking streams.
    group: Option<u32>,
    /// All work up to this moment is complete.
    all: Moment,
    /// All work up to this moment in streams that take part in the legacy default stream's order is
    /// complete.
    blocking: Moment,
    /// Up to this moment, blocking streams are ordered before the last work in the legacy default
    /// stream.
    legacy: Moment,
    /// When that work had been enqueued.
    legacy_enqueued: Moment,
    /// The legacy default stream.
    legacy_stream: Option<u32>,
}

/// The index of the context with the handle 0, which is not known.
const UNKNOWN_CONTEXT: usize = 0;

/// The work in all streams. Work is identified by its stream and the moment at which it had been
/// enqueued.
///
/// Where doubt counts as complete, a stream whose context is not known counts as one of every
/// context; else as one of none.
#[derive(Clone)]
pub struct Order<S = RandomState> {
    doubt: Doubt,
    next_stream: u32,
    streams: HashMap<u32, StreamWork, S>,
    by_key: HashMap<StreamKey, u32, S>,
    dead: VecDeque<u32>,
    contexts: Vec<ContextWork>,
    /// The index of a context by its handle.
    by_handle: HashMap<u64, usize, S>,
    /// The contexts of the entries that stand for blocking streams.
    groups: HashMap<u32, usize, S>,
    /// By context, where doubt counts as complete: what blocking streams have waited for since the
    /// legacy default stream did anything, which its next work comes after.
    blocking_waits: HashMap<usize, Clock, S>,
    /// All work up to this moment is complete.
    all: Moment,
}

impl<S> fmt::Debug for Order<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the hashers, which need not be printable.
        formatter
            .debug_struct("Order")
            .field("doubt", &self.doubt)
            .field("streams", &self.streams)
            .finish_non_exhaustive()
    }
}

impl<S: BuildHasher + Default> Default for Order<S> {
    fn default() -> Self {
        Self::new(Doubt::default())
    }
}

impl<S: BuildHasher + Default> Order<S> {
    /// Without any work.
    pub fn new(doubt: Doubt) -> Self {
        Self {
            doubt,
            next_stream: 0,
            streams: HashMap::default(),
            by_key: HashMap::default(),
            dead: VecDeque::new(),
            contexts: vec![ContextWork::default()],
            by_handle: [(0, UNKNOWN_CONTEXT)].into_iter().collect(),
            groups: HashMap::default(),
            blocking_waits: HashMap::default(),
            all: 0,
        }
    }

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

    /// The number of a stream that is known.
    pub fn known(&self, key: StreamKey) -> Option<u32> {
        self.by_key.get(&key).copied()
    }

    /// The handle of a stream's context; 0 if it is not known.
    pub fn context_of(&self, stream: u32) -> u64 {
        let context = self.streams.get(&stream).map(|state| state.context);
        let mut known = self.by_handle.iter();
        let found = known.find(|&(_, &index)| Some(index) == context);
        found.map_or(0, |(&handle, _)| handle)
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

    /// Whether a stream takes part in the legacy default stream's order; in doubt as `Doubt` says.
    fn is_in_group(&self, kind: StreamKind) -> bool {
        match kind {
            StreamKind::NonBlocking => false,
            StreamKind::Blocking | StreamKind::Legacy => true,
            StreamKind::Unknown => self.doubt == Doubt::Complete,
        }
    }

    /// Enqueues work, by a call that was entered and had returned at these moments. False if the
    /// stream is not known any more.
    pub fn submit(&mut self, stream: u32, entered: Moment, returned: Moment) -> bool {
        self.wait_for_blocking(stream);
        let Some(state) = self.streams.get_mut(&stream) else {
            return false;
        };
        state.last = state.last.max(returned);
        let Some(context) = self.contexts.get_mut(state.context) else {
            return false;
        };
        if state.kind == StreamKind::Legacy {
            context.legacy = context.legacy.max(entered);
            context.legacy_enqueued = context.legacy_enqueued.max(returned);
        } else if state.behind_legacy.blocking != context.legacy
            && context.legacy_enqueued <= entered
        {
            state.behind_legacy = BehindLegacy {
                enqueued: returned,
                blocking: context.legacy,
                legacy: context.legacy_enqueued,
            };
        }
        true
    }

    /// Whether the host knows that work which had been enqueued at a moment is complete.
    pub fn is_done(&self, stream: u32, enqueued: Moment) -> bool {
        if self.all >= enqueued {
            return true;
        }
        let (context, is_in_group) = match self.streams.get(&stream) {
            Some(state) if state.done >= enqueued => return true,
            Some(state) => (state.context, self.is_in_group(state.kind)),
            None => match self.groups.get(&stream) {
                Some(&context) => (context, true),
                None => return stream != ALL_STREAMS && self.doubt == Doubt::Complete,
            },
        };
        let context = self.contexts.get(context);
        context
            .is_some_and(|work| work.all >= enqueued || (is_in_group && work.blocking >= enqueued))
    }

    /// Whether a clock has this work of a stream.
    fn covers(&self, clock: &Clock, stream: u32, state: &StreamWork, enqueued: Moment) -> bool {
        clock.iter().any(|&(entry, last)| {
            last >= enqueued
                && (entry == stream
                    || entry == ALL_STREAMS
                    || (self.is_in_group(state.kind)
                        && self.groups.get(&entry) == Some(&state.context)))
        })
    }

    /// Whether work is ordered before whatever is enqueued next in the stream `later`; in doubt as
    /// `Doubt` says.
    pub fn is_before(&self, (stream, enqueued): (u32, Moment), later: u32) -> bool {
        if stream == later || self.is_done(stream, enqueued) {
            return true;
        }
        let in_doubt = self.doubt == Doubt::Complete;
        let (Some(state), Some(target)) = (self.streams.get(&stream), self.streams.get(&later))
        else {
            return in_doubt;
        };
        if self.covers(&target.before, stream, state, enqueued) {
            return true;
        }
        if in_doubt && (state.opaque || target.opaque) {
            return true;
        }
        if !self.is_in_group(target.kind) {
            return false;
        }
        if state.context != target.context
            && [state.context, target.context].contains(&UNKNOWN_CONTEXT)
        {
            return in_doubt && self.is_in_group(state.kind);
        }
        let waits = self.blocking_waits.get(&target.context);
        if target.kind == StreamKind::Legacy
            && waits.is_some_and(|waits| self.covers(waits, stream, state, enqueued))
        {
            return true;
        }
        let same = state.context == target.context && self.is_in_group(state.kind);
        if same && (state.kind == StreamKind::Legacy || target.kind == StreamKind::Legacy) {
            return true;
        }
        // A blocking stream waits for the legacy default stream and all that was before that.
        let Some(context) = self.contexts.get(target.context) else {
            return false;
        };
        if same && context.legacy >= enqueued {
            return true;
        }
        let legacy = context.legacy_stream.and_then(|id| self.streams.get(&id));
        legacy.is_some_and(|legacy| self.covers(&legacy.before, stream, state, enqueued))
    }

    /// The stream's work up to now, and what is ordered before its next work.
    pub fn clock(&mut self, stream: u32, now: Moment) -> Clock {
        let Some(state) = self.streams.get(&stream) else {
            return Clock::new();
        };
        let (context, kind, last) = (state.context, state.kind, state.last);
        let behind_legacy = state.behind_legacy;
        let mut clock = match self.doubt {
            // It may not have waited for any of them before that moment.
            Doubt::Running if state.waited > now => Clock::new(),
            _ => self.pending(&state.before),
        };
        let waits = self.blocking_waits.get(&context);
        for &entry in waits
            .filter(|_| kind == StreamKind::Legacy)
            .into_iter()
            .flatten()
        {
            merge(&mut clock, entry);
        }
        clock.push((stream, last.min(now)));
        let work = self.contexts.get(context).copied().unwrap_or_default();
        let group = match kind {
            StreamKind::Legacy => now,
            _ if !self.is_in_group(kind) => 0,
            // A stream without work of its own behind it may not wait for the legacy default stream.
            _ if self.doubt == Doubt::Running && behind_legacy.enqueued > now => 0,
            _ if self.doubt == Doubt::Running => {
                if let Some(legacy) = work.legacy_stream {
                    merge(&mut clock, (legacy, behind_legacy.legacy));
                }
                behind_legacy.blocking
            }
            _ => work.legacy,
        };
        if group > work.blocking.max(work.all)
            && let Some(entry) = self.group(context)
        {
            merge(&mut clock, (entry, group));
            let legacy = work.legacy_stream.filter(|&legacy| legacy != stream);
            let legacy = legacy.and_then(|legacy| self.streams.get(&legacy));
            // What the legacy default stream has waited for since may be behind that work.
            let legacy = legacy.filter(|_| self.doubt == Doubt::Complete);
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

    /// The work up to now in streams that are not known, or whose context is not.
    pub fn unknown(&self, now: Moment) -> Clock {
        let streams = self.streams.iter();
        let unknown = streams.filter(|(_, state)| {
            state.context == UNKNOWN_CONTEXT || state.kind == StreamKind::Unknown
        });
        unknown
            .map(|(&stream, state)| (stream, state.last.min(now)))
            .collect()
    }

    /// The clock of all work up to now.
    pub fn everything(&self, now: Moment) -> Clock {
        vec![(ALL_STREAMS, now)]
    }

    /// The stream's later work waits for an event, by a call that had returned now.
    pub fn wait(&mut self, stream: u32, clock: &Clock, now: Moment) {
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
        let Some(state) = self.streams.get_mut(&stream) else {
            return;
        };
        state.before = before;
        state.waited = state.waited.max(now);
        let (context, kind) = (state.context, state.kind);
        if kind == StreamKind::Blocking && self.doubt == Doubt::Complete && !clock.is_empty() {
            let mut waits = self.blocking_waits.remove(&context).unwrap_or_default();
            waits.retain(|&(stream, moment)| !self.is_done(stream, moment));
            for &entry in clock {
                merge(&mut waits, entry);
            }
            self.blocking_waits.insert(context, waits);
        }
        self.marked(stream, now);
    }

    /// An event was recorded in the stream, or it waits for one. Whether blocking streams wait for
    /// that if it is the legacy default stream (manual, stream synchronization behavior: "an action")
    /// is a doubt.
    pub fn marked(&mut self, stream: u32, now: Moment) {
        self.wait_for_blocking(stream);
        if let Some(state) = self.streams.get(&stream)
            && state.kind == StreamKind::Legacy
            && self.doubt == Doubt::Complete
            && let Some(context) = self.contexts.get_mut(state.context)
        {
            context.legacy = context.legacy.max(now);
        }
    }

    /// The legacy default stream comes after what blocking streams have waited for.
    fn wait_for_blocking(&mut self, stream: u32) {
        if !self.blocking_waits.is_empty()
            && let Some(state) = self.streams.get_mut(&stream)
            && state.kind == StreamKind::Legacy
            && let Some(waits) = self.blocking_waits.remove(&state.context)
        {
            for entry in waits {
                merge(&mut state.before, entry);
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
        for &(stream, moment) in clock {
            if stream == ALL_STREAMS {
                self.all = self.all.max(moment);
            }
            let Some(state) = self.streams.get_mut(&stream) else {
                let context = self.groups.get(&stream);
                if let Some(entry) = context.and_then(|&context| self.contexts.get_mut(context)) {
                    entry.blocking = entry.blocking.max(moment);
                }
                continue;
            };
            state.done = state.done.max(moment);
            let (context, kind, behind) = (state.context, state.kind, state.behind_legacy);
            let is_in_group = self.is_in_group(kind);
            let Some(entry) = self.contexts.get_mut(context) else {
                continue;
            };
            if kind == StreamKind::Legacy {
                // Else the clock has an entry for the blocking streams that were before it.
                if self.doubt == Doubt::Complete {
                    entry.blocking = entry.blocking.max(moment);
                }
            } else if is_in_group && behind.enqueued <= moment {
                // That work waited for the legacy default stream, which had waited for all blocking
                // streams.
                entry.blocking = entry.blocking.max(behind.blocking);
                let legacy = entry.legacy_stream.and_then(|id| self.streams.get_mut(&id));
                if let Some(legacy) = legacy {
                    legacy.done = legacy.done.max(behind.legacy);
                }
            }
        }
    }

    /// What a call has proved complete that was entered now and waits for a stream. Unlike work in it,
    /// a wait for the legacy default stream may not wait for blocking streams by itself.
    pub fn waited(&mut self, stream: u32, now: Moment) -> Clock {
        let state = self.streams.get(&stream);
        let legacy =
            state.filter(|state| state.kind == StreamKind::Legacy && self.doubt == Doubt::Running);
        let Some(context) = legacy.map(|state| state.context) else {
            return self.clock(stream, now);
        };
        let work = self.contexts.get(context).copied().unwrap_or_default();
        // Its last work waited for them.
        match work.legacy_enqueued <= now {
            true => {
                let mut clock = self.clock(stream, work.legacy);
                merge(&mut clock, (stream, work.legacy_enqueued));
                clock
            }
            false => Clock::new(),
        }
    }

    /// A call that was entered now has proved the stream's work complete.
    pub fn complete_stream(&mut self, stream: u32, now: Moment) {
        let clock = self.waited(stream, now);
        self.complete(&clock);
    }

    /// The same for a call that had work of its own in the stream and waited for it.
    pub fn complete_with_work(&mut self, stream: u32, now: Moment) {
        let clock = self.clock_of_work(stream, now);
        self.complete(&clock);
    }

    /// What is complete once work is complete that a call has enqueued in the stream. The call was
    /// entered now.
    pub fn clock_of_work(&mut self, stream: u32, now: Moment) -> Clock {
        let mut clock = self.clock(stream, now);
        let state = self.streams.get(&stream);
        let Some(context) = state.filter(|state| self.is_in_group(state.kind)) else {
            return clock;
        };
        let context = context.context;
        let work = self.contexts.get(context).copied().unwrap_or_default();
        // The work waits for the legacy default stream, even if no earlier work of the stream does.
        // What was still being enqueued there may come after it.
        if work.legacy_enqueued <= now {
            if let Some(legacy) = work.legacy_stream {
                merge(&mut clock, (legacy, work.legacy_enqueued));
            }
            if work.legacy > work.blocking.max(work.all)
                && let Some(group) = self.group(context)
            {
                merge(&mut clock, (group, work.legacy));
            }
        }
        clock
    }

    /// A call that was entered now has proved all work of a context complete.
    pub fn complete_context(&mut self, context: u64, now: Moment) {
        self.for_contexts(context, |work| work.all = work.all.max(now));
    }

    /// A call that was entered now has proved the work of the legacy default stream, and of the
    /// streams that wait for it, complete.
    pub fn complete_blocking(&mut self, context: u64, now: Moment) {
        self.for_contexts(context, |work| work.blocking = work.blocking.max(now));
    }

    /// For a context; where doubt counts as complete, also for streams whose context is not known,
    /// and for all contexts if it is itself not known.
    fn for_contexts(&mut self, handle: u64, mut change: impl FnMut(&mut ContextWork)) {
        let context = self.context(handle);
        match (self.doubt, context) {
            (Doubt::Running, UNKNOWN_CONTEXT) => {}
            (Doubt::Complete, UNKNOWN_CONTEXT) => self.contexts.iter_mut().for_each(change),
            (doubt, _) => {
                let unknown = (doubt == Doubt::Complete).then_some(UNKNOWN_CONTEXT);
                for index in unknown.into_iter().chain([context]) {
                    self.contexts
                        .get_mut(index)
                        .into_iter()
                        .for_each(&mut change);
                }
            }
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

fn merge(clock: &mut Clock, entry: (u32, Moment)) {
    match clock.iter_mut().find(|known| known.0 == entry.0) {
        Some(known) => known.1 = known.1.max(entry.1),
        None => clock.push(entry),
    }
}

#[cfg(test)]
mod tests;
