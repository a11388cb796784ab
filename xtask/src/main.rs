//! Build tasks of the project. `cargo xtask` lists them.

/// A `Failure` with a message that is made as by `format!`.
macro_rules! failure {
    ($($message:tt)*) => {
        crate::Failure::new(format!($($message)*))
    };
}

mod book;
mod ci;
mod circles;
mod codegen;
mod coverage;
mod demo;
mod dist;
mod engines;
mod errata;
mod families;
mod files;
mod frida;
mod fuzz;
mod gum;
#[cfg(feature = "import")]
mod import;
mod imports;
mod install;
mod instructions;
mod integrations;
mod kinds;
mod libraries;
mod lines;
mod members;
mod node_packages;
mod null_driver;
mod package;
mod parts;
mod python;
mod python_packages;
mod random;
mod roles;
mod rule_coverage;
mod runtime;
mod semantics;
mod signatures;
mod step;
mod tools;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Why a task failed: what went wrong, where, and what to do.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Failure(message.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The root of the repository: the folder above this crate's.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map_or_else(PathBuf::new, Path::to_path_buf)
}

const USAGE: &str = "\
usage: cargo xtask TASK
  import            read NVIDIA's headers (needs: cargo run -p xtask --features import -- import)
  codegen [--check] write the generated files; --check: list the stale ones
  coverage          count the recorded and replayed functions of each section of the manual
  coverage --rules  count the rules that are defined, decided and tested; fails on gaps
  demo              record, replay and check a program that has a bug
  install [--prefix FOLDER]
                    build cutape for this machine and install it; default: cargo's own folder
  dist [wheel] [deb] [tarball] [--check] [--quick]
                    make the packages, for glibc 2.17 and later, in target/dist/packages;
                    --check: install them in fresh systems and run the README's commands there;
                    --quick: without optimisation, and in one system only
  package FOLDER [--gum]
                    build what tests/gpu/run.sh needs on a machine without Rust; --gum: and gum.sh
  gum-test          test the backend gum (CUTAPE_GUM_DEVKIT: frida-gum's development kit)
  gum-test --frida  test it with Frida's Python package (CUTAPE_FRIDA_WHEEL: its file)
  gum-bench         measure a call with each backend, gum as with gum-test (CUTAPE_GUM_DEVKIT),
                    or without that variable with Frida's Python package
  instructions [--update]
                    compare the instructions that recording adds to a call with
                    benches/instructions.txt (needs valgrind); --update: rewrite that file
  random [--count N] [--seed S] [--schedule NAME]
                    run random programs under the schedules of the null driver, recorded, checked
                    and replayed; more options: tests/random/tests/random.rs
  fuzz [--release] [--target NAME] [--seconds N] [--executions N] [--seed S] [--jobs N]
                    give damaged traces and images with valid checksums to everything that reads
                    them, for 60 seconds if it is not said; --release: optimised; more options:
                    tests/fuzz/tests/fuzz.rs
  circles [PACKAGE...]
                    look for modules that import each other in a circle
  lines [--update]  compare the lines of each crate with xtask/lines.txt; --update: rewrite that file
  engines [FOLDER...]
                    export traces and read them with DuckDB, Spark and Perfetto's trace processor
                    (needs python3, java and node; installs Python packages)
  integrations      test the pytest plugin and what ci/ has for GitHub and GitLab (needs python3;
                    installs Python packages)
  book              check the links of the pages in docs, and make the site target/book/html (needs
                    python3; installs mdBook)
  python [ARGUMENTS...]
                    build the Python package unoptimised in target/python, check its types and
                    test it with pytest, which gets the arguments (needs python3; installs Python
                    packages)
  runtime [NAME...] compile programs of the CUDA runtime, for CUDA 13 and 12, and run, record, check
                    and replay them on the null driver (needs cc and python3; installs nvcc)
  libraries [NAME...]
                    run, record, check and replay programs of CuPy, numba and cuda.core on the null
                    driver (needs python3; installs the libraries)
  tools             install cargo-deny and the packages of `engines` and
                    `integrations`
  ci                run all checks and tests";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["--help" | "-h"] | [_, "--help" | "-h"] if arguments[0] != "python" => {
            println!("{USAGE}");
            Ok(())
        }
        // A folder of that name is not meant.
        ["package", folder, ..] if folder.starts_with('-') => Err(Failure::new(USAGE)),
        ["import"] => import_task(),
        ["codegen"] => codegen::run(&root(), false),
        ["codegen", "--check"] => codegen::run(&root(), true),
        ["coverage"] => coverage::run(&root()),
        ["coverage", "--rules"] => rule_coverage::run(&root()),
        ["demo"] => demo::run_all(&root()),
        ["install"] => install::run(&root(), None),
        ["install", "--prefix", prefix] => install::run(&root(), Some(prefix)),
        ["dist", words @ ..] => dist::run(&root(), words),
        ["package", folder] => package::run(&root(), folder, false),
        ["package", folder, "--gum"] => package::run(&root(), folder, true),
        ["gum-test"] => gum::test(&root()),
        ["gum-test", "--frida"] => gum::test_with_frida(&root()),
        ["gum-bench"] => gum::bench(&root()),
        ["instructions"] => instructions::run(&root(), false),
        ["instructions", "--update"] => instructions::run(&root(), true),
        ["lines"] => lines::run(&root(), false),
        ["lines", "--update"] => lines::run(&root(), true),
        ["fuzz", arguments @ ..] => fuzz::test(&root(), arguments),
        ["random", arguments @ ..] => random::test(&root(), arguments),
        ["circles", packages @ ..] => circles::run(&root(), packages),
        ["engines", folders @ ..] => engines::check(&root(), folders),
        ["integrations"] => integrations::test(&root()),
        ["book"] => book::make(&root()),
        ["python", arguments @ ..] => python::test(&root(), arguments),
        ["runtime", names @ ..] => runtime::test(&root(), names),
        ["libraries", names @ ..] => libraries::test(&root(), names),
        ["tools"] => tools::install(&root()),
        ["ci"] => ci::run_all(&root()),
        _ => Err(Failure::new(USAGE)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(feature = "import")]
fn import_task() -> Result<(), Failure> {
    import::run(&root())
}

#[cfg(not(feature = "import"))]
fn import_task() -> Result<(), Failure> {
    Err(Failure::new(
        "import: not in this build; run: cargo run -p xtask --features import -- import",
    ))
}
