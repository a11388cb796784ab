//! Why a rule says nothing about a call: each reason.

mod script;

use cutape_analyzer::{Analyzer, Silence};
use script::trace;

const START: &str = "cuCtxCreate_v2 pctx:=0xc1 dev=0\n\
    cuModuleLoadData module:=0x100 image@0x5000:PTX\n\
    cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"\n\
    cuMemAlloc_v2 dptr:=0x1000000 bytesize=64\n\
    cuStreamCreate phStream:=0x301 Flags=1\n cuStreamCreate phStream:=0x302 Flags=1\n";

/// The answer about the last call of a script.
fn answer(rule: &str, calls: &str) -> Silence {
    let trace = trace(&format!("{START}{calls}"));
    let mut analyzer = Analyzer::new();
    let all: Vec<_> = trace.calls().collect();
    analyzer.ask(rule, all.len() as u64 - 1);
    for call in &all {
        analyzer.push(&trace, call);
    }
    analyzer.answer().expect("the call came").clone()
}

/// A rule, calls, and a part of the reason at the last of them.
fn assert_reasons(rows: &[(&str, &str, &str)]) {
    for (rule, calls, expected) in rows {
        let said = answer(rule, calls).to_string();
        assert!(said.contains(expected), "{rule}: {calls}\n{said}");
    }
}

const FREE: &str = "cuMemFree_v2 dptr=0x1000000";

#[test]
fn rules_that_do_not_look_at_the_call() {
    assert_reasons(&[
        (
            "memory-copy-out-of-bounds",
            "cuStreamSynchronize hStream=0x301",
            "not about this function",
        ),
        ("memory-leak", FREE, "not about this function"),
        (
            "threading-host-function-waits",
            FREE,
            "a trace cannot decide it. ",
        ),
        (
            "performance-allocation-churn",
            FREE,
            "it counts calls of the whole trace",
        ),
        (
            "ranks-memory-freed-while-open",
            FREE,
            "it compares processes",
        ),
        (
            "errors-async-never-observed",
            FREE,
            "missing at the end of the trace",
        ),
    ]);
}

#[test]
fn rules_that_look_at_the_call() {
    let race = "cuMemsetD8Async dstDevice=0x1000000 N=16 hStream=0x301\n\
        cuMemsetD8Async dstDevice=0x1000000 N=16 hStream=0x302";
    assert_reasons(&[
        (
            "memory-double-free",
            FREE,
            "no object of a kind that the call uses had ended",
        ),
        (
            "memory-free-wrong-kind",
            FREE,
            "the rule looked at memory#1 0x1000000 and found them right",
        ),
        (
            "init-fork-child-use",
            FREE,
            "only at calls that return CUDA_ERROR_NOT_INITIALIZED",
        ),
        (
            "memory-race-cross-stream",
            race,
            "the rule found: two streams use the same memory",
        ),
        // Ordered, as far as the trace shows; and refused.
        (
            "memory-race-cross-stream",
            "cuMemsetD8Async dstDevice=0x1000000 N=16 hStream=0x301\n\
             cuMemsetD8Async dstDevice=0x1000000 N=16 hStream=0x301",
            "looked at memory#1 0x1000000, stream#1 0x301 and found them right",
        ),
        (
            "memory-race-cross-stream",
            &format!("{race} -> 1"),
            "failed with CUDA_ERROR_INVALID_VALUE; had it succeeded",
        ),
        (
            "launch-config-block-over-function-limit",
            "cuLaunchKernel f=0x200 gridDimX=1 gridDimY=1 gridDimZ=1 blockDimX=1 blockDimY=1 \
             blockDimZ=1",
            "only at calls that failed, and this one succeeded",
        ),
        (
            "errors-result-ignored",
            "cuMemFree_v2 dptr=0x1000000\n cuMemAlloc_v2 dptr:=0 bytesize=64 -> 2\n\
             cuMemFree_v2 dptr=0x1000000 -> 1",
            "memory-double-free found the cause, which comes first",
        ),
        (
            "memory-race-cross-stream",
            &format!("looped\n{race}\n{race}"),
            "repeats an earlier finding",
        ),
        (
            "module-file-not-found",
            "cuModuleLoad module:=0 fname=\"a.cubin\" -> 301",
            "only if no later call of the same function succeeds",
        ),
        (
            "module-fatbinary-wrong-kind",
            "cuModuleLoadFatBinary module:=0x101 fatCubin?",
            "the bytes behind `fatCubin` could not be read",
        ),
        (
            "memory-use-after-free-kernel-argument",
            "cuMemFree_v2 dptr=0x1000000\n\
             cuLaunchKernel f=0x999 gridDimX=1 gridDimY=1 gridDimZ=1 blockDimX=1 blockDimY=1 \
             blockDimZ=1",
            "does not say how the kernel takes its parameters",
        ),
        (
            "memory-double-free",
            &format!("{FREE} -> 4"),
            "returned CUDA_ERROR_DEINITIALIZED",
        ),
    ]);
}
