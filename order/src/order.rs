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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// What the legacy default stream had done by then is in `before`.
    behind_legacy: Moment,
    /// It waits for something that a trace does not show, such as a value in memory.
    opaque: bool,
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
    /// When the last call in the legacy default stream had returned that enqueued work there,
    /// recorded an event or waited for one.
    legacy: Moment,
    /// When the last call in a blocking stream had returned that enqueued work there or made it wait.
    in_blocking: Moment,
    /// The legacy default stream.
    legacy_stream: Option<u32>,
}

/// The index of the context with the handle 0, which is not known.
const UNKNOWN_CONTEXT: usize = 0;

/// The work in all streams. Work is identified by its stream and the moment at which it had been
/// enqueued.
///
/// Work in the legacy default stream, and an event that is recorded there, comes after all that
/// blocking streams have had or have waited for; so does a wait for that stream. Work in a blocking
/// stream, and an event that is recorded there, comes after all that the legacy default stream has
/// had, recorded and waited for; a wait for a blocking stream only waits for its work and for events
/// that it waits for (measured with `tests/gpu/waits.c`: H200, driver 580.159.04, 2026-11-26).
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
    /// By context: what blocking streams have waited for since the legacy default stream did
    /// anything, which comes after that; and when the call had returned that made one wait.
    blocking_waits: HashMap<usize, Vec<(Moment, Clock)>, S>,
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

    /// The number of a stream's context, 0 if that is not known, and how the stream takes part in
    /// the order of the context's legacy default stream.
    pub fn context_and_kind(&self, stream: u32) -> (usize, StreamKind) {
        let state = self.streams.get(&stream);
        state.map_or((UNKNOWN_CONTEXT, StreamKind::Unknown), |state| {
            (state.context, state.kind)
        })
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
        let Some(state) = self.streams.get(&stream) else {
            return false;
        };
        let (kind, behind) = (state.kind, state.behind_legacy);
        let legacy = self
            .contexts
            .get(state.context)
            .map_or(0, |work| work.legacy);
        if kind == StreamKind::Legacy {
            self.marked(stream, entered, returned);
        } else if legacy > behind && self.is_in_group(kind) && legacy <= entered {
            let before = self.before_blocking(stream, entered);
            self.comes_after(stream, &before, returned);
        }
        if let Some(state) = self.streams.get_mut(&stream) {
            state.last = state.last.max(returned);
            state.behind_legacy = state.behind_legacy.max(legacy.min(entered));
        }
        self.note_blocking(stream, returned);
        true
    }

    fn note_blocking(&mut self, stream: u32, returned: Moment) {
        if let Some(state) = self.streams.get(&stream)
            && state.kind == StreamKind::Blocking
            && let Some(work) = self.contexts.get_mut(state.context)
        {
            work.in_blocking = work.in_blocking.max(returned);
        }
    }

    /// Whether work that is enqueued in the stream next orders work of other streams that was not
    /// ordered before, though nothing has to be known of its own.
    pub fn passes_order_on(&self, stream: u32) -> bool {
        let Some(state) = self.streams.get(&stream) else {
            return false;
        };
        let work = self.contexts.get(state.context);
        work.is_some_and(|work| match state.kind {
            StreamKind::Legacy => work.in_blocking > work.legacy,
            StreamKind::Blocking => work.legacy > state.behind_legacy,
            StreamKind::NonBlocking | StreamKind::Unknown => false,
        })
    }

    /// The stream's next work comes after this, by a call that had returned at that moment.
    fn comes_after(&mut self, stream: u32, clock: &Clock, returned: Moment) {
        let Some(state) = self.streams.get_mut(&stream) else {
            return;
        };
        let mut before = std::mem::take(&mut state.before);
        before.retain(|&(stream, moment)| !self.is_done(stream, moment));
        for &entry in clock {
            if entry.0 != stream && !self.is_done(entry.0, entry.1) {
                merge(&mut before, entry);
            }
        }
        if let Some(state) = self.streams.get_mut(&stream) {
            state.before = before;
            state.waited = state.waited.max(returned);
        }
    }

    /// What work comes after in a stream, apart from the stream's own and what it waits for: if that
    /// takes part in the legacy default stream's order. A call that was entered now enqueues it.
    fn before_blocking(&mut self, stream: u32, now: Moment) -> Clock {
        let Some(state) = self.streams.get(&stream) else {
            return Clock::new();
        };
        let (context, kind) = (state.context, state.kind);
        let work = self.contexts.get(context).copied().unwrap_or_default();
        let mut clock = Clock::new();
        match kind {
            StreamKind::Legacy => {
                if now > work.blocking.max(work.all)
                    && let Some(group) = self.group(context)
                {
                    clock.push((group, now));
                }
                let waits = self.blocking_waits.get(&context).into_iter().flatten();
                for (_, waited) in waits.filter(|(returned, _)| *returned <= now) {
                    waited.iter().for_each(|&entry| merge(&mut clock, entry));
                }
            }
            _ if self.is_in_group(kind) && work.legacy <= now => {
                let legacy = work
                    .legacy_stream
                    .and_then(|id| Some((id, self.streams.get(&id)?)));
                if let Some((id, legacy)) = legacy {
                    clock = self.pending(&legacy.before);
                    merge(&mut clock, (id, work.legacy));
                }
            }
            _ => {}
        }
        clock
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

    /// Whether a clock has the work of a stream that had been enqueued at a moment.
    pub fn has(&self, clock: &Clock, stream: u32, enqueued: Moment) -> bool {
        let state = self.streams.get(&stream);
        state.is_some_and(|state| self.covers(clock, stream, state, enqueued))
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
        let waits = self
            .blocking_waits
            .get(&target.context)
            .into_iter()
            .flatten();
        let mut waits = waits.filter(|_| target.kind == StreamKind::Legacy);
        if waits.any(|(_, clock)| self.covers(clock, stream, state, enqueued)) {
            return true;
        }
        let same = state.context == target.context && self.is_in_group(state.kind);
        if same && (state.kind == StreamKind::Legacy || target.kind == StreamKind::Legacy) {
            return true;
        }
        // A blocking stream waits for the legacy default stream and all that was before that.
        let legacy = self
            .contexts
            .get(target.context)
            .and_then(|work| work.legacy_stream);
        let legacy = legacy.and_then(|id| self.streams.get(&id));
        legacy.is_some_and(|legacy| self.covers(&legacy.before, stream, state, enqueued))
    }

    /// What is complete once an event is that is recorded in the stream, or work that is enqueued
    /// there, by a call that is entered now.
    pub fn clock(&mut self, stream: u32, now: Moment) -> Clock {
        let mut clock = self.own_clock(stream, now);
        let blocking = self.before_blocking(stream, now);
        blocking
            .into_iter()
            .for_each(|entry| merge(&mut clock, entry));
        clock
    }

    /// The stream's work up to now, and what it has waited for.
    fn own_clock(&self, stream: u32, now: Moment) -> Clock {
        let Some(state) = self.streams.get(&stream) else {
            return Clock::new();
        };
        let mut clock = match self.doubt {
            // It may not have waited for any of them before that moment.
            Doubt::Running if state.waited > now => Clock::new(),
            _ => self.pending(&state.before),
        };
        clock.push((stream, state.last.min(now)));
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

    /// The stream's later work waits for an event, by a call that was entered and had returned at
    /// these moments.
    pub fn wait(&mut self, stream: u32, clock: &Clock, (entered, returned): (Moment, Moment)) {
        let Some(state) = self.streams.get(&stream) else {
            return;
        };
        let (context, kind) = (state.context, state.kind);
        self.comes_after(stream, clock, returned);
        if kind != StreamKind::Legacy && self.is_in_group(kind) && !clock.is_empty() {
            let mut waits = self.blocking_waits.remove(&context).unwrap_or_default();
            waits.retain(|(_, clock)| !self.pending(clock).is_empty());
            waits.push((returned, clock.clone()));
            self.blocking_waits.insert(context, waits);
            self.note_blocking(stream, returned);
        }
        self.marked(stream, entered, returned);
    }

    /// An event was recorded in the stream, or it waits for one, by a call that was entered and had
    /// returned at these moments.
    pub fn marked(&mut self, stream: u32, entered: Moment, returned: Moment) {
        let Some(state) = self.streams.get(&stream) else {
            return;
        };
        if state.kind != StreamKind::Legacy {
            return;
        }
        let context = state.context;
        if let Some(waits) = self.blocking_waits.get(&context)
            && !waits.is_empty()
        {
            let before = self.before_blocking(stream, entered);
            self.comes_after(stream, &before, returned);
            if let Some(waits) = self.blocking_waits.get_mut(&context) {
                waits.retain(|(waited, _)| *waited > entered);
            }
        } else if let Some(group) = self.group(context)
            && let Some(state) = self.streams.get_mut(&stream)
        {
            // Nearly always it only comes after later work of blocking streams.
            merge(&mut state.before, (group, entered));
            state.waited = state.waited.max(returned);
        }
        if let Some(work) = self.contexts.get_mut(context) {
            work.legacy = work.legacy.max(returned);
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
        }
    }

    /// What a call has proved complete that was entered now and waits for a stream.
    pub fn waited(&mut self, stream: u32, now: Moment) -> Clock {
        match self.streams.get(&stream).map(|state| state.kind) {
            Some(StreamKind::Blocking) => self.own_clock(stream, now),
            _ => self.clock(stream, now),
        }
    }

    /// A call that was entered now has proved the stream's work complete.
    pub fn complete_stream(&mut self, stream: u32, now: Moment) {
        let clock = self.waited(stream, now);
        self.complete(&clock);
    }

    /// The same for a call that had work of its own in the stream and waited for it.
    pub fn complete_with_work(&mut self, stream: u32, now: Moment) {
        let clock = self.clock(stream, now);
        self.complete(&clock);
    }

    /// A call that was entered now has proved all work of a context complete, and what its streams
    /// wait for in other contexts.
    pub fn complete_context(&mut self, context: u64, now: Moment) {
        self.for_contexts(context, |work| work.all = work.all.max(now));
        let Some(&context) = self.by_handle.get(&context) else {
            return;
        };
        let waiting = self.streams.values().filter(|state| {
            state.context == context
                && !state.before.is_empty()
                && (self.doubt == Doubt::Complete || state.waited <= now)
        });
        let before: Clock = waiting.flat_map(|state| state.before.clone()).collect();
        self.complete(&before);
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
