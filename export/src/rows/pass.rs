//! The pass: reads the calls in order, keeps the driver's state, and hands out rows.

use std::collections::BTreeMap;
use std::rc::Rc;

use cutape_analyzer::{Analyzer, Finding, TraceContext};
use cutape_format::{
    Call, Enumeration, Error, MarkerAction, Trace, TraceClock, WalkSummary, marked_ranges,
};
use cutape_model::{Changes, Effects, Scope, TraceState, function_of};
use cutape_registry::{Family, Kind, LinkOp};

use super::arguments::{Decoder, Plans};
use super::images::Images;
use super::lifetimes::Lifetimes;
use super::reference::CallRef;
use super::row::{CallRow, FindingRow, ImageRow, RangeRow, TraceRow};
use super::sink::Sink;
use super::work::{Submission, WorkRows, is_work};

/// One pass over a trace.
#[derive(Clone, Copy)]
pub struct Rows<'t> {
    trace: &'t Trace,
    /// Set if findings are wanted.
    context: Option<&'t dyn TraceContext>,
}

impl<'t> Rows<'t> {
    /// All rows but findings.
    pub fn of(trace: &'t Trace) -> Self {
        Self {
            trace,
            context: None,
        }
    }

    /// Findings too. The context is the trace itself, or one that also knows symbols.
    pub fn with_findings(self, context: &'t dyn TraceContext) -> Self {
        Self {
            context: Some(context),
            ..self
        }
    }

    /// Reads all calls. The summary says which function a damaged trace's table lacks.
    ///
    /// # Errors
    /// Those of the sink; [`cutape_format::Error::Damaged`] at a chunk that cannot be read, after
    /// the rows before it.
    pub fn run<S: Sink>(self, sink: &mut S) -> Result<WalkSummary, S::Error> {
        self.run_with(sink, &mut || {})
    }

    /// The same; `each` is called after each call.
    ///
    /// # Errors
    /// As [`Rows::run`].
    pub fn run_with<S: Sink>(
        self,
        sink: &mut S,
        each: &mut dyn FnMut(),
    ) -> Result<WalkSummary, S::Error> {
        sink.trace(&TraceRow::of(self.trace))?;
        self.ranges(sink)?;
        let mut pass = Pass::new(self.trace);
        let mut analyzer = self.context.map(|context| (context, Analyzer::new()));
        let walked = self.trace.walk().run(|call| {
            let row = pass.call(call, sink)?;
            if let Some((context, analyzer)) = &mut analyzer {
                let found = analyzer.push(*context, call);
                for finding in &found {
                    let call = Some(row);
                    sink.finding(&FindingRow { finding, call })?;
                }
            }
            each();
            Ok::<_, S::Error>(())
        })?;
        let objects = (&pass.state.state, &pass.images);
        pass.lifetimes.finish(objects, pass.clock, sink)?;
        if let Some((context, mut analyzer)) = analyzer {
            let found = analyzer.finish(context, self.trace.has_all_calls());
            let calls = pass.calls_of(&found)?;
            for finding in &found {
                let call = finding.call.as_ref();
                let call = call.and_then(|call| calls.get(&call.index)).copied();
                sink.finding(&FindingRow { finding, call })?;
            }
            sink.repeats(analyzer.take_repeats())?;
        }
        Ok(walked)
    }

    fn ranges<S: Sink>(&self, sink: &mut S) -> Result<(), S::Error> {
        let clock = TraceClock::of(self.trace);
        let markers = self.trace.markers();
        let ranges = marked_ranges(&markers);
        let mut paths: Vec<String> = Vec::with_capacity(ranges.len());
        for range in &ranges {
            // A parent begins before its children.
            let parent = range.parent.and_then(|parent| paths.get(parent));
            paths.push(match parent {
                Some(parent) => format!("{parent}/{}", range.name),
                None => range.name.clone(),
            });
        }
        let begins = markers
            .iter()
            .filter(|marker| matches!(marker.action, MarkerAction::Push | MarkerAction::Start(_)));
        for ((range, path), marker) in ranges.iter().zip(&paths).zip(begins) {
            sink.range(&RangeRow {
                name: &range.name,
                path,
                domain: Some(&*range.domain).filter(|domain| !domain.is_empty()),
                thread: range.thread,
                is_mark: false,
                is_open: range.end.is_none(),
                is_pushed: marker.action == MarkerAction::Push,
                begin_ns: clock.since_start(range.begin),
                end_ns: range.end.and_then(|end| clock.since_start(end)),
                payload: marker.payload,
            })?;
        }
        for mark in markers
            .iter()
            .filter(|marker| marker.action == MarkerAction::Mark)
        {
            sink.range(&RangeRow {
                name: &mark.text,
                path: &mark.text,
                domain: Some(&*mark.domain).filter(|domain| !domain.is_empty()),
                thread: mark.thread,
                is_mark: true,
                is_open: false,
                is_pushed: false,
                begin_ns: clock.since_start(mark.ticks),
                end_ns: None,
                payload: mark.payload,
            })?;
        }
        Ok(())
    }
}

/// What all calls of a function share.
struct Plan {
    effects: Effects,
    /// They launch, copy or wait.
    is_work: bool,
    /// They load, link or make images.
    has_images: bool,
}

/// The pass after the calls so far.
struct Pass<'t> {
    trace: &'t Trace,
    clock: TraceClock,
    /// The names of results.
    results: Option<&'t Enumeration>,
    state: TraceState,
    /// By signature number; `None` inside: not in the registry.
    plans: Vec<Option<Option<Rc<Plan>>>>,
    decoding: Plans<'t>,
    images: Images,
    new_images: Vec<ImageRow>,
    lifetimes: Lifetimes,
    work: WorkRows,
}

impl<'t> Pass<'t> {
    fn new(trace: &'t Trace) -> Self {
        Self {
            trace,
            clock: TraceClock::of(trace),
            results: trace.signatures().enumeration("CUresult"),
            state: TraceState::new(Scope::Work),
            plans: Vec::new(),
            decoding: Plans::default(),
            images: Images::default(),
            new_images: Vec::new(),
            lifetimes: Lifetimes::default(),
            work: WorkRows::default(),
        }
    }

    fn plan(&mut self, call: &Call<'_>) -> Option<Rc<Plan>> {
        let place = usize::from(call.signature.id);
        if self.plans.len() <= place {
            self.plans.resize_with(place + 1, || None);
        }
        let new = || {
            let function = function_of(call.signature)?;
            Some(Rc::new(Plan {
                effects: Effects::of(function),
                is_work: is_work(function),
                has_images: matches!(
                    function.family,
                    Family::ModuleLoad(_)
                        | Family::LibraryLoad(_)
                        | Family::Link(LinkOp::AddData { .. } | LinkOp::AddFile { .. })
                ),
            }))
        };
        self.plans.get_mut(place)?.get_or_insert_with(new).clone()
    }

    /// The rows of a call.
    fn call<S: Sink>(&mut self, call: &Call<'_>, sink: &mut S) -> Result<CallRef, S::Error> {
        let row = call_ref(call, self.clock);
        let plan = self.plan(call);
        let captures = !self.state.state.captures.is_empty();
        let changes = match plan.as_deref().filter(|plan| plan.is_work) {
            // What a call enqueues depends on the state before it.
            Some(plan) => {
                self.call_row(call, row, Some(plan), sink)?;
                let submission = Submission {
                    effects: &plan.effects,
                    call,
                    row,
                };
                let state = &mut self.state;
                self.work.add(&submission, state, &self.images, sink)?;
                self.state.observe(call)
            }
            // What it created has labels in its arguments.
            None => {
                let changes = self.state.observe(call);
                self.call_row(call, row, plan.as_deref(), sink)?;
                changes
            }
        };
        let has_images = plan.is_some_and(|plan| plan.has_images);
        let loaded = match has_images {
            true => self.images_of(call, row, sink)?,
            false => None,
        };
        if let Some(changes) = changes {
            if let Some(hash) = &loaded {
                self.loaded(&changes, hash);
            }
            let state = (&self.state.state, &mut self.images);
            let when = (self.clock, row, captures);
            self.lifetimes.changed(&changes, state, when, sink)?;
        }
        Ok(row)
    }

    fn call_row<S: Sink>(
        &self,
        call: &Call<'_>,
        row: CallRef,
        plan: Option<&Plan>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let returns_result = call.signature.returns == "CUresult";
        let result = row.result.filter(|_| returns_result);
        let name = result.and_then(|result| self.results?.name_of(i64::from(result)));
        let decoder = Decoder {
            trace: self.trace,
            state: &self.state,
            plans: &self.decoding,
        };
        sink.call(&CallRow {
            call: row,
            function: &call.signature.name,
            section: plan.map(|plan| plan.effects.function.section),
            result_name: name,
            failed: result.is_some_and(|result| result != 0),
            has_work: plan.is_some_and(|plan| plan.is_work),
            caller: call.caller,
            stack: call.stack(),
            record: call,
            decoder: &decoder,
        })
    }

    /// The rows of a call's new images, and the hash of the image that it loads.
    fn images_of<S: Sink>(
        &mut self,
        call: &Call<'_>,
        row: CallRef,
        sink: &mut S,
    ) -> Result<Option<String>, S::Error> {
        let new = &mut self.new_images;
        let loaded = self.images.of_call(self.trace, call, row, new);
        for image in new.drain(..) {
            sink.image(&image)?;
        }
        Ok(loaded)
    }

    /// The modules and libraries that a call created are of that image.
    fn loaded(&mut self, changes: &Changes, hash: &str) {
        let objects = &self.state.state.objects;
        for &id in &changes.created {
            let kind = objects.get(id).map(|object| object.kind);
            if matches!(kind, Some(Kind::Module | Kind::Library)) {
                self.images.loaded(id, hash);
            }
        }
    }

    /// The calls of findings.
    fn calls_of(&self, found: &[Finding]) -> Result<BTreeMap<u64, CallRef>, Error> {
        let indices = found
            .iter()
            .filter_map(|found| Some(found.call.as_ref()?.index));
        let mut wanted: Vec<u64> = indices.collect();
        wanted.sort_unstable();
        let mut calls = BTreeMap::new();
        let (Some(&first), Some(&last)) = (wanted.first(), wanted.last()) else {
            return Ok(calls);
        };
        let walk = self.trace.walk().calls(first..last.saturating_add(1));
        walk.run(|call| {
            if wanted.binary_search(&call.index).is_ok() {
                calls.insert(call.index, call_ref(call, self.clock));
            }
            Ok::<_, Error>(())
        })?;
        Ok(calls)
    }
}

fn call_ref(call: &Call<'_>, clock: TraceClock) -> CallRef {
    CallRef {
        index: call.index,
        thread: call.thread,
        enter_ns: clock.since_start(call.ticks),
        leave_ns: call.leave.and_then(|leave| clock.since_start(leave.ticks)),
        result: call.result(),
    }
}

impl TraceRow {
    /// What a trace says about itself.
    pub fn of(trace: &Trace) -> Self {
        let text = |key: &str| trace.meta_value(key).map(str::to_owned);
        let numbered = |begin: &str, end: &str| {
            let values = (0..).map_while(|place: usize| text(&format!("{begin}{place}{end}")));
            values.collect()
        };
        let name = trace.path().file_name().unwrap_or_default();
        Self {
            trace: name.to_string_lossy().into_owned(),
            process: trace.head().process,
            parent: number(trace, "parent"),
            rank: number(trace, "rank"),
            local_rank: number(trace, "rank.local"),
            program: text("program"),
            arguments: numbered("argument.", ""),
            started_unix_ns: trace.head().start_unix,
            recorder_version: text("recorder.version"),
            driver_version: number(trace, "driver.version"),
            driver_kind: text("driver.kind"),
            devices: numbered("device.", ".name"),
            exit_status: number(trace, "exit.status"),
            exit_signal: number(trace, "exit.signal"),
            still_recording: trace.is_still_recorded(),
            ended_early: trace
                .shortfall()
                .filter(|shortfall| shortfall.lacks_calls)
                .map(|shortfall| shortfall.why),
            threads: trace.threads(),
        }
    }
}

/// The value of a key of the trace, if it is a number.
fn number<N: std::str::FromStr>(trace: &Trace, key: &str) -> Option<N> {
    trace.meta_value(key)?.parse().ok()
}
