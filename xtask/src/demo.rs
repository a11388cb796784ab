//! `demo`: records a program with one hidden bug, replays the recording, and lets `check` find the
//! bug.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::step::{cargo, is_installed, output, run, shown, target};
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
    // One by one: in one build the interposer would get features that only readers need.
    for package in [
        "cutape",
        "cutape-interposer",
        "cutape-audit",
        "cutape-nulldriver",
    ] {
        run(cargo(root, "build --quiet --package").arg(package))?;
    }
    let built = target(root).join("debug");
    let folder = built.join("demo");
    files::make_folder(&folder)?;
    let demo = Demo {
        root,
        cutape: built.join("cutape"),
        folder,
    };
    demo.show(&built)
}

struct Demo<'a> {
    root: &'a Path,
    cutape: PathBuf,
    folder: PathBuf,
}

impl Demo<'_> {
    fn show(&self, built: &Path) -> Result<(), Failure> {
        let program = self.folder.join("link_demo");
        let trace = self.folder.join("link_demo.cutape");
        let _ = fs::remove_file(&trace);
        let driver = self.folder.join("libcuda.so.1");
        let _ = fs::remove_file(&driver);
        files::copy(&built.join("libcutape_null.so"), &driver)?;

        println!("\nA C program that links two PTX inputs and runs the result. It has one bug.");
        let mut compile = self.command("cc");
        compile
            .args([
                "-std=gnu11",
                "-O1",
                "-g",
                "-Itests/programs/include",
                "-Itests/programs",
            ])
            .arg("tests/programs/demo/link_demo.c")
            .arg("-o")
            .args([self.short(&program), self.short(&driver)]);
        self.expect(&mut compile, 0)?;

        println!("\nRecord every driver call of the program:");
        let mut record = self.cutape(&["record", "-o"]);
        record.args([self.short(&trace), "--".into(), self.short(&program)]);
        self.expect(&mut record, 0)?;

        println!("\nReplay the calls without the program, and compare the results:");
        let mut replay = self.cutape(&["replay"]);
        replay.arg(self.short(&trace));
        self.expect(&mut replay, 0)?;

        println!("\nLook for misuse of the API:");
        let mut check = self.cutape(&["check"]);
        check.arg(self.short(&trace));
        let found = self.expect(&mut check, 1)?;
        is_explained(&String::from_utf8_lossy(&found.stdout))?;
        println!("\nThe bug was found: {RULE}.");
        Ok(())
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.root);
        command
    }

    fn cutape(&self, words: &[&str]) -> Command {
        let mut command = self.command(self.short(&self.cutape));
        command.args(words);
        command
    }

    /// A path relative to the root of the repository.
    fn short(&self, path: &Path) -> PathBuf {
        path.strip_prefix(self.root).unwrap_or(path).to_owned()
    }

    /// Prints the command and its output; fails unless it ends with that status.
    fn expect(&self, command: &mut Command, code: i32) -> Result<Output, Failure> {
        println!("$ {}", shown(command));
        let output = output(command)?;
        for text in [&output.stderr, &output.stdout] {
            for line in String::from_utf8_lossy(text).lines() {
                println!("  {line}");
            }
        }
        if output.status.code() == Some(code) {
            return Ok(output);
        }
        Err(failure!("{}; expected status {code}", output.status))
    }
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
