//! Frida's package for Python, whose agent carries frida-gum: installed beside the build, and a process that brings the agent
//! into programs which ask for it (`interposer/tests/gum/bridge.*`). Nothing of it becomes part of what is built.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::Failure;
use crate::step::{self, output, run};

/// The one whose gum the crate frida-gum is made for.
pub(crate) const VERSION: &str = "17.9.5";
/// Names a file to install it from, where there is no package index.
const WHEEL: &str = "CUTAPE_FRIDA_WHEEL";
/// Names the socket where the bridge listens, to processes with the interposer. What begins with CUTAPE the tests keep to themselves.
pub(crate) const SOCKET: &str = "CUTAPE_GUM_BRIDGE_SOCKET";

/// A Python that has Frida and can bring it into processes here; installed if it is not there yet.
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
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--retries",
            "1",
        ])
        .arg(wheel);
    for command in [&mut make, &mut install] {
        run(command).map_err(|failure| {
            Failure::new(format!(
                "Frida {VERSION} cannot be installed: {failure}; {WHEEL} may name its wheel"
            ))
        })?;
    }
    works(root, &python)?;
    Ok(python)
}

/// Whether that Python can bring Frida's agent into another process.
fn works(root: &Path, python: &Path) -> Result<(), Failure> {
    if !python.is_file() {
        return Err(Failure::new(format!("{} is not there", python.display())));
    }
    let tried = output(Command::new(python).arg(program(root)).arg("--try"))?;
    if tried.status.success() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "Frida cannot be brought into a process here: {}",
        String::from_utf8_lossy(&tried.stderr).trim()
    )))
}

fn program(root: &Path) -> PathBuf {
    root.join("interposer/tests/gum/bridge.py")
}

/// The running process that brings the agent in; ended by `finish`, or when this is dropped.
#[derive(Debug)]
pub(crate) struct Bridge {
    process: Child,
    socket: PathBuf,
}

impl Bridge {
    /// Returns once it listens.
    pub(crate) fn start(root: &Path, python: &Path) -> Result<Self, Failure> {
        let log = step::target(root).join("gum/frida.jsonl");
        // A socket's path has little room.
        let socket = std::env::temp_dir().join(format!("cutape-gum-{}", std::process::id()));
        let _ = fs::remove_file(&socket);
        let process = Command::new(python)
            .arg(program(root))
            .arg(&socket)
            .arg(&log)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::new(format!("{}: {error}", python.display())))?;
        let mut bridge = Self { process, socket };
        if bridge.line()? != "ready\n" {
            return Err(Failure::new("bridge.py has ended; it said why"));
        }
        Ok(bridge)
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Ends it; prints what was replaced. An error if it failed in a process, or was never asked.
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
                "Frida did not patch every process that asked: gum/frida.jsonl in the target folder says why",
            )),
        }
    }

    /// The next line that it prints; empty at its end.
    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        if let Some(stdout) = &mut self.process.stdout {
            // It prints one line, and the next at its end: none is lost in this buffer.
            BufReader::with_capacity(1, stdout)
                .read_line(&mut line)
                .map_err(|error| Failure::new(format!("bridge.py: {error}")))?;
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
