//! `why` names the calls that wrote some bytes, and what they read.

use std::fs;
use std::path::{Path, PathBuf};

use cutape_format::{Call, Trace};
use cutape_tests::{Output, compiled, names, parts, record, run};
use serde_json::Value;

cutape_tests::tests![
    copies_and_memsets_are_named_with_what_they_read,
    a_kernel_is_named_only_if_it_wrote,
    nodes_of_graphs_are_named,
    nodes_that_only_their_graph_can_run_are_named,
    memory_that_ended_is_known_by_its_label,
    long_ranges_are_told_to_the_byte,
    what_is_not_looked_at_is_named,
    what_cannot_be_asked_is_refused,
];

/// The eighth launch of the kernel writes where its first parameter points.
const WRITES: (&str, &str) = ("CUTAPE_NULL_NONDETERMINISTIC", "step@8");
const NOTHING: (&str, &str) = ("LC_ALL", "C");

fn recorded(folder: &Path, name: &str, setting: (&str, &str)) -> PathBuf {
    let path = folder.join("app.cutape");
    let mut record = record(&path, &[], &[&compiled(&format!("clean/{name}"))]);
    run(record.env(setting.0, setting.1)).assert_code(0);
    path
}

fn why(trace: &Path, arguments: &[&str], setting: (&str, &str)) -> Output {
    let mut command = parts().cutape(&[&"why", &trace]);
    let command = command.args(arguments).args(["--driver", "null"]);
    run(command.env(setting.0, setting.1))
}

/// The answer as JSON.
fn asked(trace: &Path, arguments: &[&str], setting: (&str, &str)) -> Value {
    let arguments = [arguments, &["--report", "-"]].concat();
    let output = why(trace, &arguments, setting);
    output.assert_code(0);
    assert_eq!(output.stderr, "", "{arguments:?}");
    serde_json::from_str(&output.stdout).unwrap()
}

/// Function and kind of each write, the last one first.
fn writers(answer: &Value) -> Vec<(String, String)> {
    let writes = answer["writes"].as_array().unwrap().iter();
    let kind = |by: &Value| match by {
        Value::String(kind) => kind.clone(),
        node => format!("node: {}", node["node"][1].as_str().unwrap()),
    };
    let of = |write: &Value| {
        let function = write["by_call"]["function"].as_str().unwrap();
        (function.to_owned(), kind(&write["by"]))
    };
    writes.map(of).collect()
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |&(a, b): &(&str, &str)| (a.to_owned(), b.to_owned());
    list.iter().map(owned).collect()
}

fn copies_and_memsets_are_named_with_what_they_read(folder: &Path) {
    let trace = recorded(folder, "memory_history", NOTHING);
    let all = names(&Trace::open(&trace).unwrap());
    let is_copy = |name: &&String| name.starts_with("cuMemcpyDtoH");
    let back = all.iter().position(|name| is_copy(&name)).unwrap();
    let answer = asked(&trace, &["--result", &back.to_string()], NOTHING);
    assert_eq!(
        writers(&answer)[..2],
        pairs(&[("cuMemcpyDtoD_v2", "call"), ("cuMemsetD32_v2", "call")])
    );
    // What the copy read was copied from the program.
    let input = &answer["inputs"][0];
    assert_eq!(input["parameter"], Value::Null);
    assert_eq!(writers(input)[0], pairs(&[("cuMemcpyHtoD_v2", "call")])[0]);
    assert!(input["label"].as_str().unwrap().starts_with("memory#4"));
    let text = why(&trace, &["--result", &back.to_string()], NOTHING);
    for line in ["written by call", "it reads memory#4", "main+0x"] {
        assert!(text.stdout.contains(line), "{line}: {}", text.stdout);
    }
    // Steps back are replays: of one, nothing is asked of the source.
    let one = ["--result", &back.to_string(), "--depth", "1"];
    assert_eq!(asked(&trace, &one, NOTHING)["inputs"], Value::Array(vec![]));
}

fn a_kernel_is_named_only_if_it_wrote(folder: &Path) {
    let trace = recorded(folder, "memory_history", WRITES);
    let all = names(&Trace::open(&trace).unwrap());
    let is_launch = |(_, name): &(usize, &String)| *name == "cuLaunchKernel";
    let launches = all.iter().enumerate().filter(is_launch);
    let (eighth, _) = launches.take(8).last().unwrap();
    let answer = asked(&trace, &["memory#1+0+8", "--type", "u64"], WRITES);
    assert_eq!(
        writers(&answer)[..3],
        pairs(&[
            ("cuMemFree_v2", "ends"),
            ("cuLaunchKernel", "call"),
            ("cuMemcpyHtoD_v2", "call"),
        ])
    );
    assert_eq!(answer["writes"][1]["call"], eighth);
    assert_eq!(answer["writes"][1]["by_call"]["kernel"], "step");
    // The parameters that point into memory, with who wrote what they point at.
    let parameters = answer["inputs"].as_array().unwrap().iter();
    let parameters: Vec<&Value> = parameters.map(|input| &input["parameter"]).collect();
    assert_eq!(parameters, [0, 1]);
    // Before the launch it is the copy.
    let at = ["memory#1+0+8", "--at", &eighth.to_string()];
    let before = asked(&trace, &at, WRITES);
    assert_eq!(
        writers(&before)[0],
        pairs(&[("cuMemcpyHtoD_v2", "call")])[0]
    );
    let parameter = format!("{eighth}:0");
    let same = asked(&trace, &["--parameter", &parameter], WRITES);
    assert_eq!(same["address"], before["address"]);
    assert_eq!(writers(&same), writers(&before));
}

fn nodes_of_graphs_are_named(folder: &Path) {
    let trace = recorded(folder, "graph", NOTHING);
    let answer = asked(&trace, &["memory#2", "--most", "20"], NOTHING);
    let nodes = writers(&answer).into_iter();
    let nodes: Vec<_> = nodes.filter(|(_, by)| by.starts_with("node: ")).collect();
    assert!(!nodes.is_empty(), "{answer:#}");
    let is_launch = |(function, _): &(String, String)| function.starts_with("cuGraphLaunch");
    assert!(nodes.iter().all(is_launch), "{nodes:?}");
}

fn nodes_that_only_their_graph_can_run_are_named(folder: &Path) {
    let trace = recorded(folder, "graph_stops", NOTHING);
    let nodes = |bytes: &str| {
        let answer = asked(&trace, &[bytes, "--most", "40"], NOTHING);
        let writers = writers(&answer).into_iter().map(|(_, by)| by);
        writers.filter(|by| by != "call").collect::<Vec<_>>()
    };
    // Each graph is launched twice; the last write comes first.
    let waited = ["node: a memset"; 2];
    let condition = ["node: a conditional node", "node: a memset"].repeat(2);
    let child = ["node: a copy", "node: a memset"].repeat(2);
    let memory = ["node: a copy"; 2];
    let result = [&waited[..], &condition, &child, &memory, &["begins"]].concat();
    assert_eq!(nodes("memory#1"), [&["ends"], &result[..]].concat());
    // Memory that the graph frees, that outlives the launch, and that a child graph frees.
    // The second launch sets what is there already.
    let each = ["ends", "begins", "ends", "node: a memset", "begins"];
    let opened = Trace::open(&trace).unwrap();
    let is_allocation = |call: &Call<'_>| call.signature.name == "cuGraphAddMemAllocNode";
    for call in opened.calls().filter(is_allocation) {
        // The member dptr of CUDA_MEM_ALLOC_NODE_PARAMS.
        let address = call.out_bytes(4).unwrap()[112..120].try_into().unwrap();
        let address = format!("{:#x}", u64::from_le_bytes(address));
        assert_eq!(nodes(&address), each, "{}", call.index);
    }
}

fn memory_that_ended_is_known_by_its_label(folder: &Path) {
    let trace = recorded(folder, "memory_host", NOTHING);
    // Another memory gets the address of the first one.
    let first = asked(&trace, &["memory#1"], NOTHING);
    let second = asked(&trace, &["memory#2"], NOTHING);
    assert_eq!(first["address"], second["address"]);
    assert_eq!(writers(&first)[0].1, "ends");
    assert!(first["writes"][0]["call"].as_u64() < second["writes"][0]["call"].as_u64());
    let temporary = ("TMPDIR", folder.to_str().unwrap());
    let text = why(&trace, &["memory#2", "--type", "i32"], temporary).stdout;
    assert!(!text.contains("cuMemFree_v2, main\n    "), "{text}");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "nothing is left");
}

fn long_ranges_are_told_to_the_byte(folder: &Path) {
    let trace = recorded(folder, "scattered_writes", NOTHING);
    let all = names(&Trace::open(&trace).unwrap());
    let end = all.iter().position(|name| name.starts_with("cuMemFree"));
    let at = end.unwrap().to_string();
    let range = ["memory#1+0+4000000", "--depth", "1", "--at", &at];
    let answer = asked(&trace, &range, NOTHING);
    let last = &answer["writes"][0];
    assert_eq!(last["by"]["node"], serde_json::json!([0, "a memset"]));
    assert_eq!(
        last["parts"],
        serde_json::json!([[100_000, 1], [200_000, 1]])
    );
    assert_eq!(last["in_pages"], false);
    let text = why(&trace, &range, NOTHING).stdout;
    for part in [
        "  +100000: 01 -> 09\n",
        "  2 bytes in 2 parts: +100000 1, +200000 1\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

fn what_is_not_looked_at_is_named(folder: &Path) {
    // Work may take half of the watchdog's time.
    let hurried = ["--depth", "1", "--watchdog", "4"];
    for (program, memory, setting, function, reasons) in [
        (
            "memory_operation_batch",
            "memory#1",
            NOTHING,
            "cuStreamBatchMemOp",
            &["changes by call N and later ones", "may wait for values"][..],
        ),
        (
            "graph_awaits_cpu",
            "memory#1",
            NOTHING,
            "cuGraphLaunch",
            &[
                "node 0 of the graph of call N (operations that wait for values in memory) did not \
                 end in 2 s",
                "changes by call N and later ones",
            ],
        ),
        // The graph is not looked at; the memory is allocated while it waits.
        (
            "graph_awaits_cpu",
            "memory#2",
            NOTHING,
            "cuMemAlloc_v2",
            &["call N: the work after it did not end in 2 s"],
        ),
        (
            "memory_history",
            "memory#1",
            ("CUTAPE_NULL_FAIL", "cuMemsetD32_v2=1"),
            "",
            &[
                "the replay differs from the recording (",
                "`cutape replay` shows it",
            ],
        ),
    ] {
        let trace = recorded(folder, program, NOTHING);
        let output = why(&trace, &[&[memory], &hurried[..]].concat(), setting);
        output.assert_code(0);
        let all = names(&Trace::open(&trace).unwrap());
        let of_function = (0..)
            .zip(&all)
            .filter(|(_, name)| name.starts_with(function));
        let calls: Vec<String> = of_function
            .map(|(call, _): (u64, _)| call.to_string())
            .collect();
        for reason in reasons {
            let texts = calls
                .iter()
                .map(|call| reason.replace(" N", &format!(" {call}")));
            let is_named = texts.chain([(*reason).to_owned()]).any(|text| {
                let mut lines = output.stderr.lines();
                lines
                    .any(|line| line.starts_with("cutape: not looked at: ") && line.contains(&text))
            });
            assert!(is_named, "{program}: {reason}: {}", output.stderr);
        }
        fs::remove_file(&trace).unwrap();
    }
}

fn what_cannot_be_asked_is_refused(folder: &Path) {
    let trace = recorded(folder, "memory_host", NOTHING);
    for (arguments, why_not) in [
        (&["memory#99"][..], "no memory is called memory#99"),
        (&["memory#1+400"], "memory#1 has 4 bytes"),
        (&["here"], "`here` is not a number"),
        (&["--result", "0"], "cuInit, does not copy from memory"),
        (&["--result", "999999"], "the trace has no call 999999"),
        (&["--parameter", "0:0"], "call 0 does not launch a kernel"),
        (&["--parameter", "10:9"], "the kernel has 3 parameters"),
        (&["--parameter", "10:1"], "parameter 1 is not a pointer"),
        (&["memory#1", "--type", "f9"], "not a type of numbers"),
        (&[], "required"),
    ] {
        let output = why(&trace, arguments, NOTHING);
        output.assert_code(2);
        assert!(
            output.stderr.contains(why_not),
            "{arguments:?}: {}",
            output.stderr
        );
    }
}
