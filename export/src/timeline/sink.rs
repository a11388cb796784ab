//! Turns rows into tracks and events.

use std::sync::Arc;

use cutape_analyzer::Class;
use rustc_hash::{FxHashMap, FxHashSet};

use super::replay;
use super::writer::{Annotation, Slice, TimelineWriter, Track};
use crate::replayed::ReplayedCalls;
use crate::rows::{
    Awaited, CallRef, CallRow, CopyRow, FindingRow, GraphKernelRow, GraphLaunchRow, LaunchRow,
    MemoryRow, RangeRow, Sink, StreamRef, TraceRow, WaitRow,
};
use crate::{Error, Replayed};

/// Writes rows as events.
#[derive(Debug)]
pub struct TimelineSink<W> {
    writer: W,
    started: u64,
    named: FxHashSet<Track>,
    threads: Vec<String>,
    ranges: u32,
    domains: Vec<String>,
    /// When the last work of each stream was enqueued.
    enqueued: FxHashMap<u32, u64>,
    /// The flow from the last call to its work.
    flow: u64,
    replay: Option<ReplayRows>,
}

/// A replay to show, and what is known of its trace so far.
#[derive(Debug)]
struct ReplayRows {
    of_calls: ReplayedCalls,
    trace: Option<TraceRow>,
}

impl<W: TimelineWriter> TimelineSink<W> {
    /// A sink into that writer.
    pub fn new(writer: W) -> Self {
        Self {
            writer,
            started: 0,
            named: FxHashSet::default(),
            threads: Vec::new(),
            ranges: 0,
            domains: Vec::new(),
            enqueued: FxHashMap::default(),
            flow: 0,
            replay: None,
        }
    }

    /// Adds a replay, with the times of the GPU. The rows are then those of its trace.
    pub fn with_replay(self, replayed: Option<Arc<Replayed>>) -> Self {
        let replay = replayed.map(|replayed| ReplayRows {
            of_calls: ReplayedCalls::new(replayed),
            trace: None,
        });
        Self { replay, ..self }
    }

    /// The writer, after the rows of all traces.
    ///
    /// # Errors
    /// If writing fails.
    pub fn finish(mut self) -> Result<W, Error> {
        if let Some(replay) = &self.replay
            && let Some(trace) = &replay.trace
        {
            let written = replay::Shown(&replay.of_calls).write(trace, &mut self.writer);
            written.map_err(Error::Write)?;
        }
        Ok(self.writer)
    }

    /// A moment of the recording; the index of a call where the clock only counts.
    fn at(&self, ns: Option<u64>, call: u64) -> u64 {
        self.started.saturating_add(ns.unwrap_or(call))
    }

    fn slice(
        &mut self,
        track: Track,
        name: impl FnOnce(&Self) -> String,
        slice: &Slice<'_>,
    ) -> Result<(), Error> {
        self.name_track(track, name)?;
        self.writer.slice(track, slice).map_err(Error::Write)
    }

    fn name_track(
        &mut self,
        track: Track,
        name: impl FnOnce(&Self) -> String,
    ) -> Result<(), Error> {
        if self.named.insert(track) {
            let name = name(self);
            self.writer.track(track, &name).map_err(Error::Write)?;
        }
        Ok(())
    }

    /// The number of a domain. Ranges of two domains may overlap, so they are on two tracks.
    fn domain(&mut self, domain: &str) -> u32 {
        let known = self.domains.iter().position(|known| known == domain);
        let place = known.unwrap_or_else(|| {
            self.domains.push(domain.to_owned());
            self.domains.len() - 1
        });
        place as u32
    }

    fn thread_name(&self, thread: u32) -> String {
        let name = self.threads.get(thread as usize);
        name.filter(|name| !name.is_empty())
            .map_or_else(|| format!("thread {thread}"), Clone::clone)
    }

    /// Work that a call enqueues, on the track of its stream.
    fn work(
        &mut self,
        call: &CallRef,
        (stream, captured): (Option<StreamRef>, bool),
        (name, category): (&str, &'static str),
        annotations: &[(&'static str, Annotation<'_>)],
    ) -> Result<(), Error> {
        let Some(stream) = stream else { return Ok(()) };
        let mut all = vec![("call", Annotation::Number(call.index))];
        all.extend_from_slice(annotations);
        all.extend(outcome(call, captured));
        let begin = self.at(call.enter_ns(), call.index);
        let end = self.at(call.end_ns(), call.index).max(begin);
        // Slices of a track must not overlap, but two threads may enqueue at once.
        let last = self.enqueued.entry(stream.number).or_insert(0);
        let is_free = begin >= *last;
        *last = end.max(*last);
        let slice = Slice {
            name,
            category,
            begin,
            end: is_free.then_some(end),
            annotations: &all,
            flows: (&[], &[self.flow]),
        };
        self.slice(Track::Stream(stream.number), stream_track(stream), &slice)
    }
}

/// The name of a stream's track.
fn stream_track<S>(stream: StreamRef) -> impl FnOnce(&S) -> String {
    move |_| format!("{stream}: enqueued (host time, not GPU time)")
}

/// Whether work of a call did not run, and why.
fn outcome<'a>(
    call: &CallRef,
    is_captured: bool,
) -> impl Iterator<Item = (&'static str, Annotation<'a>)> + use<'a> {
    let facts = [
        ("captured", is_captured),
        ("failed", call.result != Some(0)),
    ];
    let facts = facts.into_iter().filter(|(_, is_so)| *is_so);
    facts.map(|(name, _)| (name, Annotation::Flag(true)))
}

/// What fits: `None` is left out.
fn numbers<'a>(facts: &[(&'static str, Option<u64>)]) -> Vec<(&'static str, Annotation<'a>)> {
    let known = facts
        .iter()
        .filter_map(|(name, fact)| Some((*name, (*fact)?)));
    known
        .map(|(name, number)| (name, Annotation::Number(number)))
        .collect()
}

fn sizes(sizes: Option<[u64; 3]>) -> Option<String> {
    sizes.map(|[x, y, z]| format!("{x}x{y}x{z}"))
}

/// The shape of a launch.
struct ShapeTexts {
    grid: Option<String>,
    block: Option<String>,
}

impl ShapeTexts {
    fn of(row: &LaunchRow<'_>) -> Self {
        Self {
            grid: sizes(row.grid),
            block: sizes(row.block),
        }
    }

    /// The name of a kernel's slice, and its facts.
    fn of_kernel<'a>(
        &'a self,
        row: &LaunchRow<'a>,
    ) -> (&'a str, Vec<(&'static str, Annotation<'a>)>) {
        let mut annotations = numbers(&[("shared_bytes", row.shared_bytes)]);
        let texts = [
            ("kernel", row.kernel),
            ("grid", self.grid.as_deref()),
            ("block", self.block.as_deref()),
            ("image", row.image),
        ];
        for (name, text) in texts {
            annotations.extend(text.map(|text| (name, Annotation::Text(text))));
        }
        (row.demangled.unwrap_or("unknown kernel"), annotations)
    }
}

impl<W: TimelineWriter> Sink for TimelineSink<W> {
    type Error = Error;

    fn trace(&mut self, row: &TraceRow) -> Result<(), Error> {
        self.started = row.started_unix_ns;
        self.named.clear();
        self.threads = row
            .threads
            .iter()
            .map(|thread| thread.name.clone())
            .collect();
        self.ranges = 0;
        self.domains.clear();
        self.enqueued.clear();
        if let Some(replay) = &mut self.replay {
            replay.trace = Some(row.clone());
        }
        self.writer.begin(row).map_err(Error::Write)
    }

    fn range(&mut self, row: &RangeRow<'_>) -> Result<(), Error> {
        let begin = self.at(row.begin_ns(), 0);
        let (track, category) = match (row.is_mark, row.is_pushed) {
            (true, _) => (Track::Marks(row.thread), "mark"),
            (false, true) => {
                let domain = row.domain.unwrap_or_default();
                (Track::Ranges(row.thread, self.domain(domain)), "range")
            }
            (false, false) => {
                self.ranges += 1;
                (Track::Range(self.ranges), "range")
            }
        };
        // A range that did not end is a moment: a viewer needs no end of the trace.
        let end = row.end_ns().map(|end| self.at(Some(end), 0).max(begin));
        let mut annotations = Vec::new();
        if let Some(domain) = row.domain {
            annotations.push(("domain", Annotation::Text(domain)));
        }
        if row.is_open {
            annotations.push(("open", Annotation::Flag(true)));
        }
        let slice = Slice {
            name: row.name,
            category,
            begin,
            end,
            annotations: &annotations,
            flows: (&[], &[]),
        };
        let name = |sink: &Self| {
            let what = if row.is_mark { "marks" } else { "ranges" };
            let domain = row.domain.filter(|_| row.is_pushed);
            let domain = domain.map_or_else(String::new, |domain| format!(" ({domain})"));
            match row.thread {
                Some(thread) => format!("{what} of {}{domain}", sink.thread_name(thread)),
                None => format!("{what}{domain}"),
            }
        };
        self.slice(track, name, &slice)
    }

    fn call(&mut self, row: &CallRow<'_>) -> Result<(), Error> {
        let call = row.call;
        if let Some(replay) = &mut self.replay {
            replay.of_calls.call(row)?;
        }
        let mut annotations = vec![("call", Annotation::Number(call.index))];
        if row.failed {
            let result = row.result_name().unwrap_or("unknown result");
            annotations.push(("result", Annotation::Text(result)));
            annotations.push(("failed", Annotation::Flag(true)));
        }
        if call.result.is_none() {
            annotations.push(("in_flight", Annotation::Flag(true)));
        }
        self.flow += u64::from(row.has_work);
        let flow = [self.flow];
        let begin = self.at(call.enter_ns(), call.index);
        let slice = Slice {
            name: row.function,
            category: "call",
            begin,
            end: Some(self.at(call.end_ns(), call.index).max(begin)),
            annotations: &annotations,
            flows: (if row.has_work { &flow } else { &[] }, &[]),
        };
        let track = Track::Thread(call.thread);
        self.slice(track, |sink| sink.thread_name(call.thread), &slice)
    }

    fn launch(&mut self, row: &LaunchRow<'_>) -> Result<(), Error> {
        let shape = ShapeTexts::of(row);
        let (name, annotations) = shape.of_kernel(row);
        let stream = (row.stream, row.is_captured);
        self.work(&row.call, stream, (name, "launch"), &annotations)
    }

    fn graph_launch(&mut self, row: &GraphLaunchRow) -> Result<(), Error> {
        let graph = row.graph.map(|graph| graph.to_string());
        let name = graph.as_deref().unwrap_or("unknown graph");
        let annotations = numbers(&[("nodes", row.nodes), ("kernels", row.kernels)]);
        let stream = (row.stream, row.is_captured);
        self.work(&row.call, stream, (name, "graph-launch"), &annotations)
    }

    fn graph_kernel(&mut self, row: &GraphKernelRow<'_>) -> Result<(), Error> {
        let launch = &row.launch;
        let call = launch.call;
        let Some(stream) = launch.stream else {
            return Ok(());
        };
        let shape = ShapeTexts::of(launch);
        let (name, kernel) = shape.of_kernel(launch);
        let mut annotations = numbers(&[("call", Some(call.index)), ("node", Some(row.node))]);
        annotations.extend(kernel);
        annotations.extend(outcome(&call, launch.is_captured));
        // A moment within the launch of the graph: the host does nothing for a single node.
        let slice = Slice {
            name,
            category: "graph-kernel",
            begin: self.at(call.enter_ns(), call.index),
            end: None,
            annotations: &annotations,
            flows: (&[], &[]),
        };
        self.slice(Track::Stream(stream.number), stream_track(stream), &slice)
    }

    fn copy(&mut self, row: &CopyRow) -> Result<(), Error> {
        let mut annotations = numbers(&[("bytes", row.bytes)]);
        if row.is_peer {
            annotations.push(("peer", Annotation::Flag(true)));
        }
        let stream = (row.stream, row.is_captured);
        self.work(&row.call, stream, (row.kind(), "copy"), &annotations)
    }

    fn wait(&mut self, row: &WaitRow) -> Result<(), Error> {
        // A wait of the host is its call.
        if row.awaited != Awaited::EventInStream {
            return Ok(());
        }
        let event = row.event.map(|event| event.to_string());
        let event = event.as_deref();
        let annotations: Vec<_> = event
            .map(|event| ("event", Annotation::Text(event)))
            .into_iter()
            .collect();
        let name = format!("wait for {}", row.awaited.key());
        let stream = (row.stream, false);
        self.work(&row.call, stream, (&name, "wait"), &annotations)
    }

    fn memory(&mut self, row: &MemoryRow) -> Result<(), Error> {
        let track = Track::Memory(row.kind);
        let name = |_: &Self| format!("{} memory", row.kind.name());
        self.name_track(track, name)?;
        let ns = self.at(row.ns(), row.call.index);
        let counted = self.writer.counter(track, ns, row.live_bytes);
        counted.map_err(Error::Write)
    }

    fn finding(&mut self, row: &FindingRow<'_>) -> Result<(), Error> {
        let finding = row.finding;
        if finding.class != Class::Misuse {
            return Ok(());
        }
        let call = finding.call.as_ref().map(|call| call.index);
        let enter_ns = row.call.and_then(|call| call.enter_ns());
        let mut annotations = numbers(&[("call", call)]);
        annotations.push(("severity", Annotation::Text(finding.severity.word())));
        annotations.push(("title", Annotation::Text(&finding.title)));
        annotations.push(("message", Annotation::Text(&finding.message)));
        let slice = Slice {
            name: finding.rule,
            category: "finding",
            begin: self.at(enter_ns, call.unwrap_or(0)),
            end: None,
            annotations: &annotations,
            flows: (&[], &[]),
        };
        self.slice(Track::Findings, |_| "findings".to_owned(), &slice)
    }
}
