//! Frida's Python package, whose agent contains frida-gum. It is installed beside the build; a
//! process brings the agent into programs that ask for it (`interposer/tests/gum/bridge.*`).
//! Nothing of it becomes part of cutape.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::step::{self, output, run};
use crate::{Failure, files};

/// The version that the crate frida-gum is made for.
pub(crate) const VERSION: &str = "17.9.5";
/// Names the file to install it from, for machines without a package index.
const WHEEL: &str = "CUTAPE_FRIDA_WHEEL";
/// Names the bridge's socket for processes with the interposer.
pub(crate) const SOCKET: &str = "CUTAPE_GUM_BRIDGE_SOCKET";

/// A Python in which Frida works; installs Frida if it is missing.
pub(crate) fn python(root: &Path) -> Result<PathBuf, Failure> {
    let folder = step::target(root).join("gum/frida");
    let python = folder.join("bin/python");
    if works(root, &python).is_ok() {
        return Ok(python);
    }
    let wheel = std::env::var_os(WHEEL).unwrap_or_else(|| format!("frida=={VERSION}").into());
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(&folder);
    let mut install = Command::new(&python);
    install
        .args("-m pip install --quiet --disable-pip-version-check --retries 1".split(' '))
        .arg(wheel);
    for command in [&mut make, &mut install] {
        run(command).map_err(|failure| {
            failure!("cannot install Frida {VERSION}: {failure}; set {WHEEL} to its wheel")
        })?;
    }
    works(root, &python)?;
    Ok(python)
}

/// Fails unless that Python can bring Frida's agent into another process.
fn works(root: &Path, python: &Path) -> Result<(), Failure> {
    if !python.is_file() {
        return Err(files::failed(python, "no such file"));
    }
    let tried = output(Command::new(python).arg(program(root)).arg("--try"))?;
    if tried.status.success() {
        return Ok(());
    }
    Err(failure!(
        "Frida cannot enter a process: {}",
        String::from_utf8_lossy(&tried.stderr).trim()
    ))
}

fn program(root: &Path) -> PathBuf {
    root.join("interposer/tests/gum/bridge.py")
}

/// The running process that brings the agent into others. `finish` or dropping this ends it.
#[derive(Debug)]
pub(crate) struct Bridge {
    process: Child,
    socket: PathBuf,
}

impl Bridge {
    /// Starts it; returns when it listens.
    pub(crate) fn start(root: &Path, python: &Path) -> Result<Self, Failure> {
        let log = step::target(root).join("gum/frida.jsonl");
        // The path of a socket has at most 107 bytes.
        let socket = std::env::temp_dir().join(format!("cutape-gum-{}", std::process::id()));
        let _ = fs::remove_file(&socket);
        let process = Command::new(python)
            .arg(program(root))
            .arg(&socket)
            .arg(&log)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| files::failed(python, error))?;
        let mut bridge = Self { process, socket };
        if bridge.line()? != "ready\n" {
            return Err(Failure::new("bridge.py ended; its output has the reason"));
        }
        Ok(bridge)
    }

    /// Its socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Ends it and prints what it patched. Fails if patching failed in a process, or if no process
    /// asked.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        drop(self.process.stdin.take());
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            print!("{line}");
        }
        match self.process.wait() {
            Ok(status) if status.success() => Ok(()),
            _ => Err(Failure::new(
                "Frida did not patch every process that asked; see target/gum/frida.jsonl",
            )),
        }
    }

    /// The next line of its output; empty at the end.
    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        if let Some(stdout) = &mut self.process.stdout {
            // A buffer of one byte keeps nothing that a later call would miss.
            BufReader::with_capacity(1, stdout)
                .read_line(&mut line)
                .map_err(|error| failure!("bridge.py: {error}"))?;
        }
        Ok(line)
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
        let _ = fs::remove_file(&self.socket);
    }
}
