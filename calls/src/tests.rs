//! Terms, errors, and the calls of sets; `tests/call_sets.json` has more cases.

use cutape_format::{NewCall, TraceBuilder};

use super::marked::{Marked, Moments};
use super::term::Verdicts;
use super::*;
use cutape_render::test_trace;
use cutape_report::CallKind;

#[test]
fn terms() {
    for (text, expected) in [
        ("120", Term::Range(120, 121)),
        ("100..200", Term::Range(100, 200)),
        ("100..=200", Term::Range(100, 201)),
        ("100..", Term::Range(100, u64::MAX)),
        ("..7", Term::Range(0, 7)),
        ("..", Term::Range(0, u64::MAX)),
        ("cuMem*", Term::Function("cuMem*".into())),
        ("*Alloc?", Term::Function("*Alloc?".into())),
        ("function:cuInit", Term::Function("cuInit".into())),
        (
            "kernel:saxpy*",
            Term::Kernel("saxpy*".into(), Verdicts::default()),
        ),
        ("Saxpy", Term::Text("saxpy".into(), Verdicts::default())),
        ("cu", Term::Text("cu".into(), Verdicts::default())),
        ("\"cuA b\"", Term::Text("cua b".into(), Verdicts::default())),
        ("thread:3", Term::Thread(3)),
        ("failed", Term::Failed),
        ("result:*MEM*", Term::Result("*MEM*".into())),
        (">1.5ms", Term::Longer(1_500_000.0)),
        ("<2us", Term::Shorter(2000.0)),
        ("kind:copy", Term::Kind(CallKind::Copy)),
        ("object:module#2", Term::Object("module#2".into())),
        ("memory:0x7f10", Term::Memory(0x7f10)),
        (
            "stack:train.py:12",
            Term::Stack("train.py:12".into(), Verdicts::default()),
        ),
        (
            "range:\"a, b\"[1]",
            Term::Marked(
                Marked::parse("range:a, b[1]").unwrap().unwrap(),
                Moments::default(),
            ),
        ),
    ] {
        let parsed = CallSet::parse(text).unwrap().expression;
        assert_eq!(parsed, Expression::Term(expected), "{text}");
    }
}

#[test]
fn ranges_of_sets() {
    for (text, expected) in [
        ("120", Some(120..121)),
        ("100..200,7", Some(7..200)),
        ("5..,2", Some(2..u64::MAX)),
        ("5.. ..9", Some(5..9)),
        ("5..7 9..12", Some(9..9)),
        ("not 5", Some(0..u64::MAX)),
        ("cuMem*", None),
        ("7,thread:1", None),
        ("5..9 thread:1", None),
    ] {
        assert_eq!(CallSet::parse(text).unwrap().range(), expected, "{text}");
    }
}

#[test]
fn errors_say_what_where_and_what_is_allowed() {
    for (text, what) in [
        ("", "an empty term"),
        ("12x", "`12x` is not a call number"),
        ("5..x", "`x` is not a call number"),
        ("9..9", "the range is empty"),
        ("+1..2", "`+1` is not a call number"),
        (
            "99999999999999999999",
            "`99999999999999999999` is too large",
        ),
        (
            "18446744073709551615",
            "`18446744073709551615` is too large",
        ),
        ("thread:-1", "no thread number"),
        ("thread:+1", "no thread number"),
        ("thread:4294967296", "`4294967296` is too large"),
        ("memory:0x+10", "give an address"),
        ("memory:0x", "give an address"),
        ("strem:2", "no term begins with `strem:`"),
        ("at::native", "a name with a colon needs quotes"),
        ("mark:x..7", "ends with a mark"),
        ("cuMem*,cuFoo-x", "no function name contains '-'"),
        (
            "kernl:foo",
            "no term begins with `kernl:`; did you mean `kernel`?",
        ),
        ("a\n(", "an empty term"),
    ] {
        let error = CallSet::parse(text).unwrap_err();
        assert!(error.contains(what), "{text:?}: {error}");
        assert!(
            error.contains(&text.escape_debug().to_string()),
            "{text:?}: {error}"
        );
        assert!(
            error.contains(SYNTAX) && !error.contains('\n'),
            "{text:?}: {error}"
        );
    }
}

#[test]
fn unknown_names_are_rejected() {
    let builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    let trace = test_trace::open(&builder, "call-set-names");
    for (text, error) in [
        ("cuMemAlloc", None),
        ("cuMemAlloc_v2", None),
        ("cuLaunch*", None),
        ("cuLaunchKernl", Some("did you mean `cuLaunchKernel`")),
        ("3,thread:1,kernel:nothing", None),
        ("result:CUDA_SUCCESS,result:NOT_FOUND", None),
        ("not result:NOTFOUND", Some("did you mean `NOT_FOUND`")),
        ("stack:train.py", Some("the trace has no call stacks")),
    ] {
        let resolved = CallSet::parse(text).unwrap().resolve(&trace);
        match error {
            None => assert!(resolved.is_ok(), "{text}"),
            Some(what) => {
                let error = resolved.unwrap_err();
                assert!(error.contains(what), "{text}: {error}");
            }
        }
    }
}

#[test]
fn calls_of_a_set() {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    builder
        .call(NewCall {
            name: "cuInit",
            arguments: &[0],
            ..NewCall::default()
        })
        .leave(0, 0, &[]);
    test_trace::get_function(&mut builder, 0x51, "_Z5saxpyifPfS_");
    test_trace::launch(&mut builder, 0x51, [1, 1, 1]);
    test_trace::get_function(&mut builder, 0x52, "fill");
    test_trace::launch(&mut builder, 0x52, [1, 1, 1]);
    builder
        .call(NewCall {
            thread: 2,
            name: "cuMemAlloc_v2",
            arguments: &[0x7000, 16],
            ..NewCall::default()
        })
        .leave(2, 2, &[]);
    let trace = test_trace::open(&builder, "call-set");
    for (text, expected) in [
        ("0", vec![0]),
        ("1..3,5", vec![1, 2, 5]),
        ("cuLaunchKernel", vec![2, 4]),
        ("cuMemAlloc", vec![5]),
        ("cuMemAlloc_v2", vec![5]),
        ("thread:2", vec![5]),
        ("thread:0", vec![0, 1, 2, 3, 4]),
        ("kernel:saxpy", vec![2]),
        ("kernel:saxpy(int*", vec![2]),
        ("kernel:_Z5saxpy*", vec![2]),
        ("kernel:fill", vec![4]),
        ("kernel:f,thread:9", vec![]),
        ("kernel:*,0", vec![0, 2, 4]),
    ] {
        let set = CallSet::parse(text).unwrap();
        let found: Vec<u64> = set.calls(&trace).collect();
        assert_eq!(found, expected, "{text}");
    }
}

/// A launch in each step of an epoch, one after it, and marks.
fn marked() -> Trace {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    let builder = &mut builder;
    test_trace::get_function(builder, 0x51, "saxpy");
    let run = |builder: &mut TraceBuilder, what: &[&str]| {
        for what in what {
            match *what {
                "launch" => test_trace::launch(builder, 0x51, [1, 1, 1]),
                other => test_trace::marker(builder, other),
            }
        }
    };
    run(builder, &["push epoch", "push step 0", "launch", "pop"]);
    run(
        builder,
        &["mark a", "push step 1", "launch", "launch", "pop", "launch"],
    );
    run(
        builder,
        &["start 5 lib@load", "pop", "launch", "end 5", "mark b"],
    );
    run(builder, &["launch", "mark a", "push step 0", "launch"]);
    test_trace::open(builder, "call-set-marked")
}

#[test]
fn calls_in_ranges_and_between_marks() {
    let trace = marked();
    for (text, expected) in [
        ("range:epoch", vec![1, 2, 3, 4]),
        ("range:step*", vec![1, 2, 3, 7]),
        ("range:\"step 0\"", vec![1, 7]),
        ("range:\"step 0\"[0]", vec![1]),
        ("range:step*[-1]", vec![7]),
        ("range:step*[1..3]", vec![2, 3, 7]),
        ("range:epoch/step*", vec![1, 2, 3]),
        ("range:\"*/step 1\"", vec![2, 3]),
        ("range:lib@load", vec![5]),
        ("range:load", vec![5]),
        ("range:l*@*,0", vec![0, 5]),
        ("mark:a..", vec![2, 3, 4, 5, 6, 7]),
        ("mark:a[1]..", vec![7]),
        ("mark:a..mark:b", vec![2, 3, 4, 5]),
        ("mark:a..mark:a", vec![2, 3, 4, 5, 6]),
        ("..mark:a[0]", vec![0, 1]),
        ("..mark:b,range:\"step 0[1]\"", vec![0, 1, 2, 3, 4, 5, 7]),
    ] {
        let set = CallSet::for_trace(text, &trace).unwrap();
        let found: Vec<u64> = set.calls(&trace).collect();
        assert_eq!(found, expected, "{text}");
    }
    for (text, what) in [
        (
            "range:stp",
            "no range `stp`; the trace has epoch, step 0, step 1, load; names with spaces need \
             quotes, range:\"NAME\"",
        ),
        ("range:other@*", "no range `other@*`"),
        (
            "range:step*[3]",
            "the trace has 3 such ranges, numbered from 0",
        ),
        ("mark:c..", "no mark `c`; the trace has a, b"),
        ("mark:b..mark:b", "no mark `b` follows the begin"),
    ] {
        let failure = CallSet::for_trace(text, &trace).unwrap_err();
        assert!(failure.0.contains(what), "{text}: {}", failure.0);
        assert!(!failure.0.contains('\n'), "{text}");
    }
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    test_trace::get_function(&mut builder, 0x51, "saxpy");
    let bare = test_trace::open(&builder, "call-set-unmarked");
    let failure = CallSet::for_trace("range:step", &bare).unwrap_err();
    assert!(failure.0.contains("the trace has no ranges"));
}
