//! Leaving calls out: the others stay as they are, and get the notes that they need.

mod sample;

use std::collections::BTreeMap;
use std::path::Path;

use cutape_format::layout::{ExchangeOutputNote, HostChangedNote, MemoryNote, ReadbackNote};
use cutape_format::{
    AddedMemory, Bytes, CallChange, CallPart, CallSelection, MemoryPiece, NewBytes, NewCall,
    NewSnapshot, Note, PayloadPolicies, SnapshotChange, Trace, TraceBuilder, pack_calls,
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
        gap: None,
        keeps: &keeps,
        keeps_host_memory: &|_, address| address == 0x5000,
        changes: &BTreeMap::new(),
        keeps_memory: &|_, note| note.address != 0x8000,
    };
    let meta = [("cut.choice".to_owned(), "some".to_owned())];
    pack_calls(trace, target, &meta, &selection, None).unwrap();
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

#[test]
fn outputs_of_exchanges_go_with_their_exchange() {
    let place = place("selection-exchanges");
    let mut builder = TraceBuilder::new(TABLE);
    let launch = |thread, argument| NewCall {
        thread,
        name: "launch",
        arguments: if argument == 0 { &[0xf1] } else { &[0xf2] },
        ..NewCall::default()
    };
    let output = |number| ExchangeOutputNote {
        thread: 1,
        number,
        address: 0x1000 + number,
    };
    // Call 0 waits while calls 1 and 2 of another thread exchange, and finds call 2 complete.
    builder
        .call(launch(0, 0))
        .call(launch(1, 0))
        .leave(1, 0, &[])
        .call(launch(1, 1))
        .leave(1, 0, &[])
        .exchange_output_note(0, output(1), &[7; 20_000])
        .leave(0, 0, &[])
        .call(launch(0, 1))
        .exchange_output_note(0, output(0), &[6])
        .leave(0, 0, &[]);
    builder.write(&place.join("raw.cutape")).unwrap();
    let whole = Trace::open(&place.join("raw.cutape")).unwrap();
    // The calls that are kept; then the outputs: call that has the note, number, length.
    for (file, calls, outputs) in [
        ("all", &[0, 1, 2, 3][..], vec![(0, 1, 20_000), (3, 0, 1)]),
        ("exchanges", &[1, 2], vec![(0, 0, 1), (1, 1, 20_000)]),
        ("second", &[0, 2], vec![(0, 0, 20_000)]),
        ("moved", &[2], vec![(0, 0, 20_000)]),
        ("none", &[0, 3], vec![]),
    ] {
        let kept = keep(&whole, &place.join(file), calls);
        let mut found = Vec::new();
        for call in kept.calls() {
            for note in call.notes() {
                if let Note::ExchangeOutput(note, snapshot) = note {
                    let length = kept.resolve(snapshot.bytes).unwrap().len();
                    found.push((call.index, note.number, length));
                }
            }
        }
        assert_eq!(found, outputs, "{file}");
    }
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
        (0, change(&[], &[(enter, NewBytes::Other([3, 4].into()))])),
        (1, change(&[(0, 0x21)], &[(enter, NewBytes::First(17_000))])),
        (2, change(&[(0, 0x31)], &[(leave, NewBytes::First(1))])),
        (3, change(&[], &[(enter, NewBytes::Omitted)])),
    ]);
    let selection = CallSelection {
        gap: None,
        keeps: &|_| true,
        keeps_host_memory: &|_, _| true,
        keeps_memory: &|_, _| true,
        changes: &changes,
    };
    let target = place.join("changed.cutape");
    pack_calls(&whole, &target, &[], &selection, None).unwrap();
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

#[test]
fn long_new_bytes_become_one_blob() {
    let place = place("selection-blob");
    with_notes().write(&place.join("raw.cutape")).unwrap();
    let whole = Trace::open(&place.join("raw.cutape")).unwrap();
    let new = |byte| NewBytes::Other(vec![byte; 17_001].into());
    for (second, blobs) in [(6, 1), (7, 2)] {
        let changes = [(0, 6), (1, second)].map(|(call, byte)| {
            let changed = change(&[], &[(CallPart::Enter, new(byte))]);
            (call, changed)
        });
        let changes = BTreeMap::from(changes);
        let selection = CallSelection {
            gap: None,
            keeps: &|_| true,
            keeps_host_memory: &|_, _| true,
            keeps_memory: &|_, _| true,
            changes: &changes,
        };
        let target = place.join(format!("{second}.cutape"));
        pack_calls(&whole, &target, &[], &selection, None).unwrap();
        let changed = Trace::open(&target).unwrap();
        assert_eq!(changed.verify(), []);
        assert_eq!(changed.blobs().count(), blobs);
        for (call, byte) in changed.calls().zip([6, second]) {
            let bytes = call.snapshot(0, 0).unwrap().bytes;
            assert_eq!(*changed.resolve(bytes).unwrap(), [byte; 17_001]);
        }
    }
}

/// What a call says that memory holds: address, length, the word or the bytes.
fn memory(trace: &Trace, call: u64) -> Vec<(u64, u64, Result<u64, Vec<u8>>)> {
    let call = trace.calls().nth(call as usize).unwrap();
    let notes = call.notes().filter_map(|note| match note {
        Note::Memory(note, _, None) => Some((note.address, note.length, Ok(note.fill))),
        Note::Memory(note, _, Some(snapshot)) => {
            let bytes = trace.resolve(snapshot.bytes).unwrap().into_owned();
            Some((note.address, note.length, Err(bytes)))
        }
        _ => None,
    });
    notes.collect()
}

fn place_of(address: u64, length: u64) -> MemoryNote {
    MemoryNote {
        address,
        length,
        ..MemoryNote::default()
    }
}

#[test]
fn memory_moves_to_the_next_kept_call() {
    let place = place("selection-memory");
    let mut builder = TraceBuilder::new(TABLE);
    for _ in 0..4 {
        builder.call(NewCall {
            name: "launch",
            arguments: &[0xf1],
            ..NewCall::default()
        });
        builder
            .memory_note(0, place_of(0x7000, 2), "", Some(&[1, 2]))
            .memory_note(0, place_of(0x8000, 2), "", Some(&[3, 4]))
            .leave(0, 0, &[]);
    }
    builder.write(&place.join("raw.cutape")).unwrap();
    let whole = Trace::open(&place.join("raw.cutape")).unwrap();
    let kept = keep(&whole, &place.join("kept.cutape"), &[1, 3]);
    // That at 0x8000 belongs to no kept call.
    let one = || (0x7000, 2, Err(vec![1, 2]));
    assert_eq!(memory(&kept, 0), [one(), one()]);
    assert_eq!(memory(&kept, 1), [one(), one()]);
}

#[test]
fn added_memory_is_in_its_call() {
    let place = place("selection-added");
    with_notes().write(&place.join("raw.cutape")).unwrap();
    let whole = Trace::open(&place.join("raw.cutape")).unwrap();
    let piece = |address, length, has_bytes| MemoryPiece {
        note: MemoryNote {
            fill: if has_bytes { 0 } else { 7 },
            ..place_of(address, length)
        },
        name: String::new(),
        has_bytes,
    };
    let pieces = [
        piece(0x1000, 3, true),
        piece(0x2000, 1 << 40, false),
        piece(0x3000, 20_000, true),
        piece(0x9000, 20_000, true),
    ];
    let read = |position: usize| -> std::io::Result<Vec<u8>> {
        match position {
            0 => Ok(vec![1, 2, 3]),
            2 | 3 => Ok(vec![5; 20_000]),
            _ => panic!("piece {position} has no bytes"),
        }
    };
    let write = |target: &Path, read: &(dyn Fn(usize) -> std::io::Result<Vec<u8>> + Sync)| {
        let added = AddedMemory {
            call: 4,
            pieces: &pieces,
            read,
        };
        let selection = CallSelection {
            gap: None,
            keeps: &|call| call >= 3,
            keeps_host_memory: &|_, _| true,
            keeps_memory: &|_, _| true,
            changes: &BTreeMap::new(),
        };
        pack_calls(&whole, target, &[], &selection, Some(&added))
    };
    let target = place.join("added.cutape");
    write(&target, &read).unwrap();
    let trace = Trace::open(&target).unwrap();
    assert_eq!(trace.verify(), []);
    assert_eq!(
        memory(&trace, 1),
        [
            (0x1000, 3, Err(vec![1, 2, 3])),
            (0x2000, 1 << 40, Ok(7)),
            (0x3000, 20_000, Err(vec![5; 20_000])),
            (0x9000, 20_000, Err(vec![5; 20_000])),
        ]
    );
    assert_eq!(trace.blobs().count(), 1, "equal bytes are stored once");
    // The same bytes again; nothing is left of an attempt that fails.
    let again = place.join("again.cutape");
    write(&again, &read).unwrap();
    assert_eq!(
        std::fs::read(&again).unwrap(),
        std::fs::read(&target).unwrap()
    );
    let failing = place.join("failing.cutape");
    write(&failing, &|_| Err(std::io::Error::other("lost"))).unwrap_err();
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 3);
    // Packing keeps them, and leaves the bytes out if it is told to.
    let packed = place.join("packed.cutape");
    let none = PayloadPolicies {
        payloads: cutape_format::PayloadPolicy::None,
        ..PayloadPolicies::default()
    };
    cutape_format::pack_with_policies(&trace, &packed, &[], &[], none).unwrap();
    let packed = Trace::open(&packed).unwrap();
    assert_eq!((packed.verify(), packed.blobs().count()), (vec![], 0));
}
