//! The results as text for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cutape_render::quantity;
use cutape_render::text::shown as shown_path;
use cutape_replay::{Skipped, notes_text};

use crate::measurement::Estimate;
use crate::settings::{Comparison, Settings, UNNAMED, folder_of};
use crate::verdict::{Report, Row, Verdict};

/// The most lines of one kind.
const SHOWN: usize = 20;

impl Report {
    /// The results for people.
    pub fn text(&self, settings: &Settings) -> String {
        let mut out = String::new();
        let width = self
            .benchmarks
            .iter()
            .map(|row| label(row).len())
            .max()
            .unwrap_or(0);
        for row in &self.benchmarks {
            let _ = writeln!(out, "{:width$}  {}", label(row), measured(row, settings));
        }
        for mismatch in self.mismatches.iter().take(SHOWN) {
            let found = &mismatch.mismatch;
            let _ = writeln!(
                out,
                "results differ: call {}: {} of {} {} in {}, the first at {:#x} (offset {}): the \
                 recorded kernel wrote {}, its replacement {}",
                mismatch.call,
                found.differing,
                found.elements,
                found.compared_as,
                mismatch.memory,
                mismatch.address.wrapping_add(found.offset),
                found.offset,
                found.expected,
                found.received
            );
        }
        more(&mut out, self.mismatches.len());
        verdict(&mut out, self, settings);
        launches(&mut out, self, settings);
        memory(&mut out, self, settings);
        exchanges(&mut out, self);
        by_reason(&mut out, "issued once, not repeated", &self.not_repeated);
        by_reason(&mut out, "deferred to the end", &self.deferred);
        by_reason(&mut out, "not re-issued", &self.not_reissued);
        if self.between > 0 {
            let _ = writeln!(
                out,
                "{} between the measured ones were issued once",
                quantity::count(self.between, "other call")
            );
        }
        out += &notes_text(&self.notes);
        let index = settings.output.join("report/index.html");
        if settings.plots && index.is_file() {
            let _ = writeln!(out, "plots: {}", shown_path(&index));
        }
        out
    }
}

/// A line per reason.
pub(crate) fn by_reason(out: &mut String, what: &str, list: &[Skipped]) {
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for entry in list {
        let text = format!("{} x {}", entry.count, entry.function);
        reasons.entry(&entry.reason).or_default().push(text);
    }
    for (reason, functions) in reasons {
        let more = match functions.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more functions"),
        };
        let shown = functions[..functions.len().min(SHOWN)].join(", ");
        let _ = writeln!(out, "{what} ({reason}): {shown}{more}");
    }
}

fn more(out: &mut String, length: usize) {
    if length > SHOWN {
        let _ = writeln!(out, "  and {} more such lines", length - SHOWN);
    }
}

/// `gpu/saxpy[4,256]`, and what distinguishes rows of equal name.
fn label(row: &Row) -> String {
    let benchmark = &row.benchmark;
    let what = if benchmark.is_replaced {
        " replaced"
    } else {
        row.which
    };
    format!("{}/{}{what}", folder_of(benchmark.clock), benchmark.name)
}

fn measured(row: &Row, settings: &Settings) -> String {
    let Estimate {
        lower,
        point,
        upper,
    } = row.benchmark.time;
    let time = format!(
        "{:>11} [{} .. {}]",
        shown(point),
        shown(lower),
        shown(upper)
    );
    let against = !matches!(settings.comparison, Comparison::Save(_));
    let change = row.benchmark.change.map(|change| per_cent(change.mean));
    match (change, row.verdict) {
        (Some(change), Verdict::Regression) => format!("{time}  {change}  REGRESSION"),
        (Some(change), Verdict::Improvement) => format!("{time}  {change}  faster"),
        (Some(change), Verdict::NoChange) => format!("{time}  {change}  no change"),
        _ if against && settings.comparison != Comparison::AgainstRecorded => {
            format!("{time}  not in the baseline")
        }
        _ => time,
    }
}

/// `+5.0 % [+4.9 .. +5.1]`.
pub(crate) fn per_cent(change: Estimate) -> String {
    format!(
        "{:+.1} % [{:+.1} .. {:+.1}]",
        change.point * 100.0,
        change.lower * 100.0,
        change.upper * 100.0
    )
}

/// A time with four digits.
pub(crate) fn shown(nanoseconds: f64) -> String {
    let (value, unit) = quantity::scaled(nanoseconds);
    let digits = match value {
        value if value >= 1000.0 => 0,
        value if value >= 100.0 => 1,
        value if value >= 10.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$} {unit}")
}

fn verdict(out: &mut String, report: &Report, settings: &Settings) {
    let count = |wanted| {
        let rows = report.benchmarks.iter();
        rows.filter(|row| row.verdict == wanted).count() as u64
    };
    let compared = report.compared() as u64;
    if compared > 0 {
        let _ = writeln!(
            out,
            "{} compared: {}, {} faster, {} unchanged",
            quantity::count(compared, "benchmark"),
            quantity::count(count(Verdict::Regression), "regression"),
            count(Verdict::Improvement),
            count(Verdict::NoChange)
        );
    }
    if let Comparison::Save(name) = &settings.comparison
        && compared == 0
        && name != UNNAMED
    {
        let _ = writeln!(out, "saved as {name}; compare with --baseline {name}");
    }
    if !settings.replace.is_empty() && report.compared_bytes == 0 {
        let _ = writeln!(
            out,
            "results were not compared: neither the recorded kernels nor their replacements \
             changed any memory"
        );
    } else if !settings.replace.is_empty() && report.mismatches.is_empty() {
        let how = match &settings.tolerance {
            Some(tolerance) => format!("within {tolerance}"),
            None => "bit for bit".to_owned(),
        };
        let _ = writeln!(
            out,
            "replacements write what the recorded kernels write, {how} ({} compared)",
            quantity::bytes(report.compared_bytes)
        );
    }
}

/// Names the launch of each subject.
fn launches(out: &mut String, report: &Report, settings: &Settings) {
    if !settings.by_kernel() {
        return;
    }
    let why_not = |call: u64| report.not_issued.iter().find(|known| known.0 == call);
    for subject in report.subjects.iter().take(SHOWN) {
        if let Some((call, why)) = why_not(subject.call) {
            let _ = writeln!(out, "{}: not measured: call {call} {why}", subject.name);
            continue;
        }
        let _ = writeln!(
            out,
            "{}: call {}, launch {} of {}: {}",
            subject.name,
            subject.call,
            subject.number,
            subject.count,
            subject.kernel.as_deref().unwrap_or("")
        );
    }
    more(out, report.subjects.len());
}

fn memory(out: &mut String, report: &Report, settings: &Settings) {
    if !settings.restore {
        let _ = writeln!(
            out,
            "memory: not restored between iterations (--no-restore)"
        );
        return;
    }
    let most = |of: fn(&cutape_replay::Measured) -> u64| report.memory.iter().map(of).max();
    let calls: u64 = report.memory.iter().map(|memory| memory.calls).sum();
    let _ = writeln!(
        out,
        "memory: {} saved, {} restored before each iteration{} ({} measured)",
        quantity::bytes(most(|memory| memory.saved_bytes).unwrap_or(0)),
        quantity::bytes(most(|memory| memory.restored_bytes).unwrap_or(0)),
        match most(|memory| memory.spilled_bytes) {
            None | Some(0) => String::new(),
            Some(spilled) => format!(", {} of it from host memory", quantity::bytes(spilled)),
        },
        quantity::count(calls, "call")
    );
}

/// What of the calls is not measured because other ranks are not here.
fn exchanges(out: &mut String, report: &Report) {
    let exchanges = &report.exchanges;
    *out += &exchanges.text();
    if !exchanges.left_out.is_empty() {
        let _ = writeln!(out, "  the time of these exchanges is not in the figures");
    }
    for memory in report.memory.iter().filter(|memory| memory.put_copies > 0) {
        let _ = writeln!(
            out,
            "  each iteration puts back what measured exchanges changed ({}, {}{}); that time is \
             in the figures",
            quantity::count(memory.put_bytes, "byte"),
            match memory.put_copies {
                1 => "1 copy".to_owned(),
                copies => format!("{} copies", quantity::grouped(copies)),
            },
            match memory.puts_from_host {
                true => " from host memory",
                false => " on the device",
            }
        );
    }
    if let Some(first) = &exchanges.first_missing {
        let _ = writeln!(
            out,
            "  what call {} changed is missing: {}; from there on memory is not what the program had",
            first.call, first.why
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_four_digits() {
        for (nanoseconds, text) in [
            (0.5, "0.500 ns"),
            (999.0, "999.0 ns"),
            (1234.0, "1.234 us"),
            (12_345.0, "12.35 us"),
            (5_123_456.0, "5.123 ms"),
            (2.5e12, "2500 s"),
        ] {
            assert_eq!(shown(nanoseconds), text);
        }
    }
}
