//! `record --digests`, and what a replay says of the digests. The null driver runs no kernel but
//! that of the digests, so what differs here is what the program copied.

use std::fs;
use std::path::Path;

use crate::leaves::{changed, leaves, report};
use cutape_format::{Note, Trace};
use cutape_tests::{bare, compiled, names, parts, record, replay, run};

cutape_tests::tests![
    clean_programs_are_equal_at_every_digest,
    without_the_option_nothing_is_added,
    what_a_launch_reaches_is_digested,
    a_changed_payload_is_named_at_the_first_launch_that_reaches_it,
    memory_that_is_left_is_digested_at_the_exit,
    other_bytes_in_new_memory_are_not_compared,
    a_killed_program_leaves_digests_without_values,
    an_image_is_replaced,
    dump_shows_digests,
    info_counts_digests,
    the_format_lists_all_meta_entries,
];

fn notes(trace: &Trace) -> usize {
    let is_digest = |note: &Note<'_>| {
        matches!(
            note,
            Note::Zeroed(_)
                | Note::DigestSetup(_)
                | Note::Digest(..)
                | Note::DigestValues(_)
                | Note::DigestSkipped(_)
        )
    };
    let counts = trace
        .calls()
        .map(|call| call.notes().filter(is_digest).count());
    counts.sum()
}

fn clean_programs_are_equal_at_every_digest(folder: &Path) {
    // With how many digests at least: those of threads depend on which calls overlap.
    for (program, launch, sync) in [
        ("streams", 6, 6),
        ("per_thread_stream", 3, 1),
        ("stream_ordered", 4, 1),
        ("virtual_memory", 0, 2),
        ("capture_mapping", 0, 3),
        ("managed", 3, 1),
        ("host_visible", 43, 10),
        ("graph", 11, 1),
        ("graph_capture", 15, 1),
        ("graph_memory", 3, 1),
        ("library_contexts", 3, 3),
        ("recycled_handles", 101, 1),
        ("threads", 1, 1),
        ("threads_handoff", 0, 0),
    ] {
        let path = compiled(&format!("clean/{program}"));
        for (when, least) in [("launch", launch), ("sync", sync), ("end", 0)] {
            let trace = folder.join(format!("{program}.{when}.cutape"));
            let option = format!("--digests={when}");
            let output = run(&mut record(&trace, &[&option], &[&path]));
            output.assert(0);
            assert_eq!(output.stdout, bare(&[&path]).stdout, "{program} {when}");
            let (output, report) = report(&trace, &[]);
            output.assert_code(0);
            let digests = &report["digests"];
            // Calls of threads may overlap.
            let left_out = digests["not_compared"].as_u64().unwrap();
            assert!(
                left_out == 0 || program.starts_with("threads"),
                "{program}: {digests}"
            );
            let recorded = digests["recorded"].as_u64().unwrap();
            let equal = digests["equal"].as_u64().unwrap();
            assert_eq!(equal + left_out, recorded, "{program} {when}: {digests}");
            assert!(recorded >= least, "{program} {when}: {digests}");
        }
    }
}

fn without_the_option_nothing_is_added(folder: &Path) {
    let program = compiled("clean/streams");
    let (without, with) = (folder.join("without.cutape"), folder.join("with.cutape"));
    run(&mut record(&without, &[], &[&program])).assert(0);
    run(&mut record(&with, &["--digests=launch"], &[&program])).assert(0);
    let (without, with) = (Trace::open(&without).unwrap(), Trace::open(&with).unwrap());
    assert_eq!(notes(&without), 0);
    assert!(notes(&with) > 0);
    assert_eq!(names(&without), names(&with));
    let when = [&without, &with].map(|trace| trace.meta_value("digests"));
    assert_eq!(when, [None, Some("launch")]);
}

fn what_a_launch_reaches_is_digested(folder: &Path) {
    let trace = folder.join("t.cutape");
    run(&mut record(
        &trace,
        &["--digests=launch"],
        &[&leaves(folder)],
    ))
    .assert(0);
    let trace = Trace::open(&trace).unwrap();
    let mut digested = Vec::new();
    for call in trace.calls() {
        for note in call.notes() {
            if let Note::Digest(_, ranges) = note {
                let lengths = ranges.iter().map(|range| range.1);
                digested.push((call.signature.name.clone(), lengths.collect::<Vec<_>>()));
            }
        }
    }
    let expected = [
        ("cuLaunchKernel", vec![4096]),
        ("cuLaunchKernel", vec![4096, 4096]),
        // At the exit.
        ("cuCtxSynchronize", vec![100, 4096, 4096]),
    ];
    let expected = expected.map(|(name, lengths)| (name.to_owned(), lengths));
    assert_eq!(digested, expected);
}

fn a_changed_payload_is_named_at_the_first_launch_that_reaches_it(folder: &Path) {
    let trace = changed(folder, "--digests=launch");
    let launches = names(&Trace::open(&trace).unwrap());
    let launches = launches
        .iter()
        .enumerate()
        .filter(|(_, name)| *name == "cuLaunchKernel");
    let second = launches.map(|(index, _)| index).nth(1).unwrap();
    // Without --keep-going, the replay ends there.
    let (output, stopped) = report(&trace, &[]);
    output.assert_code(1);
    let (output, whole) = report(&trace, &["--keep-going"]);
    output.assert_code(1);
    for (report, differing, recorded) in [(stopped, 1, 3), (whole, 2, 6)] {
        assert_eq!(report["divergence_count"], 1, "{report}");
        let divergence = &report["divergences"][0];
        assert_eq!(divergence["call"], second);
        assert_eq!(divergence["what"], "digest");
        assert_eq!(divergence["kernel"], "vector_add");
        let memory = divergence["parameter"].as_str().unwrap();
        assert!(memory.ends_with(", 4096 bytes"), "{memory}");
        let digests = &report["digests"];
        assert_eq!(digests["differing"], differing, "{digests}");
        assert_eq!(digests["recorded"], recorded, "{digests}");
        assert_eq!(digests["first_differing"], second);
    }
    let output = run(replay(&trace).args(["--repeat", "2"]));
    output.assert_code(1);
    for text in [
        "digests: 4 of 6 equal (".to_owned(),
        format!("; 2 different, the first at call {second}\n"),
        format!(
            "divergence: call {second} cuLaunchKernel (kernel vector_add): device memory at 0x"
        ),
        "  verdict not-reproduced\n".to_owned(),
        "created by cuMemAlloc_v2 at call ".to_owned(),
    ] {
        assert!(
            output.stdout.contains(&text),
            "no {text:?} in {}",
            output.stdout
        );
    }
}

fn memory_that_is_left_is_digested_at_the_exit(folder: &Path) {
    let program = leaves(folder);
    let trace = folder.join("t.cutape");
    let output = run(&mut record(&trace, &["--digests"], &[&program]));
    output.assert(0);
    assert_eq!(output.stdout, bare(&[&program]).stdout);
    let (output, equal) = report(&trace, &[]);
    output.assert_code(0);
    assert_eq!(equal["digests"]["equal"], 3, "{}", equal["digests"]);
    let calls = names(&Trace::open(&trace).unwrap());
    let last = &calls[calls.len() - 3..];
    assert_eq!(
        last,
        [
            "cuCtxPushCurrent_v2",
            "cuCtxSynchronize",
            "cuCtxPopCurrent_v2"
        ]
    );
    run(&mut parts().cutape(&[&"check", &trace])).assert_code(0);
    let (output, report) = report(&changed(folder, "--digests=end"), &[]);
    output.assert_code(1);
    assert_eq!(report["divergences"][0]["call"], calls.len() - 2);
    assert_eq!(report["digests"]["equal"], 2);
}

fn other_bytes_in_new_memory_are_not_compared(folder: &Path) {
    let trace = folder.join("t.cutape");
    run(&mut record(
        &trace,
        &["--digests=launch"],
        &[&leaves(folder)],
    ))
    .assert(0);
    for (fill, equal, not_compared) in [("0", 6, 0), ("0xa5", 0, 6)] {
        let (output, report) = report(&trace, &["--fill", fill]);
        output.assert_code(0);
        let digests = &report["digests"];
        assert_eq!(digests["equal"], equal, "{fill}: {digests}");
        assert_eq!(digests["not_compared"], not_compared, "{fill}: {digests}");
    }
}

fn a_killed_program_leaves_digests_without_values(folder: &Path) {
    let trace = folder.join("t.cutape");
    let mut record = record(&trace, &["--digests=launch"], &[&leaves(folder), "killed"]);
    run(&mut record).assert_code(137);
    let (output, report) = report(&trace, &[]);
    output.assert_code(0);
    let digests = &report["digests"];
    assert_eq!(digests["recorded"], 3, "{digests}");
    assert_eq!(digests["not_compared"], 3, "{digests}");
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("the recording ended before their values were read"),
        "{notes}"
    );
}

fn an_image_is_replaced(folder: &Path) {
    let trace = folder.join("t.cutape");
    run(&mut record(&trace, &[], &[&compiled("clean/streams")])).assert(0);
    let calls = names(&Trace::open(&trace).unwrap());
    let load = calls
        .iter()
        .position(|name| name == "cuModuleLoadData")
        .unwrap();
    let head = ".version 7.0\n.target sm_70\n.address_size 64\n";
    let file = folder.join("other.ptx");
    fs::write(
        &file,
        format!("{head}.visible .entry other()\n{{\n ret;\n}}\n"),
    )
    .unwrap();
    let replaced = |call: usize| {
        let option = format!("{call}={}", file.display());
        run(replay(&trace).args(["--replace-image", &option]))
    };
    // It has none of the kernels that the program asks for.
    let output = replaced(load);
    output.assert_code(1);
    let text = format!(
        "divergence: call {} cuModuleGetFunction: result differs",
        load + 1
    );
    assert!(output.stdout.contains(&text), "{}", output.stdout);
    let output = replaced(load + 1);
    output.assert_code(2);
    assert!(
        output.stderr.contains("does not load an image from memory"),
        "{}",
        output.stderr
    );
}

fn dump_shows_digests(folder: &Path) {
    let trace = folder.join("t.cutape");
    run(&mut record(
        &trace,
        &["--digests=launch"],
        &[&leaves(folder)],
    ))
    .assert(0);
    let output = run(&mut parts().cutape(&[&"dump", &trace]));
    output.assert_code(0);
    for text in [
        " for digests: CUDA_SUCCESS\n",
        " (4096 bytes) to zeros\n",
        "of what the parameters point into after the call: 0x",
        "of all memory of the context after the call: 0x",
        "note: digests: 0 is 0x",
    ] {
        assert!(
            output.stdout.contains(text),
            "no {text:?} in {}",
            output.stdout
        );
    }
}

fn info_counts_digests(folder: &Path) {
    let trace = folder.join("t.cutape");
    let program = leaves(folder);
    run(&mut record(&trace, &["--digests=launch"], &[&program])).assert(0);
    let output = run(&mut parts().cutape(&[&"info", &"--format", &"json", &trace]));
    output.assert_code(0);
    let info: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    let digests = &info["digests"];
    let place = |place: &str, memory: &str, [calls, digests, bytes]: [u64; 3]| {
        serde_json::json!({
            "place": place, "memory": memory, "calls": calls, "digests": digests, "bytes": bytes,
        })
    };
    let expected = serde_json::json!({
        "when": "launch",
        "contexts": 1,
        "contexts_refused": 0,
        "digests": 6,
        "with_value": 6,
        "void": 0,
        // `fill` has one address, `vector_add` two; three allocations are left at the exit.
        "places": [
            place("after kernel launches", "what the parameters point into", [2, 3, 3 * 4096]),
            place("after waits", "all memory of the context", [1, 3, 2 * 4096 + 100]),
        ],
        "not_taken": {},
    });
    assert_eq!(*digests, expected, "{digests}");
    let output = run(&mut parts().cutape(&[&"info", &trace]));
    output.assert_code(0);
    let squeezed: Vec<String> = output
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for line in [
        "digests of device memory, after launches, when contexts end and at the exit",
        "Digests of device memory",
        "after kernel launches what the parameters point into 2 3 12.0 KiB",
        "after waits all memory of the context 1 3 8.1 KiB",
    ] {
        let is_there = squeezed.iter().any(|found| found == line);
        assert!(is_there, "no {line:?} in {}", output.stdout);
    }
    let killed = folder.join("killed.cutape");
    let mut record = record(&killed, &["--digests=launch"], &[&program, "killed"]);
    run(&mut record).assert_code(137);
    let output = run(&mut parts().cutape(&[&"info", &killed]));
    let text = "  3 without a value: the recording ended before they were read\n";
    assert!(output.stdout.contains(text), "{}", output.stdout);
}

/// The table of SPEC.md has each key that a recorder and `pack` write.
fn the_format_lists_all_meta_entries(folder: &Path) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../format/SPEC.md");
    let spec = fs::read_to_string(path).unwrap();
    let trace = folder.join("t.cutape");
    let options = ["--digests=launch", "--stats=json"];
    run(&mut record(&trace, &options, &[&leaves(folder)])).assert_code(0);
    let trace = Trace::open(&trace).unwrap();
    for (key, _) in trace.meta() {
        let mut words: Vec<&str> = key.split('.').collect();
        let is_name = |words: &[&str]| matches!(words, ["environment", _] | [_, _, "attribute", _]);
        if is_name(&words) {
            words.pop();
            words.push("NAME");
        }
        for word in &mut words {
            if word.parse::<u64>().is_ok() {
                *word = "N";
            }
        }
        let listed = format!("`{}`", words.join("."));
        assert!(
            spec.contains(&listed),
            "{key} is not in SPEC.md as {listed}"
        );
    }
    for key in [
        "digests",
        "exit.status",
        "device.0.name",
        "driver.version",
        "cost.calls",
    ] {
        assert!(trace.meta_value(key).is_some(), "{key}");
    }
}
