//! `tools`: the cargo plug-ins and Python packages that `ci` needs, installed in fixed versions.

use std::path::Path;
use std::process::Command;

use crate::Failure;
use crate::engines;
use crate::integrations;
use crate::step::{cargo, is_installed, output, run};

/// Plug-in and version: the last one that builds with the Rust version of `rust-toolchain.toml`.
const TOOLS: [(&str, &str); 2] = [("cargo-modules", "0.27.0"), ("cargo-deny", "0.20.2")];

/// Libraries in which cargo-modules spends its time. In seconds of one processor, to build and then
/// to check one crate: 183 and 27 without optimisation, 300 and 8 with these optimised, 665 and 4
/// with everything optimised (2026-11-22).
const HOT: [&str; 23] = [
    "countme",
    "dashmap",
    "hashbrown",
    "indexmap",
    "la-arena",
    "ra_ap_base_db",
    "ra_ap_cfg",
    "ra_ap_hir_def",
    "ra_ap_hir_expand",
    "ra_ap_intern",
    "ra_ap_mbe",
    "ra_ap_parser",
    "ra_ap_span",
    "ra_ap_stdx",
    "ra_ap_syntax",
    "ra_ap_syntax-bridge",
    "ra_ap_tt",
    "ra_ap_vfs",
    "rowan",
    "rustc-hash",
    "salsa",
    "smallvec",
    "triomphe",
];

/// Installs what is missing or has another version.
pub(crate) fn install(root: &Path) -> Result<(), Failure> {
    for (name, version) in TOOLS {
        if is_current(name, version) {
            println!("{name} {version} is installed");
            continue;
        }
        let mut install = cargo(root, "install --quiet --locked --debug");
        install.env("CARGO_PROFILE_DEV_DEBUG", "0");
        if name == "cargo-modules" {
            for library in HOT {
                let option = format!("profile.dev.package.{library}.opt-level=1");
                install.args(["--config", &option]);
            }
        }
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
    Ok(())
}

fn is_current(name: &str, version: &str) -> bool {
    let subcommand = name.trim_start_matches("cargo-");
    output(Command::new(name).args([subcommand, "--version"])).is_ok_and(|said| {
        said.status.success()
            && String::from_utf8_lossy(&said.stdout).trim() == format!("{name} {version}")
    })
}
