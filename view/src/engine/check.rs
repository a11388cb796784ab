//! The check behind the list of findings.

use std::ops::ControlFlow;
use std::thread;
use std::time::Duration;

use cutape_analyzer::{Analyzer, FindingList};
use cutape_format::{Cursor, Error, Trace};
use cutape_symbols::{Resolver, SymbolContext};

use super::report_timer::ReportTimer;
use super::shared::SharedTrace;
use crate::state::reply::{Reply, SendReply};

const REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// Time between two looks at a growing trace.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Sends the findings that have come since.
struct Reporter<'a> {
    send: &'a SendReply<'a>,
    sent: usize,
    timer: ReportTimer,
}

impl Reporter<'_> {
    fn report(&mut self, list: &FindingList, calls: u64, is_complete: bool) {
        if let Some(found) = list.findings.get(self.sent..).filter(|new| !new.is_empty()) {
            self.sent = list.findings.len();
            (self.send)(Reply::Findings(found.to_vec()));
        }
        (self.send)(Reply::Checked {
            calls,
            is_complete,
            omitted: list.omitted.text(),
        });
    }

    fn step(&mut self, list: &FindingList, calls: u64) {
        if self.timer.is_due(calls) {
            self.report(list, calls, false);
        }
    }
}

/// Checks the whole trace; of a growing one also what comes.
pub(super) fn check(shared: &SharedTrace, send: &SendReply<'_>) -> Result<(), Error> {
    let (mut analyzer, resolver) = (Analyzer::new(), Resolver::default());
    let mut list = FindingList::default();
    let mut reporter = Reporter {
        send,
        sent: 0,
        timer: ReportTimer::every(REPORT_INTERVAL),
    };
    let mut calls = 0;
    if shared.is_packed() {
        let trace = shared.trace();
        trace.walk().run(|call| {
            list.extend(analyzer.push(&SymbolContext::new(&trace, &resolver), call));
            calls = call.index + 1;
            reporter.step(&list, calls);
            Ok::<_, Error>(())
        })?;
    } else {
        let mut cursor = Cursor::new();
        loop {
            let is_last = !shared.is_growing();
            let trace = shared.trace();
            let mut next = |trace: &Trace| {
                let call = match is_last {
                    true => cursor.next(trace),
                    false => cursor.next_before(trace, shared.horizon()),
                };
                let Some(call) = call else {
                    return ControlFlow::Break(());
                };
                list.extend(analyzer.push(&SymbolContext::new(trace, &resolver), &call));
                reporter.step(&list, call.index + 1);
                ControlFlow::Continue(())
            };
            while next(&trace).is_continue() {}
            calls = cursor.index();
            drop(trace);
            if is_last {
                break;
            }
            reporter.report(&list, calls, false);
            thread::sleep(POLL_INTERVAL);
        }
    }
    let trace = shared.trace();
    let context = SymbolContext::new(&trace, &resolver);
    list.extend(analyzer.finish(&context, trace.has_all_calls()));
    list.omitted.consequences += analyzer.consequences();
    list.count_repeats(analyzer.take_repeats());
    reporter.report(&list, calls, true);
    Ok(())
}
