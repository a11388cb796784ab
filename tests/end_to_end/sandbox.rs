//! What a replay can do to the machine, with a driver that tries.

use std::fs;
use std::path::{Path, PathBuf};

use cutape_tests::{compile, ending, parts, record, root, run, verbs};

cutape_tests::tests![
    a_replay_is_sandboxed,
    a_tool_in_the_replay_is_not,
    every_verb_that_replays_has_the_option,
    doctor_names_the_layers,
];

/// The driver in that folder; the file that it writes is in another one, which no replay needs.
fn harmful_driver(folder: &Path) -> (PathBuf, PathBuf) {
    let (driver, next) = (folder.join("harmful.so"), parts().driver_folder.clone());
    let source = root().join("tests/programs/sandbox/driver.c");
    let search = format!("-Wl,-rpath,{}", next.display());
    let library = next.join("libcuda.so.1");
    compile(
        &source,
        &driver,
        &[
            &"-shared",
            &"-fPIC",
            &"-Wl,--no-as-needed",
            &library,
            &search,
            &"-ldl",
        ],
    );
    let elsewhere = folder.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    (driver, elsewhere.join("file"))
}

/// What the driver could do in a replay with these options, and what the replay said.
fn done(folder: &Path, options: &[&str], variable: Option<(&str, &Path)>) -> (String, String) {
    let trace = folder.join("app.cutape");
    if !trace.exists() {
        run(&mut record(&trace, &[], &[&ending(), "end"])).assert(0);
    }
    // The only folder that can be written is that for temporary files.
    let temporary = folder.join("temporary");
    let _ = fs::create_dir(&temporary);
    let report = temporary.join("report");
    let (driver, file) = match folder.join("harmful.so") {
        known if known.exists() => (known, folder.join("elsewhere/file")),
        _ => harmful_driver(folder),
    };
    let mut command = parts().cutape(&[&"replay", &"--driver", &driver]);
    command.args(options).arg(&trace);
    command
        .env("TMPDIR", &temporary)
        .env("HARM_REPORT", &report);
    command.env("HARM_FILE", &file).envs(variable);
    let output = run(&mut command);
    assert_eq!(output.code(), Some(0), "{}", output.describe());
    let _ = fs::remove_file(&file);
    (fs::read_to_string(&report).unwrap(), output.stderr)
}

fn a_replay_is_sandboxed(folder: &Path) {
    let missing = refused();
    let flag = |layer: &str| u8::from(missing.contains(layer));
    let (files, calls) = (flag("files"), flag("starts"));
    let allowed = |bits: [u8; 3]| {
        format!(
            "writes {}\nconnects {}\nstarts {}\n",
            bits[0], bits[1], bits[2]
        )
    };
    for (options, expected) in [
        (&["--force"][..], allowed([files, calls, calls])),
        (&["--force", "--no-sandbox"], allowed([1, 1, 1])),
    ] {
        let (done, _) = done(folder, options, None);
        assert_eq!(done, expected, "{options:?}");
    }
}

/// The layers that this system refuses.
fn refused() -> String {
    let output = run(&mut parts().cutape(&[&"doctor", &"--driver", &"null"]));
    let refused = output
        .stdout
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    let mut parts = refused.split("sandbox not applied: ").skip(1);
    parts.by_ref().collect()
}

fn a_tool_in_the_replay_is_not(folder: &Path) {
    // A library that does nothing here.
    let tool = &parts().audit;
    let variable = ("CUDA_INJECTION64_PATH", tool.as_path());
    let (done, said) = done(folder, &["--force"], Some(variable));
    assert_eq!(done, "writes 1\nconnects 1\nstarts 1\n");
    assert!(said.contains("not sandboxed"), "{said}");
    assert!(said.contains("CUDA_INJECTION64_PATH"), "{said}");
}

fn every_verb_that_replays_has_the_option(_: &Path) {
    let replaying = verbs().iter().filter(|verb| verb.takes("--watchdog"));
    let names: Vec<&str> = replaying.clone().map(|verb| &*verb.name).collect();
    assert!(
        names.contains(&"replay") && names.contains(&"debug"),
        "{names:?}"
    );
    for verb in replaying {
        assert!(verb.takes("--no-sandbox"), "{}", verb.name);
    }
}

fn doctor_names_the_layers(_: &Path) {
    let output = run(&mut parts().cutape(&[&"doctor", &"--driver", &"null"]));
    let text = output
        .stdout
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    for layer in ["core dump", "privileges", "read-only", "network"] {
        assert!(text.contains(layer), "{layer}: {text}");
    }
}
