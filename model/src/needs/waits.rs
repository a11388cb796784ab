//! Which calls order work, and which prove it complete.

use std::ops::Range;
use std::rc::Rc;

use cutape_format::Call;
use cutape_registry::{
    EventOp, Family, Kind, STREAM_LEGACY, StreamOp, Waits, canonical_stream, is_default_stream,
};
use rustc_hash::FxHashMap;

use super::builder::{NeedsBuilder, UNWAITED};
use super::contents::{Access, Stream};
use super::table::Need;
use crate::effects::{Action, Effects};
use crate::objects::ObjectId;
use crate::state::Data;

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
struct Recorded {
    call: u32,
    stream: Stream,
    /// What the stream had waited for.
    before: Rc<Clock>,
}

/// Work of a stream that may not be complete.
#[derive(Debug)]
struct Pending {
    stream: Stream,
    calls: Vec<u32>,
}

/// What has been waited for, and by which calls.
#[derive(Debug, Default)]
pub(super) struct LastWaits {
    context: Option<u32>,
    /// The last call whose work was in a default stream.
    default: Option<u32>,
    /// The last wait for an event of which the last record is not known.
    unknown: Option<u32>,
    /// What the host has waited for.
    host: Clock,
    /// By stream, what it has waited for.
    streams: FxHashMap<u32, (Stream, Rc<Clock>)>,
    events: FxHashMap<ObjectId, Recorded>,
    /// By stream, calls whose work no wait has proved complete yet.
    pending: FxHashMap<u32, Pending>,
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
    fn between(&self, access: Access, later: Option<Stream>) -> Vec<u32> {
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
    fn host_waits(&mut self, call: u32, stream: Stream) {
        let before = self.streams.get(&stream.number);
        let before = before.map_or_else(Rc::default, |(_, clock)| Rc::clone(clock));
        add_wait(&mut self.host, call, (stream, call), &before);
    }

    /// The call waits for an event, in a stream or on the host. False if it is not known what was
    /// recorded last.
    fn event_waited(&mut self, call: u32, event: Option<ObjectId>, stream: Option<Stream>) -> bool {
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

    fn event_recorded(&mut self, call: u32, event: ObjectId, stream: Stream) {
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

impl NeedsBuilder {
    /// The stream of a call's work.
    pub(super) fn stream_of(&mut self, effects: &Effects, call: &Call<'_>) -> Option<Stream> {
        let number = self.state.call_stream(effects, call)?;
        let is_blocking = self.is_blocking(effects.stream(call).unwrap_or(0));
        Some(Stream {
            number,
            is_blocking,
        })
    }

    /// Whether a stream and the default stream wait for each other.
    fn is_blocking(&self, handle: u64) -> bool {
        let stream = self.state.objects.live(Kind::Stream, handle);
        match stream.and_then(|stream| self.state.objects.get(stream)) {
            Some(stream) => match &stream.data {
                Data::Stream(stream) => !stream.non_blocking,
                _ => false,
            },
            None => is_default_stream(handle),
        }
    }

    /// What orders the call's work behind the last uses of these bytes: behind what reads them too,
    /// if the call writes them.
    pub(super) fn order_behind(
        &mut self,
        index: u32,
        range: &Range<u64>,
        stream: Option<Stream>,
        writes: bool,
    ) {
        let mut accesses = self.contents.writers(range);
        if writes {
            accesses.extend(self.contents.readers(range));
        }
        for access in accesses
            .into_iter()
            .filter(|access| access.stream != stream)
        {
            for wait in self.waits.between(access, stream) {
                self.need(index, wait, Need::Order);
            }
        }
    }

    pub(super) fn follow_waits(
        &mut self,
        effects: &Effects,
        call: &Call<'_>,
        index: u32,
        stream: Option<Stream>,
    ) {
        let function = effects.function;
        match function.waits {
            Waits::No => {}
            Waits::Context => {
                self.waits.context = Some(index);
                self.unwaited.clear();
                self.complete_all(index, |_| true);
            }
            Waits::Stream(position) => {
                let handle = call.argument(usize::from(position));
                let stream = Stream {
                    number: self.state.stream(call.thread, handle, function.per_thread),
                    is_blocking: self.is_blocking(handle),
                };
                self.waits.host_waits(index, stream);
                self.complete(stream.number, u32::MAX, index);
            }
            Waits::Event(position) => {
                let event = call.argument(usize::from(position));
                self.event_waited(index, event, None);
                self.complete_event(event, index);
            }
        }
        match effects.action {
            Action::EventElapsed => {
                for position in 0..function.params.len() {
                    if effects.kind_at(position) == Some(Kind::Event) {
                        self.complete_event(call.argument(position), index);
                    }
                }
            }
            Action::SynchronousCopy => self.complete_all(index, |stream| stream.is_blocking),
            _ => {}
        }
        let handle = effects.stream(call);
        let is_default = match handle {
            Some(handle) => canonical_stream(handle, function.per_thread) == STREAM_LEGACY,
            None => effects.in_default_stream,
        };
        if is_default && matches!(function.family, Family::Copy(_) | Family::Memset) {
            self.waits.default = Some(index);
        }
        let event = || effects.handle_of(call, Kind::Event);
        match (function.family, stream, event()) {
            (Family::Stream(StreamOp::WaitEvent), Some(stream), Some(event)) => {
                self.event_waited(index, event, Some(stream));
            }
            (Family::Event(EventOp::Record), Some(stream), Some(event)) => {
                if let Some(event) = self.state.objects.live(Kind::Event, event) {
                    self.waits.event_recorded(index, event, stream);
                }
            }
            _ => {}
        }
    }

    /// The event is recorded in a capture, and not in a stream.
    pub(super) fn forget_record(&mut self, effects: &Effects, call: &Call<'_>) {
        let event = effects.handle_of(call, Kind::Event);
        if let Some(event) = event.and_then(|event| self.state.objects.live(Kind::Event, event)) {
            self.waits.ended(event);
        }
    }

    /// The call waits for an event, in a stream or on the host.
    fn event_waited(&mut self, index: u32, event: u64, stream: Option<Stream>) {
        let event = self.state.objects.live(Kind::Event, event);
        let is_known = self.waits.event_waited(index, event, stream);
        if !is_known || self.state.records_elsewhere {
            let earlier = self.waits.unknown.replace(index);
            self.need_any(index, earlier, Need::Order);
        }
    }

    /// A wait proves the work of streams complete.
    fn complete_all(&mut self, wait: u32, is_waited: impl Fn(Stream) -> bool) {
        let streams = self.waits.pending.values().map(|pending| pending.stream);
        let streams: Vec<Stream> = streams.filter(|&stream| is_waited(stream)).collect();
        for stream in streams {
            self.complete(stream.number, u32::MAX, wait);
        }
    }

    /// A wait proves the work complete that calls before `until` have put into a stream.
    fn complete(&mut self, stream: u32, until: u32, wait: u32) {
        let Some(pending) = self.waits.pending.get_mut(&stream) else {
            return;
        };
        for call in pending.calls.extract_if(.., |call| *call < until) {
            if call != wait {
                self.needs.push_later(call, wait, Need::Completion);
            }
        }
    }

    fn complete_event(&mut self, event: u64, wait: u32) {
        let event = self.state.objects.live(Kind::Event, event);
        let recorded = event.and_then(|event| self.waits.events.get(&event));
        if let Some((stream, until)) = recorded.map(|it| (it.stream.number, it.call)) {
            self.complete(stream, until, wait);
        }
    }
}
