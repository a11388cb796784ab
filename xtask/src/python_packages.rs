//! Python packages that checks need, in fixed versions, installed beside the build.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;
use crate::files;
use crate::step::run;

/// The Python of an environment with these packages; makes the environment if it has others.
pub(crate) fn python(folder: &Path, packages: &[&str]) -> Result<PathBuf, Failure> {
    let python = folder.join("bin/python");
    let marker = folder.join("packages");
    let wanted = packages.join("\n");
    if fs::read_to_string(&marker).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(folder);
    let mut install = Command::new(&python);
    install
        .args("-m pip install --quiet --disable-pip-version-check --no-cache-dir".split(' '))
        .args(packages);
    for command in [&mut make, &mut install] {
        run(command)?;
    }
    fs::write(&marker, wanted).map_err(|error| files::failed(&marker, error))?;
    Ok(python)
}
