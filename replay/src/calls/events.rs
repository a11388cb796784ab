//! When work runs on the device, by an event before it and one after it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::{Duration, Instant};

use crate::api::Api;
use crate::measure::tracer::CallTracer;

/// The events around work whose times have not been read.
#[derive(Debug)]
struct Around {
    call: u64,
    context: u64,
    before: u64,
    after: u64,
}

/// An event whose time is known on both clocks.
#[derive(Clone, Copy, Debug)]
struct Base {
    event: u64,
    at: Instant,
}

/// Events around work in flight, and those that can be used again.
#[derive(Debug, Default)]
pub(crate) struct WorkEvents {
    bases: HashMap<u64, Base>,
    open: Vec<Around>,
    unused: HashMap<u64, Vec<u64>>,
}

impl WorkEvents {
    /// Puts an event before the work of a call into a live stream, whose context is current.
    pub(crate) fn before(&mut self, api: &Api, call: u64, stream: (u64, bool)) -> Option<()> {
        let context = api.current_context().ok().filter(|&context| context != 0)?;
        if let Entry::Vacant(vacant) = self.bases.entry(context) {
            vacant.insert(base(api, stream)?);
        }
        let (before, after) = (self.event(api, context)?, self.event(api, context)?);
        api.record_mark(before, stream.0, stream.1).ok()?;
        self.open.push(Around {
            call,
            context,
            before,
            after,
        });
        Some(())
    }

    /// Puts an event after it.
    pub(crate) fn after(&mut self, api: &Api, call: u64, stream: (u64, bool)) -> Option<()> {
        // Other threads may have begun work meanwhile.
        let at = self.open.iter().rposition(|around| around.call == call)?;
        let after = self.open.get(at)?.after;
        if api.record_mark(after, stream.0, stream.1).is_ok() {
            return Some(());
        }
        self.open.remove(at);
        None
    }

    fn event(&mut self, api: &Api, context: u64) -> Option<u64> {
        let unused = self.unused.entry(context).or_default();
        unused.pop().or_else(|| api.create_event().ok())
    }

    /// Reads the times of work that is over. All of it is if `is_last`.
    pub(crate) fn read(&mut self, api: &Api, tracer: &dyn CallTracer, is_last: bool) {
        let passed = |around: &Around| api.is_mark_passed(around.after);
        let (over, open) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|around| is_last || passed(around));
        self.open = open;
        for around in over {
            let Around {
                call,
                context,
                before,
                after,
            } = around;
            let times = self.bases.get(&context).and_then(|base| {
                let begin = api.elapsed(base.event, before).ok()?;
                let lasted = api.elapsed(before, after).ok()?;
                Some((base.at + nanoseconds(begin)?, nanoseconds(lasted)?))
            });
            match times {
                Some((begin, lasted)) => tracer.ran(call, begin, lasted),
                None => tracer.is_not_timed(call),
            }
            self.unused
                .entry(context)
                .or_default()
                .extend([before, after]);
        }
    }

    /// A context is about to end: its events end with it.
    pub(crate) fn forget_contexts(&mut self) {
        self.bases.clear();
        self.unused.clear();
    }
}

fn nanoseconds(number: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number.max(0.0) / 1e9).ok()
}

/// An event that the device reaches while the host waits for it. The null driver has it at once.
fn base(api: &Api, stream: (u64, bool)) -> Option<Base> {
    let event = api.create_event().ok()?;
    api.synchronize_stream(stream.0, stream.1).ok()?;
    let begin = Instant::now();
    api.record_mark(event, stream.0, stream.1).ok()?;
    api.wait_for_event(event).ok()?;
    Some(Base {
        event,
        at: begin + begin.elapsed() / 2,
    })
}
