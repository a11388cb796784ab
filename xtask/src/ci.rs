//! `ci`: the checks that every change must pass.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::step::{cargo, is_installed, run};

/// A check: a command of cargo.
struct Step {
    name: &'static str,
    /// Programs that it needs.
    needs: &'static [&'static str],
    /// Whether it is skipped when one of them is missing; else that is a failure.
    is_optional: bool,
    arguments: &'static str,
    environment: &'static [(&'static str, &'static str)],
}

impl Step {
    const fn new(name: &'static str, arguments: &'static str) -> Self {
        Self {
            name,
            needs: &[],
            is_optional: false,
            arguments,
            environment: &[],
        }
    }

    const fn needs(self, needs: &'static [&'static str]) -> Self {
        Self { needs, ..self }
    }

    const fn optional(self) -> Self {
        Self {
            is_optional: true,
            ..self
        }
    }

    const fn environment(self, environment: &'static [(&'static str, &'static str)]) -> Self {
        Self {
            environment,
            ..self
        }
    }
}

/// Cheap steps first.
const STEPS: &[Step] = &[
    Step::new("format", "fmt --all --check"),
    Step::new("generated", "xtask codegen --check"),
    Step::new(
        "clippy",
        "clippy -q --workspace --all-targets -- -D warnings",
    ),
    Step::new("circles", "xtask circles").needs(&["cargo-modules"]),
    // Without `advisories`: their database is not in a package registry.
    Step::new(
        "dependencies",
        "deny --log-level error --all-features check bans licenses sources",
    )
    .needs(&["cargo-deny"]),
    Step::new("documentation", "doc -q --workspace --no-deps")
        .environment(&[("RUSTDOCFLAGS", "-D warnings")]),
    // The libraries as they are shipped.
    Step::new(
        "shim",
        "build -q --profile shim -p cutape-interposer -p cutape-audit",
    ),
    Step::new("instructions", "xtask instructions")
        .needs(&["cc", "valgrind"])
        .optional(),
    Step::new("benchmarks", "check -q -p cutape-benches --benches"),
    // The backend gum: checked against frida-gum's header, run with a stub of its library and with
    // Frida's Python package.
    Step::new(
        "gum: clippy",
        "clippy -q -p cutape-interposer --features gum -- -D warnings",
    )
    .environment(&[("DOCS_RS", "1")])
    .needs(&["libclang"])
    .optional(),
    Step::new("gum: stub", "xtask gum-test")
        .needs(&["libclang", "cc", "nm"])
        .optional(),
    Step::new("gum: Frida", "xtask gum-test --frida")
        .needs(&["libclang", "cc", "nm", "python3", "frida"])
        .optional(),
    // Last, so that the results end the output.
    Step::new("tests", "test --workspace --no-fail-fast").needs(&["cc", "nm"]),
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
            if !step.is_optional {
                print_table(&done);
                return Err(Failure::new(format!(
                    "{}: not installed: {missing}; `cargo xtask tools` and .ci/run install it",
                    step.name
                )));
            }
            println!("skipped: not installed: {missing}");
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
    let arguments: Vec<&str> = step.arguments.split(' ').collect();
    let mut command = cargo(root, &arguments);
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
