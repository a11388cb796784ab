//! A report for people.

use std::fmt::Write as _;

use cutape_render::quantity;
use cutape_render::text::printable;

use crate::core_dump::{CoreDump, Fault};
use crate::report::{Line, Memory, Report, Stream, Thread, Wait};

/// The report as lines.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    head(report, &mut out);
    for stream in &report.streams {
        out.push('\n');
        let runs = report.running && report.failure.is_none();
        stream_lines(stream, (runs, report.lacks_calls()), &mut out);
    }
    if !report.threads.is_empty() {
        out.push('\n');
    }
    for thread in &report.threads {
        thread_lines(thread, &mut out);
    }
    if let [first, ..] = report.cycle.as_slice() {
        let circle = report.cycle.join(" waits for ");
        put(
            &mut out,
            format_args!("\na circle: {circle} waits for {first}"),
        );
    }
    for (path, dump) in report.core_dumps.iter().zip(&report.core_dump_contents) {
        core_dump_lines(&path.display().to_string(), dump, &mut out);
    }
    out
}

fn core_dump_lines(path: &str, dump: &CoreDump, out: &mut String) {
    put(out, format_args!("\ncore dump of the GPU: {path}"));
    if let Some(why) = &dump.unreadable {
        put(out, format_args!("  cannot be read: {why}"));
    }
    for fault in &dump.faults {
        fault_lines(fault, out);
    }
    for grid in &dump.grids {
        let (device, threads) = (grid.device, grid.threads);
        let blocks = quantity::count(grid.blocks, "block");
        let [size, block] = [grid.size, grid.block_size].map(three);
        let kernel = kernel(grid.kernel.as_ref());
        let threads = quantity::count(threads, "thread");
        let at_trap = match grid.at_trap {
            0 => String::new(),
            count => format!(", {count} of them at a trap or breakpoint"),
        };
        put(
            out,
            format_args!(
                "  on device {device}: {kernel}, grid {size}, block {block}: {threads} in {blocks}\
                 {at_trap}{}",
                launches(&grid.calls)
            ),
        );
    }
    put(
        out,
        format_args!("  line: cuda-gdb -batch -ex 'target cudacore {path}' -ex bt"),
    );
}

fn fault_lines(fault: &Fault, out: &mut String) {
    let Fault {
        device, exception, ..
    } = fault;
    let meaning = fault.meaning.map(|meaning| format!(", {meaning}"));
    let kernel = kernel(fault.kernel.as_ref());
    let offset = fault.offset;
    let offset = offset.map_or_else(String::new, |offset| format!(" + {offset:#x}"));
    put(
        out,
        format_args!(
            "  {exception}{} on device {device} in {kernel}{offset}{}",
            meaning.unwrap_or_default(),
            launches(&fault.calls)
        ),
    );
    match fault.thread {
        Some(first) => {
            let (block, thread) = (three(first.block), three(first.thread));
            let others = match fault.threads.saturating_sub(1) {
                0 => String::new(),
                others => format!(", and in {}", quantity::count(others, "other thread")),
            };
            put(
                out,
                format_args!("    in block {block}, thread {thread}{others}"),
            );
        }
        None => put(out, format_args!("    in threads that have ended")),
    }
}

fn kernel(name: Option<&String>) -> &str {
    name.map_or("an unknown kernel", String::as_str)
}

/// `(1, 2, 3)`.
fn three([x, y, z]: [u32; 3]) -> String {
    format!("({x}, {y}, {z})")
}

fn launches(calls: &[u64]) -> String {
    let named: Vec<String> = calls.iter().map(u64::to_string).collect();
    match calls.len() {
        0 => String::new(),
        1 => format!("; launched by call {}", named[0]),
        _ => format!("; launched by one of the calls {}", named.join(", ")),
    }
}

fn put(out: &mut String, line: std::fmt::Arguments<'_>) {
    let line = line.to_string();
    // Lines begin with those of the report; what a trace names may have others.
    let (begin, rest) = line.split_at(line.len() - line.trim_start_matches('\n').len());
    // Writing to a String never fails.
    let _ = writeln!(out, "{begin}{}", printable(rest));
}

fn head(report: &Report, out: &mut String) {
    let (process, calls) = (report.process, report.calls);
    let state = match (report.running, report.idle_ns) {
        (true, Some(idle)) => {
            let idle = quantity::time(idle);
            format!(": {calls} calls; no progress of its threads in the driver for {idle}")
        }
        (true, None) => format!(": {calls} calls"),
        (false, _) => format!(", which has ended: {calls} calls"),
    };
    put(out, format_args!("process {process}{state}"));
    for line in report.completeness.lines() {
        put(out, format_args!("{line}"));
    }
    if report.lacks_earlier_calls {
        put(out, format_args!("earlier calls are not in the trace"));
    }
    if report.lacks_calls() {
        put(
            out,
            format_args!(
                "work of missing calls may run, too; they may have waited for what is listed, and \
                 threads may be in them"
            ),
        );
    }
    match (report.breadcrumbs, report.progress) {
        (None, _) => put(
            out,
            format_args!(
                "no breadcrumbs (record --breadcrumbs): complete is only what the program has \
                 waited for"
            ),
        ),
        (Some(every), Some(true)) => put(
            out,
            format_args!("breadcrumbs: every {every} launches; a stream has just written one"),
        ),
        (Some(every), Some(false)) => put(
            out,
            format_args!("breadcrumbs: every {every} launches; no stream writes any"),
        ),
        (Some(every), None) => put(out, format_args!("breadcrumbs: every {every} launches")),
    }
    for refusal in &report.without_breadcrumbs {
        put(out, format_args!("no breadcrumbs: {refusal}"));
    }
    if let Some(failure) = &report.failure {
        let result = &failure.result;
        put(
            out,
            format_args!("work has failed: {result} was returned by"),
        );
        line(&failure.line, out);
        let or_missing = match report.lacks_calls() {
            true => ", or work of a missing call",
            false => "",
        };
        put(
            out,
            format_args!(
                "of one stream, the first work that is not complete has failed{or_missing}"
            ),
        );
    }
    if report.streams.is_empty() {
        put(out, format_args!("no work is known that may still run"));
    }
}

/// A stream; whether its work still runs, and whether calls are missing.
fn stream_lines(stream: &Stream, (runs, lacks_calls): (bool, bool), out: &mut String) {
    let name = &stream.name;
    let context = stream.context.as_ref();
    let context = context.map_or_else(String::new, |context| format!(" ({context})"));
    let count = stream.candidates.len() + stream.more_candidates;
    let (runs, waits) = match (runs, lacks_calls) {
        (true, false) => ("runs", "waits at"),
        (false, false) => ("ran", "waited at"),
        (true, true) => ("may run", "may wait at"),
        (false, true) => ("may have run", "may have waited at"),
    };
    let what = match (count, stream.waits.is_empty()) {
        (1, false) => waits.to_owned(),
        (1, true) => runs.to_owned(),
        (_, true) => format!("{runs} one of these {count}"),
        (_, false) => format!("{runs} one of these {count}, or {waits} the last of them"),
    };
    put(out, format_args!("{name}{context}: {what}"));
    for candidate in &stream.candidates {
        line(candidate, out);
        for node in &candidate.nodes {
            let (call, kernel) = (node.call, node.kernel.as_deref().unwrap_or("a kernel"));
            put(
                out,
                format_args!("    node: {kernel}, added by call {call}"),
            );
        }
    }
    if stream.more_candidates != 0 {
        put(out, format_args!("  and {} more", stream.more_candidates));
    }
    for wait in &stream.waits {
        wait_line(wait, out);
    }
    if stream.queued != 0 {
        let last = stream.last.as_ref().map_or(0, |last| last.call);
        let queued = stream.queued;
        put(
            out,
            format_args!("  queued after that: {queued}, up to call {last}"),
        );
    }
    match &stream.completed {
        Some(completed) => {
            let proof = match completed.by_call {
                Some(call) => format!("call {call} waited for it"),
                None => "its breadcrumb is written".to_owned(),
            };
            put(
                out,
                format_args!("  complete: all up to this call; {proof}"),
            );
            line(&completed.line, out);
        }
        None => put(out, format_args!("  complete: nothing is known to be")),
    }
}

fn line(line: &Line, out: &mut String) {
    let (call, text) = (line.call, &line.text);
    let place = line.place.as_ref();
    let place = place.map_or_else(String::new, |place| format!("   from {place}"));
    put(out, format_args!("    {call}  {text}{place}"));
}

fn wait_line(wait: &Wait, out: &mut String) {
    match wait {
        Wait::Event { record, streams } => {
            let streams = streams.join(", ");
            let record = record.as_ref().map_or_else(String::new, |record| {
                format!(", which call {} recorded", record.call)
            });
            put(
                out,
                format_args!("  waits for an event{record}: {streams} has not come to it"),
            );
        }
        Wait::Value {
            address,
            condition,
            memory,
            writers,
        } => {
            let found = match memory {
                Memory::Holds(found) => format!("it is {found}"),
                Memory::OfDevice => "memory of the device, which cannot be read".to_owned(),
                Memory::Unreadable => "it cannot be read".to_owned(),
            };
            put(
                out,
                format_args!("  waits for a value {condition} at {address}: {found}"),
            );
            if writers.is_empty() {
                put(
                    out,
                    format_args!("    no queued call writes it: the program or a kernel has to"),
                );
            }
            for writer in writers {
                let (stream, call) = (&writer.stream, writer.line.call);
                put(
                    out,
                    format_args!("    {stream} is to write it: call {call}"),
                );
            }
        }
        Wait::Order { streams } => {
            let streams = streams.join(", ");
            put(
                out,
                format_args!("  comes after work that may still run in {streams}"),
            );
        }
        Wait::HostFunction => put(
            out,
            format_args!("  a function of the program has not returned, or was not called yet"),
        ),
    }
}

fn thread_lines(thread: &Thread, out: &mut String) {
    let (ordinal, name, number) = (thread.thread, &thread.name, thread.number);
    let since = thread.since_ns;
    let since = since.map_or_else(String::new, |since| {
        format!(" for {}", quantity::time(since))
    });
    let streams = match thread.streams.as_slice() {
        [] => String::new(),
        streams => format!("; it waits for {}", streams.join(", ")),
    };
    put(
        out,
        format_args!("thread {ordinal} ({name}, {number}) is in a call{since}{streams}"),
    );
    line(&thread.line, out);
}

#[cfg(test)]
mod tests {
    use cutape_render::{CallsLeftOut, Completeness};

    use std::io::Cursor;

    use super::*;
    use crate::report::{Completed, Failure, Node, VERSION, Writer};
    use crate::test_dump::TestDump;

    fn named(call: u64, text: &str) -> Line {
        Line {
            call,
            text: text.to_owned(),
            ..Line::default()
        }
    }

    fn report() -> Report {
        Report {
            version: VERSION,
            process: 17,
            running: true,
            calls: 1234,
            completeness: Completeness::default(),
            lacks_earlier_calls: false,
            breadcrumbs: Some(16),
            without_breadcrumbs: vec!["stream 0x9: refused".to_owned()],
            idle_ns: Some(3_200_000_000),
            progress: Some(false),
            failure: None,
            streams: Vec::new(),
            threads: Vec::new(),
            cycle: Vec::new(),
            core_dumps: Vec::new(),
            core_dump_contents: Vec::new(),
        }
    }

    fn stream(candidates: Vec<Line>, waits: Vec<Wait>) -> Stream {
        Stream {
            name: "stream#1".to_owned(),
            context: Some("context#1".to_owned()),
            completed: None,
            candidates,
            more_candidates: 0,
            waits,
            queued: 0,
            last: None,
        }
    }

    #[test]
    fn a_hang_is_put_into_words() {
        let mut report = report();
        let mut runs = stream(vec![named(8, "cuGraphLaunch(g)")], Vec::new());
        runs.candidates[0].place = Some("a.py:3 in step".to_owned());
        runs.candidates[0].nodes = vec![Node {
            call: 4,
            kernel: Some("spin".to_owned()),
        }];
        runs.completed = Some(Completed {
            line: named(7, "cuLaunchKernel first"),
            by_call: None,
        });
        let value = Wait::Value {
            address: "0x10".to_owned(),
            condition: ">= 7".to_owned(),
            memory: Memory::Holds(3),
            writers: vec![Writer {
                stream: "stream#2".to_owned(),
                line: named(11, "cuStreamWriteValue32()"),
            }],
        };
        let mut waits = stream(vec![named(9, "a"), named(10, "b")], vec![value]);
        waits.queued = 2;
        waits.last = Some(named(12, "c"));
        report.streams = vec![runs, waits];
        report.threads = vec![Thread {
            thread: 0,
            number: 17,
            name: "app".to_owned(),
            line: named(13, "cuCtxSynchronize()"),
            since_ns: Some(3_200_000_000),
            streams: vec!["stream#1".to_owned()],
        }];
        report.cycle = vec!["stream#1".to_owned(), "stream#2".to_owned()];
        report.streams[0].candidates[0].nodes.push(Node {
            call: 5,
            kernel: Some("_Z4fillPji".to_owned()),
        });
        let bytes = TestDump {
            kernel: "_Z4fillPji".to_owned(),
            ..TestDump::fault()
        };
        report.add_core_dump(
            "/tmp/gpu.17".into(),
            CoreDump::read(Cursor::new(bytes.bytes())),
        );
        report.add_core_dump("/tmp/none".into(), CoreDump::read(Cursor::new(b"none")));
        let expected = "\
process 17: 1234 calls; no progress of its threads in the driver for 3.20 s
breadcrumbs: every 16 launches; no stream writes any
no breadcrumbs: stream 0x9: refused

stream#1 (context#1): runs
    8  cuGraphLaunch(g)   from a.py:3 in step
    node: spin, added by call 4
    node: _Z4fillPji, added by call 5
  complete: all up to this call; its breadcrumb is written
    7  cuLaunchKernel first

stream#1 (context#1): runs one of these 2, or waits at the last of them
    9  a
    10  b
  waits for a value >= 7 at 0x10: it is 3
    stream#2 is to write it: call 11
  queued after that: 2, up to call 12
  complete: nothing is known to be

thread 0 (app, 17) is in a call for 3.20 s; it waits for stream#1
    13  cuCtxSynchronize()

a circle: stream#1 waits for stream#2 waits for stream#1

core dump of the GPU: /tmp/gpu.17
  CUDA_EXCEPTION_14, Warp Illegal Address on device 3 in fill + 0x50; launched by call 8
    in block (2, 1, 0), thread (33, 0, 0), and in 1 other thread
  on device 3: fill, grid (4, 2, 1), block (64, 1, 1): 3 threads in 1 block; launched by call 8
  line: cuda-gdb -batch -ex 'target cudacore /tmp/gpu.17' -ex bt

core dump of the GPU: /tmp/none
  cannot be read: Invalid ELF header size or alignment
  line: cuda-gdb -batch -ex 'target cudacore /tmp/none' -ex bt
";
        assert_eq!(text(&report), expected);
    }

    #[test]
    fn a_fault_and_nothing_are_put_into_words() {
        let mut report = report();
        report.without_breadcrumbs.clear();
        report.running = false;
        report.idle_ns = None;
        report.progress = None;
        report.failure = Some(Failure {
            line: named(9, "cuStreamSynchronize(s)"),
            result: "CUDA_ERROR_ILLEGAL_ADDRESS".to_owned(),
        });
        let expected = "\
process 17, which has ended: 1234 calls
breadcrumbs: every 16 launches
work has failed: CUDA_ERROR_ILLEGAL_ADDRESS was returned by
    9  cuStreamSynchronize(s)
of one stream, the first work that is not complete has failed
no work is known that may still run
";
        assert_eq!(text(&report), expected);
    }

    #[test]
    fn nothing_is_certain_where_calls_are_missing() {
        let mut report = report();
        report.without_breadcrumbs.clear();
        report.idle_ns = None;
        report.streams = vec![stream(vec![named(8, "cuLaunchKernel a")], Vec::new())];
        report.completeness.left_out = Some(CallsLeftOut {
            calls: 7,
            pauses: 1,
            paused_at_end: true,
        });
        let expected = "\
process 17: 1234 calls
recording was paused once, the last time until the end; 7 calls that only gave the device work, \
            waited or asked are missing
work of missing calls may run, too; they may have waited for what is listed, and threads may be \
            in them
breadcrumbs: every 16 launches; no stream writes any

stream#1 (context#1): may run
    8  cuLaunchKernel a
  complete: nothing is known to be
";
        assert_eq!(text(&report), expected);
        report.completeness.left_out = None;
        report.lacks_earlier_calls = true;
        report.streams.clear();
        report.failure = Some(Failure {
            line: named(9, "cuStreamSynchronize(s)"),
            result: "CUDA_ERROR_ILLEGAL_ADDRESS".to_owned(),
        });
        let found = text(&report);
        for line in [
            "earlier calls are not in the trace",
            "the first work that is not complete has failed, or work of a missing call",
        ] {
            assert!(found.contains(line), "{found}");
        }
    }
}
