//! `record --outputs-of-exchanges`: what launches and copies that exchange data with other
//! processes change. The null driver runs no kernel; a setting lets those of the program write 8
//! bytes where their first parameter points.

use std::collections::BTreeMap;
use std::path::Path;

use cutape_format::layout::exchange_skip::{FULL, GRAPH, NONE, REFUSED};
use cutape_format::{Call, Note, Trace};
use cutape_tests::{Browser, Output, Verdict, compile, compiled, names, parts, record, root, run};
use serde_json::Value;

cutape_tests::tests![
    exchanges_are_found_by_the_memory_that_they_reach,
    the_page_shows_exchanges_by_kernel,
    kept_bytes_are_those_that_memory_then_holds,
    nothing_is_kept_without_the_option,
    what_the_driver_refuses_is_left_out,
    a_program_without_exchanges_is_told_so,
    what_cannot_be_is_refused,
];

const KERNELS: (&str, &str) = ("CUTAPE_NULL_NONDETERMINISTIC", "direct@*,through@*");
const LAUNCH: &str = "cuLaunchKernel";

/// Records the program of two ranks.
fn recorded(folder: &Path, options: &[&str], settings: &[(&str, &str)]) -> (Output, [Trace; 2]) {
    let program = folder.join("exchanges");
    let driver = parts().driver_folder.join("libcuda.so.1");
    let source = root().join("tests/programs/ranks/exchanges.c");
    compile(&source, &program, &[&driver, &"-pthread"]);
    let trace = folder.join("run.cutape");
    let mut record = record(&trace, options, &[program.to_str().unwrap()]);
    let output = run(record.envs(settings.iter().copied()));
    output.assert_code(0);
    let ranks = [0, 1].map(|rank| folder.join(format!("run.rank{rank}.cutape")));
    (output, ranks.map(|path| Trace::open(&path).unwrap()))
}

/// An exchange: its function, bytes that are compared and that are not, why not, and the pieces
/// that it has changed: addresses and bytes.
#[derive(Debug)]
struct Exchange {
    function: String,
    number: u64,
    kept: u64,
    left_out: u64,
    reason: u8,
    outputs: Vec<(u64, Vec<u8>)>,
    /// The function of the call that found it complete.
    found_by: Option<String>,
}

/// The exchanges of a trace whose calls are all of one thread.
fn exchanges(trace: &Trace) -> Vec<Exchange> {
    let mut found: BTreeMap<u64, Exchange> = BTreeMap::new();
    for call in trace.calls() {
        for note in call.notes() {
            match note {
                Note::Exchange(note) => {
                    let exchange = Exchange {
                        function: call.signature.base.clone(),
                        number: call.number,
                        kept: note.kept,
                        left_out: note.left_out,
                        reason: note.reason,
                        outputs: Vec::new(),
                        found_by: None,
                    };
                    assert!(found.insert(call.number, exchange).is_none());
                }
                Note::ExchangeOutput(note, snapshot) => {
                    assert_eq!(note.thread, call.thread);
                    let exchange = found.get_mut(&note.number).unwrap();
                    let bytes = trace.resolve(snapshot.bytes).unwrap().into_owned();
                    exchange.outputs.push((note.address, bytes));
                    exchange.found_by = Some(call.signature.base.clone());
                }
                _ => {}
            }
        }
    }
    found.into_values().collect()
}

/// Function, bytes that are compared and that are not, why not, lengths of what changed.
type Row = (&'static str, u64, u64, u8, &'static [usize]);

/// What the comments of the program number.
const EXCHANGES: [Row; 11] = [
    (LAUNCH, 4096, 0, NONE, &[8]),
    // From the address on.
    (LAUNCH, 3584, 0, NONE, &[8]),
    (LAUNCH, 4096, 0, NONE, &[8]),
    (LAUNCH, 4096, 0, NONE, &[8]),
    // Its table, too.
    (LAUNCH, 8192, 0, NONE, &[8]),
    ("cuMemcpyDtoDAsync", 256, 0, NONE, &[256]),
    ("cuMemcpyDtoD", 0, 0, NONE, &[]),
    // The kernel that reads the list is not run.
    (LAUNCH, 4096 - 128, 0, NONE, &[0]),
    (LAUNCH, 0, 4096, GRAPH, &[]),
    (LAUNCH, 0, 2 << 20, FULL, &[]),
    (LAUNCH, 4096, 0, NONE, &[8]),
];

/// Kernel or function, calls, bytes that are compared, that have changed, that are not kept.
const BY_KERNEL: &[(&str, u64, u64, u64, u64)] = &[
    ("direct", 7, 19968, 40, 4096 + (2 << 20)),
    ("cuMemcpyDtoDAsync_v2", 1, 256, 256, 0),
    ("through", 1, 8192, 8, 0),
    ("cuMemcpyDtoD_v2", 1, 0, 0, 0),
    ("listed", 1, 3968, 0, 0),
];

fn compare(found: &[Exchange], expected: &[Row]) {
    let rows: Vec<_> = found
        .iter()
        .map(|exchange| {
            let lengths = exchange.outputs.iter().map(|output| output.1.len());
            let Exchange {
                kept,
                left_out,
                reason,
                ..
            } = *exchange;
            let function = exchange.function.as_str();
            (function, kept, left_out, reason, lengths.collect())
        })
        .collect();
    let expected: Vec<(&str, u64, u64, u8, Vec<usize>)> = expected
        .iter()
        .map(|&(function, kept, left_out, reason, lengths)| {
            (function, kept, left_out, reason, lengths.to_vec())
        })
        .collect();
    assert_eq!(rows, expected);
}

fn exchanges_are_found_by_the_memory_that_they_reach(folder: &Path) {
    let options = ["--outputs-of-exchanges=1M"];
    let (output, ranks) = recorded(folder, &options, &[KERNELS]);
    for trace in &ranks {
        let found = exchanges(trace);
        compare(&found, &EXCHANGES);
        assert_eq!(trace.meta_value("outputs-of-exchanges"), Some("1048576"));
        assert_eq!(trace.threads().len(), 1);
    }
    // One rank waits for its last launch, the other one exits.
    let found_by = |trace| exchanges(trace).pop().unwrap().found_by.unwrap();
    assert_eq!(found_by(&ranks[0]), "cuStreamSynchronize");
    assert_eq!(found_by(&ranks[1]), "cuDriverGetVersion");
    for rank in 0..2 {
        let line = format!(
            "rank{rank}.cutape: of 11 exchanges with other processes: 1 in captures; 1 without \
             room: a larger --outputs-of-exchanges=SIZE gives more; not kept: 2.0 MiB"
        );
        assert!(output.stderr.contains(&line), "{}", output.stderr);
    }
    assert_eq!(output.stderr.lines().count(), 2, "{}", output.stderr);
    // The others say it, too.
    let path = folder.join("run.rank0.cutape");
    let info = run(&mut parts().cutape(&[&"info", &path]));
    let line =
        "11 with other processes: 31.6 KiB of own memory compared, 304 bytes changed and kept";
    let text = info.stdout;
    assert!(text.contains(line), "{text}");
    let info = run(&mut parts().cutape(&[&"info", &"--format", &"json", &path]));
    let json: Value = serde_json::from_str(&info.stdout).unwrap();
    let exchanges = &json["exchanges"];
    assert_eq!(exchanges["calls"], 11, "{exchanges}");
    assert_eq!(exchanges["complete"], 8, "{exchanges}");
    assert_eq!(exchanges["changed_bytes"], 304, "{exchanges}");
    let rows = exchanges["by_kernel"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let number = |key: &str| row[key].as_u64().unwrap();
            let name = row["kernel"].as_str().or(row["function"].as_str()).unwrap();
            (
                name,
                number("calls"),
                number("compared_bytes"),
                number("changed_bytes"),
                number("left_out_bytes"),
            )
        });
    assert_eq!(rows.collect::<Vec<_>>(), BY_KERNEL);
    for line in [
        "\nExchanges with other processes\n",
        "cuLaunchKernel        direct       7   19.5 KiB   40 bytes   2.0 MiB\n",
        "cuMemcpyDtoDAsync_v2",
    ] {
        assert!(text.contains(line), "{text}");
    }
    // With room for all.
    let (output, [first, _]) = recorded(
        &parts().new_folder("exchanges-room"),
        &["--outputs-of-exchanges"],
        &[KERNELS],
    );
    let mut all = EXCHANGES;
    all[9] = (LAUNCH, 2 << 20, 0, NONE, &[8]);
    compare(&self::exchanges(&first), &all);
    assert!(!output.stderr.contains("without room"), "{}", output.stderr);
}

/// `CUTAPE_TESTS_SCREENSHOTS` names a folder for a picture.
fn the_page_shows_exchanges_by_kernel(folder: &Path) -> Verdict {
    let Some(mut browser) = Browser::start(folder) else {
        return Verdict::Ignored("Chromium is not installed: apt-get install chromium".to_owned());
    };
    recorded(folder, &["--outputs-of-exchanges=1M"], &[KERNELS]);
    let page = folder.join("page.html");
    let trace = folder.join("run.rank0.cutape");
    run(&mut parts().cutape(&[&"report", &trace, &"-o", &page])).assert_code(0);
    browser.set_window(1200, 2600, false);
    browser.open(&page, "document.documentElement?.dataset.ready");
    let rows = browser.evaluate(
        "[...[...document.querySelectorAll('table')]\
         .find((table) => table.caption?.textContent === 'Exchanges by kernel')\
         .tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.innerText.trim()))",
    );
    let rows: Vec<Vec<String>> = serde_json::from_value(rows).unwrap();
    let shown = rows.iter().map(|row| (row[0].as_str(), row[1].as_str()));
    let shown: Vec<_> = shown
        .map(|(name, calls)| (name, calls.parse().unwrap()))
        .collect();
    let expected: Vec<(&str, u64)> = BY_KERNEL.iter().map(|row| (row.0, row.1)).collect();
    assert_eq!(shown, expected);
    let text = browser.text("main");
    let line = "11 calls exchanged data with other processes: 31.6 KiB of own memory compared, 304 \
                bytes changed and kept; 1 in captures; ";
    assert!(text.contains(line), "{text}");
    if let Some(folder) = std::env::var_os("CUTAPE_TESTS_SCREENSHOTS") {
        browser.screenshot(&std::path::PathBuf::from(folder).join("exchanges.png"));
    }
    assert!(browser.problems.is_empty(), "{:#?}", browser.problems);
    Verdict::Passed
}

fn kept_bytes_are_those_that_memory_then_holds(folder: &Path) {
    let (_, ranks) = recorded(folder, &["--outputs-of-exchanges"], &[KERNELS]);
    let [own, theirs] = ranks.each_ref().map(|trace| {
        let calls: Vec<Call<'_>> = trace.calls().collect();
        let mut compared = 0;
        let exchanges = exchanges(trace);
        for exchange in &exchanges {
            let call = &calls[exchange.number as usize];
            // The program reads the memory back behind most of them.
            let next = &calls[exchange.number as usize + 1];
            if next.signature.base != "cuMemcpyDtoHAsync" {
                continue;
            }
            let read = next.leave.unwrap().snapshots().next().unwrap();
            let read = trace.resolve(read.bytes).unwrap();
            for (address, bytes) in &exchange.outputs {
                let at = (address - next.argument(1)) as usize;
                assert_eq!(read[at..at + bytes.len()], **bytes, "call {}", call.index);
                compared += 1;
            }
        }
        assert_eq!(compared, 7);
        exchanges[5].outputs[0].1.clone()
    });
    // What a rank has copied is what the other one holds.
    assert_eq!((own, theirs), (vec![0x22; 256], vec![0x11; 256]));
}

fn nothing_is_kept_without_the_option(folder: &Path) {
    let (output, [first, second]) = recorded(folder, &[], &[KERNELS]);
    output.assert_quiet();
    let place = parts().new_folder("exchanges-with");
    let (_, with) = recorded(&place, &["--outputs-of-exchanges"], &[KERNELS]);
    for trace in [&first, &second] {
        assert!(exchanges(trace).is_empty());
        assert_eq!(trace.meta_value("outputs-of-exchanges"), None);
    }
    // The program's calls and their results are the same.
    assert_eq!(names(&first), names(&with[0]));
    let mut expected = names(&second);
    expected.push("cuDriverGetVersion".to_owned());
    assert_eq!(expected, names(&with[1]));
    let results = |trace: &Trace| -> Vec<_> { trace.calls().map(|call| call.result()).collect() };
    assert_eq!(results(&first), results(&with[0]));
}

fn what_the_driver_refuses_is_left_out(folder: &Path) {
    const FAIL: &str = "CUTAPE_NULL_FAIL";
    let refused = (LAUNCH, 0, 4096, REFUSED, &[][..]);
    // Up to the allocation that is made during a capture, which lasts.
    let late: Vec<_> = (1..=6)
        .map(|at| format!("cuMemHostRegister@{at}=2"))
        .collect();
    let late = late.join(",");
    // The program's first copy is number 1.
    for (setting, changed) in [
        ("cuMemcpyDtoHAsync@2=999", &[0][..]),
        ("cuMemcpyDtoHAsync@3=999", &[0]),
        // Without marks, nothing more can be kept in the context.
        ("cuStreamWriteValue32@2=999", &[1, 2, 3, 4, 5, 7, 9, 10]),
        // Where no copy was enqueued, no mark is needed: the second is that of exchange 2.
        (
            "cuMemcpyDtoHAsync@2=999,cuStreamWriteValue32@2=999",
            &[0, 2, 3, 4, 5, 7, 9, 10],
        ),
        ("cuMemHostRegister@*=2", &[0, 1, 2, 3, 4, 5, 7, 9, 10]),
        (&late, &[0, 1, 2, 3, 4, 5, 7]),
    ] {
        let place = folder.join(setting);
        std::fs::create_dir(&place).unwrap();
        let settings = [KERNELS, (FAIL, setting)];
        let (_, [first, _]) = recorded(&place, &["--outputs-of-exchanges"], &settings);
        let mut expected = EXCHANGES;
        expected[9] = (LAUNCH, 2 << 20, 0, NONE, &[8]);
        for &at in changed {
            let (function, kept, ..) = expected[at];
            expected[at] = (function, 0, kept, REFUSED, refused.4);
        }
        compare(&exchanges(&first), &expected);
    }
}

fn a_program_without_exchanges_is_told_so(folder: &Path) {
    let trace = folder.join("run.cutape");
    let program = compiled("clean/launch_vector_add");
    let output = run(&mut record(
        &trace,
        &["--outputs-of-exchanges"],
        &[&program],
    ));
    output.assert_code(0);
    assert_eq!(
        output.stderr,
        "cutape: --outputs-of-exchanges kept nothing: no launch or copy reached memory that a \
         process exported or imported\n"
    );
}

fn what_cannot_be_is_refused(folder: &Path) {
    let program = compiled("clean/launch_vector_add");
    for (options, why) in [
        (
            &["--outputs-of-exchanges", "--payloads", "hash"][..],
            "--outputs-of-exchanges keeps bytes that a replay puts back; --payloads hash leaves \
             them out",
        ),
        (&["--outputs-of-exchanges=1"], "at least 1M is needed"),
        (
            &["--outputs-of-exchanges=much"],
            "much is not a number of bytes such as 256M or 1GiB",
        ),
    ] {
        let trace = folder.join("run.cutape");
        let output = run(&mut record(&trace, options, &[&program]));
        output.assert_code(2);
        assert!(output.stderr.contains(why), "{}", output.stderr);
        assert!(!trace.exists());
    }
}
