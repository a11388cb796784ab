//! How many calls a second the analyzer takes; prints the number and fails only where something is
//! quadratic.

mod script;

use std::time::{Duration, Instant};

use cutape_analyzer::Analyzer;

#[test]
fn many_calls_take_little_time() {
    let mut lines =
        "cuCtxCreate_v2 pctx:=0xc1 dev=0\n cuModuleLoadData module:=0x100 image@0x5000:PTX\n\
        cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"\n cuStreamCreate phStream:=0x300\n"
            .to_owned();
    for n in 0..2000u64 {
        lines.push_str(&format!(
            "cuMemAlloc_v2 dptr:={0} bytesize=256\n\
             cuMemcpyHtoDAsync_v2 dstDevice={0} ByteCount=256 hStream=0x300\n\
             cuLaunchKernel f=0x200 hStream=0x300 params=0x10000\n cuCtxGetCurrent pctx:=0xc1\n\
             cuStreamSynchronize hStream=0x300\n cuMemFree_v2 dptr={0}\n",
            0x10_0000 + 0x200 * (n % 500)
        ));
    }
    let trace = script::trace(&lines);
    let calls: Vec<_> = trace.calls().collect();
    let mut analyzer = Analyzer::new();
    let start = Instant::now();
    let mut findings = 0;
    for call in &calls {
        findings += analyzer.push(&trace, call).len();
    }
    let time = start.elapsed();
    println!(
        "{} calls in {time:?}: {:.0} a second",
        calls.len(),
        calls.len() as f64 / time.as_secs_f64()
    );
    assert_eq!(findings, 0);
    assert!(time < Duration::from_secs(5), "{time:?}");
}
