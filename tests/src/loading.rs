//! The programs of `programs/loading`, compiled once, and what tests of loading and of launchers do with them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use cutape_format::Trace;

use crate::{Output, parts, root, run};

/// The ways by which `record` catches calls.
pub const BACK_ENDS: [&str; 3] = ["preload", "audit", "gum"];

/// Whether `--via gum` is there.
pub fn gum_is_built() -> bool {
    let exports = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&parts().interposer));
    exports.stdout.contains(" cutape_interposer_patches")
}

/// The folder with the compiled programs, and the driver's folder in it.
///
/// # Panics
/// If they cannot be compiled.
pub fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = parts().new_folder("loading");
        let driver = folder.join("driver");
        fs::create_dir_all(&driver).unwrap();
        for name in ["libcuda.so.1", "libcuda.so", "other_name.so"] {
            symlink(&parts().null_driver, driver.join(name)).unwrap();
        }
        fs::copy(&parts().null_driver, driver.join("copy.so")).unwrap();
        let script = root().join("tests/programs/loading/build.sh");
        run(Command::new("sh")
            .arg(script)
            .arg(&folder)
            .arg(driver.join("libcuda.so.1")))
        .assert(0);
        folder
    })
}

/// The words of a command of one of those programs, with their places filled in.
pub fn words(command: &[String]) -> Vec<String> {
    let mut words: Vec<String> = command.iter().map(|word| filled_in(word)).collect();
    words[0] = format!("{}/{}", built().display(), words[0]);
    words
}

/// A word with the folder of the programs and the driver in the places for them.
pub fn filled_in(word: &str) -> String {
    let folder = built().display().to_string();
    word.replace("{driver}", &format!("{folder}/driver/libcuda.so.1"))
        .replace("{folder}", &folder)
}

/// Is set where gum is Frida's own, by way of `interposer/tests/gum/bridge.c`.
pub const BRIDGE: &str = "CUTAPE_GUM_BRIDGE_SOCKET";
/// What that gum is to refuse.
const REFUSES: &str = "CUTAPE_GUM_BRIDGE_REFUSES";

/// What each of the programs does with the driver.
pub const CALLS: [&str; 3] = ["cuInit", "cuDriverGetVersion", "cuDeviceGetCount"];

/// The traces of a folder have these calls.
pub fn ensure_calls(expected: &[&str], folder: &Path, output: &Output) -> Result<(), String> {
    let found = calls(folder);
    ensure(found == expected, &format!("recorded: {found:?}"), output)
}

/// Records a command; the driver is where the command looks for it.
pub fn record(via: &str, trace: &Path, words: &[String]) -> Output {
    record_where(via, trace, words, "")
}

/// The same, where gum refuses something.
pub fn record_where(via: &str, trace: &Path, words: &[String], refused: &str) -> Output {
    run(record_command(via, trace, words).env(REFUSES, refused))
}

/// The command of `record`.
pub fn record_command(via: &str, trace: &Path, words: &[String]) -> Command {
    let driver = built().join("driver/libcuda.so.1");
    let mut command = parts().cutape(&[
        &"record",
        &"--backend",
        &via,
        &"--driver",
        &driver,
        &"-o",
        &trace,
        &"--",
    ]);
    command
        .args(words)
        .env("LD_LIBRARY_PATH", built().join("driver"));
    command
}

/// The functions that were called, over all traces in a folder.
///
/// # Panics
/// If one of them cannot be read.
pub fn calls(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let trace = Trace::open(&entry.unwrap().path()).unwrap();
        names.extend(trace.calls().map(|call| call.signature.base.clone()));
    }
    names
}

/// A new, empty folder.
pub fn folder(name: &str) -> PathBuf {
    let name: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    parts().new_folder(&name)
}

/// Fails with that and with what was run, unless it holds.
///
/// # Errors
/// What does not hold.
pub fn ensure(holds: bool, what: &str, output: &Output) -> Result<(), String> {
    match holds {
        true => Ok(()),
        false => Err(format!("{what}\n{}", output.describe())),
    }
}
