//! `install`: builds cutape for this machine and installs it below a prefix.

use std::ffi::OsStr;
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
    let folder = prefix.join("bin");
    println!(
        "installed {}; {}",
        folder.join("cutape").display(),
        next_step(&folder, std::env::var_os("PATH").as_deref())
    );
    Ok(())
}

/// How to try what is in a folder, with what the shell's search path lacks for it.
fn next_step(folder: &Path, path: Option<&OsStr>) -> String {
    let known = std::env::split_paths(path.unwrap_or_default()).any(|known| known == folder);
    match known {
        true => "try it: cutape demo".to_owned(),
        false => format!(
            "it is not on the PATH; extend that, then try it: \
             export PATH=\"{}:$PATH\"; cutape demo",
            folder.display()
        ),
    }
}

/// Where `cargo install` installs.
pub(crate) fn cargo_home() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_path_lacks_is_named() {
        let folder = Path::new("/home/me/.cargo/bin");
        for (path, expected) in [
            (Some("/usr/bin:/home/me/.cargo/bin"), "try it: cutape demo"),
            (
                Some("/usr/bin:/home/me/.cargo"),
                "/home/me/.cargo/bin:$PATH",
            ),
            (None, "not on the PATH"),
        ] {
            let step = next_step(folder, path.map(OsStr::new));
            assert!(step.contains(expected), "{path:?}: {step}");
            assert_eq!(
                path == Some("/usr/bin:/home/me/.cargo/bin"),
                !step.contains("export")
            );
        }
    }
}
