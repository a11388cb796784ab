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
    (
        "CUTAPE_NULL_SCHEDULE",
        "eager",
        schedule,
        Some("memset 7 7, memsets 1 1, value 1, staged 3, copied 3, kernel 27 27, queries 0"),
    ),
    (
        "CUTAPE_NULL_SCHEDULE",
        "lazy",
        schedule,
        Some("memset 0 7, memsets 1 1, value 0, staged 3, copied 3, kernel 0 27, queries 7"),
    ),
    (
        "CUTAPE_NULL_SCHEDULE",
        "lazy",
        value_of_another_stream,
        Some("value 1"),
    ),
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

/// What the CPU finds in pinned memory before and after it waits, and what a query finds. The kernel
/// mixes 3 into 0; its seed is such that the result is 27.
fn schedule() -> String {
    begin();
    let stream = make("cuStreamCreate", &[1]);
    let pinned = make("cuMemHostAlloc", &[64, 0]);
    // SAFETY: the driver allocated that many bytes of host memory.
    let byte = |at: u64| unsafe { std::ptr::read_volatile((pinned + at) as *const u8) };
    ok("cuMemsetD8Async", &[pinned, 7, 8, stream]);
    let early = byte(0);
    ok("cuStreamSynchronize", &[stream]);
    let memset = format!("memset {early} {}", byte(0));
    // A synchronous memset of pinned memory is complete, and so is what it waited for.
    let legacy = 1;
    ok("cuMemsetD8Async", &[pinned + 8, 1, 1, legacy]);
    ok("cuMemsetD8_v2", &[pinned + 9, 1, 1]);
    let memsets = format!("memsets {} {}", byte(8), byte(9));
    ok("cuStreamWriteValue32_v2", &[stream, pinned + 12, 1, 0]);
    let value = format!("value {}", byte(12));
    // Pageable memory may change after the call; to it, a copy is complete.
    let device = make("cuMemAlloc_v2", &[64]);
    let mut host = [3_u32];
    ok("cuMemcpyHtoDAsync_v2", &[device, at(&host), 4, stream]);
    host[0] = 5;
    ok("cuMemcpyDtoHAsync_v2", &[out(&mut host), device, 4, stream]);
    let staged = format!("staged {}", host[0]);
    ok("cuMemcpyAsync", &[out(&mut host), device, 4, stream]);
    let copied = format!("copied {}", host[0]);
    let text = std::fs::read(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../driver/src/mix.ptx"
    ));
    let text = std::ffi::CString::new(text.expect("the kernel")).expect("no NUL");
    let module = make("cuModuleLoadData", &[text.as_ptr() as u64]);
    let kernel = make("cuModuleGetFunction", &[module, driver::text("cutape_mix")]);
    let (output, input, count, seed) = (pinned + 16, device, 1_u32, 27_u32 ^ (3 << 7));
    let parameters = [at(&output), at(&input), at(&count), at(&seed)];
    let launch = [kernel, 1, 1, 1, 1, 1, 1, 0, stream, at(&parameters), 0];
    ok("cuLaunchKernel", &launch);
    let early = byte(16);
    let event = make("cuEventCreate", &[0]);
    ok("cuEventRecord", &[event, stream]);
    let mut queries = 0;
    while call("cuEventQuery", &[event]) == NOT_READY {
        queries += 1;
    }
    let kernel = format!("kernel {early} {}", byte(16));
    [
        memset,
        memsets,
        value,
        staged,
        copied,
        kernel,
        format!("queries {queries}"),
    ]
    .join(", ")
}

/// Waits for work that waits for what another stream writes.
fn value_of_another_stream() -> String {
    begin();
    let [writer, waiter] = [1, 1].map(|flags| make("cuStreamCreate", &[flags]));
    let device = make("cuMemAlloc_v2", &[64]);
    ok("cuMemsetD8_v2", &[device, 0, 64]);
    ok("cuCtxSynchronize", &[]);
    ok("cuMemsetD32Async", &[device, 1, 1, writer]);
    let equal = 1;
    ok("cuStreamWaitValue32_v2", &[waiter, device, 1, equal]);
    ok("cuStreamSynchronize", &[waiter]);
    let mut host = [0_u32];
    ok("cuMemcpyDtoH_v2", &[out(&mut host), device, 4]);
    format!("value {}", host[0])
}

/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: u32 = 600;

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
