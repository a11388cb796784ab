//! `package`: everything that a machine without Rust needs for `tests/gpu/run.sh`.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{Failure, gum, step};

/// Package, profile, and file.
const PARTS: [(&str, &str, &str); 4] = [
    ("cutape", "release", "cutape"),
    ("cutape-interposer", "shim", "libcutape_interposer.so"),
    ("cutape-audit", "shim", "libcutape_audit.so"),
    ("cutape-nulldriver", "release", "libcutape_null.so"),
];

/// The interposer that patches through Frida's agent, for `tests/gpu/gum.sh`. The name shows that
/// it is not gum itself.
const BRIDGED: &str = "test/libcutape_interposer_gum_bridge.so";

/// Builds, strips and copies; compiles the test programs.
pub(crate) fn run(root: &Path, folder: &str, with_bridge: bool) -> Result<(), Failure> {
    let folder = std::path::absolute(folder).map_err(|error| failed(Path::new(folder), &error))?;
    let programs = folder.join("programs");
    fs::create_dir_all(&programs).map_err(|error| failed(&programs, &error))?;
    let target = step::target(root);
    if with_bridge {
        // First, because the builds below replace the file in the target folder.
        let library = folder.join(BRIDGED);
        let place = folder.join("test");
        fs::create_dir_all(&place).map_err(|error| failed(&place, &error))?;
        gum::Library::Bridge.build(root, "shim", &library)?;
        step::run(Command::new("strip").arg(&library))?;
    }
    for (package, profile, file) in PARTS {
        step::run(&mut step::cargo(
            root,
            &["build", "--profile", profile, "-p", package],
        ))?;
        let built = target.join(profile).join(file);
        let copy = folder.join(file);
        fs::copy(&built, &copy).map_err(|error| failed(&built, &error))?;
        step::run(Command::new("strip").arg(&copy))?;
    }
    // The null driver has the SONAME of libcuda, by which programs name it.
    let library = folder.join("libcutape_null.so");
    let mut sources = Vec::new();
    for group in ["clean", "demo", "misuse", "rules"] {
        let path = root.join("tests/programs").join(group);
        let entries = fs::read_dir(&path).map_err(|error| failed(&path, &error))?;
        sources.extend(entries.flatten().map(|entry| entry.path()));
    }
    sources.sort();
    for source in sources
        .iter()
        .filter(|source| source.extension().is_some_and(|e| e == "c"))
    {
        let group = source
            .parent()
            .and_then(Path::file_name)
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let stem = source
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let violations = matches!(group.as_str(), "misuse" | "rules");
        for violate in [false, true]
            .into_iter()
            .filter(|violate| !violate || violations)
        {
            let name = format!("{group}.{stem}{}", if violate { ".violate" } else { "" });
            let mut command = Command::new("cc");
            command
                .current_dir(root)
                .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Werror"]);
            command.args(["-Itests/programs/include", "-Itests/programs"]);
            if violate {
                command.arg("-DVIOLATE");
            }
            command
                .arg(source)
                .arg("-o")
                .arg(programs.join(name))
                .arg(&library)
                .arg("-pthread");
            step::run(&mut command)?;
        }
    }
    // Programs that load libcuda in different ways, for tests/gpu/loading.sh.
    step::run(
        Command::new("sh")
            .arg(root.join("tests/programs/loading/build.sh"))
            .arg(folder.join("loading"))
            .arg(&library),
    )?;
    let bench = folder.join("bench");
    fs::create_dir_all(&bench).map_err(|error| failed(&bench, &error))?;
    for (source, file, arguments) in [
        (
            "tests/gpu/bench/call_cost.c",
            "call_cost",
            [library.as_os_str(), "-pthread".as_ref()],
        ),
        (
            "benches/programs/scalar_calls.c",
            "scalar_calls",
            ["-ldl".as_ref(), "-pthread".as_ref()],
        ),
        (
            "tests/gpu/bench/cupti_callbacks.c",
            "cupti_callbacks.so",
            ["-fPIC".as_ref(), "-shared".as_ref()],
        ),
    ] {
        let mut command = Command::new("cc");
        command
            .current_dir(root)
            .args(["-std=gnu11", "-O2", "-g", "-Wall", "-Werror"])
            .arg("-Itests/programs/include")
            .arg("-o")
            .arg(bench.join(file))
            .arg(source)
            .args(arguments);
        step::run(&mut command)?;
    }
    println!(
        "{} is complete; on the machine with the GPU: tests/gpu/run.sh {0} RESULTS",
        folder.display()
    );
    Ok(())
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}
