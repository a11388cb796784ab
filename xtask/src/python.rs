//! `python`: the Python package, built without optimisation, and its tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::parts::{self, PARTS, replace_folder};
use crate::step::{self, run};
use crate::{Failure, engines, files};

/// The crate of the package's module.
pub(crate) const MODULE_PACKAGE: &str = "cutape-python";
/// The file that cargo makes of it.
pub(crate) const MODULE_BUILT: &str = "libcutape_python.so";
/// The file that Python imports as `cutape._native`.
pub(crate) const MODULE: &str = "cutape/_native.abi3.so";

/// What has type hints for users.
const TYPED: [&str; 8] = [
    "cutape",
    "cutape._options",
    "cutape._recording",
    "cutape._sql",
    "cutape._values",
    "cutape._verbs",
    "cutape.fleet",
    "cutape.spark",
];

/// Builds the package, checks its types and runs its tests.
pub(crate) fn test(root: &Path, arguments: &[&str]) -> Result<(), Failure> {
    let python = engines::python(root)?;
    let folder = build(root)?;
    let command = |module: &str| {
        let mut command = Command::new(&python);
        command
            .args(["-m", module])
            .current_dir(root)
            .env("PYTHONPATH", &folder)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("MYPY_CACHE_DIR", folder.join("mypy"));
        command
    };
    // The type hints agree with the module, and the package with them.
    run(command("mypy.stubtest").args(["cutape._native", "--concise"]))?;
    run(command("mypy")
        .args(["--strict", "--no-error-summary", "--follow-imports=silent"])
        .args(TYPED.into_iter().flat_map(|module| ["-m", module])))?;
    run(command("pytest")
        .args(["-q", "-p", "no:cacheprovider", "python/native/tests"])
        .args(arguments))
}

/// Puts the package together, and returns the folder that it is in.
fn build(root: &Path) -> Result<PathBuf, Failure> {
    let target = step::target(root);
    let built = target.join("debug");
    let folder = target.join("python");
    let package = folder.join("cutape");
    let programs = package.join("bin");
    replace_folder(&package)?;
    files::make_folder(&programs)?;
    parts::build(root)?;
    for (_, _, file) in PARTS {
        // The program finds its libraries where it itself is.
        files::link(&built.join(file), &programs.join(file))?;
    }
    files::copy(&built.join(MODULE_BUILT), &folder.join(MODULE))?;
    for file in files::list(&root.join("python/cutape")) {
        if file.is_file() {
            files::copy(&file, &package.join(files::name(&file)))?;
        }
    }
    Ok(folder)
}
