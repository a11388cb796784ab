//! Which calls order work, and which prove it complete.

use std::ops::Range;

use cutape_format::Call;
use cutape_registry::{
    EventOp, Family, Kind, STREAM_LEGACY, StreamOp, Waits, canonical_stream, is_default_stream,
};

use super::builder::NeedsBuilder;
use super::table::Need;
use crate::effects::{Action, Effects};
use crate::state::Data;

impl NeedsBuilder {
    /// Whether the stream of a call and the default stream wait for each other.
    pub(super) fn is_blocking(&self, effects: &Effects, call: &Call<'_>) -> bool {
        let handle = effects.stream(call).unwrap_or(0);
        let stream = self.state.objects.live(Kind::Stream, handle);
        match stream.and_then(|stream| self.state.objects.get(stream)) {
            Some(stream) => match &stream.data {
                Data::Stream(stream) => !stream.non_blocking,
                _ => false,
            },
            None => is_default_stream(handle),
        }
    }

    /// What orders the call's work behind the last writes of these bytes.
    pub(super) fn order_behind(&mut self, index: u32, range: &Range<u64>, stream: Option<u32>) {
        for writer in self.contents.writers(range) {
            let of_writer = self.streams.get(writer as usize).copied();
            let of_writer = of_writer.filter(|&stream| stream != u32::MAX);
            if of_writer.is_none() || of_writer == stream {
                continue;
            }
            let waits = [
                self.waits.context,
                self.waits.event,
                self.waits.default,
                of_writer.and_then(|stream| self.waits.host.get(&stream).copied()),
                stream.and_then(|stream| self.waits.streams.get(&stream).copied()),
            ];
            for wait in waits.into_iter().flatten().filter(|&wait| wait > writer) {
                self.need(index, wait, Need::Order);
            }
        }
    }

    pub(super) fn follow_waits(
        &mut self,
        effects: &Effects,
        call: &Call<'_>,
        index: u32,
        stream: Option<u32>,
    ) {
        let function = effects.function;
        match function.waits {
            Waits::No => {}
            Waits::Context => {
                self.waits.context = Some(index);
                self.unwaited.clear();
                let all: Vec<u32> = self.pending.keys().copied().collect();
                for stream in all {
                    self.complete(stream, u32::MAX, index);
                }
            }
            Waits::Stream(position) => {
                let handle = call.argument(usize::from(position));
                let stream = self.state.stream(call.thread, handle, function.per_thread);
                self.waits.host.insert(stream, index);
                self.complete(stream, u32::MAX, index);
            }
            Waits::Event(position) => {
                let earlier = self.waits.event.replace(index);
                self.need_any(index, earlier, Need::Order);
                self.complete_event(call.argument(usize::from(position)), index);
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
            Action::SynchronousCopy => {
                let blocking = self
                    .pending
                    .iter()
                    .filter(|(_, pending)| pending.is_blocking);
                let blocking: Vec<u32> = blocking.map(|(&stream, _)| stream).collect();
                for stream in blocking {
                    self.complete(stream, u32::MAX, index);
                }
            }
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
        let Some(stream) = stream else { return };
        match function.family {
            Family::Stream(StreamOp::WaitEvent) => {
                let earlier = self.waits.streams.insert(stream, index);
                self.need_any(index, earlier, Need::Order);
            }
            Family::Event(EventOp::Record) => {
                let earlier = self.waits.streams.get(&stream).copied();
                self.need_any(index, earlier, Need::Order);
            }
            _ => {}
        }
    }

    /// A wait proves the work complete that calls before `until` have put into a stream.
    fn complete(&mut self, stream: u32, until: u32, wait: u32) {
        let Some(pending) = self.pending.get_mut(&stream) else {
            return;
        };
        for call in pending.calls.extract_if(.., |call| *call < until) {
            if call != wait {
                self.found.push((call, wait, Need::Completion));
            }
        }
    }

    fn complete_event(&mut self, event: u64, wait: u32) {
        let event = self.state.objects.live(Kind::Event, event);
        let recorded = event.and_then(|event| self.changed.get(&event).copied());
        let Some(recorded) = recorded else { return };
        if let Some(&stream) = self.streams.get(recorded as usize) {
            self.complete(stream, recorded, wait);
        }
    }
}
