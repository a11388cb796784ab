//! Clocks that go back: the time of day, and the counter of the processor (a machine that was
//! suspended, or a virtual one that was moved).

use std::fs;
use std::path::Path;

use cutape_format::layout::FileHead;
use cutape_format::{NewCall, NewSnapshot, Trace, TraceBuilder, codec};
use cutape_tests::{Suite, calls_of, parts, run};

use super::programs;

pub(crate) fn add_to(suite: &mut Suite) {
    suite
        .test("time-of-day-goes-back", time_of_day)
        .test("counter-goes-back", counter);
}

/// Verbs that read times, with `OUT` for a new file.
const VERBS: [&str; 12] = [
    "info TRACE",
    "info TRACE --format json",
    "dump TRACE",
    "check TRACE",
    "check TRACE --all",
    "export --format perfetto TRACE -o OUT",
    "export --format chrome TRACE -o OUT",
    "export --format jsonl TRACE -o OUT",
    "report TRACE -o OUT",
    "diff TRACE TRACE",
    "replay --driver null TRACE",
    "replay --driver null --threads TRACE",
];

/// Every verb reads the trace, finds nothing wrong, and says nothing of times.
fn expect_readable(trace: &Path) -> Result<(), String> {
    for (number, words) in VERBS.iter().enumerate() {
        let new = trace.with_extension(format!("out{number}"));
        let mut command = parts().cutape(&[]);
        command.args(words.split(' ').map(|word| match word {
            "TRACE" => trace.as_os_str(),
            "OUT" => new.as_os_str(),
            word => word.as_ref(),
        }));
        let output = run(&mut command);
        // `report` names its file.
        let expected = match words.starts_with("report") {
            true => output.expect_code(0),
            false => output.expect(0),
        };
        expected.map_err(|why| format!("{words}: {why}"))?;
        if words.starts_with("check") && !output.stdout.contains("no findings") {
            return Err(output.describe());
        }
    }
    Ok(())
}

fn time_of_day(folder: &Path) -> Result<(), String> {
    let trace = folder.join("t.cutape");
    let mut command = parts().cutape(&[&"record", &"--driver", &"null", &"-o", &trace, &"--"]);
    command
        .arg(&programs().counted)
        .arg(folder.join("counts"))
        .args(["2", "500"])
        .env("LD_PRELOAD", &programs().shim)
        .env("FAULT", "clock");
    run(&mut command).expect(0)?;
    let opened = Trace::open(&trace).map_err(|error| error.to_string())?;
    let calls = calls_of(&opened, "cuCtxSynchronize") + calls_of(&opened, "cuMemcpyHtoD_v2");
    if calls != 1000 {
        return Err(format!("{calls} calls"));
    }
    expect_readable(&trace)
}

/// A thread allocates and frees, and the counter goes back before, between or within these calls.
fn counter(folder: &Path) -> Result<(), String> {
    const STEPS: usize = 8;
    // Before the first call of all, and to after it.
    for to in [0, 1, 1500] {
        for at in 0..STEPS {
            let trace = folder.join(format!("{to}-{at}.cutape"));
            write(&going_back(to, at), &trace)?;
            let names = cutape_tests::names(&Trace::open(&trace).map_err(|e| e.to_string())?);
            let expected = ["cuInit", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"]
                .into_iter()
                .chain(["cuMemAlloc_v2", "cuMemFree_v2", "cuCtxSynchronize"])
                .chain(["cuDevicePrimaryCtxRelease_v2"]);
            if !names.iter().map(String::as_str).eq(expected) {
                return Err(format!("back to {to} at {at}: {names:?}"));
            }
            // The verbs take long.
            if at == STEPS / 2 {
                expect_readable(&trace).map_err(|why| format!("back to {to}: {why}"))?;
            }
        }
    }
    Ok(())
}

/// Writes a trace whose ticks are those of a counter with a rate: nanoseconds.
fn write(builder: &TraceBuilder, path: &Path) -> Result<(), String> {
    let mut bytes = builder.bytes();
    let (head, _) = codec::decode::<FileHead>(&bytes).ok_or("no head")?;
    let head = FileHead {
        clock: 0,
        ticks_per_second: 1_000_000_000,
        ..head
    };
    let head = head.encode();
    bytes[..head.len()].copy_from_slice(&head);
    fs::write(path, bytes).map_err(|error| error.to_string())
}

/// A function, its arguments, and the handle that it makes.
type Made<'a> = (&'a str, &'a [u64], Option<&'a [u8]>);

/// A correct program of one thread. At that step, the counter goes back to `ticks`.
fn going_back(ticks: u64, step: usize) -> TraceBuilder {
    let (context, memory) = (0x5000_u64.to_le_bytes(), 0x7000_0000_u64.to_le_bytes());
    let calls: [Made<'_>; 7] = [
        ("cuInit", &[0], None),
        ("cuDevicePrimaryCtxRetain", &[0x1000, 0], Some(&context)),
        ("cuCtxSetCurrent", &[0x5000], None),
        ("cuMemAlloc_v2", &[0x1000, 4096], Some(&memory)),
        ("cuMemFree_v2", &[0x7000_0000], None),
        ("cuCtxSynchronize", &[], None),
        ("cuDevicePrimaryCtxRelease_v2", &[0], None),
    ];
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    builder.at(1_000_000);
    for (number, (name, arguments, created)) in calls.into_iter().enumerate() {
        if number == step {
            builder.at(ticks);
        }
        builder.call(NewCall {
            name,
            arguments,
            ..NewCall::default()
        });
        // Within a call.
        if number + 1 == step {
            builder.at(ticks);
        }
        let created: Vec<_> = created
            .into_iter()
            .map(|bytes| NewSnapshot::pointee(0, bytes))
            .collect();
        builder.leave(0, 0, &created);
    }
    builder
}
