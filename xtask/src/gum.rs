//! `gum-test` and `gum-bench`: link, test and measure the interposer with its backend `gum`: with
//! frida-gum's library, with Frida's Python package, or with a stub that can patch the null driver
//! only.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::frida::{self, Bridge};
use crate::step::{self, cargo, run};
use crate::{Failure, files};

/// Names the folder of frida-gum's development kit: the prebuilt library and its header.
const DEVKIT: &str = "CUTAPE_GUM_DEVKIT";

/// This program calls the driver so that only *gum* records the calls. It breaks its rule when they
/// are not recorded.
const SEEN: &str = "rules/module-unload-runtime-owned/violation";

/// The programs that load libcuda in different ways, with this backend.
const LOADED: &str = "loading/gum:";

/// The correct programs, each recorded once: whether a call is seen does not depend on what is found
/// in it.
const RECORDED: [&str; 5] = ["/recorded", "--skip", "misuse/", "--skip", "rules/"];

/// Environment variables for the end-to-end tests.
type Variables = Vec<(&'static str, OsString)>;

/// The library that is linked as frida-gum.
#[derive(Debug)]
pub(crate) enum Library {
    /// frida-gum itself, in this folder.
    Devkit(PathBuf),
    /// A bridge that sends the requests to Frida's agent.
    Bridge,
    /// A stub that can patch the null driver only.
    Stub,
}

impl Library {
    /// frida-gum itself, if the environment names it.
    fn named() -> Result<Option<Self>, Failure> {
        let Some(folder) = env::var_os(DEVKIT).filter(|folder| !folder.is_empty()) else {
            return Ok(None);
        };
        let current = env::current_dir().map_err(|error| files::failed(Path::new("."), error))?;
        let folder = devkit(&current, Path::new(&folder))?;
        println!("using frida-gum in {}", folder.display());
        Ok(Some(Self::Devkit(folder)))
    }

    /// Builds the interposer with it and copies the result to `output`.
    pub(crate) fn build(&self, root: &Path, profile: &str, output: &Path) -> Result<(), Failure> {
        let work = work(root)?;
        let mut build = cargo(
            root,
            "rustc --quiet -p cutape-interposer --features gum --profile",
        );
        build.args([profile, "--", "-L"]);
        match self {
            Self::Devkit(folder) => {
                build.arg(native(folder));
                build.env(
                    "BINDGEN_EXTRA_CLANG_ARGS",
                    format!("-I{}", folder.display()),
                );
            }
            Self::Bridge | Self::Stub => {
                let folder = self.compile(root, &work)?;
                build.arg(native(&folder));
                // Makes the bindings use their own copy of the header.
                build.env("DOCS_RS", "1");
            }
        }
        run(&mut build)?;
        // The next build without the feature replaces the file.
        let folder = if profile == "dev" { "debug" } else { profile };
        let built = step::target(root)
            .join(folder)
            .join("libcutape_interposer.so");
        files::copy(&built, output)
    }

    /// Compiles the bridge or the stub into a folder of its own.
    fn compile(&self, root: &Path, work: &Path) -> Result<PathBuf, Failure> {
        let name = match self {
            Self::Bridge => "bridge",
            _ => "engine",
        };
        let folder = work.join(name);
        files::make_folder(&folder)?;
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

/// The absolute path of a development kit, since build scripts run in the folders of their crates.
fn devkit(current: &Path, given: &Path) -> Result<PathBuf, Failure> {
    let folder = current.join(given);
    for file in ["libfrida-gum.a", "frida-gum.h"] {
        if !folder.join(file).is_file() {
            return Err(failure!(
                "{DEVKIT}: no {file} in {}; set it to the folder of frida-gum-devkit",
                folder.display()
            ));
        }
    }
    Ok(folder)
}

/// Builds the interposer with the feature `gum` and runs the tests of loading and of all programs
/// with that backend.
pub(crate) fn test(root: &Path) -> Result<(), Failure> {
    let library = Library::named()?.unwrap_or_else(|| {
        println!("{DEVKIT} is not set: using a stub, which can patch the null driver only");
        Library::Stub
    });
    let interposer = work(root)?.join("libcutape_interposer.so");
    library.build(root, "dev", &interposer)?;
    // The stub shows the interposer's side, and Frida's package the rest.
    let (loading, programs): (&[&str], &[&str]) = match library {
        Library::Devkit(_) => (&["loading/"], &["programs/", "--skip", SEEN]),
        _ => (&[LOADED], &RECORDED),
    };
    let variables = variables(&interposer, None);
    tests(root, loading, &variables)?;
    tests(root, programs, &variables)
}

/// The same with Frida's Python package, for the tests that depend on gum.
pub(crate) fn test_with_frida(root: &Path) -> Result<(), Failure> {
    let (bridge, variables) = bridged(root, "dev")?;
    let done = tests(root, &[LOADED], &variables).and_then(|()| tests(root, &RECORDED, &variables));
    bridge.finish().and(done)
}

/// Measures a call with each backend; gum with frida-gum if the environment names it, else with
/// Frida's Python package.
pub(crate) fn bench(root: &Path) -> Result<(), Failure> {
    let measure = |variables| {
        run(cargo(root, "bench -p cutape-benches --bench backends")
            .envs::<Variables, _, _>(variables))
    };
    if let Some(library) = Library::named()? {
        let interposer = work(root)?.join("libcutape_interposer.so");
        library.build(root, "shim", &interposer)?;
        return measure(variables(&interposer, None));
    }
    println!("{DEVKIT} is not set: using Frida's Python package");
    let (bridge, variables) = bridged(root, "shim")?;
    let done = measure(variables);
    bridge.finish().and(done)
}

/// Builds the interposer with the bridge and starts the bridge's other end.
fn bridged(root: &Path, profile: &str) -> Result<(Bridge, Variables), Failure> {
    let python = frida::python(root)?;
    println!("using Frida {}, for tests only", frida::VERSION);
    let interposer = work(root)?.join("libcutape_interposer.so");
    Library::Bridge.build(root, profile, &interposer)?;
    let bridge = Bridge::start(root, &python)?;
    let variables = variables(&interposer, Some(&bridge));
    Ok((bridge, variables))
}

/// The variables that make the end-to-end tests use that interposer.
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
    words: &[&str],
    variables: &[(&'static str, OsString)],
) -> Result<(), Failure> {
    let mut command = cargo(root, "test --quiet --workspace --test end_to_end --");
    command.args(words);
    run(command.envs(variables.iter().cloned()))
}

/// The folder in which this task builds.
fn work(root: &Path) -> Result<PathBuf, Failure> {
    let work = step::target(root).join("gum");
    files::make_folder(&work)?;
    Ok(work)
}

fn native(folder: &Path) -> String {
    format!("native={}", folder.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_devkit_is_found_from_the_current_folder() {
        let current = env::temp_dir().join(format!("cutape-devkit-{}", std::process::id()));
        let folder = current.join("kit");
        std::fs::create_dir_all(&folder).unwrap();
        let missing = devkit(&current, Path::new("kit")).unwrap_err().to_string();
        assert!(missing.contains("no libfrida-gum.a in"), "{missing}");
        for file in ["libfrida-gum.a", "frida-gum.h"] {
            std::fs::write(folder.join(file), "").unwrap();
        }
        for given in [Path::new("kit"), &folder] {
            assert_eq!(devkit(&current, given).unwrap(), folder);
        }
        std::fs::remove_dir_all(&current).unwrap();
    }
}
