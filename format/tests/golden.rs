//! Files of every version can be read, and the writer of this version still writes the same bytes.
//!
//! `examples/golden.rs` writes such a file when the format gets a new version. Tests take the names of
//! the files from `SAMPLES`.

mod sample;

use std::fs;
use std::path::PathBuf;

use cutape_format::{
    MarkerAction, MarkerSource, Note, Payload, ResolvedAddress, SourceFrame, Stack, StackFrame,
    Trace, marked_ranges, pack,
};
use sample::{SAMPLES, SIGNATURES, describe, place, sample, short_sample};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

/// The files from that version on, each as it was recorded and packed.
fn names_from(first: &str) -> Vec<String> {
    let names = SAMPLES.iter().map(|sample| sample.1);
    let files = names
        .skip_while(|name| *name != first)
        .flat_map(|name| ["", "-packed"].map(|form| format!("{name}{form}.cutape")));
    files.collect()
}

/// Those whose sample has stacks and markers: that of 1.8 has not.
fn with_stacks(first: &str) -> impl Iterator<Item = String> {
    let names = names_from(first).into_iter();
    names.filter(|name| !name.starts_with("v1.8"))
}

#[test]
fn golden_files_are_read() {
    // Every version has the same sample, so their descriptions are equal.
    let expected = fs::read_to_string(golden("v1.txt")).unwrap();
    let added = SAMPLES.iter().flat_map(|sample| [sample.2; 2]);
    for (name, added) in names_from("v1").iter().zip(added) {
        let trace = Trace::open(&golden(name)).unwrap();
        assert_eq!(trace.verify(), [], "{name}");
        for (line, expected) in describe(&trace).iter().zip(expected.lines()) {
            assert_eq!(line, expected, "{name}");
        }
        let count = expected.lines().count() + added;
        assert_eq!(trace.calls().count(), count, "{name}");
        let who: Vec<_> = trace
            .threads()
            .into_iter()
            .map(|t| (t.number, t.name))
            .collect();
        assert_eq!(who[0], (4243, "main".to_owned()), "{name}");
        assert_eq!(who.len(), 3, "{name}");
        assert_eq!(trace.meta_value("program"), Some("/bin/example"), "{name}");
        assert_eq!(trace.mappings()[0].build_id, [1, 2, 3], "{name}");
        assert_eq!(
            trace
                .signatures()
                .enumeration("CUresult")
                .unwrap()
                .name_of(-3),
            Some("NEGATIVE")
        );
        assert_eq!(trace.signatures().structure("CUuuid").unwrap().size, 16);
    }
}

#[test]
fn stacks_are_read() {
    for name in with_stacks("v1.2") {
        let trace = Trace::open(&golden(&name)).unwrap();
        let stacks: Vec<_> = trace
            .calls()
            .flat_map(|call| call.notes().collect::<Vec<_>>())
            .filter_map(|note| match note {
                Note::Stack(id) => Some(trace.stack(id).unwrap()),
                _ => None,
            })
            .collect();
        let native = [0x40_0010, 0x40_0020].map(StackFrame::Native);
        let python = |offset, is_last_of_native| StackFrame::Python {
            code: 9,
            offset,
            is_last_of_native,
        };
        let mixed = [
            python(6, true),
            python(8, false),
            StackFrame::Native(0x40_0030),
        ];
        let stack = |is_complete, frames: &[StackFrame]| Stack {
            is_complete,
            frames: frames.to_vec(),
        };
        assert_eq!(
            stacks,
            [stack(true, &native), stack(false, &mixed)],
            "{name}"
        );
        let code = trace.python_code(9).unwrap();
        assert_eq!(
            (code.version, code.first_line, &*code.file, &*code.function),
            (0x030b, 40, "/home/é/train.py", "step"),
            "{name}"
        );
        assert_eq!(code.line_table, [0x80, 0], "{name}");
        assert_eq!(
            (trace.stack(10), trace.python_code(7)),
            (None, None),
            "{name}"
        );
        assert_eq!(trace.stack_count(), 2, "{name}");
    }
}

#[test]
fn markers_are_read() {
    for name in with_stacks("v1.3") {
        let trace = Trace::open_indexed(&golden(&name)).unwrap();
        let markers = trace.markers();
        let ranges: Vec<_> = marked_ranges(&markers)
            .into_iter()
            .map(|range| (range.domain, range.name, range.thread, range.parent))
            .collect();
        let range = |domain: &str, text: &str, parent| {
            (domain.to_owned(), text.to_owned(), Some(0), parent)
        };
        assert_eq!(
            ranges,
            [
                range("", "train", None),
                range("", "step 0", Some(0)),
                range("data", "load", None),
            ],
            "{name}"
        );
        let marks: Vec<_> = markers
            .iter()
            .filter(|marker| marker.action == MarkerAction::Mark)
            .map(|mark| (&*mark.text, mark.source, mark.thread, mark.payload))
            .collect();
        assert_eq!(
            marks,
            [
                (
                    "batch ü",
                    MarkerSource::Nvtx,
                    Some(0),
                    Some(Payload::Signed(-3))
                ),
                ("second phase", MarkerSource::Outside, None, None),
            ],
            "{name}"
        );
        assert_eq!((markers[3].category, markers[3].color), (5, 0xff00_ff00));
    }
    let earlier = Trace::open(&golden("v1.2.cutape")).unwrap();
    assert!(!earlier.has_markers() && earlier.markers().is_empty());
}

#[test]
fn later_notes_are_read() {
    for name in ["v1.4.cutape", "v1.4-packed.cutape"] {
        let trace = Trace::open(&golden(name)).unwrap();
        let call = trace.calls().last().unwrap();
        let notes: Vec<String> = call.notes().map(|note| format!("{note:?}")).collect();
        let expected = [
            "Zeroed(ZeroedNote { address: 28672, length: 256 })",
            "DigestSetup(DigestSetupNote { context: 192, result: 0 })",
            "Digest(DigestNote { first: 3, context: 192, is_before: 0, reach: 1 }, \
             [(28672, 256), (32768, 16)])",
            "DigestValues([(3, 209), (4, 210)])",
            "DigestSkipped(DigestSkippedNote { reason: 2 })",
            "DigestVoid(DigestVoidNote { first: 4, count: 1 })",
            "DriverMessage(DriverMessageNote { level: 0 }, \"Allocation not found é\\n\")",
        ];
        assert_eq!(notes, expected, "{name}");
    }
}

#[test]
fn what_processes_share_is_read() {
    for name in ["v1.6.cutape", "v1.6-packed.cutape"] {
        let trace = Trace::open(&golden(name)).unwrap();
        let call = trace.calls().last().unwrap();
        let notes: Vec<String> = call.notes().map(|note| format!("{note:?}")).collect();
        let expected = [
            "Descriptor(DescriptorNote { descriptor: 7, mode: 8630, device: 6, inode: 1042, \
             size: 0, owner: 4711, mark: 3 })",
            "SharedMapping(SharedMappingNote { address: 24576, length: 8192, device: 26, \
             inode: 7, offset: 4096 }, \"/dev/shm/é\")",
        ];
        assert_eq!(notes, expected, "{name}");
    }
}

#[test]
fn notes_of_a_single_version_are_read() {
    const GAP: &str = "Gap(GapNote { calls: 41, pause: 2, paused: 5001, resumed: 6002 })";
    const NESTED: &str = "NestedCall(NestedCallNote { caller: 4198964, result: 800, function: 1 })";
    const BREADCRUMB: &str = "Breadcrumb(BreadcrumbNote { context: 192, stream: 1, \
                              address: 139637976731656, value: 17, kind: 2 })";
    const SNAPSHOT: &[&str] = &[
        "MemorySnapshot(MemorySnapshotNote { number: 3, bytes: 8, left_out: 4096, \
         nanoseconds: 1500000, result: 0, state: 1 })",
        "Memory(MemoryNote { address: 28672, length: 8, fill: 18446744073709551615, owner: 0, \
         is_library: 0, name_length: 0 }, \"\", None)",
    ];
    const SEEN: &[&str] = &[
        "HostSeen(HostChangedNote { address: 24576, is_after: 0 }, Snapshot { parameter: 0, field: 0, \
         flags: 0, bytes: Inline([1, 2, 3]) })",
        "HostSeen(HostChangedNote { address: 24576, is_after: 1 }, Snapshot { parameter: 0, field: 0, \
         flags: 0, bytes: Inline([4, 4, 4, 4, 4]) })",
    ];
    const FUNCTION: &str =
        "HostFunction(HostFunctionNote { thread: 1, number: 6, begun: 7007, ended: 8008 })";
    let all: [(&str, &[&str]); 14] = [
        ("v1.9.cutape", &["Looked(LookedNote { ticks: 3333 })"]),
        (
            "v1.9-packed.cutape",
            &["Looked(LookedNote { ticks: 3333 })"],
        ),
        (
            "v1.10.cutape",
            &["LookedBefore(LookedNote { ticks: 3344 })"],
        ),
        (
            "v1.10-packed.cutape",
            &["LookedBefore(LookedNote { ticks: 3344 })"],
        ),
        ("v1.11.cutape", &[NESTED]),
        ("v1.11-packed.cutape", &[NESTED]),
        ("v1.12.cutape", &[GAP, BREADCRUMB]),
        ("v1.12-packed.cutape", &[GAP, BREADCRUMB]),
        ("v1.13.cutape", SNAPSHOT),
        ("v1.13-packed.cutape", SNAPSHOT),
        ("v1.14.cutape", SEEN),
        ("v1.14-packed.cutape", SEEN),
        ("v1.15.cutape", &[FUNCTION]),
        ("v1.15-packed.cutape", &[FUNCTION]),
    ];
    for (name, expected) in all {
        let trace = Trace::open(&golden(name)).unwrap();
        let call = trace.calls().last().unwrap();
        let notes: Vec<String> = call.notes().map(|note| format!("{note:?}")).collect();
        assert_eq!(notes, expected, "{name}");
    }
}

#[test]
fn what_is_missing_is_read() {
    for name in ["v1.8.cutape", "v1.8-packed.cutape"] {
        let trace = Trace::open(&golden(name)).unwrap();
        let shortfall = trace.shortfall().unwrap();
        assert!(shortfall.lacks_calls, "{name}");
        let why = "the trace could not grow: No space left on device (os error 28)";
        assert_eq!(shortfall.why, why, "{name}");
    }
}

#[test]
fn exchanges_are_read() {
    for name in ["v1.7.cutape", "v1.7-packed.cutape"] {
        let trace = Trace::open(&golden(name)).unwrap();
        let calls: Vec<_> = trace.calls().collect();
        let [.., exchange, last] = &calls[..] else {
            panic!("{name}");
        };
        let notes: Vec<String> = exchange.notes().map(|note| format!("{note:?}")).collect();
        let expected = "Exchange(ExchangeNote { kept: 65536, left_out: 4096, reason: 3 })";
        assert_eq!(notes, [expected], "{name}");
        let outputs: Vec<_> = last
            .notes()
            .map(|note| match note {
                Note::ExchangeOutput(note, snapshot) => {
                    let bytes = trace.resolve(snapshot.bytes).unwrap();
                    assert_eq!((note.thread, note.number), (1, exchange.number), "{name}");
                    (note.address, bytes.len(), bytes.last().copied())
                }
                other => panic!("{other:?}"),
            })
            .collect();
        let long = (0x7_1000, 20_000, Some((19_999 % 241) as u8));
        let expected = [(0x7_0000, 3, Some(3)), long, (0x7_8000, 0, None)];
        assert_eq!(outputs, expected, "{name}");
    }
}

#[test]
fn memory_contents_and_changed_sources_are_read() {
    for name in ["v1.5.cutape", "v1.5-packed.cutape"] {
        let trace = Trace::open(&golden(name)).unwrap();
        let call = trace.calls().last().unwrap();
        let changed: Vec<_> = call
            .notes()
            .filter(|note| matches!(note, Note::SourceChanged(_)))
            .map(|note| format!("{note:?}"))
            .collect();
        let note =
            "SourceChanged(SourceChangedNote { thread: 1, number: 6, address: 20480, length: 48 })";
        assert_eq!(changed, [note], "{name}");
        let notes: Vec<_> = call
            .notes()
            .filter(|note| !matches!(note, Note::SourceChanged(_)))
            .map(|note| match note {
                Note::Memory(note, name, snapshot) => {
                    let bytes = snapshot.map(|snapshot| trace.resolve(snapshot.bytes).unwrap());
                    let bytes = bytes.map(|bytes| (bytes.len(), bytes[bytes.len() - 1]));
                    (
                        note.address,
                        note.length,
                        note.fill,
                        note.owner,
                        name,
                        bytes,
                    )
                }
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [
            (0x7000, 3, 0, 0, "", Some((3, 3))),
            (
                0x8000,
                20_000,
                0,
                0,
                "",
                Some((20_000, (19_999 % 251) as u8)),
            ),
            (0x9000, 1 << 20, 0x3f80_0000_3f80_0000, 0, "", None),
            (0, 4, 0, 0xbeef, "state", Some((4, 6))),
        ];
        let expected = expected.map(|(address, length, fill, owner, name, bytes)| {
            (address, length, fill, owner, name.to_owned(), bytes)
        });
        assert_eq!(notes, expected, "{name}");
    }
}

#[test]
fn sources_survive_packing() {
    let place = place("golden-sources");
    let (once, twice) = (place.join("once"), place.join("twice"));
    let source = ResolvedAddress {
        address: 0x40_0010,
        module: "/bin/example".to_owned(),
        frames: vec![SourceFrame {
            function: "main".to_owned(),
            file: "example.c".to_owned(),
            line: 3,
        }],
    };
    let mut trace = Trace::open(&golden("v1.2.cutape")).unwrap();
    trace.name_addresses(vec![source.clone()]);
    pack(&trace, &once, &[], &[]).unwrap();
    pack(&Trace::open(&once).unwrap(), &twice, &[], &[]).unwrap();
    let trace = Trace::open_indexed(&twice).unwrap();
    assert_eq!(trace.source_of(source.address), Some(&source));
    assert_eq!(trace.source_of(1), None);
    assert_eq!(trace.stack_count(), 2);
}

#[test]
fn the_writer_still_writes_these_bytes() {
    for (sample, name, _) in SAMPLES {
        let written = sample().bytes();
        let minor = u32::from_le_bytes(written[12..16].try_into().unwrap());
        let named = name.strip_prefix("v1.").unwrap_or("0");
        assert_eq!(
            minor.to_string(),
            named,
            "{name}: TraceBuilder::note says which version adds a note"
        );
        let kept = fs::read(golden(&format!("{name}.cutape"))).unwrap();
        assert!(written == kept, "{name}: see examples/golden.rs");
    }
}

#[test]
fn arguments_are_the_same_together_as_one_by_one() {
    for (builder, name) in [(sample(), "packed"), (short_sample(), "short")] {
        let path = place("golden-arguments").join(format!("{name}.cutape"));
        builder.write(&path).unwrap();
        let trace = Trace::open(&path).unwrap();
        let mut signed = 0;
        for call in trace.calls() {
            // One more than any call has, and of some calls fewer than they have.
            for count in [2, 12] {
                let mut together = vec![7; count];
                call.arguments(&mut together);
                let each: Vec<u64> = (0..count).map(|at| call.argument(at)).collect();
                assert_eq!(together, each, "{name}: call {}", call.index);
                signed += usize::from(together.contains(&u64::MAX));
            }
        }
        assert!(signed > 0, "{name} has a negative argument");
    }
}

#[test]
fn known_calls_have_their_values() {
    let path = place("golden-values").join("raw.cutape");
    sample().write(&path).unwrap();
    let trace = Trace::open(&path).unwrap();
    let calls: Vec<_> = trace.calls().collect();
    assert!(calls.windows(2).all(|pair| pair[0].ticks < pair[1].ticks));
    assert!(
        calls
            .iter()
            .zip(0..)
            .all(|(call, index)| call.index == index)
    );
    let signed = &calls[1];
    assert_eq!(
        (signed.signature.name.as_str(), signed.argument(1)),
        ("cuDeviceGet", u64::MAX)
    );
    assert_eq!((signed.result(), signed.succeeded()), (Some(1), false));
    assert_eq!(signed.out(0), None);
    let load = &calls[2];
    assert_eq!(
        (load.thread, load.number, load.out(0)),
        (1, 0, Some(0xbeef))
    );
    assert_eq!(load.snapshot(1, 0).unwrap().bytes.length(), Some(17_000));
    assert_eq!(load.argument_named("image"), Some(0x8000));
    let float = &calls[5];
    assert_eq!(*float.argument_bytes(2), 1.5_f32.to_le_bytes());
    let by_value = &calls[6];
    assert_eq!(by_value.argument_bytes(1).len(), 64);
    assert_eq!(by_value.argument_bytes(1)[..8], 7_u64.to_le_bytes());
    assert!(by_value.leave.is_none(), "in flight");
    assert_eq!(by_value.signature.parameters.len(), 2);
    assert!(trace.signatures().by_name("cuTomorrow").is_none());
    assert!(SIGNATURES.contains("a-line-of-a-later-version"));
}
