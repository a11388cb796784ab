//! What `replay` says about how much it compared, and about the cause of a divergence, an
//! asynchronous error or a hang.

use std::fs;
use std::path::{Path, PathBuf};

use cutape_tests::{Output, Suite, compile, compiled, parts, record, replay, root, run};

pub(crate) fn add_to(suite: &mut Suite) {
    for row in ROWS {
        suite.test(row.name, |folder: &Path| replayed(row, folder));
    }
    suite
        .test("verdicts", verdicts_decide_the_status)
        .test("junit", junit_has_a_case_for_each_verdict)
        .test("json", json_says_what_the_text_says)
        .test("private-memory", private_memory_is_one_cause)
        .test("host-changed", host_functions_cause_no_divergence);
}

/// A replay of `clean/streams`: with which settings of the null driver, and what it must say.
struct Row {
    name: &'static str,
    environment: &'static [(&'static str, &'static str)],
    options: &'static [&'static str],
    status: i32,
    expected: &'static [&'static str],
    unexpected: &'static [&'static str],
}

const ROWS: &[Row] = &[
    Row {
        name: "compared",
        environment: &[],
        options: &[],
        status: 0,
        expected: &[
            "no divergence\ncompared: 16388 returned bytes (2 copies), 0 not; ",
            " result codes; 4 launches\n",
        ],
        unexpected: &["caused", "pending", "verdict"],
    },
    Row {
        name: "part",
        environment: &[],
        options: &["--until", "20"],
        status: 0,
        expected: &["compared: 0 returned bytes (0 copies), 0 not; "],
        unexpected: &["4 launches"],
    },
    Row {
        name: "several",
        environment: &[],
        options: &["--repeat", "2"],
        status: 0,
        expected: &["54 of 54 calls replayed 2 times, the first in "],
        unexpected: &[],
    },
    // The second launch is waited for in the second wait.
    Row {
        name: "cause",
        environment: &[("CUTAPE_NULL_FAIL", "cuStreamSynchronize@2=700")],
        options: &["--sync-each"],
        status: 0,
        expected: &["\ncall 26 cuLaunchKernel (kernel fill) caused CUDA_ERROR_ILLEGAL_ADDRESS\n"],
        unexpected: &[],
    },
    Row {
        name: "hang",
        environment: &[("CUTAPE_NULL_DELAY", "cuMemcpyDtoHAsync=30s")],
        options: &["--watchdog", "1"],
        status: 1,
        expected: &[
            "the replay hung in call 29 (cuMemcpyDtoHAsync_v2)",
            ":\n    call 24 cuLaunchKernel (kernel fill)\n  pending in stream 0x",
            ":\n    call 26 cuLaunchKernel (kernel fill)\n    call 27 cuStreamWaitEvent: waits for the event of call 25\n    call 28 cuLaunchKernel (kernel vector_add)\n",
        ],
        unexpected: &["compared:"],
    },
    // What the first wait proved complete is not pending in the second.
    Row {
        name: "second-hang",
        environment: &[("CUTAPE_NULL_DELAY", "cuStreamSynchronize@2=30s")],
        options: &["--watchdog", "1"],
        status: 1,
        expected: &["the replay hung in call 32 (cuStreamSynchronize)"],
        unexpected: &["pending"],
    },
    Row {
        name: "too-few",
        environment: &[],
        options: &["--repeat", "2", "--fill", "1"],
        status: 2,
        expected: &["use --repeat 3 or more"],
        unexpected: &[],
    },
    Row {
        name: "no-byte",
        environment: &[],
        options: &["--fill", "256"],
        status: 2,
        expected: &["not a byte, e.g. 0xa5"],
        unexpected: &[],
    },
    Row {
        name: "no-verdict",
        environment: &[],
        options: &["--allow", "nondeterministic,flaky"],
        status: 2,
        expected: &[
            "invalid value 'flaky'",
            "none of not-reproduced, nondeterministic,",
        ],
        unexpected: &[],
    },
    Row {
        name: "stdout-twice",
        environment: &[],
        options: &["--format", "junit", "--report", "-"],
        status: 2,
        expected: &["both print to stdout"],
        unexpected: &[],
    },
];

fn replayed(row: &Row, folder: &Path) {
    let trace = folder.join("t.cutape");
    run(&mut record(&trace, &[], &[&compiled("clean/streams")])).assert(0);
    let environment = row.environment.iter().copied();
    let output = run(replay(&trace).args(row.options).envs(environment));
    output.assert_code(row.status);
    let all = format!("{}{}", output.stdout, output.stderr);
    for text in row.expected {
        assert!(all.contains(text), "no {text:?} in: {all}");
    }
    for text in row.unexpected {
        assert!(!all.contains(text), "{text:?} in: {all}");
    }
}

/// Reads memory that nothing has written.
const UNWRITTEN: &str = r#"
#include "program.h"

int main(void)
{
    begin();
    CUdeviceptr memory = 0;
    uint32_t out[16];
    CHECK(cuMemAlloc(&memory, sizeof out));
    CHECK(cuMemcpyDtoH(out, memory, sizeof out));
    CHECK(cuMemFree(memory));
    end();
    return 0;
}
"#;

fn unwritten(folder: &Path) -> PathBuf {
    let (source, program) = (folder.join("unwritten.c"), folder.join("unwritten"));
    fs::write(&source, UNWRITTEN).unwrap();
    let driver = parts().driver_folder.join("libcuda.so.1");
    compile(&source, &program, &[&driver]);
    let trace = folder.join("t.cutape");
    run(&mut record(&trace, &[], &[&program.display().to_string()])).assert(0);
    trace
}

fn with(trace: &Path, options: &[&str]) -> Output {
    run(replay(trace).args(options))
}

fn verdicts_decide_the_status(folder: &Path) {
    let trace = unwritten(folder);
    let table: [(&[&str], i32, &str); 6] = [
        (&[], 0, ": no divergence\n"),
        // Zeros were recorded.
        (&["--fill", "0"], 0, ": no divergence\n"),
        (&["--fill", "0xa5"], 1, ": 1 divergence\n"),
        (
            &["--fill", "0xa5", "--repeat", "3"],
            1,
            ": 1 divergence (uninitialised-read)\n",
        ),
        (
            &[
                "--fill",
                "0xa5",
                "--repeat",
                "3",
                "--allow",
                "nondeterministic",
            ],
            1,
            "  verdict uninitialised-read\n",
        ),
        (
            &[
                "--fill",
                "0xa5",
                "--repeat",
                "3",
                "--allow",
                "nondeterministic,uninitialised-read",
            ],
            0,
            "  replay 3 filled new memory with 0x5a, the others with 0xa5\n",
        ),
    ];
    for (options, status, text) in table {
        let output = with(&trace, options);
        output.assert_code(status);
        assert!(
            output.stdout.contains(text),
            "{options:?}: {}",
            output.stdout
        );
    }
}

fn junit_has_a_case_for_each_verdict(folder: &Path) {
    let trace = unwritten(folder);
    let causes = ["--format", "junit", "--repeat", "3", "--fill", "0xa5"];
    let case = |name: &str| format!("<testcase name=\"{name}\" classname=");
    for (allow, status, counts) in [
        (
            None,
            1,
            "tests=\"7\" skipped=\"0\" errors=\"0\" failures=\"1\"",
        ),
        (
            Some("uninitialised-read"),
            0,
            "tests=\"7\" skipped=\"1\" errors=\"0\" failures=\"0\"",
        ),
    ] {
        let mut options = causes.to_vec();
        options.extend(allow.iter().flat_map(|&verdict| ["--allow", verdict]));
        let output = with(&trace, &options);
        output.assert_code(status);
        let xml = &output.stdout;
        assert!(xml.contains(counts), "{xml}");
        for name in [
            "ends",
            "not-reproduced",
            "nondeterministic",
            "uninitialised-read",
            "consequence",
            "changed-input",
        ] {
            assert!(xml.contains(&case(name)), "{name}: {xml}");
        }
        assert!(xml.contains("divergence: call "), "{xml}");
    }
}

/// Calls that use memory which no recorded call made are left out, and what follows from that is
/// one cause.
fn private_memory_is_one_cause(folder: &Path) {
    let trace = folder.join("private.cutape");
    let program = folder.join("private");
    let source = root().join("tests/programs/private/memory.c");
    let driver = parts().driver_folder.join("libcuda.so.1");
    compile(&source, &program, &[&driver]);
    let program = program.to_str().unwrap();
    run(&mut record(&trace, &[], &[program])).assert(0);
    for flags in [&[][..], &["--threads"], &["--placement", "none"]] {
        let output = run(replay(&trace).args(flags));
        output.assert_code(1);
        let lines = [
            "no divergence; data of 80 calls is missing; 40 differences (consequence)\n",
            "\nnot re-issued because of private memory of the driver (",
            "): 120 calls, the first call ",
            "; data of 80 is missing; 40 later differences may follow\n",
            " 40 x cuLaunchKernel (first: ",
        ];
        for line in lines {
            assert!(
                output.stdout.contains(line),
                "{line}\n{}",
                output.describe()
            );
        }
        assert_eq!(output.stdout.matches("may follow").count(), 1);
    }
    let output = run(replay(&trace).args(["--format", "json"]));
    output.assert_code(1);
    let report: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(report["divergence_count"], 0);
    let causes = report["consequences"].as_array().unwrap();
    assert_eq!(causes.len(), 1, "{causes:?}");
    let counts = ["left_out", "lost", "differences"].map(|name| causes[0][name].as_u64().unwrap());
    assert_eq!(counts, [120, 80, 40]);
    let first = &causes[0]["first_difference"];
    assert_eq!(first["verdict"], "consequence");
    run(replay(&trace).args(["--allow", "consequence"])).assert(0);
}

fn json_says_what_the_text_says(folder: &Path) {
    let trace = unwritten(folder);
    let options = ["--repeat", "3", "--fill", "0xa5", "--format", "json"];
    let output = with(&trace, &options);
    output.assert_code(1);
    let report: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(report["replays"], 3);
    assert_eq!(report["divergences"][0]["verdict"], "uninitialised-read");
    assert_eq!(report["copies_compared"], 1);
    assert!(report["results_compared"].as_u64() > Some(0));
}

/// Copies whose bytes a host function changes are listed with their verdict, and nothing fails.
fn host_functions_cause_no_divergence(folder: &Path) {
    let trace = folder.join("t.cutape");
    let program = compiled("clean/host_function_changes");
    run(&mut record(&trace, &[], &[&program])).assert(0);
    let output = with(&trace, &[]);
    output.assert_code(0);
    let text = &output.stdout;
    assert!(text.contains(": no divergence; "), "{text}");
    assert!(text.contains(" (host-changed)\n"), "{text}");
    assert!(text.contains("\ndifference: call "), "{text}");
    assert!(text.contains("  since call "), "{text}");
    let output = with(&trace, &["--format", "junit"]);
    output.assert_code(0);
    let xml = &output.stdout;
    assert!(
        xml.contains("skipped=\"1\" errors=\"0\" failures=\"0\""),
        "{xml}"
    );
}
