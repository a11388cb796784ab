//! `fuzz`: damaged traces and images for everything that reads them.

use std::path::Path;

use crate::Failure;
use crate::step::{cargo, run};

/// How long new inputs are read if it is not said.
const SECONDS: &str = "60";

/// Runs the test `fuzz` with these arguments.
pub(crate) fn test(root: &Path, arguments: &[&str]) -> Result<(), Failure> {
    let mut command = cargo(root, "test -q -p cutape-fuzz --test fuzz --");
    let is_limited = ["--seconds", "--executions"];
    if !arguments.iter().any(|word| is_limited.contains(word)) {
        command.args(["--seconds", SECONDS]);
    }
    run(command.args(arguments))
}
