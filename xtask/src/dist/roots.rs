//! Fresh systems of several ages and layouts, made of Debian's packages, in which the packages are
//! tried.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{is_installed, output, run};
use crate::{Failure, files};

/// A fresh system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct System {
    /// What it is called here.
    pub(super) name: &'static str,
    /// The release of Debian that it is made of.
    suite: &'static str,
    /// Libraries are in /usr/lib64, as in Fedora and its relatives, and nothing says Debian.
    pub(super) has_lib64: bool,
}

/// The systems. Debian's glibc is 2.31 (older than the 2.35 of Ubuntu 22.04), 2.36 and 2.41.
pub(super) const SYSTEMS: [System; 4] = [
    System::debian("bullseye"),
    System {
        name: "lib64",
        suite: "bullseye",
        has_lib64: true,
    },
    System::debian("bookworm"),
    System::debian("trixie"),
];

/// The first of them, which show what differs most: the oldest, and the other layout.
pub(super) const FEW: usize = 2;

impl System {
    const fn debian(suite: &'static str) -> Self {
        Self {
            name: suite,
            suite,
            has_lib64: false,
        }
    }
}

/// Turns a Debian system into one with the layout of Fedora: libraries in /usr/lib64, none in the
/// folder of an architecture, neither dpkg nor folders of completions.
const TO_LIB64: &str = r#"
cd "$1"
mkdir -p usr/lib64
for folder in lib/x86_64-linux-gnu usr/lib/x86_64-linux-gnu; do
    if [ -d "$folder" ]; then
        cp -a "$folder/." usr/lib64/
        rm -rf "$folder"
    fi
done
rm -rf lib64
ln -s usr/lib64 lib64
ln -sf "$(basename "$(ls usr/lib64/ld-*.so | head -n 1)")" usr/lib64/ld-linux-x86-64.so.2
echo /usr/lib64 >etc/ld.so.conf
rm -rf etc/ld.so.cache etc/ld.so.conf.d etc/debian_version etc/apt etc/dpkg var/lib/dpkg
rm -f usr/bin/apt* usr/bin/dpkg* etc/os-release
rm -rf usr/share/bash-completion usr/share/zsh usr/share/fish
chroot . /sbin/ldconfig
"#;

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
    /// A fresh copy of a system, whose release of Debian is kept in `folder`.
    ///
    /// # Errors
    /// Why there can be none on this machine.
    pub(super) fn new(folder: &Path, system: System) -> Result<Self, Failure> {
        for program in ["chroot", "unshare"] {
            if !is_there(program) {
                return Err(failure!("{program} is not installed"));
            }
        }
        let suite = system.suite;
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
        if system.has_lib64 {
            let mut change = Command::new("sh");
            run(change.args(["-euc", TO_LIB64, "sh"]).arg(&fresh))?;
        }
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

/// Whether a program is in PATH, or where only root's PATH leads.
fn is_there(program: &str) -> bool {
    is_installed(program) || Path::new("/usr/sbin").join(program).is_file()
}

/// With mmdebstrap if it is there, which takes half of debootstrap's time.
fn bootstrap(suite: &str, folder: &Path) -> Result<(), Failure> {
    let options: &[&str] = match ["mmdebstrap", "debootstrap"].map(is_there) {
        [true, _] => &["mmdebstrap", "--quiet", "--variant=apt"],
        [false, true] => &["debootstrap", "--variant=minbase"],
        [false, false] => return Err(failure!("mmdebstrap and debootstrap are not installed")),
    };
    let (program, options) = options.split_first().unwrap_or((&"", &[]));
    let mut make = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    make.env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .args(options)
        .args(["--include=python3,python3-venv", suite])
        .arg(folder);
    let made = output(&mut make)?;
    if made.status.success() {
        return Ok(());
    }
    let said = [made.stdout, made.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let why = said.lines().rev().find(|line| line.starts_with("E:"));
    Err(failure!("{program} {suite}: {}", why.unwrap_or("failed")))
}

fn remove(folder: &Path) -> Result<(), Failure> {
    if !folder.exists() {
        return Ok(());
    }
    fs::remove_dir_all(folder).map_err(|error| files::failed(folder, error))
}
