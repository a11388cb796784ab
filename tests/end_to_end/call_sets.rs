//! Sets of calls mean the same to the verbs and to the filter of the report page:
//! `tests/call_sets.json` has the calls of each, which `dump` prints and the page's script finds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cutape_format::layout::{
    FramesNote, MarkerNote, PythonCodeNote, marker_action, marker_source, python_frame,
};
use cutape_format::{NewCall, NewSnapshot, TraceBuilder};
use cutape_tests::{Verdict, compiled, parts, record, root, run};
use serde::Deserialize;

cutape_tests::tests![
    dump_finds_the_calls,
    the_page_finds_the_calls,
    every_verb_takes_every_term,
    check_chooses_rules_and_calls,
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    set: String,
    calls: Option<Vec<u64>>,
    /// A part of the message.
    error: Option<String>,
    /// Where the page answers otherwise; `tests/call_sets.js` reads these.
    #[serde(rename = "page_calls")]
    _page_calls: Option<Vec<u64>>,
    #[serde(rename = "page_error")]
    _page_error: Option<String>,
}

fn marker(builder: &mut TraceBuilder, action: u8, id: u64, domain: &str, text: &str) {
    let note = MarkerNote {
        number: 4242,
        action,
        id,
        source: marker_source::NVTX,
        ..MarkerNote::default()
    };
    builder.marker(note, domain, text);
}

/// A call; `output` is the handle that it writes behind its first argument.
fn call(
    builder: &mut TraceBuilder,
    (thread, name): (u32, &str),
    arguments: &[u64],
    result: i32,
    output: Option<u64>,
) {
    enter(builder, thread, name, arguments);
    let bytes = output.unwrap_or_default().to_le_bytes();
    let outputs = [NewSnapshot::pointee(0, &bytes)];
    let outputs = if output.is_some() { &outputs } else { &[][..] };
    builder.leave(thread, result, outputs);
}

fn enter(builder: &mut TraceBuilder, thread: u32, name: &str, arguments: &[u64]) {
    let kernel = NewSnapshot::pointee(2, b"_Z5saxpyifPfS_\0");
    let snapshots = [kernel];
    builder.call(NewCall {
        thread,
        name,
        arguments,
        snapshots: match name {
            "cuModuleGetFunction" => &snapshots,
            _ => &[],
        },
        ..NewCall::default()
    });
}

/// Calls of two threads, in ranges and between marks. Two failed, one did not return, and the last
/// one launches a kernel whose name the trace does not have. A nanosecond a tick.
fn trace(folder: &Path) -> PathBuf {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    let all = &mut builder;
    let (push, pop, mark) = (marker_action::PUSH, marker_action::POP, marker_action::MARK);
    all.meta("clock.ticks-per-second", "1000000000");
    let code = PythonCodeNote {
        id: 9,
        version: 0x030b,
        first_line: 40,
    };
    all.python_code(code, "/home/me/train.py", "step", &[0x80, 0]);
    let words = [
        python_frame::MARK | python_frame::LAST_OF_NATIVE,
        9,
        0x40_0030,
    ];
    all.stack(FramesNote { id: 8, flags: 0 }, &words);
    call(all, (0, "cuInit"), &[0], 0, None);
    call(all, (0, "cuMemAlloc_v2"), &[1, 256], 0, Some(0x10000));
    call(all, (0, "cuModuleLoadData"), &[1, 2], 0, Some(0x50));
    let name = (0, "cuModuleGetFunction");
    call(all, name, &[1, 0x50, 2], 0, Some(0x51));
    marker(all, push, 0, "", "epoch");
    marker(all, push, 0, "", "step 0");
    let launch = [0x51, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0];
    enter(all, 0, "cuLaunchKernel", &launch);
    all.stack_note(0, 8).leave(0, 0, &[]);
    enter(all, 0, "cuMemcpyDtoH_v2", &[0x9000, 0x10010, 16]);
    all.at(2_000_000).leave(0, 0, &[]);
    marker(all, pop, 0, "", "");
    marker(all, mark, 0, "", "warm up");
    marker(all, push, 0, "", "step 1");
    call(all, (1, "cuLaunchKernel"), &launch, 0, None);
    call(all, (0, "cuMemAlloc_v2"), &[1, 1 << 40], 2, None);
    marker(all, pop, 0, "", "");
    marker(all, pop, 0, "", "");
    marker(all, mark, 0, "", "done");
    marker(all, marker_action::START, 5, "lib", "load");
    call(all, (0, "cuMemFree_v2"), &[0x10000], 0, None);
    marker(all, marker_action::END, 5, "", "");
    call(all, (0, "cuModuleUnload"), &[0x50], 0, None);
    call(all, (0, "cuModuleLoadData"), &[1, 2], 0, Some(0x50));
    enter(all, 1, "cuCtxSynchronize", &[]);
    call(all, (0, "cuLaunchKernel"), &launch, 1, None);
    let unnamed = [0x52, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0];
    call(all, (0, "cuLaunchKernel"), &unnamed, 0, None);
    let path = folder.join("calls.cutape");
    builder.write(&path).unwrap();
    path
}

fn table() -> PathBuf {
    root().join("tests/call_sets.json")
}

fn dump_finds_the_calls(folder: &Path) {
    let trace = trace(folder);
    let cases: Vec<Case> = serde_json::from_slice(&fs::read(table()).unwrap()).unwrap();
    for case in cases {
        let Case { set, .. } = case;
        let option = format!("--calls={set}");
        let said = run(&mut parts().cutape(&[&"dump", &"--format", &"json", &option, &trace]));
        let lines = said.stdout.lines();
        let lines = lines.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let found: Vec<u64> = lines.filter_map(|line| line["call"].as_u64()).collect();
        let what = format!("{set}: {}{}", said.stdout, said.stderr);
        match (case.calls, case.error) {
            (Some(calls), None) if calls.is_empty() => {
                assert!(said.stderr.contains("no call matches"), "{what}");
            }
            (Some(calls), None) => assert_eq!(found, calls, "{what}"),
            (None, Some(error)) => {
                assert_eq!(said.code(), Some(2), "{what}");
                assert!(said.stderr.contains(&error), "{what}");
            }
            _ => panic!("{set}: give calls or an error"),
        }
    }
}

fn the_page_finds_the_calls(folder: &Path) -> Verdict {
    let Ok(true) = Command::new("node")
        .arg("--version")
        .output()
        .map(|said| said.status.success())
    else {
        return Verdict::Ignored("node is not installed: apt-get install nodejs".to_owned());
    };
    let page = folder.join("calls.html");
    let trace = trace(folder);
    run(&mut parts().cutape(&[&"report", &trace, &"-o", &page])).assert_code(0);
    let script = root().join("tests/call_sets.js");
    let sources = root().join("report/page/script");
    run(Command::new("node").args([&script, &page, &sources, &table()])).assert_code(0);
    Verdict::Passed
}

/// A recording with call stacks: link state, modules, launches.
fn recorded(folder: &Path) -> PathBuf {
    let trace = folder.join("app.cutape");
    let program = compiled("demo/link_demo");
    run(&mut record(&trace, &["--stacks=all"], &[&program])).assert(0);
    trace
}

fn every_verb_takes_every_term(folder: &Path) {
    let trace = recorded(folder);
    let output = folder.join("output");
    let sets = [
        ("object:function#1 kind:launch", true),
        ("stack:main kind:launch not failed", true),
        ("memory:0x1,kernel:* <1000s result:CUDA_SUCCESS scale", true),
        ("object:function#9", false),
        ("kind:launch failed", false),
        ("kind:launch >1000s", false),
        ("kind:launch stack:nosuch", false),
        ("kind:launch memory:0x1", false),
    ];
    let verbs: [&[&str]; 7] = [
        &["dump"],
        &["check", "--fail-on", "never"],
        &["replay", "--driver", "null"],
        &["trim", "-o", "OUTPUT"],
        &["extract", "--all", "OUTPUT"],
        &["export", "--format", "jsonl", "-o", "OUTPUT"],
        &[
            "bench",
            "--driver",
            "null",
            "--no-plots",
            "--measure-seconds=0.01",
            "--output=OUTPUT",
        ],
    ];
    for verb in verbs {
        for (set, has_calls) in sets {
            let _ = fs::remove_file(&output);
            let _ = fs::remove_dir_all(&output);
            let mut command = parts().cutape(&[&verb[0], &trace, &"--calls", &set]);
            let options = verb[1..].iter();
            command.args(options.map(|word| word.replace("OUTPUT", output.to_str().unwrap())));
            let said = run(command.current_dir(folder));
            let what = format!("{verb:?} {set}: {}", said.describe());
            assert_eq!(said.code(), Some(if has_calls { 0 } else { 2 }), "{what}");
            assert!(
                has_calls || said.stderr.contains("no call matches"),
                "{what}"
            );
        }
    }
}

fn check_chooses_rules_and_calls(folder: &Path) {
    let trace = recorded(folder);
    let check = |options: &[&str]| {
        let mut command = parts().cutape(&[&"check", &trace]);
        let said = run(command.args(options));
        (said.code().unwrap(), said.stdout + &said.stderr)
    };
    let (code, text) = check(&["--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let [finding] = json["findings"].as_array().unwrap().as_slice() else {
        panic!("{json:#}");
    };
    assert_eq!(
        (code, &finding["rule"]),
        (1, &"link-cubin-after-destroy".into())
    );
    let call = finding["call"]["call"].to_string();
    let others = format!("not {call}");
    let left_out = "no findings; not shown: 1 of other rules or calls";
    let suppressed = "no findings; not shown: 1 suppressed";
    for (options, code, expected) in [
        (&["--rules", "link-*"][..], 1, "1 error"),
        (
            &["--rules", "memory-*,link-cubin-after-destroy"],
            1,
            "1 error",
        ),
        (&["--rules", "memory-*"], 0, left_out),
        (&["--rules", "link-* -link-cubin-*"], 0, left_out),
        (&["--rules", "-link-*"], 0, left_out),
        (
            &["--rules", "lnk-*"],
            2,
            "no rule `lnk-*`; did you mean `link-*`?",
        ),
        (&["--rules", "link-* memory-*"], 2, "no rule is left"),
        (&["--calls", &call], 1, "1 error"),
        (&["--calls", "kind:code thread:0"], 1, "1 error"),
        (&["--calls", &others], 0, left_out),
        (
            &["--calls", "kernel:nosuch"],
            2,
            "no kernel `nosuch` is launched",
        ),
        (&["--calls", "kernel:"], 2, "no name after `kernel:`"),
        (&["--allow", "link-* message:*destroyed*"], 0, suppressed),
        (
            &["--allow", "memory-leak", "--allow", "link-*"],
            0,
            suppressed,
        ),
        (&["--allow", "link-* message:*other*"], 1, "1 error"),
        (
            &["--allow", "link-* mesage:x"],
            2,
            "did you mean `message`?",
        ),
    ] {
        let (found, text) = check(options);
        assert_eq!(found, code, "{options:?}: {text}");
        assert!(text.contains(expected), "{options:?}: {text}");
    }
    let mut command = parts().cutape(&[&"check", &"--calls", &"3", &"--", &"./app"]);
    assert_eq!(run(&mut command).code(), Some(2));
    // A folder may have traces without such calls.
    let folder = folder.join("traces");
    fs::create_dir(&folder).unwrap();
    fs::rename(&trace, folder.join("app.cutape")).unwrap();
    TraceBuilder::new(cutape_registry::SIGNATURE_TEXT)
        .write(&folder.join("empty.cutape"))
        .unwrap();
    for (set, code) in [(&*call, 1), (&*others, 0), ("kernel:nosuch", 2)] {
        let said = run(&mut parts().cutape(&[&"check", &"--calls", &set, &folder]));
        assert_eq!(said.code(), Some(code), "{set}: {}", said.describe());
    }
}
