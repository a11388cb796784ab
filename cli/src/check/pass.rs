//! One pass of the analyzer over a complete trace.

use cutape_analyzer::Analyzer;
use cutape_format::{Trace, WalkSummary};

use super::filter::FindingFilter;
use super::unrecorded::UnrecordedFunctions;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::symbols::{Resolver, SymbolContext};

/// Checks all calls of a trace.
pub(super) fn check_trace(
    trace: &Trace,
    filter: &mut FindingFilter,
) -> Result<(WalkSummary, UnrecordedFunctions), Failure> {
    let mut progress = Progress::new("calls");
    let mut analyzer = Analyzer::new();
    let resolver = Resolver::default();
    let context = SymbolContext::new(trace, &resolver);
    let mut unrecorded = UnrecordedFunctions::default();
    let walked = trace.walk().run(|call| {
        if call.has_notes() {
            unrecorded.observe(call);
        }
        let found = analyzer.push(&context, call);
        // Nearly every call has returned and is correct.
        if !found.is_empty() {
            filter.add(found);
        }
        if call.leave.is_none() {
            filter.add_call_in_flight(trace, call);
        }
        progress.step();
        Ok::<_, Failure>(())
    })?;
    filter.add(analyzer.finish(&context));
    Ok((walked, unrecorded))
}
