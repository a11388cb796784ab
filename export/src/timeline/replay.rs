//! A replay as a process of the timeline: its calls by recorded thread, and what each stream of each
//! GPU ran, with flows from the one to the other.
//!
//! Both have the replay's times, which are measured on one clock. They begin where the recording
//! entered the first of the replayed calls; after that, the two processes go on at their own pace.

use std::collections::BTreeMap;
use std::io;

use cutape_profile::{HostCall, Work, WorkKind};
use rustc_hash::FxHashMap;

use super::writer::{Annotation, Slice, TimelineWriter, Track};
use crate::replayed::ReplayedCalls;
use crate::rows::TraceRow;

/// Work of a track that overlaps gets tracks of its own, up to this many.
const LANES: usize = 16;

/// No process of Linux has a number from here on.
const FIRST_PROCESS: u32 = 1 << 22;

/// The calls of a replay that are shown, and their work.
pub(super) struct Shown<'a>(pub(super) &'a ReplayedCalls);

/// What a track is of, in the order of tracks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Subject {
    Ranges(u32),
    Thread(u32),
    Graphs(u32),
    Stream(u32, u32),
}

/// The tracks of a subject, and until when each is taken.
#[derive(Default)]
struct Lanes(Vec<(Track, u64)>);

struct Tracks<'w, W> {
    writer: &'w mut W,
    lanes: BTreeMap<Subject, Lanes>,
    count: u32,
}

impl<W: TimelineWriter> Tracks<'_, W> {
    /// A slice on the first track of its subject that is free; a moment where none is.
    fn slice(
        &mut self,
        subject: Subject,
        name: &dyn Fn() -> String,
        slice: &Slice<'_>,
    ) -> io::Result<()> {
        let end = slice.end.unwrap_or(slice.begin);
        let Lanes(lanes) = self.lanes.entry(subject).or_default();
        let free = lanes.iter_mut().find(|lane| lane.1 <= slice.begin);
        if let Some((track, taken)) = free {
            *taken = end;
            return self.writer.slice(*track, slice);
        }
        if let Some((track, _)) = lanes.last().filter(|_| lanes.len() >= LANES) {
            return self.writer.slice(
                *track,
                &Slice {
                    end: None,
                    ..*slice
                },
            );
        }
        let track = Track::Replay(self.count);
        self.count += 1;
        let name = match lanes.len() {
            0 => name(),
            more => format!("{} (at the same time, {})", name(), more + 1),
        };
        lanes.push((track, end));
        self.writer.track(track, &name)?;
        self.writer.slice(track, slice)
    }
}

impl Shown<'_> {
    /// Writes the process of the replay.
    pub(super) fn write<W: TimelineWriter>(
        &self,
        trace: &TraceRow,
        writer: &mut W,
    ) -> io::Result<()> {
        let program = trace.program.as_deref().unwrap_or("unknown program");
        writer.begin(&TraceRow {
            process: trace.process | FIRST_PROCESS,
            program: Some(format!("replay of {program}, with GPU times")),
            arguments: Vec::new(),
            threads: Vec::new(),
            ..trace.clone()
        })?;
        let origin = self.origin(trace);
        let mut tracks = Tracks {
            writer,
            lanes: BTreeMap::new(),
            count: 0,
        };
        let graphs = self.graphs();
        let flows = self.flows(&graphs);
        self.ranges(trace, origin, &mut tracks)?;
        let none = Vec::new();
        for call in self.0.host() {
            let flows = flows.by_call.get(&call.call).unwrap_or(&none);
            self.call(trace, (call, flows), origin, &mut tracks)?;
        }
        let mut by_begin: Vec<_> = graphs.iter().collect();
        by_begin.sort_by_key(|(_, graph)| graph.begin);
        for (&(call, device), graph) in by_begin {
            let flow = flows.by_graph.get(&(call, device));
            let slice = Slice {
                name: "graph",
                category: "gpu-graph",
                begin: origin + graph.begin,
                end: Some(origin + graph.end),
                annotations: &[
                    ("call", Annotation::Number(call)),
                    ("nodes", Annotation::Number(graph.nodes)),
                ],
                flows: (&[], flow.map_or(&[], std::slice::from_ref)),
            };
            let name = || format!("GPU {device}: graphs, from first to last node");
            tracks.slice(Subject::Graphs(device), &name, &slice)?;
        }
        for (work, flow) in self.0.work().zip(&flows.by_work) {
            self.gpu_slice(work, *flow, origin, &mut tracks)?;
        }
        Ok(())
    }

    /// Where the axis of the replay begins, ns since 1970.
    fn origin(&self, trace: &TraceRow) -> u64 {
        let recorded = self.0.replayed.run.host.iter().find_map(|call| {
            let facts = self.0.replayed.profile.calls.get(&call.call)?;
            Some(facts.recorded_begin_ns?.saturating_sub(call.begin_ns))
        });
        // Viewers have signed times; all times of a profile are less than 2^63.
        let origin = trace.started_unix_ns.saturating_add(recorded.unwrap_or(0));
        origin.min(1 << 62)
    }

    /// Launches of graphs whose nodes are known, by call and device.
    fn graphs(&self) -> BTreeMap<(u64, u32), GraphSpan> {
        let mut graphs: BTreeMap<(u64, u32), GraphSpan> = BTreeMap::new();
        for work in self.0.work().filter(|work| work.node.is_some()) {
            let Some(call) = work.call else { continue };
            let graph = graphs.entry((call, work.device)).or_insert(GraphSpan {
                begin: work.begin_ns,
                end: work.end_ns,
                nodes: 0,
            });
            graph.end = graph.end.max(work.end_ns);
            graph.nodes += 1;
        }
        graphs
    }

    /// A flow leads to each piece of work, and to a graph as a whole.
    fn flows(&self, graphs: &BTreeMap<(u64, u32), GraphSpan>) -> Flows {
        let mut flows = Flows::default();
        let mut next = 0;
        let mut flow = |flows: &mut Flows, call: u64| {
            next += 1;
            flows.by_call.entry(call).or_default().push(next);
            next
        };
        for &(call, device) in graphs.keys() {
            let id = flow(&mut flows, call);
            flows.by_graph.insert((call, device), id);
        }
        for work in self.0.work() {
            let call = work.call.filter(|_| work.node.is_none());
            let id = call.map(|call| flow(&mut flows, call));
            flows.by_work.push(id);
        }
        flows
    }

    /// The innermost range of each call: calls of one range in a row are a slice.
    fn ranges<W: TimelineWriter>(
        &self,
        trace: &TraceRow,
        origin: u64,
        tracks: &mut Tracks<'_, W>,
    ) -> io::Result<()> {
        let mut open: BTreeMap<u32, (&str, u64, u64)> = BTreeMap::new();
        let mut done = Vec::new();
        for call in self.0.host() {
            let Some(facts) = self.0.replayed.profile.calls.get(&call.call) else {
                continue;
            };
            let range = facts.range.as_deref();
            match (open.get_mut(&facts.thread), range) {
                (Some((name, _, end)), Some(range)) if *name == range => {
                    *end = call.end_ns.max(*end);
                }
                (_, range) => {
                    let ended = match range {
                        Some(range) => {
                            let new = (range, call.begin_ns, call.end_ns);
                            open.insert(facts.thread, new)
                        }
                        None => open.remove(&facts.thread),
                    };
                    done.extend(ended.map(|ended| (facts.thread, ended)));
                }
            }
        }
        done.extend(open);
        done.sort_by_key(|(_, (_, begin, _))| *begin);
        for (thread, (range, begin, end)) in done {
            let slice = Slice {
                name: range,
                category: "range",
                begin: origin + begin,
                end: Some(origin + end),
                annotations: &[],
                flows: (&[], &[]),
            };
            let name = || format!("ranges of {}: calls in them", thread_name(trace, thread));
            tracks.slice(Subject::Ranges(thread), &name, &slice)?;
        }
        Ok(())
    }

    fn call<W: TimelineWriter>(
        &self,
        trace: &TraceRow,
        (call, flows): (&HostCall, &[u64]),
        origin: u64,
        tracks: &mut Tracks<'_, W>,
    ) -> io::Result<()> {
        let profile = &self.0.replayed.profile;
        let facts = profile.calls.get(&call.call);
        let mut annotations = vec![("call", Annotation::Number(call.call))];
        let recorded = facts.and_then(|facts| {
            let (begin, end) = facts.recorded_begin_ns.zip(facts.recorded_end_ns)?;
            Some(end.saturating_sub(begin))
        });
        annotations.extend(recorded.map(|time| ("recorded_ns", Annotation::Number(time))));
        let range = facts.and_then(|facts| facts.range.as_deref());
        annotations.extend(range.map(|range| ("range", Annotation::Text(range))));
        let slice = Slice {
            name: profile.function(call.call),
            category: "call",
            begin: origin + call.begin_ns,
            end: Some(origin + call.end_ns),
            annotations: &annotations,
            flows: (flows, &[]),
        };
        let thread = facts.map_or(0, |facts| facts.thread);
        let name = || format!("calls of {}, replayed", thread_name(trace, thread));
        tracks.slice(Subject::Thread(thread), &name, &slice)
    }

    fn gpu_slice<W: TimelineWriter>(
        &self,
        work: &Work,
        flow: Option<u64>,
        origin: u64,
        tracks: &mut Tracks<'_, W>,
    ) -> io::Result<()> {
        let profile = &self.0.replayed.profile;
        let size = |sizes: Option<[u32; 3]>| sizes.map(|[x, y, z]| format!("{x}x{y}x{z}"));
        let (grid, block) = (size(work.grid), size(work.block));
        let facts = work.call.and_then(|call| profile.calls.get(&call));
        let range = facts.and_then(|facts| facts.range.as_deref());
        let numbers = [
            ("call", work.call),
            ("node", work.node),
            ("bytes", work.bytes),
            ("registers", work.registers.map(u64::from)),
            ("shared_bytes", work.shared_bytes),
        ];
        let numbers = numbers.into_iter().filter_map(|(name, number)| {
            let number = number?;
            Some((name, Annotation::Number(number)))
        });
        let texts = [
            ("grid", grid.as_deref()),
            ("block", block.as_deref()),
            ("range", range),
        ];
        let texts = texts.into_iter().filter_map(|(name, text)| {
            let text = text?;
            Some((name, Annotation::Text(text)))
        });
        let annotations: Vec<_> = numbers.chain(texts).collect();
        let slice = Slice {
            name: &work.name,
            category: match work.kind {
                WorkKind::Kernel => "gpu-kernel",
                WorkKind::Copy => "gpu-copy",
                WorkKind::Memset => "gpu-memset",
                WorkKind::Graph => "gpu-graph",
            },
            begin: origin + work.begin_ns,
            end: Some(origin + work.end_ns),
            annotations: &annotations,
            flows: (&[], flow.as_slice()),
        };
        let name = || format!("GPU {}: {}", work.device, profile.stream(work.stream));
        tracks.slice(Subject::Stream(work.device, work.stream), &name, &slice)
    }
}

/// From the first to the last node of a graph.
struct GraphSpan {
    begin: u64,
    end: u64,
    nodes: u64,
}

/// Numbers of flows: by the call they begin at, and by where they end.
#[derive(Default)]
struct Flows {
    by_call: FxHashMap<u64, Vec<u64>>,
    by_graph: FxHashMap<(u64, u32), u64>,
    /// In the order of the work that is shown.
    by_work: Vec<Option<u64>>,
}

fn thread_name(trace: &TraceRow, thread: u32) -> String {
    let named = trace.threads.get(thread as usize);
    let named = named.filter(|thread| !thread.name.is_empty());
    named.map_or_else(|| format!("thread {thread}"), |thread| thread.name.clone())
}
