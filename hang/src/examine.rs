//! Reads a trace, and says what may still run.

use std::collections::{BTreeMap, HashMap};

use cutape_format::layout::{BreadcrumbNote, breadcrumb};
use cutape_format::{Call, Note, Provenance, Trace, TraceClock};
use cutape_model::{
    AwaitedValue, Condition, HostWait, PendingKind, PendingStream, PendingWork, Proof, QueuedWork,
    Work,
};
use cutape_registry::{STREAM_LEGACY, STREAM_PER_THREAD, enumeration};
use cutape_render::Completeness;

use crate::cycle;
use crate::lines::{Lines, Wanted};
use crate::report::{Completed, Failure, Memory, Report, Stream, Thread, VERSION, Wait, Writer};

/// Candidates of a stream that a report shows, and kernels of a graph.
const MOST_CANDIDATES: usize = 16;
const MOST_NODES: usize = 16;

/// The memory of a process that still runs.
pub trait ProcessMemory {
    /// Reads bytes at an address; false if it cannot.
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool;
}

/// A number of up to 8 bytes at an address.
fn number(memory: Option<&dyn ProcessMemory>, address: u64, bytes: u8) -> Option<u64> {
    let mut number = [0; 8];
    let place = number.get_mut(..usize::from(bytes))?;
    memory?
        .read(address, place)
        .then_some(u64::from_le_bytes(number))
}

/// What a trace says in one pass.
#[derive(Default)]
struct Pass {
    work: PendingWork,
    calls: u64,
    last_ticks: u64,
    refusals: Vec<String>,
}

impl Pass {
    fn take(&mut self, call: &Call<'_>, memory: Option<&dyn ProcessMemory>) {
        let word = &mut |address| number(memory, address, 4).map(|word| word as u32);
        self.work.observe(call, word);
        self.calls += 1;
        let left = call.leave.as_ref().map_or(0, |leave| leave.ticks);
        self.last_ticks = self.last_ticks.max(call.ticks).max(left);
        for note in call.notes() {
            if let Note::Breadcrumb(note) = note
                && note.kind == breadcrumb::REFUSED
                && self.work.failure().is_none()
            {
                self.refusals.push(refusal(call.index, &note));
            }
        }
    }
}

fn refusal(call: u64, note: &BreadcrumbNote) -> String {
    let what = match note.stream {
        0 => format!("context {:#x}", note.context),
        STREAM_LEGACY => "the legacy default stream".to_owned(),
        STREAM_PER_THREAD => "the default stream of a thread".to_owned(),
        stream => format!("stream {stream:#x}"),
    };
    format!(
        "{what}: the driver refused with {} (call {call})",
        result_name(note.value as i32)
    )
}

fn result_name(result: i32) -> String {
    let names = enumeration("CUresult").map(|known| known.values);
    let mut names = names.unwrap_or_default().iter();
    let found = names.find(|(_, code)| *code == i64::from(result));
    found.map_or_else(
        || format!("CUresult {result}"),
        |(name, _)| (*name).to_owned(),
    )
}

/// Examines a trace; if its process still runs, with its memory and the time in ticks of the trace.
/// `watch` is called when everything is read, and waits: then the words of streams are read again.
pub fn examine(
    trace: &Trace,
    running: Option<(Option<&dyn ProcessMemory>, Option<u64>)>,
    watch: &mut dyn FnMut(),
) -> Report {
    let memory = running.and_then(|(memory, _)| memory);
    let mut pass = Pass::default();
    for call in trace.calls() {
        pass.take(&call, memory);
    }
    let mut progress = None;
    if memory.is_some() {
        let read = |work: &mut PendingWork| {
            let words = work.unfinished_words().into_iter();
            let found = words.filter_map(|word| Some((word, number(memory, word, 4)? as u32)));
            let found: BTreeMap<u64, u32> = found.collect();
            for (&address, &value) in &found {
                work.found(address, value);
            }
            found
        };
        let before = read(&mut pass.work);
        watch();
        let after = read(&mut pass.work);
        progress = Some(
            after
                .iter()
                .any(|(word, value)| before.get(word) != Some(value)),
        );
    }
    let now = running.and_then(|(_, now)| now);
    let mut report = Examination::new(trace, &pass, memory).report(trace, now, progress);
    report.running = running.is_some();
    report
}

/// What the pass has found, with the calls in words.
struct Examination<'p> {
    pass: &'p Pass,
    memory: Option<&'p dyn ProcessMemory>,
    streams: Vec<PendingStream<'p>>,
    lines: Lines,
}

impl<'p> Examination<'p> {
    fn new(trace: &Trace, pass: &'p Pass, memory: Option<&'p dyn ProcessMemory>) -> Self {
        let streams = pass.work.streams();
        let mut wanted = Wanted::default();
        for stream in &streams {
            wanted.streams.insert(stream.handle);
            wanted.contexts.insert(stream.context);
            wanted.calls.extend(stream.completed.map(|(call, _)| call));
            let shown = stream.work.iter().take(stream.candidates);
            for work in shown.chain(stream.work.back()) {
                wanted.calls.insert(work.call);
                match &work.kind {
                    PendingKind::Event(Some(record)) => {
                        wanted.calls.insert(*record);
                    }
                    PendingKind::Graph(exec) => {
                        wanted.nodes.insert(work.call, kernels(&pass.work, *exec));
                    }
                    PendingKind::Values(awaited, _) => {
                        let writers = awaited.iter().map(|value| value.address);
                        let writers = writers.flat_map(|address| pass.work.writes_to(address));
                        wanted.calls.extend(writers.map(|(_, call)| call));
                    }
                    _ => {}
                }
            }
        }
        wanted
            .calls
            .extend(pass.work.failure().map(|failure| failure.call));
        wanted
            .calls
            .extend(pass.work.in_flight().iter().map(|wait| wait.call));
        Self {
            pass,
            memory,
            streams,
            lines: Lines::read(trace, &wanted),
        }
    }

    fn report(&self, trace: &Trace, now: Option<u64>, progress: Option<bool>) -> Report {
        let completeness = Completeness {
            // `running` says it.
            still_recording: false,
            ..Completeness::of(trace)
        };
        let ends_before_now = completeness.ended_early.is_some()
            || completeness
                .left_out
                .is_some_and(|left_out| left_out.paused_at_end);
        let clock = TraceClock::of(trace);
        let since = |ticks| now.and_then(|now| clock.between(ticks, now));
        let mut waits: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let streams = self.streams.iter().map(|stream| {
            let (found, awaited) = self.stream(stream);
            waits.insert(stream.number, awaited);
            found
        });
        let streams = streams.collect();
        let cycle = cycle::find(&waits).unwrap_or_default();
        let threads: HashMap<u32, (u32, String)> = trace
            .threads()
            .into_iter()
            .zip(0..)
            .map(|(thread, ordinal)| (ordinal, (thread.number, thread.name)))
            .collect();
        let in_flight = self.pass.work.in_flight().iter();
        Report {
            version: VERSION,
            process: trace.head().process,
            running: self.memory.is_some(),
            calls: self.pass.calls,
            completeness,
            lacks_earlier_calls: lacks_earlier_calls(trace),
            breadcrumbs: trace
                .meta_value("breadcrumbs")
                .and_then(|every| every.parse().ok()),
            without_breadcrumbs: self.pass.refusals.clone(),
            idle_ns: since(self.pass.last_ticks).filter(|_| !ends_before_now),
            progress,
            failure: self.pass.work.failure().map(|failure| Failure {
                line: self.lines.line(failure.call),
                result: result_name(failure.result),
            }),
            streams,
            threads: in_flight
                .map(|wait| self.thread(wait, &threads, since(wait.ticks)))
                .collect(),
            cycle: self.names(&cycle),
            core_dumps: Vec::new(),
            core_dump_contents: Vec::new(),
        }
    }

    fn thread(
        &self,
        wait: &HostWait,
        threads: &HashMap<u32, (u32, String)>,
        since_ns: Option<u64>,
    ) -> Thread {
        let (number, name) = threads.get(&wait.thread).cloned().unwrap_or_default();
        Thread {
            thread: wait.thread,
            number,
            name,
            line: self.lines.line(wait.call),
            since_ns,
            streams: self.names(&self.pass.work.awaited_by(wait)),
        }
    }

    /// A stream, and the numbers of those that it waits for.
    fn stream(&self, stream: &PendingStream<'_>) -> (Stream, Vec<u32>) {
        let work: Vec<&QueuedWork> = stream.work.iter().collect();
        // Waits that are over are complete, but for a moment.
        let passed = work
            .iter()
            .take(stream.candidates)
            .take_while(|work| self.is_over(stream.number, work))
            .count();
        let first = if passed < stream.candidates {
            passed
        } else {
            0
        };
        let candidates = work.get(first..stream.candidates).unwrap_or(&work);
        let waits_at = candidates
            .iter()
            .position(|work| !self.waits_of(stream.number, work).1);
        // What comes after a wait that is not over does not run.
        let end = waits_at.map_or(candidates.len(), |at| at + 1);
        let waiting = waits_at.and_then(|at| candidates.get(at));
        let waits = waiting.map(|work| self.waits_of(stream.number, work).0);
        // That another piece of work runs before it is not excluded.
        let awaited = waiting
            .filter(|_| waits_at == Some(0))
            .map(|work| self.awaited(stream.number, work));
        let shown = end.min(MOST_CANDIDATES);
        let queued = work.len().saturating_sub(first + end);
        let shown_lines = candidates.iter().take(shown);
        let found = Stream {
            name: self.name(stream),
            context: self.lines.context(stream.context),
            completed: stream.completed.map(|(call, proof)| Completed {
                line: self.lines.line(call),
                by_call: match proof {
                    Proof::Breadcrumb => None,
                    Proof::Call(call) => Some(call),
                },
            }),
            candidates: shown_lines.map(|work| self.lines.line(work.call)).collect(),
            more_candidates: end - shown,
            waits: waits.unwrap_or_default(),
            queued,
            last: work
                .last()
                .filter(|_| queued != 0)
                .map(|work| self.lines.line(work.call)),
        };
        (found, awaited.unwrap_or_default())
    }

    /// Whether work is a wait, or a write of values, that holds a stream up no longer.
    fn is_over(&self, stream: u32, work: &QueuedWork) -> bool {
        let is_short = match &work.kind {
            PendingKind::Event(_) => true,
            PendingKind::Values(awaited, _) => awaited.iter().all(|value| {
                matches!(self.memory_of(value), Memory::Holds(found) if value.is_met_by(found))
            }),
            PendingKind::Work | PendingKind::Graph(_) | PendingKind::HostFunction => false,
        };
        is_short && self.pass.work.before(stream, work).is_empty()
    }

    /// What work waits for, and whether it may run nevertheless, as far as that is known.
    fn waits_of(&self, stream: u32, work: &QueuedWork) -> (Vec<Wait>, bool) {
        let before = self.names(&self.pass.work.before(stream, work));
        let mut waits = Vec::new();
        let mut may_run = before.is_empty();
        match &work.kind {
            PendingKind::Event(record) if !before.is_empty() => waits.push(Wait::Event {
                record: record.map(|call| self.lines.line(call)),
                streams: before,
            }),
            _ if !before.is_empty() => waits.push(Wait::Order { streams: before }),
            _ => {}
        }
        match &work.kind {
            PendingKind::Values(awaited, _) => {
                let unmet = awaited.iter().filter(|value| {
                    !matches!(self.memory_of(value), Memory::Holds(found) if value.is_met_by(found))
                });
                for value in unmet {
                    may_run = false;
                    waits.push(self.value(value));
                }
            }
            PendingKind::HostFunction if waits.is_empty() => {
                may_run = false;
                waits.push(Wait::HostFunction);
            }
            _ => {}
        }
        (waits, may_run)
    }

    /// The streams that have to go on for work to begin or, if it is a wait, to be over.
    fn awaited(&self, stream: u32, work: &QueuedWork) -> Vec<u32> {
        let mut streams = self.pass.work.before(stream, work);
        if let PendingKind::Values(awaited, _) = &work.kind {
            let writes = awaited
                .iter()
                .flat_map(|value| self.pass.work.writes_to(value.address));
            streams.extend(writes.map(|(stream, _)| stream));
        }
        streams
    }

    fn memory_of(&self, value: &AwaitedValue) -> Memory {
        match self.pass.work.is_on_host(value.address) {
            true => match number(self.memory, value.address, value.bytes) {
                Some(found) => Memory::Holds(found),
                None => Memory::Unreadable,
            },
            false => Memory::OfDevice,
        }
    }

    fn value(&self, value: &AwaitedValue) -> Wait {
        let wanted = value.value;
        let writes = self.pass.work.writes_to(value.address);
        Wait::Value {
            address: format!("{:#x}", value.address),
            condition: match value.condition {
                Condition::GreaterOrEqual => format!(">= {wanted}"),
                Condition::Equal => format!("== {wanted}"),
                Condition::AnyBit => format!("with a bit of {wanted:#x}"),
                Condition::NotBoth => format!("without a bit that {wanted:#x} lacks, too"),
            },
            memory: self.memory_of(value),
            writers: writes
                .into_iter()
                .map(|(stream, call)| Writer {
                    stream: self.names(&[stream]).concat(),
                    line: self.lines.line(call),
                })
                .collect(),
        }
    }

    fn name(&self, stream: &PendingStream<'_>) -> String {
        match (stream.handle, stream.thread) {
            (STREAM_LEGACY, _) => "the legacy default stream".to_owned(),
            (_, Some(thread)) => format!("the default stream of thread {thread}"),
            (handle, None) => self.lines.stream(handle),
        }
    }

    fn names(&self, numbers: &[u32]) -> Vec<String> {
        let name = |number: &u32| {
            let mut streams = self.streams.iter();
            let stream = streams.find(|stream| stream.number == *number)?;
            Some(self.name(stream))
        };
        numbers.iter().filter_map(name).collect()
    }
}

/// Whether a trace has only some calls of its process: those that a flight recorder has not erased or
/// has kept, or that were cut out of another one.
fn lacks_earlier_calls(trace: &Trace) -> bool {
    trace.has_erased() || trace.meta_value("kept.time").is_some() || Provenance::of(trace).is_some()
}

/// The kernels of an executable graph: the calls that added them, and their handles.
fn kernels(work: &PendingWork, exec: u64) -> Vec<(u64, u64)> {
    let Some(exec) = work.exec(exec) else {
        return Vec::new();
    };
    let nodes = exec.graph.live().filter_map(|(_, node)| match &node.work {
        Work::Kernel(kernel) => Some((node.site.index, kernel.function)),
        _ => None,
    });
    nodes.take(MOST_NODES).collect()
}
