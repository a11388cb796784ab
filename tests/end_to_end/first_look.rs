//! The first things that a user types: a trace without a verb, misspelt words, `doctor` next to
//! other tools.

use std::path::Path;

use cutape_tests::{compiled, parts, record, run};

cutape_tests::tests![
    a_trace_without_a_verb,
    misspelt_words_are_recognised,
    a_pipe_is_coloured_on_request,
    doctor_names_other_tools,
    doctor_prints_json,
];

fn a_trace_without_a_verb(folder: &Path) {
    let trace = folder.join("app.cutape");
    let program = compiled("clean/launch_vector_add");
    run(&mut record(&trace, &[], &[&program])).assert(0);
    let output = run(&mut parts().cutape(&[&trace]));
    output.assert(0);
    let calls = cutape_format::Trace::open(&trace).unwrap().calls().count();
    for text in [
        "launch_vector_add",
        "cutape null device",
        &format!("calls    {calls} of 1 thread"),
        "launches ",
        "copied ",
        "cutape check ",
        "cutape view ",
        "cutape replay ",
    ] {
        assert!(
            output.stdout.contains(text),
            "{text}\n{}",
            output.describe()
        );
    }
    assert!(output.stdout.lines().count() <= 12, "{}", output.describe());
}

fn a_pipe_is_coloured_on_request(folder: &Path) {
    let trace = folder.join("app.cutape");
    let program = compiled("misuse/double-free/violation");
    run(&mut record(&trace, &[], &[&program])).assert(0);
    for (verb, options, has_colours) in [
        ("check", &["--color", "auto"][..], false),
        ("check", &["--color", "always"], true),
        ("check", &["--no-color", "--color", "always"], true),
        ("check", &["--color", "always", "--no-color"], false),
        ("dump", &["--color", "always"], true),
        ("dump", &["--no-color"], false),
    ] {
        let output = run(parts().cutape(&[&verb, &trace]).args(options));
        assert!(!output.stdout.is_empty(), "{}", output.describe());
        let found = output.stdout.contains('\x1b');
        assert_eq!(found, has_colours, "{}", output.describe());
    }
}

fn misspelt_words_are_recognised(folder: &Path) {
    let trace = folder.join("app.cutape");
    let program = compiled("clean/events");
    run(&mut record(&trace, &[], &[&program])).assert(0);
    let missing = folder.join("no.cutape");
    for (words, text) in [
        (vec!["chekc"], "'check'"),
        (vec!["replya"], "'replay'\n"),
        (vec!["observe-chidl"], "unrecognized subcommand"),
        (vec![missing.to_str().unwrap()], "app.cutape`?"),
        (vec!["check", missing.to_str().unwrap()], "app.cutape`?"),
        (
            vec!["replay", "--calls", "kernl:f", trace.to_str().unwrap()],
            "did you mean `kernel`?",
        ),
        (
            vec![
                "replay",
                "--allow",
                "nondetermnistic",
                trace.to_str().unwrap(),
            ],
            "did you mean `nondeterministic`?",
        ),
        (
            vec!["replay", "--driver", "nul", trace.to_str().unwrap()],
            "did you mean `null`?",
        ),
        (
            vec!["dump", "--calls", "cuEventRecrd", trace.to_str().unwrap()],
            "did you mean `cuEventRecord`",
        ),
        (vec!["explain", "memory-double-fre"], "memory-double-free"),
    ] {
        let output = run(parts().cutape(&[]).args(&words));
        output.assert_code(2);
        assert!(
            output.stderr.contains(text),
            "{text}\n{}",
            output.describe()
        );
        assert!(output.stdout.is_empty(), "{}", output.describe());
        // What cutape starts itself is not proposed.
        assert!(!output.stderr.contains("-child'"), "{}", output.describe());
    }
}

fn doctor_names_other_tools(_: &Path) {
    for (name, value, text) in [
        ("CUDA_INJECTION64_PATH", "/no/such.so", "a sanitizer"),
        ("NVTX_INJECTION64_PATH", "/no/such.so", "NVTX ranges"),
    ] {
        let mut command = parts().cutape(&[&"doctor", &"--driver", &"null"]);
        let output = run(command.env(name, value));
        output.assert_code(0);
        let shown = output
            .stdout
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert!(
            shown.contains(name) && shown.contains(text),
            "{}",
            output.describe()
        );
    }
}

/// Every member and every check is documented.
fn doctor_prints_json(_: &Path) {
    let page = include_str!("../../docs/doctor.md");
    let nowhere = "/no/such/folder";
    for (variables, status, code) in [
        (&[][..], None, 0),
        (&[("CUDA_INJECTION64_PATH", "/x.so")], Some("advice"), 0),
        (&[("TMPDIR", nowhere)], Some("failed"), 2),
    ] {
        let mut command = parts().cutape(&[&"doctor", &"--driver", &"null"]);
        command
            .args(["--format", "json"])
            .envs(variables.iter().copied());
        let output = run(&mut command);
        output.assert_code(code);
        let report: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        if let Some(status) = status {
            assert_eq!(report["status"], status, "{}", output.describe());
        }
        let checks = report["checks"].as_array().unwrap();
        let checks = checks.iter().map(|check| &check["check"]);
        let names = checks.map(|check| check.as_str().unwrap());
        for name in names.chain(report.as_object().unwrap().keys().map(String::as_str)) {
            let row = format!("| `{name}` |");
            assert!(page.contains(&row), "docs/doctor.md lacks {name}");
        }
    }
}
