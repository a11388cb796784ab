//! The analyzer: for each call its plan, its checks, then what it changes.

use std::collections::{BTreeSet, HashMap};

use cutape_format::Call;
use cutape_registry::{Family, Function, FunctionOp, Kind, rules as rule_ids};

use crate::call_site::{call_site, code_place, history, name_of, place, symbol};
use crate::class::class_of;
use crate::context::TraceContext;
use crate::decode::Names;
use crate::finding::{
    CallResult, CallSite, Class, CodePlace, Confidence, Finding, FindingKey, Severity,
};
use crate::pairs::{ChosenWork, Pairs, ProvenPair, UnorderedPair};
use crate::performance::{Performance, Watched};
use crate::plan::Plan;
use crate::reported::Reported;
use crate::rules::silence::{Silence, not_about_calls, silence, succeeded};
use crate::rules::undefined::is_same_source_name;
use crate::rules::{self, Check, Deferral, Draft, Gates, Mistake, Rules};
use crate::state::State;
use crate::state::errata::DriverWithDevices;
use cutape_model::{Gaps, Site, function_of};

/// A function of the trace.
#[derive(Debug)]
struct Checked {
    plan: Plan,
    rules: Rules,
    gates: Gates,
    watched: Watched,
}

/// A finding that is no misuse if a later call succeeds.
#[derive(Debug)]
struct Deferred {
    /// The function without its suffix.
    base: &'static str,
    until: Deferral,
    /// The call that failed.
    call: u64,
    /// The program has launched a function of the module: it goes on without what it did not find.
    is_optional: bool,
    finding: Finding,
}

impl Deferred {
    /// Whether a success of the function may show that there was no mistake.
    fn is_about(&self, function: &Function) -> bool {
        let is_launch = matches!(function.family, Family::Launch(_));
        let is_again = self.base == function.base;
        match self.until {
            Deferral::Call => is_again,
            Deferral::Function(_) => is_again || is_launch,
            Deferral::Lookup(..) => {
                let finds = matches!(
                    function.family,
                    Family::Function(FunctionOp::Find { .. })
                        | Family::Kernel(FunctionOp::Find { .. })
                        | Family::Global(_)
                );
                is_again || finds || is_launch && !self.is_optional
            }
            Deferral::Image(_) | Deferral::StickyError(_) | Deferral::Reuse(_) => false,
        }
    }
}

/// Finds API misuse in the calls of one process.
#[derive(Debug, Default)]
pub struct Analyzer {
    /// By the number that the trace gives the function; `None` inside: not in the registry.
    functions: Vec<Option<Option<Box<Checked>>>>,
    state: State,
    performance: Performance,
    reported: Reported,
    deferred: Vec<Deferred>,
    /// Empty between calls.
    drafts: Vec<Draft>,
    killed: bool,
    gaps: Gaps,
    pairs: Option<Pairs>,
    chosen: Option<ChosenWork>,
    question: Option<Question>,
}

/// Why a rule says nothing about a call.
#[derive(Debug)]
struct Question {
    rule: String,
    call: u64,
    answer: Option<Silence>,
}

impl Analyzer {
    /// Before the first call of a trace.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks, before the first call, why a rule says nothing about a call.
    pub fn ask(&mut self, rule: &str, call: u64) {
        self.question = Some(Question {
            rule: rule.to_owned(),
            call,
            answer: not_about_calls(rule),
        });
    }

    /// Collects, from before the first call on, the pairs of calls that use the same memory and that
    /// nothing orders.
    pub fn collect_pairs(&mut self) {
        self.pairs = Some(Pairs::default());
    }

    /// What [`Analyzer::collect_pairs`] has collected.
    pub fn take_pairs(&mut self) -> Vec<UnorderedPair> {
        let pairs = self.pairs.take();
        pairs.map(Pairs::into_found).unwrap_or_default()
    }

    /// Finds out, from before the first call on, which two of these calls nothing orders.
    pub fn collect_order(&mut self, calls: BTreeSet<u64>) {
        self.chosen = Some(ChosenWork::new(calls));
    }

    /// What [`Analyzer::collect_order`] has found out: pairs, the earlier call first.
    pub fn take_unordered(&mut self) -> BTreeSet<(u64, u64)> {
        let chosen = self.chosen.take();
        chosen.map(ChosenWork::into_unordered).unwrap_or_default()
    }

    /// Asks, before the first call, about the defects of another driver than the recorded one.
    pub fn ask_about(&mut self, driver: DriverWithDevices) {
        self.state.errata.present = Some(driver);
    }

    /// Says, before the first call, what replays have shown: findings about these pairs are errors.
    pub fn prove(&mut self, pairs: impl IntoIterator<Item = ProvenPair>) {
        let proven = pairs.into_iter();
        let proven = proven.map(|pair| ((pair.first, pair.second), pair.evidence));
        self.state.proven = proven.collect();
    }

    /// The answer to [`Analyzer::ask`]; `None` if the call did not come.
    pub fn answer(&self) -> Option<&Silence> {
        self.question.as_ref()?.answer.as_ref()
    }

    /// What is wrong with a call. Calls come in the order of the trace, each once; one in flight
    /// when it is certain that it will not return.
    pub fn push(&mut self, context: &dyn TraceContext, call: &Call<'_>) -> Vec<Finding> {
        let id = usize::from(call.signature.id);
        if self.functions.len() <= id {
            self.functions.resize_with(id + 1, || None);
        }
        let checked = self.functions[id].get_or_insert_with(|| {
            let plan = Plan::new(function_of(call.signature)?);
            let rules = rules::rules_of(&plan);
            let gates: Vec<_> = rules.iter().map(|(when, _)| *when).collect();
            let gates = Gates::of(&gates);
            let watched = Watched::of(&plan);
            Some(Box::new(Checked {
                plan,
                rules,
                gates,
                watched,
            }))
        });
        if call.has_notes() {
            self.state.notes(call);
        }
        self.state.settle(call.ticks, call.thread);
        if call.has_notes() {
            self.state.restore_memory(call);
        }
        self.state.in_flight |= call.leave.is_none();
        let checked = checked.take();
        if self.gaps.is_before(call) {
            self.state.apply_gap(call);
            self.apply_gap();
        }
        let question = self.question.take();
        if let Some(mut question) = question {
            if question.call == call.index && question.answer.is_none() {
                let answer = checked
                    .as_deref()
                    .map(|checked| self.silence(context, call, checked, &question.rule));
                question.answer = Some(answer.unwrap_or(Silence::UnknownFunction));
            }
            self.question = Some(question);
        }
        let Some(checked) = checked else {
            return Vec::new();
        };
        let is_irrelevant = checked.plan.is_trivial && checked.rules.is_empty();
        let findings = match is_irrelevant && !rules::init::is_uninitialized(call) {
            true => {
                self.observe(context, call, &checked, None);
                Vec::new()
            }
            false => self.analyze(context, call, &checked),
        };
        self.functions[id] = Some(Some(checked));
        findings
    }

    /// Takes in what a call creates, changes or ends, where nothing is to be found: faster than
    /// [`Analyzer::push`], and what follows needs [`Analyzer::skip_calls`].
    pub fn pass(&mut self, context: &dyn TraceContext, call: &Call<'_>) {
        let function = function_of(call.signature);
        let changes_nothing = function.is_none_or(|function| function.changes_no_state());
        // A launch in a stream that captures makes a node.
        if !(changes_nothing && call.succeeded() && self.state.captures.is_empty()) {
            self.push(context, call);
        }
    }

    /// Says that calls of the first so many threads are missing before the next one. Those that create
    /// or change what is live have come.
    pub fn skip_calls(&mut self, threads: usize) {
        self.state.apply_gap_of_all(threads);
        self.apply_gap();
    }

    /// Calls are missing here: they may have shown that what looks like a mistake is none.
    fn apply_gap(&mut self) {
        self.performance.apply_gap();
        self.deferred.retain(|deferred| match deferred.until {
            Deferral::Function(_) | Deferral::Lookup(..) => false,
            Deferral::Call => {
                let mut functions = cutape_registry::FUNCTIONS.iter();
                !functions
                    .any(|function| function.base == deferred.base && function.changes_no_state())
            }
            Deferral::Image(_) | Deferral::StickyError(_) | Deferral::Reuse(_) => true,
        });
    }

    fn silence(
        &mut self,
        context: &dyn TraceContext,
        call: &Call<'_>,
        checked: &Checked,
        rule: &str,
    ) -> Silence {
        let Checked { plan, rules, .. } = checked;
        let mut ask = |call: &Call<'_>| {
            self.state.observe(plan, call);
            let check = Check {
                state: &self.state,
                reported: &self.reported,
                context,
                plan,
                call,
                site: Site::of(plan.function.name, call),
            };
            silence(&check, rules, rule)
        };
        let hypothetical = succeeded(call).map(|call| ask(&call));
        match (ask(call), hypothetical) {
            (Silence::Right(_) | Silence::Precondition(_), Some(Silence::Found(_))) => {
                Silence::CallFailed(rules::result_name(call.result()))
            }
            (answer, _) => answer,
        }
    }

    fn analyze(
        &mut self,
        context: &dyn TraceContext,
        call: &Call<'_>,
        checked: &Checked,
    ) -> Vec<Finding> {
        let Checked {
            plan, rules, gates, ..
        } = checked;
        let site = Site::of(plan.function.name, call);
        let mut reported = false;
        let mut findings = Vec::new();
        self.state.observe(plan, call);
        if call.succeeded() {
            if let Some(pairs) = &mut self.pairs {
                pairs.add(&self.state, plan, call);
            }
            if let Some(chosen) = &mut self.chosen {
                chosen.add(&self.state, call);
            }
        }
        let passed = gates.passed(&self.state, plan, call);
        if !passed.is_empty() || rules::init::is_uninitialized(call) {
            self.reported.make_room();
            let check = Check {
                state: &self.state,
                reported: &self.reported,
                context,
                plan,
                call,
                site,
            };
            let mut drafts = std::mem::take(&mut self.drafts);
            rules::check(&check, rules, passed, &mut drafts);
            reported = !drafts.is_empty();
            findings = self.write_all(context, call, plan, &mut drafts);
            self.drafts = drafts;
        }
        if !self.deferred.is_empty() {
            match call.succeeded() {
                true => self.cancel_deferred(plan, call),
                false => findings.extend(self.confirm_deferred(plan, call)),
            }
        }
        self.observe(context, call, checked, Some(&site));
        self.state.update(plan, call, context, site, reported);
        if let Some(chosen) = &mut self.chosen {
            chosen.number(&self.state, call);
        }
        let freed = rule_ids::MEMORY_USE_AFTER_FREE_KERNEL_ARGUMENT;
        if findings.iter().any(|finding| finding.rule == freed) {
            self.state.accuse(call.index);
        }
        findings
    }

    /// A call succeeded: what was a try before it is no misuse. A launch shows that the program did
    /// without.
    fn cancel_deferred(&mut self, plan: &Plan, call: &Call<'_>) {
        let concerned = (self.deferred.iter()).any(|deferred| deferred.is_about(plan.function));
        if !concerned {
            return;
        }
        let kinds = [Kind::Function, Kind::Kernel].into_iter();
        let mut handles = kinds.filter_map(|kind| Some((kind, plan.handle_of(call, kind)?)));
        let about = handles
            .next()
            .and_then(|(kind, handle)| self.state.objects.resolve(kind, handle).live());
        let is_launch = about.is_some() && matches!(plan.function.family, Family::Launch(_));
        let name = plan.at("name").and_then(|position| call.string(position));
        let owner = self.state.image_owner(plan, call);
        if let Some(launched) = about.filter(|_| is_launch) {
            for deferred in &mut self.deferred {
                let Deferral::Lookup(owner, _) = deferred.until else {
                    continue;
                };
                let mut owners = self.state.objects.ancestors(launched);
                deferred.is_optional |= owners.any(|id| id == owner);
            }
        }
        self.deferred.retain(|deferred| {
            let is_again = deferred.base == plan.function.base;
            let is_cancelled = match &deferred.until {
                Deferral::Call => is_again && about.is_none(),
                Deferral::Function(function) => about == Some(*function) && (is_launch || is_again),
                Deferral::Image(_) | Deferral::StickyError(_) | Deferral::Reuse(_) => false,
                Deferral::Lookup(module, wanted) => {
                    owner == Some(*module)
                        && name
                            .as_ref()
                            .is_some_and(|name| name == wanted || is_same_source_name(name, wanted))
                }
            };
            !is_cancelled
        });
    }

    /// A call failed for what an earlier one did not return. If the finding about that one was put
    /// off, it is certain now.
    fn confirm_deferred(&mut self, plan: &Plan, call: &Call<'_>) -> Option<Finding> {
        let used = self.state.undefined_use(plan, call)?;
        let cause = used.failure.site.index;
        let position = (self.deferred.iter()).position(|deferred| deferred.call == cause)?;
        let mut finding = self.deferred.swap_remove(position).finding;
        finding.chain = vec![
            format!("{} (call {cause}) failed", used.failure.site.function),
            format!(
                "its output, {:#x}, used by {} (call {})",
                used.value, plan.function.name, call.index
            ),
        ];
        Some(finding)
    }

    #[inline]
    fn observe(
        &mut self,
        context: &dyn TraceContext,
        call: &Call<'_>,
        checked: &Checked,
        site: Option<&Site>,
    ) {
        if call.succeeded() {
            let watched = (&checked.plan, checked.watched);
            self.performance
                .observe(watched, (call, site), &self.state, context);
        }
    }

    fn write_all(
        &mut self,
        context: &dyn TraceContext,
        call: &Call<'_>,
        plan: &Plan,
        drafts: &mut Vec<Draft>,
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        for draft in drafts.drain(..) {
            if draft.rule == rule_ids::LINK_OPTION_VALUES_LIFETIME
                && let Some(&link) = draft.objects.first()
                && let Some(data) = self.state.link_data_mut(link)
            {
                data.options_reported = true;
            }
            let is_launch = matches!(plan.function.family, Family::Launch(_));
            // It says what the deferred finding would say.
            self.deferred.retain(|deferred| match deferred.until {
                Deferral::Function(id) => !is_launch || !draft.objects.contains(&id),
                Deferral::Reuse(id) => {
                    draft.rule != rule_ids::MEMORY_REUSE_CROSS_STREAM
                        || !draft.objects.contains(&id)
                }
                _ => true,
            });
            let is_fork = draft.rule == rule_ids::INIT_FORK_CHILD_USE;
            self.state.init_reported |= match draft.severity {
                Some(Severity::Advice) if is_fork => false,
                _ => is_fork || rules::init::is_uninitialized(call),
            };
            self.state.host_addresses.is_reported |=
                draft.rule == rule_ids::MEMORY_HOST_POINTER_AS_KERNEL_ARGUMENT;
            if let Some(finding) = self.write(context, Some((call, plan)), &draft) {
                match draft.deferral {
                    Some(until) => self.deferred.push(Deferred {
                        base: plan.function.base,
                        until,
                        call: call.index,
                        is_optional: false,
                        finding,
                    }),
                    None => findings.push(finding),
                }
            }
        }
        findings
    }

    /// How many calls failed so far only because of one that a finding is about.
    pub fn consequences(&self) -> u64 {
        self.state.consequences
    }

    /// What the calls show together, and at the end of the program what is missing. If the trace
    /// lacks later calls, these may do what is missing, and nothing is found that depends on it.
    pub fn finish(&mut self, context: &dyn TraceContext, is_end: bool) -> Vec<Finding> {
        self.state.settle(u64::MAX, 0);
        if self.gaps.is_at_end(context.calls_left_out()) {
            self.state.forget_work();
            self.apply_gap();
        }
        let mut drafts = self.performance.finish(context);
        drafts.retain(|draft| is_end || draft.rule != rule_ids::PERFORMANCE_EVENT_TIMING_UNNEEDED);
        // A program that died could not clean up.
        self.killed |= context.meta("exit.signal").is_some();
        if is_end && !self.state.in_flight && !self.killed {
            drafts.extend(rules::at_end(&self.state, context));
        }
        // Modules that are never unloaded cost more than their loads.
        let grown: Vec<_> = drafts
            .iter()
            .filter(|draft| draft.rule == rule_ids::MODULE_LIVE_GROWTH)
            .map(|draft| draft.site.map(|site| site.index))
            .collect();
        drafts.retain(|draft| {
            let site = draft.site.map(|site| site.index);
            draft.rule != rule_ids::PERFORMANCE_MODULE_RELOADED || !grown.contains(&site)
        });
        let written = drafts
            .iter()
            .filter_map(|draft| self.write(context, None, draft));
        let written: Vec<Finding> = written.collect();
        let mut findings = self.take_deferred(context, is_end);
        findings.extend(written);
        findings
    }

    /// The findings that no later call has shown to be no mistake.
    fn take_deferred(&mut self, context: &dyn TraceContext, is_end: bool) -> Vec<Finding> {
        // A program that ended well may have tried on purpose.
        let ended_well = context.meta("exit.status") == Some("0");
        let deferred = std::mem::take(&mut self.deferred).into_iter();
        deferred
            .filter(|deferred| {
                let is_certain = matches!(deferred.until, Deferral::StickyError(_));
                (is_end || is_certain) && !deferred.is_optional
            })
            .map(|deferred| {
                let mut finding = deferred.finding;
                let may_be_question = matches!(
                    deferred.until,
                    Deferral::Function(_) | Deferral::Image(_) | Deferral::Lookup(..)
                );
                if ended_well && may_be_question {
                    finding.severity = Severity::Advice;
                }
                finding
            })
            .collect()
    }

    /// How many findings were left out since the last time, by the key of the one that they repeat.
    pub fn take_repeats(&mut self) -> HashMap<FindingKey, u64> {
        self.reported.take_repeats()
    }

    /// Writes a draft out, unless the same mistake with objects of the same calls was reported.
    fn write(
        &mut self,
        context: &dyn TraceContext,
        call: Option<(&Call<'_>, &Plan)>,
        draft: &Draft,
    ) -> Option<Finding> {
        let site = call.map(|(call, plan)| Site::of(plan.function.name, call));
        let known = site.map(|site| draft.key(&self.state, site));
        if known.is_some_and(|known| !self.reported.insert(known)) {
            return None;
        }
        if let Some(replaced) = &draft.replaces {
            self.deferred.retain(|deferred| deferred.until != *replaced);
        }
        let entry = cutape_registry::rule(draft.rule);
        let severity = draft
            .severity
            .or_else(|| entry.map(|entry| entry.severity.into()))
            .unwrap_or(Severity::Error);
        let confidence = match entry {
            _ if draft.is_assumed => Confidence::Assumed,
            _ if draft.is_proven => Confidence::Contents,
            entry => entry.map_or(Confidence::Certain, |entry| entry.confidence.into()),
        };
        let site = call.map(|(call, _)| self.call_site(context, call));
        let class = match (call, &site) {
            (Some((call, plan)), Some(site)) => {
                let may_be_late = !draft.rule.contains("pending");
                class_of(plan, call, &site.frames, may_be_late)
            }
            _ => Class::Misuse,
        };
        let call = site;
        let call = call.or_else(|| Some(self.past_call(context, draft.site?)));
        let place = match (draft.mistake, &call) {
            (Mistake::Earlier(site), _) => Some(code_place(context, site)),
            (_, None) => None,
            (Mistake::Function | Mistake::Process, Some(call)) => {
                Some(CodePlace::of(&call.function, &[], ""))
            }
            (Mistake::ThisCall, Some(call)) => {
                Some(CodePlace::of(&call.function, &call.frames, &call.caller))
            }
        };
        let objects = draft.objects.iter();
        let objects = objects.filter_map(|&id| history(&self.state.objects, context, id));
        let objects: Vec<_> = objects.collect();
        let key = FindingKey::new(draft.rule, place.as_ref(), &objects);
        if let Some(known) = known {
            self.reported.name(&known, &key);
        }
        Some(Finding {
            rule: draft.rule,
            class,
            key,
            repeats: 0,
            severity: match confidence {
                Confidence::Assumed => severity.min(Severity::Warning),
                _ => severity,
            },
            confidence,
            title: draft.title.clone(),
            call,
            message: draft.message.trim_end().to_owned(),
            related: Vec::new(),
            objects,
            chain: draft.chain.clone(),
            advice: entry.map_or("", |entry| entry.advice).to_owned(),
            manual: entry.map_or("", |entry| entry.manual).to_owned(),
        })
    }

    fn call_site(&self, context: &dyn TraceContext, call: &Call<'_>) -> CallSite {
        let thread = self.state.threads.get(call.thread as usize);
        let number = thread.map_or(0, |thread| thread.number);
        call_site(context, call, &self.state, number)
    }

    /// A call that passed earlier.
    fn past_call(&self, context: &dyn TraceContext, site: Site) -> CallSite {
        let thread = self.state.threads.get(site.thread as usize);
        CallSite {
            process: None,
            index: site.index,
            function: site.function.to_owned(),
            text: format!("{}(...)", site.function),
            thread: site.thread,
            thread_number: thread.map_or(0, |thread| thread.number),
            place: place(context, site),
            caller: symbol(context, site.caller),
            frames: match site.stack {
                0 => Vec::new(),
                stack => context.frames(stack),
            },
            driver_messages: Vec::new(),
            ranges: Vec::new(),
            result: site.result.map(|code| CallResult {
                code,
                name: cutape_registry::result_name(code).map(str::to_owned),
            }),
        }
    }
}

impl Names for State {
    fn handle(&self, kind: Kind, handle: u64) -> Option<String> {
        name_of(&self.objects, kind, handle)
    }

    /// A finding about memory names it in its message.
    fn place(&self, _address: u64) -> Option<String> {
        None
    }
}
