//! What the trace says of the calls that were measured: functions, times, streams, ranges, and which
//! work comes before which by events.

use std::collections::{BTreeMap, HashMap, HashSet};

use cutape_export::rows::{
    Awaited, CallRow, CopyRow, EventRecordRow, GraphLaunchRow, LaunchRow, ObjectRef, RangeRow,
    Rows, Sink, StreamRef, WaitRow, Wants,
};
use cutape_format::Trace;
use cutape_profile::{CallFacts, WorkKind};

/// What is known of the calls.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) measured: HashSet<u64>,
    pub(crate) calls: BTreeMap<u64, CallFacts>,
    /// What each call's work is, and on which stream, by number.
    pub(crate) work: HashMap<u64, CallWork>,
    /// Streams of the trace by number.
    pub(crate) streams: BTreeMap<u32, String>,
    pub(crate) ranges: Ranges,
    pub(crate) order: EventOrder,
}

/// What the trace says of a call's work.
#[derive(Debug)]
pub(crate) struct CallWork {
    pub(crate) kind: WorkKind,
    pub(crate) name: String,
    pub(crate) stream: Option<u32>,
    pub(crate) bytes: Option<u64>,
    pub(crate) shape: Option<[[u64; 3]; 2]>,
}

/// Reads the trace.
///
/// # Errors
/// That it cannot be read.
pub(crate) fn facts(trace: &Trace, measured: HashSet<u64>) -> Result<Facts, cutape_format::Error> {
    let mut facts = Facts {
        measured,
        ..Facts::default()
    };
    Rows::of(trace).run(&mut facts)?;
    Ok(facts)
}

impl Facts {
    fn add_work(&mut self, call: u64, stream: Option<StreamRef>, work: CallWork) {
        if !self.measured.contains(&call) {
            return;
        }
        if let Some(stream) = stream {
            let name = self.streams.entry(stream.number);
            name.or_insert_with(|| stream.to_string());
            let needs = self.order.work(stream.number, call);
            if let Some(facts) = self.calls.get_mut(&call) {
                facts.needs = needs;
            }
        }
        // A batch has several copies; the first says what they are.
        self.work.entry(call).or_insert(work);
    }
}

impl Sink for Facts {
    type Error = cutape_format::Error;

    const WANTS: Wants = Wants {
        ended_objects: false,
        ..Wants::ALL
    };

    fn range(&mut self, row: &RangeRow<'_>) -> Result<(), Self::Error> {
        self.ranges.add(row);
        Ok(())
    }

    fn call(&mut self, row: &CallRow<'_>) -> Result<(), Self::Error> {
        if self.measured.contains(&row.call.index) {
            let facts = CallFacts {
                function: row.function.to_owned(),
                thread: row.call.thread,
                recorded_begin_ns: row.call.enter_ns(),
                recorded_end_ns: row.call.leave_ns(),
                range: self.ranges.at(row.call.thread, row.call.enter_ticks),
                is_wait: false,
                needs: Vec::new(),
            };
            self.calls.insert(row.call.index, facts);
        }
        Ok(())
    }

    fn launch(&mut self, row: &LaunchRow<'_>) -> Result<(), Self::Error> {
        if row.is_captured {
            return Ok(());
        }
        let name = row.demangled.or(row.kernel).unwrap_or("unknown kernel");
        let work = CallWork {
            kind: WorkKind::Kernel,
            name: name.to_owned(),
            stream: row.stream.map(|stream| stream.number),
            bytes: None,
            shape: row.grid.zip(row.block).map(|(grid, block)| [grid, block]),
        };
        self.add_work(row.call.index, row.stream, work);
        Ok(())
    }

    fn graph_launch(&mut self, row: &GraphLaunchRow) -> Result<(), Self::Error> {
        if row.is_captured {
            return Ok(());
        }
        let work = CallWork {
            kind: WorkKind::Graph,
            name: row
                .graph
                .map_or_else(|| "graph".to_owned(), |graph| graph.to_string()),
            stream: row.stream.map(|stream| stream.number),
            bytes: None,
            shape: None,
        };
        self.add_work(row.call.index, row.stream, work);
        Ok(())
    }

    fn copy(&mut self, row: &CopyRow) -> Result<(), Self::Error> {
        if row.is_captured {
            return Ok(());
        }
        let work = CallWork {
            kind: match row.is_memset {
                true => WorkKind::Memset,
                false => WorkKind::Copy,
            },
            name: row.kind().to_owned(),
            stream: row.stream.map(|stream| stream.number),
            bytes: row.bytes,
            shape: None,
        };
        // A copy without a stream returns when it is done, if a side of it is the host.
        let from_host = [row.from, row.to]
            .into_iter()
            .flatten()
            .any(|side| !side.is_device());
        if !row.is_async
            && !row.is_memset
            && from_host
            && let Some(facts) = self.calls.get_mut(&row.call.index)
        {
            facts.is_wait = true;
        }
        self.add_work(row.call.index, row.stream, work);
        Ok(())
    }

    fn event_record(&mut self, row: &EventRecordRow) -> Result<(), Self::Error> {
        if let (Some(stream), Some(event)) = (row.stream, row.event) {
            self.order.record(event, stream.number);
        }
        Ok(())
    }

    fn wait(&mut self, row: &WaitRow) -> Result<(), Self::Error> {
        if row.awaited != Awaited::EventInStream {
            // The host waits.
            if let Some(facts) = self.calls.get_mut(&row.call.index) {
                facts.is_wait = true;
            }
        } else if let (Some(stream), Some(event)) = (row.stream, row.event) {
            self.order.wait(stream.number, event);
        }
        Ok(())
    }
}

/// Which work events put before which.
#[derive(Debug, Default)]
pub(crate) struct EventOrder {
    /// The last call with work on a stream.
    last: HashMap<u32, u64>,
    /// The work before the last record of an event.
    recorded: HashMap<ObjectRef, Option<u64>>,
    /// Work that the next work of a stream comes after.
    pending: HashMap<u32, Vec<u64>>,
}

impl EventOrder {
    fn record(&mut self, event: ObjectRef, stream: u32) {
        self.recorded.insert(event, self.last.get(&stream).copied());
    }

    fn wait(&mut self, stream: u32, event: ObjectRef) {
        if let Some(call) = self.recorded.get(&event).copied().flatten() {
            self.pending.entry(stream).or_default().push(call);
        }
    }

    /// A call puts work on a stream: what that work waits for.
    fn work(&mut self, stream: u32, call: u64) -> Vec<u64> {
        self.last.insert(stream, call);
        self.pending.remove(&stream).unwrap_or_default()
    }
}

/// Ranges of NVTX, by thread.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    by_thread: HashMap<u32, Vec<(u64, u64, String)>>,
}

impl Ranges {
    fn add(&mut self, row: &RangeRow<'_>) {
        let Some(thread) = row.thread.filter(|_| !row.is_mark && row.is_pushed) else {
            return;
        };
        let end = row.end_ticks.unwrap_or(u64::MAX);
        let ranges = self.by_thread.entry(thread).or_default();
        ranges.push((row.begin_ticks, end, row.path.to_owned()));
    }

    /// The innermost range of a thread at a time. A parent begins before its children, so that it is
    /// the last of those that have begun and not ended.
    fn at(&self, thread: u32, ticks: u64) -> Option<String> {
        let ranges = self.by_thread.get(&thread)?;
        let begun = ranges.partition_point(|range| range.0 <= ticks);
        let begun = ranges.get(..begun)?.iter().rev();
        // Ranges that have ended since are few: those of the same depth end in order.
        let mut open = begun.take(NESTED).filter(|range| ticks < range.1);
        open.next().map(|range| range.2.clone())
    }
}

/// How many ranges back one that is open is looked for.
const NESTED: usize = 10_000;

#[cfg(test)]
mod tests {
    use cutape_registry::Kind;

    use super::*;

    #[test]
    fn events_put_work_in_order() {
        let event = |generation| ObjectRef {
            kind: Kind::Event,
            generation,
        };
        let mut order = EventOrder::default();
        assert_eq!(order.work(1, 5).len(), 0);
        order.record(event(1), 1);
        order.work(1, 6);
        order.wait(2, event(1));
        assert_eq!(order.work(2, 8), [5]);
        assert_eq!(
            order.work(2, 9).len(),
            0,
            "what is before it in its stream is known already"
        );
        order.record(event(2), 3);
        order.wait(1, event(2));
        order.wait(1, event(3));
        assert_eq!(order.work(1, 10).len(), 0);
    }
}
