//! Fresh systems of several ages, made by debootstrap, in which the packages are tried.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{is_installed, output, run};
use crate::{Failure, files};

/// Debian's releases, the oldest first. Their glibc is 2.31 (older than Ubuntu 22.04's 2.35), 2.36
/// and 2.41.
pub(super) const SUITES: [&str; 3] = ["bullseye", "bookworm", "trixie"];

/// A system with Python, and neither Rust nor a C compiler.
#[derive(Debug)]
pub(super) struct Root(PathBuf);

/// What is mounted here is mounted for this command alone.
const ENTER: &str = r#"
mount --rbind /dev "$1/dev"
mount -t proc proc "$1/proc"
exec chroot "$1" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive PIP_NO_INDEX=1 sh -c "$2"
"#;

impl Root {
    /// A fresh copy of a suite's system, which is kept in `folder`.
    ///
    /// # Errors
    /// Why there can be none on this machine.
    pub(super) fn new(folder: &Path, suite: &str) -> Result<Self, Failure> {
        for program in ["debootstrap", "chroot", "unshare"] {
            let found = is_installed(program) || Path::new("/usr/sbin").join(program).is_file();
            if !found {
                return Err(failure!("{program} is not installed"));
            }
        }
        let kept = folder.join(suite);
        let stamp = folder.join(format!("{suite}.complete"));
        if !stamp.is_file() {
            remove(&kept)?;
            files::make_folder(folder)?;
            bootstrap(suite, &kept)?;
            files::write(&stamp, "")?;
        }
        let fresh = folder.join("fresh");
        remove(&fresh)?;
        let mut copy = Command::new("cp");
        run(copy.args(["-a", "--reflink=auto"]).args([&kept, &fresh]))?;
        Ok(Self(fresh))
    }

    /// A path in the system.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// The command that runs a script in it.
    pub(super) fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("unshare");
        command
            .args([
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-euc",
                ENTER,
                "sh",
            ])
            .arg(&self.0)
            .arg(script);
        command
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = remove(&self.0);
    }
}

fn bootstrap(suite: &str, folder: &Path) -> Result<(), Failure> {
    let mut make = Command::new("debootstrap");
    let path = std::env::var("PATH").unwrap_or_default();
    make.env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .args(["--variant=minbase", "--include=python3,python3-venv", suite])
        .arg(folder);
    let made = output(&mut make)?;
    if made.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&made.stdout);
    let why = said.lines().rev().find(|line| line.starts_with("E:"));
    Err(failure!("debootstrap {suite}: {}", why.unwrap_or("failed")))
}

fn remove(folder: &Path) -> Result<(), Failure> {
    if !folder.exists() {
        return Ok(());
    }
    fs::remove_dir_all(folder).map_err(|error| files::failed(folder, error))
}
