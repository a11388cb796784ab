//! Traces recorded call by call on the null driver, replayed in guarded children on the same
//! driver.

mod recorder;

use std::time::Duration;

use cutape_format::layout::ReadbackNote;
use cutape_format::{NewCall, NewSnapshot};
use cutape_replay::{Guard, PlacementStrategy, What};

use recorder::{Behind, Recorder, assert_agrees, pattern};

#[test]
#[ignore = "not a test: the other tests start it as the child process that replays"]
fn child() {
    recorder::child();
}

#[test]
fn a_process_without_a_guard_replays_nothing() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    recorder.end(context);
    recorder.in_child("unguarded", "", &[], |_, command| {
        // The driver would kill the process at its first call.
        let status = command()
            .env("CUTAPE_NULL_CRASH", "cuInit")
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(2));
    });
}

/// The program may have set it for itself, so that the recorded environment has it not.
#[test]
fn modules_are_loaded_as_the_driver_told_the_program() {
    for (mode, environment) in [
        // CU_MODULE_EAGER_LOADING, CU_MODULE_LAZY_LOADING
        (1_u32, &[][..]),
        (2, &[("CUDA_MODULE_LOADING", "EAGER")]),
    ] {
        let mut recorder = Recorder::new();
        let context = recorder.begin();
        let mode = mode.to_le_bytes();
        let told = [NewSnapshot::pointee(0, &mode)];
        recorder.write("cuModuleGetLoadingMode", &[0x10], &[], |_| {}, 0, &told);
        recorder.end(context);
        let minute = Duration::from_secs(60);
        assert_agrees(&recorder.replayed_with("mode", "", environment, minute));
    }
}

#[test]
fn memory_comes_back_where_it_was_with_its_bytes() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let bytes = pattern(100_000);
    let memory = [
        recorder.allocate(100_000),
        recorder.allocate(300),
        recorder.allocate(5 << 20),
    ];
    recorder.upload(memory[0], &bytes);
    recorder.call(
        "cuMemcpyDtoD_v2",
        &[memory[2] + 4096, memory[0], 100_000],
        &mut [],
    );
    assert_eq!(recorder.download(memory[2] + 4096, 100_000), bytes);
    for address in memory {
        recorder.call("cuMemFree_v2", &[address], &mut []);
    }
    recorder.end(context);
    let report = recorder.replayed("placed", "");
    assert_agrees(&report);
    assert_eq!(
        (report.placed.allocations, report.placed.at_recorded_address),
        (3, 3)
    );
    assert_eq!(
        (report.bytes_compared, report.bytes_not_compared),
        (100_000, 0)
    );
    assert_eq!(report.calls_emulated.get("cuMemAlloc_v2"), Some(&3));
    assert!(report.translated.is_empty() && report.skipped.is_empty());

    let report = recorder.replayed("translated", "no-placement");
    assert_agrees(&report);
    assert_eq!(report.bytes_compared, 100_000);
    assert!(
        report.calls_emulated.is_empty(),
        "the driver was asked for everything"
    );
    assert_eq!(report.calls_replayed, report.calls);
}

#[test]
fn misuse_of_memory_fails_as_it_did() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let (memory, neighbour) = (recorder.allocate(512), recorder.allocate(512));
    recorder.call("cuMemFree_v2", &[memory], &mut []);
    let twice = recorder.call("cuMemFree_v2", &[memory], &mut []);
    let used = recorder.call("cuMemsetD8_v2", &[memory, 1, 16], &mut []);
    let too_long = recorder.call("cuMemsetD8_v2", &[neighbour, 1, 8 << 20], &mut []);
    assert_eq!(
        (twice, used, too_long),
        (1, 1, 1),
        "the null driver sees all three"
    );
    recorder.call("cuMemsetD8_v2", &[neighbour, 1, 512], &mut []);
    recorder.end(context);
    let after = recorder.call("cuMemFree_v2", &[neighbour], &mut []);
    assert_ne!(after, 0);
    for flags in ["", "no-placement"] {
        let report = recorder.replayed("misuse", flags);
        assert_agrees(&report);
        assert_eq!(report.calls_skipped(), 0, "{flags}: {:?}", report.skipped);
    }
}

#[test]
fn what_differs_is_said_with_call_and_byte() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let memory = recorder.allocate(64);
    recorder.upload(memory, &pattern(64));
    // The recording of another run: byte 37 was 255 there.
    let mut expected = pattern(64);
    expected[37] = 255;
    let arguments = [0x1000, memory, 64];
    let copy = recorder.index;
    recorder.builder.call(NewCall {
        name: "cuMemcpyDtoH_v2",
        arguments: &arguments,
        ..NewCall::default()
    });
    recorder
        .builder
        .leave(0, 0, &[NewSnapshot::pointee(0, &expected)]);
    recorder.index += 1;
    let failing = recorder.index;
    let mut event = [0; 8];
    let behind = &mut [(0, Behind::Output(&mut event))];
    recorder.call_on(0, "cuEventCreate", &[0, 0], behind, Some(2));
    recorder.end(context);

    let report = recorder.replayed("differs", "keep-going");
    assert_eq!(report.divergence_count, 2, "{:#?}", report.divergences);
    let bytes = &report.divergences[0];
    assert_eq!(
        (bytes.call, bytes.what, bytes.first_differing_byte),
        (copy, What::Bytes, Some(37))
    );
    assert_eq!(bytes.differing_bytes, Some(1));
    assert_eq!(bytes.parameter.as_deref(), Some("dstHost"));
    assert!(
        bytes
            .history
            .iter()
            .any(|line| line.contains("created by cuMemAlloc_v2 at call 2"))
    );
    let result = &report.divergences[1];
    assert_eq!((result.call, result.what), (failing, What::Result));
    assert_eq!(result.expected, "CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!(result.received, "CUDA_SUCCESS");

    let report = recorder.replayed("stops", "");
    assert_eq!(
        report.divergence_count, 1,
        "without keep-going the first one ends it"
    );
    let report = recorder.replayed("until", &format!("until={copy}"));
    assert_agrees(&report);
    let report = recorder.replayed("only", "only=cuMemcpyHtoD_v2");
    assert_agrees(&report);
    assert_eq!(report.calls_not_compared, 3, "what the copy depends on");
}

#[test]
fn calls_that_would_crash_the_driver_are_left_out_and_named() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let stream = recorder.make("cuStreamCreate", &[0, 0]);
    recorder.call("cuStreamDestroy_v2", &[stream], &mut []);
    // Recorded without calling the driver, which would crash.
    recorder.builder.call(NewCall {
        name: "cuStreamQuery",
        arguments: &[stream],
        ..NewCall::default()
    });
    recorder.builder.leave(0, 400, &[]);
    recorder.builder.call(NewCall {
        thread: 1,
        name: "cuStreamSynchronize",
        arguments: &[stream],
        ..NewCall::default()
    });
    recorder.end(context);
    let report = recorder.replayed("crashing", "");
    assert_agrees(&report);
    let skipped: Vec<_> = report
        .skipped
        .iter()
        .map(|s| (s.function.as_str(), s.reason.as_str(), s.count))
        .collect();
    let destroyed = "would use a destroyed stream (crashes the driver)";
    let in_flight = "in flight when the recording ended";
    assert_eq!(
        skipped,
        [
            ("cuStreamQuery", destroyed, 1),
            ("cuStreamSynchronize", in_flight, 1)
        ]
    );
}

#[test]
fn a_driver_that_crashes_or_hangs_ends_in_a_report() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let call = recorder.index;
    recorder.make("cuStreamCreate", &[0, 0]);
    recorder.end(context);
    let crash = [("CUTAPE_NULL_CRASH", "cuStreamCreate@1")];
    let report = recorder.replayed_with("crash", "", &crash, Duration::from_secs(60));
    let died = report.died.expect("it crashed");
    assert_eq!(
        (died.signal, died.hung, died.call),
        (Some(11), false, Some(call))
    );
    assert_eq!(died.function.as_deref(), Some("cuStreamCreate"));

    let delay = [("CUTAPE_NULL_DELAY", "cuStreamCreate=20s")];
    let report = recorder.replayed_with("hang", "", &delay, Duration::from_millis(1500));
    let died = report.died.expect("it hung");
    assert_eq!(
        (died.signal, died.hung, died.call),
        (None, true, Some(call))
    );
}

#[test]
fn bytes_of_asynchronous_copies_are_compared_when_they_had_arrived() {
    for pinned in [false, true] {
        for tampered in [false, true] {
            let mut recorder = Recorder::new();
            let context = recorder.begin();
            let stream = recorder.make("cuStreamCreate", &[0, 1]);
            let memory = recorder.allocate(4096);
            let mut bytes = pattern(4096);
            recorder.upload(memory, &bytes);
            let mut own = vec![0; 4096];
            let place = match pinned {
                true => recorder.make("cuMemAllocHost_v2", &[0, 4096]),
                false => own.as_mut_ptr() as u64,
            };
            // SAFETY: 4096 bytes of `own`, or of pinned memory that is freed only below.
            let target = unsafe { std::slice::from_raw_parts_mut(place as *mut u8, 4096) };
            let number = recorder.numbers[0];
            let copy = recorder.index;
            let arguments = [0, memory, 4096, stream];
            let behind = &mut [(0, Behind::Later(target))];
            assert_eq!(recorder.call("cuMemcpyDtoHAsync_v2", &arguments, behind), 0);
            bytes[4095] ^= u8::from(tampered);
            recorder.builder.call(NewCall {
                name: "cuStreamSynchronize",
                arguments: &[stream],
                ..NewCall::default()
            });
            let note = ReadbackNote {
                thread: 0,
                number,
                address: place,
            };
            recorder
                .builder
                .readback_note(0, note, NewSnapshot::pointee(0, &bytes));
            recorder.builder.leave(0, 0, &[]);
            if pinned {
                recorder.call("cuMemFreeHost", &[place], &mut []);
            }
            recorder.call("cuStreamDestroy_v2", &[stream], &mut []);
            recorder.end(context);
            let report = recorder.replayed(&format!("async-{pinned}-{tampered}"), "keep-going");
            if tampered {
                assert_eq!(report.divergence_count, 1, "{:#?}", report.divergences);
                let divergence = &report.divergences[0];
                assert_eq!(divergence.enqueued_by, Some(copy));
                assert_eq!(divergence.first_differing_byte, Some(4095));
            } else {
                assert_agrees(&report);
                assert_eq!(report.bytes_compared, 4096);
            }
        }
    }
}

#[test]
fn each_recorded_thread_keeps_its_own_context() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let current = |recorder: &mut Recorder, thread: u32, value: u64| {
        recorder.builder.call(NewCall {
            thread,
            name: "cuCtxGetCurrent",
            arguments: &[0x1000],
            ..NewCall::default()
        });
        recorder
            .builder
            .leave(thread, 0, &[NewSnapshot::pointee(0, &value.to_le_bytes())]);
    };
    for _ in 0..3 {
        current(&mut recorder, 0, context);
        current(&mut recorder, 1, 0);
    }
    let event = NewCall {
        thread: 1,
        name: "cuCtxSetCurrent",
        arguments: &[context],
        ..NewCall::default()
    };
    recorder.builder.call(event);
    recorder.builder.leave(1, 0, &[]);
    current(&mut recorder, 1, context);
    current(&mut recorder, 2, 0);
    let report = recorder.replayed("threads", "keep-going");
    assert_agrees(&report);
    assert_eq!(report.calls_replayed, 11);

    current(&mut recorder, 2, context);
    let report = recorder.replayed("threads-wrong", "keep-going");
    assert_eq!(report.divergence_count, 1);
    assert_eq!(report.divergences[0].what, What::OutParameter);
}

#[test]
fn handles_that_are_none_are_refused_without_a_crash() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    for (name, arguments, string) in [
        (
            "cuModuleGetFunction",
            &[0x1000, 0x6543_2100_0000, 0][..],
            Some(2),
        ),
        ("cuModuleUnload", &[0x6543_2100_0000][..], None),
        ("cuMemFree_v2", &[0x6543_2100_0000][..], None),
        ("cuMemsetD8_v2", &[0x6543_2100_0000, 0, 4][..], None),
    ] {
        let text = b"name\0";
        let snapshots: Vec<_> = string
            .iter()
            .map(|&position| NewSnapshot::pointee(position, text))
            .collect();
        let mut arguments = arguments.to_vec();
        if let Some(position) = string {
            arguments[usize::from(position)] = 0x2000;
        }
        recorder.builder.call(NewCall {
            name,
            arguments: &arguments,
            snapshots: &snapshots,
            ..NewCall::default()
        });
        let code = if name.starts_with("cuMem") { 1 } else { 400 };
        recorder.builder.leave(0, code, &[]);
    }
    recorder.end(context);
    let report = recorder.replayed("wild", "keep-going");
    assert_agrees(&report);
}

#[test]
fn host_memory_whose_place_is_taken_comes_back_in_a_fresh_process_or_elsewhere() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    // Where a position-independent executable lies without address randomisation.
    let taken = 0x5555_5555_5000_u64;
    recorder.builder.call(NewCall {
        name: "cuMemHostRegister_v2",
        arguments: &[taken, 4096, 0],
        ..NewCall::default()
    });
    recorder.builder.leave(0, 0, &[]);
    let memory = recorder.allocate(4096);
    let bytes = pattern(4096);
    recorder.builder.call(NewCall {
        name: "cuMemcpyHtoD_v2",
        arguments: &[memory, taken, 4096],
        snapshots: &[NewSnapshot::pointee(1, &bytes)],
        ..NewCall::default()
    });
    recorder.builder.leave(0, 0, &[]);
    recorder.builder.call(NewCall {
        name: "cuMemcpyDtoH_v2",
        arguments: &[taken, memory, 4096],
        ..NewCall::default()
    });
    recorder
        .builder
        .leave(0, 0, &[NewSnapshot::pointee(0, &bytes)]);
    recorder.builder.call(NewCall {
        name: "cuMemHostUnregister",
        arguments: &[taken],
        ..NewCall::default()
    });
    recorder.builder.leave(0, 0, &[]);
    recorder.end(context);

    let reports = ["fresh", "again"].map(|name| recorder.replayed(name, ""));
    for report in &reports {
        assert_agrees(report);
        assert_eq!(
            report.placed.at_recorded_address, 2,
            "{:?}",
            report.translated
        );
        assert!(report.randomised);
    }
    // In one of 1,000 randomised processes something else lies in the place of the recorded memory,
    // so that one more is started.
    let attempts = reports.map(|report| report.attempts);
    assert!(
        attempts.contains(&1),
        "{attempts:?}: the first layout is the same each time"
    );

    let once = Guard {
        attempts: 1,
        placement: Some(PlacementStrategy::Granules),
        ..Guard::default()
    };
    let report = recorder.replayed_by("fallback", "", &[], &once);
    assert_agrees(&report);
    assert_eq!(report.placed.at_recorded_address, 1);
    assert_eq!(report.translated.len(), 1);
    assert!(
        report.translated[0].reason.contains("taken"),
        "{:?}",
        report.translated
    );
    assert_eq!(report.bytes_compared, 4096);
}

#[test]
fn a_polling_loop_is_played_by_one_query_and_a_wait() {
    const POLLS: usize = 500;
    const NOT_READY: i32 = 600;
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let stream = recorder.make("cuStreamCreate", &[0, 1]);
    let event = recorder.make("cuEventCreate", &[0, 2]);
    recorder.call("cuEventRecord", &[event, stream], &mut []);
    for (name, handle) in [("cuStreamQuery", stream), ("cuEventQuery", event)] {
        for _ in 0..POLLS {
            recorder.call_on(0, name, &[handle], &mut [], Some(NOT_READY));
        }
        recorder.call(name, &[handle], &mut []);
    }
    recorder.call("cuStreamDestroy_v2", &[stream], &mut []);
    recorder.end(context);
    let not_ready =
        "cuStreamQuery@1=600,cuStreamQuery@2=600,cuStreamQuery@3=600,cuEventQuery@2=600";
    for flags in ["", "threads", "timing"] {
        for environment in [&[][..], &[("CUTAPE_NULL_FAIL", not_ready)]] {
            let report =
                recorder.replayed_with("polling", flags, environment, Duration::from_secs(60));
            assert_agrees(&report);
            for name in ["cuStreamQuery", "cuEventQuery"] {
                let left_out = report.calls_emulated.get(name);
                assert_eq!(left_out, Some(&(POLLS as u64 - 1)), "{flags} {name}");
            }
            let emulated: u64 = report.calls_emulated.values().sum();
            assert_eq!(report.calls_replayed + emulated, report.calls);
        }
    }
    // Work that never completes is reported and does not block the replay.
    let never = [("CUTAPE_NULL_FAIL", "cuEventQuery@*=600")];
    let report = recorder.replayed_with("never", "watchdog=1", &never, Duration::from_secs(60));
    assert_eq!(report.divergence_count, 1, "{:#?}", report.died);
    assert!(report.divergences[0].received.contains("NOT_READY"));
}

#[test]
fn threads_are_in_the_driver_at_once_and_a_blocked_replay_names_their_calls() {
    let mut recorder = Recorder::new();
    recorder.begin();
    let first = recorder.index;
    let enter = |recorder: &mut Recorder, thread, name| {
        recorder.builder.call(NewCall {
            thread,
            name,
            ..NewCall::default()
        });
    };
    // Threads 1 and 2 overlapped; the call of thread 0 was entered after that of thread 1 returned.
    enter(&mut recorder, 1, "cuCtxSynchronize");
    enter(&mut recorder, 2, "cuCtxSynchronize");
    recorder.builder.leave(1, 201, &[]);
    recorder.builder.leave(2, 201, &[]);
    enter(&mut recorder, 0, "cuCtxSynchronize");
    recorder.builder.leave(0, 0, &[]);
    assert_agrees(&recorder.replayed("overlap", "threads"));
    assert_agrees(&recorder.replayed("overlap", ""));

    let delay = [("CUTAPE_NULL_DELAY", "cuCtxSynchronize=30s")];
    let report = recorder.replayed_with("blocked", "threads", &delay, Duration::from_secs(2));
    let died = report.died.expect("it hung");
    assert!(died.hung);
    let hands: Vec<_> = died
        .threads
        .iter()
        .map(|hand| (hand.thread, hand.call, hand.in_driver))
        .collect();
    let expected = [
        (0, first + 2, false),
        (1, first, true),
        (2, first + 1, true),
    ];
    assert_eq!(hands, expected);
    assert!(
        died.threads
            .iter()
            .all(|hand| hand.function == "cuCtxSynchronize")
    );
    let report = recorder.replayed_with("blocked", "", &delay, Duration::from_secs(2));
    let died = report.died.expect("it hung");
    assert!(died.hung && died.threads.is_empty(), "one at a time");
}

/// More calls follow than are read ahead.
#[test]
fn a_divergence_ends_a_long_replay_of_two_threads() {
    let mut recorder = Recorder::new();
    recorder.begin();
    let wrong = recorder.index;
    recorder.call_on(0, "cuCtxSynchronize", &[], &mut [], Some(1));
    let mut version = [0; 4];
    for index in 0..10_000 {
        let behind = &mut [(0, Behind::Output(&mut version))];
        recorder.call_on(index / 100 % 2, "cuDriverGetVersion", &[0], behind, None);
    }
    for flags in ["", "threads"] {
        let report = recorder.replayed("long", flags);
        assert!(report.died.is_none(), "{flags}: {:?}", report.died);
        assert_eq!(report.divergence_count, 1, "{flags}");
        assert_eq!(report.divergences[0].call, wrong);
        assert!(report.calls_replayed < report.calls);
        let report = recorder.replayed("long", &format!("{flags} keep-going"));
        assert_eq!(
            (report.divergence_count, report.calls_replayed),
            (1, report.calls)
        );
    }
}

#[test]
fn only_chosen_calls_are_measured() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    for _ in 0..5 {
        recorder.call("cuCtxSynchronize", &[], &mut []);
    }
    let last = recorder.index - 1;
    recorder.end(context);
    for flags in ["", "threads "] {
        let report = recorder.replayed("timed", &format!("{flags}timing only=cuCtxSynchronize"));
        assert_agrees(&report);
        assert_eq!(report.timing.len(), 1, "{:?}", report.timing);
        let sum = report.timing["cuCtxSynchronize"];
        let span = report.span.expect("some were measured");
        assert_eq!((sum.calls, span.calls), (5, 5));
        assert_eq!((span.first, span.last), (last - 4, last));
        assert!(sum.nanoseconds > 0 && Some(span.nanoseconds) >= span.driver_nanoseconds);
        let report = recorder.replayed("timed", &format!("{flags}span only=cuCtxSynchronize"));
        let alone = report.span.expect("the same were measured");
        assert_eq!((alone.first, alone.last), (span.first, span.last));
        assert_eq!((alone.calls, alone.driver_nanoseconds), (5, None));
        assert!(alone.nanoseconds > 0 && report.timing.is_empty());
        let report = recorder.replayed("timed", &format!("{flags}span until={}", last - 2));
        let span = report.span.expect("those before were measured");
        assert_eq!((span.first, span.last, span.calls), (0, last - 3, last - 2));
        let report = recorder.replayed("timed", &format!("{flags}timing"));
        let span = report.span.expect("all were measured");
        assert_eq!((span.first, span.calls), (0, report.calls));
    }
    assert!(recorder.replayed("timed", "").span.is_none());
}
