//! The programs of `programs/loading`, compiled once, for the tests of loading and of launchers.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use cutape_format::Trace;

use crate::parts::BACKEND_OPTION;
use crate::{Output, files, parts, root, run};

/// The backends of `record`.
pub const BACKENDS: [&str; 3] = ["preload", "audit", "gum"];

/// Whether the interposer was built with the backend `gum`.
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

/// The words of a command of one of those programs, with the paths inserted.
pub fn words(command: &[String]) -> Vec<String> {
    let mut words: Vec<String> = command.iter().map(|word| filled_in(word)).collect();
    words[0] = format!("{}/{}", built().display(), words[0]);
    words
}

/// A word with the paths of the programs and of the driver inserted.
pub fn filled_in(word: &str) -> String {
    let folder = built().display().to_string();
    word.replace("{driver}", &format!("{folder}/driver/libcuda.so.1"))
        .replace("{folder}", &folder)
}

/// Set where Frida's agent does the patching, through `interposer/tests/gum/bridge.c`.
pub const BRIDGE: &str = "CUTAPE_GUM_BRIDGE_SOCKET";
/// What the bridge refuses to do.
const REFUSES: &str = "CUTAPE_GUM_BRIDGE_REFUSES";

/// The driver calls of each program.
pub const CALLS: [&str; 3] = ["cuInit", "cuDriverGetVersion", "cuDeviceGetCount"];

/// Fails unless the traces in a folder have these calls.
///
/// # Errors
/// The calls that they have.
pub fn ensure_calls(expected: &[&str], folder: &Path, output: &Output) -> Result<(), String> {
    let found = calls(folder);
    ensure(found == expected, &format!("recorded: {found:?}"), output)
}

/// Records a command; the driver is in the folder where the program looks for it.
pub fn record(backend: &str, trace: &Path, words: &[String]) -> Output {
    record_refusing(backend, trace, words, "")
}

/// The same, with something that the bridge refuses.
pub fn record_refusing(backend: &str, trace: &Path, words: &[String], refused: &str) -> Output {
    run(record_command(backend, trace, words).env(REFUSES, refused))
}

/// The command that records.
pub fn record_command(backend: &str, trace: &Path, words: &[String]) -> Command {
    let driver = built().join("driver/libcuda.so.1");
    let mut command = parts().cutape(&[
        &"record",
        &BACKEND_OPTION,
        &backend,
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

/// The names of all calls in the traces of a folder.
///
/// # Panics
/// If one of them cannot be read.
pub fn calls(folder: &Path) -> Vec<String> {
    let traces = files(folder).into_iter().map(|path| Trace::open(&path));
    traces
        .flat_map(|trace| {
            let trace = trace.unwrap_or_else(|error| panic!("{error}"));
            let names: Vec<_> = trace
                .calls()
                .map(|call| call.signature.base.clone())
                .collect();
            names
        })
        .collect()
}

/// Fails with the message and the command, unless the condition holds.
///
/// # Errors
/// The message.
pub fn ensure(holds: bool, what: &str, output: &Output) -> Result<(), String> {
    match holds {
        true => Ok(()),
        false => Err(format!("{what}\n{}", output.describe())),
    }
}
