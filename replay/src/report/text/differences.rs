//! Differences from the recording as text.

use std::fmt::Write as _;

use cutape_render::quantity::ungrouped;
use cutape_render::text::printable;

use super::{SHOWN, of_kernel};
use crate::report::{Divergence, Report, Verdict, What};

/// Divergences, and what may follow from calls that were not re-issued.
pub(super) fn write(out: &mut String, report: &Report) {
    for divergence in &report.divergences {
        *out += &divergence.text();
    }
    if report.divergence_count > report.divergences.len() as u64 {
        let more = report.divergence_count - report.divergences.len() as u64;
        let _ = writeln!(out, "  and {more} more");
    }
    for cause in &report.consequences {
        let (what, first) = (printable(&cause.cause), cause.first);
        let differences = ungrouped(cause.differences, "later difference");
        let _ = match cause.left_out {
            0 => writeln!(
                out,
                "{what}, first at call {first}; {differences} may follow"
            ),
            left_out => writeln!(
                out,
                "not re-issued because of {what}: {}, the first call {first}; data of {} is missing; \
                 {differences} may follow",
                ungrouped(left_out, "call"),
                cause.lost,
            ),
        };
        if let Some(first) = &cause.first_difference {
            *out += &first.text();
        }
    }
}

/// Differences that never count.
pub(super) fn write_uncounted(out: &mut String, report: &Report) {
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
            *out += &changed.text();
        }
        let more = count.saturating_sub(SHOWN as u64);
        if more > 0 {
            let _ = writeln!(out, "  and {more} more that are {}", why.word());
        }
    }
}

impl Divergence {
    /// The difference for people, in lines.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let what = match self.what {
            What::Result => "result".to_owned(),
            What::Digest => match &self.parameter {
                Some(memory) => format!("device memory at {memory}"),
                None => "device memory".to_owned(),
            },
            What::OutParameter | What::Bytes | What::Text => match &self.parameter {
                Some(parameter) => format!("what {parameter} points at"),
                None => "bytes".to_owned(),
            },
        };
        let kind = match self.verdict {
            Verdict::Consequence | Verdict::HostChanged | Verdict::ChangedInput => "difference",
            _ => "divergence",
        };
        let _ = writeln!(
            out,
            "{kind}: call {} {}{}: {what} differs",
            self.call,
            self.function,
            of_kernel(self.kernel.as_deref())
        );
        let _ = writeln!(out, "  verdict {}", self.verdict.word());
        let _ = writeln!(out, "  expected {}", self.expected);
        let _ = writeln!(out, "  received {}", self.received);
        if let (Some(first), Some(count)) = (self.first_differing_byte, self.differing_bytes) {
            let _ = writeln!(out, "  {count} bytes differ, the first at offset {first}");
        }
        if let Some(call) = self.enqueued_by {
            let _ = writeln!(out, "  enqueued by call {call}");
        }
        for line in &self.history {
            let _ = writeln!(out, "  {line}");
        }
        out
    }
}
