//! A program and a driver that does almost nothing, bare and recorded in turn: the difference is
//! the cost of recording.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use cutape_format::Trace;

/// The figures of a run, by name.
pub type Figures = BTreeMap<String, f64>;

/// What is measured: the interposer as it is shipped, and `tests/gpu/bench/call_cost.c` compiled
/// for this machine.
#[derive(Debug)]
pub struct Recorded {
    folder: PathBuf,
    program: PathBuf,
}

impl Recorded {
    /// Builds both.
    ///
    /// # Panics
    /// If one of them cannot be built.
    pub fn build() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let build = [
            "build",
            "--quiet",
            "--profile",
            "shim",
            "-p",
            "cutape-interposer",
        ];
        run(Command::new(cargo).args(build).current_dir(&root));
        let folder = std::env::temp_dir().join(format!("cutape-recorded-{}", std::process::id()));
        let bare = folder.join("bare");
        std::fs::create_dir_all(&bare).expect("the folder for temporary files is writable");
        let built = target.join("shim/libcutape_interposer.so");
        std::fs::copy(&built, folder.join("libcuda.so.1")).expect("what was just built is there");
        let (driver, program) = (bare.join("libcuda.so.1"), folder.join("call_cost"));
        let shared = ["-fPIC", "-shared", "-Wl,-soname,libcuda.so.1"].map(OsStr::new);
        compile("benches/programs/stub_driver.c", &driver, &shared);
        let linked = [driver.as_os_str(), "-pthread".as_ref()];
        compile("tests/gpu/bench/call_cost.c", &program, &linked);
        Self { folder, program }
    }

    /// The trace that `command` writes.
    pub fn trace(&self) -> PathBuf {
        self.folder.join("trace.cutape")
    }

    /// Another program, compiled for the driver that does next to nothing.
    ///
    /// # Panics
    /// If it cannot be compiled.
    pub fn compile(&self, source: &str, name: &str) -> PathBuf {
        let program = self.folder.join(name);
        let driver = self.folder.join("bare/libcuda.so.1");
        compile(
            source,
            &program,
            &[driver.as_ref(), "-fno-omit-frame-pointer".as_ref()],
        );
        program
    }

    /// The program with those arguments, bare or recorded.
    pub fn command(&self, is_recorded: bool, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        self.prepare(command.args(arguments), is_recorded);
        command
    }

    /// Has a program run bare or recorded.
    pub fn prepare(&self, command: &mut Command, is_recorded: bool) {
        let _ = std::fs::remove_file(self.trace());
        if is_recorded {
            command
                .env("LD_LIBRARY_PATH", &self.folder)
                .env("CUTAPE_TRACE", self.trace())
                .env("CUTAPE_DRIVER", self.folder.join("bare/libcuda.so.1"));
        } else {
            command.env("LD_LIBRARY_PATH", self.folder.join("bare"));
        }
    }

    /// To be called after a recorded run.
    ///
    /// # Panics
    /// If there is no trace of it.
    pub fn expect_trace(&self) {
        let trace = self.trace();
        assert!(
            trace.exists(),
            "nothing was recorded: there is no {}",
            trace.display()
        );
    }

    /// The medians over `rounds` rounds of the bare and of the recorded program, run in turn.
    ///
    /// # Panics
    /// If the program fails, or is not recorded.
    pub fn compare(&self, rounds: usize, arguments: &[&str]) -> [Figures; 2] {
        let mut all: [BTreeMap<String, Vec<f64>>; 2] = Default::default();
        for _ in 0..rounds {
            for (is_recorded, figures) in [false, true].into_iter().zip(&mut all) {
                let output = run(&mut self.command(is_recorded, arguments));
                if is_recorded {
                    self.expect_trace();
                }
                for line in output.lines() {
                    if let Some((name, value)) = line.split_once(' ')
                        && let Ok(value) = value.parse()
                    {
                        figures.entry(name.to_owned()).or_default().push(value);
                    }
                }
            }
        }
        all.map(|figures| {
            let of_one = |(name, mut values): (String, Vec<f64>)| (name, median(&mut values));
            figures.into_iter().map(of_one).collect()
        })
    }
}

fn compile(source: &str, file: &Path, more: &[&OsStr]) {
    let mut command = Command::new("cc");
    command
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .args(["-std=gnu11", "-O2", "-Itests/programs/include", source])
        .arg("-o")
        .arg(file)
        .args(more);
    run(&mut command);
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Checks that a trace has at least so many calls of a function: a program that was not recorded is
/// as fast as the bare one.
///
/// # Errors
/// What the trace has instead.
pub fn ensure_recorded(trace: &Path, function: &str, least: usize) -> Result<(), String> {
    let opened = Trace::open(trace).map_err(|error| format!("nothing was recorded: {error}"))?;
    let calls = opened.calls();
    let found = calls.filter(|call| call.signature.name == function);
    match found.count() {
        enough if enough >= least => Ok(()),
        few => Err(format!(
            "{few} calls of {function} were recorded, not {least} ({})",
            trace.display()
        )),
    }
}

/// Whether this is `cargo bench`; `cargo test --benches` measures nothing.
pub fn is_asked_for() -> bool {
    std::env::args().any(|word| word == "--bench")
}

/// The median; 0 if there are no values.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Runs a command and returns its output.
///
/// # Panics
/// If it fails.
pub fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Prints bare and recorded figures with their ratio and, for nanoseconds, what recording adds
/// beyond two clock reads.
pub fn print([bare, recorded]: &[Figures; 2]) {
    let clock = bare.get("clock_read_ns").copied().unwrap_or(0.0);
    println!(
        "{:<24} {:>10} {:>10} {:>8} {:>10} {:>18}",
        "", "bare", "recorded", "ratio", "added", "less 2 clock reads"
    );
    for (name, &before) in bare {
        let after = recorded.get(name).copied().unwrap_or(0.0);
        let (ratio, added) = (after / before, after - before);
        print!("{name:<24} {before:>10.2} {after:>10.2} {ratio:>8.3} {added:>10.2}");
        if name.ends_with("_ns") && clock > 0.0 && !name.starts_with("clock") {
            print!(" {:>18.2}", added - 2.0 * clock);
        }
        println!();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_not_recorded_is_noticed() {
        let packed = crate::packed_launch_loop(3);
        let ensure = |function, least| ensure_recorded(packed.path(), function, least);
        assert_eq!(ensure("cuCtxGetCurrent", 3), Ok(()));
        let few = ensure("cuCtxGetCurrent", 4).unwrap_err();
        assert!(few.starts_with("3 calls of cuCtxGetCurrent"), "{few}");
        let other = ensure("cuMemAlloc_v2", 1).unwrap_err();
        assert!(other.starts_with("0 calls of cuMemAlloc_v2"), "{other}");
        let none = ensure_recorded(Path::new("/no/such.cutape"), "cuInit", 1).unwrap_err();
        assert!(none.starts_with("nothing was recorded"), "{none}");
    }
}
