//! Programs that were compiled with a sanitizer run as without cutape: what the recorder does in
//! them is no error to it. A sanitizer replaces memcpy and malloc for all libraries.

use std::path::Path;
use std::process::Command;

use cutape_tests::{Suite, Verdict, bare, compile, parts, record, root, run};

/// Sanitizer, backend, program. AddressSanitizer refuses to start after another library; with any
/// LD_AUDIT, the loader has no space for the thread-local variables of ThreadSanitizer's library
/// (glibc 2.36, libtsan 2).
const RUNS: [(&str, &str, &str); 9] = [
    ("address", "audit", "nvtx_ranges"),
    ("address", "audit", "threads"),
    ("address", "audit", "memory_host"),
    ("address", "audit", "graph"),
    ("address", "audit", "fork"),
    ("undefined", "audit", "nvtx_ranges"),
    ("undefined", "preload", "memory_host"),
    // Not of several threads: it does not see the locks of the null driver.
    ("thread", "preload", "nvtx_ranges"),
    ("thread", "preload", "memory_host"),
];

pub(crate) fn add_to(suite: &mut Suite) {
    for (sanitizer, backend, name) in RUNS {
        suite.test(
            format!("{sanitizer}/{backend}/{name}"),
            move |folder: &Path| check(folder, sanitizer, backend, name),
        );
    }
}

fn check(folder: &Path, sanitizer: &str, backend: &str, name: &str) -> Result<Verdict, String> {
    let option = format!("-fsanitize={sanitizer}");
    let empty = folder.join("empty.c");
    std::fs::write(&empty, "int main(void) { return 0; }\n").map_err(|error| error.to_string())?;
    let tried = run(Command::new("cc")
        .args([&option, "-o", "empty", "empty.c"])
        .current_dir(folder));
    if tried.code() != Some(0) {
        return Ok(Verdict::Ignored(format!("cc has no {option}")));
    }
    let program = folder.join("program");
    let source = root().join(format!("tests/programs/clean/{name}.c"));
    let driver = parts().driver_folder.join("libcuda.so.1");
    compile(&source, &program, &[&driver, &option, &"-pthread", &"-ldl"]);
    let program = program.to_str().ok_or("no text")?;
    let alone = bare(&[program]);
    alone.expect(0)?;
    let options = ["--stacks=all", "--backend", backend];
    let recorded = run(&mut record(&folder.join("t.cutape"), &options, &[program]));
    recorded.expect(0)?;
    if recorded.stdout != alone.stdout {
        return Err(format!("{}\n{}", alone.describe(), recorded.describe()));
    }
    Ok(Verdict::Passed)
}
