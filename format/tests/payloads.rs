//! Leaving payloads out while packing: which snapshots are payloads, and what replaces them.

mod sample;

use std::fs;
use std::path::Path;

use cutape_format::layout::{
    ExchangeOutputNote, FILE_HEAD_ENCODED, FileHead, HostChangedNote, MINOR, ReadbackNote, field,
    note_kind, record_kind, snapshot_flag,
};
use cutape_format::{
    Bytes, Call, NewCall, NewSnapshot, Note, PackSummary, PayloadPolicies, PayloadPolicy, Trace,
    TraceBuilder, codec, pack, pack_with_policies, repair,
};
use proptest::prelude::*;
use sample::{noise, place};

const SIGNATURES: &str = "cutape-signatures\t1
function\t0\tup\tup\tM\tCUresult\tplain\tdst|CUdeviceptr|u8|device write n\tsrc|const void *|u8|host read n\tn|size_t|u8|value
function\t1\tdown\tdown\tM\tCUresult\tplain\tdst|void *|u8|host write n\tsrc|CUdeviceptr|u8|device read n\tn|size_t|u8|value
function\t2\tplane\tplane\tM\tCUresult\toverride\tpCopy|const CUDA_MEMCPY2D *|u8|in
function\t3\tanswers\tanswers\tU\tCUresult\toverride\tdata|void **|u8|in [n]\tn|size_t|u8|value
function\t4\tload\tload\tL\tCUresult\toverride\tmodule|CUmodule *|u8|make module\timage|const void *|u8|in
function\t5\twait\twait\tS\tCUresult\tplain\tstream|CUstream|u8|use stream
";

const ALL: PayloadPolicies = PayloadPolicies {
    payloads: PayloadPolicy::All,
    outputs: PayloadPolicy::All,
    embeds_files: false,
};

/// Whether the bytes of a snapshot go to a device, come back, or are no payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    In,
    Out,
    Neither,
}

/// The bytes of a snapshot, or what replaces them.
fn shown(bytes: Bytes<'_>, trace: &Trace) -> Vec<u8> {
    match bytes {
        Bytes::Omitted(length) => omitted(length),
        Bytes::Hashed(length, hash) => [&b"hash"[..], &length.to_le_bytes(), &hash].concat(),
        Bytes::Unreadable => b"unreadable".to_vec(),
        bytes => trace.resolve(bytes).unwrap().into_owned(),
    }
}

fn omitted(length: u64) -> Vec<u8> {
    [&b"none"[..], &length.to_le_bytes()].concat()
}

/// What all snapshots hold, in the order of the trace.
fn contents(trace: &Trace) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for call in trace.calls() {
        let mut add = |bytes| found.push(shown(bytes, trace));
        call.snapshots().for_each(|snapshot| add(snapshot.bytes));
        for note in call.notes() {
            if let Note::Readback(_, snapshot)
            | Note::HostChanged(_, snapshot)
            | Note::HostSeen(_, snapshot)
            | Note::ExchangeOutput(_, snapshot) = note
            {
                add(snapshot.bytes);
            }
        }
        let after = call.leave.iter().flat_map(|leave| leave.snapshots());
        after.for_each(|snapshot| add(snapshot.bytes));
    }
    found
}

/// What they should hold under these policies.
fn expected(kept: PayloadPolicies) -> Vec<Vec<u8>> {
    let left = |(direction, bytes): (Direction, Vec<u8>)| {
        let kept = match direction {
            Direction::In => kept.payloads,
            Direction::Out => kept.outputs,
            Direction::Neither => PayloadPolicy::All,
        };
        let length = bytes.len() as u64;
        match kept {
            PayloadPolicy::All => bytes,
            PayloadPolicy::Hash => {
                let hash = *blake3::hash(&bytes).as_bytes().first_chunk().unwrap();
                [&b"hash"[..], &length.to_le_bytes(), &hash as &[u8; 16]].concat()
            }
            PayloadPolicy::None => omitted(length),
        }
    };
    let without_bytes = [Vec::new(), b"unreadable".to_vec()];
    snapshots()
        .into_iter()
        .map(left)
        .chain(without_bytes)
        .collect()
}

/// Calls without the bytes of their snapshots: what must not change.
fn outline(trace: &Trace) -> Vec<String> {
    let line = |call: Call<'_>| {
        let pieces = |snapshots: cutape_format::Snapshots<'_>| {
            let pieces = snapshots.map(|snapshot| (snapshot.parameter, snapshot.field));
            let mut pieces: Vec<_> = pieces.collect();
            // A SNAPSHOT comes first, the note that replaces it last.
            pieces.sort_unstable();
            pieces
        };
        let (before, arguments) = (pieces(call.snapshots()), call.packed_arguments());
        let leave = call.leave;
        let after = leave.map(|leave| (leave.ticks, leave.result, pieces(leave.snapshots())));
        let (index, number, ticks) = (call.index, call.number, call.ticks);
        format!("{index} {number} {ticks} {arguments:?} {before:?} {after:?}")
    };
    trace.calls().map(line).collect()
}

fn every_kept() -> impl Iterator<Item = PayloadPolicies> {
    PayloadPolicy::EVERY.into_iter().flat_map(|payloads| {
        let both = PayloadPolicy::EVERY.into_iter();
        both.map(move |outputs| PayloadPolicies {
            payloads,
            outputs,
            embeds_files: false,
        })
    })
}

/// The snapshots of the trace that `record` makes, in the order of the trace.
fn snapshots() -> Vec<(Direction, Vec<u8>)> {
    let long = |seed: u8| {
        let mut bytes = noise(20_000);
        bytes[0] = seed;
        bytes
    };
    vec![
        (Direction::In, vec![0x11; 40]),
        (Direction::In, long(1)),
        (Direction::Out, vec![0x22; 40]),
        (Direction::Out, long(2)),
        (
            Direction::Out,
            0x1234_5678_9abc_def0_u64.to_le_bytes().to_vec(),
        ),
        (Direction::Neither, vec![0x33; 128]),
        (Direction::In, vec![0x44; 24]),
        (Direction::Neither, vec![0x33; 128]),
        (Direction::Out, vec![0x55; 24]),
        (Direction::Neither, vec![0x66; 16]),
        (Direction::Neither, vec![0x77; 16]),
        // The same bytes as a payload's.
        (Direction::Neither, long(1)),
        (Direction::Neither, 0xbeef_u64.to_le_bytes().to_vec()),
        (Direction::In, vec![0x88; 56]),
        (Direction::Out, vec![0x99; 56]),
        (Direction::In, vec![0xaa; 33]),
        (Direction::In, vec![0xbb; 41]),
        (Direction::Out, vec![0xcc; 25]),
    ]
}

fn copy<'a>(name: &'a str, snapshots: &'a [NewSnapshot<'a>]) -> NewCall<'a> {
    NewCall {
        name,
        arguments: &[0x1000, 0x2000, 40],
        snapshots,
        ..NewCall::default()
    }
}

fn struct_copy<'a>(snapshots: &'a [NewSnapshot<'a>]) -> NewCall<'a> {
    NewCall {
        name: "plane",
        arguments: &[0x3000],
        snapshots,
        ..NewCall::default()
    }
}

/// A trace with each of `snapshots`, in records of both kinds.
fn record(short: bool, chunk_length: usize, path: &Path) -> Trace {
    let all = snapshots();
    let bytes = |at: usize| all[at].1.as_slice();
    let mut builder = TraceBuilder::new(SIGNATURES);
    if short {
        builder.short();
    }
    let host = |at| NewSnapshot::piece(0, field::HOST_BYTES, bytes(at));
    builder
        .chunk_length(chunk_length)
        .call(copy("up", &[NewSnapshot::pointee(1, bytes(0))]))
        .leave(0, 0, &[])
        .call(copy("up", &[NewSnapshot::pointee(1, bytes(1))]))
        .leave(0, 0, &[])
        .call(copy("down", &[]))
        .leave(0, 0, &[NewSnapshot::pointee(0, bytes(2))])
        .call(copy("down", &[]))
        .leave(0, 0, &[NewSnapshot::pointee(0, bytes(3))])
        .call(copy("down", &[]))
        .leave(0, 0, &[NewSnapshot::pointee(0, bytes(4))])
        .call(struct_copy(&[NewSnapshot::pointee(0, bytes(5)), host(6)]))
        .leave(0, 0, &[])
        .call(struct_copy(&[NewSnapshot::pointee(0, bytes(7))]))
        .leave(0, 0, &[host(8)])
        .call(NewCall {
            name: "answers",
            arguments: &[0x4000, 2],
            snapshots: &[NewSnapshot::pointee(0, bytes(9))],
            ..NewCall::default()
        })
        .leave(0, 0, &[host(10)])
        .call(NewCall {
            name: "load",
            arguments: &[0x5000, 0x6000],
            snapshots: &[NewSnapshot::pointee(1, bytes(11))],
            ..NewCall::default()
        })
        .leave(0, 0, &[NewSnapshot::pointee(0, bytes(12))])
        .call(copy("up", &[]));
    let mut further = codec::encode_to_vec(cutape_format::layout::SnapshotHead {
        parameter: 1,
        field: field::POINTEE,
        flags: 0,
        length: bytes(13).len() as u32,
    });
    further.extend_from_slice(bytes(13));
    let readback = ReadbackNote {
        thread: 0,
        number: 3,
        address: 0x1000,
    };
    let output = ExchangeOutputNote {
        thread: 0,
        number: 3,
        address: 0x8000,
    };
    let changed = HostChangedNote {
        address: 0x7000,
        is_after: 0,
    };
    builder
        .record(0, record_kind::NOTE, note_kind::SNAPSHOTS, &further)
        .leave(0, 0, &[])
        .call(NewCall {
            name: "wait",
            arguments: &[0],
            ..NewCall::default()
        })
        .readback_note(0, readback, NewSnapshot::pointee(0, bytes(14)))
        .host_changed_note(0, changed, NewSnapshot::pointee(0, bytes(15)))
        .exchange_output_note(0, output, bytes(16))
        .host_seen_note(0, changed, NewSnapshot::pointee(0, bytes(17)))
        .leave(0, 0, &[])
        // Snapshots without bytes stay.
        .call(copy("up", &[NewSnapshot::pointee(1, &[])]))
        .leave(0, 0, &[])
        .call(copy(
            "up",
            &[NewSnapshot {
                flags: snapshot_flag::UNREADABLE,
                ..NewSnapshot::pointee(1, &[])
            }],
        ))
        .leave(0, 1, &[]);
    builder.write(path).unwrap();
    Trace::open(path).unwrap()
}

#[test]
fn what_is_not_kept_is_replaced_and_nothing_else() {
    let place = place("payloads-places");
    // One chunk, and chunks so short that records of a call begin the next one.
    for (short, chunk_length) in [
        (false, 1 << 20),
        (true, 1 << 20),
        (false, 4096),
        (true, 4096),
    ] {
        let name = format!("{short}-{chunk_length}");
        let raw = record(short, chunk_length, &place.join(format!("{name}.cutape")));
        assert_eq!(contents(&raw), expected(ALL), "{name}");
        for kept in every_kept() {
            let name = format!("{name}-{}-{}", kept.payloads.word(), kept.outputs.word());
            let path = place.join(format!("{name}.cutape"));
            let summary = pack_with_policies(&raw, &path, &[], &[], kept).unwrap();
            let packed = Trace::open(&path).unwrap();
            assert_eq!(packed.verify(), [], "{name}");
            assert_eq!(contents(&packed), expected(kept), "{name}");
            assert_eq!(outline(&packed), outline(&raw), "{name}");
            let replaced = snapshots()
                .into_iter()
                .filter(|(direction, _)| match direction {
                    Direction::In => kept.payloads > PayloadPolicy::All,
                    Direction::Out => kept.outputs > PayloadPolicy::All,
                    Direction::Neither => false,
                });
            let lengths: Vec<_> = replaced.map(|(_, bytes)| bytes.len() as u64).collect();
            assert_eq!(summary.payloads, lengths.len() as u64, "{name}");
            assert_eq!(summary.payload_bytes, lengths.iter().sum::<u64>(), "{name}");
            // The image has the same bytes as a payload, which stay as its blob.
            let blobs = 1 + u64::from(kept.outputs == PayloadPolicy::All);
            let names = blobs + u64::from(kept.payloads == PayloadPolicy::All);
            assert_eq!(packed.blobs().count() as u64, names, "{name}");
            for (key, kept) in [("payloads", kept.payloads), ("outputs", kept.outputs)] {
                let said = packed.meta_value(key).unwrap_or("all");
                assert_eq!(said, kept.word(), "{name}");
            }
            // The walk, which `check` and `dump` use, sees the same.
            let mut walked = 0;
            let end = packed.walk().run(|call| {
                walked += call.snapshots().count();
                Ok::<_, cutape_format::Error>(())
            });
            assert!(end.unwrap().damage(&packed).is_empty(), "{name}");
            assert_eq!(
                walked,
                raw.calls()
                    .map(|call| call.snapshots().count())
                    .sum::<usize>()
            );
        }
    }
}

#[test]
fn a_record_may_begin_the_chunk_behind_its_call() {
    // With some lengths, a record begins a chunk, and only the chunk before names its call.
    let place = place("payloads-chunks");
    let calls = 40_u64;
    for length in (3864..=3976).step_by(8) {
        let (raw, packed) = (
            place.join(format!("{length}.cutape")),
            place.join(format!("{length}-packed.cutape")),
        );
        let mut builder = TraceBuilder::new(SIGNATURES);
        builder.short().chunk_length(4096);
        for call in 0..calls {
            let (up, down) = (vec![call as u8; length], [call as u8; 8]);
            builder
                .call(copy("up", &[NewSnapshot::pointee(1, &up)]))
                .leave(0, 0, &[])
                .call(copy("down", &[]))
                .leave(0, 0, &[NewSnapshot::pointee(0, &down)]);
        }
        builder.write(&raw).unwrap();
        let raw = Trace::open(&raw).unwrap();
        let kept = PayloadPolicies {
            payloads: PayloadPolicy::None,
            outputs: PayloadPolicy::None,
            embeds_files: false,
        };
        let summary = pack_with_policies(&raw, &packed, &[], &[], kept).unwrap();
        assert_eq!(summary.payloads, 2 * calls, "{length}");
        assert_eq!(summary.payload_bytes, calls * (length as u64 + 8));
        let packed = Trace::open(&packed).unwrap();
        assert_eq!(packed.verify(), [], "{length}");
        assert_eq!(outline(&packed), outline(&raw), "{length}");
        let left = contents(&packed);
        assert!(
            left.iter().all(|left| left.starts_with(b"none")),
            "{length}"
        );
    }
}

#[test]
fn less_is_kept_and_never_more() {
    let place = place("payloads-again");
    let raw = record(true, 4096, &place.join("raw.cutape"));
    for first in every_kept() {
        for second in every_kept() {
            let (once, twice) = (place.join("once.cutape"), place.join("twice.cutape"));
            let _ = (fs::remove_file(&once), fs::remove_file(&twice));
            pack_with_policies(&raw, &once, &[], &[], first).unwrap();
            let trace = Trace::open(&once).unwrap();
            let summary = pack_with_policies(&trace, &twice, &[], &[], second).unwrap();
            let both = PayloadPolicies {
                payloads: first.payloads.max(second.payloads),
                outputs: first.outputs.max(second.outputs),
                embeds_files: false,
            };
            let twice_packed = Trace::open(&twice).unwrap();
            assert_eq!(twice_packed.verify(), []);
            assert_eq!(
                contents(&twice_packed),
                expected(both),
                "{first:?} {second:?}"
            );
            if both == first {
                assert_eq!(fs::read(&once).unwrap(), fs::read(&twice).unwrap());
                assert_eq!(summary.payloads, 0);
            }
        }
    }
}

#[test]
fn a_recorder_may_have_been_told() {
    let place = place("payloads-told");
    type Packing = fn(&Trace, &Path);
    let packings: [(&str, Packing); 2] = [
        ("pack", |trace, path| {
            let PackSummary { payloads, .. } = pack(trace, path, &[], &[]).unwrap();
            assert_eq!(payloads, 1);
        }),
        ("repair", |trace, path| drop(repair(trace, path).unwrap())),
    ];
    let secret = noise(200);
    for (name, packing) in packings {
        let (raw, packed) = (
            place.join(format!("{name}-raw.cutape")),
            place.join(format!("{name}.cutape")),
        );
        TraceBuilder::new(SIGNATURES)
            .meta("payloads", "hash")
            .meta("outputs", "all")
            .call(NewCall {
                name: "up",
                arguments: &[0x1000, 0x2000, 200],
                snapshots: &[NewSnapshot::pointee(1, &secret)],
                ..NewCall::default()
            })
            .leave(0, 0, &[])
            .write(&raw)
            .unwrap();
        packing(&Trace::open_damaged(&raw).unwrap(), &packed);
        let bytes = fs::read(&packed).unwrap();
        assert!(
            !bytes.windows(16).any(|part| part == &secret[..16]),
            "{name}"
        );
        let trace = Trace::open(&packed).unwrap();
        assert_eq!(trace.meta_value("payloads"), Some("hash"));
        let call = trace.calls().next().unwrap();
        assert!(matches!(
            call.snapshot(1, 0).unwrap().bytes,
            Bytes::Hashed(200, _)
        ));
    }
}

#[test]
fn a_later_version_may_have_payloads_elsewhere() {
    let place = place("payloads-later");
    let (raw, packed) = (place.join("raw.cutape"), place.join("packed.cutape"));
    record(true, 4096, &raw);
    let mut bytes = fs::read(&raw).unwrap();
    let (head, _) = codec::decode::<FileHead>(&bytes).unwrap();
    let minor = MINOR + 1;
    bytes[..FILE_HEAD_ENCODED].copy_from_slice(&FileHead { minor, ..head }.encode());
    fs::write(&raw, &bytes).unwrap();
    let trace = Trace::open(&raw).unwrap();
    let kept = PayloadPolicies {
        outputs: PayloadPolicy::Hash,
        embeds_files: false,
        ..ALL
    };
    let error = pack_with_policies(&trace, &packed, &[], &[], kept).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    assert!(error.to_string().contains("version 1."), "{error}");
    assert!(!packed.exists());
    // With all payloads it can be packed.
    pack(&trace, &packed, &[], &[]).unwrap();
}

/// Of several, which no recorder writes, a reader takes the last.
#[test]
fn calls_with_several_snapshots_are_refused() {
    let place = place("payloads-several");
    let (raw, packed) = (place.join("raw.cutape"), place.join("packed.cutape"));
    for several in [false, true] {
        let mut builder = TraceBuilder::new(SIGNATURES);
        for _ in 0..2 {
            builder.record(0, record_kind::ENTER_SHORT, 0, &[0; 8]);
            builder.record(0, record_kind::SNAPSHOT, 0, &[7; 40]);
        }
        if several {
            builder.record(0, record_kind::SNAPSHOT, 0, &[8; 40]);
        }
        builder.short().write(&raw).unwrap();
        let _ = fs::remove_file(&packed);
        let kept = PayloadPolicies {
            payloads: PayloadPolicy::Hash,
            ..ALL
        };
        let done = pack_with_policies(&Trace::open(&raw).unwrap(), &packed, &[], &[], kept);
        let said = done
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert_eq!(said.contains("a second SNAPSHOT"), several, "{said}");
        assert_eq!(packed.exists(), !several);
    }
}

proptest! {
    #[test]
    fn records_of_any_bytes_never_panic(
        all in prop::collection::vec(
            (0..9_u8, 0..12_u16, prop::collection::vec(any::<u8>(), 0..80)),
            1..8,
        )
    ) {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let raw = folder.join("any-record.cutape");
        let packed = folder.join("any-record-packed.cutape");
        let mut builder = TraceBuilder::new(SIGNATURES);
        // Small numbers where snapshot lengths are, so that some fit.
        for (kind, function, mut body) in all {
            for (at, byte) in body.iter_mut().enumerate() {
                *byte &= [0xff, 0xff, 0, 0, 0x1f, 0, 0, 0][at % 8];
            }
            builder.record(0, kind, function, &body);
        }
        builder.short().write(&raw).unwrap();
        let _ = fs::remove_file(&packed);
        let kept = PayloadPolicies {
            payloads: PayloadPolicy::Hash,
            outputs: PayloadPolicy::None,
            embeds_files: false,
        };
        let trace = Trace::open(&raw).unwrap();
        if pack_with_policies(&trace, &packed, &[], &[], kept).is_ok() {
            let packed = Trace::open(&packed).unwrap();
            prop_assert_eq!(outline(&packed), outline(&trace));
        }
    }
}
