//! The first write that differs, as text.

use std::fmt::Write as _;

use cutape_history::written_by;
use cutape_render::quantity::{count, grouped};

use crate::first_write::{DifferingWrite, FirstWrite};
use crate::text::memory_line;

/// How many lines of a list are shown.
const SHOWN: usize = 8;

/// The text of a comparison of the writes of two traces.
pub fn first_write_text(report: &FirstWrite) -> String {
    let mut out = String::new();
    let compared = count(report.writes, "write");
    match &report.first {
        Some(first) => {
            write_first(first, &mut out);
            let differing = grouped(report.differing);
            let _ = writeln!(
                out,
                "{compared} of calls and nodes compared, {differing} differ"
            );
        }
        None if report.unread > 0 => {
            let unread = grouped(report.unread);
            let _ = writeln!(
                out,
                "{compared} compared: {unread} differ by their digests and were not read (--most)"
            );
        }
        None => {
            let _ = writeln!(out, "both recordings write the same: {compared} compared");
        }
    }
    for (what, calls) in [
        (
            "within the tolerance, or only in addresses",
            &report.dismissed,
        ),
        ("not the same in a second replay", &report.not_reproducible),
    ] {
        if !calls.is_empty() {
            let shown = calls.iter().take(SHOWN).map(u64::to_string);
            let shown = shown.collect::<Vec<_>>().join(", ");
            let more = if calls.len() > SHOWN { ", …" } else { "" };
            let _ = writeln!(out, "not counted: {what}: calls {shown}{more}");
        }
    }
    for (name, only) in ["the trace", "the other one"].iter().zip(report.only) {
        if only > 0 {
            let writes = count(only, "write");
            let _ = writeln!(
                out,
                "{writes} of calls that {name} has alone: `cutape diff` lists them"
            );
        }
    }
    out
}

fn write_first(first: &DifferingWrite, out: &mut String) {
    let [a, b] = &first.writers;
    let _ = writeln!(out, "{}", written_by(&a.by, a.call, &a.by_call));
    let _ = writeln!(
        out,
        "  in the other one {}",
        written_by(&b.by, b.call, &b.by_call)
    );
    let _ = match first.kinds.is_empty() {
        true => writeln!(
            out,
            "  the calls are equal: what they run or read differs (`cutape diff --execute`)"
        ),
        false => writeln!(out, "  the calls differ in: {}", first.kinds.join(", ")),
    };
    for memory in first.memory.iter().take(SHOWN) {
        let _ = writeln!(out, "  {}", memory_line(memory));
    }
    if first.memory.len() > SHOWN {
        let more = count((first.memory.len() - SHOWN) as u64, "further part");
        let _ = writeln!(out, "  and {more} of memory");
    }
    if let Some(why) = &first.not_read {
        let _ = writeln!(out, "  its memory was not read: {why}");
    }
}
