//! `random`: random programs under the schedules of the null driver, and those of a package.

use std::path::Path;

use crate::step::{self, cargo, run};
use crate::{Failure, files};

/// How many programs `package` takes, and the seed of the first.
const PACKAGED: &str = "2000";
const FIRST_SEED: &str = "1";

/// New programs if it is not said how many.
const NEW: &str = "100";

/// Runs the test `random` with these arguments.
pub(crate) fn test(root: &Path, arguments: &[&str]) -> Result<(), Failure> {
    let mut command = cargo(root, "test -q --workspace --test random --");
    if !arguments.contains(&"--count") {
        command.args(["--count", NEW]);
    }
    run(command.args(arguments))
}

/// Writes programs, their kernel and the interpreter for `tests/gpu/random.sh`.
pub(crate) fn package(root: &Path, folder: &Path, library: &Path) -> Result<(), Failure> {
    let folder = folder.join("random");
    files::make_folder(&folder)?;
    let source = root.join("tests/random/interpreter.c");
    let mut command = step::cc(root, "-O1", &source, &folder.join("interpreter"));
    let command = command.arg("-Itests/programs").arg(library);
    run(command.args(["-ldl", "-pthread"]))?;
    let kernel = root.join("driver/src/mix.ptx");
    files::copy(&kernel, &folder.join("mix.ptx"))?;
    let programs = folder.join("programs.txt");
    let path = programs.to_string_lossy();
    test(
        root,
        &["--count", PACKAGED, "--seed", FIRST_SEED, "--write", &path],
    )
}
