//! Recording: exit statuses, files, processes, threads, payload policies; and the program does not
//! notice.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use cutape_format::layout::{CHUNK_ALIGNMENT, CHUNK_MAGIC, ChunkHead, chunk_kind};
use cutape_format::{Bytes, Note, Trace, codec};
use cutape_tests::{
    Output, Screen, bare, calls_of, compiled, ending, files, names, parts, record, replay, run,
};

cutape_tests::tests![
    the_exit_status_is_the_programs,
    a_program_without_driver_calls,
    a_trace_is_deleted_while_it_is_recorded,
    the_program_does_not_notice,
    many_calls_are_all_there,
    a_thread_with_few_calls_has_one_thread_buffer,
    each_process_has_its_own_trace,
    the_named_program_has_the_plain_name,
    each_call_has_its_thread,
    calls_inside_calls_are_noted,
    the_trace_describes_the_run,
    a_free_name_is_chosen,
    a_terminal_shows_what_was_recorded,
    host_memory_that_kernels_read,
    copies_to_pageable_memory_have_their_bytes,
    readbacks_come_with_the_call_that_proves_them,
    copies_that_may_be_captured_have_no_bytes,
    unchanged_memory_is_written_once,
    payload_policies,
    bytes_are_hashed_when_the_trace_is_packed,
];

/// Records on the null driver, with these options before the `--`.
fn recorded(options: &[&str], trace: &Path, command: &[&str]) -> Output {
    run(&mut record(trace, options, command))
}

fn a_trace_is_deleted_while_it_is_recorded(folder: &Path) {
    let trace = folder.join("run.cutape");
    let script = r#""$0" end; rm "$1""#;
    let words = ["sh", "-c", script, &ending(), &trace.to_string_lossy()];
    let output = recorded(&[], &trace, &words);
    output.assert_code(0);
    let last = output.stderr.lines().last();
    assert_eq!(
        last,
        Some(
            "cutape: nothing was recorded: run.cutape was deleted while the program ran; record \
             it again"
        ),
        "{}",
        output.describe()
    );
}

fn the_exit_status_is_the_programs(folder: &Path) {
    for (how, code) in [
        ("end", 0),
        ("destructor", 0),
        ("exit", 3),
        ("_exit", 4),
        ("kill", 137),
        ("abort", 134),
        ("fault", 139),
    ] {
        let program = ending();
        let trace = folder.join(format!("{how}.cutape"));
        let output = recorded(&[], &trace, &[&program, how]);
        output.assert(code);
        assert_eq!(output.stdout, bare(&[&program, how]).stdout, "{how}");
        let trace = Trace::open(&trace).unwrap();
        assert!(trace.verify().is_empty(), "{how}");
        let count = calls_of(&trace, "cuCtxSynchronize");
        assert_eq!(count, 10, "{how}");
        assert!(
            trace.calls().all(|call| call.leave.is_some()),
            "{how}: a call in flight"
        );
        let (key, value) = if code > 128 {
            ("exit.signal", code - 128)
        } else {
            ("exit.status", code)
        };
        assert_eq!(
            trace.meta_value(key),
            Some(value.to_string().as_str()),
            "{how}"
        );
    }
}

fn a_program_without_driver_calls(folder: &Path) {
    for (command, code) in [(["sh", "-c", "exit 0"], 0), (["sh", "-c", "exit 7"], 7)] {
        let output = recorded(&[], &folder.join("t.cutape"), &command);
        output.assert_code(code);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.describe());
        assert!(
            output.stderr.contains("nothing was recorded"),
            "{}",
            output.describe()
        );
        assert!(files(folder).is_empty());
    }
}

fn the_program_does_not_notice(folder: &Path) {
    // With 30,000 calls the recorder extends its file while the program holds every descriptor up
    // to 700.
    for (how, calls) in [("errno", 2000), ("descriptors", 30_000), ("handler", 100)] {
        let command = [&*ending(), how, &calls.to_string()];
        let trace = folder.join(format!("{how}.cutape"));
        let output = recorded(&[], &trace, &command);
        let without = bare(&command);
        without.assert(0);
        output.assert(0);
        assert_eq!(output.stdout, without.stdout, "{how}");
        let trace = Trace::open(&trace).unwrap();
        assert!(trace.calls().count() >= calls, "{how}");
    }
}

fn many_calls_are_all_there(folder: &Path) {
    let trace = folder.join("t.cutape");
    recorded(&["--no-pack"], &trace, &[&ending(), "end", "50000"]).assert(0);
    let packed = folder.join("packed.cutape");
    run(&mut parts().cutape(&[&"pack", &trace, &"-o", &packed])).assert_code(0);
    let (raw, packed) = (Trace::open(&trace).unwrap(), Trace::open(&packed).unwrap());
    let count = calls_of(&raw, "cuCtxSynchronize");
    assert_eq!(count, 50_000);
    assert_eq!(names(&raw), names(&packed));
    let smaller = |path: &Path| path.metadata().unwrap().len();
    assert!(smaller(packed.path()) < smaller(raw.path()) / 2);
    assert!(
        raw.calls()
            .zip(packed.calls())
            .all(|(a, b)| a.ticks == b.ticks && a.caller == b.caller)
    );
}

fn a_thread_with_few_calls_has_one_thread_buffer(folder: &Path) {
    let path = folder.join("t.cutape");
    recorded(&["--no-pack"], &path, &[&ending(), "end", "10"]).assert(0);
    let bytes = fs::read(&path).unwrap();
    let heads = bytes.chunks(CHUNK_ALIGNMENT as usize);
    let kinds = heads
        .filter_map(codec::decode::<ChunkHead>)
        .filter(|(head, _)| head.magic == CHUNK_MAGIC)
        .map(|(head, _)| head.kind);
    let buffers = kinds.filter(|kind| *kind == chunk_kind::THREAD_BUFFER);
    assert_eq!(buffers.count(), 1);
}

fn each_process_has_its_own_trace(folder: &Path) {
    let program = ending();
    let shell = format!("{program} end 4; {program} exit 5");
    // A program that calls exec stays the same process.
    for (name, command, status, process_count, expected) in [
        ("fork", &[&*compiled("clean/fork")][..], 0, 2, [0, 1]),
        ("exec", &[&*program, "exec", "3"], 0, 1, [3, 3]),
        ("shell", &["sh", "-c", &*shell], 3, 2, [4, 5]),
    ] {
        let place = folder.join(name);
        fs::create_dir(&place).unwrap();
        recorded(&[], &place.join("t.cutape"), command).assert(status);
        let mut counts = Vec::new();
        let mut processes = BTreeSet::new();
        for path in files(&place) {
            let trace = Trace::open(&path).unwrap();
            assert!(trace.verify().is_empty(), "{}", path.display());
            processes.insert(trace.head().process);
            counts.push(calls_of(&trace, "cuCtxSynchronize"));
            assert!(
                trace.calls().next().is_some(),
                "{}: no call",
                path.display()
            );
        }
        counts.sort_unstable();
        assert_eq!(counts, expected, "{name}");
        assert_eq!(processes.len(), process_count, "{name}");
    }
}

fn the_named_program_has_the_plain_name(folder: &Path) {
    let program = ending();
    // A shell that calls exec becomes the program, and stays the process that was started.
    for (name, script, count, plain) in [
        (
            "child-first",
            format!("{program} end 4; exec {program} end 6"),
            2,
            6,
        ),
        (
            "children-only",
            format!("{program} end 4; {program} end 6; true"),
            2,
            4,
        ),
    ] {
        let place = folder.join(name);
        fs::create_dir(&place).unwrap();
        let path = place.join("t.cutape");
        recorded(&[], &path, &["sh", "-c", &script]).assert(0);
        assert_eq!(files(&place).len(), count, "{name}");
        for file in files(&place) {
            let trace = Trace::open(&file).unwrap();
            let calls = calls_of(&trace, "cuCtxSynchronize");
            assert_eq!(
                calls,
                if file == path { plain } else { 10 - plain },
                "{name}"
            );
            let process = format!("t.{}.cutape", trace.head().process);
            assert!(
                file == path || file.ends_with(process),
                "{}",
                file.display()
            );
        }
    }
}

fn each_call_has_its_thread(folder: &Path) {
    let path = folder.join("t.cutape");
    recorded(&[], &path, &[&compiled("clean/threads")]).assert(0);
    let trace = Trace::open(&path).unwrap();
    let mut launches: BTreeMap<u32, u32> = BTreeMap::new();
    let mut last: BTreeMap<u32, u64> = BTreeMap::new();
    let mut before = 0;
    for (position, call) in trace.calls().enumerate() {
        assert_eq!(call.index, position as u64);
        assert!(
            call.ticks >= before,
            "call {position} was entered before the one before"
        );
        before = call.ticks;
        // The calls of a thread are numbered.
        let number = last.entry(call.thread).or_insert(0);
        assert_eq!(call.number, *number, "thread {}", call.thread);
        *number += 1;
        assert!(call.leave.is_some_and(|leave| leave.ticks >= call.ticks));
        if call.signature.base == "cuLaunchKernel" {
            *launches.entry(call.thread).or_default() += 1;
        }
    }
    assert_eq!(trace.thread_count(), 5);
    let workers: Vec<_> = launches.iter().filter(|(_, count)| **count == 50).collect();
    assert_eq!(workers.len(), 4, "{launches:?}");
    let numbers: BTreeSet<u32> = trace.threads().iter().map(|thread| thread.number).collect();
    assert_eq!(
        numbers.len(),
        5,
        "each has its own number of the operating system"
    );
}

/// Each call that was made inside another one: the outer, the inner, and its result.
fn nested_calls(trace: &Path) -> Vec<String> {
    let trace = Trace::open(trace).unwrap();
    let mut found = Vec::new();
    for call in trace.calls() {
        for note in call.notes() {
            if let Note::NestedCall(note) = note {
                let (outer, inner) = (call.signature, trace.signature(note.function));
                found.push(format!("{}: {} {}", outer.name, inner.name, note.result));
            }
        }
    }
    found
}

/// A callback and a destructor, which the driver runs in the thread of the call.
fn calls_inside_calls_are_noted(folder: &Path) {
    let trace = folder.join("callback.cutape");
    recorded(&[], &trace, &[&ending(), "callback"]).assert(0);
    assert_eq!(
        nested_calls(&trace),
        ["cuMemAlloc_v2: cuDriverGetVersion 0"]
    );
    assert_eq!(
        calls_of(&Trace::open(&trace).unwrap(), "cuDriverGetVersion"),
        0
    );

    let trace = folder.join("destructor.cutape");
    let program = compiled("misuse/destructor-frees/violation");
    recorded(&[], &trace, &[&program]).assert(0);
    let expected = [
        "cuGraphDestroy: cuCtxGetCurrent 800",
        "cuGraphDestroy: cuMemFree_v2 800",
    ];
    assert_eq!(nested_calls(&trace), expected);
    for (format, part) in [
        (
            "text",
            "note: the program called cuMemFree_v2 inside this call: CUDA_ERROR_NOT_PERMITTED (from",
        ),
        (
            "json",
            r#""function":"cuMemFree_v2","kind":"nested_call","result":"CUDA_ERROR_NOT_PERMITTED""#,
        ),
    ] {
        let dump = run(&mut parts().cutape(&[&"dump", &"--format", &format, &trace]));
        assert!(dump.stdout.contains(part), "{}", dump.stdout);
    }
}

fn the_trace_describes_the_run(folder: &Path) {
    let path = folder.join("t.cutape");
    let program = ending();
    let mut command = parts().cutape(&[&"record", &"--driver", &"null", &"-o", &path, &"--"]);
    command
        .args([&program, "end", "1"])
        .env("CUDA_MODULE_LOADING", "EAGER");
    run(&mut command).assert(0);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let trace = Trace::open(&path).unwrap();
    for (key, value) in [
        ("program", program.as_str()),
        ("argument.0", program.as_str()),
        ("argument.1", "end"),
        ("environment.CUDA_MODULE_LOADING", "EAGER"),
        ("driver.kind", "null"),
        ("driver.version", "13000"),
        ("device.count", "1"),
        ("device.0.compute-capability", "9.0"),
        ("payloads", "all"),
        ("exit.status", "0"),
    ] {
        assert_eq!(trace.meta_value(key), Some(value), "{key}");
    }
    // Callers are addresses in the program.
    assert!(trace.calls().all(|call| call.caller != 0));
    assert!(trace.symbols().any(|(_, text)| text.starts_with("main+")));
}

fn a_free_name_is_chosen(folder: &Path) {
    for _ in 0..2 {
        let mut command =
            parts().cutape(&[&"record", &"--driver", &"null", &"--", &ending(), &"end"]);
        run(command.current_dir(folder)).assert(0);
    }
    let names: Vec<_> = files(folder)
        .iter()
        .map(|path| path.file_name().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["endings.1.cutape", "endings.cutape"]);
}

fn a_terminal_shows_what_was_recorded(folder: &Path) {
    let program = ending();
    let both = format!("{program} end 4; {program} end 4; true");
    // Ranks are also checked against each other, which takes the folder.
    let rank = format!("RANK=3 {program} end; true");
    for (name, command, text, next) in [
        (
            "one",
            vec![&*program, "end"],
            "of 1 process in one.cutape;",
            "one.cutape",
        ),
        (
            "two",
            vec!["sh", "-c", &both],
            "of 2 processes in two.cutape and two.",
            "two.cutape",
        ),
        (
            "ranks",
            vec!["sh", "-c", &rank],
            "of 1 process in ranks.rank3.cutape;",
            ".",
        ),
    ] {
        let trace = format!("{name}.cutape");
        let mut recording = record(Path::new(&trace), &[], &command);
        recording.current_dir(folder);
        let screen = Screen::start(recording, (24, 200));
        screen.shows(&[text, &format!("; next: cutape check {next}")]);
        screen.ends(0);
        // On no terminal nothing is said: `recorded` of other tests expects that.
        let mut quiet = record(Path::new("quiet.cutape"), &["-q", "--overwrite"], &command);
        quiet.current_dir(folder);
        let screen = Screen::start(quiet, (24, 200));
        screen.shows(&["begun"]);
        let shown = screen.ends(0);
        assert!(!shown.contains("cutape:"), "{shown}");
    }
}

fn host_memory_that_kernels_read(folder: &Path) {
    let program = compiled("clean/host_visible");
    let expected = bare(&[&program]).stdout;
    let table: [(&str, &[&str]); 4] = [
        ("default", &[]),
        ("all", &["--host-memory", "all"]),
        ("off", &["--host-memory", "off"]),
        ("left-out", &["--payloads", "none"]),
    ];
    let mut counts = BTreeMap::new();
    for (name, options) in table {
        let path = folder.join(format!("{name}.cutape"));
        let output = recorded(options, &path, &[&program]);
        output.assert(0);
        assert_eq!(output.stdout, expected, "{name}");
        let trace = Trace::open(&path).unwrap();
        assert!(trace.verify().is_empty(), "{name}");
        let (mut here, mut left_out, mut skipped) = (0, 0, 0);
        for call in trace.calls() {
            for note in call.notes() {
                match note {
                    Note::HostChanged(_, snapshot) => match snapshot.bytes {
                        Bytes::Omitted(_) => left_out += 1,
                        Bytes::Blob(blob) => here += usize::from(trace.blob(blob).is_ok()),
                        _ => here += 1,
                    },
                    Note::HostSkipped(note) => {
                        assert_eq!(note.length, 65 << 20);
                        skipped += 1;
                    }
                    _ => {}
                }
            }
        }
        counts.insert(name, (here, left_out, skipped));
        let mut replay = parts().cutape(&[&"replay", &"--driver", &"null", &path]);
        run(&mut replay).assert(i32::from(name == "off"));
    }
    assert_eq!(counts["off"], (0, 0, 0));
    let (here, left_out, skipped) = counts["default"];
    assert!(here > 100, "{here}");
    assert_eq!((left_out, skipped), (0, 1), "the long range is named once");
    assert!(counts["all"].0 >= here);
    assert_eq!(counts["left-out"], (0, here, 1));
}

/// The program reuses heap memory right behind an asynchronous copy to it, and waits for copies to
/// pinned memory and for batches in stream order.
fn copies_to_pageable_memory_have_their_bytes(folder: &Path) {
    let path = folder.join("t.cutape");
    recorded(&[], &path, &[&compiled("clean/copies_reused_heap")]).assert(0);
    let trace = Trace::open(&path).unwrap();
    assert!(trace.verify().is_empty());
    let is_right = |bytes: Bytes<'_>| {
        let bytes = match bytes {
            Bytes::Inline(bytes) => bytes.to_vec(),
            Bytes::Blob(blob) => trace.blob(blob).unwrap().to_vec(),
            other => panic!("{other:?}"),
        };
        // The second half of the batch begins in the middle of the source.
        let start = if bytes[0] == 0 { 0 } else { 384_usize };
        let value = |index: usize| (index * 7 + index / 256) as u8;
        assert!(
            bytes
                .iter()
                .zip(start..)
                .all(|(&byte, at)| byte == value(at))
        );
    };
    // Copies by name: with bytes in the leave record, in a note of the call, in one of a later
    // call.
    let mut counts: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    let copies = trace.calls().filter(|call| {
        call.signature.base.starts_with("cuMemcpy") && call.signature.base.ends_with("Async")
    });
    let names: BTreeMap<(u32, u64), String> = copies
        .map(|call| ((call.thread, call.number), call.signature.name.clone()))
        .collect();
    for call in trace.calls() {
        for note in call.notes() {
            if let Note::Readback(note, snapshot) = note {
                is_right(snapshot.bytes);
                let is_own = note.number == call.number;
                let name = names[&(note.thread, note.number)].clone();
                counts.entry(name).or_default()[if is_own { 1 } else { 2 }] += 1;
            }
        }
        if let Some(name) = names.get(&(call.thread, call.number)) {
            for snapshot in call.leave.unwrap().snapshots() {
                is_right(snapshot.bytes);
                counts.entry(name.clone()).or_default()[0] += 1;
            }
        }
    }
    let expected = [
        ("cuMemcpy2DAsync_v2", [1, 0, 1]),
        ("cuMemcpy2DAsync_v2_ptsz", [1, 0, 1]),
        ("cuMemcpy3DAsync_v2", [1, 0, 1]),
        ("cuMemcpy3DAsync_v2_ptsz", [1, 0, 1]),
        ("cuMemcpy3DBatchAsync_v2", [0, 1, 3]),
        ("cuMemcpy3DPeerAsync", [1, 0, 1]),
        ("cuMemcpyAsync", [1, 0, 1]),
        ("cuMemcpyAsync_ptsz", [1, 0, 1]),
        ("cuMemcpyAtoHAsync_v2", [1, 0, 1]),
        ("cuMemcpyBatchAsync_v2", [0, 2, 4]),
        ("cuMemcpyDtoHAsync_v2", [1, 0, 1]),
        ("cuMemcpyDtoHAsync_v2_ptsz", [1, 0, 1]),
    ];
    let expected = expected.map(|(name, counts)| (name.to_owned(), counts));
    assert_eq!(counts, BTreeMap::from(expected));
}

/// The bytes of a copy to pinned memory are taken by the first call that proves it complete, not by
/// one that was entered before, or waits for something else.
fn readbacks_come_with_the_call_that_proves_them(folder: &Path) {
    let path = folder.join("t.cutape");
    let program = compiled("clean/readback_proofs");
    let mut command = record(&path, &[], &[&program]);
    command.env("CUTAPE_NULL_DELAY", "cuCtxSynchronize@1=200ms");
    run(&mut command).assert(0);
    let trace = Trace::open(&path).unwrap();
    let mut proofs = Vec::new();
    for call in trace.calls() {
        for note in call.notes() {
            if let Note::Readback(_, snapshot) = note {
                let bytes = trace.resolve(snapshot.bytes).unwrap();
                assert!(
                    bytes.iter().all(|byte| *byte == bytes[0]),
                    "call {}",
                    call.index
                );
                proofs.push((bytes[0], call.signature.name.clone()));
            }
        }
    }
    let expected = [
        (1, "cuStreamSynchronize"),
        (2, "cuCtxSynchronize"),
        (3, "cuEventSynchronize"),
        (4, "cuStreamSynchronize"),
        (5, "cuMemcpyDtoH_v2"),
        (10, "cuStreamSynchronize"),
        (11, "cuStreamSynchronize"),
        (12, "cuStreamSynchronize"),
        (13, "cuStreamSynchronize"),
    ];
    let expected = expected.map(|(value, name)| (value, name.to_owned()));
    assert_eq!(proofs, expected);
}

/// A driver that does not say whether a stream captures: a captured copy writes nothing, and what is
/// there later is not its work.
fn copies_that_may_be_captured_have_no_bytes(folder: &Path) {
    let path = folder.join("t.cutape");
    let program = compiled("clean/host_function_changes");
    let mut command = record(&path, &[], &[&program]);
    command.env("CUTAPE_NULL_FAIL", "cuStreamIsCapturing@*=700");
    run(&mut command).assert(0);
    let trace = Trace::open(&path).unwrap();
    let names = names(&trace);
    let position = |wanted: &str| names.iter().position(|name| name == wanted).unwrap() as u64;
    let captured = position("cuStreamBeginCapture_v2")..position("cuStreamEndCapture");
    for call in trace.calls() {
        for note in call.notes() {
            if let Note::Readback(copy, _) = note {
                assert!(!captured.contains(&copy.number), "call {}", call.index);
            }
        }
    }
    run(&mut replay(&path)).assert(0);
}

/// A loop that copies the same large buffers again and again: the trace has the bytes of each copy,
/// and equal ones only once.
fn unchanged_memory_is_written_once(folder: &Path) {
    const MIB: u64 = 1 << 20;
    const ROUNDS: u64 = 16;
    let raw = folder.join("raw.cutape");
    recorded(&["--no-pack"], &raw, &[&compiled("clean/registered_loop")]).assert(0);
    let trace = Trace::open(&raw).unwrap();
    assert!(trace.verify().is_empty());
    let mut copied = 0;
    let (mut blobs, mut contents) = (BTreeSet::new(), BTreeSet::new());
    for call in trace.calls() {
        let sources = call.snapshots();
        let readbacks = call.notes().filter_map(|note| match note {
            Note::Readback(_, snapshot) => Some(snapshot),
            _ => None,
        });
        for snapshot in sources.chain(readbacks) {
            if let Bytes::Blob(blob) = snapshot.bytes {
                let bytes = trace.resolve(snapshot.bytes).unwrap();
                assert_eq!(bytes.len() as u64, blob.length);
                contents.insert(bytes);
                copied += blob.length;
                blobs.insert((blob.position, blob.length));
            }
        }
    }
    // Two buffers of a MiB, and that of a graph: once when it is captured, and at each launch.
    assert_eq!(copied, (2 * ROUNDS + 5) * MIB);
    let written: u64 = blobs.iter().map(|blob| blob.1).sum();
    assert_eq!(
        written,
        contents.iter().map(|bytes| bytes.len() as u64).sum::<u64>()
    );
    assert_eq!(written / (MIB / 4), 11, "{written} bytes");
    run(&mut replay(&raw)).assert_code(0);
}

/// What a trace has of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Payload {
    Bytes,
    Hash,
    Length,
}

fn payload_policies(_: &Path) {
    use Payload::{Bytes as All, Hash, Length};
    let folder = parts().new_folder("payloads");
    let program = compiled("clean/copies_linear");
    let raw = folder.join("raw.cutape");
    recorded(&["--no-pack"], &raw, &[&program]).assert(0);
    // With `record`, and with `pack` of a trace that has all bytes.
    for (options, up, down) in [
        (&[][..], All, All),
        (&["--payloads", "none"], Length, All),
        (&["--outputs", "none"], All, Length),
        (&["--payloads", "none", "--outputs", "none"], Length, Length),
        (&["--payloads", "hash"], Hash, All),
        (&["--outputs", "hash"], All, Hash),
        (&["--payloads", "hash", "--outputs", "hash"], Hash, Hash),
        (&["--payloads", "hash", "--outputs", "none"], Hash, Length),
    ] {
        let name = options.concat();
        let direct = folder.join(format!("recorded{name}.cutape"));
        recorded(options, &direct, &[&program]).assert(0);
        let packed = folder.join(format!("packed{name}.cutape"));
        let mut pack = parts().cutape(&[&"pack", &raw, &"-o", &packed]);
        run(pack.args(options)).assert_code(0);
        for path in [direct, packed] {
            expect_payloads(&path, up, down);
        }
    }
}

/// Checks what a trace has of each copy, and what the verbs print about it.
fn expect_payloads(path: &Path, up: Payload, down: Payload) {
    let name = path.display();
    let trace = Trace::open(path).unwrap();
    assert!(trace.verify().is_empty(), "{name}");
    let mut seen = [0_u64; 2];
    for call in trace.calls() {
        let (snapshot, side, expected) = match call.signature.base.as_str() {
            "cuMemcpyHtoD" => (call.snapshot(1, 0), 0, up),
            "cuMemcpyDtoH" => (call.leave.unwrap().snapshot(0, 0), 1, down),
            _ => continue,
        };
        let bytes = snapshot.unwrap().bytes;
        let left = match bytes {
            Bytes::Inline(_) | Bytes::Blob(_) => Payload::Bytes,
            Bytes::Hashed(..) => Payload::Hash,
            Bytes::Omitted(_) => Payload::Length,
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(left, expected, "{name}: call {}", call.index);
        assert_eq!(bytes.length(), Some(call.argument(2)), "{name}");
        seen[side] += 1;
    }
    assert!(seen.iter().all(|&copies| copies > 0), "{name}: {seen:?}");

    let says = |verb: &str| {
        let output = run(&mut parts().cutape(&[&verb, &path]));
        output.assert(0);
        output.stdout
    };
    assert_eq!(says("check"), format!("{name}: no findings\n"));
    let dumped = says("dump");
    let is_hashed = [up, down].contains(&Payload::Hash);
    assert_eq!(dumped.contains("blake3 "), is_hashed, "{name}: {dumped}");
    let words = |left| match left {
        Payload::Bytes => "all bytes",
        Payload::Hash => "only hashes",
        Payload::Length => "only lengths",
    };
    let expected = match (words(up), words(down)) {
        (up, down) if up == down => up.to_owned(),
        (up, down) => format!("copied to devices: {up}; copied from devices: {down}"),
    };
    let info = says("info");
    let line = format!("payloads    {expected}\n");
    assert!(info.contains(&line), "{name}: {info}");

    let replay = run(&mut replay(path));
    replay.assert(0);
    // By five copies: two of them asynchronous, or from and to any address.
    let came_back = 49_999;
    let expected = match (up, down) {
        (Payload::Bytes, Payload::Bytes) => format!("{came_back} returned bytes (5 copies), 0 not"),
        (Payload::Bytes, Payload::Hash) => {
            format!("{came_back} returned bytes (5 copies, {came_back} by hash), 0 not")
        }
        _ => format!("0 returned bytes (0 copies), {came_back} not"),
    };
    let line = format!("compared: {expected};");
    assert!(replay.stdout.contains(&line), "{name}: {}", replay.stdout);
    let note = match up {
        Payload::Bytes => None,
        Payload::Hash => Some("the trace has only a hash"),
        Payload::Length => Some("left out of the trace"),
    };
    let notes: Vec<_> = replay
        .stdout
        .lines()
        .filter(|line| line.starts_with("note:"))
        .collect();
    assert_eq!(
        notes.len(),
        usize::from(note.is_some()),
        "{name}: {notes:?}"
    );
    assert!(
        note.is_none_or(|note| notes[0].contains(note)),
        "{name}: {notes:?}"
    );
}

fn bytes_are_hashed_when_the_trace_is_packed(folder: &Path) {
    let program = compiled("clean/copies_linear");
    let path = folder.join("refused.cutape");
    for option in ["--payloads", "--outputs"] {
        let output = recorded(&["--no-pack", option, "hash"], &path, &[&program]);
        output.assert_code(2);
        assert_eq!(output.stdout, "", "the program was not started");
        let named = output
            .stderr
            .contains(&format!("{option} hash conflicts with --no-pack"));
        assert!(named, "{}", output.stderr);
        assert!(!path.exists());
    }
    // As a recorder that was killed leaves it: not packed.
    let path = folder.join("left.cutape");
    let mut alone = std::process::Command::new(&program);
    alone
        .env("LD_PRELOAD", &parts().interposer)
        .env("CUTAPE_DRIVER", &parts().null_driver)
        .env("CUTAPE_TRACE", &path)
        .env("CUTAPE_PAYLOADS", "hash")
        .env("LD_LIBRARY_PATH", &parts().driver_folder);
    run(&mut alone).assert(0);
    let info = run(&mut parts().cutape(&[&"info", &path])).stdout;
    let line = "payloads    copied to devices: all bytes, only hashes once packed; copied from devices: all bytes\n";
    assert!(info.contains(line), "{info}");
    let packed = run(&mut parts().cutape(&[&"pack", &path]));
    packed.assert_code(0);
    assert!(
        packed.stderr.contains("payloads left out ("),
        "{}",
        packed.stderr
    );
    expect_payloads(&path, Payload::Hash, Payload::Bytes);
}
