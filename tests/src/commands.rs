//! The commands that most tests run, and what they look at in a trace.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cutape_format::Trace;

use crate::compiler::compile;
use crate::parts::{parts, root};
use crate::process::{Output, run};
use crate::program::endings;

/// `cutape record`, on the null driver, with these options before the `--`.
pub fn record(trace: &Path, options: &[&str], program: &[&str]) -> Command {
    let mut record = parts().cutape(&[&"record", &"--driver", &"null", &"-o", &trace]);
    record.args(options).arg("--").args(program);
    record
}

/// `cutape replay`, on the null driver.
pub fn replay(trace: &Path) -> Command {
    parts().cutape(&[&"replay", &"--driver", &"null", &trace])
}

/// `cutape play`, of a program.
pub fn play(trace: &Path, options: &[&str], program: &[&str]) -> Command {
    let mut play = parts().cutape(&[&"play", &trace]);
    play.args(options).arg("--").args(program);
    play
}

/// A program on the null driver, without cutape.
pub fn bare(program: &[&str]) -> Output {
    run(Command::new(program[0])
        .args(&program[1..])
        .env("LD_LIBRARY_PATH", &parts().driver_folder))
}

/// The compiled `endings/endings.c`, which ends and behaves as its arguments say.
///
/// # Panics
/// If it cannot be compiled.
pub fn ending() -> String {
    text(endings(parts()))
}

fn text(path: Result<PathBuf, String>) -> String {
    let path = path.unwrap_or_else(|error| panic!("{error}"));
    path.to_str().expect("a path that is text").to_owned()
}

/// The names of all calls.
pub fn names(trace: &Trace) -> Vec<String> {
    trace
        .calls()
        .map(|call| call.signature.name.clone())
        .collect()
}

/// How often the trace has a call of that function.
pub fn calls_of(trace: &Trace, name: &str) -> usize {
    trace
        .calls()
        .filter(|call| call.signature.name == name)
        .count()
}

/// The paths in a folder, by name.
///
/// # Panics
/// If it cannot be read.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files
}

/// `diff/changes.c` with these macros, compiled to a file of that name.
///
/// # Panics
/// If it cannot be compiled.
pub fn changed(folder: &Path, name: &str, macros: &[&str]) -> String {
    with_macros(folder, name, "diff/changes.c", macros)
}

/// The same of a source in `tests/programs`.
///
/// # Panics
/// If it cannot be compiled.
pub fn with_macros(folder: &Path, name: &str, source: &str, macros: &[&str]) -> String {
    let program = folder.join(name);
    let driver = parts().driver_folder.join("libcuda.so.1");
    let macros: Vec<String> = macros.iter().map(|name| format!("-D{name}")).collect();
    let mut options: Vec<&dyn AsRef<OsStr>> = vec![&driver, &"-lpthread"];
    options.extend(macros.iter().map(|option| option as &dyn AsRef<OsStr>));
    let source = root().join("tests/programs").join(source);
    compile(&source, &program, &options);
    program.to_str().unwrap().to_owned()
}
