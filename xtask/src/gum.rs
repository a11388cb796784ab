//! `gum-test`: the interposer with its back end `gum`, linked and tried: with frida-gum's library where there is one, else with
//! a stand-in that knows the null driver only.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;
use crate::step::{self, cargo, run};

/// Names the folder with frida-gum's prebuilt library and header, as its publisher packs them.
const DEVKIT: &str = "CUTAPE_GUM_DEVKIT";

/// This program calls the driver past us on purpose, and *gum* sees it all the same: the rule that it breaks is about not seeing.
const SEEN: &str = "rules/module-unload-runtime-owned/violation";

/// Builds the interposer with the feature `gum`, and runs the tests of loading and of all programs by way of it.
pub(crate) fn test(root: &Path) -> Result<(), Failure> {
    let target = step::target(root);
    let work = target.join("gum");
    fs::create_dir_all(&work).map_err(|error| failed(&work, &error))?;
    let devkit = env::var_os(DEVKIT).map(PathBuf::from);
    let mut build = cargo(
        root,
        &[
            "rustc",
            "--quiet",
            "-p",
            "cutape-interposer",
            "--features",
            "gum",
            "--",
            "-L",
        ],
    );
    match &devkit {
        Some(folder) => {
            for file in ["libfrida-gum.a", "frida-gum.h"] {
                if !folder.join(file).is_file() {
                    return Err(Failure::new(format!(
                        "{DEVKIT} is {}, where there is no {file}: it names the unpacked frida-gum-devkit for linux-x86_64",
                        folder.display()
                    )));
                }
            }
            println!("with frida-gum of {}", folder.display());
            build.arg(native(folder));
            build.env(
                "BINDGEN_EXTRA_CLANG_ARGS",
                format!("-I{}", folder.display()),
            );
        }
        None => {
            println!(
                "{DEVKIT} is not set: with a stand-in for frida-gum, which patches the null driver only"
            );
            stand_in(root, &work)?;
            build.arg(native(&work));
            // The bindings' own copy of the header.
            build.env("DOCS_RS", "1");
        }
    }
    run(&mut build)?;
    // The next build of the interposer, without the feature, takes its usual place again.
    let built = target.join("debug/libcutape_interposer.so");
    let library = work.join("libcutape_interposer.so");
    fs::copy(&built, &library).map_err(|error| failed(&built, &error))?;
    // The stand-in is not what is to be tested: one way of each program is enough there.
    let programs: &[&str] = match devkit {
        Some(_) => &["--", "--skip", SEEN],
        None => &["--", "recorded", "--skip", SEEN],
    };
    for (test, words) in [("loading", &[][..]), ("programs", programs)] {
        let mut command = cargo(
            root,
            &["test", "--quiet", "-p", "cutape-tests", "--test", test],
        );
        command
            .args(words)
            .env("CUTAPE_TESTS_INTERPOSER", &library)
            .env("CUTAPE_TESTS_VIA", "gum");
        run(&mut command)?;
    }
    Ok(())
}

fn native(folder: &Path) -> String {
    format!("native={}", folder.display())
}

/// Compiles the stand-in under the library's name.
fn stand_in(root: &Path, folder: &Path) -> Result<(), Failure> {
    let source = root.join("interposer/tests/gum/engine.c");
    let object = folder.join("engine.o");
    let library = folder.join("libfrida-gum.a");
    run(Command::new("cc")
        .args(["-O1", "-Wall", "-Werror", "-fPIC", "-c"])
        .arg(source)
        .arg("-o")
        .arg(&object))?;
    run(Command::new("ar").arg("rcs").arg(&library).arg(&object))
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}
