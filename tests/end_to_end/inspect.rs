//! `inspect` shows what memory holds before and after calls.

use std::fs;
use std::path::{Path, PathBuf};

use cutape_format::Trace;
use cutape_tests::{Output, compiled, names, parts, record, replay, run};
use regex::Regex;
use serde_json::Value;

cutape_tests::tests![
    bytes_and_numbers,
    what_a_call_changes_and_what_differs_between_calls,
    objects_are_shown_as_they_were_last,
    files_of_numpy_are_inputs_of_a_replay,
    memory_of_each_kind,
    json_has_all_that_the_text_has,
    what_cannot_be_read_is_an_error,
];

struct Recorded {
    trace: PathBuf,
    names: Vec<String>,
}

fn recorded(folder: &Path, name: &str) -> Recorded {
    let trace = folder.join("app.cutape");
    let program = compiled(&format!("clean/{name}"));
    run(&mut record(&trace, &[], &[&program])).assert_code(0);
    let names = names(&Trace::open(&trace).unwrap());
    Recorded { trace, names }
}

impl Recorded {
    /// The index of the call of a function, counted from 0.
    fn call(&self, name: &str, number: usize) -> usize {
        let calls = self.names.iter().enumerate();
        let mut calls = calls.filter(|(_, call)| call.trim_end_matches("_v2") == name);
        calls.nth(number).unwrap().0
    }

    fn inspect(&self, arguments: &str) -> Output {
        let temporary = self.trace.with_file_name("tmp");
        fs::create_dir(&temporary).unwrap();
        let mut command = parts().cutape(&[&"inspect", &self.trace]);
        command.args(arguments.split(' '));
        let output = run(command.args(["--driver", "null"]).env("TMPDIR", &temporary));
        fs::remove_dir(&temporary).expect("nothing is left");
        output
    }

    /// The text without addresses, which differ from run to run.
    fn text(&self, arguments: &str) -> String {
        let output = self.inspect(arguments);
        output.assert_code(0);
        assert_eq!(output.stderr, "", "{arguments}");
        without_addresses(&output.stdout)
    }
}

fn without_addresses(text: &str) -> String {
    let address = Regex::new("0x[0-9a-f]{8,}").unwrap();
    address.replace_all(text, "ADDRESS").into_owned()
}

fn bytes_and_numbers(folder: &Path) {
    let app = recorded(folder, "memory_history");
    let back = app.call("cuMemcpyDtoH", 0);
    let expected = format!(
        "\
memory#3 (ADDRESS, 4,096 bytes), before call {back}: 1,024 u32
[0]  7  7  7  7  7  7  7  7
[8]  7  7  7  7
… 1,012 more: --most N shows N
min 7 at [0], max 2356225 at [1023], mean 829486.2, standard deviation 871638.3
zeros 0
         7 .. 235628.8  512 ████████████████████████████████████████
  235628.8 .. 471250.6  0
  471250.6 .. 706872.4  0
  706872.4 .. 942494.2  0
  942494.2 .. 1178116   62 █████
   1178116 .. 1413738   104 █████████
   1413738 .. 1649360   95 ████████
   1649360 .. 1884981   88 ███████
   1884981 .. 2120603   84 ███████
   2120603 .. 2356225   79 ███████
"
    );
    let result = format!("--result {back} --type u32 --most 12");
    assert_eq!(app.text(&result), expected);
    let object = format!("memory#3 --at {back} --type u32 --most 12");
    assert_eq!(app.text(&object), expected);
    let at = back - 1;
    let expected = format!(
        "\
memory#4+0x4 (ADDRESS, 20 bytes), before call {at}
ADDRESS  07 00 00 00 07 00 00 00  07 00 00 00 07 00 00 00  |................|
ADDRESS  07 00                                             |..|
… 2 more: --most N shows N
"
    );
    let bytes = format!("memory#4+4+20 --at {at} --most 18");
    assert_eq!(app.text(&bytes), expected);
    // The upper halves of 1.0f32 are 1.0 as bf16.
    let expected = format!(
        "\
memory#5 (ADDRESS, 14 bytes), before call {back}: 6 bf16, shape [2,3], strides [4,1]
[0,0]  0  1  0
[1,0]  0  1  0
min 0 at [0,0], max 1 at [0,1], mean 0.333333, standard deviation 0.471405
NaN 0, +Inf 0, -Inf 0, zeros 4, subnormal 0
    0 .. 0.1  4 ████████████████████████████████████████
  0.1 .. 0.2  0
  0.2 .. 0.3  0
  0.3 .. 0.4  0
  0.4 .. 0.5  0
  0.5 .. 0.6  0
  0.6 .. 0.7  0
  0.7 .. 0.8  0
  0.8 .. 0.9  0
  0.9 .. 1    2 ████████████████████
"
    );
    let array = format!("memory#5 --at {back} --type bf16 --shape 2,3 --strides 4,1");
    assert_eq!(app.text(&array), expected);
}

fn what_a_call_changes_and_what_differs_between_calls(folder: &Path) {
    let app = recorded(folder, "memory_history");
    let copy = app.call("cuMemcpyDtoD", 1);
    let set = app.call("cuMemsetD32", 0);
    let text = app.text(&format!(
        "memory#3 --at {copy} --type u32 --before --after --most 16"
    ));
    let expected = format!(
        "
before call {copy} and after call {copy}: 512 of 1,024 u32 differ
largest difference 2356218 at [1023]: 7 -> 2356225
largest relative difference 0.999997 at [1023]: 7 -> 2356225
  [512]: 7 -> 1048576
  [513]: 7 -> 1050625
  … 510 more
"
    );
    assert!(text.ends_with(&expected), "{text}");
    // As bytes, and after one call and another.
    let arguments = format!("memory#3+0+8 --at {} --and {set} --after --most 8", set - 1);
    let text = app.text(&arguments);
    let expected = format!(
        "\
memory#3 (ADDRESS, 8 bytes), after call {}
ADDRESS  00 00 00 00 00 00 00 00                           |........|
memory#3 (ADDRESS, 8 bytes), after call {set}
ADDRESS  07 00 00 00 07 00 00 00                           |........|
after call {} and after call {set}: 2 of 8 bytes differ
  [0]: 0x00 -> 0x07
  … 1 more
",
        set - 1,
        set - 1
    );
    assert_eq!(text, expected);
    let launch = app.call("cuLaunchKernel", 0);
    let text = app.text(&format!(
        "--parameter {launch}:1 --shape 4 --type i8 --before --after"
    ));
    let expected = format!("\nbefore call {launch} and after call {launch}: 0 of 4 i8 differ\n");
    assert!(text.ends_with(&expected), "kernels do not run here: {text}");
}

fn objects_are_shown_as_they_were_last(folder: &Path) {
    let app = recorded(folder, "memory_host");
    // Two memories have one address, one after the other.
    let (first, second) = (app.call("cuMemFree", 0), app.call("cuMemFree", 1));
    for (object, free, bytes) in [
        ("memory#1", first, "01 00 00 00"),
        ("memory#2+0+4", second, "09 09 09 09"),
    ] {
        let text = app.text(object);
        assert!(text.contains(&format!("before call {free}\n")), "{text}");
        assert!(text.contains(bytes), "{text}");
        assert_eq!(app.text(&format!("{object} --at {free}")), text);
    }
}

fn files_of_numpy_are_inputs_of_a_replay(folder: &Path) {
    let app = recorded(folder, "copies_linear");
    let file = folder.join("a.npy");
    let (to_device, free) = (app.call("cuMemcpyHtoD", 0), app.call("cuMemFree", 0));
    let write = |arguments: &str| app.inspect(&format!("{arguments} --npy {}", file.display()));
    write(&format!(
        "memory#1 --at {} --type u16 --shape 50,100",
        to_device + 1
    ))
    .assert_code(0);
    let bytes = fs::read(&file).unwrap();
    let header = "{'descr': '<u2', 'fortran_order': False, 'shape': (50, 100), }";
    assert_eq!(&bytes[..10], b"\x93NUMPY\x01\0v\0");
    assert!(bytes[10..].starts_with(header.as_bytes()));
    assert_eq!((bytes[127], bytes.len()), (b'\n', 128 + 10_000));
    let values = (0..10_000).map(|place| (place * 7 + place / 256) as u8);
    assert!(values.eq(bytes[128..].iter().copied()));
    // The bytes that the copy has brought: nothing differs when it takes them from the file.
    let set = format!("call {to_device} srcHost={}:uint16[50,100]", file.display());
    let mut again = replay(&app.trace);
    let output = run(again.args(["--set", &set]));
    output.assert_code(0);
    assert!(output.stdout.contains("no divergence"), "{}", output.stdout);
    // What is there is replaced only if it may be.
    let at = format!("memory#1 --at {free}");
    let output = write(&at);
    output.assert_code(2);
    assert!(output.stderr.contains("it exists"), "{}", output.stderr);
    let output = write(&format!(
        "{at} --type bf16 --shape 3 --strides 2 --overwrite"
    ));
    output.assert_code(0);
    let warning = "numpy has no type bf16; the numbers are uint16";
    assert!(output.stderr.contains(warning), "{}", output.stderr);
    let bytes = fs::read(&file).unwrap();
    let values = (0..3).flat_map(|place| [place * 28, place * 28 + 7]);
    assert!(
        values.eq(bytes[128..].iter().copied()),
        "{:?}",
        &bytes[128..]
    );
    assert_eq!(fs::read_dir(folder).unwrap().count(), 2, "trace and file");
}

fn memory_of_each_kind(folder: &Path) {
    let within = |name: &str| {
        let folder = folder.join(name);
        fs::create_dir(&folder).unwrap();
        recorded(&folder, name)
    };
    let app = within("virtual_memory");
    let (unmap, set) = (app.call("cuMemUnmap", 0), app.call("cuMemsetD8", 0));
    let seam = format!("address-reservation#1+0x1ffffc+8 --at {}", set + 1);
    let fives = "05 05 05 05 05 05 05 05  ";
    assert!(app.text(&seam).contains(fives));
    let whole = app.text(&format!(
        "address-reservation#1 --at {unmap} --type u8 --most 2"
    ));
    let expected = format!(
        "\
address-reservation#1 (ADDRESS, 4,194,304 bytes), before call {unmap}: 4,194,304 u8
[0]  5  5
… 4,194,302 more: --most N shows N
min 5 at [0], max 5 at [0], mean 5, standard deviation 0
zeros 0
"
    );
    assert_eq!(whole, expected);
    // The other half stays mapped.
    let half = app.text(&format!(
        "address-reservation#1+0x200000+8 --at {unmap} --after"
    ));
    assert!(half.contains(fives), "{half}");
    for (place, at) in [("0x10+8", unmap + 1), ("0x1ffffc+8", unmap + 1)] {
        let output = app.inspect(&format!("address-reservation#1+{place} --at {at}"));
        output.assert_code(2);
        let why = format!("call {unmap} cuMemUnmap ended it");
        assert!(output.stderr.contains(&why), "{}", output.stderr);
    }
    let mapped = app.call("cuMemSetAccess", 0);
    let output = app.inspect(&format!("address-reservation#1 --at {mapped}"));
    output.assert_code(2);
    assert!(
        output.stderr.contains("reading it returned"),
        "{}",
        output.stderr
    );

    let app = within("module_globals");
    let global = app.call("cuMemcpyHtoD", 0);
    let text = app.text(&format!(
        "global-variable#2 --at {global} --after --type u32"
    ));
    assert!(
        text.contains("16 bytes") && text.contains("[0]  1  2  3  4\n"),
        "{text}"
    );

    let app = within("memory_host");
    let copied = app.call("cuMemcpyHtoDAsync", 0) + 1;
    let output = app.inspect(&format!("host-memory#1 --at {copied} --type u32 --most 5"));
    output.assert_code(0);
    assert!(
        output.stdout.contains("[0]   0   1   4   9  16\n"),
        "{}",
        output.stdout
    );
    let note = "host and device share this memory";
    assert_eq!(output.stderr.matches(note).count(), 1, "{}", output.stderr);
}

fn json_has_all_that_the_text_has(folder: &Path) {
    let app = recorded(folder, "memory_history");
    let copy = app.call("cuMemcpyDtoD", 1);
    let json = |arguments: &str| -> Value {
        let output = app.inspect(&format!("{arguments} --report -"));
        output.assert_code(0);
        serde_json::from_str(&output.stdout).unwrap()
    };
    let found = json(&format!(
        "memory#3 --at {copy} --before --after --type u32 --most 2"
    ));
    assert_eq!(
        (&found["length"], &found["type"]),
        (&4096.into(), &"u32".into())
    );
    assert_eq!(
        (&found["shape"][0], &found["strides"][0]),
        (&1024.into(), &1.into())
    );
    let after = &found["moments"][1];
    assert_eq!(after["when"]["after"], copy);
    assert_eq!(after["label"], "memory#3");
    assert_eq!(after["values"], serde_json::json!([7, 7]));
    let statistics = &after["statistics"];
    assert_eq!(
        (&statistics["count"], &statistics["zeros"]),
        (&1024.into(), &0.into())
    );
    assert_eq!(
        statistics["max"],
        serde_json::json!({"value": 2_356_225, "index": [1023]})
    );
    assert_eq!(statistics["histogram"].as_array().unwrap().len(), 10);
    let comparison = &found["comparison"];
    assert_eq!(comparison["differing"], 512);
    assert_eq!(comparison["absolute"]["size"], 2_356_218.0);
    let first = serde_json::json!([{"index": [512], "from": 7, "to": 1_048_576}]);
    assert_eq!(comparison["first"], first);
    let bytes = json(&format!("memory#3+0+4 --at {copy}"));
    assert_eq!(
        (&bytes["type"], &bytes["comparison"]),
        (&Value::Null, &Value::Null)
    );
    let values = serde_json::json!(["0x07", "0x00", "0x00", "0x00"]);
    assert_eq!(bytes["moments"][0]["values"], values);
}

fn what_cannot_be_read_is_an_error(folder: &Path) {
    let app = recorded(folder, "memory_history");
    let (free, made) = (app.call("cuMemFree", 2), app.call("cuMemAlloc", 2));
    let later = free + 1;
    let ended = format!("call {free} cuMemFree_v2 ended it; --at {free} --before shows");
    for (arguments, why) in [
        (
            format!("memory#3 --at {later}"),
            format!("memory#3 is not live before call {later}: {ended}"),
        ),
        (
            format!("memory#3+0x10 --at {free} --after"),
            format!("memory#3+0x10 is not live after call {free}: {ended}"),
        ),
        (
            format!("memory#3 --at {made}"),
            format!("memory#3 is not live before call {made}: call {made} cuMemAlloc_v2 makes it"),
        ),
        (
            format!("memory#3 --at {made} --after"),
            format!("memory#3 is made by call {made} cuMemAlloc_v2 itself"),
        ),
        (
            "0x1000+16".into(),
            "0x1000 lies in no memory that a call made".into(),
        ),
        ("memory#99".into(), "no memory is called memory#99".into()),
        ("array#1".into(), "array#1 has no address".into()),
        ("memory#3+4096".into(), "memory#3 has 4096 bytes".into()),
        (
            format!("memory#3+4090+16 --at {free}"),
            "16 bytes are asked about, but the memory".into(),
        ),
        (
            format!("memory#3 --at {free} --type f64 --shape 1000"),
            "8000 bytes are asked about".into(),
        ),
        (
            format!("memory#3+0+8 --at {free} --type f32 --shape 3"),
            "shape [3] of f32 needs 12 bytes, and there are 8".into(),
        ),
        (
            format!("memory#3+0+7 --at {free} --type f64"),
            "one f64 has 8 bytes, and there are 7".into(),
        ),
        (
            format!("memory#3 --at {free} --type f32 --shape 0"),
            "shape [0] has no numbers".into(),
        ),
        (
            format!("memory#3 --at {free} --type f32 --shape 2,2 --strides 1"),
            "2 sides, and there are 1 strides".into(),
        ),
        (
            format!("memory#3 --at {free} --shape 2"),
            "--type <TYPE>".into(),
        ),
        (
            format!("memory#3 --at {free} --type f9"),
            "not a type of numbers".into(),
        ),
        (
            "memory#3 --at 99999".into(),
            "the trace has no call 99999".into(),
        ),
        ("memory#3 --after".into(), "say --at N".into()),
        (
            format!("memory#3 --at {free} --before --after --and 20"),
            "three moments".into(),
        ),
        (
            format!("memory#3 --at {free} --and 20 --npy x.npy"),
            "--npy <FILE>".into(),
        ),
        (
            "--result 0".into(),
            "cuInit, does not copy from memory".into(),
        ),
        ("--at 20".into(), "required".into()),
    ] {
        let output = app.inspect(&arguments);
        output.assert_code(2);
        assert!(
            output.stderr.contains(&why),
            "{arguments}: {}",
            output.stderr
        );
        assert_eq!(output.stdout, "", "{arguments}");
    }
    // While a stream captures, nobody can wait for the device.
    let folder = folder.join("captured");
    fs::create_dir(&folder).unwrap();
    let app = recorded(&folder, "graph_capture");
    let captured = app.call("cuEventRecord", 0);
    let output = app.inspect(&format!("memory#1 --at {captured}"));
    output.assert_code(2);
    let why = format!(
        "before call {captured}: memory cannot be read at this call: a stream is capturing"
    );
    assert!(output.stderr.contains(&why), "{}", output.stderr);
}
