//! A program that repeats one call: recording it makes no system call, allocates nothing, and takes
//! no more bytes than promised.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cutape_format::Trace;
use cutape_tests::{Verdict, compile, parts, root, run};

cutape_tests::tests![
    recorded_calls_make_no_system_calls,
    recorded_calls_allocate_nothing,
    markers_make_no_system_calls_and_allocate_nothing,
    calls_take_no_more_bytes_than_promised,
    stats_report_the_cost_of_recording,
];

/// Calls of the shorter and of the longer run, which both fit into one thread buffer.
const FEW: u64 = 20;
const MORE: u64 = 170;
/// Call stacks of no call, and of every call.
const STACKS: [&str; 2] = ["off", "all"];
/// Call, and bytes of its records.
const LOOPS: [(&str, u64); 11] = [
    ("get", 48),
    ("set", 40),
    ("launch0", 56),
    ("launch8", 120),
    ("launch_mixed", 104),
    // In a program with registered host memory that the kernel's parameters do not point to.
    ("pinned_launch8", 120),
    ("launch_ex", 280),
    ("event_record", 48),
    ("event_query", 40),
    ("memset", 64),
    ("pointer", 64),
];

struct Built {
    folder: PathBuf,
    program: PathBuf,
    driver: PathBuf,
    counter: PathBuf,
}

fn build(folder: &Path) -> Built {
    let (driver, program) = (folder.join("driver.so"), folder.join("call_cost"));
    let counter = folder.join("counter.so");
    compile(
        &root().join("benches/programs/stub_driver.c"),
        &driver,
        &[&"-O2", &"-fPIC", &"-shared", &"-Wl,-soname,libcuda.so.1"],
    );
    compile(
        &root().join("tests/gpu/bench/call_cost.c"),
        &program,
        &[&"-O2", &driver, &"-pthread"],
    );
    compile(
        &root().join("benches/programs/allocation_counter.c"),
        &counter,
        &[&"-O2", &"-fPIC", &"-shared"],
    );
    let library = folder.join("libcuda.so.1");
    std::os::unix::fs::symlink(&parts().interposer, library).unwrap();
    Built {
        folder: folder.to_owned(),
        program,
        driver,
        counter,
    }
}

impl Built {
    /// The program in a loop of calls, recorded by the interposer without `cutape record`.
    fn command(&self, call: &str, calls: u64, stacks: &str) -> (Command, PathBuf) {
        let trace = self.folder.join(format!("{call}-{calls}.cutape"));
        let _ = fs::remove_file(&trace);
        let mut command = Command::new(&self.program);
        command
            .args(["loop", call, &calls.to_string()])
            .env("CUTAPE_TRACE", &trace)
            .env("CUTAPE_DRIVER", &self.driver)
            .env("CUTAPE_STACKS", stacks)
            .env("LD_LIBRARY_PATH", &self.folder)
            .stdin(Stdio::null());
        (command, trace)
    }
}

/// The number of system calls of a command; `None` where ptrace is not permitted.
fn system_calls(command: &mut Command) -> Option<u64> {
    // SAFETY: the child asks to be traced, which touches no memory.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let child = command.spawn().ok()?;
    let process = child.id() as libc::pid_t;
    let mut stops = 0_u64;
    loop {
        let mut status = 0;
        // SAFETY: the child is ours; `status` is valid for writing.
        if unsafe { libc::waitpid(process, &raw mut status, 0) } != process {
            return None;
        }
        if libc::WIFEXITED(status) {
            assert_eq!(libc::WEXITSTATUS(status), 0);
            // Two stops a call, except that the last one does not return.
            return Some(stops.div_ceil(2));
        }
        assert!(libc::WIFSTOPPED(status), "status {status:#x}");
        const SYSTEM_CALL: i32 = libc::SIGTRAP | 0x80;
        if libc::WSTOPSIG(status) == SYSTEM_CALL {
            stops += 1;
        } else {
            // The stop of `exec`: from here on stops of system calls are marked.
            // SAFETY: the child is stopped.
            unsafe {
                libc::ptrace(
                    libc::PTRACE_SETOPTIONS,
                    process,
                    0,
                    libc::PTRACE_O_TRACESYSGOOD,
                )
            };
        }
        // SAFETY: the child is stopped.
        unsafe { libc::ptrace(libc::PTRACE_SYSCALL, process, 0, 0) };
    }
}

fn cases() -> impl Iterator<Item = ((&'static str, u64), &'static str)> {
    let stacks = STACKS.into_iter();
    stacks.flat_map(|stacks| LOOPS.into_iter().map(move |call| (call, stacks)))
}

fn recorded_calls_make_no_system_calls(folder: &Path) -> Verdict {
    let built = build(folder);
    for ((call, _), stacks) in cases() {
        let count = |calls| {
            let (mut command, trace) = built.command(call, calls, stacks);
            let made = system_calls(&mut command)?;
            let trace = Trace::open(&trace).unwrap();
            assert_eq!(trace.verify(), []);
            Some((
                made,
                trace.calls().count() as u64,
                trace.record_sizes().chunks,
            ))
        };
        let (Some((few, before, _)), Some((more, after, _))) = (count(FEW), count(MORE)) else {
            return Verdict::Ignored("ptrace is not permitted".to_owned());
        };
        assert_eq!(after - before, MORE - FEW, "{call} with stacks {stacks}");
        assert_eq!(
            more,
            few,
            "{call} with stacks {stacks}: {} calls more",
            MORE - FEW
        );
        // A full thread buffer costs a fixed number of system calls.
        const MANY: u64 = 20_000;
        let Some((many, _, buffers)) = count(MANY) else {
            panic!("ptrace was permitted before");
        };
        assert!(
            buffers > 5,
            "{call} with stacks {stacks}: {buffers} buffers"
        );
        assert!(
            many - few <= 8 * buffers,
            "{call} with stacks {stacks}: {} system calls for {buffers} buffers",
            many - few
        );
    }
    Verdict::Passed
}

fn recorded_calls_allocate_nothing(folder: &Path) {
    let built = build(folder);
    for ((call, _), stacks) in cases() {
        let count = |calls| {
            let (mut command, _) = built.command(call, calls, stacks);
            let output = command.env("LD_PRELOAD", &built.counter).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            let printed = String::from_utf8(output.stdout).unwrap();
            let number = printed
                .trim()
                .strip_prefix("allocations ")
                .unwrap()
                .to_owned();
            number.parse::<u64>().unwrap()
        };
        let few = count(FEW);
        assert!(few > 0, "the counter counts nothing");
        assert_eq!(count(20_000), few, "{call} with stacks {stacks}");
    }
}

fn markers_make_no_system_calls_and_allocate_nothing(folder: &Path) -> Verdict {
    let built = build(folder);
    let program = folder.join("marks");
    compile(
        &root().join("tests/programs/markers/marks.c"),
        &program,
        &[
            &"-O2",
            &parts().driver_folder.join("libcuda.so.1"),
            &"-pthread",
        ],
    );
    let command = |ranges: u64| {
        let trace = folder.join(format!("marks-{ranges}.cutape"));
        let _ = fs::remove_file(&trace);
        let mut command = Command::new(&program);
        command
            .args(["loop", &ranges.to_string()])
            .env("CUTAPE_TRACE", &trace)
            .env("CUTAPE_DRIVER", parts().driver_folder.join("libcuda.so.1"))
            .env("NVTX_INJECTION64_PATH", folder.join("libcuda.so.1"))
            .env("LD_LIBRARY_PATH", folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        (command, trace)
    };
    let (few, more) = (5, 150);
    let (mut made, mut allocated) = (Vec::new(), Vec::new());
    for ranges in [few, more] {
        let (mut traced, trace) = command(ranges);
        let Some(calls) = system_calls(&mut traced) else {
            return Verdict::Ignored("ptrace is not permitted".to_owned());
        };
        assert_eq!(
            Trace::open(&trace).unwrap().markers().len() as u64,
            3 * ranges
        );
        made.push(calls);
        let (mut counted, _) = command(ranges);
        counted
            .env("LD_PRELOAD", &built.counter)
            .stdout(Stdio::piped());
        let output = counted.output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let count = printed
            .lines()
            .find_map(|line| line.strip_prefix("allocations "));
        allocated.push(count.unwrap().parse::<u64>().unwrap());
    }
    assert_eq!(made[0], made[1], "system calls");
    assert_eq!(allocated[0], allocated[1], "allocations");
    Verdict::Passed
}

fn calls_take_no_more_bytes_than_promised(folder: &Path) {
    let built = build(folder);
    for ((call, bytes), stacks) in cases() {
        // The id of the stack.
        let bytes = bytes + if stacks == "all" { 16 } else { 0 };
        let size = |calls| {
            let (mut command, trace) = built.command(call, calls, stacks);
            assert!(command.status().unwrap().success());
            Trace::open(&trace).unwrap().record_sizes().bytes
        };
        // The size of a LEAVE record depends on the duration of the call: one in a hundred may have
        // been interrupted.
        let each = (size(10_000 + FEW) - size(FEW)) as f64 / 10_000.0;
        assert!(
            each <= bytes as f64 * 1.01,
            "{call} with stacks {stacks}: {each} bytes"
        );
    }
}

fn stats_report_the_cost_of_recording(folder: &Path) {
    let built = build(folder);
    let (text, json) = (
        built.folder.join("text.cutape"),
        built.folder.join("json.cutape"),
    );
    let record = |trace: &PathBuf, option: &str, program: &[&OsStr]| {
        let mut command = parts().cutape(&[
            &"record",
            &option,
            &"--driver",
            &built.driver,
            &"-o",
            trace,
            &"--",
        ]);
        let output = run(command.args(program));
        output.assert_code(0);
        output.stderr
    };
    let program: Vec<&OsStr> = vec![
        built.program.as_ref(),
        "loop".as_ref(),
        "launch8".as_ref(),
        "5000".as_ref(),
    ];
    let printed = record(&text, "--stats", &program);
    assert!(printed.contains(": 5,010 calls in 1 thread, "), "{printed}");
    assert!(
        printed.contains(" in the recorder, ") && printed.contains("nothing left out"),
        "{printed}"
    );
    let printed: serde_json::Value =
        serde_json::from_str(&record(&json, "--stats=json", &program)).unwrap();
    assert_eq!(printed["calls"], 5010);
    assert_eq!(printed["omitted_bytes"], 0);
    let number = |key: &str| {
        printed[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{key} in {printed}"))
    };
    assert!(number("record_bytes") / 5010 <= 130, "{printed}");
    assert!(
        number("recorder_ns") > 0 && number("longest_ns") <= number("recorder_ns"),
        "{printed}"
    );
    assert!(number("chunks") >= 9, "{printed}");
    // Without the option nothing is measured and nothing printed.
    let plain = built.folder.join("plain.cutape");
    let mut command =
        parts().cutape(&[&"record", &"--driver", &built.driver, &"-o", &plain, &"--"]);
    run(command.args(&program)).assert(0);
    assert_eq!(Trace::open(&plain).unwrap().meta_value("cost.ticks"), None);
}
