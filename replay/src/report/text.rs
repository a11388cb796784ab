//! The report of a replay as text for people.

mod differences;
mod ended;
mod exchanges;
mod launches;
mod memory;
mod timing;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cutape_analyzer::demangle::demangle;
use cutape_format::Trace;
use cutape_render::quantity::{count, ungrouped};

use crate::report::{Report, Verdict};

/// How many calls of a list the text shows.
const SHOWN: usize = 20;

impl Report {
    /// The report for people.
    pub fn text(&self, trace: &Trace) -> String {
        let mut out = String::new();
        write_verdict(&mut out, trace, self);
        if let Some(outputs) = &self.launch_outputs {
            launches::write(&mut out, outputs);
        }
        ended::write(&mut out, self);
        differences::write(&mut out, self);
        write_host_files(&mut out, self);
        differences::write_uncounted(&mut out, self);
        memory::write_placement(&mut out, self);
        memory::write_untranslated(&mut out, self);
        for difference in &self.machine {
            let forced = if difference.fatal { "warning: " } else { "" };
            let _ = writeln!(out, "{forced}machine: {}", difference.text());
        }
        out += &self.exchanges.text();
        write_not_reissued(&mut out, self);
        memory::write_put(&mut out, self);
        out += &notes_text(&self.notes);
        timing::write(&mut out, self);
        out
    }

    /// What keeps this replay, of a rank, from being complete and equal, in a few words each.
    pub fn problems_of_rank(&self, rank: &str) -> Vec<String> {
        match (&self.died, self.divergence_count) {
            (Some(_), _) => vec![format!("{rank} died")],
            (None, 0) => {
                let mut problems = Vec::new();
                let left_out = self.calls_skipped();
                if left_out > 0 {
                    let calls = count(left_out, "call");
                    problems.push(format!("{rank} did not re-issue {calls}"));
                }
                let lost = self.lost_calls();
                if lost > 0 {
                    problems.push(format!("{rank} lacks data of {}", count(lost, "call")));
                }
                problems
            }
            (None, many) => vec![format!("{rank} has {}", ungrouped(many, "divergence"))],
        }
    }

    /// How many calls were left out that copied, filled or computed data.
    fn lost_calls(&self) -> u64 {
        self.consequences.iter().map(|cause| cause.lost).sum()
    }
}

/// The notes of a report for people, and how often each applies.
pub fn notes_text(notes: &BTreeMap<String, u64>) -> String {
    let lines = notes.iter().map(|(note, count)| match count {
        1 => format!("note: {note}\n"),
        count => format!("note: {note} ({count} times)\n"),
    });
    lines.collect()
}

/// What was replayed and how it ended, and how much of it was compared.
fn write_verdict(out: &mut String, trace: &Trace, report: &Report) {
    let mut verdict = match (&report.died, report.divergence_count) {
        (Some(died), _) => format!("the replay {}", died.text),
        (None, 0) => "no divergence".to_owned(),
        (None, count) => ungrouped(count, "divergence") + &verdicts(report),
    };
    let lost = report.lost_calls();
    if lost > 0 {
        verdict = format!("{verdict}; data of {} is missing", ungrouped(lost, "call"));
    }
    for (count, why) in [
        (report.following_differences(), Verdict::Consequence),
        (report.host_changed_count, Verdict::HostChanged),
        (report.changed_input_count, Verdict::ChangedInput),
    ] {
        if count > 0 {
            let differences = ungrouped(count, "difference");
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
        write_left_out(out, report);
        if report.digests.recorded > 0 {
            let _ = writeln!(out, "digests: {}", digests(report));
        }
    }
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

/// What the recorder has left out, and what that does to the comparison.
fn write_left_out(out: &mut String, report: &Report) {
    if report.calls_left_out == 0 && report.bytes_unknown == 0 {
        return;
    }
    let _ = writeln!(
        out,
        "left out: {} that were not recorded or not kept; {} that may depend on them differ and are \
         not compared",
        count(report.calls_left_out, "call"),
        ungrouped(report.bytes_unknown, "byte"),
    );
}

/// How much of the result the replay has compared.
fn compared(report: &Report) -> String {
    let by_hash = match report.bytes_compared_by_hash {
        0 => String::new(),
        bytes => format!(", {bytes} by hash"),
    };
    format!(
        "{} ({}{by_hash}), {} not; {}; {}",
        ungrouped(report.bytes_compared, "returned byte"),
        match report.copies_compared {
            1 => "1 copy".to_owned(),
            copies => format!("{copies} copies"),
        },
        report.bytes_not_compared,
        ungrouped(report.results_compared, "result code"),
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
        ungrouped(digests.bytes, "byte")
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

/// Inputs that were given, and outputs that were saved.
fn write_host_files(out: &mut String, report: &Report) {
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
}

fn write_not_reissued(out: &mut String, report: &Report) {
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
}

fn of_kernel(name: Option<&str>) -> String {
    match name {
        None => String::new(),
        Some(name) => format!(" (kernel {})", demangle(name)),
    }
}
