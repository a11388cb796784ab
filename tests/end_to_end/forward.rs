//! A driver that is newer than the registry: its new functions work while recording, and the trace
//! names them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use cutape_format::Trace;
use cutape_tests::{Output, compile, files, names, parts, root, run};

cutape_tests::tests![
    linked_functions_work_and_are_named,
    every_lookup_of_a_function,
    a_forked_child_names_what_it_calls,
    every_verb_names_functions_that_are_not_recorded,
    doctor_counts_them,
    the_library_is_optional,
];

/// The functions of `driver.c` that are not in the registry.
const NEW: [&str; 7] = [
    "cuNewCalling",
    "cuNewErrno",
    "cuNewLarge",
    "cuNewSum",
    "cuNewVariadic",
    "cudbgGetAPIVersion",
    "cudbgNewThing",
];

/// The compiled driver, and the programs that are linked to it: with lazy binding, and with every
/// symbol bound at the start.
struct Newer {
    driver: PathBuf,
    programs: [PathBuf; 2],
}

fn newer() -> &'static Newer {
    static NEWER: OnceLock<Newer> = OnceLock::new();
    NEWER.get_or_init(|| {
        let folder = parts().new_folder("newer");
        let sources = root().join("tests/programs/forward");
        let driver = folder.join("libcuda.so.1");
        compile(
            &sources.join("driver.c"),
            &driver,
            &[&"-shared", &"-fPIC", &"-Wl,-soname,libcuda.so.1"],
        );
        std::os::unix::fs::symlink("libcuda.so.1", folder.join("libcuda.so")).unwrap();
        let programs = ["lazy", "now"].map(|binding| {
            let program = folder.join(binding);
            let option = format!("-Wl,-z,{binding}");
            compile(
                &sources.join("program.c"),
                &program,
                &[&option, &driver, &"-ldl", &"-lpthread"],
            );
            program
        });
        Newer { driver, programs }
    })
}

fn bare(program: &Path, lookup: &str) -> Output {
    run(Command::new(program)
        .arg(lookup)
        .env("LD_LIBRARY_PATH", newer().driver.parent().unwrap()))
}

/// Records, and compares the output with that of the bare program.
fn recorded(program: &Path, lookup: &str, trace: &Path) -> Trace {
    let driver = &newer().driver;
    let output = run(&mut parts().cutape(&[
        &"record",
        &"--driver",
        driver,
        &"-o",
        &trace,
        &"--",
        &program,
        &lookup,
    ]));
    let expected = bare(program, lookup);
    expected.assert(0);
    output.assert(0);
    assert_eq!(output.stdout, expected.stdout, "{lookup}");
    assert_eq!(output.stderr, "", "{lookup}");
    let trace = Trace::open(trace).unwrap();
    assert!(trace.verify().is_empty(), "{lookup}");
    trace
}

fn named(trace: &Trace) -> Vec<&str> {
    let mut names: Vec<_> = trace.forwarded().map(|(name, _)| name).collect();
    names.sort_unstable();
    names
}

fn linked_functions_work_and_are_named(folder: &Path) {
    let called: Vec<_> = NEW
        .into_iter()
        .filter(|name| *name != "cudbgGetAPIVersion")
        .collect();
    for program in &newer().programs {
        let trace = recorded(program, "linked", &folder.join("run.cutape"));
        assert_eq!(named(&trace), called);
        let first: BTreeSet<_> = trace.forwarded().map(|(_, by)| by).collect();
        assert_eq!(first, BTreeSet::from(["thread 0 after 2 calls"]));
        assert_eq!(names(&trace), ["cuInit", "cuDeviceGet"]);
        fs::remove_file(folder.join("run.cutape")).unwrap();
    }
}

fn every_lookup_of_a_function(folder: &Path) {
    let program = &newer().programs[0];
    for (lookup, name, calls) in [
        ("dlopen", "cudbgNewThing", 1),
        ("dlopen-without-version", "cudbgNewThing", 1),
        ("default", "cudbgNewThing", 1),
        ("first", "cudbgNewThing", 0),
        ("threads", "cuNewVariadic", 1),
    ] {
        let trace = recorded(program, lookup, &folder.join(format!("{lookup}.cutape")));
        assert_eq!(named(&trace), [name], "{lookup}");
        assert_eq!(trace.calls().count(), calls, "{lookup}");
    }
    // A namespace has its own interposer, which writes its own trace.
    recorded(program, "dlmopen", &folder.join("dlmopen.cutape"));
}

fn a_forked_child_names_what_it_calls(folder: &Path) {
    recorded(&newer().programs[0], "fork", &folder.join("run.cutape"));
    let traces = files(folder);
    assert_eq!(traces.len(), 2, "{traces:?}");
    for trace in traces {
        assert_eq!(
            named(&Trace::open(&trace).unwrap()),
            ["cudbgNewThing"],
            "{}",
            trace.display()
        );
    }
}

fn every_verb_names_functions_that_are_not_recorded(folder: &Path) {
    let path = folder.join("run.cutape");
    recorded(&newer().programs[0], "first", &path);
    let driver = &newer().driver;
    for (verb, in_messages) in [
        ("info", false),
        ("dump", false),
        ("replay", false),
        ("check", true),
    ] {
        let mut command = parts().cutape(&[&verb, &path]);
        if verb == "replay" {
            command.arg("--driver").arg(driver);
        }
        let output = run(&mut command);
        assert!(
            output.status.is_some_and(|status| status.success()),
            "{verb}"
        );
        let text = if in_messages {
            &output.stderr
        } else {
            &output.stdout
        };
        assert!(text.contains("cudbgNewThing"), "{verb}: {text}");
    }
    let output = run(&mut parts().cutape(&[
        &"check",
        &"--driver",
        driver,
        &"--",
        &newer().programs[0],
        &"linked",
    ]));
    assert!(output.status.is_some_and(|status| status.success()));
    assert!(
        output
            .stderr
            .contains("not checked: calls of cuNewCalling, "),
        "{}",
        output.stderr
    );
    let output = run(&mut parts().cutape(&[&"dump", &"--format", &"json", &path]));
    let expected = serde_json::json!({
        "not_recorded": "cudbgNewThing",
        "first_by": "a thread that had made no other call",
    });
    let lines: Vec<serde_json::Value> = output
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines, [expected]);
}

fn doctor_counts_them(_: &Path) {
    let output = run(&mut parts().cutape(&[&"doctor", &"--driver", &newer().driver]));
    let line = |label: &str| {
        output
            .stdout
            .lines()
            .find(|line| line.starts_with(label))
            .unwrap_or_default()
    };
    assert_eq!(
        line("exports"),
        "exports       10 of 10 functions covered: 3 recorded, 7 forwarded"
    );
    for name in NEW {
        assert!(output.stdout.contains(name), "{}", output.stdout);
    }
    assert!(!output.stdout.contains("cuNewNumber"), "{}", output.stdout);
    // The registry has all functions of the null driver.
    let output = run(&mut parts().cutape(&[&"doctor", &"--driver", &"null"]));
    assert!(
        output.stdout.contains(" 0 forwarded\n"),
        "{}",
        output.stdout
    );
}

/// The interposer without the forwarding library.
fn the_library_is_optional(folder: &Path) {
    let library = folder.join("libcuda.so.1");
    std::os::unix::fs::symlink(&parts().interposer, &library).unwrap();
    let trace = folder.join("run.cutape");
    let output = run(Command::new(&newer().programs[0])
        .arg("default")
        .env("LD_PRELOAD", &library)
        .env("CUTAPE_DRIVER", &newer().driver)
        .env("CUTAPE_TRACE", &trace));
    output.assert(0);
    assert_eq!(output.stdout, "default: 0 -1 -1\n0\n");
    assert_eq!(Trace::open(&trace).unwrap().calls().count(), 1);
}
