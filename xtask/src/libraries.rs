//! `libraries`: small programs of CuPy, numba and cuda.core on the null driver: bare, recorded,
//! checked, replayed; and one runs on the answers of a GPU, which `traces/` has. The libraries are
//! installed beside the build.

use std::path::Path;
use std::time::Instant;

use crate::null_driver::{Program, Tools, is_wanted, test_all};
use crate::parts::replace_folder;
use crate::{Failure, files, python_packages, step};

/// Packages and versions, for Python 3.10 to 3.13. Those of CUDA are 13.0, as the null driver is: a
/// driver refuses PTX of a newer toolkit.
const PACKAGES: [&str; 14] = [
    "backports.strenum==1.3.1; python_version < '3.11'",
    "cuda-bindings==13.0.3",
    "cuda-core==1.2.2",
    "cuda-pathfinder==1.8.3",
    "cupy-cuda13x==14.2.0",
    "llvmlite==0.50.0",
    "numba-cuda==0.30.4",
    "numba==0.68.1",
    "numpy==2.2.6",
    "nvidia-cuda-nvrtc==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-nvjitlink==13.0.88",
    "nvidia-nvvm==13.0.88",
    "packaging==26.4",
];

/// Programs in `tests/gpu/programs`, and the package that each is about. `cupy_raw` needs libraries
/// that are too large for a test of every change.
const PROGRAMS: [(&str, &str); 4] = [
    ("cupy-cuda13x", "cupy_mix"),
    ("cuda-core", "core_link"),
    ("cuda-core", "core_mix"),
    ("numba-cuda", "numba_add"),
];

/// A program whose recording in `traces/frameworks` is whole, and what its kernel computes: each of
/// 1,000 numbers from 0 on and 2.
const PLAYED: (&str, &str) = ("numba_add", "[2. 3. 4. 5.] 501500.0");

/// Runs the programs whose names contain one of the words; all of them without words.
pub(crate) fn test(root: &Path, words: &[&str]) -> Result<(), Failure> {
    let target = step::target(root).join("libraries");
    let python = python_packages::python(&target.join("packages"), &PACKAGES)?;
    let tools = Tools::build(root, target.join("results"))?;
    let driver = target.join("driver");
    replace_folder(&driver)?;
    files::link(&tools.null_driver, &driver.join("libcuda.so.1"))?;
    // CuPy compiles its own kernels once, at their first use.
    let kernels = target.join("kernels");
    let jobs: Vec<_> = PROGRAMS
        .iter()
        .filter(|(_, program)| is_wanted(program, words))
        .collect();
    let program = |name: &str| Program {
        words: vec![
            python.clone(),
            root.join("tests/gpu/programs")
                .join(name)
                .with_extension("py"),
        ],
        variables: vec![
            ("LD_LIBRARY_PATH", driver.as_os_str()),
            ("CUPY_CACHE_DIR", kernels.as_os_str()),
        ],
    };
    let heading = row("library", "version", "program");
    test_all(&heading, &jobs, |(library, name)| {
        let start = Instant::now();
        let name_of_row = row(library, version(library), name);
        vec![tools.test(name_of_row, start, Ok(program(name)))]
    })?;
    let (name, results) = PLAYED;
    if is_wanted(name, words) {
        let trace = root.join("traces/frameworks").join(name);
        let printed = tools.play(&program(name), &trace.with_extension("cutape"))?;
        if printed.trim() != results {
            return Err(failure!("{name}, played, prints {printed}"));
        }
        println!("{name} runs on the answers of a GPU");
    }
    Ok(())
}

fn row(library: &str, version: &str, program: &str) -> String {
    format!("{library:<14} {version:<9} {program}")
}

/// The version of a package.
fn version(library: &str) -> &'static str {
    let version = |package: &'static str| package.strip_prefix(library)?.strip_prefix("==");
    PACKAGES.into_iter().find_map(version).unwrap_or_default()
}
