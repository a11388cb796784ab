//! The smallest trace that still shows a finding, an error, a divergence, a crash, or what a
//! command finds.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cutape_format::{NewCall, NewSnapshot, Trace, TraceBuilder};
use cutape_tests::{Output, Suite, Verdict, compiled, names, parts, record, replay, run};

/// Programs that break a rule, and the most calls that the smallest trace may have.
const FINDINGS: [(&str, &str, usize); 8] = [
    (
        "rules/link-cubin-after-destroy",
        "link-cubin-after-destroy",
        8,
    ),
    ("rules/link-state-leak", "link-state-leak", 6),
    ("rules/module-double-unload", "module-double-unload", 7),
    (
        "rules/module-unload-work-pending",
        "module-unload-work-pending",
        12,
    ),
    (
        "rules/module-use-after-unload",
        "module-use-after-unload",
        8,
    ),
    (
        "misuse/argument-after-free",
        "memory-use-after-free-kernel-argument",
        11,
    ),
    ("misuse/memory-leak", "memory-leak", 14),
    (
        "misuse/stream-after-destroy",
        "stream-use-after-destroy",
        10,
    ),
];

/// Programs that die inside the driver, the fatal call, and the most calls that it needs.
const FATAL: [(&str, &str, usize); 4] = [
    ("misuse/stream-after-destroy", "cuLaunchKernel", 8),
    ("misuse/event-after-destroy", "cuEventRecord", 7),
    ("misuse/double-link-destroy", "cuLinkDestroy", 6),
    ("misuse/context-after-destroy", "cuCtxPopCurrent_v2", 5),
];

pub(crate) fn add_to(suite: &mut Suite) {
    for (program, rule, most) in FINDINGS {
        suite.test(format!("finding/{rule}"), move |folder| {
            a_finding_stays(folder, program, rule, most)
        });
    }
    suite
        .test("long-trace", a_long_trace_is_cut_in_a_minute)
        .test("sizes", what_calls_have_becomes_smaller)
        .test("error", an_error_stays)
        .test("divergence", a_divergence_stays)
        .test("other-image", the_divergence_of_another_image_stays)
        .test("nondeterminism", a_nondeterministic_launch_stays)
        .test("crash", a_crash_stays);
    for (program, fatal, most) in FATAL {
        suite.test(format!("fatal/{program}"), move |folder| {
            the_fatal_call_stays(folder, program, fatal, most)
        });
    }
    suite
        .test("command", what_a_command_finds_stays)
        .test("time-limit", the_same_command_goes_on)
        .test("interrupt", an_interrupt_keeps_the_smallest)
        .test("absent", what_is_not_there_is_refused);
}

fn recorded(folder: &Path, program: &str) -> PathBuf {
    let path = folder.join("source.cutape");
    run(&mut record(&path, &[], &[&compiled(program)]));
    path
}

fn minimize(source: &Path, target: &Path, options: &[&str]) -> Command {
    let mut command = parts().cutape(&[&"minimize", &source, &"-o", &target]);
    command.args(options);
    command
}

fn open(path: &Path) -> Result<Trace, String> {
    Trace::open(path).map_err(|error| error.to_string())
}

/// The rules of all findings.
fn rules(trace: &Path) -> Result<BTreeSet<String>, String> {
    let check = run(&mut parts().cutape(&[&"check", &"--all", &"--format", &"json", &trace]));
    let findings: serde_json::Value = serde_json::from_str(&check.stdout)
        .map_err(|error| format!("{error}: {}", check.describe()))?;
    let findings = findings["findings"].as_array().ok_or("no findings")?;
    let rule = |finding: &serde_json::Value| finding["rule"].as_str().unwrap_or("").to_owned();
    Ok(findings.iter().map(rule).collect())
}

/// Nothing but the trace is left, and not more than that many calls.
fn expect_small(output: &Output, target: &Path, most: usize) -> Result<Trace, String> {
    output.expect_code(0)?;
    let trace = open(target)?;
    let calls = trace.calls().count();
    if calls > most {
        return Err(format!("{calls} calls: {:?}", names(&trace)));
    }
    match target.with_extension("cutape.minimize").exists() {
        true => Err("the folder of the search is left".into()),
        false => Ok(trace),
    }
}

fn a_finding_stays(
    folder: &Path,
    program: &str,
    rule: &str,
    most: usize,
) -> Result<Verdict, String> {
    let source = recorded(folder, &format!("{program}/violation"));
    let target = folder.join("small.cutape");
    let output = run(&mut minimize(&source, &target, &["--keep-finding", rule]));
    expect_small(&output, &target, most)?;
    let (before, after) = (rules(&source)?, rules(&target)?);
    match after.contains(rule) && after.is_subset(&before) {
        true => Ok(Verdict::Passed),
        false => Err(format!("{after:?} of {before:?}")),
    }
}

/// Loads and unloads modules, with copies between; one function is used after its module's end.
fn long_trace(path: &Path) {
    const ROUNDS: u64 = 14_300;
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    let mut call = |name: &str, arguments: &[u64], made: u64, result: i32| {
        let made_bytes = made.to_le_bytes();
        let out = [NewSnapshot::pointee(0, &made_bytes)];
        builder
            .call(NewCall {
                name,
                arguments,
                ..NewCall::default()
            })
            .leave(0, result, if made == 0 { &[] } else { &out });
    };
    call("cuInit", &[0], 0, 0);
    call("cuCtxCreate_v2", &[1, 0, 0], 0xc, 0);
    for round in 0..ROUNDS {
        let (module, function) = (0x10_0000 + round * 16, 0x9000_0000 + round * 16);
        let address = 0x7000_0000_0000 + (round % 7) * 0x1000;
        call("cuMemAlloc_v2", &[1, 0x1000], address, 0);
        call("cuModuleLoadData", &[1, 2], module, 0);
        call("cuModuleGetFunction", &[1, module, 3], function, 0);
        call("cuMemsetD8_v2", &[address, 0, 0x1000], 0, 0);
        call("cuMemcpyDtoD_v2", &[address, address + 0x800, 0x100], 0, 0);
        call("cuMemFree_v2", &[address], 0, 0);
        call("cuModuleUnload", &[module], 0, 0);
        if round == ROUNDS / 2 {
            call("cuFuncSetAttribute", &[function, 8, 1], 0, 400);
        }
    }
    call("cuCtxDestroy_v2", &[0xc], 0, 0);
    builder.write(path).unwrap();
}

fn a_long_trace_is_cut_in_a_minute(folder: &Path) -> Result<Verdict, String> {
    let (source, target) = (folder.join("long.cutape"), folder.join("small.cutape"));
    long_trace(&source);
    let calls = open(&source)?.calls().count();
    if calls < 100_000 {
        return Err(format!("only {calls} calls"));
    }
    let started = Instant::now();
    let options = ["--keep-finding", "module-function-after-unload"];
    let output = run(&mut minimize(&source, &target, &options));
    let took = started.elapsed();
    let trace = expect_small(&output, &target, 19)?;
    if took > Duration::from_secs(60) {
        return Err(format!("took {took:?}"));
    }
    // The indices that the calls had.
    let indices = trace.meta_value("cut.calls").unwrap_or_default();
    match indices.contains("50053") && rules(&target)?.contains(options[1]) {
        true => Ok(Verdict::Passed),
        false => Err(format!("calls {indices}, findings {:?}", rules(&target)?)),
    }
}

/// The sizes and bytes of calls that are left, and the entries of a fat binary.
fn what_calls_have_becomes_smaller(folder: &Path) -> Result<Verdict, String> {
    for (program, words, expected, absent) in [
        (
            "clean/launch_ex",
            "grep -q 'cuLaunchKernelEx(.*SUCCESS'",
            &["grid = 1x1x1, block = 1x1x1, shared = 0"][..],
            "reserved",
        ),
        (
            "clean/launch_vector_add",
            "grep -q 'cuMemcpyHtoD_v2(.*SUCCESS'",
            &["ByteCount = 1)", "made smaller"],
            "ByteCount = 400000",
        ),
        (
            "clean/module_fatbin",
            "grep 'fatbin .*SUCCESS' | wc -l | grep -q 4",
            &["sm_90", "sm_70"],
            "sm_75",
        ),
    ] {
        let folder = folder.join(program);
        fs::create_dir_all(&folder).unwrap();
        let source = recorded(&folder, program);
        let target = folder.join("small.cutape");
        let output = run(&mut minimize(&source, &target, &["--test", &finds(words)]));
        expect_small(&output, &target, 8)?;
        let dump = run(&mut parts().cutape(&[&"dump", &target]));
        let is_shown = expected.iter().all(|words| dump.stdout.contains(words));
        if !is_shown || dump.stdout.contains(absent) {
            return Err(format!("{expected:?}, not {absent}\n{}", dump.describe()));
        }
        let info = run(&mut parts().cutape(&[&"info", &target]));
        if !info.stdout.contains("made smaller") || !open(&target)?.verify().is_empty() {
            return Err(info.describe());
        }
        // A launch without its memory is still one that the null driver takes.
        run(&mut replay(&target)).expect_code(0)?;
    }
    Ok(Verdict::Passed)
}

fn an_error_stays(folder: &Path) -> Result<Verdict, String> {
    let source = recorded(folder, "clean/errors");
    let target = folder.join("small.cutape");
    let failed = open(&source)?.calls().find_map(|call| {
        let result = call.result().filter(|&result| result != 0 && result != 3)?;
        Some((result.to_string(), call.signature.name.clone()))
    });
    let (code, name) = failed.ok_or("no call failed")?;
    let options = ["--keep-error", code.as_str(), "--driver", "null"];
    let output = run(&mut minimize(&source, &target, &options));
    let trace = expect_small(&output, &target, 6)?;
    run(&mut replay(&target)).expect_code(0)?;
    let kept = trace
        .calls()
        .find(|call| call.result().is_some_and(|it| it.to_string() == code));
    match kept.is_some_and(|call| call.signature.name == name) {
        true => Ok(Verdict::Passed),
        false => Err(format!("{:?}", names(&trace))),
    }
}

fn a_divergence_stays(folder: &Path) -> Result<Verdict, String> {
    let source = recorded(folder, "clean/streams");
    let target = folder.join("small.cutape");
    let fails = ("CUTAPE_NULL_FAIL", "cuStreamSynchronize@*=1");
    let options = ["--keep-divergence", "--driver", "null"];
    let output = run(minimize(&source, &target, &options).env(fails.0, fails.1));
    let trace = expect_small(&output, &target, 8)?;
    let report = run(replay(&target).env(fails.0, fails.1));
    report.expect_code(1)?;
    match names(&trace)
        .iter()
        .any(|name| name.starts_with("cuStreamSynchronize"))
    {
        true => Ok(Verdict::Passed),
        false => Err(format!("{:?}", names(&trace))),
    }
}

/// The image that a replay loads has no kernel of the name that the program asks for.
fn the_divergence_of_another_image_stays(folder: &Path) -> Result<Verdict, String> {
    let source = recorded(folder, "clean/launch_thousand");
    let target = folder.join("small.cutape");
    let trace = open(&source)?;
    let load = trace
        .calls()
        .find(|call| call.signature.name.starts_with("cuModuleLoadData"))
        .ok_or("no module is loaded")?;
    let image = folder.join("other.ptx");
    fs::write(
        &image,
        ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry other()\n{\n ret;\n}\n",
    )
    .unwrap();
    let option = |call: u64| format!("{call}={}", image.display());
    let replaced = option(load.index);
    let options = ["--keep-divergence", "--driver", "null", "--replace-image"];
    let options = [&options[..], &[&replaced]].concat();
    let output = run(&mut minimize(&source, &target, &options));
    let small = expect_small(&output, &target, 6)?;
    // As recorded it agrees; with the image it does not.
    run(&mut replay(&target)).expect_code(0)?;
    let load = names(&small)
        .iter()
        .position(|name| name.starts_with("cuModuleLoadData"));
    let shown = format!("--replace-image {}", option(load.ok_or("no load")? as u64));
    if !output.stderr.contains(&shown) {
        return Err(format!("no `{shown}`: {}", output.describe()));
    }
    let report = run(replay(&target).args(shown.split(' ')));
    report.expect_code(1)?;
    for (options, expected) in [
        (
            &["--keep-divergence", "--replace-image", "0=x"][..],
            "call 0 does not load an image from memory",
        ),
        (
            &["--test", "true", "--replace-image", &replaced],
            "only replays load other images",
        ),
    ] {
        let target = folder.join("none.cutape");
        let output = run(minimize(&source, &target, options).args(["--driver", "null"]));
        output.expect_code(2)?;
        if !output.stderr.contains(expected) || target.exists() {
            return Err(format!("expected `{expected}`\n{}", output.describe()));
        }
    }
    Ok(Verdict::Passed)
}

/// A launch that writes other bytes each time: what is left is that launch and the copy.
fn a_nondeterministic_launch_stays(folder: &Path) -> Result<Verdict, String> {
    let source = recorded(folder, "clean/launch_thousand");
    let target = folder.join("small.cutape");
    let trace = open(&source)?;
    let found = trace
        .calls()
        .find(|call| call.signature.name == "cuModuleGetFunction");
    let found = found.ok_or("no kernel is looked up")?;
    let name = found.snapshot(2, 0).and_then(|name| name.bytes.inline());
    let kernel = String::from_utf8_lossy(name.ok_or("no name")?).replace('\0', "");
    let other = ("CUTAPE_NULL_NONDETERMINISTIC", kernel);
    let options = ["--keep-divergence", "--driver", "null"];
    let output = run(minimize(&source, &target, &options).env(other.0, &other.1));
    let small = expect_small(&output, &target, 10)?;
    run(replay(&target).env(other.0, &other.1)).expect_code(1)?;
    run(&mut replay(&target)).expect_code(0)?;
    let calls = names(&small);
    match ["cuLaunchKernel", "cuMemcpyDtoH_v2"]
        .iter()
        .all(|wanted| calls.iter().any(|name| name == wanted))
    {
        true => Ok(Verdict::Passed),
        false => Err(format!("{calls:?}")),
    }
}

/// The recorded program died in a call, which the trace has without a result.
fn the_fatal_call_stays(
    folder: &Path,
    program: &str,
    fatal: &str,
    most: usize,
) -> Result<Verdict, String> {
    let source = recorded(folder, &format!("{program}/violation"));
    let target = folder.join("small.cutape");
    let options = ["--keep-crash", "--driver", "null"];
    let output = run(&mut minimize(&source, &target, &options));
    let trace = expect_small(&output, &target, most)?;
    let calls = names(&trace);
    // Without the option nothing crashes.
    run(&mut replay(&target)).expect_code(0)?;
    let report = run(replay(&target).arg("--reissue-fatal"));
    report.expect_code(1)?;
    match calls.last().is_some_and(|last| last == fatal)
        && output.stderr.contains("--reissue-fatal` shows it")
        && report.stdout.contains("died by signal")
    {
        true => Ok(Verdict::Passed),
        false => Err(format!("{calls:?}\n{}", report.describe())),
    }
}

fn a_crash_stays(folder: &Path) -> Result<Verdict, String> {
    let source = recorded(folder, "clean/launch_vector_add");
    let target = folder.join("small.cutape");
    let options = ["--keep-crash", "--driver", "null"];
    let crash = ("CUTAPE_NULL_CRASH", "cuLaunchKernel");
    let output = run(minimize(&source, &target, &options).env(crash.0, crash.1));
    let trace = expect_small(&output, &target, 9)?;
    let calls = names(&trace);
    let report = run(replay(&target).env(crash.0, crash.1));
    match calls.last().is_some_and(|last| last == "cuLaunchKernel")
        && report.stdout.contains("died by signal 11 in call")
    {
        true => Ok(Verdict::Passed),
        false => Err(format!("{calls:?}\n{}", report.describe())),
    }
}

/// A command that accepts traces with whose dump these commands succeed.
fn finds(words: &str) -> String {
    format!("{} dump {{}} | {words}", parts().cutape.display())
}

fn what_a_command_finds_stays(folder: &Path) -> Result<Verdict, String> {
    let source = recorded(folder, "clean/events");
    let target = folder.join("small.cutape");
    let command = finds("grep -q cuEventElapsedTime");
    let output = run(&mut minimize(&source, &target, &["--test", &command]));
    expect_small(&output, &target, 7)?;
    match names(&open(&target)?)
        .iter()
        .any(|name| name.starts_with("cuEventElapsedTime"))
    {
        true => Ok(Verdict::Passed),
        false => Err("the call is gone".into()),
    }
}

fn the_same_command_goes_on(folder: &Path) -> Result<Verdict, String> {
    let source = recorded(folder, "clean/events");
    let target = folder.join("small.cutape");
    // One attempt is over in time on a busy machine, and not all are on a fast one.
    let command = format!(
        "sleep ${{PAUSE:-0}}; {}",
        finds("grep -q cuEventElapsedTime")
    );
    let limited = ["--test", &command, "--time-limit", "6"];
    let output = run(minimize(&source, &target, &limited).env("PAUSE", "1"));
    output.expect_code(0)?;
    if !output
        .stderr
        .contains("the time is over; the same command goes on")
    {
        return Err(output.describe());
    }
    let first = open(&target)?.calls().count();
    // Another search does not take over its files.
    let other = run(&mut minimize(&source, &target, &["--test", "true"]));
    other.expect_code(2)?;
    let output = run(&mut minimize(&source, &target, &["--test", &command]));
    if !output.stderr.contains("goes on from") {
        return Err(output.describe());
    }
    let trace = expect_small(&output, &target, 7)?;
    match trace.calls().count() < first {
        true => Ok(Verdict::Passed),
        false => Err(format!("{first} calls, and no fewer later")),
    }
}

fn an_interrupt_keeps_the_smallest(folder: &Path) -> Result<Verdict, String> {
    let source = recorded(folder, "clean/events");
    let target = folder.join("small.cutape");
    // Once a trace has been judged, the command waits, so that the search does not end before the
    // interrupt.
    let (waiting, go_on) = (folder.join("waiting"), folder.join("go-on"));
    let waits = format!(
        "if ls {0}.minimize/best-* >{1} 2>&1; then mv {1} {1}-1; until [ -e {2} ]; do sleep 0.02; \
         done; fi",
        target.display(),
        waiting.display(),
        go_on.display()
    );
    let command = format!("{waits}; {}", finds("grep -q cuEventElapsedTime"));
    let mut search = minimize(&source, &target, &["--test", &command]);
    search.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = search.spawn().map_err(|error| error.to_string())?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while !folder.join("waiting-1").exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    // SAFETY: the child is ours and has not been waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    fs::write(&go_on, "").map_err(|error| error.to_string())?;
    let status = child.wait().map_err(|error| error.to_string())?;
    let left: Vec<_> = fs::read_dir(folder.join("small.cutape.minimize"))
        .map_err(|error| error.to_string())?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let is_whole = open(&target)?.verify().is_empty();
    match status.success() && is_whole && !left.iter().any(|name| name.contains("candidate")) {
        true => Ok(Verdict::Passed),
        false => Err(format!("{status}, left: {left:?}")),
    }
}

fn what_is_not_there_is_refused(folder: &Path) -> Result<Verdict, String> {
    let source = recorded(folder, "clean/events");
    let target = folder.join("small.cutape");
    for (options, expected) in [
        (
            &["--keep-finding", "memory-leak"][..],
            "check has no finding of memory-leak",
        ),
        (
            &["--keep-finding", "memory-lea"],
            "did you mean `memory-leak`",
        ),
        (
            &["--keep-divergence", "--driver", "null"],
            "its replay has no divergence",
        ),
        (
            &["--keep-crash", "--driver", "null"],
            "its replay does not crash",
        ),
        (
            &["--keep-error", "700", "--driver", "null"],
            "no call returns CUDA_ERROR_ILLEGAL",
        ),
        (
            &["--keep-error", "nonsense"],
            "nonsense is no error of the driver",
        ),
        (&["--test", "false"], "does not exit with status 0"),
        (
            &["--test", "./no-such-program"],
            "the command cannot be run",
        ),
    ] {
        let output = run(&mut minimize(&source, &target, options));
        output.expect_code(2)?;
        let is_one_line = output.stderr.trim_end().lines().count() == 1;
        if !is_one_line || !output.stderr.contains(expected) {
            return Err(format!("expected `{expected}`\n{}", output.describe()));
        }
        let left = cutape_tests::files(folder);
        if left != [source.clone()] {
            return Err(format!("left: {left:?}"));
        }
    }
    let nowhere = folder.join("no-folder/small.cutape");
    let output = run(&mut minimize(&source, &nowhere, &["--test", "true"]));
    output.expect_code(2)?;
    if !output
        .stderr
        .contains("no-folder/small.cutape: No such file")
        || nowhere.exists()
    {
        return Err(output.describe());
    }
    fs::write(&target, "mine").unwrap();
    let output = run(&mut minimize(&source, &target, &["--test", "true"]));
    output.expect_code(2)?;
    match fs::read(&target).unwrap() == b"mine" && output.stderr.contains("it exists") {
        true => Ok(Verdict::Passed),
        false => Err(output.describe()),
    }
}
