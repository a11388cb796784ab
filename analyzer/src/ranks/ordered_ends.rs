//! Memory that is freed in the order of a stream: when it has ended for sure.
//!
//! Its stream may wait for other processes, for a value or in a kernel, so the call that frees it
//! says nothing about when that happens. A later wait for the stream or the context does.

use cutape_format::Call;
use cutape_model::ObjectId;
use cutape_registry::{Family, MemoryOp, STREAM_PER_THREAD, Waits, canonical_stream};

use super::process::Process;

/// A process, its number, and its call, which has been applied.
type Applied<'a, 'c> = (usize, &'a Process, &'a Call<'c>);

/// Ends that no wait has proved so far.
#[derive(Debug)]
pub(super) struct OrderedEnds<T>(Vec<OrderedEnd<T>>);

#[derive(Debug)]
struct OrderedEnd<T> {
    process: usize,
    context: Option<ObjectId>,
    stream: Stream,
    what: T,
}

/// A stream, and the thread if it is the thread's own.
type Stream = (u64, Option<u32>);

impl<T> Default for OrderedEnds<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> OrderedEnds<T> {
    /// Whether a call frees memory in the order of a stream.
    pub(super) fn is_one(process: &Process, call: &Call<'_>) -> bool {
        let family = process.uses(call).map(|uses| uses.function.family);
        family == Some(Family::Memory(MemoryOp::FreeAsync))
    }

    /// Takes note of such a call.
    pub(super) fn push(&mut self, (number, process, call): Applied<'_, '_>, what: T) {
        if let Some(stream) = stream_of(process, call) {
            self.0.push(OrderedEnd {
                process: number,
                context: context_of(process, call),
                stream,
                what,
            });
        }
    }

    /// Those that a call proves, each with the time at which it had.
    pub(super) fn take_over(&mut self, (number, process, call): Applied<'_, '_>) -> Vec<(T, u64)> {
        let waits = process
            .uses(call)
            .map_or(Waits::No, |uses| uses.function.waits);
        let Some(leave) = call.leave.filter(|_| call.succeeded()) else {
            return Vec::new();
        };
        if self.0.is_empty() || waits == Waits::No {
            return Vec::new();
        }
        let (context, stream) = (context_of(process, call), stream_of(process, call));
        let is_over = |ordered: &mut OrderedEnd<T>| {
            ordered.process == number
                && match waits {
                    Waits::Context => ordered.context == context,
                    Waits::Stream(_) => Some(ordered.stream) == stream,
                    Waits::Event(_) | Waits::No => false,
                }
        };
        let over = self.0.extract_if(.., is_over);
        over.map(|ordered| (ordered.what, leave.ticks)).collect()
    }
}

fn context_of(process: &Process, call: &Call<'_>) -> Option<ObjectId> {
    process.trace.state.contexts.current(call.thread).object
}

fn stream_of(process: &Process, call: &Call<'_>) -> Option<Stream> {
    let function = process.uses(call)?.function;
    let position = match function.waits {
        Waits::Stream(position) => position,
        _ => function.stream?,
    };
    let stream = canonical_stream(call.argument(usize::from(position)), function.per_thread);
    Some((stream, (stream == STREAM_PER_THREAD).then_some(call.thread)))
}
