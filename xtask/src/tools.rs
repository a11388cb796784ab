//! `tools`: the cargo plug-ins, Python and Node packages that `ci` needs, in fixed versions.

use std::path::Path;
use std::process::Command;

use crate::Failure;
use crate::engines;
use crate::integrations;
use crate::node_packages;
use crate::step::{cargo, is_installed, output, run};

/// Plug-in and version: the last one that builds with the Rust version of `rust-toolchain.toml`.
const TOOLS: [(&str, &str); 1] = [("cargo-deny", "0.20.2")];

/// Installs what is missing or has another version.
pub(crate) fn install(root: &Path) -> Result<(), Failure> {
    for (name, version) in TOOLS {
        if is_current(name, version) {
            println!("{name} {version} is installed");
            continue;
        }
        let mut install = cargo(root, "install --quiet --locked --debug");
        install.env("CARGO_PROFILE_DEV_DEBUG", "0");
        run(install.arg(format!("{name}@{version}")))?;
    }
    if engines::PROGRAMS
        .iter()
        .all(|program| is_installed(program))
    {
        engines::python(root)?;
    }
    if is_installed("python3") {
        integrations::python(root)?;
    }
    if is_installed(node_packages::PROGRAM) {
        node_packages::install(root)?;
    }
    Ok(())
}

fn is_current(name: &str, version: &str) -> bool {
    let subcommand = name.trim_start_matches("cargo-");
    output(Command::new(name).args([subcommand, "--version"])).is_ok_and(|said| {
        said.status.success()
            && String::from_utf8_lossy(&said.stdout).trim() == format!("{name} {version}")
    })
}
