//! The pass: reads the calls in order, keeps the driver's state, and hands out rows.

use std::collections::BTreeMap;

use cutape_analyzer::{Analyzer, Finding, TraceContext};
use cutape_format::{
    Call, Enumeration, Error, MarkerAction, Trace, TraceClock, WalkSummary, marked_ranges,
};
use cutape_model::{Changes, Effects, Scope, TraceState, function_of};
use cutape_registry::{EventOp, Family, Function, Kind, LinkOp};

use super::arguments::{Decoder, Plans};
use super::images::Images;
use super::lifetimes::Lifetimes;
use super::reference::CallRef;
use super::row::{CallRow, FindingRow, RangeRow, TraceRow};
use super::sink::Sink;
use super::work::{Submission, WorkRows, is_wait, is_work, stream_mark};

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
        self.run_with(sink, || {})
    }

    /// The same; `each` is called after each call.
    ///
    /// # Errors
    /// As [`Rows::run`].
    pub fn run_with<S: Sink>(
        self,
        sink: &mut S,
        mut each: impl FnMut(),
    ) -> Result<WalkSummary, S::Error> {
        sink.trace(&TraceRow::of(self.trace))?;
        self.ranges(sink)?;
        let mut pass = Pass::new(self.trace);
        let mut analyzer = self.context.map(|context| (context, Analyzer::new()));
        let mut plans = CallPlans::default();
        let walked = self.trace.walk().run(|call| {
            let plan = plans.of::<S>(call, &mut pass);
            let row = pass.call(call, plan, sink)?;
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
                begin_ticks: range.begin,
                end_ticks: range.end,
                payload: marker.payload,
                clock,
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
                begin_ticks: mark.ticks,
                end_ticks: None,
                payload: mark.payload,
                clock,
            })?;
        }
        Ok(())
    }
}

/// What all calls of a function share.
struct Plan<'t> {
    /// Of a function that the registry knows.
    effects: Option<Effects>,
    /// They launch or copy, or wait and the sink takes waits.
    has_work: bool,
    /// They record an event in a stream, or have it call a function of the program.
    marks_stream: bool,
    /// They load, link or make images.
    has_images: bool,
    /// They load or link them.
    takes_images: bool,
    /// The state depends on them.
    changes_state: bool,
    /// The names of results, if they return a `CUresult`.
    results: Option<&'t Enumeration>,
    returns_result: bool,
}

/// The plans by signature number, each made at the first call.
#[derive(Default)]
struct CallPlans<'t>(Vec<Option<Plan<'t>>>);

impl<'t> CallPlans<'t> {
    #[inline]
    fn of<S: Sink>(&mut self, call: &Call<'_>, pass: &mut Pass<'t>) -> &Plan<'t> {
        let place = usize::from(call.signature.id);
        if self.0.len() <= place {
            self.0.resize_with(place + 1, || None);
        }
        #[expect(clippy::indexing_slicing, reason = "the table is long enough")]
        let plan = &mut self.0[place];
        plan.get_or_insert_with(|| pass.plan::<S>(call))
    }
}

/// The pass after the calls so far.
struct Pass<'t> {
    trace: &'t Trace,
    clock: TraceClock,
    state: TraceState,
    decoding: Plans<'t>,
    images: Images,
    lifetimes: Lifetimes,
    work: WorkRows,
}

impl<'t> Pass<'t> {
    fn new(trace: &'t Trace) -> Self {
        Self {
            trace,
            clock: TraceClock::of(trace),
            state: TraceState::new(Scope::Work),
            decoding: Plans::default(),
            images: Images::default(),
            lifetimes: Lifetimes::default(),
            work: WorkRows::default(),
        }
    }

    fn plan<S: Sink>(&mut self, call: &Call<'_>) -> Plan<'t> {
        let function = function_of(call.signature);
        let is = |what: fn(&Function) -> bool| function.is_some_and(what);
        let returns_result = call.signature.returns == "CUresult";
        let results = self.trace.signatures().enumeration("CUresult");
        Plan {
            effects: function.map(Effects::of),
            has_work: is(is_work) || (S::WANTS.waits && is(is_wait)),
            marks_stream: is(|function| {
                matches!(
                    function.family,
                    Family::Event(EventOp::Record) | Family::HostFunction | Family::StreamCallback
                )
            }),
            has_images: is(|function| {
                matches!(
                    function.family,
                    Family::ModuleLoad(_) | Family::LibraryLoad(_) | Family::Link(_)
                )
            }),
            takes_images: is(|function| {
                matches!(
                    function.family,
                    Family::ModuleLoad(_)
                        | Family::LibraryLoad(_)
                        | Family::Link(LinkOp::AddData { .. } | LinkOp::AddFile { .. })
                )
            }),
            changes_state: self.state.depends_on(call),
            results: results.filter(|_| returns_result),
            returns_result,
        }
    }

    /// The rows of a call.
    fn call<S: Sink>(
        &mut self,
        call: &Call<'_>,
        plan: &Plan<'_>,
        sink: &mut S,
    ) -> Result<CallRef, S::Error> {
        let row = CallRef::of(call, self.clock);
        let captures = !self.state.state.captures.is_empty();
        if plan.has_work {
            // What a call enqueues depends on the state before it.
            self.call_row(call, row, plan, sink)?;
            if let Some(effects) = &plan.effects {
                let submission = Submission { effects, call, row };
                let state = &mut self.state;
                self.work.add(&submission, state, &self.images, sink)?;
            }
        }
        if plan.marks_stream
            && let Some(effects) = &plan.effects
        {
            let submission = Submission { effects, call, row };
            stream_mark(&submission, &mut self.state, sink)?;
        }
        let changes = match plan.changes_state {
            true => self.state.observe(call),
            false => None,
        };
        if !plan.has_work {
            // What it created has labels in its arguments.
            self.call_row(call, row, plan, sink)?;
        }
        let loaded = match plan.has_images {
            true => {
                let takes = plan.takes_images;
                self.images.of_call(self.trace, call, (row, takes), sink)?
            }
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
        plan: &Plan<'_>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let decoder = Decoder {
            trace: self.trace,
            state: &self.state,
            plans: &self.decoding,
        };
        sink.call(&CallRow {
            call: row,
            function: &call.signature.name,
            known: plan.effects.as_ref().map(|effects| effects.function),
            failed: plan.returns_result && row.result.is_some_and(|result| result != 0),
            has_work: plan.has_work,
            record: call,
            results: plan.results,
            decoder: &decoder,
        })
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
                calls.insert(call.index, CallRef::of(call, self.clock));
            }
            Ok::<_, Error>(())
        })?;
        Ok(calls)
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
