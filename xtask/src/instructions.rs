//! `instructions`: the instructions that recording adds to a call, counted under valgrind and
//! compared with a committed file.
//!
//! Unlike times, counts do not depend on the load of the machine. A count is the difference between
//! the recorded and the bare program, each the difference between two runs with different numbers
//! of calls. The calls fit into one thread buffer.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Failure, files, step};

const BASELINE: &str = "benches/instructions.txt";
/// The loops, those with a prefix while recording is paused.
const LOOPS: [&str; 15] = [
    "get",
    "set",
    "state",
    "launch0",
    "launch8",
    "launch_mixed",
    "pinned_launch8",
    "launch_ex",
    "event_record",
    "event_query",
    "memset",
    "pointer",
    "paused_event_query",
    "paused_launch8",
    "paused_memset",
];
const PAUSED: &str = "paused_";
const FEW: u64 = 20;
const MORE: u64 = 200;
/// The growth of a count that is accepted, in per cent.
const ALLOWANCE: u64 = 3;

/// Counts, and compares with the baseline, or writes it.
pub(crate) fn run(root: &Path, is_update: bool) -> Result<(), Failure> {
    if !step::is_installed("valgrind") {
        return Err(Failure::new(
            "valgrind: not found; install it, for example with apt-get install valgrind",
        ));
    }
    let compiler = compiler()?;
    let bench = Bench::build(root)?;
    let mut counts = BTreeMap::new();
    for call in LOOPS {
        let added = bench
            .per_call(call, true)?
            .checked_sub(bench.per_call(call, false)?);
        let added = added
            .ok_or_else(|| failure!("{call}: fewer instructions with recording than without"))?;
        counts.insert(call, added);
    }
    let path = root.join(BASELINE);
    if is_update {
        let lines = counts
            .iter()
            .map(|(call, count)| format!("{call} {count}\n"));
        let text = format!("{compiler}\n{}", lines.collect::<String>());
        files::write(&path, &text)?;
        print!("{text}");
        return Ok(());
    }
    compare(&path, &compiler, &counts)
}

fn compare(path: &Path, compiler: &str, counts: &BTreeMap<&str, u64>) -> Result<(), Failure> {
    let text = files::read(path)?;
    let mut lines = text.lines();
    let known = lines.next().unwrap_or_default();
    if known != compiler {
        println!(
            "skipped: {BASELINE} is for {known}, this is {compiler}; run \
             `cargo xtask instructions --update`"
        );
        return Ok(());
    }
    let mut grown = Vec::new();
    for line in lines {
        let Some((call, before)) = line.split_once(' ') else {
            continue;
        };
        let before: u64 = before
            .parse()
            .map_err(|_| failure!("{BASELINE}: not a count: {line}"))?;
        let Some(&now) = counts.get(call) else {
            return Err(failure!("{BASELINE}: unknown call {call}"));
        };
        println!("{call:<8} {before:>5} -> {now:>5} instructions that recording adds to a call");
        if now * 100 > before * (100 + ALLOWANCE) {
            grown.push(format!("{call} from {before} to {now}"));
        }
    }
    if grown.is_empty() {
        return Ok(());
    }
    Err(failure!(
        "recording adds over {ALLOWANCE} % more instructions than in {BASELINE}: {}; reduce them, \
         or run `cargo xtask instructions --update` and give the reason in the commit",
        grown.join(", ")
    ))
}

/// The version of the compiler.
fn compiler() -> Result<String, Failure> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = step::output(Command::new(rustc).arg("--version"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

struct Bench {
    folder: PathBuf,
    program: PathBuf,
    driver: PathBuf,
}

impl Bench {
    /// Builds the library as it is shipped, a stub driver, and a program that calls the driver in a
    /// loop.
    fn build(root: &Path) -> Result<Self, Failure> {
        let build = "build --quiet --profile shim -p cutape-interposer";
        step::run(&mut step::cargo(root, build))?;
        let target = step::target(root);
        let folder = target.join("instructions");
        let bare = folder.join("bare");
        files::make_folder(&bare)?;
        let built = target.join("shim/libcutape_interposer.so");
        files::copy(&built, &folder.join("libcuda.so.1"))?;
        // In a folder of its own, where the bare program finds it by its SONAME.
        let (driver, program) = (bare.join("libcuda.so.1"), folder.join("call_cost"));
        let mut command = step::cc(root, "-O2", "benches/programs/stub_driver.c", &driver);
        step::run(command.args(["-fPIC", "-shared", "-Wl,-soname,libcuda.so.1"]))?;
        let mut command = step::cc(root, "-O2", "tests/gpu/bench/call_cost.c", &program);
        step::run(command.arg(&driver).arg("-pthread"))?;
        Ok(Self {
            folder,
            program,
            driver,
        })
    }

    fn per_call(&self, call: &str, recorded: bool) -> Result<u64, Failure> {
        let (few, more) = (
            self.count(call, FEW, recorded)?,
            self.count(call, MORE, recorded)?,
        );
        Ok(more.saturating_sub(few) / (MORE - FEW))
    }

    /// The instructions of a run.
    fn count(&self, call: &str, calls: u64, recorded: bool) -> Result<u64, Failure> {
        let trace = self.folder.join("trace.cutape");
        let _ = fs::remove_file(&trace);
        let mut command = Command::new("valgrind");
        let (call, is_paused) = match call.strip_prefix(PAUSED) {
            Some(call) => (call, true),
            None => (call, false),
        };
        command
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(&self.program)
            // The same length for both numbers: the start-up cost depends on the length of the
            // command line.
            .args(["loop", call, &format!("{calls:04}")]);
        if recorded {
            command
                .env("CUTAPE_TRACE", &trace)
                .env("CUTAPE_START_PAUSED", if is_paused { "on" } else { "off" })
                .env("CUTAPE_DRIVER", &self.driver)
                .env("LD_LIBRARY_PATH", &self.folder);
        } else {
            command.env("LD_LIBRARY_PATH", self.folder.join("bare"));
        }
        let output = step::output(&mut command)?;
        if recorded && !trace.exists() {
            return Err(Failure::new("valgrind: nothing was recorded"));
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        said.lines()
            .find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok())
            .ok_or_else(|| failure!("valgrind: no count in its output:\n{said}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_reported() {
        let path = std::env::temp_dir().join(format!("instructions-{}.txt", std::process::id()));
        let table = [
            // The lines of the file, the counts now, and what the message contains.
            ("rustc 1\nget 100\nset 200\n", [103, 206], None),
            ("rustc 1\nget 100\nset 200\n", [50, 20], None),
            (
                "rustc 1\nget 100\nset 200\n",
                [104, 206],
                Some("get from 100 to 104"),
            ),
            (
                "rustc 1\nget 100\nset 200\n",
                [104, 207],
                Some("set from 200 to 207"),
            ),
            ("rustc 1\nlaunch 1\n", [1, 1], Some("unknown call launch")),
            ("rustc 1\nget x\n", [1, 1], Some("not a count")),
            // Counts of another compiler are not compared.
            ("rustc 2\nget 1\nset 1\n", [104, 207], None),
        ];
        for (text, [get, set], expected) in table {
            fs::write(&path, text).unwrap();
            let counts = BTreeMap::from([("get", get), ("set", set)]);
            let outcome = compare(&path, "rustc 1", &counts).map_err(|failure| failure.to_string());
            match expected {
                None => assert_eq!(outcome, Ok(()), "{text}"),
                Some(part) => assert!(outcome.unwrap_err().contains(part), "{text}"),
            }
        }
        fs::remove_file(&path).unwrap();
    }
}
