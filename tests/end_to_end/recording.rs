//! Recording itself: statuses, files, processes, threads, policies, and that the program does not notice.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use cutape_format::layout::{CHUNK_ALIGNMENT, CHUNK_MAGIC, ChunkHead, chunk_kind};
use cutape_format::{Bytes, Note, Trace, codec};
use cutape_tests::{Output, endings, parts, programs, run};

/// Records on the null driver, with these options before the `--`.
fn record(options: &[&str], trace: &Path, command: &[&str]) -> Output {
    let mut record = parts().cutape(&[&"record", &"--driver", &"null", &"-o", &trace]);
    run(record.args(options).arg("--").args(command))
}

fn ending() -> String {
    endings(parts())
        .unwrap()
        .into_os_string()
        .into_string()
        .unwrap()
}

fn compiled(name: &str) -> String {
    let all = programs().unwrap();
    let program = all.iter().find(|program| program.name == name).unwrap();
    program
        .compile(parts())
        .unwrap()
        .into_os_string()
        .into_string()
        .unwrap()
}

/// Without us, on the null driver.
fn bare(command: &[&str]) -> Output {
    run(Command::new(command[0])
        .args(&command[1..])
        .env("LD_LIBRARY_PATH", &parts().driver_folder))
}

/// The names of all calls.
fn names(trace: &Trace) -> Vec<String> {
    trace
        .calls()
        .map(|call| call.signature.name.clone())
        .collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    files
}

#[test]
fn the_programs_end_is_ours() {
    let folder = parts().new_folder("ends");
    for (how, code) in [
        ("end", 0),
        ("exit", 3),
        ("_exit", 4),
        ("kill", 137),
        ("abort", 134),
        ("fault", 139),
    ] {
        let program = ending();
        let trace = folder.join(format!("{how}.cutape"));
        let output = record(&[], &trace, &[&program, how]);
        output.assert(code);
        assert_eq!(output.stdout, bare(&[&program, how]).stdout, "{how}");
        let trace = Trace::open(&trace).unwrap();
        assert!(trace.verify().is_empty(), "{how}");
        let count = names(&trace)
            .iter()
            .filter(|name| *name == "cuCtxSynchronize")
            .count();
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

#[test]
fn no_driver_call() {
    let folder = parts().new_folder("no-driver-call");
    for (command, code) in [(["sh", "-c", "exit 0"], 0), (["sh", "-c", "exit 7"], 7)] {
        let output = record(&[], &folder.join("t.cutape"), &command);
        output.assert_code(code);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.describe());
        assert!(
            output.stderr.contains("nothing was recorded"),
            "{}",
            output.describe()
        );
        assert!(files(&folder).is_empty());
    }
}

#[test]
fn the_program_does_not_notice() {
    let folder = parts().new_folder("unnoticed");
    // Enough calls that chunks are closed and opened on the way.
    for command in [
        ["errno", "2000"],
        ["descriptors", "30000"],
        ["handler", "100"],
    ] {
        let program = ending();
        let command = [&program, command[0], command[1]];
        let trace = folder.join(format!("{}.cutape", command[1]));
        let output = record(&[], &trace, &command);
        let without = bare(&command);
        without.assert(0);
        output.assert_code(0);
        assert_eq!(output.stdout, without.stdout, "{command:?}");
        if command[1] != "descriptors" {
            output.assert_quiet();
            continue;
        }
        // The file could not be reached any more: what had been written is there, and it says where it ends.
        assert!(output.stderr.lines().count() <= 1, "{}", output.describe());
        let trace = Trace::open(&trace).unwrap();
        assert!(names(&trace).iter().any(|name| name == "cuCtxSynchronize"));
    }
}

#[test]
fn many_calls_are_all_there() {
    let folder = parts().new_folder("many");
    let trace = folder.join("t.cutape");
    record(&["--no-pack"], &trace, &[&ending(), "end", "50000"]).assert(0);
    let packed = folder.join("packed.cutape");
    run(&mut parts().cutape(&[&"pack", &trace, &"-o", &packed])).assert_code(0);
    let (raw, packed) = (Trace::open(&trace).unwrap(), Trace::open(&packed).unwrap());
    let count = names(&raw)
        .iter()
        .filter(|name| *name == "cuCtxSynchronize")
        .count();
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

#[test]
fn a_thread_that_calls_little_has_one_stage() {
    let folder = parts().new_folder("stages");
    let path = folder.join("t.cutape");
    record(&["--no-pack"], &path, &[&ending(), "end", "10"]).assert(0);
    let bytes = fs::read(&path).unwrap();
    let heads = bytes.chunks(CHUNK_ALIGNMENT as usize);
    let kinds = heads
        .filter_map(codec::decode::<ChunkHead>)
        .filter(|(head, _)| head.magic == CHUNK_MAGIC)
        .map(|(head, _)| head.kind);
    let stages = kinds.filter(|kind| *kind == chunk_kind::THREAD_BUFFER);
    assert_eq!(stages.count(), 1);
}

#[test]
fn each_process_has_its_own_trace() {
    let folder = parts().new_folder("processes");
    let program = ending();
    for (name, command, lengths) in [
        ("fork", vec![compiled("clean/fork")], vec![None, None]),
        (
            "exec",
            vec![program.clone(), "exec".into(), "3".into()],
            vec![Some(3), Some(3)],
        ),
        (
            "shell",
            vec![
                "sh".into(),
                "-c".into(),
                format!("{program} end 4; {program} exit 5"),
            ],
            vec![Some(4), Some(5)],
        ),
    ] {
        let place = folder.join(name);
        fs::create_dir(&place).unwrap();
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let output = record(&[], &place.join("t.cutape"), &command);
        output.assert_quiet();
        let mut counts = Vec::new();
        let mut processes = BTreeSet::new();
        for path in files(&place) {
            let trace = Trace::open(&path).unwrap();
            assert!(trace.verify().is_empty(), "{}", path.display());
            processes.insert(trace.head().process);
            let count = names(&trace)
                .iter()
                .filter(|name| *name == "cuCtxSynchronize")
                .count();
            counts.push(count);
            assert!(
                trace.calls().next().is_some(),
                "{}: no call",
                path.display()
            );
        }
        assert_eq!(counts.len(), lengths.len(), "{name}: {:?}", files(&place));
        // A program that becomes another stays the same process.
        assert_eq!(
            processes.len(),
            if name == "exec" { 1 } else { 2 },
            "{name}"
        );
        counts.sort_unstable();
        for (count, wanted) in counts.iter().zip(&lengths) {
            assert!(
                wanted.is_none_or(|wanted| wanted == *count),
                "{name}: {counts:?}"
            );
        }
    }
}

#[test]
fn threads_are_told_apart() {
    let folder = parts().new_folder("threads");
    let path = folder.join("t.cutape");
    record(&[], &path, &[&compiled("clean/threads")]).assert(0);
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
        // Each thread's calls are numbered, and one ends before the next begins.
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

#[test]
fn what_the_trace_says_of_the_run() {
    let folder = parts().new_folder("meta");
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
    // Callers are places in the program.
    assert!(trace.calls().all(|call| call.caller != 0));
    assert!(trace.symbols().any(|(_, text)| text.starts_with("main+")));
}

#[test]
fn a_free_name_is_chosen() {
    let folder = parts().new_folder("names");
    for _ in 0..2 {
        let mut command =
            parts().cutape(&[&"record", &"--driver", &"null", &"--", &ending(), &"end"]);
        run(command.current_dir(&folder)).assert(0);
    }
    let names: Vec<_> = files(&folder)
        .iter()
        .map(|path| path.file_name().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["endings.1.cutape", "endings.cutape"]);
}

#[test]
fn host_memory_that_kernels_see() {
    let folder = parts().new_folder("host-memory");
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
        let output = record(options, &path, &[&program]);
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

/// What is to be of a payload of `length` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Bytes,
    Hash,
    Length,
}

#[test]
fn payload_policies() {
    use Left::{Bytes as All, Hash, Length};
    let folder = parts().new_folder("payloads");
    let program = compiled("clean/copies_linear");
    let raw = folder.join("raw.cutape");
    record(&["--no-pack"], &raw, &[&program]).assert(0);
    // By `record`, and by `pack` of a trace with all bytes.
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
        let recorded = folder.join(format!("recorded{name}.cutape"));
        record(options, &recorded, &[&program]).assert(0);
        let packed = folder.join(format!("packed{name}.cutape"));
        let mut pack = parts().cutape(&[&"pack", &raw, &"-o", &packed]);
        run(pack.args(options)).assert_code(0);
        for path in [recorded, packed] {
            expect_left(&path, up, down);
        }
    }
}

/// Holds what a trace has of each copy against what was asked, and what the tools say of it.
fn expect_left(path: &Path, up: Left, down: Left) {
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
            Bytes::Inline(_) | Bytes::Blob(_) => Left::Bytes,
            Bytes::Hashed(..) => Left::Hash,
            Bytes::Omitted(_) => Left::Length,
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
    let is_hashed = [up, down].contains(&Left::Hash);
    assert_eq!(dumped.contains("blake3 "), is_hashed, "{name}: {dumped}");
    let words = |left| match left {
        Left::Bytes => "all bytes",
        Left::Hash => "only hashes",
        Left::Length => "only lengths",
    };
    let expected = match (words(up), words(down)) {
        (up, down) if up == down => up.to_owned(),
        (up, down) => format!("copied to devices: {up}; that came back: {down}"),
    };
    let info = says("info");
    let line = format!("payloads    {expected}\n");
    assert!(info.contains(&line), "{name}: {info}");

    let replay = run(&mut parts().cutape(&[&"replay", &"--driver", &"null", &path]));
    replay.assert(0);
    let came_back = 49_999;
    let expected = match (up, down) {
        (Left::Bytes, Left::Bytes) => format!("{came_back} compared, 0 not"),
        (Left::Bytes, Left::Hash) => {
            format!("{came_back} compared ({came_back} by their hash), 0 not")
        }
        _ => format!("0 compared, {came_back} not"),
    };
    let line = format!("returned bytes: {expected}\n");
    assert!(replay.stdout.contains(&line), "{name}: {}", replay.stdout);
    let note = match up {
        Left::Bytes => None,
        Left::Hash => Some("the trace has only a hash"),
        Left::Length => Some("left out of the trace"),
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

#[test]
fn bytes_that_are_to_be_hashed_are_there_until_the_trace_is_packed() {
    let folder = parts().new_folder("to-be-hashed");
    let program = compiled("clean/copies_linear");
    let path = folder.join("refused.cutape");
    for option in ["--payloads", "--outputs"] {
        let output = record(&["--no-pack", option, "hash"], &path, &[&program]);
        output.assert_code(2);
        assert_eq!(output.stdout, "", "the program was not started");
        let named = output
            .stderr
            .contains(&format!("{option} hash conflicts with --no-pack"));
        assert!(named, "{}", output.stderr);
        assert!(!path.exists());
    }
    // As a recording that its launcher did not live to pack leaves it.
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
    let line = "payloads    copied to devices: all bytes, only hashes once it is packed; that came back: all bytes\n";
    assert!(info.contains(line), "{info}");
    let packed = run(&mut parts().cutape(&[&"pack", &path]));
    packed.assert_code(0);
    assert!(
        packed.stderr.contains("payloads left out ("),
        "{}",
        packed.stderr
    );
    expect_left(&path, Left::Hash, Left::Bytes);
}
