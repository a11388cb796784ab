//! What a replay says about the cause of a divergence: the launch behind an asynchronous error,
//! memory that is read before it is written, and what differs between replays.

mod recorder;

use std::cell::Cell;

use cutape_format::NewSnapshot;
use cutape_format::layout::field;
use cutape_replay::{Guard, OneReplay, Repeat, Report, Verdict, run_repeated};

use recorder::{Behind, FLAGS, Recorder, assert_agrees, pattern};

#[test]
#[ignore = "not a test: the other tests start it as the child process that replays"]
fn child() {
    recorder::child();
}

const PTX: &[u8] =
    b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k(.param .u64 p) { ret; }\n\0";

#[test]
fn the_launch_behind_an_asynchronous_error_is_named() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let function = recorder.function(PTX, b"k\0");
    let stream = recorder.make("cuStreamCreate", &[0, 0]);
    let launch = |recorder: &mut Recorder, stream| {
        let arguments = [function, 1, 1, 1, 1, 1, 1, 0, stream, 0x1000, 0];
        let packed = [NewSnapshot::piece(9, field::KERNEL_PARAMETERS, &[0; 8])];
        recorder.write("cuLaunchKernel", &arguments, &packed, |_| {}, 0, &[])
    };
    let mut launches = vec![launch(&mut recorder, 0)];
    // Waiting for a stream that captures would end its capture, and the calls behind would fail.
    // Thread-local: other tests make calls at the same time.
    recorder.call("cuStreamBeginCapture_v2", &[stream, 1], &mut []);
    let mut captured = [0; 8];
    let name = [NewSnapshot::piece(9, field::KERNEL_PARAMETERS, &[0; 8])];
    let arguments = [function, 1, 1, 1, 1, 1, 1, 0, stream, 0x1000, 0];
    recorder.write("cuLaunchKernel", &arguments, &name, |_| {}, 0, &[]);
    let behind = &mut [(1, Behind::Output(&mut captured))];
    assert_eq!(recorder.call("cuStreamEndCapture", &[stream, 0], behind), 0);
    launches.extend([stream, 0, stream].map(|stream| launch(&mut recorder, stream)));
    recorder.end(context);

    let report = recorder.replayed("each", "sync-each");
    assert_agrees(&report);
    assert_eq!((report.error_cause, report.launches), (None, 5));
    // CUDA_ERROR_ILLEGAL_ADDRESS, each time in another wait.
    for (number, &call) in launches.iter().enumerate() {
        let fails = format!("cuStreamSynchronize@{}=700", number + 1);
        let environment = [("CUTAPE_NULL_FAIL", fails.as_str())];
        let watchdog = std::time::Duration::from_secs(60);
        let with = |flags| recorder.replayed_with("cause", flags, &environment, watchdog);
        let cause = with("sync-each").error_cause.expect("the wait failed");
        let named = (cause.call, cause.function.as_str(), cause.error.as_str());
        let expected = (call, "cuLaunchKernel", "CUDA_ERROR_ILLEGAL_ADDRESS");
        assert_eq!(named, expected);
        assert_eq!(with("").error_cause, None, "no launch is waited for");
    }
}

/// A trace that reads memory which nothing has written, after what these functions allocated.
fn unwritten(name: &str, arguments: &[u64]) -> Recorder {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let memory = recorder.make(name, arguments);
    let written = recorder.allocate(64);
    recorder.upload(written, &pattern(64));
    recorder.download(memory, 64);
    recorder.download(written, 64);
    recorder.end(context);
    recorder
}

const ALLOCATIONS: [(&str, &[u64]); 5] = [
    ("cuMemAlloc_v2", &[0, 64]),
    // CU_MEM_ATTACH_GLOBAL.
    ("cuMemAllocManaged", &[0, 64, 1]),
    ("cuMemAllocAsync", &[0, 64, 0]),
    ("cuMemAllocHost_v2", &[0, 64]),
    ("cuMemHostAlloc", &[0, 64, 0]),
];

#[test]
fn new_memory_is_filled() {
    for (name, arguments) in ALLOCATIONS {
        let recorder = unwritten(name, arguments);
        for flags in ["", "no-placement "] {
            let with = |byte: &str| {
                let flags = format!("{flags}keep-going fill={byte}");
                recorder.replayed(name, &flags)
            };
            assert_agrees(&with("0"));
            let report = with("165");
            assert_eq!(report.divergence_count, 1, "{name} {flags}");
            let received = &report.divergences[0].received;
            assert!(received.contains("a5 a5 a5"), "{name} {flags}: {received}");
            // What the program wrote itself is as it was.
            assert_eq!(report.bytes_compared, 64, "{name} {flags}");
            assert_eq!(report.copies_compared, 2, "{name} {flags}");
        }
    }
}

/// Replays several times; the replay of that number has some environment.
fn repeated(recorder: &Recorder, repeat: Repeat, special: (u32, &str)) -> Report {
    let number = Cell::new(0);
    recorder
        .in_child("repeated", "", &[], |trace, command| {
            let command = |one: OneReplay| {
                number.set(number.get() + 1);
                let mut command = command();
                let fill = one
                    .fill
                    .map_or_else(String::new, |byte| format!("fill={byte}"));
                command.env(FLAGS, format!("keep-going {fill}"));
                if number.get() == special.0 {
                    command.env("CUTAPE_NULL_FAIL", special.1);
                }
                command
            };
            let guard = Guard::default();
            run_repeated(trace, &command, &guard, repeat, &mut |_| {})
        })
        .unwrap()
}

#[test]
fn verdicts_tell_causes_apart() {
    let recorder = unwritten("cuMemAlloc_v2", &[0, 64]);
    let verdicts = |report: &Report| -> Vec<Verdict> {
        report
            .divergences
            .iter()
            .map(|found| found.verdict)
            .collect()
    };
    let of = |count, fill| Repeat {
        count,
        fill,
        compares_launches: false,
    };
    let nothing = (0, "");

    let report = repeated(&recorder, of(2, None), nothing);
    assert_agrees(&report);
    assert_eq!(report.replays, 2);
    let report = repeated(&recorder, of(3, Some(0xa5)), nothing);
    assert_eq!(verdicts(&report), [Verdict::UninitialisedRead]);
    assert!(report.agrees_but_for(&[Verdict::UninitialisedRead]));
    assert!(!report.agrees_but_for(&[Verdict::Nondeterministic]));
    // The same byte in all replays: nothing shows the cause.
    let report = repeated(&recorder, of(1, Some(0xa5)), nothing);
    assert_eq!(verdicts(&report), [Verdict::NotReproduced]);
    // One of the replays fails.
    for number in [1, 2] {
        let fails = (number, "cuMemcpyHtoD_v2=1");
        let report = repeated(&recorder, of(2, None), fails);
        let expected = [Verdict::Nondeterministic; 2];
        assert_eq!(verdicts(&report), expected, "replay {number}");
    }
}
