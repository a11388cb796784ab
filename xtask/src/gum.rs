//! `gum-test`: the interposer with its back end `gum`, linked and tried: with frida-gum's library where there is one; with the
//! gum of Frida's package for Python; else with a stand-in that knows the null driver only.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;
use crate::frida::{self, Bridge};
use crate::step::{self, cargo, run};

/// Names the folder with frida-gum's prebuilt library and header, as its publisher packs them.
const DEVKIT: &str = "CUTAPE_GUM_DEVKIT";

/// This program calls the driver past us on purpose, and *gum* sees it all the same: the rule that it breaks is about not seeing.
const SEEN: &str = "rules/module-unload-runtime-owned/violation";

/// Variables for the end-to-end tests.
type Variables = Vec<(&'static str, OsString)>;

/// What is linked under the name of frida-gum's library.
#[derive(Debug)]
pub(crate) enum Library {
    /// It, in that folder.
    Devkit(PathBuf),
    /// One that asks Frida's agent to do the work.
    Bridge,
    /// One that patches the null driver only.
    StandIn,
}

impl Library {
    /// What the environment names, else the stand-in.
    fn found() -> Result<Self, Failure> {
        let Some(folder) = env::var_os(DEVKIT).map(PathBuf::from) else {
            println!(
                "{DEVKIT} is not set: with a stand-in for frida-gum, which patches the null driver only"
            );
            return Ok(Self::StandIn);
        };
        for file in ["libfrida-gum.a", "frida-gum.h"] {
            if !folder.join(file).is_file() {
                return Err(Failure::new(format!(
                    "{DEVKIT} is {}, where there is no {file}: it names the unpacked frida-gum-devkit for linux-x86_64",
                    folder.display()
                )));
            }
        }
        println!("with frida-gum of {}", folder.display());
        Ok(Self::Devkit(folder))
    }

    /// Builds the interposer with it, in that profile, and moves it to `output`.
    pub(crate) fn build(&self, root: &Path, profile: &str, output: &Path) -> Result<(), Failure> {
        let work = work(root)?;
        let mut build = cargo(
            root,
            &[
                "rustc",
                "--quiet",
                "-p",
                "cutape-interposer",
                "--features",
                "gum",
                "--profile",
                profile,
                "--",
                "-L",
            ],
        );
        match self {
            Self::Devkit(folder) => {
                build.arg(native(folder));
                build.env(
                    "BINDGEN_EXTRA_CLANG_ARGS",
                    format!("-I{}", folder.display()),
                );
            }
            Self::Bridge | Self::StandIn => {
                let folder = self.compile(root, &work)?;
                build.arg(native(&folder));
                // The bindings' own copy of the header.
                build.env("DOCS_RS", "1");
            }
        }
        run(&mut build)?;
        // The next build of the interposer, without the feature, takes its usual place again.
        let folder = if profile == "dev" { "debug" } else { profile };
        let built = step::target(root)
            .join(folder)
            .join("libcutape_interposer.so");
        fs::copy(&built, output).map_err(|error| failed(&built, &error))?;
        Ok(())
    }

    /// Compiles what poses as the library, in a folder of its own.
    fn compile(&self, root: &Path, work: &Path) -> Result<PathBuf, Failure> {
        let name = match self {
            Self::Bridge => "bridge",
            _ => "engine",
        };
        let folder = work.join(name);
        fs::create_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
        let object = folder.join("object.o");
        run(Command::new("cc")
            .args(["-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-c"])
            .arg(root.join(format!("interposer/tests/gum/{name}.c")))
            .arg("-o")
            .arg(&object))?;
        run(Command::new("ar")
            .arg("rcs")
            .arg(folder.join("libfrida-gum.a"))
            .arg(&object))?;
        Ok(folder)
    }
}

/// Builds the interposer with the feature `gum`, and runs the tests of loading and of all programs by way of it.
pub(crate) fn test(root: &Path) -> Result<(), Failure> {
    let library = Library::found()?;
    let interposer = work(root)?.join("libcutape_interposer.so");
    library.build(root, "dev", &interposer)?;
    // The stand-in is not what is to be tested: one way of each program is enough there.
    let programs: &[&str] = match library {
        Library::Devkit(_) => &["--skip", SEEN],
        _ => &["recorded", "--skip", SEEN],
    };
    let variables = variables(&interposer, None);
    tests(root, "loading", &[], &variables)?;
    tests(root, "programs", programs, &variables)
}

/// The same with the gum of Frida's package for Python, and only what depends on gum.
pub(crate) fn test_with_frida(root: &Path) -> Result<(), Failure> {
    let (bridge, variables) = bridged(root, "dev")?;
    let done = tests(root, "loading", &["gum:"], &variables)
        .and_then(|()| tests(root, "programs", &["recorded", "--skip", SEEN], &variables));
    bridge.finish().and(done)
}

/// What a call costs by way of each back end, with the gum of Frida's package for Python.
pub(crate) fn bench_with_frida(root: &Path) -> Result<(), Failure> {
    let (bridge, variables) = bridged(root, "shim")?;
    let done = run(cargo(
        root,
        &["bench", "-p", "cutape-benches", "--bench", "back_ends"],
    )
    .envs(variables));
    bridge.finish().and(done)
}

/// The interposer with the bridge, built, and the bridge's other end, which listens.
fn bridged(root: &Path, profile: &str) -> Result<(Bridge, Variables), Failure> {
    let python = frida::python(root)?;
    println!("with the gum of Frida {}, for tests only", frida::VERSION);
    let interposer = work(root)?.join("libcutape_interposer.so");
    Library::Bridge.build(root, profile, &interposer)?;
    let bridge = Bridge::start(root, &python)?;
    let variables = variables(&interposer, Some(&bridge));
    Ok((bridge, variables))
}

/// What makes the end-to-end tests take that interposer.
fn variables(interposer: &Path, bridge: Option<&Bridge>) -> Variables {
    let mut variables = vec![
        ("CUTAPE_TESTS_INTERPOSER", interposer.into()),
        ("CUTAPE_TESTS_BACKEND", "gum".into()),
    ];
    variables.extend(bridge.map(|bridge| (frida::SOCKET, bridge.socket().into())));
    variables
}

fn tests(
    root: &Path,
    test: &str,
    words: &[&str],
    variables: &[(&'static str, OsString)],
) -> Result<(), Failure> {
    let words = [
        &[
            "test",
            "--quiet",
            "-p",
            "cutape-tests",
            "--test",
            test,
            "--",
        ][..],
        words,
    ];
    run(cargo(root, &words.concat()).envs(variables.iter().cloned()))
}

/// Where this task builds.
fn work(root: &Path) -> Result<PathBuf, Failure> {
    let work = step::target(root).join("gum");
    fs::create_dir_all(&work).map_err(|error| failed(&work, &error))?;
    Ok(work)
}

fn native(folder: &Path) -> String {
    format!("native={}", folder.display())
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}
