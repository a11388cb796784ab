//! The check behind the list of findings, and a finding in full.

use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant};

use cutape_analyzer::output::{self as analyzer, Style};
use cutape_analyzer::{Finding, Severity};
use cutape_format::{Cursor, Error, Trace};

use super::pane::{PaneLine, Role, linked};
use super::reply::{Reply, Send};
use super::shared::SharedTrace;
use crate::check::filter::{Choice, FindingFilter};
use crate::check::pass::Pass;
use cutape_terminal::failure::Failure;

const REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// Time between two looks at a growing trace.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Calls between two looks at the clock.
const STRIDE: u64 = 1 << 10;

/// Sends the findings that have come since.
struct Reporter<'a> {
    send: &'a Send<'a>,
    sent: usize,
    reported: Instant,
}

impl Reporter<'_> {
    fn report(&mut self, filter: &FindingFilter, calls: u64, is_complete: bool) {
        self.reported = Instant::now();
        if let Some(found) = filter
            .findings
            .get(self.sent..)
            .filter(|new| !new.is_empty())
        {
            self.sent = filter.findings.len();
            (self.send)(Reply::Findings(found.to_vec()));
        }
        (self.send)(Reply::Checked {
            calls,
            is_complete,
            omitted: filter.omitted.text(),
        });
    }

    fn step(&mut self, filter: &FindingFilter, calls: u64) {
        if calls.is_multiple_of(STRIDE) && self.reported.elapsed() >= REPORT_INTERVAL {
            self.report(filter, calls, false);
        }
    }
}

/// Checks the whole trace; of a growing one also what comes.
pub(super) fn check(shared: &SharedTrace, send: &Send<'_>) -> Result<(), Failure> {
    let mut filter = FindingFilter::new(&Choice::default(), false, Style::PLAIN)?;
    let mut pass = Pass::default();
    let mut reporter = Reporter {
        send,
        sent: 0,
        reported: Instant::now(),
    };
    let mut calls = 0;
    if shared.is_packed() {
        let trace = shared.trace();
        trace.walk().run(|call| {
            pass.push(&trace, call, &mut filter);
            calls = call.index + 1;
            reporter.step(&filter, calls);
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
                pass.push(trace, &call, &mut filter);
                reporter.step(&filter, call.index + 1);
                ControlFlow::Continue(())
            };
            while next(&trace).is_continue() {}
            calls = cursor.index();
            drop(trace);
            if is_last {
                break;
            }
            reporter.report(&filter, calls, false);
            thread::sleep(POLL_INTERVAL);
        }
    }
    pass.finish(&shared.trace(), &mut filter, None);
    reporter.report(&filter, calls, true);
    Ok(())
}

/// The role of a severity.
pub(super) fn role(severity: Severity) -> Role {
    match severity {
        Severity::Error => Role::Failure,
        Severity::Warning => Role::Warning,
        Severity::Advice => Role::Link,
    }
}

/// A finding as `check` prints it.
pub(super) fn lines(finding: &Finding, width: usize) -> Vec<PaneLine> {
    let style = Style {
        width,
        stacks: true,
        ..Style::PLAIN
    };
    let text = analyzer::text(finding, &style);
    let mut lines = linked(&text, width);
    if let Some(first) = lines.first_mut() {
        for part in &mut first.parts {
            part.1 = role(finding.severity);
        }
    }
    lines
}
