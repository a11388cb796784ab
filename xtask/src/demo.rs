//! `demo`: builds cutape and runs `cutape demo`, which finds the bug of a small program.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::parts::{self, DEMO, DEMO_SOURCE, NULL_DRIVER, PROGRAM};
use crate::step::{cc, is_installed, run, target};
use crate::{Failure, files};

/// The rule that `check` must find broken.
const RULE: &str = "link-cubin-after-destroy";
/// The words of the finding's chain, in this order.
const CHAIN: [&str; 4] = ["link state", "cubin", "cuLinkDestroy", "cuModuleLoadData"];

/// Builds everything and runs the demo; fails if the bug is not found.
pub(crate) fn run_all(root: &Path) -> Result<(), Failure> {
    if !is_installed("cc") {
        return Err(Failure::new(
            "cc: not found; install a C compiler, for example gcc",
        ));
    }
    println!("Building cutape, its interposer and the null driver ...");
    parts::build(root)?;
    let built = target(root).join("debug");
    let mut compile = cc(root, "-O1", DEMO_SOURCE, &built.join(DEMO));
    run(compile.arg("-Itests/programs").arg(built.join(NULL_DRIVER)))?;
    let folder = built.join("demo");
    files::make_folder(&folder)?;
    let trace = folder.join("link_demo.cutape");
    let _ = fs::remove_file(&trace);
    let mut demo = Command::new(built.join(PROGRAM));
    demo.current_dir(root).args(["demo", "-o"]).arg(trace);
    let shown = demo
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| failure!("cannot run cutape demo: {error}"))?;
    let text = String::from_utf8_lossy(&shown.stdout);
    println!("{text}");
    if !shown.status.success() {
        return Err(failure!("cutape demo: {}", shown.status));
    }
    is_explained(&text)?;
    println!("The bug was found: {RULE}.");
    Ok(())
}

/// Fails unless the text names the rule, and its chain names the link state, its cubin, its end and
/// the module's load.
fn is_explained(text: &str) -> Result<(), Failure> {
    if !text.contains(RULE) {
        return Err(failure!("the finding {RULE} is missing"));
    }
    let chain = text
        .lines()
        .skip_while(|line| !line.contains("chain:"))
        .take_while(|line| !line.contains("help:"))
        .collect::<String>();
    let mut rest = chain.as_str();
    for word in CHAIN {
        let at = rest
            .find(word)
            .ok_or_else(|| failure!("the finding's chain does not name `{word}`: {chain}"))?;
        rest = &rest[at + word.len()..];
    }
    Ok(())
}
