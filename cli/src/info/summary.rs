//! Everything that `info` shows, collected in one pass over the calls.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;

use cutape_analyzer::decode::function_of;
use cutape_analyzer::{CallResult, result_of};
use cutape_format::layout::FILE_PACKED;
use cutape_format::{Call, Note, Trace};
use cutape_registry::{Family, Function, GraphOp, Kind};
use serde::Serialize;

use super::copies::Copies;
use super::cut::CutFacts;
use super::digests::{DigestCounter, Digests};
use super::images::{Images, RecordedImage};
use super::objects::{LeakedObjects, MemoryAccounts, never_destroyed};
use super::process::{ProcessFacts, number, text};
use super::ranges::{MarkFacts, RangeCounter, RangeFacts};
use crate::exchanges::Exchanges;
use crate::failure::Failure;
use crate::input::Completeness;
use crate::progress::Progress;
use crate::render::{Limits, Renderer, notes};
use cutape_format::TraceClock;
use cutape_model::{Effects, Exec, LaunchShape, Scope, TraceState, Work};

/// How many failed calls to list.
const SHOWN_FAILURES: usize = 10;
/// How many grids of a kernel to list.
const SHOWN_GRIDS: usize = 4;

/// The content of a trace. JSON keys are only ever added; times are nanoseconds, `null` if the
/// clock only counts.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) trace: TraceFacts,
    pub(crate) program: ProgramFacts,
    pub(crate) machine: MachineFacts,
    /// Nanoseconds since 1970.
    pub(crate) started_unix_ns: u64,
    /// From the start of the recording to the last recorded event.
    pub(crate) duration_ns: Option<u64>,
    pub(crate) threads: Vec<ThreadFacts>,
    pub(crate) calls: CallCounts,
    /// By total time, then by number of calls.
    pub(crate) functions: Vec<FunctionFacts>,
    /// Kernels that calls launched, also into graphs that a stream captured.
    pub(crate) launches: u64,
    /// Launches of executable graphs, also into graphs that a stream captured.
    pub(crate) graph_launches: u64,
    /// Their kernel nodes, of graphs whose nodes are all known.
    pub(crate) graph_kernels: u64,
    /// By number of launches, then by how often graphs run them.
    pub(crate) kernels: Vec<KernelFacts>,
    /// In the order of their first begin.
    pub(crate) ranges: Vec<RangeFacts>,
    pub(crate) marks: Vec<MarkFacts>,
    pub(crate) images: Vec<RecordedImage>,
    /// Uses of images whose bytes the trace lacks.
    pub(crate) images_not_kept: u64,
    pub(crate) memory: MemoryAccounts,
    pub(crate) copies: Copies,
    pub(crate) digests: Digests,
    /// What `record --outputs-of-exchanges` has kept; `null` if it was not asked to.
    pub(crate) exchanges: Option<Exchanges>,
    pub(crate) never_destroyed: Vec<LeakedObjects>,
    pub(crate) in_flight: Vec<CallFacts>,
    /// The first few.
    pub(crate) failed: Vec<CallFacts>,
    /// Messages of the recorder: why it stopped, functions that it does not know.
    pub(crate) remarks: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct TraceFacts {
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) packed: bool,
    /// `MAJOR.MINOR`.
    pub(crate) format: String,
    pub(crate) blobs: u64,
    /// Uncompressed.
    pub(crate) blob_bytes: u64,
    pub(crate) recorder_version: Option<String>,
    /// The policy for bytes copied to devices: `all`, `hash`, `none`.
    pub(crate) payloads: Option<String>,
    /// The policy for bytes copied from devices.
    pub(crate) outputs: Option<String>,
    /// Which calls have call stacks: `off`, `some` or `all`; `None` if the recorder knew none.
    pub(crate) stacks: Option<String>,
    /// How many of them are distinct.
    pub(crate) distinct_stacks: u64,
    /// Its source, if it was cut.
    pub(crate) cut: Option<CutFacts>,
    #[serde(flatten)]
    pub(crate) state: Completeness,
}

#[derive(Debug, Serialize)]
pub(crate) struct ProgramFacts {
    pub(crate) path: Option<String>,
    pub(crate) arguments: Vec<String>,
    pub(crate) directory: Option<String>,
    #[serde(flatten)]
    pub(crate) process: ProcessFacts,
    pub(crate) environment: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct MachineFacts {
    pub(crate) kernel: Option<String>,
    pub(crate) driver_path: Option<String>,
    /// As `cuDriverGetVersion` returns it, e.g. 13000.
    pub(crate) driver_version: Option<u64>,
    /// `null` for the null driver.
    pub(crate) driver_kind: Option<String>,
    pub(crate) devices: Vec<DeviceFacts>,
}

#[derive(Debug, Serialize)]
pub(crate) struct DeviceFacts {
    pub(crate) name: Option<String>,
    pub(crate) uuid: Option<String>,
    pub(crate) compute_capability: Option<String>,
    pub(crate) memory_bytes: Option<u64>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ThreadFacts {
    pub(crate) ordinal: u32,
    /// The operating system's thread id; 0 if the trace lacks it.
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) calls: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct CallCounts {
    pub(crate) total: u64,
    /// Calls that returned an error.
    pub(crate) failed: u64,
    pub(crate) in_flight: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct FunctionFacts {
    pub(crate) function: String,
    pub(crate) calls: u64,
    pub(crate) failed: u64,
    pub(crate) in_flight: u64,
    pub(crate) total_ns: Option<u64>,
    pub(crate) mean_ns: Option<u64>,
    pub(crate) max_ns: Option<u64>,
    #[serde(skip)]
    interest: Interest,
    #[serde(skip)]
    total_ticks: u64,
    #[serde(skip)]
    max_ticks: u64,
}

/// Who looks at the calls of a function.
#[derive(Clone, Copy, Debug, Default)]
struct Interest {
    /// The renderer observes them.
    renderer: bool,
    /// They return a `CUresult`, which tells whether they failed.
    returns_result: bool,
    /// `None` if the registry does not know it.
    function: Option<&'static Function>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct KernelFacts {
    /// As in its image; `null` if no call names it.
    pub(crate) name: Option<String>,
    pub(crate) launches: u64,
    pub(crate) failed: u64,
    /// How often launches of graphs run it.
    pub(crate) in_graphs: u64,
    /// The number of different grids.
    pub(crate) grids: u64,
    /// The first few of them.
    pub(crate) first_grids: Vec<[u64; 3]>,
    #[serde(skip)]
    all_grids: HashSet<[u64; 3]>,
    #[serde(skip)]
    last_grid: Option<[u64; 3]>,
}

#[derive(Debug, Serialize)]
pub(crate) struct CallFacts {
    pub(crate) call: u64,
    pub(crate) thread: u32,
    pub(crate) function: String,
    /// With all arguments.
    pub(crate) text: String,
    /// `null` for a call in flight.
    pub(crate) result: Option<CallResult>,
}

impl Summary {
    /// Reads all calls of a trace.
    ///
    /// # Errors
    /// If the file is gone, a chunk of calls is damaged, or a function is unknown.
    pub(crate) fn of(trace: &Trace, progress: &mut Progress) -> Result<Self, Failure> {
        let mut builder = SummaryBuilder::new(trace)?;
        let walked = trace.walk().run(|call| {
            progress.step();
            builder.add(call);
            Ok::<_, Failure>(())
        })?;
        crate::input::known_functions(trace, walked.unknown_function())?;
        Ok(builder.finish())
    }
}

/// The summary of the calls so far.
struct SummaryBuilder<'t> {
    trace: &'t Trace,
    summary: Summary,
    renderer: Renderer<'t>,
    /// By signature number.
    functions: Vec<Option<FunctionFacts>>,
    kernels: KernelEntries,
    images: Images,
    ranges: RangeCounter,
    digests: DigestCounter,
    clock: TraceClock,
    last: u64,
}

/// Kernels by name; caches the name of each handle.
#[derive(Debug, Default)]
struct KernelEntries {
    entries: Vec<KernelFacts>,
    by_name: HashMap<Option<String>, usize>,
    by_handle: HashMap<u64, usize>,
    /// Loops launch the same handle again and again.
    last: Option<(u64, usize)>,
    /// [`TraceState::kernel_version`] when the handles were looked up.
    version: u64,
}

impl KernelEntries {
    fn of_handle(&mut self, handle: u64, state: &TraceState) -> &mut KernelFacts {
        let version = state.kernel_version();
        if self.version != version {
            self.version = version;
            self.by_handle.clear();
            self.last = None;
        }
        let place = match self.last {
            Some((last, place)) if last == handle => place,
            _ => *self.by_handle.entry(handle).or_insert_with(|| {
                let name = state.kernel_name(handle).map(str::to_owned);
                *self.by_name.entry(name.clone()).or_insert_with(|| {
                    self.entries.push(KernelFacts {
                        name,
                        ..KernelFacts::default()
                    });
                    self.entries.len() - 1
                })
            }),
        };
        self.last = Some((handle, place));
        &mut self.entries[place]
    }
}

impl<'t> SummaryBuilder<'t> {
    fn new(trace: &'t Trace) -> io::Result<Self> {
        let threads = trace.threads().into_iter().zip(0..);
        let threads = threads.map(|(thread, ordinal)| ThreadFacts {
            ordinal,
            number: thread.number,
            name: thread.name,
            calls: 0,
        });
        let lost = trace.meta_value("markers.lost").map(|count| {
            format!("{count} ranges and marks from before the first call are not recorded")
        });
        let remarks = trace.forwarded().map(|(name, by)| {
            format!(
                "calls of `{}`, which the recorder does not know, are not recorded; first by {}",
                name.escape_debug(),
                by.escape_debug()
            )
        });
        let summary = Summary {
            trace: TraceFacts::of(trace)?,
            program: ProgramFacts::of(trace),
            machine: MachineFacts::of(trace),
            started_unix_ns: trace.head().start_unix,
            duration_ns: None,
            threads: threads.collect(),
            calls: CallCounts::default(),
            functions: Vec::new(),
            launches: 0,
            graph_launches: 0,
            graph_kernels: 0,
            kernels: Vec::new(),
            ranges: Vec::new(),
            marks: Vec::new(),
            images: Vec::new(),
            images_not_kept: 0,
            memory: MemoryAccounts::default(),
            copies: Copies::default(),
            digests: Digests::default(),
            exchanges: text(trace, "outputs-of-exchanges").map(|_| Exchanges::default()),
            never_destroyed: Vec::new(),
            in_flight: Vec::new(),
            failed: Vec::new(),
            remarks: remarks.chain(lost).collect(),
        };
        Ok(Self {
            trace,
            summary,
            renderer: Renderer::new(trace, Limits::TEXT, Scope::Work),
            functions: Vec::new(),
            kernels: KernelEntries::default(),
            images: Images::default(),
            ranges: RangeCounter::new(trace),
            digests: DigestCounter::new(trace),
            clock: TraceClock::of(trace),
            last: trace.head().start_ticks,
        })
    }

    fn finish(self) -> Summary {
        let mut summary = self.summary;
        summary.duration_ns = self.clock.since_start(self.last);
        summary.functions = self.functions.into_iter().flatten().collect();
        for facts in &mut summary.functions {
            let total = self.clock.between(0, facts.total_ticks);
            let returned = facts.calls - facts.in_flight;
            facts.total_ns = total;
            facts.mean_ns = total.and_then(|total| total.checked_div(returned));
            facts.max_ns = self.clock.between(0, facts.max_ticks);
        }
        let functions = &mut summary.functions;
        functions.sort_by(|a, b| {
            (b.total_ns, b.calls)
                .cmp(&(a.total_ns, a.calls))
                .then_with(|| a.function.cmp(&b.function))
        });
        summary.kernels = self.kernels.entries;
        let kernels = &mut summary.kernels;
        kernels.sort_by(|a, b| {
            (b.launches, b.in_graphs, &a.name).cmp(&(a.launches, a.in_graphs, &b.name))
        });
        (summary.ranges, summary.marks) = self.ranges.finish(self.clock, self.last);
        summary.digests = self.digests.finish();
        if let Some(exchanges) = &mut summary.exchanges {
            exchanges.finish();
        }
        summary.images = self.images.list;
        summary.images_not_kept = self.images.missing;
        summary.never_destroyed = never_destroyed(&self.renderer.state.state);
        summary
    }

    fn add(&mut self, call: &Call<'_>) {
        let interest = self.interest(call);
        if (interest.renderer || call.has_notes())
            && let Some(changes) = self.renderer.observe(call)
        {
            let state = &self.renderer.state.state;
            self.summary.memory.add(&changes, state);
        }
        self.count(call);
        let is_launch = |function: &Function| matches!(function.family, Family::Launch(_));
        self.ranges
            .add(call.ticks, interest.function.is_some_and(is_launch));
        if let Some(function) = interest.function {
            match function.family {
                Family::Launch(_) => {
                    LaunchShape::each(function, call, &mut |shape| self.add_launch(call, shape));
                }
                Family::Graph(GraphOp::Launch) => self.add_graph_launch(function, call),
                Family::ModuleLoad(_) | Family::LibraryLoad(_) | Family::Link(_) => {
                    self.images.observe(self.trace, call);
                }
                Family::Copy(_) | Family::Memset => {
                    let state = &self.renderer.state.state;
                    let copies = &mut self.summary.copies;
                    copies.observe(function, call, state);
                }
                _ => {}
            }
        }
        if call.has_notes() {
            self.add_notes(call, interest.function);
        }
    }

    fn add_notes(&mut self, call: &Call<'_>, function: Option<&'static Function>) {
        let kernel = match (&self.summary.exchanges, function) {
            (Some(_), Some(function)) => LaunchShape::of(function, call).kernel,
            _ => None,
        };
        let kernel = kernel.and_then(|handle| self.renderer.state.kernel_name(handle));
        let kernel = kernel.map(str::to_owned);
        for note in call.notes() {
            self.digests.add(&note, function);
            if let Some(exchanges) = &mut self.summary.exchanges {
                exchanges.add(call, kernel.as_deref(), &note);
            }
            match note {
                Note::Stopped(why) => {
                    self.summary
                        .remarks
                        .push(format!("recording stopped in call {}: {why}", call.index));
                }
                Note::HostSkipped(note) => self.summary.remarks.push(format!(
                    "call {}: host memory at {:#x} ({}), which the device can read, is not \
                     recorded: {}",
                    call.index,
                    note.address,
                    crate::quantity::bytes(note.length),
                    notes::skip_reason(note.reason),
                )),
                Note::UnknownSymbol(_) | Note::NestedCall(_) => {
                    let text = notes::text(&note, &self.renderer).unwrap_or_default();
                    let remark = format!("call {}: {text}", call.index);
                    self.summary.remarks.push(remark);
                }
                _ => {}
            }
        }
    }

    /// Who looks at calls of the function; creates its entry at the first call.
    fn interest(&mut self, call: &Call<'_>) -> Interest {
        let place = usize::from(call.signature.id);
        if let Some(Some(facts)) = self.functions.get(place) {
            return facts.interest;
        }
        if self.functions.len() <= place {
            self.functions.resize(place + 1, None);
        }
        let interest = Interest {
            renderer: self.renderer.depends_on(call),
            returns_result: call.signature.returns == "CUresult",
            function: function_of(call.signature),
        };
        self.functions[place] = Some(FunctionFacts {
            interest,
            function: call.signature.name.clone(),
            ..FunctionFacts::default()
        });
        interest
    }

    fn count(&mut self, call: &Call<'_>) {
        let end = call.leave.map_or(call.ticks, |leave| leave.ticks);
        self.last = self.last.max(end);
        let summary = &mut self.summary;
        if let Some(thread) = summary.threads.get_mut(call.thread as usize) {
            thread.calls += 1;
        }
        let place = usize::from(call.signature.id);
        let Some(Some(facts)) = self.functions.get_mut(place) else {
            return;
        };
        facts.calls += 1;
        summary.calls.total += 1;
        if call.leave.is_none() {
            facts.in_flight += 1;
            summary.calls.in_flight += 1;
            let facts = self.describe(call);
            self.summary.in_flight.push(facts);
            return;
        }
        let ticks = end.saturating_sub(call.ticks);
        facts.total_ticks = facts.total_ticks.saturating_add(ticks);
        facts.max_ticks = facts.max_ticks.max(ticks);
        if facts.interest.returns_result && call.result().is_some_and(|result| result != 0) {
            facts.failed += 1;
            summary.calls.failed += 1;
            if summary.failed.len() < SHOWN_FAILURES {
                let facts = self.describe(call);
                self.summary.failed.push(facts);
            }
        }
    }

    fn describe(&mut self, call: &Call<'_>) -> CallFacts {
        CallFacts {
            call: call.index,
            thread: call.thread,
            function: call.signature.name.clone(),
            text: self.renderer.call_text(call),
            result: result_of(call, self.trace.signatures()),
        }
    }

    fn add_launch(&mut self, call: &Call<'_>, shape: LaunchShape) {
        self.summary.launches += 1;
        let LaunchShape { kernel, grid, .. } = shape;
        let Some(handle) = kernel else { return };
        let kernel = self.kernels.of_handle(handle, &self.renderer.state);
        kernel.launches += 1;
        kernel.failed += u64::from(call.result().is_some_and(|result| result != 0));
        kernel.add_grid(grid);
    }

    fn add_graph_launch(&mut self, function: &'static Function, call: &Call<'_>) {
        self.summary.graph_launches += 1;
        let state = &self.renderer.state;
        let handle = Effects::of(function).handle_of(call, Kind::GraphExec);
        let exec = handle.and_then(|handle| state.state.graphs.exec(handle));
        let active = exec.and_then(Exec::known_active);
        for (_, work) in active.into_iter().flatten() {
            let Work::Kernel(node) = work else { continue };
            self.summary.graph_kernels += 1;
            if node.function != 0 {
                let kernel = self.kernels.of_handle(node.function, state);
                kernel.in_graphs += 1;
                kernel.add_grid(node.grid);
            }
        }
    }
}

impl KernelFacts {
    fn add_grid(&mut self, grid: Option<[u64; 3]>) {
        if grid == self.last_grid {
            return;
        }
        self.last_grid = grid;
        if let Some(grid) = grid
            && self.all_grids.insert(grid)
        {
            self.grids += 1;
            if self.first_grids.len() < SHOWN_GRIDS {
                self.first_grids.push(grid);
            }
        }
    }
}

impl TraceFacts {
    fn of(trace: &Trace) -> io::Result<Self> {
        let head = trace.head();
        let (blobs, blob_bytes) = trace.blobs().fold((0, 0_u64), |(count, sum), (_, length)| {
            (count + 1, sum + length)
        });
        Ok(Self {
            path: trace.path().display().to_string(),
            bytes: std::fs::metadata(trace.path())?.len(),
            packed: head.flags & FILE_PACKED != 0,
            format: format!("{}.{}", head.major, head.minor),
            blobs,
            blob_bytes,
            recorder_version: text(trace, "recorder.version"),
            payloads: text(trace, "payloads"),
            outputs: text(trace, "outputs"),
            stacks: text(trace, "stacks"),
            distinct_stacks: trace.stack_count() as u64,
            cut: CutFacts::of(trace),
            state: Completeness::of(trace),
        })
    }
}

impl ProgramFacts {
    fn of(trace: &Trace) -> Self {
        let arguments = (0..)
            .map_while(|place: usize| text(trace, &format!("argument.{place}")))
            .collect();
        let environment = trace
            .meta()
            .iter()
            .filter_map(|(key, value)| {
                Some((key.strip_prefix("environment.")?.to_owned(), value.clone()))
            })
            .collect();
        Self {
            path: text(trace, "program"),
            arguments,
            directory: text(trace, "directory"),
            process: ProcessFacts::of(trace),
            environment,
        }
    }
}

impl MachineFacts {
    fn of(trace: &Trace) -> Self {
        // Ignores `device.count`, which a damaged or hostile trace may inflate.
        let devices = (0..)
            .map(|place: usize| {
                let of = |what: &str| text(trace, &format!("device.{place}.{what}"));
                let key = format!("device.{place}.memory");
                DeviceFacts {
                    name: of("name"),
                    uuid: of("uuid"),
                    compute_capability: of("compute-capability"),
                    memory_bytes: number(trace, &key),
                }
            })
            .take_while(|device| device.name.is_some() || device.compute_capability.is_some())
            .collect();
        Self {
            kernel: text(trace, "host.kernel"),
            driver_path: text(trace, "driver.path"),
            driver_version: number(trace, "driver.version"),
            driver_kind: text(trace, "driver.kind"),
            devices,
        }
    }
}

#[cfg(test)]
mod tests;
