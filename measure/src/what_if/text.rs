//! What came of edits, in words.

use std::fmt::Write;

use cutape_profile::Spread;
use cutape_render::quantity;

use crate::text::by_reason;
use crate::what_if::Tried;

/// Differences that are shown; JSON has all.
const SHOWN: usize = 5;

impl Tried {
    /// The text of a report.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for edit in &self.edits {
            let _ = writeln!(out, "what-if: {}: {}", edit.edit, edit.what);
        }
        if let Some(why) = &self.refused {
            let _ = writeln!(out, "not possible: {why}");
        }
        self.times(&mut out);
        self.bytes(&mut out);
        for condition in &self.conditions {
            let _ = writeln!(out, "condition: {condition}");
        }
        by_reason(&mut out, "issued once, not repeated", &self.not_repeated);
        by_reason(&mut out, "deferred to the end", &self.deferred);
        for (note, count) in &self.notes {
            let _ = match count {
                0 | 1 => writeln!(out, "note: {note}"),
                count => writeln!(out, "note: {note} ({count} times)"),
            };
        }
        out
    }

    fn times(&self, out: &mut String) {
        if let Some(predicted) = &self.predicted {
            let edited = match predicted.edited_ns {
                Some(edited) => quantity::time(edited),
                None => "not known".to_owned(),
            };
            let recorded = quantity::time(predicted.recorded_ns);
            let _ = write!(out, "predicted  {recorded} -> {edited}");
            if let Some(measured) = &self.measured {
                let error =
                    predicted.recorded_ns as f64 / measured.recorded_ns.median.max(1.0) - 1.0;
                let _ = write!(
                    out,
                    ", unedited {:+.1} % beside the measured time",
                    error * 100.0
                );
            }
            out.push('\n');
            for assumption in &predicted.assumptions {
                let _ = writeln!(out, "           assumed: {assumption}");
            }
        }
        let Some(measured) = &self.measured else {
            return;
        };
        let _ = writeln!(
            out,
            "measured   {} -> {} ({:+.1} %), from call {} to the end of the work of call {}, {}{}",
            spread(&measured.recorded_ns),
            spread(&measured.edited_ns),
            -measured.gain * 100.0,
            self.calls.0,
            self.calls.1,
            quantity::count(measured.recorded_ns.count, "round"),
            match measured.iterations {
                0 | 1 => String::new(),
                count => format!(" of {count} runs"),
            }
        );
        if let Some(program) = measured.program_ns {
            let differs = measured.recorded_ns.median / program.max(1) as f64 - 1.0;
            let _ = writeln!(
                out,
                "program    {} while it was recorded, replayed as recorded {} ({:+.1} %)",
                quantity::time(program),
                quantity::time(measured.recorded_ns.median.max(0.0) as u64),
                differs * 100.0
            );
        }
    }

    fn bytes(&self, out: &mut String) {
        let differing = self.differing.len() as u64;
        if self.compared > 0 {
            let _ = writeln!(
                out,
                "bytes {}: {} of {} compared ({})",
                match differing {
                    0 => "equal",
                    _ => "DIFFER: a wrong result is no gain",
                },
                self.compared - differing,
                self.compared,
                quantity::bytes(self.compared_bytes)
            );
        } else if self.refused.is_none() {
            let _ = writeln!(out, "bytes: the calls change none that could be compared");
        }
        for other in self.differing.iter().take(SHOWN) {
            let found = &other.mismatch;
            let _ = writeln!(
                out,
                "  {}: {} of {} {} differ, the first at offset {}: recorded {}, edited {}",
                other.what,
                found.differing,
                found.elements,
                found.compared_as,
                found.offset,
                found.expected,
                found.received
            );
        }
        if self.differing.len() > SHOWN {
            let _ = writeln!(out, "  and {} more", self.differing.len() - SHOWN);
        }
        if self.unsteady > 0 {
            let _ = writeln!(
                out,
                "not compared: {}, which the recorded calls themselves fill with other bytes each time",
                quantity::count(self.unsteady, "piece")
            );
        }
    }
}

/// `12.2 ms [12.0 ms .. 12.5 ms]`.
fn spread(times: &Spread) -> String {
    let time = |nanoseconds: f64| quantity::time(nanoseconds.max(0.0) as u64);
    format!(
        "{} [{} .. {}]",
        time(times.median),
        time(times.low),
        time(times.high)
    )
}
