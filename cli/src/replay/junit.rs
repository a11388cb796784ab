//! The report of a replay as JUnit for CI servers.

use std::fmt::Write as _;

use cutape_format::Trace;
use cutape_render::quantity::ungrouped;
use cutape_replay::{Report, Verdict};
use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};

use cutape_terminal::failure::Failure;
use cutape_terminal::input::RECORDING_IS_COMPLETE;

/// A case for the end of the replay, and one for each verdict.
pub(super) fn junit(
    trace: &Trace,
    report: &Report,
    allowed: &[Verdict],
    incomplete: Option<TestCaseStatus>,
) -> Result<String, Failure> {
    let name = trace.path().display().to_string();
    let mut suite = TestSuite::new(&name);
    let mut add = |case: &str, status| {
        let mut case = TestCase::new(case, status);
        case.set_classname(&name);
        suite.add_test_case(case);
    };
    let failed = |kind: &str, message: String, description: String| {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
        status.set_type(kind).set_message(message);
        status.set_description(description);
        status
    };
    let ended = match &report.died {
        None => TestCaseStatus::success(),
        Some(died) => failed(
            "died",
            format!("the replay {}", died.text),
            report.text(trace),
        ),
    };
    if let Some(incomplete) = incomplete {
        add(RECORDING_IS_COMPLETE, incomplete);
    }
    add("ends", ended);
    let unlisted = report.divergence_count - report.divergences.len() as u64;
    for verdict in Verdict::ALL {
        let mut description = String::new();
        let found = || {
            let all = report.divergences.iter().chain(&report.host_changed);
            let all = all.chain(&report.changed_input);
            let causes = report.consequences.iter();
            let all = all.chain(causes.filter_map(|cause| cause.first_difference.as_ref()));
            all.filter(|found| found.verdict == verdict)
        };
        for divergence in found() {
            description += &divergence.text();
        }
        let mut count = found().count() as u64;
        if verdict == Verdict::default() {
            count += unlisted;
        }
        if verdict == Verdict::Consequence {
            let lost = report.consequences.iter().map(|cause| cause.lost);
            count = report.following_differences() + lost.sum::<u64>();
            for cause in &report.consequences {
                let _ = match cause.left_out {
                    0 => writeln!(description, "{}", cause.cause),
                    _ => writeln!(description, "not re-issued because of {}", cause.cause),
                };
            }
        }
        let never_counts = match verdict {
            Verdict::HostChanged => Some(report.host_changed_count),
            Verdict::ChangedInput => Some(report.changed_input_count),
            _ => None,
        };
        count = never_counts.unwrap_or(count);
        let message = ungrouped(count, "divergence");
        add(
            verdict.word(),
            match count {
                0 => TestCaseStatus::success(),
                _ if never_counts.is_some() => {
                    let mut status = TestCaseStatus::skipped();
                    status.set_message(ungrouped(count, "difference"));
                    status.set_description(description);
                    status
                }
                _ if allowed.contains(&verdict) && unlisted == 0 => {
                    let mut status = TestCaseStatus::skipped();
                    status.set_message(format!("{message} allowed by --allow"));
                    status.set_description(description);
                    status
                }
                _ => failed(verdict.word(), message, description),
            },
        );
    }
    let mut junit = quick_junit::Report::new("cutape replay");
    junit.add_test_suite(suite);
    junit
        .to_string()
        .map_err(|error| Failure::unusable(format!("cannot write JUnit: {error}")))
}
