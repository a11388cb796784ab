//! What holds over all rules: recycled handles, several threads and contexts, unknown calls, calls
//! in flight, findings in every form of output.

mod script;

use cutape_analyzer::decode::Nameless;
use cutape_analyzer::output::{Omitted, Style, json, junit_cases, sarif, text};
use cutape_analyzer::render::render_call;
use cutape_analyzer::{Analyzer, Baseline, Confidence, Severity, Suppressions};
use proptest::prelude::*;
use script::{PTX, findings, findings_until, rules, trace};

#[test]
fn a_handle_is_reused_a_thousand_times() {
    let mut script = "cuCtxCreate_v2 pctx:=0xc1 dev=0\n".to_owned();
    for _ in 0..1000 {
        script.push_str(
            "cuModuleLoadData module:=0x100 image@0x5000:PTX\n\
             cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"\n\
             cuStreamCreate phStream:=0x300\n cuMemAlloc_v2 dptr:=0x10000 bytesize=64\n\
             cuLaunchKernel f=0x200 hStream=0x300\n cuStreamSynchronize hStream=0x300\n\
             cuMemFree_v2 dptr=0x10000\n cuStreamDestroy_v2 hStream=0x300\n\
             cuModuleUnload hmod=0x100\n",
        );
    }
    // Nothing but the truth: the same image is loaded a thousand times.
    assert_eq!(rules(&script), ["performance-module-reloaded"]);
    script.push_str("cuModuleUnload hmod=0x100 -> 400\n");
    let found = findings(&script);
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].objects[0].label, "module#1000 0x100");
}

#[test]
fn what_the_driver_waits_for_is_one_advice() {
    let start = "cuCtxCreate_v2 pctx:=0xc1 dev=0\n\
        cuModuleLoadData module:=0x100 image@0x5000:PTX\n\
        cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"\n\
        cuStreamCreate phStream:=0x301 Flags=1\n cuStreamCreate phStream:=0x302 Flags=1\n\
        cuMemAlloc_v2 dptr:=0x1000000 bytesize=4096\n cuMemAlloc_v2 dptr:=0x2000000 bytesize=4096\n\
        cuMemAllocHost_v2 pp:=0x7000000 bytesize=4096\n cuMemAllocHost_v2 pp:=0x8000000 bytesize=64\n\
        cuLaunchKernel f=0x200 hStream=0x301 layout=8,8 params=0x1000000,0x2000000\n\
        cuMemsetD8Async dstDevice=0x7000000 N=64 hStream=0x301\n\
        cuMemsetD8Async dstDevice=0x8000000 N=64 hStream=0x301\n";
    for (calls, rule) in [
        (
            "cuMemFree_v2 dptr=0x1000000\n cuMemFree_v2 dptr=0x2000000",
            "memory-free-pending-work",
        ),
        (
            "cuMemFreeHost p=0x7000000\n cuMemFreeHost p=0x8000000",
            "memory-host-buffer-freed-while-pending",
        ),
        ("cuModuleUnload hmod=0x100", "module-unload-work-pending"),
    ] {
        let found = findings(&format!("{start}{calls}"));
        let found: Vec<_> = found.iter().map(|f| (f.rule, f.severity)).collect();
        assert_eq!(found, [(rule, Severity::Advice)], "{calls}");
    }
}

#[test]
fn an_address_that_may_be_an_end() {
    let start = "cuCtxCreate_v2 pctx:=0xc1 dev=0\n\
        cuModuleLoadData module:=0x100 image@0x5000:PTX\n\
        cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"\n\
        cuMemAlloc_v2 dptr:=0x10000 bytesize=4096\n cuMemAlloc_v2 dptr:=0x11000 bytesize=4096\n\
        cuMemAddressReserve ptr:=0x40000000 size=0x600000\n cuMemCreate handle:=0x900\n\
        cuMemMap ptr=0x40000000 size=0x200000 handle=0x900\n\
        cuMemMap ptr=0x40200000 size=0x200000 handle=0x900\n\
        cuMemSetAccess ptr=0x40000000 size=0x400000 desc=[1,3] count=1\n\
        cuMemMap ptr=0x40400000 size=0x200000 handle=0x900\n";
    let freed = "memory-use-after-free-kernel-argument";
    let unmapped = "memory-vmm-access-not-set";
    let captured = "cuStreamCreate phStream:=0x300\n cuStreamBeginCapture_v2 hStream=0x300\n\
        cuLaunchKernel f=0x200 hStream=0x300 layout=8,8 params=0x10ff0,0x11000\n\
        cuStreamEndCapture hStream=0x300 phGraph:=0x801\n\
        cuGraphInstantiateWithFlags phGraphExec:=0xa01 hGraph=0x801\n\
        cuMemFree_v2 dptr=0x11000\n cuGraphLaunch hGraph=0xa01 hStream=0x300";
    for (calls, rule, severity) in [
        // The first and the last address; another address only; one past the end.
        (
            "cuMemFree_v2 dptr=0x11000\n cuLaunchKernel f=0x200 layout=8,8 params=0x10000,0x11000",
            freed,
            Severity::Advice,
        ),
        (
            "cuMemFree_v2 dptr=0x11000\n cuLaunchKernel f=0x200 layout=8,8 params=0x20000,0x11000",
            freed,
            Severity::Warning,
        ),
        (
            "cuMemFree_v2 dptr=0x11000\n cuLaunchKernel f=0x200 layout=8,8 params=0x10000,0x11008",
            freed,
            Severity::Warning,
        ),
        // Of a graph; of two mappings.
        (captured, "graph-baked-pointer-freed", Severity::Advice),
        (
            "cuLaunchKernel f=0x200 layout=8,8 params=0x40000000,0x40400000",
            unmapped,
            Severity::Advice,
        ),
        (
            "cuLaunchKernel f=0x200 layout=8,8 params=0x40400000,0x40400010",
            unmapped,
            Severity::Warning,
        ),
    ] {
        let found = findings(&format!("{start}{calls}"));
        let found: Vec<_> = found.iter().map(|f| (f.rule, f.severity)).collect();
        assert_eq!(found, [(rule, severity)], "{calls}");
    }
}

#[test]
fn a_free_and_an_allocation_that_overlap() {
    // Thread 1's allocation is entered first and gets the block that thread 0 frees meanwhile.
    let script = "cuCtxCreate_v2 pctx:=0xc1 dev=0\n cuMemAlloc_v2 dptr:=0x10000 bytesize=64\n\
        t1> cuMemAlloc_v2 dptr:=0x10000 bytesize=64\n cuMemFree_v2 dptr=0x10000\n t1<\n\
        t1 cuMemsetD8_v2 dstDevice=0x10000 N=64\n t1 cuMemFree_v2 dptr=0x10000\n";
    assert_eq!(rules(script), [""; 0]);
    assert_eq!(
        rules(&format!("{script}cuMemFree_v2 dptr=0x10000 -> 1")),
        ["memory-double-free"]
    );
}

#[test]
fn a_block_goes_through_three_threads() {
    // Thread 1's allocation takes so long that the block is freed, given to thread 2 and freed
    // again before it gets it.
    let script = "cuCtxCreate_v2 pctx:=0xc1 dev=0\n cuMemAlloc_v2 dptr:=0x10000 bytesize=64\n\
        t1 cuCtxSetCurrent ctx=0xc1\n t2 cuCtxSetCurrent ctx=0xc1\n\
        t1> cuMemAlloc_v2 dptr:=0x10000 bytesize=64\n cuMemFree_v2 dptr=0x10000\n\
        t2 cuMemAlloc_v2 dptr:=0x10000 bytesize=64\n t2 cuMemFree_v2 dptr=0x10000\n t1<\n\
        t1 cuMemsetD8_v2 dstDevice=0x10000 N=64\n t1 cuMemFree_v2 dptr=0x10000\n";
    assert_eq!(rules(script), [""; 0]);
    assert_eq!(
        rules(&format!("{script}t2 cuMemFree_v2 dptr=0x10000 -> 1")),
        ["memory-double-free"]
    );
}

#[test]
fn what_was_not_loaded_is_unloaded() {
    // Whatever was wrong with the image, the unload is a mistake of its own.
    let start = "cuCtxCreate_v2 pctx:=0xc1 dev=0\n\
        cuModuleLoadData module@0x8000:=0 image@0x5000:PTX_FUTURE -> 222\n";
    for (unload, severity) in [
        ("cuModuleUnload hmod=0 -> 400", Severity::Warning),
        ("cuModuleUnload hmod=0x5a5a5a50 -> !", Severity::Error),
    ] {
        let found = findings(&format!("{start}{unload}"));
        let found: Vec<_> = found.iter().map(|f| (f.rule, f.severity)).collect();
        let load = ("module-ptx-jit-failure", Severity::Error);
        let unloaded = ("module-load-allocation-failure", severity);
        assert_eq!(found, [load, unloaded], "{unload}");
    }
}

#[test]
fn a_thread_uses_what_another_has_ended() {
    let found = findings(
        "cuCtxCreate_v2 pctx:=0xc1 dev=0\n cuModuleLoadData module:=0x100 image@0x5000:PTX\n\
         t1 cuCtxSetCurrent ctx=0xc1\n t1 cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"\n\
         cuModuleUnload hmod=0x100\n t1 cuLaunchKernel f=0x200 -> 400",
    );
    assert_eq!(found.len(), 1);
    let call = found[0].call.as_ref().unwrap();
    assert_eq!((call.thread, call.index), (1, 5));
    assert!(
        found[0].objects[0].created.contains("thread 1"),
        "{:?}",
        found[0].objects
    );
}

#[test]
fn a_context_ends_only_its_own_objects() {
    let mut script = String::new();
    for n in 0..50 {
        script.push_str(&format!(
            "cuCtxCreate_v2 pctx:={} dev=0\n cuModuleLoadData module:={} image@0x5000:PTX\n",
            0xc00 + n,
            0x1000 + n
        ));
    }
    script.push_str("cuCtxDestroy_v2 ctx=0xc31\n");
    for n in 0..48 {
        script.push_str(&format!(
            "cuCtxSetCurrent ctx={}\n cuModuleUnload hmod={}\n",
            0xc00 + n,
            0x1000 + n
        ));
    }
    assert_eq!(rules(&script), [""; 0]);
    script.push_str("cuModuleUnload hmod=0x1031 -> 400\n");
    assert_eq!(rules(&script), ["context-resource-after-destroy"]);
}

#[test]
fn unobserved_objects_are_no_misuse() {
    for script in [
        // Recording began late, or the objects are the driver's own.
        "cuModuleUnload hmod=0x100",
        "cuLaunchKernel f=0x200 hStream=0x300",
        "cuMemFree_v2 dptr=0x10000\n cuLinkDestroy state=0x600\n cuEventDestroy_v2 hEvent=0x400",
        "cuCtxPopCurrent_v2 pctx:=0xc1\n cuCtxSetCurrent ctx=0\n cuCtxDestroy_v2 ctx=0xc1",
        // The default streams and missing handles.
        "cuStreamSynchronize hStream=0\n cuStreamSynchronize hStream=1\n\
         cuStreamSynchronize hStream=2",
        // A driver that is being shut down.
        "cuCtxCreate_v2 pctx:=0xc1 dev=0\n cuMemAlloc_v2 dptr:=0x10000 bytesize=64\n\
         cuMemFree_v2 dptr=0x10000\n\
         cuMemFree_v2 dptr=0x10000 -> 4",
        // A failed load makes nothing and a failed destroy ends nothing.
        "cuCtxCreate_v2 pctx:=0xc1 dev=0\n cuStreamCreate phStream:=0x300\n\
         cuStreamDestroy_v2 hStream=0x300 -> 700\n\
         cuStreamDestroy_v2 hStream=0x300",
    ] {
        assert_eq!(rules(script), [""; 0], "{script}");
    }
}

#[test]
fn what_later_calls_may_do_is_not_missing() {
    let context = "cuCtxCreate_v2 pctx:=0xc1 dev=0\n";
    let module = "cuModuleLoadData module:=0x100 image@0x5000:PTX\n";
    for (calls, whole, cut) in [
        // Waited for later.
        (
            format!(
                "{module}cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"\n\
                cuLaunchKernel f=0x200 hStream=0\n meta exit.status 0"
            ),
            &["errors-async-never-observed"][..],
            &[][..],
        ),
        // Destroyed later.
        (
            "cuLinkCreate_v2 stateOut:=0x900\n meta exit.status 0".to_owned(),
            &["link-state-leak"],
            &[],
        ),
        // Tried again later.
        (
            format!(
                "cuDeviceGetAttribute pi:=232448 attrib=97 dev=0\n{module}\
                 cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"\n\
                 cuFuncSetAttribute hfunc=0x200 attrib=8 value=262144 -> 1"
            ),
            &["exec-attribute-dynamic-smem-over-limit"],
            &[],
        ),
        // What the calls show by themselves stays.
        (
            format!("{module}cuModuleUnload hmod=0x100\n").repeat(9),
            &["performance-module-reloaded"],
            &["performance-module-reloaded"],
        ),
    ] {
        for (is_end, expected) in [(true, whole), (false, cut)] {
            let found = findings_until(&format!("{context}{calls}"), is_end);
            let found: Vec<_> = found.iter().map(|finding| finding.rule).collect();
            assert_eq!(found, expected, "{calls} {is_end}");
        }
    }
}

#[test]
fn a_loop_is_reported_once() {
    // The same line of the program; the builder gives each line of a script a caller of its own, so
    // distinct lines speak.
    let once = "cuCtxCreate_v2 pctx:=0xc1 dev=0\n cuEventCreate phEvent:=0x400\n\
        cuEventDestroy_v2 hEvent=0x400\n\
        cuEventQuery hEvent=0x400 -> 400\n cuEventQuery hEvent=0x400 -> 400";
    assert_eq!(rules(once), ["event-use-after-destroy"; 2]);
    let trace = trace(once);
    let mut analyzer = Analyzer::new();
    let calls: Vec<_> = trace.calls().collect();
    let mut count = 0;
    for call in calls.iter().chain(&calls[4..]).chain(&calls[4..]) {
        count += analyzer.push(&trace, call).len();
    }
    assert_eq!(count, 2);
}

#[test]
fn a_second_object_at_the_same_call_is_found_and_repeats_are_counted() {
    let start = "cuCtxCreate_v2 pctx:=0xc1 dev=0\n cuStreamCreate phStream:=0x301 Flags=1\n\
        cuStreamCreate phStream:=0x302 Flags=1\n";
    let race = |address: u64| {
        format!(
            "cuMemsetD8Async dstDevice={address:#x} N=16 hStream=0x301\n\
             cuMemsetD8Async dstDevice={address:#x} N=16 hStream=0x302\n"
        )
    };
    let two = "cuMemAlloc_v2 dptr:=0x10000 bytesize=64\n cuMemAlloc_v2 dptr:=0x20000 bytesize=64\n";
    let (first, second) = (race(0x10000), race(0x20000));
    // Memory of two calls of the program, or of one call.
    for (script, found, repeats) in [
        (format!("{start}{two}looped\n{first}{first}"), 1, 2),
        (format!("{start}{two}looped\n{first}{second}"), 2, 0),
        (format!("{start}{two}looped\n{first}{second}{second}"), 2, 2),
        (format!("{start}looped\n{two}{first}{second}"), 1, 1),
    ] {
        let trace = trace(&script);
        let mut analyzer = Analyzer::new();
        let mut findings = Vec::new();
        for call in trace.calls() {
            findings.extend(analyzer.push(&trace, &call));
        }
        let counted = analyzer.take_repeats();
        assert_eq!(findings.len(), found, "{script}");
        assert_eq!(counted.values().sum::<u64>(), repeats, "{script}");
        let keys: Vec<_> = findings.iter().map(|finding| &finding.key).collect();
        assert!(counted.keys().all(|key| keys.contains(&key)), "{counted:?}");
        assert!(found == 1 || keys[0] != keys[1], "{keys:?}");
    }
}

#[test]
fn a_finding_says_what_it_rests_on() {
    let start = "cuCtxCreate_v2 pctx:=0xc1 dev=0\n cuModuleLoadData module:=0x100 image@0x5000:PTX\n\
        cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"\n\
        cuMemAlloc_v2 dptr:=0x1000000 bytesize=64\n";
    let streams =
        "cuStreamCreate phStream:=0x301 Flags=1\n cuStreamCreate phStream:=0x302 Flags=1\n";
    let set = "cuMemsetD8Async dstDevice=0x1000000 N=16 hStream=0x301\n";
    for (calls, rule, severity, confidence) in [
        (
            "cuMemFree_v2 dptr=0x1000000\ncuMemFree_v2 dptr=0x1000000 -> 1".to_owned(),
            "memory-double-free",
            Severity::Error,
            Confidence::Certain,
        ),
        // One rule with both kinds.
        (
            format!("{streams}{set}cuMemsetD8Async dstDevice=0x1000000 N=16 hStream=0x302"),
            "memory-race-cross-stream",
            Severity::Error,
            Confidence::Certain,
        ),
        (
            format!("{streams}{set}cuLaunchKernel f=0x200 hStream=0x302 layout=8 params=0x1000000"),
            "memory-race-cross-stream",
            Severity::Advice,
            Confidence::Assumed,
        ),
        // Not even a call that failed makes an assumption an error.
        (
            "cuMemFree_v2 dptr=0x1000000\ncuLaunchKernel f=0x200 layout=8 params=0x1000000 -> 700"
                .to_owned(),
            "memory-use-after-free-kernel-argument",
            Severity::Warning,
            Confidence::Assumed,
        ),
        (
            "cuModuleUnload hmod=0x100\ncuModuleLoadFatBinary module:=0x101 fatCubin@0x6000:PTX"
                .to_owned(),
            "module-fatbinary-wrong-kind",
            Severity::Advice,
            Confidence::Contents,
        ),
    ] {
        let found = findings(&format!("{start}{calls}"));
        let found: Vec<_> = found
            .iter()
            .map(|finding| (finding.rule, finding.severity, finding.confidence))
            .collect();
        assert_eq!(found, [(rule, severity, confidence)], "{calls}");
    }
}

const MISUSE: &str = "cuCtxCreate_v2 pctx:=0xc1 dev=0\n cuLinkCreate_v2 stateOut:=0x600\n\
    cuLinkComplete state=0x600 cubinOut:=0x30000 cubinOut/7:CUBIN sizeOut:=4000\n\
    cuLinkDestroy state=0x600\n\
    cuModuleLoadData module:=0x100 image@0x30000:CUBIN\n";

#[test]
fn a_finding_says_how_much_of_a_freed_cubin_changed() {
    let found = findings(&MISUSE.replace("image@0x30000:CUBIN", "image@0x30000:CUBIN_FREED"));
    let said = "2 of the ";
    assert!(found[0].message.contains(said), "{}", found[0].message);
}

#[test]
fn a_finding_explains_itself() {
    let found = findings(MISUSE);
    let [finding] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(finding.severity, Severity::Error);
    for part in [
        "had not been reused",
        "0x30000",
        "cuLinkComplete (call 2)",
        "cuLinkDestroy (call 3)",
        "still those of the cubin",
    ] {
        assert!(
            finding.message.contains(part),
            "{part} is not in: {}",
            finding.message
        );
    }
    assert_eq!(finding.chain.len(), 3, "{:?}", finding.chain);
    assert!(
        finding.objects[0]
            .destroyed
            .as_ref()
            .unwrap()
            .starts_with("cuLinkDestroy, call 3")
    );
    assert!(!finding.advice.is_empty() && !finding.manual.is_empty());
    let plain = text(finding, &Style::PLAIN);
    assert!(
        plain.starts_with("error[link-cubin-after-destroy]: "),
        "{plain}"
    );
    assert!(
        plain.contains(" --> call 4: cuModuleLoadData(module: "),
        "{plain}"
    );
    for mark in ["= chain: link state#1 0x600", "= help: ", "= manual: "] {
        assert!(plain.contains(mark), "{mark} is not in:\n{plain}");
    }
    assert!(
        plain
            .lines()
            .all(|line| line.chars().count() < 240 && line == line.trim_end()),
        "{plain}"
    );
}

#[test]
fn outputs_agree() {
    let found = findings(MISUSE);
    let value = json(&found, &Omitted::default());
    assert_eq!(value["findings"][0]["rule"], "link-cubin-after-destroy");
    assert_eq!(value["findings"][0]["call"]["call"], 4);
    let log = sarif(&found, "a b.cutape", "/home");
    let run = &log["runs"][0];
    assert_eq!(run["results"][0]["ruleId"], "link-cubin-after-destroy");
    assert_eq!(run["results"][0]["level"], "error");
    let place = &run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"];
    assert_eq!(place["uri"], "a%20b.cutape");
    assert_eq!(
        run["tool"]["driver"]["rules"][0]["id"],
        "link-cubin-after-destroy"
    );
    let cases = junit_cases(&found);
    assert_eq!(cases[0].name, "link-cubin-after-destroy call 4");
    // What is in a baseline, or suppressed, is not shown again.
    let mut baseline = Baseline::parse(&value.to_string()).unwrap();
    for finding in found.clone() {
        assert_eq!(baseline.judge(finding), (None, true));
    }
    for (rules, left) in [
        ("link-*", 0),
        ("* cuModuleLoad*", 0),
        ("link-* cuLink*", 1),
        ("module-*", 1),
    ] {
        let suppressions = Suppressions::parse(rules).unwrap();
        assert_eq!(suppressions.filter(found.clone()).len(), left, "{rules}");
    }
}

#[test]
fn calls_are_rendered() {
    let trace = trace(
        "cuStreamCreate phStream:=0x300 Flags=1\n\
         cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"\n\
         cuModuleLoadData module:=0x100 image@0x5000:PTX\n cuDeviceGetAttribute pi:=9 attrib=75\n\
         cuCtxSetLimit limit=0 value=-1\n cuModuleGetFunction hmod=0x100 name? -> 1\n\
         cuLinkCreate_v2 opts=7:3 stateOut:=0x600 -> !",
    );
    let calls: Vec<_> = trace.calls().collect();
    let expected = [
        "cuStreamCreate(phStream: 0x7ff000000000 -> 0x300, Flags: CU_STREAM_NON_BLOCKING)",
        "cuModuleGetFunction(hfunc: 0x7ff000000000 -> 0x200, hmod: 0x100, name: 0x7ff000000200 \"k\")",
        &format!(
            "cuModuleLoadData(module: 0x7ff000000000 -> 0x100, image: 0x5000 (PTX, {} bytes))",
            PTX.len() + 1
        ),
        "cuDeviceGetAttribute(pi: 0x7ff000000000 -> 9, attrib: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev: 0)",
        "cuCtxSetLimit(limit: CU_LIMIT_STACK_SIZE, value: 18446744073709551615)",
        "cuModuleGetFunction(hfunc: NULL, hmod: 0x100, name: 0x7ff000000200 (unreadable))",
        "cuLinkCreate_v2(numOptions: 1, options: 0x7ff100000000 options [CU_JIT_OPTIMIZATION_LEVEL], optionValues: \
         0x7ff200000000 option values [0x3], stateOut: 0x7ff000000300)",
    ];
    for (call, expected) in calls.iter().zip(expected) {
        assert_eq!(render_call(call, &trace, &Nameless), expected);
    }
}

/// Any sequence of calls over few handles.
fn any_script() -> impl Strategy<Value = String> {
    let functions = prop::sample::select(
        cutape_registry::FUNCTIONS
            .iter()
            .filter(|function| !function.params.is_empty())
            .collect::<Vec<_>>(),
    );
    let call = (
        functions,
        prop::collection::vec(0u64..6, 16),
        0u32..3,
        any::<bool>(),
        0u8..4,
    )
        .prop_map(|(function, values, thread, out, result)| {
            let mut line = format!("t{thread} {}", function.name);
            for (param, value) in function.params.iter().zip(values) {
                let pointer = param.c_type.ends_with('*');
                let name = param.name;
                match (pointer && out, param.c_type.contains("char"), param.width) {
                    (_, _, cutape_registry::Width::Memory(_)) => {}
                    (true, true, _) => line.push_str(&format!(" {name}=\"k\"")),
                    (true, false, _) => line.push_str(&format!(" {name}:={value}")),
                    _ => line.push_str(&format!(" {name}={value}")),
                }
            }
            line + match result {
                0 => " -> 400",
                _ => "",
            }
        });
    prop::collection::vec(call, 1..60).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn nothing_panics(script in any_script()) {
        let trace = trace(&script);
        let mut analyzer = Analyzer::new();
        for call in trace.calls() {
            for finding in analyzer.push(&trace, &call) {
                prop_assert!(cutape_registry::rule(finding.rule).is_some(), "{}", finding.rule);
                prop_assert!(!text(&finding, &Style::COLOUR).is_empty());
            }
            prop_assert!(render_call(&call, &trace, &Nameless).ends_with(')'));
        }
        analyzer.finish(&trace, true);
    }
}

/// What the driver waits for is advice.
#[test]
fn a_free_is_accused_as_far_as_the_driver_does_not_wait() {
    use cutape_analyzer::Severity;
    let start = "cuCtxCreate_v2 pctx:=0xc1 dev=0\n cuStreamCreate phStream:=0x300 Flags=1\n\
        cuStreamCreate phStream:=0x310 Flags=1\n cuMemAlloc_v2 dptr:=0x10000 bytesize=4096\n\
        cuMemAlloc_v2 dptr:=0x20000 bytesize=4096\n\
        cuMemAllocHost_v2 pp:=0x700000 bytesize=4096\n\
        cuMemAllocAsync dptr:=0x30000 bytesize=4096 hStream=0x300\n\
        cuIpcOpenMemHandle_v2 pdptr:=0x40000\n\
        cuModuleLoadData module:=0x100 image@0x5000:PTX\n\
        cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"\n";
    for (script, rule, severity) in [
        (
            // The second free finds nothing pending.
            "cuMemsetD8Async dstDevice=0x10000 N=64 hStream=0x300\n\
             cuMemsetD8Async dstDevice=0x20000 N=64 hStream=0x310\n\
             cuMemFree_v2 dptr=0x10000\n cuMemFree_v2 dptr=0x20000",
            "memory-free-pending-work",
            Severity::Advice,
        ),
        (
            "cuMemcpyHtoDAsync_v2 dstDevice=0x10000 srcHost=0x700000 ByteCount=64 hStream=0x300\n\
             cuMemFreeHost p=0x700000\n cuMemFree_v2 dptr=0x10000",
            "memory-host-buffer-freed-while-pending",
            Severity::Advice,
        ),
        (
            "cuLaunchKernel f=0x200 hStream=0x300\n cuModuleUnload hmod=0x100",
            "module-unload-work-pending",
            Severity::Advice,
        ),
        (
            "cuMemsetD8Async dstDevice=0x30000 N=64 hStream=0x310\n cuMemFree_v2 dptr=0x30000",
            "memory-free-pool-pointer-in-use",
            Severity::Error,
        ),
        (
            "cuMemsetD8Async dstDevice=0x40000 N=64 hStream=0x300\n\
             cuIpcCloseMemHandle dptr=0x40000",
            "memory-free-pending-work",
            Severity::Warning,
        ),
    ] {
        let found = findings(&format!("{start}{script}"));
        let found: Vec<_> = found.iter().map(|f| (f.rule, f.severity)).collect();
        assert_eq!(found, [(rule, severity)], "{script}");
    }
}

/// What a correct program may do as well is advice.
#[test]
fn severity_follows_what_else_the_program_does() {
    let start = "cuInit Flags=0\n cuCtxCreate_v2 pctx:=0xc1 dev=0\n\
        cuStreamCreate phStream:=0x300 Flags=1\n cuMemAlloc_v2 dptr:=0x10000 bytesize=4096\n";
    // A kernel that the device cannot run: asked for, and launched.
    let library = "cuLibraryLoadData library:=0x700 code@0x5100:CUBIN75\n\
        cuLibraryGetKernel pKernel:=0x710 library=0x700 name=\"k\"\n\
        cuKernelGetFunction pFunc:=0 kernel=0x710 -> 209\n";
    let late = "cuLibraryLoadData library:=0x700 code@0x5100:PTX_FUTURE\n\
        cuLibraryGetKernel pKernel:=0x710 library=0x700 name=\"k\"\n\
        cuFuncGetAttribute hfunc=0x710 -> 222\n";
    let copy = "cuMemcpyHtoDAsync_v2 dstDevice=0x10000 srcHost=0x7700000 ByteCount=64 \
        hStream=0x300\n";
    let lookup = "cuModuleLoadData module:=0x100 image@0x5000:PTX\n\
        cuModuleGetFunction hfunc:=0 hmod=0x100 name=\"scale\" -> 500\n";
    let mapped = "cuModuleLoadData module:=0x100 image@0x5000:PTX\n\
        cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"\n\
        cuMemAddressReserve ptr:=0x40000000 size=0x200000\n cuMemCreate handle:=0x900\n\
        cuMemMap ptr=0x40000000 size=0x200000 handle=0x900\n";
    for (script, rule, severity) in [
        (
            format!("{library}meta exit.status 0"),
            "module-no-binary-for-device",
            Severity::Advice,
        ),
        (
            format!("{library}meta exit.status 1"),
            "module-no-binary-for-device",
            Severity::Error,
        ),
        (
            format!("{library}cuLaunchKernel f=0 -> 400\n meta exit.status 0"),
            "module-no-binary-for-device",
            Severity::Error,
        ),
        (
            format!("{late}meta exit.status 0"),
            "module-ptx-jit-failure",
            Severity::Advice,
        ),
        (
            format!("{lookup}meta exit.status 0"),
            "module-symbol-not-found",
            Severity::Advice,
        ),
        (
            format!("{copy}cuMemFreeHost p=0x7700000 -> 1"),
            "memory-free-wrong-kind",
            Severity::Error,
        ),
        // Whose it is, is not known.
        (
            "cuMemFreeHost p=0x7700000 -> 1".to_owned(),
            "memory-free-wrong-kind",
            Severity::Advice,
        ),
        // The page-locked allocation failed, malloc took its place, and the deleter tries both.
        (
            format!(
                "cuMemHostAlloc pp:=0 bytesize=0x100000000 -> 2\n\
                 cuMemHostAlloc pp:=0x8000000 bytesize=4096\n {copy}\
                 cuMemFreeHost p=0x7700000 -> 1\n cuMemFreeHost p=0x8000000"
            ),
            "memory-free-wrong-kind",
            Severity::Advice,
        ),
        // Another device has access: the kernel may not follow the pointer on this one.
        (
            format!(
                "{mapped}cuMemSetAccess ptr=0x40000000 size=0x200000 desc=[1,3] count=1\n\
                cuCtxCreate_v2 pctx:=0xc2 dev=1\n\
                cuLaunchKernel f=0x200 layout=8 params=0x40000000"
            ),
            "memory-vmm-access-not-set",
            Severity::Advice,
        ),
        (
            format!("{mapped}cuLaunchKernel f=0x200 layout=8 params=0x40000000"),
            "memory-vmm-access-not-set",
            Severity::Warning,
        ),
    ] {
        let found = findings(&format!("{start}{script}"));
        let found: Vec<_> = found.iter().map(|f| (f.rule, f.severity)).collect();
        assert_eq!(found, [(rule, severity)], "{script}");
    }
    // Destructors of a forked child that exit() runs.
    let ends = "meta fork.after-init 1\n cuLibraryUnload library=0x700 -> 3\n\
        cuCtxDestroy_v2 ctx=0xc1 -> 3";
    let found = findings(ends);
    let found: Vec<_> = found.iter().map(|f| (f.rule, f.severity)).collect();
    assert_eq!(found, [("init-fork-child-use", Severity::Advice)]);
}

/// After an allocation that failed, a fault is put on a launch as far as its parameters may be what
/// was not allocated.
#[test]
fn a_fault_after_a_failed_allocation() {
    let start = "cuCtxCreate_v2 pctx:=0xc1 dev=0\n\
        cuModuleLoadData module:=0x100 image@0x5000:PTX\n\
        cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"\n\
        cuMemAlloc_v2 dptr:=0x10000 bytesize=4096\n\
        cuMemAlloc_v2 dptr:=0 bytesize=0x1000000000 -> 2\n";
    let fault = "cuCtxSynchronize -> 700";
    let launch = "cuLaunchKernel f=0x200 layout=8,8 params=0x10000,";
    let (ignored, earlier) = ("errors-result-ignored", "errors-async-misattributed");
    for (script, rule) in [
        (format!("{launch}0\n {fault}"), ignored),
        // A count.
        (format!("{launch}1024\n {fault}"), earlier),
        // The program made do with another allocation.
        (
            format!("cuMemAllocHost_v2 pp:=0x8000000 bytesize=64\n {launch}0\n {fault}"),
            earlier,
        ),
        // Either launch may have failed.
        (
            format!("{launch}0\n cuLaunchKernel f=0x200 layout=8 params=0x10000\n {fault}"),
            earlier,
        ),
    ] {
        let found = findings(&format!("{start}{script}"));
        let found: Vec<_> = found.iter().map(|f| f.rule).collect();
        assert_eq!(found, [rule], "{script}");
    }
}
