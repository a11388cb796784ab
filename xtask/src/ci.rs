//! `ci`: the checks that every change must pass.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::step::{cargo, is_installed, run};

/// The checks, cheap ones first and the tests last, so that their results end the output. Columns:
/// name, arguments of cargo, programs that it needs (after `?`: without them it is skipped), an
/// environment variable.
///
/// `dependencies` has no `advisories`: their database is not in a package registry. `shim` has the
/// libraries as they are shipped. The backend gum is checked against frida-gum's header, and run
/// with a stub of its library and with Frida's Python package. `packages` builds without
/// optimisation, which would take most of the time.
///
/// All that is built for tests has the features of `cargo test --workspace` (`parts` in
/// .cargo/config.toml), the interposer apart. `documentation` also shows that the libraries compile
/// with the features that users get.
const STEPS: &str = "\
format | fmt --all --check
generated | xtask codegen --check
rules | xtask coverage --rules
clippy | clippy -q --workspace --all-targets -- -D warnings
circles | xtask circles
lines | xtask lines
dependencies | deny --log-level error --all-features check bans licenses sources | cargo-deny
documentation | doc -q --workspace --no-deps | | RUSTDOCFLAGS=-D warnings
shim | build -q --profile shim -p cutape-interposer -p cutape-audit
instructions | xtask instructions | ? cc valgrind
gum: clippy | clippy -q -p cutape-interposer --features gum -- -D warnings | ? libclang | DOCS_RS=1
gum: stub | xtask gum-test | ? libclang cc nm
gum: Frida | xtask gum-test --frida | ? libclang cc nm python3 frida
book | xtask book | ? python3
engines | xtask engines | ? python3 java node
integrations | xtask integrations | python3
python | xtask python | python3
runtime | xtask runtime | ? cc python3 nvcc
libraries | xtask libraries | ? python3
packages | xtask dist --quick --check | cc dpkg-deb python3
fuzz | xtask fuzz --seconds 60
random | xtask random --count 500 --plant 50 --last replayed | cc
tests | test --workspace --no-fail-fast | cc nm";

/// Runs all steps; stops at the first that fails.
pub(crate) fn run_all(root: &Path) -> Result<(), Failure> {
    let mut done: Vec<(&str, String)> = Vec::new();
    for line in STEPS.lines() {
        let mut columns = line.split('|').map(str::trim);
        let mut column = || columns.next().unwrap_or_default();
        let (name, arguments, needs, variable) = (column(), column(), column(), column());
        println!("== {name}");
        let is_missing = |program: &&str| *program != "?" && !is_installed(program);
        let missing: Vec<&str> = needs.split_whitespace().filter(is_missing).collect();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            if !needs.starts_with('?') {
                print_table(&done);
                return Err(failure!(
                    "{name}: not installed: {missing}; `cargo xtask tools` and .ci/run install it"
                ));
            }
            println!("skipped: not installed: {missing}");
            done.push((name, format!("skipped, no {missing}")));
            continue;
        }
        let start = Instant::now();
        let mut command = cargo(root, arguments);
        command.envs(variable.split_once('='));
        if let Err(failure) = run(&mut command) {
            done.push((name, format!("FAILED after {}", seconds(start.elapsed()))));
            print_table(&done);
            return Err(failure!("{name}: {failure}"));
        }
        done.push((name, seconds(start.elapsed())));
    }
    print_table(&done);
    Ok(())
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
