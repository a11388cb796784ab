//! `install`: builds cutape for this machine and installs it below a prefix.

use std::path::{Path, PathBuf};

use crate::parts::{Binaries, DEMO, DEMO_SOURCE, NULL_DRIVER, PARTS};
use crate::{Failure, step};

/// Installs below `prefix`, or else below cargo's own folder, beside what `cargo install` installs.
pub(crate) fn run(root: &Path, prefix: Option<&str>) -> Result<(), Failure> {
    let prefix = match prefix {
        Some(prefix) => PathBuf::from(prefix),
        None => cargo_home().ok_or_else(|| {
            Failure::new("neither CARGO_HOME nor HOME is set; name a folder with --prefix")
        })?,
    };
    let target = step::target(root);
    let mut built = Vec::new();
    // One by one: in one build the interposer would get features that only readers need.
    for (package, profile, file) in PARTS {
        step::run(step::cargo(root, "build --profile").args([profile, "-p", package]))?;
        built.push(target.join(profile).join(file));
    }
    let demo = target.join("release").join(DEMO);
    let library = target.join("release").join(NULL_DRIVER);
    let mut compile = step::cc(root, "-O1", DEMO_SOURCE, &demo);
    step::run(compile.arg("-Itests/programs").arg(library))?;
    built.push(demo);
    let binaries = Binaries::collect(target.join("install"), &built)?;
    binaries.install(root, &prefix)?;
    println!(
        "installed {}; try it: cutape demo",
        prefix.join("bin/cutape").display()
    );
    Ok(())
}

/// Where `cargo install` installs.
pub(crate) fn cargo_home() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
}
