//! `check FOLDER`: what the ranks of `programs/ranks/misuse.c` do wrong with each other's objects
//! is found, and the nearest correct thing is not.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cutape_tests::{Suite, compile, parts, record, root, run};
use serde_json::Value;

/// Cases of the program, and the rules that they violate.
const CASES: &[(&str, &[&str])] = &[
    ("memory-closed-late", &["ranks-memory-freed-while-open"]),
    ("memory-used-late", &["ranks-memory-freed-while-open"]),
    ("memory-launched-late", &["ranks-memory-freed-while-open"]),
    ("memory-in-struct-late", &["ranks-memory-freed-while-open"]),
    ("pool-memory-freed-late", &["ranks-memory-freed-while-open"]),
    ("event-used-late", &["ranks-event-use-after-destroy"]),
    ("memory-opened-late", &["ranks-import-after-end"]),
    ("event-opened-late", &["ranks-import-after-end"]),
    ("block-released-early", &[]),
    (
        "kinds-exchanged",
        &["ranks-import-wrong-handle", "ranks-import-wrong-handle"],
    ),
    ("sizes-exchanged", &["ranks-map-beyond-export"]),
    ("pools-exchanged", &["ranks-import-wrong-handle"]),
];

/// Cases of `programs/ranks/communicators.c`, how its ranks end, and the rules that they violate.
const COMMUNICATORS: &[(&str, [i32; 4], &[&str])] = &[
    ("correct", [0; 4], &[]),
    ("order", [0; 4], &["ranks-collective-order"]),
    ("shape", [0; 4], &["ranks-collective-shape"]),
    ("missing", [143, 143, 143, 1], &["ranks-collective-missing"]),
    ("stopped", [130; 4], &[]),
    ("crashed", [134, 143, 143, 1], &[]),
];

pub(crate) fn add_to(suite: &mut Suite) {
    for &(case, rules) in CASES {
        suite.test(format!("{case}/violate"), move |folder: &Path| {
            assert_eq!(rules_in(folder, case, "violate"), rules);
        });
        suite.test(format!("{case}/correct"), move |folder: &Path| {
            assert!(rules_in(folder, case, "correct").is_empty());
        });
    }
    for &(case, ends, rules) in COMMUNICATORS {
        suite.test(format!("communicators/{case}"), move |folder: &Path| {
            collectives(folder, case, ends, rules);
        });
    }
    suite.test("what_ranks_share_correctly", what_ranks_share_correctly);
    suite.test("findings_name_both_ranks", findings_name_both_ranks);
    suite.test("only_a_known_use_is_an_error", only_a_known_use_is_an_error);
    suite.test("findings_can_be_left_out", findings_can_be_left_out);
    suite.test("a_damaged_trace", a_damaged_trace);
}

/// A compiled program of several ranks.
fn program(name: &'static str, compiled: &'static OnceLock<PathBuf>) -> &'static str {
    let program = compiled.get_or_init(|| {
        let folder = parts().new_folder(&format!("{name}-program"));
        let program = folder.join(name);
        let source = root().join(format!("tests/programs/ranks/{name}.c"));
        let driver = parts().driver_folder.join("libcuda.so.1");
        compile(&source, &program, &[&driver, &"-pthread"]);
        program
    });
    program.to_str().expect("a path that is text")
}

fn recorded(folder: &Path, case: &str, mode: &str) {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = program("misuse", &PROGRAM);
    let trace = folder.join("run.cutape");
    run(&mut record(&trace, &[], &[program, case, mode])).assert(0);
}

/// Each rank is recorded by itself, so that its end is known.
fn collectives(folder: &Path, case: &str, ends: [i32; 4], rules: &[&str]) {
    record_communicators(folder, case, ends);
    let (json, status) = checked(folder, &[]);
    let found = above_advice(&json);
    let found_rules: Vec<_> = found.iter().map(|finding| &finding["rule"]).collect();
    assert_eq!(found_rules, rules);
    assert_eq!(status, i32::from(!rules.is_empty()));
    if case == "missing" {
        let finding = found[0];
        assert_eq!(finding["call"]["process"]["rank"], 3);
        let message = finding["message"].as_str().expect("a message");
        let how = "Rank 3 launched 2 of them and exited with status 1";
        assert!(message.contains(how), "{message}");
    }
}

/// Records a case of `programs/ranks/communicators.c`.
pub(crate) fn record_communicators(folder: &Path, case: &str, ends: [i32; 4]) {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = program("communicators", &PROGRAM);
    let board = folder.join("board");
    let board = board.to_str().expect("a path that is text");
    std::thread::scope(|scope| {
        for (rank, end) in ends.into_iter().enumerate() {
            let words = [program, case, board, &rank.to_string()].map(str::to_owned);
            let trace = folder.join("run.cutape");
            scope.spawn(move || {
                let words = words.each_ref().map(String::as_str);
                let mut record = record(&trace, &[], &words);
                run(record.env("RANK", rank.to_string())).assert_code(end);
            });
        }
    });
}

/// The findings that do not depend on how long calls took, or on when a program was killed.
fn above_advice(json: &Value) -> Vec<&Value> {
    let findings = json["findings"].as_array().expect("findings");
    let is_above = |finding: &&Value| finding["severity"] != "advice";
    findings.iter().filter(is_above).collect()
}

/// The findings as JSON, and the exit status.
fn checked(folder: &Path, options: &[&str]) -> (Value, i32) {
    let mut check = parts().cutape(&[&"check", &"--format", &"json", &folder]);
    let output = run(check.args(options));
    let json = serde_json::from_str(&output.stdout);
    let json = json.unwrap_or_else(|error| panic!("{error}: {}", output.stderr));
    (
        json,
        output
            .status
            .and_then(|status| status.code())
            .expect("an exit status"),
    )
}

/// The rules of all findings; the status fits them.
fn rules_in(folder: &Path, case: &str, mode: &str) -> Vec<String> {
    recorded(folder, case, mode);
    let (json, status) = checked(folder, &[]);
    let findings = json["findings"].as_array().expect("findings");
    assert_eq!(status, i32::from(!findings.is_empty()));
    let rules = findings.iter().map(|finding| finding["rule"].as_str());
    rules.map(|rule| rule.expect("a rule").to_owned()).collect()
}

fn what_ranks_share_correctly(folder: &Path) {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = program("sharing", &PROGRAM);
    run(&mut record(
        &folder.join("run.cutape"),
        &[],
        &[program, "2"],
    ))
    .assert(0);
    let (json, status) = checked(folder, &[]);
    assert_eq!(above_advice(&json), Vec::<&Value>::new());
    assert_eq!(status, 0);
}

/// In every form of output: the two ranks, their calls, and their objects.
fn only_a_known_use_is_an_error(folder: &Path) {
    for (case, severity, what) in [
        (
            "memory-closed-late",
            "warning",
            "memory freed while rank 1 has it open",
        ),
        (
            "memory-used-late",
            "error",
            "memory of rank 0 used by rank 1 after it was freed",
        ),
        (
            "memory-launched-late",
            "error",
            "memory of rank 0 used by rank 1 after it was freed",
        ),
        // Whether a word of a struct is a pointer, or was ever set, is not known.
        (
            "memory-in-struct-late",
            "warning",
            "memory freed while rank 1 has it open",
        ),
    ] {
        let folder = folder.join(case);
        std::fs::create_dir(&folder).unwrap();
        recorded(&folder, case, "violate");
        let finding = &checked(&folder, &[]).0["findings"][0];
        assert_eq!(finding["severity"], severity, "{finding}");
        assert_eq!(finding["title"], what, "{finding}");
    }
}

fn findings_name_both_ranks(folder: &Path) {
    recorded(folder, "event-used-late", "violate");
    let (json, _) = checked(folder, &[]);
    let finding = &json["findings"][0];
    assert_eq!(finding["call"]["process"]["rank"], 1);
    assert_eq!(finding["call"]["process"]["trace"], "run.rank1.cutape");
    assert_eq!(finding["call"]["function"], "cuStreamWaitEvent");
    let related = finding["related"].as_array().expect("related calls");
    let related: Vec<_> = related
        .iter()
        .map(|call| (&call["what"], &call["process"]["rank"], &call["function"]))
        .map(|(what, rank, function)| format!("{what} {rank} {function}"))
        .collect();
    let expected = [
        "\"exported here\" 0 \"cuIpcGetEventHandle\"",
        "\"opened here\" 1 \"cuIpcOpenEventHandle\"",
        "\"destroyed here\" 0 \"cuEventDestroy_v2\"",
    ];
    assert_eq!(related, expected);
    let ranks: Vec<_> = [0, 1]
        .map(|at| finding["objects"][at]["process"]["rank"].as_u64())
        .into();
    assert_eq!(ranks, [Some(1), Some(0)]);
    let (sarif, junit) = (folder.join("out.sarif"), folder.join("out.xml"));
    let output = run(&mut parts().cutape(&[
        &"check",
        &folder,
        &"--sarif",
        &sarif,
        &"--junit",
        &junit,
        &"--no-color",
    ]));
    output.assert_code(1);
    for text in [
        " --> rank 1 call ",
        " ::: destroyed here: rank 0 call ",
        "  | rank 0 event#1 ",
        "  | rank 1 event#1 ",
    ] {
        assert!(output.stdout.contains(text), "{text}: {}", output.stdout);
    }
    let sarif: Value = serde_json::from_str(&read(&sarif)).expect("SARIF");
    let result = &sarif["runs"][0]["results"][0];
    let file = |location: &Value| location["physicalLocation"]["artifactLocation"]["uri"].clone();
    let first = file(&result["locations"][0]);
    assert!(
        first.as_str().unwrap().ends_with("/run.rank1.cutape"),
        "{first}"
    );
    let destroyed = file(&result["relatedLocations"][2]);
    assert!(
        destroyed.as_str().unwrap().ends_with("/run.rank0.cutape"),
        "{destroyed}"
    );
    let junit = read(&junit);
    assert!(
        junit.contains("ranks-event-use-after-destroy rank 1 call "),
        "{junit}"
    );
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn findings_can_be_left_out(folder: &Path) {
    recorded(folder, "memory-closed-late", "violate");
    let list = folder.join("list.txt");
    std::fs::write(&list, "ranks-memory-* cuMemFree frame:memory*\n").unwrap();
    let list = list.to_str().unwrap().to_owned();
    let known = folder.join("known.json");
    let known = known.to_str().unwrap().to_owned();
    let (json, status) = checked(folder, &["--write-baseline", &known]);
    assert_eq!(
        (status, &json["findings"][0]["severity"]),
        (1, &"warning".into())
    );
    for (options, expected, omitted) in [
        (&["--fail-on", "error"][..], 0, None),
        (&["--suppress", &list], 0, Some("suppressed")),
        (&["--baseline", &known], 0, Some("known")),
    ] {
        let (json, status) = checked(folder, options);
        assert_eq!(status, expected, "{options:?}");
        if let Some(omitted) = omitted {
            assert_eq!(json["omitted"][omitted], 1, "{options:?}");
        }
    }
}

/// It is named, and the others are checked.
fn a_damaged_trace(folder: &Path) {
    recorded(folder, "event-used-late", "violate");
    let damaged = folder.join("run.rank2.cutape");
    let bytes = std::fs::read(&damaged).unwrap();
    std::fs::write(&damaged, &bytes[..bytes.len() / 2]).unwrap();
    let output = run(&mut parts().cutape(&[&"check", &folder]));
    output.assert_code(2);
    assert!(
        output.stdout.contains("ranks-event-use-after-destroy"),
        "{}",
        output.stdout
    );
    assert!(
        output.stderr.contains("run.rank2.cutape: damaged"),
        "{}",
        output.stderr
    );
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
}
