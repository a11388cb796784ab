//! Node packages that tests need, in the versions of a lock file, installed beside the build.

use std::path::Path;
use std::process::Command;

use crate::Failure;
use crate::files;
use crate::step::{self, run};

/// The program that installs them.
pub(crate) const PROGRAM: &str = "npm";

/// The folder of the sources with `package.json` and its lock file; the one beside the build has the
/// same name.
const FOLDER: &str = "dap";
const PACKAGES: [&str; 2] = ["package.json", "package-lock.json"];

/// Installs what is missing or has another version.
pub(crate) fn install(root: &Path) -> Result<(), Failure> {
    let sources = root.join("tests").join(FOLDER);
    let folder = step::target(root).join(FOLDER);
    let is_same = |name: &str| {
        let text = files::read(&folder.join(name));
        text.is_ok_and(|text| files::read(&sources.join(name)).is_ok_and(|wanted| wanted == text))
    };
    if PACKAGES.into_iter().all(is_same) && folder.join("node_modules").is_dir() {
        return Ok(());
    }
    files::make_folder(&folder)?;
    for name in PACKAGES {
        files::copy(&sources.join(name), &folder.join(name))?;
    }
    let mut install = Command::new(PROGRAM);
    install.args("ci --silent --no-audit --no-fund --ignore-scripts".split(' '));
    run(install.current_dir(&folder))
}
