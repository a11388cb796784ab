//! `ci`: everything that has to hold before a change goes in, one step after another.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::step::{cargo, is_installed, run};

/// One thing to check.
struct Step {
    name: &'static str,
    /// Programs without which it cannot be made.
    needs: &'static [&'static str],
    /// Whether it is left out, by name, where they are missing; else that is a failure.
    optional: bool,
    arguments: &'static [&'static str],
    /// Documentation is checked by a warning that only the environment can make an error.
    environment: &'static [(&'static str, &'static str)],
}

impl Step {
    const fn new(name: &'static str, arguments: &'static [&'static str]) -> Self {
        Self {
            name,
            needs: &[],
            optional: false,
            arguments,
            environment: &[],
        }
    }
}

/// Cheap steps first. Clippy and the tests share nothing, so the order of those two does not matter.
const STEPS: &[Step] = &[
    Step::new("format", &["fmt", "--all", "--check"]),
    Step::new(
        "generated",
        &[
            "run",
            "--quiet",
            "--package",
            "xtask",
            "--",
            "codegen",
            "--check",
        ],
    ),
    Step::new(
        "clippy",
        &[
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
    ),
    Step {
        needs: &["cargo-modules"],
        ..Step::new(
            "circles",
            &["run", "--quiet", "--package", "xtask", "--", "circles"],
        )
    },
    // Not `advisories`: their database is fetched from a place that CI cannot reach.
    Step {
        needs: &["cargo-deny"],
        ..Step::new(
            "dependencies",
            &[
                "deny",
                "--all-features",
                "--offline",
                "check",
                "bans",
                "licenses",
                "sources",
            ],
        )
    },
    Step {
        environment: &[("RUSTDOCFLAGS", "-D warnings")],
        ..Step::new(
            "documentation",
            &["doc", "--quiet", "--workspace", "--no-deps"],
        )
    },
    // What is preloaded into programs, as it is shipped.
    Step::new(
        "shim",
        &[
            "build",
            "--quiet",
            "--profile",
            "shim",
            "--package",
            "cutape-interposer",
            "--package",
            "cutape-audit",
        ],
    ),
    Step {
        needs: &["cc", "valgrind"],
        optional: true,
        ..Step::new(
            "instructions",
            &["run", "--quiet", "--package", "xtask", "--", "instructions"],
        )
    },
    Step::new(
        "benchmarks",
        &[
            "check",
            "--quiet",
            "--package",
            "cutape-benches",
            "--benches",
        ],
    ),
    // What records by patching: checked against frida-gum's header, run with a stand-in for its library, and with the gum of
    // Frida's package for Python.
    Step {
        needs: &["libclang"],
        optional: true,
        environment: &[("DOCS_RS", "1")],
        ..Step::new(
            "gum: clippy",
            &[
                "clippy",
                "--quiet",
                "--package",
                "cutape-interposer",
                "--features",
                "gum",
                "--",
                "-D",
                "warnings",
            ],
        )
    },
    Step {
        needs: &["libclang", "cc", "nm"],
        optional: true,
        ..Step::new(
            "gum: tests",
            &["run", "--quiet", "--package", "xtask", "--", "gum-test"],
        )
    },
    Step {
        needs: &["libclang", "cc", "nm", "python3", "frida"],
        optional: true,
        ..Step::new(
            "gum: Frida",
            &[
                "run",
                "--quiet",
                "--package",
                "xtask",
                "--",
                "gum-test",
                "--frida",
            ],
        )
    },
    // Last, so that its result lines end the output. Includes every program, four ways, and the documentation's examples.
    Step {
        needs: &["cc", "nm"],
        ..Step::new("tests", &["test", "--workspace", "--no-fail-fast"])
    },
];

/// Runs all steps; stops at the first that fails.
pub(crate) fn run_all(root: &Path) -> Result<(), Failure> {
    let mut done: Vec<(&str, String)> = Vec::new();
    for step in STEPS {
        println!("== {}", step.name);
        let missing: Vec<_> = step
            .needs
            .iter()
            .copied()
            .filter(|program| !is_installed(program))
            .collect();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            if !step.optional {
                print_table(&done);
                return Err(Failure::new(format!(
                    "{}: not installed: {missing}; .ci/run installs it",
                    step.name
                )));
            }
            println!("skipped: {missing} is not installed");
            done.push((step.name, format!("skipped, no {missing}")));
            continue;
        }
        let start = Instant::now();
        if let Err(failure) = run(&mut command(root, step)) {
            done.push((
                step.name,
                format!("FAILED after {}", seconds(start.elapsed())),
            ));
            print_table(&done);
            return Err(Failure::new(format!("{}: {failure}", step.name)));
        }
        done.push((step.name, seconds(start.elapsed())));
    }
    print_table(&done);
    Ok(())
}

fn command(root: &Path, step: &Step) -> Command {
    let mut command = cargo(root, step.arguments);
    command.envs(step.environment.iter().copied());
    command
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn print_table(done: &[(&str, String)]) {
    println!();
    for (name, outcome) in done {
        println!("{name:<14} {outcome:>10}");
    }
}
