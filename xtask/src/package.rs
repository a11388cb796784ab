//! `package`: everything that a machine without Rust needs for `tests/gpu/run.sh`.

use std::path::Path;
use std::process::Command;

use crate::parts::{NULL_DRIVER, PARTS};
use crate::{Failure, files, gum, random, step};

/// The interposer that patches through Frida's agent, for `tests/gpu/gum.sh`. The name shows that
/// it is not gum itself.
const BRIDGED: &str = "test/libcutape_interposer_gum_bridge.so";

/// The programs of tests/gpu/faults.sh.
fn faults(root: &Path, folder: &Path, library: &Path) -> Result<(), Failure> {
    files::make_folder(folder)?;
    let source = "tests/programs/faults/counted.c";
    let mut counted = step::cc(root, "-O1", source, &folder.join("counted"));
    step::run(counted.arg("-Itests/programs").arg(library).arg("-pthread"))?;
    let source = "tests/programs/faults/shim.c";
    let mut shim = step::cc(root, "-O1", source, &folder.join("shim.so"));
    step::run(shim.args(["-fPIC", "-shared", "-ldl"]))
}

/// Builds, strips and copies; compiles the test programs.
pub(crate) fn run(root: &Path, folder: &str, with_bridge: bool) -> Result<(), Failure> {
    let folder =
        std::path::absolute(folder).map_err(|error| files::failed(Path::new(folder), error))?;
    let programs = folder.join("programs");
    files::make_folder(&programs)?;
    let target = step::target(root);
    if with_bridge {
        // First, because the builds below replace the file in the target folder.
        let library = folder.join(BRIDGED);
        files::make_folder(&folder.join("test"))?;
        gum::Library::Bridge.build(root, "shim", &library)?;
        step::run(Command::new("strip").arg(&library))?;
    }
    for (package, profile, file) in PARTS {
        step::run(step::cargo(root, "build --profile").args([profile, "-p", package]))?;
        let copy = folder.join(file);
        files::copy(&target.join(profile).join(file), &copy)?;
        step::run(Command::new("strip").arg(&copy))?;
    }
    // The null driver has the SONAME of libcuda, by which programs name it.
    let library = folder.join(NULL_DRIVER);
    for group in ["clean", "demo", "misuse", "play", "rules"] {
        let folder = root.join("tests/programs").join(group);
        let sources = files::list(&folder).into_iter();
        for source in sources.filter(|path| files::has_extension(path, "c")) {
            let stem = source.file_stem().unwrap_or_default().to_string_lossy();
            let compile = |suffix: &str, flag: Option<&str>| {
                let program = programs.join(format!("{group}.{stem}{suffix}"));
                let mut command = step::cc(root, "-O1", &source, &program);
                command.args(flag).arg("-Itests/programs");
                step::run(command.arg(&library).arg("-pthread"))
            };
            compile("", None)?;
            if matches!(group, "misuse" | "rules") {
                compile(".violate", Some("-DVIOLATE"))?;
            }
        }
    }
    let mut hangs = step::cc(
        root,
        "-O1",
        "tests/programs/hang/hangs.c",
        &folder.join("hangs"),
    );
    step::run(hangs.arg("-Itests/programs").arg(&library).arg("-pthread"))?;
    faults(root, &folder.join("faults"), &library)?;
    random::package(root, &folder, &library)?;
    // Programs that load libcuda in different ways, for tests/gpu/loading.sh, changed versions of
    // one program, for tests/gpu/diff.sh, and programs that stop their recording, for tests/gpu/ctl.sh and
    // tests/gpu/flight.sh.
    for group in ["loading", "diff", "ctl", "memory"] {
        step::run(
            Command::new("sh")
                .arg(root.join("tests/programs").join(group).join("build.sh"))
                .arg(folder.join(group))
                .arg(&library),
        )?;
    }
    let bench = folder.join("bench");
    files::make_folder(&bench)?;
    let library = library.to_string_lossy();
    for (source, file, arguments) in [
        (
            "tests/gpu/bench/call_cost.c",
            "call_cost",
            [&*library, "-pthread"],
        ),
        (
            "tests/programs/profile/slow.c",
            "slow",
            [&*library, "-Itests/programs"],
        ),
        (
            "benches/programs/scalar_calls.c",
            "scalar_calls",
            ["-ldl", "-pthread"],
        ),
        (
            "tests/gpu/bench/cupti_callbacks.c",
            "cupti_callbacks.so",
            ["-fPIC", "-shared"],
        ),
        (
            "tests/gpu/bench/activities.c",
            "activities.so",
            ["-fPIC", "-shared"],
        ),
    ] {
        step::run(step::cc(root, "-O2", source, &bench.join(file)).args(arguments))?;
    }
    println!(
        "{} is complete; on the machine with the GPU: tests/gpu/run.sh {0} RESULTS",
        folder.display()
    );
    Ok(())
}
