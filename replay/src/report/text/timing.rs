//! Measured times as text.

use std::fmt::Write as _;

use crate::report::Report;

pub(super) fn write(out: &mut String, report: &Report) {
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
}
