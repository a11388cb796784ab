//! Leaving calls out: the others stay as they are, and get the notes that they need.

mod sample;

use std::collections::BTreeMap;
use std::path::Path;

use cutape_format::layout::{HostChangedNote, ReadbackNote};
use cutape_format::{
    Bytes, CallChange, CallPart, CallSelection, NewBytes, NewCall, NewSnapshot, Note,
    SnapshotChange, Trace, TraceBuilder, pack_calls,
};
use sample::{describe, place, sample};

const TABLE: &str = "cutape-signatures\t1\n\
    enum\tCUresult\tCUDA_SUCCESS=0\n\
    function\t0\tcopy\tcopy\tS\tCUresult\tplain\tdst|void *|u8|host write n\n\
    function\t1\tlaunch\tlaunch\tS\tCUresult\tplain\tf|CUfunction|u8|use function\n\
    function\t2\tload\tload\tS\tCUresult\tplain\timage|const void *|u8|image\n";

fn keep(trace: &Trace, target: &Path, calls: &[u64]) -> Trace {
    let keeps = |call: u64| calls.contains(&call);
    let selection = CallSelection {
        keeps: &keeps,
        keeps_host_memory: &|_, address| address == 0x5000,
        changes: &BTreeMap::new(),
    };
    let meta = [("cut.choice".to_owned(), "some".to_owned())];
    pack_calls(trace, target, &meta, &selection).unwrap();
    let trace = Trace::open(target).unwrap();
    assert_eq!(trace.verify(), []);
    trace
}

#[test]
fn all_calls_are_the_same_calls() {
    let place = place("selection-all");
    sample().write(&place.join("raw.cutape")).unwrap();
    let whole = Trace::open(&place.join("raw.cutape")).unwrap();
    let all: Vec<u64> = whole.calls().map(|call| call.index).collect();
    let kept = keep(&whole, &place.join("all.cutape"), &all);
    assert_eq!(describe(&kept), describe(&whole));
    // Some of the calls of each thread, in the same order.
    let some: Vec<u64> = all.iter().copied().filter(|call| call % 3 == 1).collect();
    let kept = keep(&whole, &place.join("some.cutape"), &some);
    let ticks = |trace: &Trace, wanted: &[u64]| -> Vec<_> {
        let calls = trace.calls().filter(|call| wanted.contains(&call.index));
        calls
            .map(|call| (call.thread, call.ticks, call.signature.name.clone()))
            .collect()
    };
    let range: Vec<u64> = (0..some.len() as u64).collect();
    assert_eq!(ticks(&kept, &range), ticks(&whole, &some));
    assert_eq!(kept.calls().count(), some.len());
}

/// A copy whose bytes arrive in call 4, launches of two functions, and loads of two images.
fn with_notes() -> TraceBuilder {
    let mut builder = TraceBuilder::new(TABLE);
    let call = |builder: &mut TraceBuilder, name: &str, argument: u64, bytes: &[u8]| {
        builder.call(NewCall {
            name,
            arguments: &[argument],
            snapshots: &[NewSnapshot::pointee(0, bytes)][..usize::from(!bytes.is_empty())],
            ..NewCall::default()
        });
    };
    call(&mut builder, "load", 0x10, &[1; 20_000]);
    builder.thread_note(0, 77, "worker").leave(0, 0, &[]);
    call(&mut builder, "load", 0x20, &[2; 20_000]);
    builder.leave(0, 0, &[]);
    call(&mut builder, "copy", 0x30, &[]);
    builder.leave(0, 0, &[]);
    call(&mut builder, "launch", 0xf1, &[]);
    let changed = |address| HostChangedNote {
        address,
        is_after: 1,
    };
    builder
        .layout_note(0, 0xf1, &[(0, 8)])
        .layout_note(0, 0xf2, &[(0, 4)])
        .host_changed_note(0, changed(0x5000), NewSnapshot::pointee(0, &[9]))
        .host_changed_note(0, changed(0x6000), NewSnapshot::pointee(0, &[8]))
        .leave(0, 0, &[]);
    call(&mut builder, "launch", 0xf2, &[]);
    let readback = ReadbackNote {
        thread: 0,
        number: 2,
        address: 0x30,
    };
    builder
        .readback_note(0, readback, NewSnapshot::pointee(0, &[5, 5]))
        .leave(0, 0, &[]);
    builder
}

#[test]
fn kept_calls_get_the_notes_that_they_need() {
    let place = place("selection-notes");
    with_notes().write(&place.join("raw.cutape")).unwrap();
    let whole = Trace::open(&place.join("raw.cutape")).unwrap();
    // The calls that are kept; then of the last one the layouts, host memory and readbacks.
    for (file, calls, layouts, host, readbacks) in [
        (
            "copy",
            &[1, 2, 4][..],
            vec![0xf2],
            vec![(0x5000, 0)],
            vec![1],
        ),
        ("launches", &[3, 4], vec![], vec![], vec![]),
        ("one", &[4], vec![0xf2], vec![(0x5000, 0)], vec![]),
    ] {
        let kept = keep(&whole, &place.join(file), calls);
        let last = kept.calls().last().unwrap();
        let (mut its_layouts, mut its_host, mut its_readbacks) = (vec![], vec![], vec![]);
        for note in last.notes() {
            match note {
                Note::Layout(handle, _) => its_layouts.push(handle),
                Note::HostChanged(note, _) => its_host.push((note.address, note.is_after)),
                Note::Readback(note, _) => its_readbacks.push(note.number),
                _ => {}
            }
        }
        assert_eq!(its_layouts, layouts, "{file}");
        assert_eq!(its_host, host, "{file}");
        assert_eq!(its_readbacks, readbacks, "{file}");
        assert_eq!(kept.threads()[0].number, 77, "{file}");
        assert_eq!(kept.meta_value("cut.choice"), Some("some"));
    }
    let one = Trace::open(&place.join("one")).unwrap();
    assert_eq!(one.blobs().count(), 0);
    assert!(one.signatures().by_name("load").is_none());
    let copy = Trace::open(&place.join("copy")).unwrap();
    assert_eq!(copy.blobs().count(), 1, "the image that is left");
}

fn change(arguments: &[(u8, u64)], snapshots: &[(CallPart, NewBytes)]) -> CallChange {
    let snapshots = snapshots.iter().map(|(part, bytes)| SnapshotChange {
        part: *part,
        parameter: 0,
        field: 0,
        bytes: bytes.clone(),
    });
    CallChange {
        arguments: arguments.to_vec(),
        snapshots: snapshots.collect(),
    }
}

#[test]
fn calls_change_their_arguments_and_bytes() {
    let place = place("selection-changes");
    with_notes().write(&place.join("raw.cutape")).unwrap();
    let whole = Trace::open(&place.join("raw.cutape")).unwrap();
    let (enter, leave) = (CallPart::Enter, CallPart::Leave);
    let changes = BTreeMap::from([
        (0, change(&[], &[(enter, NewBytes::Other(vec![3, 4]))])),
        (1, change(&[(0, 0x21)], &[(enter, NewBytes::First(17_000))])),
        (2, change(&[(0, 0x31)], &[(leave, NewBytes::First(1))])),
        (3, change(&[], &[(enter, NewBytes::Omitted)])),
    ]);
    let selection = CallSelection {
        keeps: &|_| true,
        keeps_host_memory: &|_, _| true,
        changes: &changes,
    };
    let target = place.join("changed.cutape");
    pack_calls(&whole, &target, &[], &selection).unwrap();
    let changed = Trace::open(&target).unwrap();
    assert_eq!(changed.verify(), []);
    let (before, after): (Vec<_>, Vec<_>) = (whole.calls().collect(), changed.calls().collect());
    assert_eq!(before.len(), after.len());
    for (before, after) in before.iter().zip(&after) {
        let argument = match before.index {
            1 => 0x21,
            2 => 0x31,
            _ => before.argument(0),
        };
        assert_eq!(after.argument(0), argument);
        assert_eq!((after.ticks, after.caller), (before.ticks, before.caller));
        assert_eq!(after.notes().count(), before.notes().count());
    }
    let bytes = |call: usize| {
        let bytes = after[call].snapshot(0, 0).unwrap().bytes;
        changed.resolve(bytes).unwrap().into_owned()
    };
    assert_eq!(bytes(0), [3, 4]);
    assert_eq!(bytes(1), [2; 17_000]);
    // The first image has no blob any more.
    assert_eq!(changed.blobs().count(), 1);
    let Some(Note::Readback(note, snapshot)) = after[4].notes().last() else {
        panic!("no readback");
    };
    assert_eq!((note.number, snapshot.bytes), (2, Bytes::Inline(&[5])));
}
