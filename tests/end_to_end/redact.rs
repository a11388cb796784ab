//! Redacted traces hold none of the secrets, have the same findings and can be replayed.

use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use cutape_format::layout::{
    CHUNK_COMPRESSED, CHUNK_HEAD_LENGTH, ChunkHead, FILE_HEAD_LENGTH, chunk_kind,
};
use cutape_format::{Bytes, CallPart, Trace, codec, is_payload};
use cutape_tests::{
    Case, Suite, cases, compile, compiled, ending, files, names, parts, record, replay, root, run,
};
use serde_json::Value;

pub(crate) fn add_to(suite: &mut Suite) {
    suite
        .test("secrets_are_removed", secrets_are_removed)
        .test("what_is_not_chosen_stays", what_is_not_chosen_stays)
        .test("contents_are_synthetic", contents_are_synthetic)
        .test(
            "a_redacted_trace_is_redacted_again",
            a_redacted_trace_is_redacted_again,
        )
        .test("recorded_on_real_hardware", recorded_on_real_hardware)
        .test("record_redacts", record_redacts)
        .test("what_record_could_not_pack", what_record_could_not_pack)
        .test("a_policy_is_imposed", a_policy_is_imposed)
        .test("info_says_what_is_revealed", info_says_what_is_revealed);
    for case in cases() {
        let name = format!("programs/{}", case.program.name);
        suite.test(name, move |folder: &Path| {
            programs_are_the_same(folder, case)
        });
    }
}

/// Bytes of a secret, and of the pieces of it that are searched.
const SECRET: usize = 16;
const PIECE: usize = 8;

/// The secrets of `secrets.c`, in its order: name, and what removes it.
const SECRETS: [(&str, &str); 19] = [
    ("upload", "payloads"),
    ("long upload", "payloads"),
    ("asynchronous upload", "payloads"),
    ("page-locked memory", "payloads"),
    ("managed memory", "payloads"),
    ("read-back", "payloads"),
    ("late read-back", "payloads"),
    ("parameter", "parameters"),
    ("parameter in extra", "parameters"),
    ("parameter of a node", "parameters"),
    ("copy of a node", "payloads"),
    ("rows", "payloads"),
    ("mapped file", "payloads"),
    ("name of a file", "paths"),
    ("kernel", "names"),
    ("range", "names"),
    ("mark", "names"),
    ("thread", "paths"),
    ("link input", "paths"),
];
/// Where texts begin among them.
const TEXTS: usize = 13;

/// A recording of `secrets.c`, and its secrets.
struct Recorded {
    trace: PathBuf,
    secrets: Vec<(&'static str, &'static str, Vec<u8>)>,
}

/// Random bytes, or letters and digits.
fn random(is_text: bool) -> Vec<u8> {
    let mut bytes = [0; SECRET];
    let mut source = fs::File::open("/dev/urandom").unwrap();
    source.read_exact(&mut bytes).unwrap();
    match is_text {
        false => bytes.to_vec(),
        true => bytes.iter().map(|byte| b'a' + byte % 26).collect(),
    }
}

fn recorded(folder: &Path, options: &[&str]) -> Recorded {
    let mut secrets: Vec<_> = SECRETS
        .iter()
        .enumerate()
        .map(|(at, &(name, what))| (name, what, random(at >= TEXTS)))
        .collect();
    let all: Vec<u8> = secrets.iter().flat_map(|secret| secret.2.clone()).collect();
    let file = folder.join("secrets");
    fs::write(&file, all).unwrap();
    let mut text = |name, what| {
        let secret = random(true);
        secrets.push((name, what, secret.clone()));
        String::from_utf8(secret).unwrap()
    };
    // The program's path has a secret, and so have its working directory and command line.
    let place = folder.join(text("folder", "paths"));
    fs::create_dir(&place).unwrap();
    let program = place.join(text("program", "paths"));
    let source = root().join("tests/programs/redact/secrets.c");
    let driver = parts().driver_folder.join("libcuda.so.1");
    compile(&source, &program, &[&driver, &"-ldl"]);
    let argument = text("argument", "environment");
    let variable = text("variable", "environment");
    let trace = folder.join("source.cutape");
    let words = [program.to_str().unwrap(), file.to_str().unwrap(), &argument];
    let mut command = record(&trace, options, &words);
    command.env("CUDA_SECRET", variable).current_dir(&place);
    run(&mut command).assert(0);
    Recorded { trace, secrets }
}

/// Every body of a packed trace, decompressed, and everything else in the file.
fn contents(trace: &Path) -> Vec<Vec<u8>> {
    let file = fs::read(trace).unwrap();
    let mut at = FILE_HEAD_LENGTH;
    let mut all = Vec::new();
    while at < file.len() {
        let (head, _) = codec::decode::<ChunkHead>(&file[at..]).unwrap();
        let body = &file[at + CHUNK_HEAD_LENGTH..][..head.used as usize];
        if head.flags & CHUNK_COMPRESSED != 0 {
            let body = zstd::decode_all(&body[8..]).unwrap();
            // What a body is must be known: a new kind must be looked at.
            assert!((chunk_kind::META..=chunk_kind::MARKERS).contains(&head.kind));
            all.push(body);
        }
        at += head.length as usize;
    }
    all.push(file);
    all
}

/// The secrets of which a piece is in a trace.
fn found(recorded: &Recorded, trace: &Path) -> HashSet<&'static str> {
    let contents = contents(trace);
    let all: HashSet<&[u8]> = contents
        .iter()
        .flat_map(|body| body.windows(PIECE))
        .collect();
    let secrets = recorded.secrets.iter();
    secrets
        .filter(|(.., secret)| secret.windows(PIECE).any(|piece| all.contains(piece)))
        .map(|&(name, ..)| name)
        .collect()
}

fn redact(source: &Path, target: &Path, options: &[&str]) {
    let mut command = parts().cutape(&[&"redact", &source, &"-o", &target]);
    run(command.args(options)).assert_code(0);
    assert_eq!(Trace::open(target).unwrap().verify(), []);
}

const EVERYTHING: &str = "payloads,parameters,environment,paths,names";

fn secrets_are_removed(folder: &Path) {
    for (number, options) in [
        &["--stacks=all"][..],
        &["--no-pack", "--stacks=all"],
        &[
            "--digests=launch",
            "--payloads",
            "hash",
            "--outputs",
            "hash",
        ],
    ]
    .into_iter()
    .enumerate()
    {
        let folder = folder.join(number.to_string());
        fs::create_dir(&folder).unwrap();
        let recorded = recorded(&folder, options);
        if number == 0 {
            let before = found(&recorded, &recorded.trace);
            let names = recorded.secrets.iter().map(|secret| secret.0);
            let missing: Vec<_> = names.filter(|name| !before.contains(name)).collect();
            // Bytes of a mapped file stay there; the trace names it.
            assert_eq!(missing, ["mapped file"]);
        }
        let redacted = folder.join("redacted.cutape");
        redact(&recorded.trace, &redacted, &["--remove", EVERYTHING]);
        assert_eq!(found(&recorded, &redacted), HashSet::new(), "{options:?}");
        let trace = Trace::open(&redacted).unwrap();
        assert_eq!(
            trace.meta_value("redacted"),
            Some(&*format!("{EVERYTHING},images"))
        );
        for call in trace.calls() {
            let snapshots = call.leave.iter().flat_map(|leave| leave.snapshots());
            for snapshot in call.snapshots().chain(snapshots) {
                assert!(!matches!(snapshot.bytes, Bytes::Hashed(..)), "{call:?}");
            }
        }
        let before = Trace::open(&recorded.trace).unwrap();
        assert_eq!(names(&trace), names(&before));
        run(&mut parts().cutape(&[&"check", &redacted])).assert_code(0);
    }
}

fn what_is_not_chosen_stays(folder: &Path) {
    let recorded = recorded(folder, &["--stacks=all"]);
    for what in ["payloads", "parameters", "environment", "paths", "names"] {
        let redacted = folder.join(format!("{what}.cutape"));
        redact(&recorded.trace, &redacted, &["--remove", what]);
        let left = found(&recorded, &redacted);
        for &(name, removed_by, _) in &recorded.secrets {
            if removed_by == what {
                assert!(!left.contains(name), "{name} is left by {what}");
            }
        }
        // The name of a thread, and logs, may be either.
        let others = recorded.secrets.iter().filter(|secret| secret.1 != what);
        let gone: Vec<_> = others.filter(|secret| !left.contains(secret.0)).collect();
        assert!(gone.len() <= 2, "{what} also removes {gone:?}");
    }
    let redacted = folder.join("usual.cutape");
    redact(&recorded.trace, &redacted, &[]);
    let left = found(&recorded, &redacted);
    assert_eq!(left, HashSet::from(["kernel", "range", "mark"]));
}

/// Programs whose work waits for a value that the CPU writes: without it, a replay hangs.
const AWAIT_CONTENTS: [&str; 1] = ["clean/graph_awaits_cpu"];

/// The findings are those of the source, and so is the outcome of a replay, which `programs/` tests.
fn programs_are_the_same(folder: &Path, case: &Case) -> Result<(), String> {
    let program = &case.program;
    let sources = case.traces()?.iter();
    let traces: Vec<(&PathBuf, PathBuf)> = sources
        .map(|source| (source, folder.join(source.file_name().unwrap())))
        .collect();
    // `check` also reads the traces of child processes, which lie beside that of the program.
    for (source, target) in &traces {
        redact(source, target, &[]);
    }
    for (source, target) in traces {
        assert_eq!(findings(&target), findings(source));
        if !AWAIT_CONTENTS.contains(&&*program.name) {
            let output = run(replay(&target).envs(program.environment.clone()));
            output.expect_code(i32::from(program.diverges.is_some()))?;
        }
    }
    Ok(())
}

fn recorded_on_real_hardware(folder: &Path) {
    let folders = files(&root().join("traces")).into_iter();
    let folders = folders.filter(|path| path.is_dir());
    let traces = folders.flat_map(|folder| files(&folder));
    // Beside traces of early versions are folders and what they are to say.
    let traces: Vec<_> = traces.filter(|path| path.is_file()).collect();
    assert!(traces.len() > 20, "{traces:?}");
    for source in traces {
        let target = folder.join(source.file_name().unwrap());
        redact(&source, &target, &[]);
        assert_eq!(findings(&target), findings(&source), "{}", source.display());
    }
}

/// The findings of a trace, but for those that rest on contents.
fn findings(trace: &Path) -> Vec<(String, String, u64)> {
    let output = run(&mut parts().cutape(&[&"check", &"--format", &"json", &trace]));
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap().iter();
    let findings = findings.filter(|finding| finding["confidence"] != "contents");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    findings
        .map(|finding| {
            let call = finding["call"]["call"].as_u64().unwrap_or(u64::MAX);
            (text(&finding["rule"]), text(&finding["severity"]), call)
        })
        .collect()
}

fn contents_are_synthetic(folder: &Path) {
    let source = folder.join("source.cutape");
    run(&mut record(
        &source,
        &[],
        &[&compiled("clean/launch_vector_add")],
    ))
    .assert(0);
    for (contents, is_kept) in [("zeros", false), ("pattern", true), ("statistics", true)] {
        let redacted = folder.join(format!("{contents}.cutape"));
        redact(&source, &redacted, &["--contents", contents]);
        let trace = Trace::open(&redacted).unwrap();
        let mut lengths = Vec::new();
        let mut floats = 0;
        for call in trace.calls() {
            for snapshot in call.snapshots() {
                let signature = Some(call.signature);
                let (parameter, field) = (snapshot.parameter, snapshot.field);
                if !is_payload(signature, CallPart::Enter, parameter, field) {
                    continue;
                }
                lengths.push(snapshot.bytes.length().unwrap());
                if let Ok(bytes) = trace.resolve(snapshot.bytes) {
                    let numbers = bytes.as_chunks::<4>().0.iter();
                    let mut numbers = numbers.map(|word| f32::from_le_bytes(*word));
                    floats += usize::from(numbers.all(|number| number.abs() <= 1e6));
                }
            }
        }
        assert!(lengths.contains(&400_000), "{lengths:?}");
        assert_eq!(floats > 0, is_kept, "{contents}");
        run(&mut replay(&redacted)).assert_code(0);
    }
}

fn a_redacted_trace_is_redacted_again(folder: &Path) {
    let recorded = recorded(folder, &[]);
    let [once, twice, other] = ["once", "twice", "other"].map(|name| folder.join(name));
    redact(
        &recorded.trace,
        &once,
        &["--remove", "names", "--remove", "environment"],
    );
    redact(&once, &twice, &["--remove", "payloads,parameters,paths"]);
    let trace = Trace::open(&twice).unwrap();
    assert_eq!(
        trace.meta_value("redacted"),
        Some(&*format!("{EVERYTHING},images"))
    );
    assert_eq!(found(&recorded, &twice), HashSet::new());
    // The same choice gives the same bytes.
    redact(&recorded.trace, &other, &["--remove", "environment,names"]);
    assert!(fs::read(&once).unwrap() == fs::read(&other).unwrap());
}

fn record_redacts(folder: &Path) {
    let all = format!("--redact={EVERYTHING}");
    let usual: HashSet<&str> = HashSet::from(["kernel", "range", "mark"]);
    for (option, left) in [(&*all, HashSet::new()), ("--redact", usual)] {
        let folder = folder.join(left.len().to_string());
        fs::create_dir(&folder).unwrap();
        let recorded = recorded(&folder, &["--stacks=all", option]);
        assert_eq!(found(&recorded, &recorded.trace), left, "{option}");
        let trace = Trace::open(&recorded.trace).unwrap();
        assert_eq!(trace.meta_value("redact"), None);
        assert!(trace.meta_value("redacted").is_some());
        run(&mut parts().cutape(&[&"check", &recorded.trace])).assert_code(0);
    }
}

/// What the recorder itself leaves out, in a trace that nothing has packed; `pack` does the rest.
fn what_record_could_not_pack(folder: &Path) {
    let program = ending();
    let raw = folder.join("raw.cutape");
    // The settings that `record` gives, without its packing.
    let mut bare = std::process::Command::new(&program);
    let interposer = parts().cutape.with_file_name("libcutape_interposer.so");
    bare.arg("end")
        .env("LD_LIBRARY_PATH", &parts().driver_folder)
        .env("LD_PRELOAD", interposer)
        .env("CUTAPE_TRACE", &raw)
        .env("CUTAPE_DRIVER", parts().driver_folder.join("libcuda.so.1"))
        .env("CUTAPE_REDACT", "environment,paths,payloads")
        .env("CUDA_SECRET", "unforeseen");
    run(&mut bare);
    let opened = Trace::open(&raw).unwrap();
    let keys = |trace: &Trace| {
        trace
            .meta()
            .iter()
            .map(|entry| entry.0.clone())
            .collect::<Vec<_>>()
    };
    let starts = ["environment.", "argument.", "program", "directory"];
    for key in keys(&opened) {
        assert!(!starts.iter().any(|start| key.starts_with(start)), "{key}");
    }
    let packed = folder.join("packed.cutape");
    run(&mut parts().cutape(&[&"pack", &raw, &"-o", &packed])).assert_code(0);
    let opened = Trace::open(&packed).unwrap();
    assert_eq!(
        opened.meta_value("redacted"),
        Some("payloads,environment,paths")
    );
    assert!(
        opened
            .mappings()
            .iter()
            .all(|mapping| !mapping.path.contains("ending"))
    );
}

fn a_policy_is_imposed(folder: &Path) {
    let policy = folder.join("policy.toml");
    fs::write(&policy, "redact = [\"payloads\", \"environment\"]\n").unwrap();
    let trace = folder.join("a.cutape");
    let recording = |options: &[&str]| {
        let mut command = record(&trace, options, &[&compiled("clean/launch_vector_add")]);
        command.env("CUTAPE_POLICY", &policy);
        run(&mut command)
    };
    recording(&["--redact=paths", "--payloads", "all"]).assert(0);
    let opened = Trace::open(&trace).unwrap();
    assert_eq!(
        opened.meta_value("redacted"),
        Some("payloads,environment,paths")
    );
    assert_eq!(opened.meta_value("payloads"), Some("none"));
    fs::remove_file(&trace).unwrap();
    for (options, text, expected) in [
        (
            &["--no-pack"][..],
            None,
            "--no-pack conflicts with the policy",
        ),
        (
            &["--digests"],
            None,
            "--digests keeps contents of memory, which the policy",
        ),
        (&[], Some("redact = ["), "line 1"),
        (
            &[],
            Some("redact = [\"all\"]"),
            "`all` is none of payloads, parameters",
        ),
    ] {
        if let Some(text) = text {
            fs::write(&policy, text).unwrap();
        }
        let output = recording(options);
        output.assert_code(2);
        let message = &output.stderr;
        assert!(message.contains(expected), "{message}");
        assert!(
            message.contains("policy.toml") && message.lines().count() == 1,
            "{message}"
        );
        assert!(!trace.exists(), "{options:?}");
    }
    fs::remove_file(&policy).unwrap();
    let output = recording(&[]);
    output.assert_code(2);
    assert!(
        output.stderr.contains("nothing is recorded without it"),
        "{}",
        output.stderr
    );
}

fn info_says_what_is_revealed(folder: &Path) {
    let recorded = recorded(folder, &["--stacks=all"]);
    let redacted = folder.join("redacted.cutape");
    redact(&recorded.trace, &redacted, &["--remove", EVERYTHING]);
    let reveals = |trace: &Path| {
        let output = run(&mut parts().cutape(&[&"info", &"--format", &"json", &trace]));
        let all: Value = serde_json::from_str(&output.stdout).unwrap();
        all["reveals"].clone()
    };
    let numbers = [
        "payloads",
        "payload_bytes",
        "kernel_parameters",
        "arguments",
        "images",
    ];
    let before = reveals(&recorded.trace);
    for key in numbers.iter().chain(&["paths", "images_with_ptx"]) {
        assert!(before[key].as_u64() > Some(0), "{key} in {before}");
    }
    assert!(
        before["environment"]
            .as_array()
            .unwrap()
            .contains(&"CUDA_SECRET".into())
    );
    let after = reveals(&redacted);
    for key in [
        "payloads",
        "payload_bytes",
        "arguments",
        "images",
        "hashed_payloads",
    ] {
        assert_eq!(after[key], 0, "{key} in {after}");
    }
    assert_eq!(after["redacted"], format!("{EVERYTHING},images"));
    let text = run(&mut parts().cutape(&[&"info", &redacted])).stdout;
    assert!(
        text.contains("  removed         payloads, parameters"),
        "{text}"
    );
}
