//! Everything that `cutape info` shows, counted in one pass over the rows of a trace.

mod copies;
mod cut;
mod digests;
mod exchanges;
mod facts;
mod functions;
mod images;
mod kept;
mod kernels;
mod objects;
mod payload_files;
mod ranges;
mod revealed;
mod snapshots;

use cutape_analyzer::{CallResult, result_of};
use cutape_export::rows::{
    CallRow, CopyRow, GraphKernelRow, GraphLaunchRow, ImageUseRow, LaunchRow, MemoryRow, ObjectRow,
    RangeRow, Rows, Sink, Wants,
};
use cutape_format::{Call, Error, Note, Trace, TraceClock, WalkSummary};
use cutape_render::{CallRenderer, Limits, notes, quantity};
use serde::Serialize;

pub use self::copies::Copies;
pub use self::cut::{CutFacts, StateFacts};
pub use self::digests::{DigestPlace, Digests};
pub use self::exchanges::{Exchanges, ExchangesOfKernel};
pub use self::facts::{
    DeviceFacts, MachineFacts, ProcessFacts, ProgramFacts, ThreadFacts, TraceFacts,
};
pub use self::functions::FunctionFacts;
pub use self::images::RecordedImage;
pub use self::kept::KeptFacts;
pub use self::kernels::KernelFacts;
pub use self::objects::{LeakedObject, LeakedObjects, MemoryAccount, MemoryAccounts, MemoryKind};
pub use self::payload_files::PayloadFileFacts;
pub use self::ranges::{MarkFacts, RangeFacts};
pub use self::revealed::Revealed;
pub use self::snapshots::MemorySnapshots;

use self::digests::DigestCounter;
use self::facts::text;
use self::images::Images;
use self::kernels::Kernels;
use self::objects::Leaks;
use self::ranges::RangeCounter;

/// How many failed calls to list.
const SHOWN_FAILURES: usize = 10;

/// The content of a trace. JSON keys are only ever added; times are nanoseconds, `null` if the
/// clock only counts.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// The file.
    pub trace: TraceFacts,
    /// The recorded program.
    pub program: ProgramFacts,
    /// The machine and its driver.
    pub machine: MachineFacts,
    /// Nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// From the start of the recording to the last recorded event.
    pub duration_ns: Option<u64>,
    /// By ordinal.
    pub threads: Vec<ThreadFacts>,
    /// How many calls.
    pub calls: CallCounts,
    /// By total time, then by number of calls.
    pub functions: Vec<FunctionFacts>,
    /// Kernels that calls launched, also into graphs that a stream captured.
    pub launches: u64,
    /// Launches of executable graphs, also into graphs that a stream captured.
    pub graph_launches: u64,
    /// Their kernel nodes, of graphs whose nodes are all known.
    pub graph_kernels: u64,
    /// By number of launches, then by how often graphs run them.
    pub kernels: Vec<KernelFacts>,
    /// In the order of their first begin.
    pub ranges: Vec<RangeFacts>,
    /// In their order.
    pub marks: Vec<MarkFacts>,
    /// In the order of first use.
    pub images: Vec<RecordedImage>,
    /// Uses of images whose bytes the trace lacks.
    pub images_not_kept: u64,
    /// The files that have payloads which the trace refers to and does not hold.
    pub payload_files: Vec<PayloadFileFacts>,
    /// The memory that the program allocated.
    pub memory: MemoryAccounts,
    /// What was copied.
    pub copies: Copies,
    /// The digests of device memory.
    pub digests: Digests,
    /// What `record --outputs-of-exchanges` has kept; `null` if it was not asked to.
    pub exchanges: Option<Exchanges>,
    /// How often `record --memory` has read device memory; `null` if it was not asked to.
    pub memory_snapshots: Option<MemorySnapshots>,
    /// What the trace tells whoever gets it.
    pub reveals: Revealed,
    /// Objects that the program created and never destroyed.
    pub never_destroyed: Vec<LeakedObjects>,
    /// Calls that did not return.
    pub in_flight: Vec<CallFacts>,
    /// The first few that returned an error.
    pub failed: Vec<CallFacts>,
    /// Messages of the recorder: why it stopped, functions that it does not know.
    pub remarks: Vec<String>,
}

/// How many calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CallCounts {
    /// All of them.
    pub total: u64,
    /// Calls that returned an error.
    pub failed: u64,
    /// Calls that did not return.
    pub in_flight: u64,
}

/// A call to be shown.
#[derive(Debug, Serialize)]
pub struct CallFacts {
    /// Its index.
    pub call: u64,
    /// The ordinal of its thread.
    pub thread: u32,
    /// The exported name.
    pub function: String,
    /// With all arguments.
    pub text: String,
    /// `null` for a call in flight.
    pub result: Option<CallResult>,
}

impl Summary {
    /// Reads all calls of a trace; `each` is called after each of them. The summary of the walk says
    /// which function a damaged trace's table lacks.
    ///
    /// # Errors
    /// If the file is gone, or a chunk of calls is damaged.
    pub fn of(trace: &Trace, each: impl FnMut()) -> Result<(Self, WalkSummary), Error> {
        let mut counter = Counter::new(trace)?;
        let walked = Rows::of(trace).run_with(&mut counter, each)?;
        let mut summary = counter.finish();
        let files = walked.payload_files(trace).into_iter();
        summary.payload_files = files.map(PayloadFileFacts::of).collect();
        Ok((summary, walked))
    }
}

/// The summary of the rows so far.
struct Counter<'t> {
    trace: &'t Trace,
    summary: Summary,
    calls: CallRenderer<'t>,
    /// By signature number.
    functions: Vec<Option<FunctionFacts>>,
    kernels: Kernels,
    images: Images,
    ranges: RangeCounter,
    digests: DigestCounter,
    leaks: Leaks,
    /// The end of the last call, in ticks.
    last: u64,
}

impl<'t> Counter<'t> {
    fn new(trace: &'t Trace) -> Result<Self, Error> {
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
            payload_files: Vec::new(),
            memory: MemoryAccounts::default(),
            copies: Copies::default(),
            digests: Digests::default(),
            exchanges: text(trace, "outputs-of-exchanges").map(|_| Exchanges::default()),
            memory_snapshots: text(trace, "memory").map(|_| MemorySnapshots::default()),
            reveals: Revealed::of(trace),
            never_destroyed: Vec::new(),
            in_flight: Vec::new(),
            failed: Vec::new(),
            remarks: remarks.chain(lost).collect(),
        };
        Ok(Self {
            trace,
            summary,
            calls: CallRenderer::new(trace, Limits::TEXT),
            functions: Vec::new(),
            kernels: Kernels::default(),
            images: Images::default(),
            ranges: RangeCounter::default(),
            digests: DigestCounter::new(trace),
            leaks: Leaks::default(),
            last: trace.head().start_ticks,
        })
    }

    fn finish(self) -> Summary {
        let clock = TraceClock::of(self.trace);
        let mut summary = self.summary;
        summary.duration_ns = clock.since_start(self.last);
        summary.functions = self.functions.into_iter().flatten().collect();
        let functions = &mut summary.functions;
        for facts in functions.iter_mut() {
            facts.finish(clock);
        }
        functions.sort_by(|a, b| {
            (b.total_ns, b.calls)
                .cmp(&(a.total_ns, a.calls))
                .then_with(|| a.function.cmp(&b.function))
        });
        summary.kernels = self.kernels.finish();
        (summary.ranges, summary.marks) = self.ranges.finish(clock, self.last);
        summary.digests = self.digests.finish();
        if let Some(exchanges) = &mut summary.exchanges {
            exchanges.finish();
        }
        summary.images = self.images.list;
        summary.images_not_kept = self.images.missing;
        summary.never_destroyed = self.leaks.finish();
        summary
    }

    #[cold]
    fn add_function(&mut self, place: usize, row: &CallRow<'_>) {
        if self.functions.len() <= place {
            self.functions.resize(place + 1, None);
        }
        if let Some(facts) = self.functions.get_mut(place) {
            let makes_labels = self.calls.depends_on(row.record);
            *facts = Some(FunctionFacts::new(row, makes_labels));
        }
    }

    #[cold]
    fn add_notes(&mut self, row: &CallRow<'_>) {
        let call = row.record;
        let kernel = self.summary.exchanges.as_ref().and_then(|_| row.kernel());
        for note in call.notes() {
            self.digests.add(&note, row.known);
            self.summary.reveals.add_note(&note);
            if let Some(exchanges) = &mut self.summary.exchanges {
                exchanges.add(call, kernel, &note);
            }
            if let Some(snapshots) = &mut self.summary.memory_snapshots {
                snapshots.add(&note);
            }
            let remark = match note {
                Note::Stopped(why) => format!("recording stopped in call {}: {why}", call.index),
                Note::HostSkipped(note) => format!(
                    "call {}: host memory at {:#x} ({}), which the device can read, is not \
                     recorded: {}",
                    call.index,
                    note.address,
                    quantity::bytes(note.length),
                    notes::skip_reason(note.reason),
                ),
                Note::UnknownSymbol(_) | Note::NestedCall(_) => {
                    let text = notes::text(&note, &self.calls).unwrap_or_default();
                    format!("call {}: {text}", call.index)
                }
                _ => continue,
            };
            self.summary.remarks.push(remark);
        }
    }

    fn describe(&mut self, row: &CallRow<'_>) -> CallFacts {
        let call = row.record;
        CallFacts {
            call: call.index,
            thread: call.thread,
            function: row.function.to_owned(),
            text: self.calls.call_text(call, |_| row.kernel()),
            result: result_of(call, self.trace.signatures()),
        }
    }
}

impl Sink for Counter<'_> {
    type Error = Error;

    const WANTS: Wants = Wants::NONE;

    fn range(&mut self, row: &RangeRow<'_>) -> Result<(), Error> {
        self.ranges.add_range(row);
        Ok(())
    }

    #[inline]
    fn call(&mut self, row: &CallRow<'_>) -> Result<(), Error> {
        let call: &Call<'_> = row.record;
        let place = usize::from(call.signature.id);
        if !matches!(self.functions.get(place), Some(Some(_))) {
            self.add_function(place, row);
        }
        let Some(Some(facts)) = self.functions.get_mut(place) else {
            return Ok(());
        };
        facts.add(row);
        if facts.reveals {
            self.summary.reveals.add(call);
        }
        let has_notes = call.has_notes();
        if facts.makes_labels || has_notes {
            self.calls.observe(call);
        }
        self.ranges.add(call.ticks, facts.is_launch);
        self.last = self.last.max(row.call.end_ticks());
        let summary = &mut self.summary;
        if let Some(thread) = summary.threads.get_mut(call.thread as usize) {
            thread.calls += 1;
        }
        summary.calls.total += 1;
        if call.leave.is_none() {
            summary.calls.in_flight += 1;
            let facts = self.describe(row);
            self.summary.in_flight.push(facts);
        } else if row.failed {
            summary.calls.failed += 1;
            if summary.failed.len() < SHOWN_FAILURES {
                let facts = self.describe(row);
                self.summary.failed.push(facts);
            }
        }
        if has_notes {
            self.add_notes(row);
        }
        Ok(())
    }

    fn image_use(&mut self, row: &ImageUseRow<'_>) -> Result<(), Error> {
        if let Some((image, content)) = self.images.add(row) {
            let facts = &image.facts;
            self.summary
                .reveals
                .add_image(facts.kind, &facts.targets, content);
        }
        Ok(())
    }

    fn launch(&mut self, row: &LaunchRow<'_>) -> Result<(), Error> {
        self.summary.launches += 1;
        self.kernels.add_launch(row);
        Ok(())
    }

    fn graph_launch(&mut self, row: &GraphLaunchRow) -> Result<(), Error> {
        self.summary.graph_launches += 1;
        self.summary.graph_kernels += row.kernels.unwrap_or(0);
        Ok(())
    }

    fn graph_kernel(&mut self, row: &GraphKernelRow<'_>) -> Result<(), Error> {
        self.kernels.add_in_graph(&row.launch);
        Ok(())
    }

    fn copy(&mut self, row: &CopyRow) -> Result<(), Error> {
        self.summary.copies.add(row);
        Ok(())
    }

    fn memory(&mut self, row: &MemoryRow) -> Result<(), Error> {
        self.summary.memory.add(row);
        Ok(())
    }

    fn object(&mut self, row: &ObjectRow<'_>) -> Result<(), Error> {
        self.leaks.add(row);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
