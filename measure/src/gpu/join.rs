//! What the trace says of the calls that were measured: functions, times, streams, ranges, and which
//! work comes before which.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use cutape_export::rows::{
    Awaited, CallRow, CopyRow, EventRecordRow, GraphLaunchRow, HostFunctionRow, LaunchRow,
    MemoryRow, RangeRow, Rows, Sink, StreamRef, WaitRow, Wants,
};
use cutape_format::Trace;
use cutape_profile::{CallFacts, WorkKind};

use crate::gpu::areas::Areas;
use crate::gpu::order::StreamOrder;
use crate::host_time;

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
    pub(crate) order: StreamOrder,
    pub(crate) areas: Areas,
    /// The time that the program took before a call, in nanoseconds.
    pub(crate) program: HashMap<u64, u64>,
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
        program: host_time::between_calls(trace),
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
        // A batch has several copies; the first says what they are.
        let Entry::Vacant(entry) = self.work.entry(call) else {
            return;
        };
        entry.insert(work);
        let Some(stream) = stream else { return };
        let name = self.streams.entry(stream.number);
        name.or_insert_with(|| stream.to_string());
        let before = self.order.work(&stream, call);
        if let Some(facts) = self.calls.get_mut(&call) {
            (facts.needs, facts.host_function) = (before.needs, before.host_function);
        }
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
        let areas = self.areas.call(row);
        if self.measured.contains(&row.call.index) {
            let facts = CallFacts {
                function: row.function.to_owned(),
                thread: row.call.thread,
                recorded_begin_ns: row.call.enter_ns(),
                recorded_end_ns: row.call.leave_ns(),
                range: self.ranges.at(row.call.thread, row.call.enter_ticks),
                program_ns: self.program.get(&row.call.index).copied().unwrap_or(0),
                areas,
                ..CallFacts::default()
            };
            self.calls.insert(row.call.index, facts);
        }
        Ok(())
    }

    fn memory(&mut self, row: &MemoryRow) -> Result<(), Self::Error> {
        self.areas.memory(row);
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
            self.order.record(event, &stream);
        }
        Ok(())
    }

    fn host_function(&mut self, row: &HostFunctionRow) -> Result<(), Self::Error> {
        if let Some(stream) = row.stream {
            self.order.host_function(&stream, row.call.index);
        }
        Ok(())
    }

    fn wait(&mut self, row: &WaitRow) -> Result<(), Self::Error> {
        if row.awaited != Awaited::EventInStream {
            // The host waits.
            if let Some(facts) = self.calls.get_mut(&row.call.index) {
                facts.is_wait = true;
                facts.awaits = match row.awaited {
                    Awaited::Stream => row.stream.map(|stream| self.order.before_now(&stream)),
                    Awaited::Event => row.event.map(|event| self.order.before_record(event)),
                    Awaited::Context | Awaited::EventInStream => None,
                }
                .unwrap_or_default();
            }
        } else if let (Some(stream), Some(event)) = (row.stream, row.event) {
            self.order.wait(&stream, event);
        }
        Ok(())
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
