//! Damaged files give an error or their readable part, never a panic, never wrong content.

mod sample;

use std::fs;
use std::num::NonZero;
use std::path::Path;

use cutape_format::layout::{
    CHUNK_HEAD_LENGTH, FILE_HEAD_LENGTH, FramesNote, MarkerNote, marker_action, marker_source,
};
use cutape_format::{
    Error, NewCall, NewSnapshot, Trace, TraceBuilder, marked_ranges, pack, repair,
};
use proptest::prelude::*;
use sample::{describe, place, sample};

/// A sample that fits into few bytes, so that each can be tried.
fn small() -> TraceBuilder {
    let mut builder = TraceBuilder::new(sample::SIGNATURES);
    builder.chunk_length(4096).meta("program", "/bin/example");
    for number in 0..3 {
        builder.call(NewCall {
            name: "cuInit",
            arguments: &[number],
            ..NewCall::default()
        });
        builder.leave(0, 0, &[]);
    }
    builder.call(NewCall {
        thread: 1,
        name: "cuInit",
        arguments: &[7],
        ..NewCall::default()
    });
    builder
}

/// Opens and reads everything that can be read.
fn read_all(path: &Path) -> Option<(Vec<String>, bool)> {
    let trace = Trace::open_damaged(path).ok()?;
    let lines = describe(&trace);
    let _ = (
        trace.threads(),
        trace.ticks_per_second(),
        trace.blobs().count(),
        marked_ranges(&trace.markers()),
    );
    Some((lines, trace.verify().is_empty()))
}

#[test]
fn every_changed_byte_of_a_packed_trace_is_found() {
    let place = place("damage-flip");
    let (raw, packed) = (place.join("raw.cutape"), place.join("packed.cutape"));
    let mut builder = small();
    // Long enough for a blob, and short when it is compressed, so that each byte can be tried.
    let blob = [7; 17_000];
    builder.leave(1, 0, &[]).call(NewCall {
        thread: 1,
        name: "cuModuleLoadData",
        arguments: &[0, 0],
        snapshots: &[NewSnapshot::pointee(1, &blob)],
        ..NewCall::default()
    });
    let note = FramesNote { id: 7, flags: 0 };
    builder.stack_note(1, 7).stack(note, &[0x40_0010]);
    let marker = MarkerNote {
        action: marker_action::PUSH,
        source: marker_source::NVTX,
        ..MarkerNote::default()
    };
    builder.marker(marker, "d", "step");
    builder.write(&raw).unwrap();
    pack(&Trace::open(&raw).unwrap(), &packed, &[], &[]).unwrap();
    let sound = &fs::read(&packed).unwrap();
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for part in 0..processors {
            let changed = place.join(format!("changed-{part}.cutape"));
            scope.spawn(move || {
                for at in (part..sound.len()).step_by(processors) {
                    for change in [0x01, 0x80, 0xff] {
                        let mut bytes = sound.clone();
                        bytes[at] ^= change;
                        fs::write(&changed, &bytes).unwrap();
                        if let Some((_, is_sound)) = read_all(&changed) {
                            assert!(!is_sound, "byte {at} changed by {change:#x}");
                        }
                    }
                }
            });
        }
    });
}

#[test]
fn every_cut_of_a_packed_trace_is_found() {
    let place = place("damage-cut-packed");
    let (raw, packed, cut) = (
        place.join("raw.cutape"),
        place.join("packed.cutape"),
        place.join("cut.cutape"),
    );
    small().write(&raw).unwrap();
    pack(&Trace::open(&raw).unwrap(), &packed, &[], &[]).unwrap();
    let sound = fs::read(&packed).unwrap();
    for length in 0..sound.len() {
        fs::write(&cut, &sound[..length]).unwrap();
        assert!(Trace::open(&cut).is_err(), "cut to {length} bytes");
        read_all(&cut);
    }
    fs::write(&cut, [&sound[..], &[0]].concat()).unwrap();
    assert!(Trace::open(&cut).is_err(), "a byte behind the end");
}

#[test]
fn a_cut_raw_trace_keeps_a_prefix_of_each_thread() {
    let place = place("damage-cut-raw");
    let (raw, cut) = (place.join("raw.cutape"), place.join("cut.cutape"));
    small().leave_open().write(&raw).unwrap();
    let whole = describe(&Trace::open(&raw).unwrap());
    let sound = fs::read(&raw).unwrap();
    // Everywhere where there is something, and at some places in between.
    let busy: Vec<usize> = (0..sound.len())
        .filter(|&at| {
            at % 61 == 0
                || sound[at.saturating_sub(9)..(at + 9).min(sound.len())]
                    .iter()
                    .any(|&b| b != 0)
        })
        .collect();
    assert!(busy.len() > 1000);
    for length in busy {
        fs::write(&cut, &sound[..length]).unwrap();
        let Some((lines, _)) = read_all(&cut) else {
            continue;
        };
        assert!(lines.len() <= whole.len());
        let Some(last) = lines.last() else { continue };
        let (head, tail) = lines.split_at(lines.len() - 1);
        assert_eq!(head, &whole[..head.len()], "cut to {length} bytes");
        // The last one may have lost its leave part.
        assert!(
            whole[head.len()].starts_with(last.as_str()),
            "cut to {length}: {tail:?}"
        );
    }
}

#[test]
fn repair_keeps_the_other_chunks() {
    let place = place("damage-repair");
    let (raw, fixed) = (place.join("raw.cutape"), place.join("fixed.cutape"));
    sample().write(&raw).unwrap();
    let trace = Trace::open(&raw).unwrap();
    let whole = describe(&trace);
    let sound = fs::read(&raw).unwrap();
    let chunks: Vec<usize> = (FILE_HEAD_LENGTH..sound.len())
        .step_by(4096)
        .filter(|&at| &sound[at..at + 4] == b"CTCH")
        .collect();
    let of_kind = |kind: u8| -> Vec<usize> {
        chunks
            .iter()
            .copied()
            .filter(|&at| sound[at + 4] == kind)
            .collect()
    };
    let calls: Vec<usize> = of_kind(3);
    // Thread 0 has three, so that the middle one can be lost.
    assert_eq!(calls.len(), 5);
    struct Case {
        name: &'static str,
        at: usize,
        byte: u8,
        told: &'static str,
    }
    let cases = [
        Case {
            name: "a value in a record",
            at: calls[0] + CHUNK_HEAD_LENGTH + 10,
            byte: 0x55,
            told: "checksum",
        },
        Case {
            name: "a record's length",
            at: calls[1] + CHUNK_HEAD_LENGTH,
            byte: 0x03,
            told: "checksum",
        },
        Case {
            name: "a chunk's head",
            at: calls[1] + 20,
            byte: 0x77,
            told: "no chunk begins",
        },
        Case {
            name: "a blob",
            at: of_kind(4)[0] + 100,
            byte: 0x77,
            told: "checksum of a blob",
        },
        Case {
            name: "the meta chunk",
            at: of_kind(1)[0] + 100,
            byte: 0x77,
            told: "program and machine",
        },
    ];
    for case in cases {
        let mut bytes = sound.clone();
        assert_ne!(bytes[case.at], case.byte);
        bytes[case.at] = case.byte;
        fs::write(&raw, &bytes).unwrap();
        let damaged = Trace::open_damaged(&raw).unwrap();
        let _ = fs::remove_file(&fixed);
        let summary = repair(&damaged, &fixed).unwrap();
        assert!(!summary.damage.is_empty(), "{}", case.name);
        assert!(
            summary.damage[0].what.contains(case.told),
            "{}: {:?}",
            case.name,
            summary.damage
        );
        let fixed_trace =
            Trace::open(&fixed).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let lines = describe(&fixed_trace);
        assert_eq!(lines.len() as u64, summary.calls, "{}", case.name);
        assert!(lines.len() >= 7, "{}: {} calls", case.name, lines.len());
        let told = fixed_trace.meta_value("repair.0").unwrap();
        assert!(
            told.starts_with("byte ") && told.contains(case.told),
            "{}: {told}",
            case.name
        );
        // Every call that is whole is one that was there (but for the value that was changed).
        let strip = |line: &String| line.split_once(' ').unwrap().1.to_owned();
        let known: Vec<String> = whole.iter().map(strip).collect();
        let strange = lines
            .iter()
            .filter(|line| !known.contains(&strip(line)))
            .count();
        assert!(strange <= 2, "{}: {strange} calls differ", case.name);
    }
}

#[test]
fn a_file_that_is_no_trace_is_refused_with_its_name() {
    let place = place("damage-other");
    let sound = small().bytes();
    let mut newer = sound.clone();
    newer[8] = 2;
    let cases: [(&str, &[u8], &str); 4] = [
        ("empty", b"", "0 bytes"),
        ("short", b"\x89CUTAPE\n", "8 bytes"),
        (
            "elf",
            &[b"\x7fELF".as_slice(), &[0; 100]].concat(),
            "begins with 7f 45 4c 46",
        ),
        ("newer", &newer, "use a later cutape"),
    ];
    for (name, bytes, told) in cases {
        let path = place.join(name);
        fs::write(&path, bytes).unwrap();
        let error = Trace::open_damaged(&path).unwrap_err();
        assert!(error.to_string().contains(told), "{name}: {error}");
        assert!(error.to_string().contains(name), "{error}");
    }
    assert!(matches!(
        Trace::open(&place),
        Err(Error::NotATrace { .. } | Error::Io { .. })
    ));
    assert!(matches!(
        Trace::open(&place.join("missing")),
        Err(Error::Io { .. })
    ));
}

#[test]
fn damage_is_an_error_that_says_what_to_do() {
    let place = place("damage-error");
    let path = place.join("raw.cutape");
    let mut bytes = small().bytes();
    bytes[FILE_HEAD_LENGTH + CHUNK_HEAD_LENGTH + 5] ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = Trace::open(&path).unwrap_err().to_string();
    for part in [
        "raw.cutape",
        "byte 4096",
        "signature table",
        "cutape repair",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let error = repair(&Trace::open_damaged(&path).unwrap(), &place.join("fixed")).unwrap_err();
    assert!(
        error.to_string().contains("signature table is lost"),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_bytes_never_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..9000),
        sound_head: bool,
    ) {
        let place = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let path = place.join(format!("random-{:?}.cutape", std::thread::current().id()));
        if sound_head {
            let sound = small().bytes();
            let length = bytes.len().min(FILE_HEAD_LENGTH);
            bytes[..length].copy_from_slice(&sound[..length]);
        }
        fs::write(&path, &bytes).unwrap();
        read_all(&path);
    }

    #[test]
    fn many_changes_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        packed: bool,
    ) {
        let place = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let path = place.join("many-changes.cutape");
        let source = place.join("many-changes-source.cutape");
        let mut bytes = small().bytes();
        if packed {
            fs::write(&source, &bytes).unwrap();
            pack(&Trace::open(&source).unwrap(), &source, &[], &[]).unwrap();
            bytes = fs::read(&source).unwrap();
        }
        // Behind the file head, and where there are records.
        let places = FILE_HEAD_LENGTH..bytes.len();
        let busy: Vec<usize> = places.filter(|&at| bytes[at] != 0).collect();
        for (index, value) in changes {
            bytes[busy[index.index(busy.len())]] = value;
        }
        fs::write(&path, &bytes).unwrap();
        read_all(&path);
        if let Ok(trace) = Trace::open_damaged(&path) {
            let fixed = place.join("many-changes-fixed.cutape");
            let _ = fs::remove_file(&fixed);
            if let Ok(summary) = repair(&trace, &fixed) {
                let trace = Trace::open(&fixed).unwrap();
                prop_assert_eq!(trace.calls().count() as u64, summary.calls);
            }
        }
    }
}
