//! How a replay ended, as text: the cause of an error, and where it died or hung.

use std::fmt::Write as _;

use cutape_render::text::printable;

use super::{SHOWN, of_kernel};
use crate::report::Report;

pub(super) fn write(out: &mut String, report: &Report) {
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
    write_pending(out, report);
}

/// The work that may not have been complete when the replay hung.
fn write_pending(out: &mut String, report: &Report) {
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
