//! One pass of the analyzer over the calls of a trace.

use std::collections::BTreeSet;

use cutape_analyzer::Analyzer;
use cutape_format::{Call, Note, Trace, WalkSummary};

use super::filter::FindingFilter;
use super::proven;
use super::ranges::set_ranges;
use cutape_symbols::Resolver;
use cutape_symbols::SymbolContext;
use cutape_terminal::failure::Failure;
use cutape_terminal::input::Completeness;
use cutape_terminal::message;
use cutape_terminal::progress::Progress;

/// The analyzer after the calls so far.
#[derive(Default)]
pub(super) struct Pass {
    analyzer: Analyzer,
    resolver: Resolver,
    /// Functions that the program called or requested with cuGetProcAddress, and that the recorder
    /// does not know.
    unrecorded: BTreeSet<String>,
}

/// Checks all calls of a complete trace, and shows each to `observe`.
pub(super) fn check_trace(
    trace: &Trace,
    filter: &mut FindingFilter,
    observe: &mut dyn FnMut(&Call<'_>),
) -> Result<(WalkSummary, Pass), Failure> {
    let mut progress = Progress::over_calls("checking", [trace]);
    let mut pass = Pass::default();
    if let Some(path) = &filter.proven {
        pass.analyzer.prove(proven::read(path, trace)?);
    }
    let first = filter.list.findings.len();
    let walked = trace.walk().run(|call| {
        pass.push(trace, call, filter);
        observe(call);
        progress.step();
        Ok::<_, Failure>(())
    })?;
    pass.finish(trace, filter, None);
    set_ranges(trace, &mut filter.list.findings[first..], None)?;
    Ok((walked, pass))
}

impl Pass {
    /// Checks a call.
    pub(super) fn push(&mut self, trace: &Trace, call: &Call<'_>, filter: &mut FindingFilter) {
        if call.has_notes() {
            self.unrecorded
                .extend(call.notes().filter_map(|note| match note {
                    Note::UnknownSymbol(name) => Some(name),
                    _ => None,
                }));
        }
        let context = SymbolContext::new(trace, &self.resolver);
        let found = self.analyzer.push(&context, call);
        // Nearly every call has returned and is correct.
        if !found.is_empty() {
            filter.add(found);
        }
        if call.leave.is_none() {
            filter.add_call_in_flight(trace, call);
        }
    }

    /// Checks what is missing at the end. `exit_status`: of a program that has just ended.
    pub(super) fn finish(
        &mut self,
        trace: &Trace,
        filter: &mut FindingFilter,
        exit_status: Option<&str>,
    ) {
        filter.state.join(Completeness::of(trace));
        let context = SymbolContext::new(trace, &self.resolver).ended(exit_status);
        filter.add(self.analyzer.finish(&context, trace.has_all_calls()));
        filter.list.omitted.consequences += self.analyzer.consequences();
        filter.settle(self.analyzer.take_repeats());
    }

    /// Lists on stderr the functions whose calls are missing from the trace.
    pub(super) fn report_unrecorded(mut self, trace: &Trace) {
        let forwarded = trace.forwarded().map(|(name, _)| name.to_owned());
        self.unrecorded.extend(forwarded);
        if self.unrecorded.is_empty() {
            return;
        }
        let names = self.unrecorded.iter();
        let names: Vec<_> = names.map(|name| name.escape_debug().to_string()).collect();
        message!(
            "not checked: calls of {}, which the recorder does not know and did not record",
            names.join(", ")
        );
    }
}
