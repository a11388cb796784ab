//! What users get: the program, its libraries and the program of the demo.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{cargo, output, run};
use crate::{Failure, files};

/// Package, profile, and file.
pub(crate) const PARTS: [(&str, &str, &str); 4] = [
    ("cutape", "release", PROGRAM),
    ("cutape-interposer", "shim", "libcutape_interposer.so"),
    ("cutape-audit", "shim", "libcutape_audit.so"),
    ("cutape-nulldriver", "release", NULL_DRIVER),
];

/// The program's file.
pub(crate) const PROGRAM: &str = "cutape";
/// The library with which programs for the null driver are linked: its SONAME is libcuda's.
pub(crate) const NULL_DRIVER: &str = "libcutape_null.so";
/// The program that `cutape demo` records.
pub(crate) const DEMO: &str = "link_demo";
/// Its source.
pub(crate) const DEMO_SOURCE: &str = "tests/programs/demo/link_demo.c";

/// The licences, in the root of the repository.
pub(crate) const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// The script of each shell, below the prefix.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/cutape"),
    ("fish", "share/fish/vendor_completions.d/cutape.fish"),
    ("zsh", "share/zsh/site-functions/_cutape"),
];

/// Builds the parts without optimisation, and Python's module.
pub(crate) fn build(root: &Path) -> Result<(), Failure> {
    run(&mut cargo(root, "parts"))?;
    run(&mut cargo(root, "build --quiet -p cutape-interposer"))?;
    run(&mut cargo(root, "build --quiet -p cutape-audit"))
}

/// The built files, together in one folder, where cutape finds its libraries.
#[derive(Debug)]
pub(crate) struct Binaries {
    pub(crate) folder: PathBuf,
}

impl Binaries {
    /// Copies and strips the files that `built` names; the demo's program keeps its symbols, which
    /// findings name.
    pub(crate) fn collect(folder: PathBuf, built: &[PathBuf]) -> Result<Self, Failure> {
        replace_folder(&folder)?;
        for file in built {
            let name = files::name(file);
            let copy = folder.join(&name);
            files::copy(file, &copy)?;
            let option = if name == DEMO {
                "--strip-debug"
            } else {
                "--strip-all"
            };
            strip(&copy, option)?;
            let is_library = files::has_extension(&copy, "so");
            set_mode(&copy, if is_library { 0o644 } else { 0o755 })?;
        }
        Ok(Self { folder })
    }

    /// The files, sorted.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        files::list(&self.folder)
    }

    /// Installs everything below a prefix such as `/usr/local`.
    pub(crate) fn install(&self, root: &Path, prefix: &Path) -> Result<(), Failure> {
        for file in self.files() {
            let name = files::name(&file);
            let folder = if name == PROGRAM { "bin" } else { "lib/cutape" };
            replace(&file, &prefix.join(folder).join(name))?;
        }
        self.share(prefix)?;
        for licence in LICENCES {
            let copy = prefix.join("share/doc/cutape").join(licence);
            replace(&root.join(licence), &copy)?;
        }
        Ok(())
    }

    /// Writes the manual pages and the shells' completions below a prefix.
    pub(crate) fn share(&self, prefix: &Path) -> Result<(), Failure> {
        let program = self.folder.join(PROGRAM);
        let pages = prefix.join("share/man/man1");
        run(Command::new(&program).arg("manual").arg(&pages))?;
        for (shell, path) in COMPLETIONS {
            let script = output(Command::new(&program).args(["completions", shell]))?;
            if !script.status.success() {
                return Err(failure!("cutape completions {shell}: {}", script.status));
            }
            let path = prefix.join(path);
            files::write(&path, &String::from_utf8_lossy(&script.stdout))?;
        }
        Ok(())
    }
}

/// Copies a file, its mode included. A program that runs keeps the file that it started from.
fn replace(from: &Path, to: &Path) -> Result<(), Failure> {
    files::make_folder(to.parent().unwrap_or(to))?;
    let new = to.with_extension("new");
    files::copy(from, &new)?;
    fs::rename(&new, to).map_err(|error| files::failed(to, error))
}

/// An empty folder.
pub(crate) fn replace_folder(folder: &Path) -> Result<(), Failure> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| files::failed(folder, error))?;
    }
    files::make_folder(folder)
}

/// Removes symbols from a file.
pub(crate) fn strip(file: &Path, option: &str) -> Result<(), Failure> {
    run(Command::new("strip").arg(option).arg(file))
}

pub(crate) fn set_mode(path: &Path, mode: u32) -> Result<(), Failure> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(|error| files::failed(path, error))
}
