//! The C compiler.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use crate::parts::root;
use crate::process::run;

/// Compiles C code that is not one of the programs.
///
/// # Panics
/// If it cannot be compiled.
pub fn compile(source: &Path, output: &Path, options: &[&dyn AsRef<OsStr>]) {
    let mut command = c_compiler();
    command.arg("-o").arg(output).arg(source);
    run(command.args(options.iter().map(|option| option.as_ref()))).assert(0);
}

/// The C compiler, with the options for every program of the tests.
pub(crate) fn c_compiler() -> Command {
    let programs = root().join("tests/programs");
    let mut command = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    command
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Werror", "-I"])
        .arg(programs.join("include"))
        .arg("-I")
        .arg(programs);
    command
}
