//! Chosen calls issued repeatedly, each time on the same memory.

mod recorder;

use std::path::Path;
use std::sync::{Arc, Mutex};

use cutape_format::{NewSnapshot, Trace};
use cutape_replay::{
    Clock, Error, Guard, Job, Measurements, Options, PlacementStrategy, Work, rerun_as_child,
    rerun_guarded,
};

use recorder::{Behind, FLAGS, Recorder, TRACE, null_driver, pattern};

#[test]
#[ignore = "not a test: the other tests start it as the child process that replays"]
fn child() {
    let Some(path) = std::env::var_os(TRACE) else {
        return;
    };
    let trace = Trace::open(Path::new(&path)).unwrap();
    let mut options = Options::new(null_driver());
    options.keep_going = true;
    let mut job = Job {
        restore: true,
        ..Job::default()
    };
    let mut iterations = 1;
    for flag in std::env::var(FLAGS).unwrap_or_default().split_whitespace() {
        match flag.split_once('=') {
            None if flag == "each" => job.each = true,
            None if flag == "no-restore" => job.restore = false,
            None if flag == "no-placement" => {} // The guard assigns it.
            Some(("calls", calls)) => {
                let (first, behind) = calls.split_once("..").unwrap();
                job.calls = (first.parse().unwrap()..behind.parse().unwrap()).collect();
            }
            Some(("iterations", number)) => iterations = number.parse().unwrap(),
            _ => panic!("{flag}?"),
        }
    }
    let measured = Arc::new(Mutex::new(Vec::new()));
    let results = Arc::clone(&measured);
    let measure = Box::new(
        move |subject: cutape_replay::Subject, work: &mut Work<'_>| {
            let device = work.run(iterations, Clock::Gpu)?;
            let host = work.run(iterations + 1, Clock::Host)?;
            measured.lock().unwrap().push((subject.call, device, host));
            Ok(())
        },
    );
    let results = || serde_json::to_value(&*results.lock().unwrap()).unwrap();
    std::process::exit(rerun_as_child(&trace, &options, job, measure, &results));
}

/// Index of the call, nanoseconds on the device's clock, and on the host's.
type Times = Vec<(u64, f64, f64)>;

fn measured(
    recorder: &Recorder,
    name: &str,
    flags: &str,
    environment: &[(&str, &str)],
) -> Result<(Measurements, Times), Error> {
    let guard = Guard {
        placement: flags
            .contains("no-placement")
            .then_some(PlacementStrategy::None),
        ..Guard::default()
    };
    let measured = recorder.in_child(name, flags, environment, |trace, command| {
        rerun_guarded(trace, command, &guard, &mut |_| {})
    });
    let measured = measured?;
    let times = serde_json::from_value(measured.results.clone()).unwrap();
    Ok((measured, times))
}

const LENGTH: u64 = 10_000;

fn copy(recorder: &mut Recorder, to: u64, from: u64) {
    let result = recorder.call("cuMemcpyDtoD_v2", &[to, from, LENGTH], &mut []);
    assert_eq!(result, 0);
}

/// A program that swaps two buffers; an even number of swaps leaves them unchanged. Returns the
/// indices of the three copies.
fn swapping() -> (Recorder, std::ops::Range<u64>) {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let memory = [(); 3].map(|()| recorder.allocate(LENGTH));
    let [one, other, between] = memory;
    recorder.upload(one, &pattern(LENGTH as usize));
    recorder.call("cuMemsetD8_v2", &[other, 9, LENGTH], &mut []);
    let first = recorder.index;
    copy(&mut recorder, between, one);
    copy(&mut recorder, one, other);
    copy(&mut recorder, other, between);
    let behind = recorder.index;
    assert_eq!(recorder.download(one, 4), [9; 4]);
    recorder.download(other, LENGTH as usize);
    for address in memory {
        recorder.call("cuMemFree_v2", &[address], &mut []);
    }
    recorder.end(context);
    (recorder, first..behind)
}

#[test]
fn each_iteration_sees_the_same_memory() {
    let (recorder, calls) = swapping();
    let range = format!("calls={}..{}", calls.start, calls.end);
    // One swap while the state is built, three and four when it is measured: an even number in all.
    for placement in ["", "no-placement"] {
        let flags = format!("{range} iterations=3 {placement}");
        let (restored, times) = measured(&recorder, "restored", &flags, &[]).unwrap();
        let report = &restored.outcome.report;
        assert_eq!(report.divergence_count, 0, "{:#?}", report.divergences);
        assert_eq!(report.bytes_compared, LENGTH + 4);
        let [subject] = &restored.outcome.subjects[..] else {
            panic!("{:?}", restored.outcome.subjects);
        };
        assert_eq!((subject.call, subject.calls), (calls.start, 3));
        assert_eq!(subject.saved_bytes, 3 * LENGTH);
        assert_eq!(subject.restored_bytes, 3 * LENGTH);
        assert_eq!(times.len(), 1);
        assert!(times[0].1 > 0.0 && times[0].2 > 0.0, "{times:?}");
    }
    let flags = format!("{range} iterations=3 no-restore");
    let (left, _) = measured(&recorder, "left", &flags, &[]).unwrap();
    assert_eq!(left.outcome.report.divergence_count, 2);
    assert_eq!(left.outcome.subjects[0].restored_bytes, 0);
}

#[test]
fn each_call_is_measured_where_the_trace_has_it() {
    let (recorder, calls) = swapping();
    let flags = format!("each calls={}..{} iterations=2", calls.start, calls.end);
    let (measured, times) = measured(&recorder, "each", &flags, &[]).unwrap();
    let report = &measured.outcome.report;
    assert_eq!(report.divergence_count, 0, "{:#?}", report.divergences);
    let indices: Vec<u64> = times.iter().map(|time| time.0).collect();
    assert_eq!(indices, calls.collect::<Vec<_>>());
    let subjects = &measured.outcome.subjects;
    assert!(
        subjects
            .iter()
            .all(|subject| subject.restored_bytes == LENGTH)
    );
    assert!(
        measured.outcome.deferred.is_empty(),
        "the trace goes on as it was"
    );
}

#[test]
fn other_calls_run_once_and_ends_are_deferred() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let first = recorder.index;
    for value in [3, 4] {
        let memory = recorder.allocate(LENGTH);
        recorder.call("cuMemsetD8_v2", &[memory, value, LENGTH], &mut []);
        // Fails, in the recording and here.
        recorder.call("cuMemFree_v2", &[memory + 8], &mut []);
        recorder.call("cuMemFree_v2", &[memory], &mut []);
    }
    recorder.end(context);
    let behind = recorder.index;
    let flags = format!("calls={first}..{behind} iterations=5");
    let (measured, times) = measured(&recorder, "put-off", &flags, &[]).unwrap();
    assert_eq!(times.len(), 1);
    let outcome = &measured.outcome;
    assert_eq!(outcome.subjects[0].calls, 2);
    assert_eq!(
        outcome.report.divergence_count, 0,
        "{:#?}",
        outcome.report.divergences
    );
    let counts = |list: &[cutape_replay::Skipped]| -> Vec<(String, u64)> {
        let counts = list
            .iter()
            .map(|entry| (entry.function.clone(), entry.count));
        counts.collect()
    };
    assert_eq!(
        counts(&outcome.deferred),
        [("cuMemFree_v2".into(), 2), ("cuCtxDestroy_v2".into(), 1)]
    );
    assert_eq!(
        counts(&outcome.not_repeated),
        [("cuMemAlloc_v2".into(), 2), ("cuMemFree_v2".into(), 2)]
    );
}

#[test]
fn pinned_memory_is_what_the_program_had_written() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let pinned = recorder.make("cuMemAllocHost_v2", &[0, LENGTH]);
    let memory = [(); 2].map(|()| recorder.allocate(LENGTH));
    let first = recorder.index;
    // The program writes to the pinned memory again before each copy.
    for (value, target) in [(5u8, memory[0]), (6, memory[1])] {
        let bytes = vec![value; LENGTH as usize];
        let arguments = [target, pinned, LENGTH];
        let capture = NewSnapshot::pointee(1, &bytes);
        recorder.write("cuMemcpyHtoD_v2", &arguments, &[capture], |_| {}, 0, &[]);
    }
    let behind = recorder.index;
    for (value, source) in [(5u8, memory[0]), (6, memory[1])] {
        let expected = vec![value; LENGTH as usize];
        let captures = [NewSnapshot::pointee(0, &expected)];
        let arguments = [0x1000, source, LENGTH];
        recorder.write("cuMemcpyDtoH_v2", &arguments, &[], |_| {}, 0, &captures);
    }
    recorder.end(context);
    let flags = format!("calls={first}..{behind} iterations=2");
    let (measured, _) = measured(&recorder, "pinned", &flags, &[]).unwrap();
    let report = &measured.outcome.report;
    assert_eq!(report.divergence_count, 0, "{:#?}", report.divergences);
    assert_eq!(measured.outcome.subjects[0].restored_bytes, 3 * LENGTH);
}

#[test]
fn what_cannot_be_measured_is_refused_with_the_reason() {
    let (recorder, calls) = swapping();
    let all = format!("calls={}..{} iterations=3", calls.start, calls.end);
    for (name, flags, environment, expected) in [
        (
            "fails-at-once",
            all.as_str(),
            ("CUTAPE_NULL_FAIL", "cuMemcpyDtoD_v2=999"),
            "cuMemcpyDtoD_v2 returns CUDA_ERROR_UNKNOWN here and cannot be measured",
        ),
        (
            "fails-later",
            &all,
            ("CUTAPE_NULL_FAIL", "cuMemcpyDtoD_v2@5=999"),
            "returned CUDA_ERROR_UNKNOWN when it was repeated",
        ),
        (
            "dies",
            &all,
            ("CUTAPE_NULL_CRASH", "cuMemcpyDtoD_v2@5"),
            "died by signal 11 in call",
        ),
        (
            "no-work",
            "calls=0..3",
            ("CUTAPE_NULL_VERSION", "13000"),
            "none of the chosen calls can be repeated, the first is call 0 cuInit",
        ),
    ] {
        let error = measured(&recorder, name, flags, &[environment]).unwrap_err();
        assert!(matches!(error, Error::Measure { .. }), "{name}: {error}");
        assert!(error.to_string().contains(expected), "{name}: {error}");
    }
}

#[test]
fn captures_are_left_alone() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let memory = recorder.allocate(LENGTH);
    let stream = recorder.make("cuStreamCreate", &[0, 1]);
    let fill = |recorder: &mut Recorder, value| {
        let arguments = [memory, value, LENGTH, stream];
        assert_eq!(recorder.call("cuMemsetD8Async", &arguments, &mut []), 0);
    };
    let first = recorder.index;
    fill(&mut recorder, 1);
    recorder.call("cuStreamBeginCapture_v2", &[stream, 2], &mut []);
    let inside = recorder.index;
    fill(&mut recorder, 2);
    let mut graph = [0; 8];
    let behind = &mut [(1, Behind::Output(&mut graph))];
    recorder.call("cuStreamEndCapture", &[stream, 0], behind);
    fill(&mut recorder, 3);
    let behind = recorder.index;
    recorder.end(context);

    let flags = format!("calls={first}..{behind}");
    let (whole, _) = measured(&recorder, "around", &flags, &[]).unwrap();
    assert_eq!(whole.outcome.subjects[0].calls, 2);
    let captured = |entry: &&cutape_replay::Skipped| entry.reason.contains("captured");
    let captured: Vec<_> = whole.outcome.not_repeated.iter().filter(captured).collect();
    assert_eq!(captured.len(), 1);
    assert_eq!(captured[0].first, inside);

    let flags = format!("each calls={first}..{behind}");
    let (each, times) = measured(&recorder, "each-around", &flags, &[]).unwrap();
    assert_eq!(times.len(), 2);
    let reasons = each.outcome.not_repeated.iter().map(|entry| &entry.reason);
    assert!(
        reasons
            .into_iter()
            .any(|reason| reason.contains("capturing"))
    );

    let flags = format!("calls={inside}..{behind}");
    let error = measured(&recorder, "inside", &flags, &[]).unwrap_err();
    assert!(
        error.to_string().contains("a stream is capturing at call"),
        "{error}"
    );
}
