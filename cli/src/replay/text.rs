//! The report of a replay as text for people, and as JUnit for CI servers.

mod launches;

use std::fmt::Write as _;

use cutape_format::Trace;
use cutape_replay::{Divergence, PlacementStrategy, Report, Verdict, What};
use quick_junit::TestCaseStatus;

use crate::guarded;
use crate::one_rank;
use cutape_analyzer::demangle::demangle;
use cutape_render::quantity::count;
use cutape_terminal::failure::Failure;
use cutape_terminal::input::RECORDING_IS_COMPLETE;
use cutape_terminal::output::printable;

/// How many calls of a list the text shows.
const SHOWN: usize = 20;
/// Bytes that were put while calls waited.
const PUT_SHOWN: usize = 4;

/// The report for people.
pub(super) fn text(trace: &Trace, report: &Report) -> String {
    let mut out = String::new();
    let verdict = match (&report.died, report.divergence_count) {
        (Some(died), _) => format!("the replay {}", died.text),
        (None, 0) => "no divergence".to_owned(),
        (None, count) => counted(count, "divergence") + &verdicts(report),
    };
    let mut verdict = verdict;
    let lost: u64 = report.consequences.iter().map(|cause| cause.lost).sum();
    if lost > 0 {
        verdict = format!("{verdict}; data of {} is missing", counted(lost, "call"));
    }
    for (count, why) in [
        (following(report), Verdict::Consequence),
        (report.host_changed_count, Verdict::HostChanged),
        (report.changed_input_count, Verdict::ChangedInput),
    ] {
        if count > 0 {
            let differences = counted(count, "difference");
            verdict = format!("{verdict}; {differences} ({})", why.word());
        }
    }
    let emulated: u64 = report.calls_emulated.values().sum();
    let _ = writeln!(
        out,
        "{}: {} of {} calls replayed{} in {:.2} s: {verdict}",
        trace.path().display(),
        report.calls_replayed + emulated,
        report.calls,
        match report.replays {
            0 => String::new(),
            count => format!(" {count} times, the first"),
        },
        report.wall_seconds
    );
    // A process that died has not told what it had compared.
    if report.died.is_none() || report.results_compared > 0 {
        let _ = writeln!(out, "compared: {}", compared(report));
        if report.digests.recorded > 0 {
            let _ = writeln!(out, "digests: {}", digests(report));
        }
    }
    if let Some(outputs) = &report.launch_outputs {
        launches::write(&mut out, outputs);
    }
    if let Some(cause) = &report.error_cause {
        let _ = writeln!(
            out,
            "call {} {}{} caused {}",
            cause.call,
            cause.function,
            of_kernel(cause.kernel.as_deref()),
            cause.error
        );
    }
    for thread in report.died.iter().flat_map(|died| &died.threads) {
        let state = match thread.in_driver {
            true => "in the driver",
            false => "waiting for calls of other threads",
        };
        let _ = writeln!(
            out,
            "  thread {}: call {} {}: {state}",
            thread.thread, thread.call, thread.function
        );
    }
    for sentence in report.died.iter().flat_map(|died| &died.may_wait_for) {
        let _ = writeln!(out, "  {}", printable(sentence));
    }
    if let Some(teardown) = &report.teardown {
        let _ = writeln!(out, "shutdown: {teardown}");
    }
    describe_pending(&mut out, report);
    for divergence in &report.divergences {
        describe(&mut out, divergence);
    }
    if report.divergence_count > report.divergences.len() as u64 {
        let more = report.divergence_count - report.divergences.len() as u64;
        let _ = writeln!(out, "  and {more} more");
    }
    for cause in &report.consequences {
        let (what, first) = (printable(&cause.cause), cause.first);
        let differences = counted(cause.differences, "later difference");
        let _ = match cause.left_out {
            0 => writeln!(
                out,
                "{what}, first at call {first}; {differences} may follow"
            ),
            left_out => writeln!(
                out,
                "not re-issued because of {what}: {}, the first call {first}; data of {} is missing; \
                 {differences} may follow",
                counted(left_out, "call"),
                cause.lost,
            ),
        };
        if let Some(first) = &cause.first_difference {
            describe(&mut out, first);
        }
    }
    for input in &report.replaced {
        let what = match (&input.error, input.differs) {
            (Some(error), _) => format!("not replaced: {error}"),
            (None, true) => "replaced".to_owned(),
            (None, false) => "given, equal to the recorded ones".to_owned(),
        };
        let (call, function, bytes) = (input.call, &input.function, input.bytes);
        let _ = writeln!(out, "input: call {call} {function}: {bytes} bytes {what}");
    }
    for output in &report.saved {
        let what = match &output.error {
            Some(error) => format!("not saved: {error}"),
            None => "saved".to_owned(),
        };
        let (call, function, bytes) = (output.call, &output.function, output.bytes);
        let _ = writeln!(out, "output: call {call} {function}: {bytes} bytes {what}");
    }
    for (list, count, why) in [
        (
            &report.host_changed,
            report.host_changed_count,
            Verdict::HostChanged,
        ),
        (
            &report.changed_input,
            report.changed_input_count,
            Verdict::ChangedInput,
        ),
    ] {
        for changed in list.iter().take(SHOWN) {
            describe(&mut out, changed);
        }
        let more = count.saturating_sub(SHOWN as u64);
        if more > 0 {
            let _ = writeln!(out, "  and {more} more that are {}", why.word());
        }
    }
    let placed = report.placed;
    if placed.allocations > 0 {
        let _ = writeln!(
            out,
            "memory: {} of {} allocations at their recorded address{}",
            placed.at_recorded_address,
            placed.allocations,
            match placed.strategy {
                PlacementStrategy::Natural | PlacementStrategy::None => "",
                PlacementStrategy::Granules => ", in granules",
            }
        );
    }
    if placed.strategy == PlacementStrategy::Granules
        && let Some(misplaced) = report.misplaced.last()
    {
        let _ = writeln!(
            out,
            "  placed by the driver, the memory of call {} lay at {:#x}, not at {:#x} (attempts: \
             {})",
            misplaced.call,
            misplaced.here,
            misplaced.recorded,
            report.misplaced.len()
        );
    }
    for translated in &report.translated {
        let _ = writeln!(
            out,
            "  call {} {}: {:#x} is {:#x} here ({} bytes): {}",
            translated.call,
            translated.function,
            translated.recorded,
            translated.replayed,
            translated.length,
            translated.reason
        );
    }
    for stale in report.stale.iter().take(SHOWN) {
        let _ = writeln!(
            out,
            "  call {} {}: {} words contain recorded addresses that replay does not translate, the \
             first {:#x}: {}",
            stale.call, stale.function, stale.words, stale.address, stale.memory
        );
    }
    if report.stale.len() > SHOWN {
        let _ = writeln!(
            out,
            "  and {} more such calls (--report lists them)",
            report.stale.len() - SHOWN
        );
    }
    for assumed in report.assumed_handles.iter().take(SHOWN) {
        let _ = writeln!(
            out,
            "  call {} {}: the kernel parameter at byte {} is {:#x}, taken for the handle of a \
             {}, and {:#x} here (assumed)",
            assumed.call,
            assumed.function,
            assumed.offset,
            assumed.recorded,
            assumed.object,
            assumed.replayed
        );
    }
    if report.assumed_handle_count > SHOWN as u64 {
        let _ = writeln!(
            out,
            "  and {} more such parameters (--report lists them)",
            report.assumed_handle_count - SHOWN as u64
        );
    }
    for difference in &report.machine {
        let forced = if difference.fatal { "warning: " } else { "" };
        let _ = writeln!(out, "{forced}machine: {}", difference.text());
    }
    one_rank::text::write(&mut out, &report.exchanges);
    if !report.skipped.is_empty() {
        let _ = writeln!(out, "not re-issued:");
        for skipped in &report.skipped {
            let _ = writeln!(
                out,
                "  {} x {} (first: call {}): {}",
                skipped.count, skipped.function, skipped.first, skipped.reason
            );
        }
    }
    for put in report.put_during_waits.iter().take(PUT_SHOWN) {
        let who = match put.is_shared {
            true => "a CPU thread of some rank (assumed)",
            false => "the program",
        };
        let _ = writeln!(
            out,
            "put while call {} waited, written by {who}: {} at offset {:#x} of the memory of \
             call {} ({})",
            put.call,
            count(put.length, "byte"),
            put.offset,
            put.made,
            put.made_by
        );
    }
    let hidden = report.put_during_waits.len().saturating_sub(PUT_SHOWN);
    if hidden > 0 {
        let _ = writeln!(out, "put while calls waited: {hidden} more");
    }
    guarded::write_notes(&mut out, &report.notes);
    let micros = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
    if let Some(span) = &report.span {
        let inside = span.driver_nanoseconds.map(micros);
        let inside =
            inside.map_or_else(String::new, |time| format!(", in the driver {time:.1} µs"));
        let _ = writeln!(
            out,
            "calls {} to {}, {} measured: {:.1} µs{inside}; recorded {:.1} µs",
            span.first,
            span.last,
            span.calls,
            micros(span.nanoseconds),
            micros(span.recorded_nanoseconds)
        );
    }
    if !report.timing.is_empty() {
        let mut rows: Vec<_> = report.timing.iter().collect();
        rows.sort_by_key(|(_, timing)| std::cmp::Reverse(timing.nanoseconds));
        let _ = writeln!(
            out,
            "{:>12} {:>14} {:>14}  function",
            "calls", "here, µs", "recorded, µs"
        );
        for (name, timing) in rows {
            let _ = writeln!(
                out,
                "{:>12} {:>14.1} {:>14.1}  {name}",
                timing.calls,
                micros(timing.nanoseconds),
                micros(timing.recorded_nanoseconds)
            );
        }
    }
    out
}

/// A number and what is counted.
fn counted(count: u64, unit: &str) -> String {
    match count {
        1 => format!("1 {unit}"),
        count => format!("{count} {unit}s"),
    }
}

/// Differences that may follow from calls that were not re-issued.
fn following(report: &Report) -> u64 {
    let causes = report.consequences.iter();
    causes.map(|cause| cause.differences).sum()
}

/// How many divergences have each verdict, if several replays or the replay itself tell them apart.
fn verdicts(report: &Report) -> String {
    let of = |verdict| {
        let divergences = report.divergences.iter();
        divergences.filter(|found| found.verdict == verdict).count() as u64
    };
    let counts: Vec<_> = Verdict::ALL
        .into_iter()
        .map(|verdict| (of(verdict), verdict.word()))
        .filter(|&(count, _)| count > 0)
        .collect();
    match counts.as_slice() {
        [(_, only)] if *only == Verdict::default().word() && report.replays == 0 => String::new(),
        [(_, only)] => format!(" ({only})"),
        counts => {
            let counts: Vec<_> = counts
                .iter()
                .map(|(count, word)| format!("{count} {word}"))
                .collect();
            format!(" ({})", counts.join(", "))
        }
    }
}

/// How much of the result the replay has compared.
fn compared(report: &Report) -> String {
    let by_hash = match report.bytes_compared_by_hash {
        0 => String::new(),
        bytes => format!(", {bytes} by hash"),
    };
    format!(
        "{} ({}{by_hash}), {} not; {}; {}",
        counted(report.bytes_compared, "returned byte"),
        match report.copies_compared {
            1 => "1 copy".to_owned(),
            copies => format!("{copies} copies"),
        },
        report.bytes_not_compared,
        counted(report.results_compared, "result code"),
        match report.launches {
            1 => "1 launch".to_owned(),
            launches => format!("{launches} launches"),
        }
    )
}

/// How many digests of device memory were equal.
fn digests(report: &Report) -> String {
    let digests = &report.digests;
    let mut text = format!(
        "{} of {} equal ({} of device memory)",
        digests.equal,
        digests.recorded,
        counted(digests.bytes, "byte")
    );
    if let Some(call) = digests.first_differing {
        let _ = write!(
            text,
            "; {} different, the first at call {call}",
            digests.differing
        );
    }
    if digests.unclear > 0 {
        let _ = write!(
            text,
            "; {} different while memory was not at its recorded address",
            digests.unclear
        );
    }
    if digests.not_compared > 0 {
        let _ = write!(text, "; {} not compared", digests.not_compared);
    }
    text
}

fn of_kernel(name: Option<&str>) -> String {
    match name {
        None => String::new(),
        Some(name) => format!(" (kernel {})", demangle(name)),
    }
}

/// The work that may not have been complete when the replay hung.
fn describe_pending(out: &mut String, report: &Report) {
    for stream in &report.pending {
        let name = match (stream.stream, stream.thread) {
            (_, Some(thread)) => format!("the default stream of thread {thread}"),
            (0, None) => "the default stream".to_owned(),
            (handle, None) => format!("stream {handle:#x}"),
        };
        let _ = writeln!(out, "  pending in {name}:");
        for call in stream.calls.iter().take(SHOWN) {
            let waits = match call.waits_for {
                None => String::new(),
                Some(record) => format!(": waits for the event of call {record}"),
            };
            let _ = writeln!(
                out,
                "    call {} {}{}{waits}",
                call.call,
                call.function,
                of_kernel(call.kernel.as_deref())
            );
        }
        if stream.count > SHOWN as u64 {
            let _ = writeln!(out, "    and {} more", stream.count - SHOWN as u64);
        }
    }
}

/// The report as JUnit: a case for the end of the replay, and one for each verdict.
pub(super) fn junit(
    trace: &Trace,
    report: &Report,
    allowed: &[Verdict],
    incomplete: Option<TestCaseStatus>,
) -> Result<String, Failure> {
    use quick_junit::{NonSuccessKind, TestCase, TestSuite};
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
            text(trace, report),
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
            describe(&mut description, divergence);
        }
        let mut count = found().count() as u64;
        if verdict == Verdict::default() {
            count += unlisted;
        }
        if verdict == Verdict::Consequence {
            let lost = report.consequences.iter().map(|cause| cause.lost);
            count = following(report) + lost.sum::<u64>();
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
        let message = counted(count, "divergence");
        add(
            verdict.word(),
            match count {
                0 => TestCaseStatus::success(),
                _ if never_counts.is_some() => {
                    let mut status = TestCaseStatus::skipped();
                    status.set_message(counted(count, "difference"));
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

fn describe(out: &mut String, divergence: &Divergence) {
    let what = match divergence.what {
        What::Result => "result".to_owned(),
        What::Digest => match &divergence.parameter {
            Some(memory) => format!("device memory at {memory}"),
            None => "device memory".to_owned(),
        },
        What::OutParameter | What::Bytes | What::Text => match &divergence.parameter {
            Some(parameter) => format!("what {parameter} points at"),
            None => "bytes".to_owned(),
        },
    };
    let kind = match divergence.verdict {
        Verdict::Consequence | Verdict::HostChanged | Verdict::ChangedInput => "difference",
        _ => "divergence",
    };
    let _ = writeln!(
        out,
        "{kind}: call {} {}{}: {what} differs",
        divergence.call,
        divergence.function,
        of_kernel(divergence.kernel.as_deref())
    );
    let _ = writeln!(out, "  verdict {}", divergence.verdict.word());
    let _ = writeln!(out, "  expected {}", divergence.expected);
    let _ = writeln!(out, "  received {}", divergence.received);
    if let (Some(first), Some(count)) =
        (divergence.first_differing_byte, divergence.differing_bytes)
    {
        let _ = writeln!(out, "  {count} bytes differ, the first at offset {first}");
    }
    if let Some(call) = divergence.enqueued_by {
        let _ = writeln!(out, "  enqueued by call {call}");
    }
    for line in &divergence.history {
        let _ = writeln!(out, "  {line}");
    }
}
