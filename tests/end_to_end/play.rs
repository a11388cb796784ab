//! `cutape play`: a program runs again on the answers of its recording; the first call that is not
//! the recorded one is named.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cutape_tests::{
    Output, Verdict, bare, compile, compiled, ending, parts, play, record, root, run, with_macros,
};
use serde_json::Value;

cutape_tests::tests![
    what_kernels_compute_comes_from_the_recording,
    recordings_of_a_gpu_are_played,
    each_change_is_named,
    planted_mistakes_stop_at_the_call,
    programs_that_cannot_be_played,
    a_sanitizer_finds_a_mistake_of_the_host,
    a_debugger_runs_the_program,
    bytes_that_nothing_has_set_are_learned,
    objects_end_in_any_order,
    memory_is_where_it_was,
    a_program_that_ends_early_is_no_match,
    with_warn_the_program_goes_on,
    bytes_that_the_recording_lacks_are_no_zeros,
    results_are_the_recorded_ones,
    what_the_host_sees_is_played,
    bytes_that_a_function_used_are_lost,
    what_no_recording_shows_is_named,
    libraries_that_answer_themselves_are_named,
    cassettes_keep_what_play_needs,
    programs_without_calls,
];

/// The launches of these kernels write bytes that differ each time: only the recording has them.
const WRITES: (&str, &str) = (
    "CUTAPE_NULL_NONDETERMINISTIC",
    "fill@*,reduce@*,by_struct@*,use_globals@*,many@*,mark@*,scaled@*,synced@*",
);

/// `changes.c` with these macros.
fn changed(folder: &Path, macros: &[&str]) -> String {
    cutape_tests::changed(folder, &format!("program{}", macros.concat()), macros)
}

fn recorded(folder: &Path, program: &[&str]) -> (PathBuf, Output) {
    let trace = folder.join("recorded.cutape");
    let _ = fs::remove_file(&trace);
    let output = run(record(&trace, &[], program).env(WRITES.0, WRITES.1));
    (trace, output)
}

fn what_kernels_compute_comes_from_the_recording(folder: &Path) {
    for name in [
        "clean/graph_kernel_update",
        "clean/launch_cooperative",
        "clean/launch_ex",
        "clean/launch_many_parameters",
        "clean/library",
        "clean/link_ptx",
        "clean/memory_host",
        "clean/module_globals",
        "clean/per_thread_stream",
        "clean/recycled_handles",
        "clean/registered_loop",
        "clean/stream_ordered",
        "clean/threads",
    ] {
        let program = compiled(name);
        let (trace, output) = recorded(folder, &[&program]);
        output.assert_code(0);
        // Otherwise nothing that only the recording knows was printed.
        assert_ne!(bare(&[&program]).stdout, output.stdout, "{name}");
        let played = run(&mut play(&trace, &[], &[&program]));
        played.assert(0);
        assert_eq!(played.stdout, output.stdout, "{name}");
    }
}

/// Those of `traces/clean` and `traces/played`; the programs end with a line only if their results are
/// right.
fn recordings_of_a_gpu_are_played(_: &Path) {
    let folders = ["clean", "played"].map(|name| fs::read_dir(root().join("traces").join(name)));
    let mut played = 0;
    for entry in folders.into_iter().flat_map(Result::unwrap) {
        let trace = entry.unwrap().path();
        let name = trace.file_stem().unwrap().to_str().unwrap();
        let output = run(&mut play(
            &trace,
            &[],
            &[&compiled(&format!("clean/{name}"))],
        ));
        output.assert(0);
        assert!(
            output.stdout.ends_with("EXIT-SUCCESS\n"),
            "{name}: {}",
            output.stdout
        );
        played += 1;
    }
    assert!(played > 20);
}

fn each_change_is_named(folder: &Path) {
    let base = changed(folder, &[]);
    let more = changed(folder, &["MORE_CALLS"]);
    let (trace, _) = recorded(folder, &[&base]);
    let with_more = folder.join("more.cutape");
    fs::rename(&trace, &with_more).unwrap();
    let (with_more, of_base) = (recorded(folder, &[&more]).0, with_more);
    let cases: &[(&str, &Path, &[&str])] = &[
        (
            "CHANGED_KERNEL",
            &of_base,
            &["cuModuleLoadData", "code of fill: hash"],
        ),
        (
            "CHANGED_SHAPE",
            &of_base,
            &[
                "cuLaunchKernel(kernel: fill",
                "block: 256x1x1 recorded, 128x1x1 made",
                ", at main+",
            ],
        ),
        (
            "CHANGED_PARAMETER",
            &of_base,
            &["kernel parameter 1: 1001 recorded, 7 made"],
        ),
        (
            "CHANGED_DATA",
            &of_base,
            &["cuMemcpyHtoD_v2", "srcHost from byte 2800 of 4096: 34 08"],
        ),
        (
            "MORE_CALLS",
            &of_base,
            &[
                "recorded: call 24 cuMemcpyDtoD_v2(dstDevice: memory#1",
                "made:     cuEventCreate(",
            ],
        ),
        (
            "LEAKED_MODULE",
            &of_base,
            &["makes another call", "cuModuleUnload(hmod: module#2)"],
        ),
        (
            "",
            &with_more,
            &[
                "recorded: call 24 cuEventCreate(",
                "made:     cuMemcpyDtoD_v2(dstDevice: memory#1",
            ],
        ),
        ("RESTARTED", &of_base, &[]),
        ("COMMENTED", &of_base, &[]),
    ];
    for &(macros, trace, needles) in cases {
        let macros: Vec<&str> = Some(macros)
            .filter(|name| !name.is_empty())
            .into_iter()
            .collect();
        let program = changed(folder, &macros);
        let output = run(&mut play(trace, &[], &[&program]));
        if needles.is_empty() {
            output.assert(0);
            continue;
        }
        output.assert_code(1);
        for needle in needles {
            assert!(
                output.stderr.contains(needle),
                "{needle}: {}",
                output.describe()
            );
        }
        // It has ended at that call.
        assert!(
            !output.stdout.contains("EXIT-SUCCESS"),
            "{}",
            output.describe()
        );
    }
}

fn planted_mistakes_stop_at_the_call(folder: &Path) {
    let program = |name: &str, macros: &[&str]| with_macros(folder, name, "play/planted.c", macros);
    let (trace, _) = recorded(folder, &[&program("right", &[])]);
    run(&mut play(&trace, &[], &[&program("right", &[])])).assert(0);
    for (mistake, needles) in [
        (
            "WRONG_STRIDE",
            [
                "cuMemcpy2D_v2(",
                "  recorded: call ",
                "pCopy.srcPitch: 32 recorded, 16 made",
            ],
        ),
        (
            "MISSING_COPY",
            [
                "recorded: call 12 cuMemcpyHtoD_v2(dstDevice: memory#3",
                "  recorded: call ",
                "made:     cuModuleGetFunction(",
            ],
        ),
        (
            "KERNELS_SWAPPED",
            [
                "cuLaunchKernel(kernel: fill",
                "  recorded: call ",
                "kernel: fill recorded, saxpy made",
            ],
        ),
        (
            "WRONG_SIZE",
            [
                "cuMemAlloc_v2(",
                "  recorded: call ",
                "bytesize: 1024 recorded, 256 made",
            ],
        ),
        (
            "STREAM_FREED",
            [
                "cuMemcpyDtoHAsync_v2(",
                "  recorded: call ",
                "hStream: stream#2 recorded, ",
            ],
        ),
    ] {
        let output = run(&mut play(&trace, &[], &[&program(mistake, &[mistake])]));
        output.assert_code(1);
        for needle in needles {
            let found = output.stderr.contains(needle);
            assert!(found, "{mistake}: {needle}: {}", output.describe());
        }
        assert!(!output.stdout.contains("EXIT-SUCCESS"), "{mistake}");
    }
}

fn programs_that_cannot_be_played(folder: &Path) {
    let (trace, _) = recorded(folder, &[&changed(folder, &[])]);
    let output = run(&mut play(&trace, &[], &[folder.to_str().unwrap()]));
    output.assert_code(2);
    let needle = format!("cannot play {}: it is not a file", folder.display());
    assert!(output.stderr.contains(&needle), "{}", output.describe());
}

fn a_sanitizer_finds_a_mistake_of_the_host(folder: &Path) -> Result<Verdict, String> {
    let (trace, _) = recorded(folder, &[&changed(folder, &[])]);
    let program = folder.join("sanitized");
    let mut compiler = Command::new("cc");
    let sources = root().join("tests/programs");
    compiler.args(["-fsanitize=address", "-DOVERFLOW", "-std=gnu11", "-g", "-o"]);
    compiler.arg(&program).arg(sources.join("diff/changes.c"));
    for include in [&sources, &sources.join("include")] {
        compiler.arg(format!("-I{}", include.display()));
    }
    compiler.arg(parts().driver_folder.join("libcuda.so.1"));
    if run(compiler.arg("-lpthread")).code() != Some(0) {
        return Ok(Verdict::Ignored("cc has no -fsanitize=address".to_owned()));
    }
    let played = run(&mut play(&trace, &[], &[program.to_str().unwrap()]));
    played.assert_code(1);
    for line in ["heap-buffer-overflow", "in main", "changes.c"] {
        assert!(played.stderr.contains(line), "{}", played.describe());
    }
    Ok(Verdict::Passed)
}

fn a_debugger_runs_the_program(folder: &Path) -> Verdict {
    let program = changed(folder, &[]);
    let (trace, _) = recorded(folder, &[&program]);
    let under_gdb = |options: &[&str]| {
        let words = [&["gdb", "-q", "-batch"], options, &[&program]].concat();
        run(&mut play(&trace, &[], &words))
    };
    if Command::new("gdb").arg("--version").output().is_err() {
        return Verdict::Ignored("gdb is not installed: apt-get install gdb".to_owned());
    }
    let stopped = under_gdb(&[
        "-ex",
        "break cuMemFree_v2",
        "-ex",
        "run",
        "-ex",
        "backtrace 2",
    ]);
    let has = |text: &str| stopped.stdout.contains(text);
    assert!(
        has("Breakpoint 1, ") && has("changes.c"),
        "{}",
        stopped.describe()
    );
    // The debugger ends the program there.
    assert!(
        stopped
            .stderr
            .contains("the program has ended, and the recording goes on")
    );
    under_gdb(&["-ex", "run"]).assert_code(0);
    Verdict::Passed
}

fn bytes_that_nothing_has_set_are_learned(folder: &Path) {
    let padded = changed(folder, &["PADDED"]);
    let trace = folder.join("padded.cutape");
    run(record(&trace, &[], &[&padded]).env("PADDING", "1")).assert_code(0);
    let unset = folder.join("unset");
    let unset = unset.to_str().unwrap();
    let played = |padding: &str, options: &[&str], program: &str| {
        run(play(&trace, options, &[program]).env("PADDING", padding))
    };
    let other = played("2", &[], &padded);
    other.assert_code(1);
    assert!(
        other.stderr.contains("kernel parameter 0 at byte"),
        "{}",
        other.describe()
    );
    // A file that is not there is no mistake while it is learned.
    for padding in ["2", "4"] {
        played(padding, &["--learn-unset", unset], &padded).assert(0);
    }
    played("8", &["--unset", unset], &padded).assert(0);
    let learned = fs::read_to_string(unset).unwrap();
    assert!(
        learned.contains("by_struct") && !learned.contains("fill"),
        "{learned}"
    );
    let member = changed(folder, &["PADDED_CHANGED"]);
    played("8", &["--unset", unset], &member).assert_code(1);
    fs::write(unset, "{}").unwrap();
    let refused = played("8", &["--unset", unset], &padded);
    refused.assert_code(2);
    assert!(
        refused.stderr.contains("not written by cutape play"),
        "{}",
        refused.describe()
    );
}

fn objects_end_in_any_order(folder: &Path) {
    let (trace, _) = recorded(folder, &[&changed(folder, &[])]);
    let reversed = changed(folder, &["FREED_REVERSED"]);
    run(&mut play(&trace, &[], &[&reversed])).assert(0);
}

fn memory_is_where_it_was(folder: &Path) {
    let program = with_macros(folder, "addresses", "play/addresses.c", &[]);
    let (trace, output) = recorded(folder, &[&program]);
    for _ in 0..2 {
        let played = run(&mut play(&trace, &[], &[&program]));
        played.assert_code(0);
        assert_eq!(played.stdout, output.stdout);
    }
}

fn a_program_that_ends_early_is_no_match(folder: &Path) {
    let program = changed(folder, &[]);
    let (trace, _) = recorded(folder, &[&program, "3"]);
    let output = run(&mut play(&trace, &[], &[&program, "3"]));
    output.assert(0);
    let leaked = changed(folder, &["LEAKED_MODULE"]);
    let output = run(&mut play(
        &trace,
        &["--on-mismatch", "warn"],
        &[&leaked, "3"],
    ));
    output.assert_code(1);
    // The status of the program does not hide it.
    let ending = ending();
    let trace = folder.join("ending.cutape");
    run(&mut record(&trace, &[], &[&ending, "end"])).assert_code(0);
    let report = folder.join("report.json");
    let output = run(play(&trace, &[], &["/bin/true"]).arg("--unused"));
    output.assert_code(1);
    let needle = "the program made no driver call, and the recording has ";
    assert!(output.stderr.contains(needle), "{}", output.describe());
    let options = ["--report", report.to_str().unwrap()];
    run(&mut play(&trace, &options, &["/bin/true"])).assert_code(1);
    let report: Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    assert_eq!(report["calls"]["played"], 0);
    assert!(
        report["calls"]["recorded"].as_u64().unwrap() > 2,
        "{report}"
    );
}

fn with_warn_the_program_goes_on(folder: &Path) {
    let base = changed(folder, &[]);
    let (trace, _) = recorded(folder, &[&base]);
    let report = folder.join("report.json");
    let options = [
        "--on-mismatch",
        "warn",
        "--report",
        report.to_str().unwrap(),
    ];
    let program = changed(folder, &["MORE_CALLS"]);
    let output = run(&mut play(&trace, &options, &[&program]));
    output.assert_code(1);
    assert!(
        output.stdout.ends_with("EXIT-SUCCESS\n"),
        "{}",
        output.describe()
    );
    let report: Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    let made: Vec<&str> = report["mismatches"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["made"]["function"].as_str())
        .collect();
    assert_eq!(
        made,
        ["cuEventCreate", "cuEventRecord", "cuEventDestroy_v2"]
    );
    assert_eq!(report["calls"]["played"], report["calls"]["recorded"]);
    assert_eq!(report["status"], 0);
}

fn bytes_that_the_recording_lacks_are_no_zeros(folder: &Path) {
    let program = compiled("clean/launch_vector_add");
    for policy in ["hash", "none"] {
        let trace = folder.join(format!("{policy}.cutape"));
        run(&mut record(&trace, &["--outputs", policy], &[&program])).assert_code(0);
        let output = run(&mut play(&trace, &[], &[&program]));
        output.assert_code(1);
        let needle = "the recording lacks bytes that this call brings: not kept";
        assert!(output.stderr.contains(needle), "{}", output.describe());
        assert!(
            output.stderr.contains("cuMemcpyDtoH_v2("),
            "{}",
            output.describe()
        );
    }
}

fn results_are_the_recorded_ones(folder: &Path) {
    let program = compiled("clean/launch_vector_add");
    let trace = folder.join("failed.cutape");
    let output = run(record(&trace, &[], &[&program]).env("CUTAPE_NULL_FAIL", "cuMemAlloc@2=2"));
    let played = run(&mut play(&trace, &[], &[&program]));
    assert_eq!(played.code(), output.code(), "{}", played.describe());
    assert_ne!(played.code(), Some(0), "the program fails as it did");
    assert_eq!(played.stdout, output.stdout);
    assert_eq!(played.stderr, output.stderr);
}

fn programs_without_calls(folder: &Path) {
    let trace = folder.join("recorded.cutape");
    run(&mut record(&trace, &[], &[&ending(), "end"])).assert_code(0);
    for (program, code, needle) in [
        (
            &["/nowhere/program"][..],
            2,
            "cannot run /nowhere/program: ",
        ),
        (
            &["sh", "-c", "exit 3"],
            1,
            "the program made no driver call",
        ),
        (&[], 2, "no program: give it and its arguments after --"),
    ] {
        let output = run(&mut play(&trace, &[], program));
        output.assert_code(code);
        assert!(
            output.stderr.contains(needle),
            "{needle}: {}",
            output.describe()
        );
    }
}

fn host_sees(folder: &Path, macros: &[&str]) -> String {
    let name = format!("host_sees{}", macros.concat());
    with_macros(folder, &name, "play/host_sees.c", macros)
}

/// Records a program that writes itself what kernels would write.
fn with_device(trace: &Path, options: &[&str], program: &[&str], schedule: &str) -> Output {
    let _ = fs::remove_file(trace);
    let mut record = record(trace, options, program);
    run(record
        .env("DEVICE", "1")
        .env("CUTAPE_NULL_SCHEDULE", schedule))
}

/// What the host sees without a copy, and whether it needs `--cassette`. What it polls without a call
/// comes from no lazy driver.
fn what_the_host_sees_is_played(folder: &Path) {
    const ANY: &[&str] = &["eager", "lazy", "random:3"];
    const EAGER: &[&str] = &["eager"];
    let program = host_sees(folder, &[]);
    let trace = folder.join("seen.cutape");
    for (case, needs_cassette, schedules) in [
        ("pinned", false, ANY),
        ("registered", false, ANY),
        ("managed", false, ANY),
        ("variable", true, ANY),
        ("indirect", true, ANY),
        ("long", true, EAGER),
        ("once", true, EAGER),
        ("rounds", true, EAGER),
        ("thread", true, EAGER),
        ("copy", true, EAGER),
        ("functions", true, EAGER),
        ("times", true, EAGER),
        ("values", false, ANY),
        ("queries", false, ANY),
    ] {
        for schedule in schedules {
            let options: &[&[&str]] = match needs_cassette {
                true => &[&["--cassette"]],
                false => &[&[], &["--cassette"]],
            };
            for options in options {
                let words = [&*program, case];
                let recorded = with_device(&trace, options, &words, schedule);
                recorded.assert(0);
                // Otherwise nothing that only the recording has was printed.
                let has_kernels = !["values", "queries", "times"].contains(&case);
                let is_polled = ["once", "rounds", "thread", "copy"].contains(&case);
                if has_kernels && !is_polled {
                    assert_ne!(bare(&words).stdout, recorded.stdout, "{case}");
                }
                let played = run(&mut play(&trace, &[], &words));
                played.assert(0);
                assert_eq!(
                    played.stdout, recorded.stdout,
                    "{case} {options:?} {schedule}"
                );
            }
        }
    }
}

/// A value that the program changes back before its next call: it waits for ever.
fn what_no_recording_shows_is_named(folder: &Path) {
    let program = host_sees(folder, &["CHANGES_BACK"]);
    let trace = folder.join("seen.cutape");
    for (options, advice) in [
        (&[][..], "record it with --cassette"),
        (
            &["--cassette"],
            "what it changes back before that call is in no recording",
        ),
    ] {
        let words = [&*program, "once"];
        with_device(&trace, options, &words, "eager").assert(0);
        let words = ["timeout", "9", &*program, "once"];
        let played = run(&mut play(&trace, &[], &words));
        assert!(played.stderr.contains(advice), "{}", played.describe());
        assert!(
            played
                .stderr
                .contains("recorded call 10, cuStreamSynchronize")
        );
    }
}

/// The bytes that a function of a stream used, in a recording that has not looked when it ran.
fn bytes_that_a_function_used_are_lost(folder: &Path) {
    let program = host_sees(folder, &[]);
    let trace = folder.join("seen.cutape");
    let words = [&*program, "functions"];
    with_device(&trace, &[], &words, "eager").assert(0);
    let played = run(&mut play(&trace, &[], &words));
    played.assert_code(1);
    let why = "a function of its stream may have used them, and then another copy came to the same memory \
               before the recorder looked there; record it with --cassette";
    assert!(played.stderr.contains(why), "{}", played.describe());
}

fn libraries_that_answer_themselves_are_named(folder: &Path) {
    let source = folder.join("other.c");
    fs::write(&source, "int nvmlInit_v2(void) { return 0; }\n").unwrap();
    let other = folder.join("libnvidia-ml.so.1");
    compile(&source, &other, &[&"-shared", &"-fPIC"]);
    let trace = folder.join("other.cutape");
    let run_with = |options: &[&str]| {
        let _ = fs::remove_file(&trace);
        let mut record = record(&trace, options, &[&compiled("clean/events")]);
        run(record.env("LD_PRELOAD", &other))
    };
    run_with(&[]).assert(0);
    let named = run_with(&["--cassette"]);
    named.assert_code(0);
    assert!(
        named.stderr.contains("has loaded libnvidia-ml.so.1: "),
        "{}",
        named.describe()
    );
}

fn cassettes_keep_what_play_needs(folder: &Path) {
    let trace = folder.join("none.cutape");
    for option in ["--outputs=hash", "--payloads=none", "--host-memory=off"] {
        let options = ["--cassette", option];
        let refused = run(&mut record(&trace, &options, &["/bin/true"]));
        refused.assert_code(2);
        let needle = format!("{} leaves them out", option.replace('=', " "));
        assert!(refused.stderr.contains(&needle), "{}", refused.describe());
    }
}
