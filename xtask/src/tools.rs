//! `tools`: the cargo plug-ins that `ci` needs, installed in a fixed version.

use std::path::Path;
use std::process::Command;

use crate::Failure;
use crate::step::{cargo, output, run};

/// Plug-in and version: the last one that builds with the Rust version of `rust-toolchain.toml`.
const TOOLS: [(&str, &str); 2] = [("cargo-modules", "0.27.0"), ("cargo-deny", "0.20.2")];

/// Installs what is missing or has another version.
pub(crate) fn install(root: &Path) -> Result<(), Failure> {
    for (name, version) in TOOLS {
        if is_current(name, version) {
            println!("{name} {version} is installed");
            continue;
        }
        let package = format!("{name}@{version}");
        let mut install = cargo(root, &["install", "--quiet", "--locked", "--debug"]);
        // Both run for seconds, so that an optimised build takes longer than it saves.
        install.arg(package).env("CARGO_PROFILE_DEV_DEBUG", "0");
        run(&mut install)?;
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
