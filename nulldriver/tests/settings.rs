//! The `CUTAPE_NULL_*` variables, each row in its own process.

mod driver;

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

use cutape_image::{Suffix, Target};
use driver::{at, call, code, make, ok, out};

/// Variable and value, what the child does with the driver, and what it prints; `None`: it dies of
/// SIGSEGV.
type Row = (
    &'static str,
    &'static str,
    fn() -> String,
    Option<&'static str>,
);

const ROWS: &[Row] = &[
    (
        "CUTAPE_NULL_FAIL",
        "cuMemAlloc_v2@2=2",
        three_allocations,
        Some("[0, 2, 0]"),
    ),
    (
        "CUTAPE_NULL_FAIL",
        "cuMemAlloc@*=999",
        three_allocations,
        Some("[999, 999, 999]"),
    ),
    (
        "CUTAPE_NULL_FAIL",
        "nonsense",
        three_allocations,
        Some("[0, 0, 0]"),
    ),
    ("CUTAPE_NULL_CRASH", "cuMemAlloc@3", three_allocations, None),
    ("CUTAPE_NULL_DELAY", "cuMemAlloc@1=80ms", slow, Some("true")),
    ("CUTAPE_NULL_DELAY", "cuMemFree=80ms", slow, Some("false")),
    ("CUTAPE_NULL_DEVICES", "3", devices, Some("3 devices")),
    (
        "CUTAPE_NULL_VERSION",
        "12040",
        version,
        Some("version 12040"),
    ),
    (
        "CUTAPE_NULL_CAPABILITY",
        "8.6",
        capability,
        Some("8.6, a cubin for sm_90: 209"),
    ),
    ("CUTAPE_NULL_MEMORY", "64MiB", memory, Some("[0, 2]")),
];

fn begin() {
    ok("cuInit", &[0]);
    make("cuCtxCreate_v4", &[0, 0, 0]);
}

fn three_allocations() -> String {
    begin();
    let codes: Vec<u32> = (0..3)
        .map(|_| call("cuMemAlloc_v2", &[out(&mut 0_u64), 256]))
        .collect();
    format!("{codes:?}")
}

fn slow() -> String {
    begin();
    let start = Instant::now();
    make("cuMemAlloc_v2", &[256]);
    (start.elapsed() >= Duration::from_millis(80)).to_string()
}

fn devices() -> String {
    ok("cuInit", &[0]);
    let mut count = 0_i32;
    ok("cuDeviceGetCount", &[out(&mut count)]);
    assert_eq!(
        call("cuDeviceGet", &[out(&mut 0_i32), 3]),
        code::INVALID_DEVICE
    );
    format!("{count} devices")
}

fn version() -> String {
    let mut number = 0_i32;
    ok("cuDriverGetVersion", &[out(&mut number)]);
    format!("version {number}")
}

fn capability() -> String {
    begin();
    let (mut major, mut minor) = (0_i32, 0_i32);
    ok(
        "cuDeviceComputeCapability",
        &[out(&mut major), out(&mut minor), 0],
    );
    let target = Target::from_number(90, Suffix::None);
    let cubin = cutape_image::build::cubin(&[], &[], target);
    let code = call("cuModuleLoadData", &[out(&mut 0_u64), at(&cubin[..])]);
    format!("{major}.{minor}, a cubin for sm_90: {code}")
}

fn memory() -> String {
    begin();
    let codes: Vec<u32> = (0..2)
        .map(|_| call("cuMemAlloc_v2", &[out(&mut 0_u64), 40 << 20]))
        .collect();
    format!("{codes:?}")
}

/// Marks the child's answer.
const MARK: &str = "answered ";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, verb, index] = &arguments[..]
        && verb == "row"
    {
        println!(
            "{MARK}{}",
            ROWS[index.parse::<usize>().expect("a number")].2()
        );
        return;
    }
    let program = std::env::current_exe().expect("the test's own path");
    for (index, (variable, value, _, expected)) in ROWS.iter().enumerate() {
        let output = Command::new(&program)
            .args(["row", &index.to_string()])
            .env(variable, value)
            .output()
            .expect("the child starts");
        let printed = String::from_utf8_lossy(&output.stdout);
        let complaint = String::from_utf8_lossy(&output.stderr);
        let answered = printed.lines().find_map(|line| line.strip_prefix(MARK));
        assert_eq!(answered, *expected, "{variable}={value}: {complaint}");
        let signal = expected.is_none().then_some(libc::SIGSEGV);
        assert_eq!(output.status.signal(), signal, "{variable}={value}");
        // Only a malformed setting is named.
        assert_eq!(
            complaint.contains(variable),
            *value == "nonsense",
            "{complaint}"
        );
    }
    println!("{} rows, none failed", ROWS.len());
}
