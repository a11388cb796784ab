//! `fuzz`: damaged traces and images for everything that reads them.

use std::path::Path;
use std::process::Command;

use crate::Failure;
use crate::step::{cargo, run};

/// How long new inputs are read if it is not said.
const SECONDS: &str = "60";

/// Runs the test `fuzz` with these arguments; `--release` is the first of them, if any.
pub(crate) fn test(root: &Path, arguments: &[&str]) -> Result<(), Failure> {
    let (arguments, profile) = match arguments {
        ["--release", arguments @ ..] => (arguments, "fuzz"),
        _ => (arguments, "dev"),
    };
    let mut command = cargo(root, "test -q --workspace --test fuzz");
    command.args(["--profile", profile, "--"]);
    let has = |option: &str| arguments.contains(&option);
    if !has("--seconds") && !has("--executions") {
        command.args(["--seconds", SECONDS]);
    }
    if !has("--seed") {
        command.args(["--seed", &seed(root).to_string()]);
    }
    run(command.args(arguments))
}

/// Each commit has inputs of its own, and the same every time.
fn seed(root: &Path) -> u64 {
    let mut git = Command::new("git");
    let answer = git.args(["rev-parse", "HEAD"]).current_dir(root).output();
    let name = answer.map(|answer| answer.stdout).unwrap_or_default();
    let digits = String::from_utf8_lossy(&name);
    let digits = digits.get(..12).unwrap_or_default();
    u64::from_str_radix(digits, 16).unwrap_or(1)
}
