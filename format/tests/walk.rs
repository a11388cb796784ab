//! A walk gives the same calls as an iterator, from any call on, and reads no more than needed.

mod sample;

use cutape_format::layout::{CHUNK_ALIGNMENT, CHUNK_HEAD_LENGTH, CHUNK_MAGIC, chunk_kind};
use cutape_format::{Error, NewCall, NewSnapshot, Trace, TraceBuilder, pack};
use sample::{place, sample, short_sample};

/// All that is known of a call.
fn line(call: &cutape_format::Call<'_>) -> String {
    let snapshots = |snapshots: cutape_format::Snapshots<'_>| {
        snapshots
            .map(|snapshot| format!("{snapshot:?}"))
            .collect::<Vec<_>>()
    };
    let arguments: Vec<u64> = (0..call.signature.parameters.len())
        .map(|position| call.argument(position))
        .collect();
    format!(
        "{} {}/{} {} {} {:#x} {arguments:?} {:?} {:?} {:?} {:?}",
        call.index,
        call.thread,
        call.number,
        call.signature.name,
        call.ticks,
        call.caller,
        snapshots(call.snapshots()),
        call.result(),
        call.leave.map(|leave| snapshots(leave.snapshots())),
        call.notes().collect::<Vec<_>>(),
    )
}

/// The calls of a range, without the earlier ones that introduce handles.
fn walked_alone(trace: &Trace, range: std::ops::Range<u64>) -> Vec<String> {
    let mut lines = Vec::new();
    trace
        .walk()
        .calls(range.clone())
        .without_earlier()
        .run(|call| {
            if range.contains(&call.index) {
                lines.push(line(call));
            }
            Ok::<_, Error>(())
        })
        .unwrap();
    lines
}

fn walked(trace: &Trace, range: std::ops::Range<u64>) -> (Vec<String>, u64) {
    let (mut lines, mut before) = (Vec::new(), 0);
    trace
        .walk()
        .calls(range.clone())
        .run(|call| {
            if range.contains(&call.index) {
                lines.push(line(call));
            } else {
                before += 1;
            }
            Ok::<_, Error>(())
        })
        .unwrap();
    (lines, before)
}

/// Three threads that call in turn, in many small chunks. The first creates a module now and then,
/// and some calls return in the chunk behind the one that they were entered in.
fn busy() -> TraceBuilder {
    filled(TraceBuilder::new(&signatures()))
}

/// The same in short records.
fn busy_short() -> TraceBuilder {
    let mut builder = TraceBuilder::new(&signatures());
    builder.short();
    filled(builder)
}

/// The roles as the registry writes them.
fn signatures() -> String {
    sample::SIGNATURES.replace("|Make\t", "|make module\t")
}

fn filled(mut builder: TraceBuilder) -> TraceBuilder {
    builder.chunk_length(4096);
    for round in 0..600_u64 {
        for thread in 0..3 {
            // One thread makes no calls for a long time.
            if thread == 2 && (100..500).contains(&round) {
                continue;
            }
            let makes = thread == 0 && round % 250 == 3;
            if makes {
                builder
                    .call(NewCall {
                        thread,
                        name: "cuModuleLoadData",
                        arguments: &[0x7000, round],
                        ..NewCall::default()
                    })
                    .leave(
                        thread,
                        0,
                        &[NewSnapshot::pointee(0, &(0x100 + round).to_le_bytes())],
                    );
            }
            builder.call(NewCall {
                thread,
                name: "cuInit",
                arguments: &[round],
                caller: 0x40_0000 + round,
                ..NewCall::default()
            });
        }
        for thread in 0..3 {
            if thread != 2 || !(100..500).contains(&round) {
                builder.leave(thread, (round % 3) as i32, &[]);
            }
        }
    }
    builder
}

#[test]
fn a_walk_from_anywhere_gives_the_same_calls() {
    let place = place("walk");
    for (name, builder) in [
        ("sample", sample()),
        ("busy", busy()),
        ("busy-short", busy_short()),
    ] {
        let (raw, packed) = (place.join(name), place.join(format!("{name}-packed")));
        builder.write(&raw).unwrap();
        let raw = Trace::open(&raw).unwrap();
        pack(&raw, &packed, &[], &[]).unwrap();
        let all: Vec<String> = raw.calls().map(|call| line(&call)).collect();
        let total = all.len() as u64;
        let whole = Trace::open(&packed).unwrap();
        let indexed = Trace::open_indexed(&packed).unwrap();
        assert_eq!(raw.counted_calls(), None);
        assert_eq!(indexed.counted_calls(), Some(total));
        for trace in [&raw, &whole, &indexed] {
            assert_eq!(walked(trace, 0..u64::MAX), (all.clone(), 0), "{name}");
            for from in (0..total + 2).step_by(1 + all.len() / 40) {
                let wanted: Vec<String> = all.iter().skip(from as usize).take(5).cloned().collect();
                let (found, before) = walked(trace, from..from + 5);
                assert_eq!(found, wanted, "{name} from {from}");
                let alone = walked_alone(trace, from..from + 5);
                assert_eq!(alone, wanted, "{name} alone from {from}");
                assert!(before <= from.min(total), "{name} from {from}");
            }
        }
    }
}

#[test]
fn what_lies_before_is_passed_over_except_what_makes_objects() {
    let place = place("walk-over");
    let (raw, packed) = (place.join("raw"), place.join("packed"));
    busy().write(&raw).unwrap();
    pack(&Trace::open(&raw).unwrap(), &packed, &[], &[]).unwrap();
    let trace = Trace::open_indexed(&packed).unwrap();
    let total = trace.calls().count() as u64;
    let from = total - 20;
    let made = |indices: std::ops::Range<u64>| {
        trace
            .calls()
            .filter(|call| {
                indices.contains(&call.index) && call.signature.name == "cuModuleLoadData"
            })
            .map(|call| call.argument(1))
            .collect::<Vec<_>>()
    };
    let (mut passed, mut found) = (0, Vec::new());
    trace
        .walk()
        .calls(from..from + 1)
        .run(|call| {
            passed += 1;
            if call.signature.name == "cuModuleLoadData" {
                found.push(call.argument(1));
            }
            Ok::<_, Error>(())
        })
        .unwrap();
    assert_eq!(found, made(0..from));
    assert!(passed < total / 2, "{passed} of {total}");
}

#[test]
fn an_error_of_the_caller_ends_the_walk() {
    let place = place("walk-error");
    let path = place.join("raw");
    busy().write(&path).unwrap();
    let trace = Trace::open(&path).unwrap();
    let mut seen = 0;
    let outcome = trace.walk().run(|_| {
        seen += 1;
        match seen {
            7 => Err(Error::NotATrace {
                path: "enough".into(),
                why: String::new(),
            }),
            _ => Ok(()),
        }
    });
    assert!(outcome.unwrap_err().to_string().contains("enough"));
    assert_eq!(seen, 7);
}

#[test]
fn a_panic_of_the_caller_is_not_lost_in_other_threads() {
    let place = place("walk-panic");
    let path = place.join("raw");
    busy().write(&path).unwrap();
    let trace = Trace::open(&path).unwrap();
    let outcome = std::panic::catch_unwind(|| {
        trace.walk().run(|call| {
            assert!(call.index < 300);
            Ok::<_, Error>(())
        })
    });
    assert!(outcome.is_err());
}

#[test]
fn damage_is_found_where_it_is_read() {
    let place = place("walk-damage");
    let (raw, packed) = (place.join("raw"), place.join("packed"));
    busy().write(&raw).unwrap();
    pack(&Trace::open(&raw).unwrap(), &packed, &[], &[]).unwrap();
    let mut bytes = std::fs::read(&packed).unwrap();
    // The middle of the file has calls; a walk to the first calls does not read their chunk.
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&packed, bytes).unwrap();
    let error = Trace::open(&packed).unwrap_err().to_string();
    assert!(error.contains("damaged at byte"), "{error}");
    let trace = Trace::open_indexed(&packed).unwrap();
    assert_eq!(walked(&trace, 0..3).0.len(), 3);
    let error = trace
        .walk()
        .run(|_| Ok::<_, Error>(()))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("checksum") || error.contains("begins here"),
        "{error}"
    );
}

/// Where the records of chunks and thread buffers may begin in a raw trace.
fn bodies_of_calls(bytes: &[u8]) -> Vec<usize> {
    (0..bytes.len())
        .step_by(CHUNK_ALIGNMENT as usize)
        .filter(|&at| {
            let kind = bytes.get(at + 4..at + 6).unwrap_or(&[]);
            let kinds = [chunk_kind::CALLS, chunk_kind::THREAD_BUFFER].map(u16::to_le_bytes);
            bytes[at..].starts_with(&CHUNK_MAGIC.to_le_bytes()) && kinds.iter().any(|k| k == kind)
        })
        .map(|at| at + CHUNK_HEAD_LENGTH)
        .collect()
}

/// A walk assembles calls from outlines, an iterator from records; they agree on any bytes.
#[test]
fn of_any_records_a_walk_makes_what_an_iterator_makes() {
    let place = place("walk-records");
    let path = place.join("changed");
    for mut builder in [sample(), short_sample()] {
        // Open chunks have no checksum.
        let sound = builder.leave_open().bytes();
        let (mut compared, mut changed) = (0, 0);
        let bodies = bodies_of_calls(&sound);
        assert!(bodies.len() > 1);
        std::fs::write(&path, &sound).unwrap();
        let as_recorded = walked(&Trace::open(&path).unwrap(), 0..u64::MAX).0;
        for at in bodies.into_iter().flat_map(|start| start..start + 240) {
            let bytes = [sound[at] ^ 1 << (at % 8), sound[at].wrapping_add(1), 6];
            for byte in bytes.into_iter().filter(|&byte| byte != sound[at]) {
                let mut bytes = sound.clone();
                bytes[at] = byte;
                std::fs::write(&path, &bytes).unwrap();
                let Ok(trace) = Trace::open(&path) else {
                    continue;
                };
                let all: Vec<String> = trace.calls().map(|call| line(&call)).collect();
                assert_eq!(walked(&trace, 0..u64::MAX).0, all, "{byte} at {at}");
                compared += 1;
                changed += u32::from(all != as_recorded);
            }
        }
        assert!(compared > 500 && changed > 200, "{compared} {changed}");
    }
}
