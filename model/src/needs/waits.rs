//! Which calls order work, and which prove it complete.

use std::ops::Range;

use cutape_format::Call;
use cutape_registry::{
    EventOp, Family, Kind, STREAM_LEGACY, StreamOp, Waits, canonical_stream, is_default_stream,
};

use super::builder::NeedsBuilder;
use super::contents::Stream;
use super::table::Need;
use crate::effects::{Action, Effects};
use crate::state::Data;

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
