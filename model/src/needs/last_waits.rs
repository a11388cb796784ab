//! What has been waited for, and by which calls.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::contents::{Access, Stream};
use crate::objects::ObjectId;

/// How many launches are remembered that no wait has followed yet.
pub(super) const UNWAITED: usize = 1 << 12;

/// A wait, and those before it that lead to the same stream.
#[derive(Debug)]
struct Wait {
    call: u32,
    before: Option<Rc<Wait>>,
}

/// The work of a stream that something comes after.
#[derive(Clone, Debug)]
struct Ordered {
    stream: Stream,
    /// That of calls before this one.
    until: u32,
    waits: Rc<Wait>,
}

/// By stream: its work that something comes after.
type Clock = FxHashMap<u32, Ordered>;

/// The last record of an event.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) call: u32,
    pub(super) stream: Stream,
    /// What the stream had waited for.
    before: Rc<Clock>,
}

/// Work of a stream that may not be complete.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) stream: Stream,
    pub(super) calls: Vec<u32>,
}

/// What has been waited for, and by which calls.
#[derive(Debug, Default)]
pub(super) struct LastWaits {
    pub(super) context: Option<u32>,
    /// The last call whose work was in a default stream.
    pub(super) default: Option<u32>,
    /// The last wait for an event of which the last record is not known.
    pub(super) unknown: Option<u32>,
    /// What the host has waited for.
    host: Clock,
    /// By stream, what it has waited for.
    streams: FxHashMap<u32, (Stream, Rc<Clock>)>,
    pub(super) events: FxHashMap<ObjectId, Recorded>,
    /// By stream, calls whose work no wait has proved complete yet.
    pub(super) pending: FxHashMap<u32, Pending>,
}

impl Wait {
    fn calls(&self) -> impl Iterator<Item = u32> {
        let waits = std::iter::successors(Some(self), |wait| wait.before.as_deref());
        waits.map(|wait| wait.call)
    }
}

/// Adds that a call waits for the work of a stream before the call `until`, and for what that comes
/// after.
fn add_wait(clock: &mut Clock, call: u32, (stream, until): (Stream, u32), before: &Clock) {
    let mut add = |stream: Stream, until: u32, before: Option<Rc<Wait>>| {
        let known = clock.get(&stream.number);
        if known.is_none_or(|known| known.until < until) {
            let waits = Rc::new(Wait { call, before });
            let ordered = Ordered {
                stream,
                until,
                waits,
            };
            clock.insert(stream.number, ordered);
        }
    };
    add(stream, until, None);
    for known in before.values() {
        add(known.stream, known.until, Some(Rc::clone(&known.waits)));
    }
}

impl LastWaits {
    /// The waits that order work which is enqueued now, or what the host does, behind an access.
    pub(super) fn between(&self, access: Access, later: Option<Stream>) -> Vec<u32> {
        let Some(stream) = access.stream else {
            return Vec::new();
        };
        let any = [self.context, self.unknown].into_iter().flatten();
        let mut found: Vec<u32> = any.filter(|&wait| wait > access.call).collect();
        let own = later.and_then(|later| self.streams.get(&later.number));
        let own = own.map(|(_, clock)| &**clock);
        let clocks = own.into_iter().chain([&self.host]);
        let ordered = clocks.filter_map(|clock| clock.get(&stream.number));
        let ordered: Vec<_> = ordered.filter(|it| it.until > access.call).collect();
        if !ordered.is_empty() {
            found.extend(ordered.iter().flat_map(|ordered| ordered.waits.calls()));
            return found;
        }
        // The order may be that of the default stream.
        found.extend(self.default.filter(|&wait| wait > access.call));
        let is_blocking = later.is_some_and(|later| later.is_blocking);
        let blocking = self
            .streams
            .values()
            .filter(|(of, _)| is_blocking && of.is_blocking);
        let clocks = blocking.map(|(_, clock)| &**clock);
        for clock in clocks.chain(own).chain([&self.host]) {
            let ordered = clock.values().filter(|ordered| {
                let is_grouped = stream.is_blocking && ordered.stream.is_blocking;
                (is_grouped || ordered.stream == stream) && ordered.until > access.call
            });
            found.extend(ordered.flat_map(|ordered| ordered.waits.calls()));
        }
        found
    }

    /// A call enqueues work that may still run when it returns.
    pub(super) fn submitted(&mut self, call: u32, stream: Stream) {
        let calls = Vec::new();
        let pending = self.pending.entry(stream.number);
        let pending = pending.or_insert(Pending { stream, calls });
        if pending.calls.len() < UNWAITED {
            pending.calls.push(call);
        }
    }

    /// The call waits for the work of a stream so far.
    pub(super) fn host_waits(&mut self, call: u32, stream: Stream) {
        let before = self.streams.get(&stream.number);
        let before = before.map_or_else(Rc::default, |(_, clock)| Rc::clone(clock));
        add_wait(&mut self.host, call, (stream, call), &before);
    }

    /// The call waits for an event, in a stream or on the host. False if it is not known what was
    /// recorded last.
    pub(super) fn event_waited(
        &mut self,
        call: u32,
        event: Option<ObjectId>,
        stream: Option<Stream>,
    ) -> bool {
        let Some(recorded) = event.and_then(|event| self.events.get(&event)) else {
            return false;
        };
        let clock = match stream {
            Some(stream) => {
                let own = self.streams.entry(stream.number);
                Rc::make_mut(&mut own.or_insert((stream, Rc::default())).1)
            }
            None => &mut self.host,
        };
        let of_event = (recorded.stream, recorded.call);
        add_wait(clock, call, of_event, &recorded.before);
        true
    }

    pub(super) fn event_recorded(&mut self, call: u32, event: ObjectId, stream: Stream) {
        let before = self.streams.get(&stream.number);
        let before = before.map_or_else(Rc::default, |(_, clock)| Rc::clone(clock));
        let recorded = Recorded {
            call,
            stream,
            before,
        };
        self.events.insert(event, recorded);
    }

    /// The object may have been an event.
    pub(super) fn ended(&mut self, id: ObjectId) {
        self.events.remove(&id);
    }

    /// The calls that later ones may need.
    pub(super) fn calls(&self) -> impl Iterator<Item = u32> {
        let of_events = self.events.values().map(|recorded| &*recorded.before);
        let of_streams = self.streams.values().map(|(_, clock)| &**clock);
        let clocks = of_events.chain(of_streams).chain([&self.host]);
        let waits = clocks.flat_map(|clock| clock.values());
        let waits = waits.flat_map(|ordered| ordered.waits.calls());
        let others = [self.context, self.default, self.unknown];
        waits.chain(others.into_iter().flatten())
    }

    /// Forgets waits that order nothing behind any of these accesses, and calls that are not held.
    pub(super) fn retain(
        &mut self,
        accesses: impl Iterator<Item = Access>,
        is_held: impl Fn(u32) -> bool,
    ) {
        let mut first: FxHashMap<u32, u32> = FxHashMap::default();
        let mut first_blocking = u32::MAX;
        for access in accesses {
            let Some(stream) = access.stream else {
                continue;
            };
            let known = first.entry(stream.number).or_insert(access.call);
            *known = access.call.min(*known);
            if stream.is_blocking {
                first_blocking = access.call.min(first_blocking);
            }
        }
        let orders = |number: &u32, ordered: &mut Ordered| {
            first.get(number).is_some_and(|&call| call < ordered.until)
                || (ordered.stream.is_blocking && first_blocking < ordered.until)
        };
        self.host.retain(orders);
        let streams = self.streams.values_mut().map(|(_, clock)| clock);
        let events = self
            .events
            .values_mut()
            .map(|recorded| &mut recorded.before);
        for clock in streams.chain(events) {
            Rc::make_mut(clock).retain(orders);
        }
        self.streams.retain(|_, (_, clock)| !clock.is_empty());
        self.pending.retain(|_, pending| {
            pending.calls.retain(|&call| is_held(call));
            !pending.calls.is_empty()
        });
    }
}
