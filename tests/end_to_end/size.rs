//! What keeps traces small while they are recorded: payloads that are in a file of the program's data
//! are referred to, and equal ones are written once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cutape_format::{Bytes, Error, Trace};
use cutape_tests::{Verdict, bare, compile, parts, record, replay, root, run};

cutape_tests::tests![
    mapped_files_are_referred_to,
    equal_payloads_are_written_once,
    payloads_go_before_calls,
    the_longest_payloads_go_first,
    what_needs_no_room_is_kept,
    a_trace_stops_at_its_limit,
    little_space_is_said_in_time,
    the_last_of_the_disk_is_for_calls,
];

/// Bytes of the data file.
const LENGTH: usize = 16 << 20;

/// Changes a file that had these bytes.
type Change = fn(&Path, &[u8]);

/// A file whose pages differ.
fn data_file(folder: &Path) -> PathBuf {
    let path = folder.join("weights.bin");
    let words = (0..LENGTH as u64 / 8).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let content: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    fs::write(&path, content).unwrap();
    path
}

/// A program of `tests/programs/size/`.
pub(super) fn program(folder: &Path, name: &str) -> String {
    let program = folder.join(name);
    let driver = parts().driver_folder.join("libcuda.so.1");
    let source = root().join(format!("tests/programs/size/{name}.c"));
    compile(&source, &program, &[&driver]);
    program.to_str().unwrap().to_owned()
}

/// How many payloads of the program's uploads are in the file, and how many in the trace.
fn payloads(trace: &Trace) -> (usize, usize) {
    let mut found = (0, 0);
    for call in trace.calls() {
        for snapshot in call
            .snapshots()
            .filter(|_| call.signature.base == "cuMemcpyHtoD")
        {
            match snapshot.bytes {
                Bytes::InFile(range) => {
                    assert!(range.digest.is_some() && range.build_id.is_empty());
                    found.0 += 1;
                }
                Bytes::Blob(_) => found.1 += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    found
}

fn length_of(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

fn mapped_files_are_referred_to(folder: &Path) {
    let file = data_file(folder);
    let program = program(folder, "uploads");
    let (raw, packed) = (folder.join("raw.cutape"), folder.join("packed.cutape"));
    let program = [&*program, file.to_str().unwrap(), "memory"];
    let expected = bare(&program).stdout;
    let output = run(&mut record(
        &raw,
        &["--no-pack", "--outputs", "none"],
        &program,
    ));
    output.assert(0);
    output.assert_quiet();
    assert_eq!(output.stdout, expected);
    // Without the bytes that come back, only the mapping that was changed.
    let trace = Trace::open(&raw).unwrap();
    assert_eq!(payloads(&trace), (3, 2));
    let length = length_of(&raw);
    assert!(length < 3 * LENGTH as u64, "{length}");
    run(&mut replay(&raw)).assert(0);

    let output = run(&mut record(&packed, &[], &program));
    output.assert(0);
    output.assert_quiet();
    let trace = Trace::open(&packed).unwrap();
    assert_eq!(trace.verify(), []);
    let summary = trace.walk().run(|_| Ok::<_, Error>(())).unwrap();
    let files = summary.payload_files(&trace);
    assert_eq!((files.len(), files[0].parts), (1, 1), "{files:?}");
    assert_eq!((files[0].bytes, &files[0].changed), (LENGTH as u64, &None));
    run(&mut replay(&packed)).assert(0);
    let info = run(&mut parts().cutape(&[&"info", &packed]));
    for words in ["Data files", "weights.bin", "16.0 MiB", "as it was"] {
        assert!(info.stdout.contains(words), "{words}: {}", info.describe());
    }

    // Another time alone is no change.
    let content = fs::read(&file).unwrap();
    fs::write(&file, &content).unwrap();
    run(&mut replay(&packed)).assert(0);
    let embedded = folder.join("embedded.cutape");
    let mut pack = parts().cutape(&[&"pack", &"--embed", &packed, &"-o", &embedded]);
    let output = run(&mut pack);
    output.assert_code(0);
    // What comes back from the device has these bytes already.
    assert!(!output.stderr.contains("repeated"), "{}", output.describe());
    run(&mut parts().cutape(&[&"check", &packed])).assert(0);

    let changes: [(&str, Change); 3] = [
        ("has changed since the recording", |file, content| {
            let mut content = content.to_vec();
            content[LENGTH / 4] ^= 1;
            fs::write(file, content).unwrap();
        }),
        (
            "has changed since the recording (1000 bytes, then",
            |file, content| {
                fs::write(file, &content[..1000]).unwrap();
            },
        ),
        ("No such file", |file, _| fs::remove_file(file).unwrap()),
    ];
    for (why, change) in changes {
        change(&file, &content);
        let output = run(&mut replay(&packed));
        output.assert_code(2);
        for words in [
            "data files",
            "weights.bin",
            why,
            "put the file",
            "pack --embed",
        ] {
            assert!(
                output.stderr.contains(words),
                "{words}: {}",
                output.describe()
            );
        }
        run(replay(&packed).arg("--force")).assert_code(1);
        let info = run(&mut parts().cutape(&[&"info", &packed]));
        info.assert(0);
        assert!(info.stdout.contains(why), "{}", info.describe());
        let dump = run(&mut parts().cutape(&[&"dump", &packed]));
        dump.assert(0);
        let again = folder.join("again.cutape");
        let mut pack = parts().cutape(&[&"pack", &"--embed", &packed, &"-o", &again]);
        let output = run(&mut pack);
        output.assert_code(0);
        let line = format!("{LENGTH} bytes of a payload are not in the trace: ");
        assert!(output.stderr.contains(&line), "{}", output.describe());
        fs::remove_file(&again).unwrap();
        // What has the bytes needs no file.
        run(&mut replay(&embedded)).assert(0);
    }
}

fn equal_payloads_are_written_once(folder: &Path) {
    let file = data_file(folder);
    let path = folder.join("t.cutape");
    let program = program(folder, "uploads");
    let program = [&*program, file.to_str().unwrap(), "file", "nothing"];
    run(&mut record(&path, &["--no-pack"], &program)).assert(0);
    let trace = Trace::open(&path).unwrap();
    // The bytes that come back are those of the file before and after the change.
    let blobs: Vec<u64> = trace.blobs().map(|(_, length)| length).collect();
    assert_eq!(blobs.len(), 2, "{blobs:?}");
    assert_eq!(payloads(&trace), (6, 1));
    let length = length_of(&path);
    assert!(length < 3 * LENGTH as u64, "{length}");
}

/// How many of the payloads of that function are kept, and how many are left out.
fn kept(trace: &Trace, function: &str) -> (usize, usize) {
    let mut found = (0, 0);
    for call in trace.calls().filter(|call| call.signature.base == function) {
        let left = call.leave.iter().flat_map(|leave| leave.snapshots());
        for snapshot in call.snapshots().chain(left) {
            match snapshot.bytes {
                Bytes::Blob(_) => found.0 += 1,
                Bytes::Omitted(_) => found.1 += 1,
                _ => {}
            }
        }
    }
    found
}

const ROUNDS: usize = 80;
const LIMIT: u64 = 64 << 20;

fn payloads_go_before_calls(folder: &Path) {
    let path = folder.join("t.cutape");
    let program = program(folder, "payloads");
    let program = [&*program, "80"];
    let options = ["--no-pack", "--max-size", "64M"];
    let output = run(&mut record(&path, &options, &program));
    output.assert_code(0);
    assert_eq!(output.stdout, bare(&program).stdout);
    for words in [
        "as --max-size allows (64 MiB): bytes copied to devices are left out",
        "bytes copied from devices are left out from here on, calls are still recorded",
        "later payloads are missing: the trace is as long as --max-size allows",
    ] {
        let count = output.stderr.matches(words).count();
        assert_eq!(count, 1, "{words}: {}", output.describe());
    }
    assert!(length_of(&path) <= LIMIT, "{}", length_of(&path));
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.verify(), []);
    let shortfall = trace.shortfall().unwrap();
    assert!(shortfall.lacks_payloads && !shortfall.lacks_calls);
    assert!(trace.has_all_calls());
    let to_device = kept(&trace, "cuMemcpyHtoD");
    let from_device = kept(&trace, "cuMemcpyDtoH");
    for (here, left_out) in [to_device, from_device] {
        assert_eq!(here + left_out, ROUNDS);
        assert!(left_out > 0);
    }
    // 48 MiB hold about 24 rounds, and 8 MiB more as many read-backs.
    assert!((20..=24).contains(&to_device.0), "{to_device:?}");
    assert!(
        (to_device.0 + 6..to_device.0 + 9).contains(&from_device.0),
        "{from_device:?}"
    );
    let info = run(&mut parts().cutape(&[&"info", &"--format", &"json", &path]));
    let json: serde_json::Value = serde_json::from_str(&info.stdout).unwrap();
    let why = "the trace is as long as --max-size allows";
    assert_eq!(json["trace"]["lacks_payloads"], why);
    // A replay says what it could not copy and compare.
    run(&mut replay(&path)).assert_code(0);
}

fn the_longest_payloads_go_first(folder: &Path) {
    let path = folder.join("t.cutape");
    // The second copy back has 20,000 bytes.
    let program = [&*program(folder, "payloads"), "80", "20000"];
    let options = ["--max-size", "64M", "--when-full", "drop-largest"];
    let options = [&["--no-pack"], &options[..]].concat();
    let output = run(&mut record(&path, &options, &program));
    output.assert_code(0);
    assert_eq!(output.stdout, bare(&program).stdout);
    let words = "the longest copied bytes are left out from here on, shorter ones and calls are";
    assert_eq!(
        output.stderr.matches(words).count(),
        1,
        "{}",
        output.describe()
    );
    assert!(length_of(&path) <= LIMIT, "{}", length_of(&path));
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.verify(), []);
    let shortfall = trace.shortfall().unwrap();
    assert!(shortfall.lacks_payloads && trace.has_all_calls());
    // 40 MiB hold about 20 rounds; from there on, 1 MiB is more than 1/16 of the 16 MiB until 7/8.
    for function in ["cuMemcpyHtoD", "cuMemcpyDtoH"] {
        let (here, left_out) = kept(&trace, function);
        assert_eq!(here + left_out, ROUNDS, "{function}");
        assert!((17..=20).contains(&here), "{function}: {here}");
    }
    assert_eq!(kept(&trace, "cuMemcpyDtoHAsync"), (ROUNDS, 0));
    run(&mut replay(&path)).assert_code(0);
}

/// Bytes that are in a file, or in the trace already.
fn what_needs_no_room_is_kept(folder: &Path) {
    let file = data_file(folder);
    let uploads = program(folder, "uploads");
    let program = [&*uploads, file.to_str().unwrap(), "file", "nothing"];
    for policy in ["drop-payloads", "drop-largest"] {
        let path = folder.join(format!("{policy}.cutape"));
        let options = ["--no-pack", "--max-size", "16M", "--when-full", policy];
        run(&mut record(&path, &options, &program)).assert_code(0);
        let trace = Trace::open(&path).unwrap();
        let uploads = trace.calls();
        let uploads = uploads.filter(|call| call.signature.base == "cuMemcpyHtoD");
        let snapshots = uploads.flat_map(|call| call.snapshots().collect::<Vec<_>>());
        let is_in_file = |bytes: &Bytes| matches!(bytes, Bytes::InFile(_));
        let found: Vec<bool> = snapshots.map(|found| is_in_file(&found.bytes)).collect();
        assert_eq!(found.iter().filter(|found| **found).count(), 6, "{policy}");
        assert_eq!(found.len(), 7, "{policy}");
    }
}

fn a_trace_stops_at_its_limit(folder: &Path) {
    let path = folder.join("t.cutape");
    let program = program(folder, "payloads");
    let program = [&*program, "80"];
    let options = ["--no-pack", "--max-size", "64M", "--when-full", "stop"];
    let output = run(&mut record(&path, &options, &program));
    output.assert_code(0);
    assert_eq!(output.stdout, bare(&program).stdout);
    let line = "the trace is as long as --max-size allows; recording stops";
    assert_eq!(
        output.stderr.matches(line).count(),
        1,
        "{}",
        output.describe()
    );
    assert!(length_of(&path) <= LIMIT, "{}", length_of(&path));
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.verify(), []);
    let shortfall = trace.shortfall().unwrap();
    assert!(shortfall.lacks_calls && !shortfall.lacks_payloads);
    assert!(shortfall.why.contains("--max-size"), "{}", shortfall.why);
    let (here, left_out) = kept(&trace, "cuMemcpyHtoD");
    assert!(
        (28..=32).contains(&here) && left_out <= 1,
        "{here} {left_out}"
    );
    for (options, why) in [
        (&["--max-size", "1M"][..], "at least 16M are needed"),
        (&["--max-size", "much"], "invalid value 'much'"),
        (&["--when-full", "stop"], "--max-size <SIZE>"),
    ] {
        let output = run(&mut record(&folder.join("u.cutape"), options, &program));
        output.assert_code(2);
        assert!(output.stderr.contains(why), "{}", output.describe());
    }
}

fn the_last_of_the_disk_is_for_calls(folder: &Path) -> Verdict {
    let (place, path) = (folder.join("small"), folder.join("t.cutape"));
    fs::create_dir(&place).unwrap();
    let script = r#"mount -t tmpfs -o size=64m tmpfs "$1" || exit 99
        "$2" record --driver null --no-pack -o "$1/t.cutape" -- "$3" 80; status=$?
        cp "$1/t.cutape" "$4"; exit $status"#;
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(&place)
        .arg(&parts().cutape)
        .arg(program(folder, "payloads"))
        .arg(&path);
    let output = run(&mut command);
    if matches!(output.code(), Some(1 | 99)) {
        return Verdict::Ignored("no right to mount a file system".to_owned());
    }
    output.assert_code(0);
    let line = "the disk is nearly full: copied bytes for which there is no room are left out";
    assert_eq!(
        output.stderr.matches(line).count(),
        1,
        "{}",
        output.describe()
    );
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.verify(), []);
    let shortfall = trace.shortfall().unwrap();
    assert!(shortfall.lacks_payloads && !shortfall.lacks_calls);
    assert!(
        trace.has_all_calls() && shortfall.why.contains("No space"),
        "{}",
        shortfall.why
    );
    // 56 MiB hold about 28 rounds.
    for function in ["cuMemcpyHtoD", "cuMemcpyDtoH"] {
        let (here, left_out) = kept(&trace, function);
        assert_eq!(here + left_out, ROUNDS, "{function}");
        assert!((24..=28).contains(&here), "{function}: {here}");
    }
    Verdict::Passed
}

fn little_space_is_said_in_time(folder: &Path) -> Verdict {
    let place = folder.join("small");
    fs::create_dir(&place).unwrap();
    let program = program(folder, "payloads");
    // Plenty at first, then less than a quarter of what the trace has; little from the start.
    for (size, rounds, mebibytes) in [("640m", "260", 520), ("96m", "10", 20)] {
        let script = r#"mount -t tmpfs -o size="$1" tmpfs "$2" || exit 99
            exec "$3" record --driver null --no-pack -o "$2/t.cutape" -- "$4" "$5""#;
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", script, "sh", size])
            .arg(&place)
            .arg(&parts().cutape)
            .args([&*program, rounds]);
        let output = run(&mut command);
        if matches!(output.code(), Some(1 | 99)) {
            return Verdict::Ignored("no right to mount a file system".to_owned());
        }
        output.assert_code(0);
        let lines: Vec<_> = output.stderr.lines().collect();
        let [line] = lines[..] else {
            panic!("{}", output.describe());
        };
        for words in [
            "MiB are free where the trace is written",
            "--payloads none",
            "--max-size",
        ] {
            assert!(line.contains(words), "{words}: {line}");
        }
        let length = line.split(" and it takes ").nth(1).unwrap();
        let length: u64 = length.split(' ').next().unwrap().parse().unwrap();
        assert!(
            length <= mebibytes && (size == "96m") == (length == 0),
            "{line}"
        );
    }
    Verdict::Passed
}
