//! Notes about host memory that the device reads: their bytes are in the memory when the next call
//! runs.

mod recorder;

use std::time::Duration;

use cutape_format::NewSnapshot;
use cutape_format::layout::{HostChangedNote, HostSkippedNote, field, host_skip};

use recorder::{Recorder, assert_agrees};

#[test]
#[ignore = "not a test: the other tests start it as the child process that replays"]
fn child() {
    recorder::child();
}

const LENGTH: usize = 200_000;

/// Notes of one call.
type Notes<'a> = &'a [(u64, &'a [u8])];

/// A copy from the device address of `memory`, which contained `expected`; the notes come before or
/// after it.
fn seen(recorder: &mut Recorder, memory: u64, notes: Notes<'_>, is_after: u8, expected: &[u8]) {
    let arguments = [0x1000, memory, expected.len() as u64];
    recorder.write(
        "cuMemcpyDtoH_v2",
        &arguments,
        &[],
        |builder| {
            for &(address, bytes) in notes {
                let note = HostChangedNote { address, is_after };
                builder.host_changed_note(0, note, NewSnapshot::pointee(0, bytes));
            }
        },
        0,
        &[NewSnapshot::pointee(0, expected)],
    );
}

#[test]
fn bytes_are_put_where_notes_say() {
    for allocation in ["cuMemAllocHost_v2", "cuMemHostAlloc", "cuMemAllocManaged"] {
        for flags in ["", "no-placement"] {
            let mut recorder = Recorder::new();
            let context = recorder.begin();
            let arguments: &[u64] = match allocation {
                "cuMemAllocHost_v2" => &[0, LENGTH as u64],
                _ => &[0, LENGTH as u64, 1],
            };
            let memory = recorder.make(allocation, arguments);
            let mut expected = vec![0; LENGTH];
            let long = recorder::pattern(100_000);
            expected[70_000..170_000].copy_from_slice(&long);
            expected[3] = 5;
            let first = [(memory + 3, &[5u8][..]), (memory + 70_000, &long[..])];
            seen(&mut recorder, memory, &first, 0, &expected);
            // What the device may write meanwhile stays where no note has new bytes.
            assert_eq!(
                recorder.call("cuMemsetD8Async", &[memory + 8, 9, 8, 0], &mut []),
                0
            );
            expected[8..16].fill(9);
            (expected[7], expected[16]) = (1, 2);
            let around = [1, 0, 0, 0, 0, 0, 0, 0, 0, 2];
            seen(
                &mut recorder,
                memory,
                &[(memory + 7, &around)],
                0,
                &expected,
            );
            // Seen after a call, it is in memory for the next call only.
            seen(&mut recorder, memory, &[(memory + 7, &[8])], 1, &expected);
            expected[7] = 8;
            seen(&mut recorder, memory, &[], 0, &expected);
            recorder.end(context);
            let report = recorder.replayed(&format!("put-{allocation}-{flags}"), flags);
            assert_agrees(&report);
            assert_eq!(report.bytes_compared, 4 * LENGTH as u64);
            assert_eq!(report.host_bytes_put, 1 + 100_000 + 10 + 1);
        }
    }
}

#[test]
fn memory_that_is_given_out_again_begins_with_zeros() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    // The neighbour keeps the granule mapped.
    let _neighbour = recorder.make("cuMemAllocHost_v2", &[0, 4096]);
    for round in 0..3 {
        let memory = recorder.make("cuMemAllocHost_v2", &[0, 4096]);
        seen(&mut recorder, memory, &[(memory, &[])], 0, &[0; 4096]);
        let written = [round + 1; 4096];
        seen(&mut recorder, memory, &[(memory, &written)], 0, &written);
        recorder.call("cuMemFreeHost", &[memory], &mut []);
    }
    recorder.end(context);
    let report = recorder.replayed("again", "");
    assert_agrees(&report);
    assert_eq!(report.bytes_compared, 6 * 4096);
}

#[test]
fn the_first_note_leaves_what_a_copy_in_flight_reads() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let memory = recorder.make("cuMemAllocHost_v2", &[0, 4096]);
    let device = recorder.allocate(128);
    let bytes = recorder::pattern(128);
    let read = [NewSnapshot {
        field: field::HOST_BYTES,
        ..NewSnapshot::pointee(1, &bytes)
    }];
    let arguments = [device, memory + 80, 128, 0];
    recorder.write("cuMemcpyAsync", &arguments, &read, |_| {}, 0, &[]);
    // A look at a part, as before a memset; one of another thread at all of it comes later.
    seen(&mut recorder, device, &[(memory + 256, &[1])], 0, &bytes);
    recorder.end(context);
    let lazy = [("CUTAPE_NULL_SCHEDULE", "lazy")];
    let report = recorder.replayed_with("first-note", "", &lazy, Duration::from_secs(60));
    assert_agrees(&report);
    assert_eq!(report.bytes_compared, 128);
}

#[test]
fn notes_about_memory_that_is_not_there_are_told_and_do_no_harm() {
    let long = vec![7; 5000];
    for (name, distance) in [
        ("behind", 4096),
        ("before", -1),
        ("across", 4000),
        ("far", 1 << 40),
        ("last", i64::MIN),
    ] {
        let mut recorder = Recorder::new();
        let context = recorder.begin();
        let memory = recorder.make("cuMemAllocHost_v2", &[0, 4096]);
        let device = recorder.allocate(4096);
        seen(&mut recorder, memory, &[(memory, &[])], 0, &[0; 4096]);
        let address = memory.wrapping_add_signed(distance);
        for address in [address, device, 0, u64::MAX] {
            seen(&mut recorder, memory, &[(address, &long)], 0, &[0; 4096]);
        }
        recorder.end(context);
        let report = recorder.replayed(&format!("wild-{name}"), "");
        assert_agrees(&report);
        let told = report.notes.iter();
        let told = told.filter(|(note, _)| note.starts_with("changes of host memory"));
        assert_eq!(told.map(|(_, count)| count).sum::<u64>(), 4, "{name}");
        assert_eq!(report.host_bytes_put, 0);
    }
}

#[test]
fn memory_that_was_not_looked_at_is_named() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let memory = recorder.make("cuMemAllocHost_v2", &[0, 65 << 20]);
    let note = HostSkippedNote {
        address: memory,
        length: 65 << 20,
        reason: host_skip::LONG,
    };
    let skipped = |builder: &mut cutape_format::TraceBuilder| {
        builder.host_skipped_note(0, note);
    };
    recorder.write("cuCtxSynchronize", &[], &[], skipped, 0, &[]);
    recorder.end(context);
    let report = recorder.replayed("skipped", "");
    assert_agrees(&report);
    let name = format!("{memory:#x}, {} bytes", 65 << 20);
    assert!(
        report
            .notes
            .keys()
            .any(|text| text.contains(&name) && text.contains("64 MiB")),
        "{:?}",
        report.notes
    );
}

/// What the machine does not have is left out with its reason, before the system ends the replay.
#[test]
fn host_memory_is_checked_before_it_is_taken() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let length = 1u64 << 50;
    let arguments = [0x1000_0000, length, 0];
    recorder.write("cuMemHostRegister_v2", &arguments, &[], |_| {}, 0, &[]);
    recorder.write("cuMemHostUnregister", &arguments[..1], &[], |_| {}, 0, &[]);
    recorder.end(context);
    for flags in ["keep-going", "keep-going no-placement"] {
        let report = recorder.replayed(&format!("too-long {flags}"), flags);
        assert!(report.died.is_none(), "{report:#?}");
        let expected = format!("needs {length} bytes of host memory, of which this machine has ");
        let skipped = report.skipped.iter();
        let mut reasons = skipped.map(|skipped| (&*skipped.function, &*skipped.reason));
        assert!(
            reasons.any(|(function, reason)| function == "cuMemHostRegister_v2"
                && reason.starts_with(&expected)),
            "{report:#?}"
        );
    }
}
