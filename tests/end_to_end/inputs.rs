//! `replay --set` and `--save`: other host bytes in, host bytes out.

use std::fs;
use std::path::{Path, PathBuf};

use cutape_format::layout::field;
use cutape_format::{Call, Trace};
use cutape_tests::{compiled, files, parts, record, replay, run};
use serde_json::Value;

cutape_tests::tests![
    given_bytes_reach_the_device,
    equal_bytes_change_nothing,
    inputs_and_outputs_have_names,
    wrong_inputs_and_outputs_are_refused,
    what_is_not_reached_is_not_written,
    copies_of_rows,
    missing_payloads_can_be_given,
    files_of_numpy_have_types_and_shapes,
    unsuitable_files_of_numpy_are_refused,
];

fn recorded(folder: &Path, program: &str, options: &[&str]) -> PathBuf {
    let trace = folder.join("run.cutape");
    run(&mut record(&trace, options, &[&compiled(program)])).assert(0);
    trace
}

/// The calls of a function.
fn calls<'t>(trace: &'t Trace, function: &str) -> Vec<Call<'t>> {
    let calls = trace.calls();
    calls
        .filter(|call| call.signature.name == function)
        .collect()
}

fn bytes(seed: u8, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at as u8).wrapping_mul(3) ^ seed)
        .collect()
}

/// `--set` or `--save` of a call.
fn place(call: u64, parameter: &str, file: &Path) -> String {
    format!("call {call} {parameter}={}", file.display())
}

fn given_bytes_reach_the_device(folder: &Path) {
    let trace = recorded(folder, "clean/copies_linear", &[]);
    let open = Trace::open(&trace).unwrap();
    let first = calls(&open, "cuMemcpyHtoD_v2")[0].index;
    let back = calls(&open, "cuMemcpyDtoH_v2")[0].index;
    let (to, from) = (
        calls(&open, "cuMemcpyHtoDAsync_v2")[0].index,
        calls(&open, "cuMemcpyDtoHAsync_v2")[0].index,
    );
    let file = |name: &str| folder.join(name);
    fs::write(file("in"), bytes(1, 10_000)).unwrap();
    fs::write(file("later"), bytes(2, 9999)).unwrap();
    let report = file("report.json");
    let mut command = replay(&trace);
    command
        .args(["--set", &place(first, "srcHost", &file("in"))])
        .args(["--set", &place(to, "srcHost", &file("later"))])
        .args(["--save", &place(back, "dstHost", &file("out"))])
        .args(["--save", &place(from, "dstHost", &file("later-out"))])
        .arg("--report")
        .arg(&report);
    let output = run(&mut command);
    // What differs because of the inputs does not count.
    output.assert(0);
    assert!(
        output
            .stdout
            .contains("no divergence; 3 differences (changed-input)"),
        "{}",
        output.stdout
    );
    assert!(output.stdout.contains(&format!(
        "input: call {first} cuMemcpyHtoD_v2: 10000 bytes replaced\n"
    )));
    // The program copies 3000 bytes from 500 to 1000, and the later ones as they are.
    let (given, got) = (bytes(1, 10_000), fs::read(file("out")).unwrap());
    assert_eq!(got[1000..4000], given[500..3500]);
    assert_eq!(fs::read(file("later-out")).unwrap(), bytes(2, 9999));
    let report: Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    assert_eq!(report["replaced"][0]["differs"], true);
    assert_eq!(report["saved"].as_array().unwrap().len(), 2);
    assert_eq!(report["changed_input"][0]["verdict"], "changed-input");
    assert_eq!(report["divergence_count"], 0);
    let hidden = |path: &PathBuf| path.to_string_lossy().contains("partial");
    assert!(!files(folder).iter().any(hidden));
}

fn equal_bytes_change_nothing(folder: &Path) {
    let trace = recorded(folder, "clean/copies_linear", &[]);
    let open = Trace::open(&trace).unwrap();
    let first = &calls(&open, "cuMemcpyHtoD_v2")[0];
    let recorded = open.resolve(first.snapshot(1, field::POINTEE).unwrap().bytes);
    let file = folder.join("in");
    fs::write(&file, recorded.unwrap()).unwrap();
    let output = run(replay(&trace).args(["--set", &place(first.index, "srcHost", &file)]));
    output.assert(0);
    assert!(
        output.stdout.contains("given, equal to the recorded ones"),
        "{}",
        output.stdout
    );
    assert!(!output.stdout.contains("changed-input"));
}

fn inputs_and_outputs_have_names(folder: &Path) {
    let trace = recorded(folder, "clean/copies_linear", &[]);
    let names = folder.join("run.io.toml");
    let (given, saved) = (folder.join("in"), folder.join("out"));
    fs::write(&given, bytes(5, 10_000)).unwrap();
    let text = r#"
        [inputs.image]
        function = "cuMemcpyHtoD"
        number = 0
        parameter = "srcHost"
        type = "u8"
        shape = [100, 100]

        [outputs.result]
        within = "..20"
        function = "cuMemcpyDtoH_v2"
        parameter = "dstHost"
    "#;
    fs::write(&names, text).unwrap();
    let set = format!("image={}", given.display());
    let save = format!("result={}", saved.display());
    run(replay(&trace).args(["--set", &set, "--save", &save])).assert(0);
    assert_eq!(
        fs::read(&saved).unwrap()[1000..4000],
        bytes(5, 10_000)[500..3500]
    );
    for (change, to, option, why) in [
        (
            "100, 100",
            "100, 101",
            "--set",
            "u8 of shape [100, 101] has 10100",
        ),
        (
            "number = 0",
            "number = 9",
            "--set",
            "number 9: 1 calls match",
        ),
        ("\"u8\"", "\"byte\"", "--set", "no type \"byte\""),
        (
            "[inputs.image]",
            "[inputs.picture]",
            "--set",
            "has no input image; it has picture",
        ),
        ("..20", "range:x", "--save", "no range `x`"),
        (
            "parameter",
            "param",
            "--set",
            "line 5: unknown field `param`",
        ),
    ] {
        fs::write(&names, text.replacen(change, to, 1)).unwrap();
        let value = if option == "--set" { &set } else { &save };
        let _ = fs::remove_file(&saved);
        let output = run(replay(&trace).args([option, value]));
        output.assert_code(2);
        assert!(output.stderr.contains(why), "{change}: {}", output.stderr);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    }
}

fn wrong_inputs_and_outputs_are_refused(folder: &Path) {
    let trace = recorded(folder, "clean/copies_linear", &[]);
    let open = Trace::open(&trace).unwrap();
    let first = calls(&open, "cuMemcpyHtoD_v2")[0].index;
    let back = calls(&open, "cuMemcpyDtoH_v2")[0].index;
    let (short, missing) = (folder.join("short"), folder.join("missing"));
    fs::write(&short, b"abc").unwrap();
    for (option, value, why) in [
        (
            "--set",
            place(first, "srcHost", &short),
            "reads 10000 bytes, ",
        ),
        ("--set", place(first, "src", &short), "it reads srcHost"),
        ("--set", place(first, "srcHost", &missing), "No such file"),
        (
            "--set",
            place(back, "dstHost", &short),
            "reads no host memory",
        ),
        (
            "--set",
            place(0, "Flags", &short),
            "call 0 cuInit reads no host memory",
        ),
        ("--set", place(1 << 40, "x", &short), "the trace has "),
        (
            "--set",
            "nonsense".to_owned(),
            "write 'call 57 srcHost=FILE'",
        ),
        (
            "--set",
            format!("x={}", short.display()),
            "run.io.toml: No such file",
        ),
        (
            "--save",
            place(back, "dstHost", &short),
            "replace it with --overwrite",
        ),
        (
            "--save",
            place(first, "srcHost", &missing),
            "copies nothing to host memory",
        ),
        (
            "--save",
            place(back, "dstHost", &missing.join("x")),
            "no such folder",
        ),
    ] {
        let output = run(replay(&trace).args([option, &value]));
        output.assert_code(2);
        assert!(output.stderr.contains(why), "{value}: {}", output.stderr);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    }
    assert_eq!(fs::read(&short).unwrap(), b"abc");
    assert!(!missing.exists());
    let value = place(back, "dstHost", &short);
    run(replay(&trace).args(["--overwrite", "--save", &value])).assert_code(0);
    assert_eq!(fs::read(&short).unwrap().len(), 10_000);
    let once = place(back, "dstHost", &missing);
    let twice = run(replay(&trace).args(["--save", &once, "--save", &once]));
    twice.assert_code(2);
    assert!(twice.stderr.contains("is named twice"), "{}", twice.stderr);
}

fn what_is_not_reached_is_not_written(folder: &Path) {
    let trace = recorded(folder, "clean/copies_linear", &[]);
    let open = Trace::open(&trace).unwrap();
    let last = calls(&open, "cuMemcpyDtoH_v2").last().unwrap().index;
    let file = folder.join("out");
    let save = place(last, "dstHost", &file);
    let output = run(replay(&trace).args(["--save", &save, "--until", "5"]));
    output.assert_code(2);
    assert!(
        output.stderr.contains("the replay did not make this copy"),
        "{}",
        output.stderr
    );
    assert!(!file.exists());
}

fn copies_of_rows(folder: &Path) {
    let trace = recorded(folder, "clean/copies_2d3d", &[]);
    let open = Trace::open(&trace).unwrap();
    let plane = |call: &&Call<'_>| call.signature.name.starts_with("cuMemcpy2D");
    let rows = |call: &Call<'_>| {
        let mut snapshots = call.snapshots();
        let found = snapshots.find(|snapshot| snapshot.field == field::HOST_BYTES);
        found.and_then(|snapshot| snapshot.bytes.length())
    };
    let all: Vec<_> = open.calls().collect();
    let upload = all
        .iter()
        .filter(plane)
        .find(|call| rows(call).is_some())
        .unwrap();
    let length = rows(upload).unwrap() as usize;
    let input = folder.join("in");
    fs::write(&input, bytes(9, length)).unwrap();
    let output = run(replay(&trace).args(["--set", &place(upload.index, "pCopy", &input)]));
    output.assert(0);
    assert!(
        output.stdout.contains(&format!("{length} bytes replaced")),
        "{}",
        output.stdout
    );
    assert!(
        output.stdout.contains("(changed-input)"),
        "{}",
        output.stdout
    );
}

/// A file of numpy, version 1.
fn npy(descr: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = (text.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\0", &length[..], text.as_bytes(), elements].concat()
}

fn files_of_numpy_have_types_and_shapes(folder: &Path) {
    let trace = recorded(folder, "clean/copies_linear", &[]);
    let open = Trace::open(&trace).unwrap();
    let first = calls(&open, "cuMemcpyHtoD_v2")[0].index;
    let back = calls(&open, "cuMemcpyDtoH_v2")[0].index;
    let length = calls(&open, "cuMemcpyDtoH_v2")[0].argument(2);
    assert_eq!(length % 4, 0);
    let given = folder.join("in.npy");
    fs::write(&given, npy("<f4", "(50, 50)", &bytes(3, 10_000))).unwrap();
    // Text of the header, and the elements.
    let saved = |name: &str| {
        let file = fs::read(folder.join(name)).unwrap();
        assert!(file.starts_with(b"\x93NUMPY\x01\0"), "{name}");
        let end = 10 + usize::from(u16::from_le_bytes([file[8], file[9]]));
        assert_eq!(end % 64, 0);
        let text = String::from_utf8(file[10..end].to_vec()).unwrap();
        (text.trim_end().to_owned(), file[end..].to_vec())
    };
    let rows = length / 4;
    for (suffix, expected) in [
        (
            "",
            format!("'|u1', 'fortran_order': False, 'shape': ({length},), }}"),
        ),
        (
            ":float32",
            format!("'<f4', 'fortran_order': False, 'shape': ({rows},), }}"),
        ),
        (
            ":int16[2,RRR]",
            format!("'<i2', 'fortran_order': False, 'shape': (2, {rows}), }}"),
        ),
    ] {
        let suffix = suffix.replace("RRR", &rows.to_string());
        let name = "out.npy";
        let _ = fs::remove_file(folder.join(name));
        let set = place(first, "srcHost", &given) + ":float32[50,50]";
        let save = place(back, "dstHost", &folder.join(name)) + &suffix;
        run(replay(&trace).args(["--set", &set, "--save", &save])).assert(0);
        let (text, elements) = saved(name);
        assert_eq!(text, format!("{{'descr': {expected}"), "{suffix}");
        assert_eq!(
            elements[1000..4000],
            bytes(3, 10_000)[500..3500],
            "{suffix}"
        );
    }
    // Python reads it, if numpy is there.
    let code = format!(
        "import numpy as n; a = n.load({:?}); assert a.shape == (2, {rows}) and a.dtype == 'int16'",
        folder.join("out.npy")
    );
    let has_numpy = run(std::process::Command::new("python3").args(["-c", "import numpy"]));
    if has_numpy.code() == Some(0) {
        run(std::process::Command::new("python3").args(["-c", &code])).assert(0);
    }
}

fn unsuitable_files_of_numpy_are_refused(folder: &Path) {
    let trace = recorded(folder, "clean/copies_linear", &[]);
    let open = Trace::open(&trace).unwrap();
    let first = calls(&open, "cuMemcpyHtoD_v2")[0].index;
    let back = calls(&open, "cuMemcpyDtoH_v2")[0].index;
    let file = |name: &str, content: Vec<u8>| {
        let path = folder.join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let given = file("in.npy", npy("<f4", "(50, 50)", &bytes(3, 10_000)));
    let old = file("out.npy", Vec::new());
    let new = folder.join("new.npy");
    for (option, value, why) in [
        (
            "--set",
            place(first, "srcHost", &given) + ":int32",
            "in.npy: its type is float32, not int32",
        ),
        (
            "--set",
            place(first, "srcHost", &given) + ":float32[2500]",
            "in.npy: its shape is [50, 50], not [2500]",
        ),
        (
            "--set",
            place(first, "srcHost", &given) + ":single",
            "no type \"single\"",
        ),
        (
            "--set",
            place(
                first,
                "srcHost",
                &file("short.npy", npy("<f4", "(3,)", &[0; 12])),
            ),
            "short.npy has 12: float32 of shape [3]",
        ),
        (
            "--set",
            place(
                first,
                "srcHost",
                &file("cut.npy", npy("<f4", "(2500,)", &[0; 12])),
            ),
            "float32 of shape [2500] does not have 12 bytes",
        ),
        (
            "--set",
            place(first, "srcHost", &file("plain.npy", bytes(1, 10_000))),
            "plain.npy: it is not a file of numpy",
        ),
        (
            "--set",
            place(first, "srcHost", &folder.join("missing.npy")),
            "No such file",
        ),
        (
            "--save",
            place(back, "dstHost", &new) + ":float32[7]",
            "f32 of shape [7] has 28",
        ),
        (
            "--save",
            place(back, "dstHost", &old) + ":int16",
            "replace it with --overwrite",
        ),
    ] {
        let output = run(replay(&trace).args([option, &value]));
        output.assert_code(2);
        assert!(output.stderr.contains(why), "{value}: {}", output.stderr);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    }
    assert!(!new.exists());
}

fn missing_payloads_can_be_given(folder: &Path) {
    let trace = recorded(folder, "clean/copies_linear", &["--payloads", "none"]);
    let open = Trace::open(&trace).unwrap();
    let first = calls(&open, "cuMemcpyHtoD_v2")[0].index;
    let back = calls(&open, "cuMemcpyDtoH_v2")[0].index;
    let (given, saved) = (folder.join("in"), folder.join("out"));
    fs::write(&given, bytes(7, 10_000)).unwrap();
    let output = run(parts()
        .cutape(&[&"replay", &"--driver", &"null", &trace])
        .args(["--set", &place(first, "srcHost", &given)])
        .args(["--save", &place(back, "dstHost", &saved)]));
    output.assert(0);
    assert_eq!(
        fs::read(&saved).unwrap()[1000..4000],
        bytes(7, 10_000)[500..3500]
    );
}
