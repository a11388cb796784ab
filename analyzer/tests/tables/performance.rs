//! Patterns that cost time: loops that are long enough to count, and loops that are not or that
//! have a reason.

use super::START;

const LAUNCH: &str = "cuLaunchKernel f=0x200 hStream=0x300";

/// A rule with scripts.
pub(crate) struct LoopRow {
    pub(crate) rule: &'static str,
    pub(crate) violation: String,
    pub(crate) controls: Vec<String>,
}

/// The lines `times` over, after the start.
fn times(times: usize, lines: &str) -> String {
    format!("{START} looped\n{}", format!("{lines}\n").repeat(times))
}

/// As `times`, with a clock of a million ticks a second; a call takes 10 us, and so does the time
/// between two.
fn timed(count: usize, lines: &str) -> String {
    format!(
        "meta clock.ticks-per-second 1000000\n{}",
        times(count, lines)
    )
}

/// Calls with pending work and without, each so many microseconds long.
fn frees(pending: u64, idle: u64) -> String {
    frees_behind(pending, idle, 2)
}

/// The same with work before one free of so many.
fn frees_behind(pending: u64, idle: u64, every: u64) -> String {
    let mut script = timed(0, "");
    let mut now = 1_000_000;
    for round in 0..16 {
        let (work, long) = match round % every {
            0 => ("cuLaunchKernel f=0x200 hStream=0x300\n", pending),
            _ => ("", idle),
        };
        script.push_str(&format!(
            "at {now}\n cuStreamSynchronize hStream=0x300\n\
             cuMemAlloc_v2 dptr:=0x20000 bytesize={}\n{work} at {}\n\
             t0> cuMemFree_v2 dptr=0x20000\n at {}\n t0<\n",
            4096 * (round + 1),
            now + 1000,
            now + 1000 + long
        ));
        now += 1_000_000;
    }
    script
}

fn row(rule: &'static str, violation: String, controls: &[String]) -> LoopRow {
    LoopRow {
        rule,
        violation,
        controls: controls.to_vec(),
    }
}

pub(crate) fn rows() -> Vec<LoopRow> {
    [code_rows(), order_rows(), memory_rows()]
        .into_iter()
        .flatten()
        .collect()
}

/// Modules, kernels and their settings.
fn code_rows() -> Vec<LoopRow> {
    let reload = "cuModuleLoadData module:=0x101 image@0x5000:PTX\n cuModuleUnload hmod=0x101";
    let lookup = "cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"";
    let measured = |before: &str| {
        format!(
            "{START} looped\n cuEventCreate phEvent:=0x401\n{before}\n\
             cuEventRecord hEvent=0x400 hStream=0x300\n{LAUNCH}\n\
             cuEventRecord hEvent=0x401 hStream=0x300\n cuEventSynchronize hEvent=0x401\n\
             cuEventElapsedTime pMilliseconds:=0 hStart=0x400 hEnd=0x401"
        )
    };
    let preferences = |second: u64, count: usize| {
        format!(
            "{START} looped\n cuModuleGetFunction hfunc:=0x201 hmod=0x100 name=\"g\"\n\
             cuFuncSetCacheConfig hfunc=0x200 config=2\n\
             cuFuncSetCacheConfig hfunc=0x201 config={second}\n{}",
            "cuLaunchKernel f=0x200 hStream=0x300\n cuLaunchKernel f=0x201 hStream=0x300\n"
                .repeat(count)
        )
    };
    let compiled = |length: u64, image: &str| {
        format!(
            "{}\n at 5000000\n t0> cuModuleLoadData module:=0x101 image@0x5000:{image}\n\
             at {}\n t0<",
            timed(0, ""),
            5_000_000 + length
        )
    };
    vec![
        row(
            "performance-module-reloaded",
            times(9, reload),
            &[
                times(6, reload),
                (0..9)
                    .map(|context| {
                        format!(
                            "cuCtxCreate_v2 pctx:={} dev=0\n\
                             cuModuleLoadData module:={} image@0x5000:PTX\n",
                            0xc20 + context,
                            0x120 + context
                        )
                    })
                    .fold(times(0, ""), |script, line| script + &line),
            ],
        ),
        row(
            "performance-jit-at-run-time",
            compiled(80_000, "PTX_OTHER"),
            &[compiled(20_000, "PTX_OTHER"), compiled(80_000, "CUBIN")],
        ),
        row(
            "performance-symbol-lookup-per-launch",
            times(40, &format!("{lookup}\n{LAUNCH}")),
            &[
                times(20, &format!("{lookup}\n{LAUNCH}")),
                // Look-ups without work in between are one initialisation.
                times(40, lookup),
            ],
        ),
        row(
            "performance-lazy-load-in-hot-path",
            measured(""),
            &[
                measured(LAUNCH),
                measured("cuFuncLoad function=0x200"),
                format!(
                    "meta environment.CUDA_MODULE_LOADING EAGER\n{}",
                    measured("")
                ),
            ],
        ),
        row(
            "performance-cache-config-switch",
            preferences(1, 40),
            &[preferences(2, 40), preferences(1, 5)],
        ),
    ]
}

/// Streams, events, waits and queries.
fn order_rows() -> Vec<LoopRow> {
    let wait = "cuStreamSynchronize hStream=0x300";
    let sequence = format!("{}{wait}", format!("{LAUNCH}\n").repeat(10));
    let streams = "cuStreamCreate phStream:=0x301\n cuStreamCreate phStream:=0x302\n\
                   cuMemAlloc_v2 dptr:=0x20000 bytesize=64\n\
                   cuMemAlloc_v2 dptr:=0x30000 bytesize=64\n";
    let between = |first: &str| {
        let lines = format!(
            "cuLaunchKernel f=0x200 hStream=0x301 layout=8 params={first}\n\
             cuLaunchKernel f=0x200 layout=8 params=0x20000\n\
             cuLaunchKernel f=0x200 hStream=0x302 layout=8 params=0x30000"
        );
        format!(
            "{START} looped\n{streams}\n{}",
            format!("{lines}\n").repeat(60)
        )
    };
    let event = "cuEventRecord hEvent=0x400 hStream=0x300\n\
                 cuStreamWaitEvent hStream=0x300 hEvent=0x400";
    vec![
        row(
            "performance-default-stream-serialization",
            between("0x10000"),
            &[
                // The work in the default stream uses what the stream before it wrote.
                between("0x20000"),
                format!(
                    "{START} looped\n{}",
                    "cuLaunchKernel f=0x200 layout=8 params=0x10000\n".repeat(100)
                ),
            ],
        ),
        row(
            "performance-event-timing-unneeded",
            times(70, event),
            &[
                times(40, event),
                format!(
                    "{}\n cuEventSynchronize hEvent=0x400\n\
                     cuEventElapsedTime pMilliseconds:=0 hStart=0x400 hEnd=0x400",
                    times(70, event)
                ),
                times(70, event).replace("phEvent:=0x400", "phEvent:=0x400 Flags=2"),
            ],
        ),
        row(
            "performance-sync-in-hot-loop",
            times(100, &format!("{LAUNCH}\n{wait}")),
            &[
                times(50, &format!("{LAUNCH}\n{wait}")),
                // The result is read back.
                times(
                    100,
                    &format!(
                        "{LAUNCH}\n cuMemcpyDtoHAsync_v2 srcDevice=0x10000 ByteCount=4 \
                         hStream=0x300\n{wait}"
                    ),
                ),
                // The kernel writes to memory that the CPU sees.
                format!(
                    "{START} looped\n cuMemAllocHost_v2 pp:=0x7000000 bytesize=4096\n{}",
                    format!(
                        "cuLaunchKernel f=0x200 hStream=0x300 layout=8 params=0x7000010\n{wait}\n"
                    )
                    .repeat(100)
                ),
            ],
        ),
        row(
            "performance-tiny-launches",
            // Ten ticks for a record: a call takes 10 us, and the next follows after 10.
            timed(30, &sequence).replace("1000000", "2000000"),
            &[
                timed(10, &sequence).replace("1000000", "2000000"),
                timed(30, &sequence),
                // Without a clock nothing is known.
                times(30, &sequence),
            ],
        ),
        row(
            "performance-query-storm",
            timed(2500, "cuCtxGetDevice device:=0"),
            &[
                timed(1500, "cuCtxGetDevice device:=0"),
                // More than a second apart.
                (1..2500)
                    .map(|n| format!("at {}\n cuCtxGetDevice device:=0\n", 1_000_000 + n * 2_000))
                    .fold(timed(0, ""), |script, line| script + &line),
            ],
        ),
    ]
}

/// Allocations and copies.
fn memory_rows() -> Vec<LoopRow> {
    let copy = |bytes: u64| {
        format!("cuMemcpyHtoD_v2 dstDevice=0x80000 srcHost=0x7000000 ByteCount={bytes}")
    };
    let pinned = |physical: u64| {
        format!(
            "meta host.memory {physical}\n{START} looped\n\
             cuMemAllocHost_v2 pp:=0x7000000 bytesize=4096\n\
             cuMemHostRegister_v2 p=0x8000000 bytesize=4096"
        )
    };
    vec![
        row(
            "performance-pageable-copy",
            format!(
                "{START} looped\n cuMemAlloc_v2 dptr:=0x80000 bytesize=0x20000\n{}",
                format!("{}\n", copy(0x20000)).repeat(40)
            ),
            &[
                times(40, &copy(1024)),
                format!(
                    "{START} looped\n cuMemAlloc_v2 dptr:=0x80000 bytesize=0x20000\n\
                     cuMemAllocHost_v2 pp:=0x7000000 bytesize=0x20000\n{}",
                    format!("{}\n", copy(0x20000)).repeat(40)
                ),
            ],
        ),
        row(
            "performance-allocation-churn",
            times(
                70,
                &format!(
                    "cuMemAlloc_v2 dptr:=0x20000 bytesize=4096\n{LAUNCH}\n\
                     cuMemFree_v2 dptr=0x20000"
                ),
            ),
            &[times(
                40,
                "cuMemAlloc_v2 dptr:=0x20000 bytesize=4096\n cuMemFree_v2 dptr=0x20000",
            )],
        ),
        row(
            "performance-pinned-excess",
            pinned(8192 + 4096),
            &[
                pinned(8192 * 4),
                // The first memory has ended with its context.
                format!(
                    "meta host.memory {}\n{START} looped\n cuCtxCreate_v2 pctx:=0xc9 dev=0\n\
                     cuMemAllocHost_v2 pp:=0x7000000 bytesize=4096\n cuCtxDestroy_v2 ctx=0xc9\n\
                     cuMemHostRegister_v2 p=0x8000000 bytesize=4096",
                    8192 + 4096
                ),
            ],
        ),
        row(
            "performance-implicit-sync",
            frees(20_000, 50),
            &[frees(20_000, 15_000), frees(500, 50)],
        ),
        // In the loop that works, each free comes behind work.
        row(
            "performance-implicit-sync",
            frees_behind(20_000, 50, 1),
            &[frees_behind(500, 50, 1)],
        ),
    ]
}
