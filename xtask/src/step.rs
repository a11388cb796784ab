//! Commands that a task runs. The message of a failed one has the command line.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::Failure;

/// The cargo that runs this task, in the root of the repository. `words` has no quoted ones.
pub(crate) fn cargo(root: &Path, words: &str) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words.split(' ')).current_dir(root);
    command
}

/// A compiler for C programs that include the header of the test programs; the caller adds
/// libraries.
pub(crate) fn cc(root: &Path, level: &str, source: impl AsRef<OsStr>, output: &Path) -> Command {
    let mut command = Command::new("cc");
    command
        .current_dir(root)
        .args(["-std=gnu11", level, "-g", "-Wall", "-Werror"])
        .arg("-Itests/programs/include")
        .arg(source)
        .arg("-o")
        .arg(output);
    command
}

/// Cargo's target folder.
pub(crate) fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Runs it; its output is not redirected.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command
        .status()
        .map_err(|error| cannot_run(command, &error))?;
    if status.success() {
        return Ok(());
    }
    Err(failure!(
        "failed ({status}); run it again: {}",
        shown(command)
    ))
}

/// Runs it and returns its output.
pub(crate) fn output(command: &mut Command) -> Result<Output, Failure> {
    command
        .output()
        .map_err(|error| cannot_run(command, &error))
}

fn cannot_run(command: &Command, error: &std::io::Error) -> Failure {
    failure!(
        "cannot run {}: {error}",
        command.get_program().to_string_lossy()
    )
}

/// Whether a program is in PATH. `libclang`: whether bindgen finds the library. `frida`: whether
/// Frida's Python package works; it is installed beside the build if it is missing. `nvcc`: whether
/// the compiler of CUDA is installed beside the build; likewise.
pub(crate) fn is_installed(program: &str) -> bool {
    match program {
        "libclang" => return has_libclang(),
        "nvcc" => {
            let installed = crate::runtime::install(&crate::root());
            return installed
                .inspect_err(|failure| println!("{failure}"))
                .is_ok();
        }
        "frida" => {
            let python = crate::frida::python(&crate::root());
            return python.inspect_err(|failure| println!("{failure}")).is_ok();
        }
        _ => {}
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

/// Looks in the folders of Debian, Ubuntu and Fedora, and at the variable that names another one.
fn has_libclang() -> bool {
    let holds = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .any(|name| {
                let rest = name.strip_prefix("libclang").unwrap_or_default();
                (rest.starts_with('.') || rest.starts_with("-1") || rest.starts_with("-2"))
                    && rest.contains(".so")
            })
    };
    let llvm = std::fs::read_dir("/usr/lib")
        .into_iter()
        .flatten()
        .flatten();
    std::env::var_os("LIBCLANG_PATH").is_some()
        || ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"]
            .iter()
            .any(|folder| holds(Path::new(folder)))
        || llvm
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("llvm"))
            .any(|entry| holds(&entry.path().join("lib")))
}

/// The command line.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    // $CARGO is a full path.
    let name = match program.file_name() {
        Some(name) if name == "cargo" => name.to_string_lossy(),
        _ => command.get_program().to_string_lossy(),
    };
    let mut text = String::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            text += &format!(
                "{}={} ",
                name.to_string_lossy(),
                quoted(&value.to_string_lossy())
            );
        }
    }
    text += &name;
    for word in command.get_args() {
        text.push(' ');
        text += &quoted(&word.to_string_lossy());
    }
    text
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
