//! What the trace adds to a report: the kernels of calls that it names, and the work that was
//! pending when the replay hung.

use std::collections::HashMap;

use cutape_format::{Call, Trace};
use cutape_model::{
    Clock, Data, Effects, Lookup, Order, Retention, Scope, State, TraceState, function_of,
};
use cutape_registry::{Family, Kind, STREAM_LEGACY, STREAM_PER_THREAD, StreamOp, canonical_stream};

use crate::report::{PendingCall, PendingStream, Report, What};

impl Report {
    /// Adds what the trace shows: kernels of calls, and the work that was pending.
    pub fn complete(&mut self, trace: &Trace) {
        if let Some(cause) = &mut self.error_cause {
            cause.kernel = kernel_of(trace, cause.call);
        }
        if let Some(outputs) = &mut self.launch_outputs {
            let firsts = [
                &mut outputs.first_differing,
                &mut outputs.first_not_reproduced,
            ];
            for first in firsts.into_iter().flatten() {
                first.kernel = kernel_of(trace, first.call);
            }
        }
        for divergence in &mut self.divergences {
            if divergence.what == What::Digest {
                divergence.kernel = kernel_of(trace, divergence.call);
            }
        }
        if let Some(died) = self.died.as_ref().filter(|died| died.hung) {
            // Calls overlap with --threads: those before all current calls are certainly issued.
            let current = died.threads.iter().map(|thread| thread.call).min();
            if let Some(end) = current.or(died.call) {
                self.pending = pending(trace, end);
            }
        }
    }
}

/// The name of the kernel that a call launches.
fn kernel_of(trace: &Trace, index: u64) -> Option<String> {
    let mut state = TraceState::new(Scope::Kernels);
    for call in trace.calls().take_while(|call| call.index <= index) {
        if call.index == index {
            return state.launched_kernel(&call).map(str::to_owned);
        }
        state.observe(&call);
    }
    None
}

/// The handle of a stream, 0 for a default stream; for a per-thread default stream the thread.
type Stream = (u64, Option<u32>);

/// How much pending work is kept before that which is complete is sorted out.
const SORTED_OUT: usize = 1 << 16;

/// Enqueued work, and what orders it: the numbers of streams and of their work.
struct Work {
    stream: Stream,
    until: Clock,
    call: PendingCall,
}

/// The work of the calls before one, as far as the recording does not show it to be complete.
fn pending(trace: &Trace, end: u64) -> Vec<PendingStream> {
    let mut kernels = TraceState::new(Scope::Kernels);
    let mut state: State<()> = State::new(Retention::PerHandle);
    let mut effects: HashMap<u16, Option<Effects>> = HashMap::new();
    let mut all: Vec<Work> = Vec::new();
    let mut limit = SORTED_OUT;
    for call in trace.calls().take_while(|call| call.index < end) {
        state.settle(call.ticks, call.thread);
        if !call.succeeded() {
            continue;
        }
        let effects = effects
            .entry(call.signature.id)
            .or_insert_with(|| function_of(call.signature).map(Effects::of));
        let Some(effects) = effects else { continue };
        let until = match state.submit(effects, &call) {
            Some(work) => Some((vec![work], None)),
            None => waits_for(&state, effects, &call),
        };
        if let Some((until, waits_for)) = until {
            all.push(Work {
                stream: stream_of(effects, &call),
                until,
                call: PendingCall {
                    call: call.index,
                    function: effects.function.name.to_owned(),
                    kernel: kernels.launched_kernel(&call).map(str::to_owned),
                    waits_for,
                },
            });
        }
        kernels.observe(&call);
        state.apply(effects, &call, &mut |_| None);
        if all.len() > limit {
            all.retain(|work| is_pending(&state.order, work));
            limit = SORTED_OUT.max(all.len() * 2);
        }
    }
    let mut streams: Vec<PendingStream> = Vec::new();
    for work in all
        .into_iter()
        .filter(|work| is_pending(&state.order, work))
    {
        let (stream, thread) = work.stream;
        let known = |known: &&mut PendingStream| (known.stream, known.thread) == (stream, thread);
        let place = match streams.iter_mut().find(known) {
            Some(known) => known,
            None => {
                streams.push(PendingStream {
                    stream,
                    thread,
                    calls: Vec::new(),
                    count: 0,
                });
                let Some(last) = streams.last_mut() else {
                    continue;
                };
                last
            }
        };
        place.count += 1;
        if place.calls.len() < PendingStream::KEPT {
            place.calls.push(work.call);
        }
    }
    streams
}

fn is_pending(order: &Order, work: &Work) -> bool {
    work.until
        .iter()
        .any(|&(stream, number)| !order.is_done(stream, number))
}

/// For a stream that waits for an event: what the event was recorded behind, and by which call.
fn waits_for(
    state: &State<()>,
    effects: &Effects,
    call: &Call<'_>,
) -> Option<(Clock, Option<u64>)> {
    if effects.function.family != Family::Stream(StreamOp::WaitEvent) {
        return None;
    }
    let event = effects.handle_of(call, Kind::Event)?;
    let Lookup::Live(id) = state.objects.find(Kind::Event, event) else {
        return None;
    };
    let Data::Event(event) = &state.objects.get(id)?.data else {
        return None;
    };
    Some((event.before.clone(), Some(event.record.as_ref()?.index)))
}

fn stream_of(effects: &Effects, call: &Call<'_>) -> Stream {
    let handle = effects.stream(call).unwrap_or(0);
    match canonical_stream(handle, effects.function.per_thread) {
        STREAM_LEGACY => (0, None),
        STREAM_PER_THREAD => (0, Some(call.thread)),
        handle => (handle, None),
    }
}
