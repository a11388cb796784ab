//! Other tools in the recorded process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cutape_format::Trace;
use cutape_tests::{Suite, Verdict, calls_of, parts, root, run};

use super::programs;

/// Names of allocators' libraries, which are preloaded.
const ALLOCATORS: [&str; 3] = [
    "libjemalloc.so.2",
    "libtcmalloc_minimal.so.4",
    "libc_malloc_debug.so.0",
];

pub(crate) fn add_to(suite: &mut Suite) {
    for sanitizer in ["address", "leak", "thread", "undefined"] {
        suite.test(format!("sanitizer/{sanitizer}"), move |folder: &Path| {
            with_sanitizer(folder, sanitizer)
        });
    }
    for allocator in ALLOCATORS {
        suite.test(format!("allocator/{allocator}"), move |folder: &Path| {
            with_allocator(folder, allocator)
        });
    }
    suite.test("auditor", with_auditor);
}

/// Records the program with the backend that is chosen for it: two threads with 500 calls each.
fn record(folder: &Path, program: &Path, variable: (&str, &Path)) -> Result<String, String> {
    let trace = folder.join("t.cutape");
    let mut command = Command::new(&parts().cutape);
    command
        .args(["record", "--driver", "null", "-o"])
        .arg(&trace)
        .arg("--")
        .arg(program)
        .arg(folder.join("counts"))
        .args(["2", "500"])
        .env(variable.0, variable.1);
    let output = run(&mut command);
    output.expect_code(0)?;
    let trace = Trace::open(&trace).map_err(|error| error.to_string())?;
    let calls = calls_of(&trace, "cuCtxSynchronize") + calls_of(&trace, "cuMemcpyHtoD_v2");
    if output.stdout != "EXIT-SUCCESS\n" || calls != 1000 || !trace.verify().is_empty() {
        return Err(format!("{calls} calls\n{}", output.describe()));
    }
    Ok(output.stderr)
}

fn quietly(stderr: &str) -> Result<Verdict, String> {
    match stderr.is_empty() {
        true => Ok(Verdict::Passed),
        false => Err(stderr.to_owned()),
    }
}

fn with_sanitizer(folder: &Path, sanitizer: &str) -> Result<Verdict, String> {
    let program = folder.join("program");
    let sources = root().join("tests/programs");
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler
        .arg(format!("-fsanitize={sanitizer}"))
        .args(["-std=gnu11", "-g", "-o"])
        .arg(&program)
        .arg(sources.join("faults/counted.c"))
        .arg(format!("-I{}", sources.display()))
        .arg(format!("-I{}", sources.join("include").display()))
        .arg(parts().driver_folder.join("libcuda.so.1"))
        .arg("-lpthread");
    if run(&mut compiler).code() != Some(0) {
        return Ok(Verdict::Ignored(format!(
            "the compiler has no -fsanitize={sanitizer}"
        )));
    }
    // Some systems place memory where ThreadSanitizer cannot work, with or without cutape. It does
    // not know the locks of the null driver.
    let quiet = ("TSAN_OPTIONS", Path::new("report_bugs=0"));
    let mut bare = Command::new(&program);
    bare.arg(folder.join("counts")).args(["2", "500"]);
    bare.env("LD_LIBRARY_PATH", &parts().driver_folder)
        .env(quiet.0, quiet.1);
    let bare = run(&mut bare);
    if bare.code() != Some(0) || !bare.stderr.is_empty() {
        return Ok(Verdict::Ignored(format!(
            "without cutape: {}",
            bare.stderr.lines().next().unwrap_or("another status")
        )));
    }
    quietly(&record(folder, &program, quiet)?)?;
    with_wrong_backend(folder, sanitizer, &program)
}

/// A backend with which the program does not start is refused, and another one is named.
fn with_wrong_backend(folder: &Path, sanitizer: &str, program: &Path) -> Result<Verdict, String> {
    let (wrong, right) = match sanitizer {
        "address" => ("preload", "audit"),
        "leak" | "thread" => ("audit", "preload"),
        _ => return Ok(Verdict::Passed),
    };
    let mut command = Command::new(&parts().cutape);
    command
        .args(["record", "--driver", "null", "--backend", wrong, "-o"])
        .arg(folder.join("wrong.cutape"))
        .arg("--")
        .arg(program);
    let output = run(&mut command);
    output.expect_code(2)?;
    match output.stderr.contains(&format!("use --backend {right}")) {
        true => Ok(Verdict::Passed),
        false => Err(output.describe()),
    }
}

fn with_allocator(folder: &Path, name: &str) -> Result<Verdict, String> {
    match library(name) {
        Some(path) => quietly(&record(folder, &programs().counted, ("LD_PRELOAD", &path))?),
        None => Ok(Verdict::Ignored(format!("{name} is not installed"))),
    }
}

/// A library of the system.
fn library(name: &str) -> Option<PathBuf> {
    let folders = [
        "/usr/lib/x86_64-linux-gnu",
        "/lib/x86_64-linux-gnu",
        "/usr/lib64",
    ];
    let mut paths = folders.iter().map(|folder| Path::new(folder).join(name));
    paths.find(|path| fs::metadata(path).is_ok())
}

fn with_auditor(folder: &Path) -> Result<(), String> {
    let programs = programs();
    let stderr = record(folder, &programs.counted, ("LD_AUDIT", &programs.auditor))?;
    let is_from_auditor = |line| line == "another auditor has seen libc";
    match !stderr.is_empty() && stderr.lines().all(is_from_auditor) {
        true => Ok(()),
        false => Err(stderr),
    }
}
