//! Reading while the recorder writes, the order of calls over threads, additions of later versions.

mod sample;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use cutape_format::layout::{
    CHUNK_CLOSED, CHUNK_HEAD_LENGTH, ChunkHead, EnterHead, FILE_HEAD_LENGTH, LeaveHead, MINOR,
    chunk_kind, record_kind,
};
use cutape_format::write::Record;
use cutape_format::{Cursor, NewCall, Note, Trace, TraceBuilder, codec};
use proptest::prelude::*;
use sample::{SIGNATURES, open_head, place};

const CHUNK: usize = 4096;

fn calls_head(thread: u32, sequence: u32, first: u64) -> ChunkHead {
    ChunkHead {
        sequence,
        first,
        ..open_head(chunk_kind::CALLS, thread, CHUNK)
    }
}

/// Closes a chunk: both checksums, the last eight bytes of its head, are stored last.
fn close(map: &mut [u8], filled: usize) {
    let (open, _) = codec::decode::<ChunkHead>(map).unwrap();
    let closed = ChunkHead {
        flags: CHUNK_CLOSED,
        used: (filled - CHUNK_HEAD_LENGTH) as u64,
        body_checksum: crc32fast::hash(&map[CHUNK_HEAD_LENGTH..filled]),
        ..open
    }
    .encode();
    for part in [
        0..CHUNK_HEAD_LENGTH - 8,
        CHUNK_HEAD_LENGTH - 8..CHUNK_HEAD_LENGTH,
    ] {
        map[part.clone()].copy_from_slice(&closed[part]);
        fence(Ordering::SeqCst);
    }
}

/// Fills mapped chunks with calls of cuInit, as the recorder does: enter, (the driver), leave.
fn write_calls(
    file: &File,
    thread: u32,
    calls: u64,
    clock: &AtomicU64,
    end: &AtomicU64,
    followed: &AtomicBool,
) {
    let mut chunk: Option<(memmap2::MmapMut, usize)> = None;
    let mut sequence = 0;
    let mut put = |kind: u8, number: u64, body: &dyn Fn(u64) -> Vec<u8>| loop {
        if let Some((map, filled)) = &mut chunk {
            let ticks = clock.fetch_add(1, Ordering::SeqCst);
            let record = Record::new(&mut map[*filled..]).and_then(|mut record| {
                record.put(&body(ticks))?;
                record.commit(kind, 0)
            });
            if let Some(length) = record {
                *filled += length;
                return;
            }
            close(map, *filled);
        }
        let position = end.fetch_add(CHUNK as u64, Ordering::SeqCst);
        // Makes the file longer without touching what other threads have.
        file.write_all_at(&[0], position + CHUNK as u64 - 1)
            .unwrap();
        // SAFETY: a part of the file that only this thread writes, and that is there.
        let mut map = unsafe {
            memmap2::MmapOptions::new()
                .offset(position)
                .len(CHUNK)
                .map_mut(file)
                .unwrap()
        };
        map[..CHUNK_HEAD_LENGTH].copy_from_slice(&calls_head(thread, sequence, number).encode());
        sequence += 1;
        chunk = Some((map, CHUNK_HEAD_LENGTH));
    };
    for number in 0..calls {
        // The second half waits until the reader has read something, or has surely failed.
        let begin = std::time::Instant::now();
        while number == calls / 2
            && !followed.load(Ordering::SeqCst)
            && begin.elapsed() < std::time::Duration::from_secs(30)
        {
            std::thread::yield_now();
        }
        put(record_kind::ENTER, number, &|ticks| {
            let mut body = cutape_format::codec::encode_to_vec(EnterHead { ticks, caller: 1 });
            body.extend_from_slice(&(number as u32).to_le_bytes());
            body
        });
        put(record_kind::LEAVE, number, &|ticks| {
            cutape_format::codec::encode_to_vec(LeaveHead {
                ticks,
                result: number as i32,
            })
        });
    }
}

#[test]
fn a_growing_trace_is_read_in_order_and_whole() {
    const CALLS: u64 = 3000;
    let path = place("follow-live").join("live.cutape");
    let start = TraceBuilder::new(SIGNATURES)
        .meta("program", "live")
        .bytes();
    fs::write(&path, &start).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let (clock, end) = (AtomicU64::new(1), AtomicU64::new(start.len() as u64));
    let mut trace = Trace::follow(&path).unwrap();
    assert_eq!(trace.meta_value("program"), Some("live"));
    let mut seen = [0_u64; 3];
    let mut last = 0;
    let mut while_writing = 0;
    let followed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|thread| {
                let (file, clock, end, followed) = (&file, &clock, &end, &followed);
                scope.spawn(move || write_calls(file, thread, CALLS, clock, end, followed))
            })
            .collect();
        let mut cursor = Cursor::new();
        loop {
            let done = writers
                .iter()
                .all(std::thread::ScopedJoinHandle::is_finished);
            trace.refresh().unwrap();
            assert_eq!(trace.damage(), []);
            // Without a moment before which all threads have written, only the end is safe for
            // order; each thread's own order holds always.
            let horizon = if done {
                u64::MAX
            } else {
                clock.load(Ordering::SeqCst)
            };
            while let Some(call) = cursor.next_before(&trace, horizon) {
                let thread = call.thread as usize;
                assert_eq!(call.number, seen[thread]);
                assert_eq!(call.argument(0), seen[thread]);
                assert_eq!(call.result(), Some(seen[thread] as i32));
                seen[thread] += 1;
                while_writing += u64::from(!done);
                followed.store(true, Ordering::SeqCst);
                last = call.index;
            }
            if done {
                break;
            }
            std::thread::yield_now();
        }
    });
    assert_eq!(seen, [CALLS; 3]);
    assert_eq!(last, 3 * CALLS - 1);
    assert!(while_writing > 0, "nothing was read before the end");
    // The same file, opened when it is complete: everything in order of time.
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.verify(), []);
    let ticks: Vec<u64> = trace.calls().map(|call| call.ticks).collect();
    assert_eq!(ticks.len() as u64, 3 * CALLS);
    assert!(ticks.is_sorted());
}

#[test]
fn a_call_in_flight_is_held_back_until_it_is_over() {
    let path = place("follow-flight").join("live.cutape");
    let event = |thread, value| NewCall {
        thread,
        name: "cuInit",
        arguments: value,
        ..NewCall::default()
    };
    let mut builder = TraceBuilder::new(SIGNATURES);
    builder
        .call(event(0, &[1]))
        .call(event(1, &[2]))
        .leave(1, 0, &[])
        .leave_open();
    builder.write(&path).unwrap();
    let mut trace = Trace::follow(&path).unwrap();
    let mut cursor = Cursor::new();
    // Thread 0's call is the earlier one, and has not returned.
    assert!(cursor.next_before(&trace, u64::MAX).is_none());
    let mut entered = Cursor::new();
    for argument in [1, 2] {
        assert!(entered.clone().next_entered(&trace, 0).is_none());
        let call = entered.next_entered(&trace, u64::MAX).unwrap();
        assert_eq!(call.argument(0), argument);
        assert_eq!(call.leave.is_none(), argument == 1);
    }
    assert!(entered.next_entered(&trace, u64::MAX).is_none());
    builder.leave(0, 5, &[]);
    // The recorder writes into the same file: one record more.
    let bytes = builder.bytes();
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .write_all_at(&bytes, 0)
        .unwrap();
    trace.refresh().unwrap();
    assert!(
        cursor.next_before(&trace, 0).is_none(),
        "nothing before the horizon"
    );
    let first = cursor.next_before(&trace, u64::MAX).unwrap();
    assert_eq!((first.argument(0), first.result()), (1, Some(5)));
    assert_eq!(cursor.next_before(&trace, u64::MAX).unwrap().argument(0), 2);
    assert!(cursor.next_before(&trace, u64::MAX).is_none());
    assert_eq!(cursor.index(), 2);

    // A call that never returned, whose thread has entered another: it is over, without a leave
    // part.
    builder
        .call(event(0, &[3]))
        .call(event(0, &[4]))
        .leave(0, 0, &[]);
    let bytes = builder.bytes();
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .write_all_at(&bytes, 0)
        .unwrap();
    trace.refresh().unwrap();
    let call = cursor.next_before(&trace, u64::MAX).unwrap();
    assert_eq!((call.argument(0), call.leave.is_none()), (3, true));
    assert_eq!(
        cursor.next_before(&trace, u64::MAX).unwrap().result(),
        Some(0)
    );
}

#[test]
fn what_later_versions_add_is_passed_over() {
    let path = place("follow-later").join("later.cutape");
    let mut builder = TraceBuilder::new(SIGNATURES);
    builder
        .record(0, 77, 1, b"a record of a later version")
        .call(NewCall {
            name: "cuInit",
            arguments: &[1],
            ..NewCall::default()
        })
        .record(0, 78, 1, b"another")
        .text_note(0, 999, "a note of a later version")
        .leave(0, 0, &[])
        // Function 3 is not in the table.
        .record(0, record_kind::ENTER, 3, &[1; 40])
        .record(0, record_kind::LEAVE, 3, &[0; 12])
        .call(NewCall {
            name: "cuInit",
            arguments: &[2],
            ..NewCall::default()
        })
        .leave(0, 0, &[]);
    let mut bytes = builder.bytes();
    // A later minor version, and a chunk of a kind of its own.
    let mut head: cutape_format::layout::FileHead = cutape_format::codec::decode(&bytes).unwrap().0;
    head.minor = MINOR + 1;
    bytes[..68].copy_from_slice(&head.encode());
    let position = bytes.len();
    bytes.resize(position + CHUNK, 0);
    let mut chunk = calls_head(0, 0, 0);
    chunk.kind = 500;
    bytes[position..position + CHUNK_HEAD_LENGTH].copy_from_slice(&chunk.encode());
    fs::write(&path, &bytes).unwrap();

    let check = |trace: &Trace| {
        let calls: Vec<_> = trace.calls().collect();
        let names: Vec<_> = calls
            .iter()
            .map(|call| call.signature.name.as_str())
            .collect();
        assert_eq!(names, ["cuInit", "unknown", "cuInit"]);
        assert!(matches!(calls[0].notes().next(), Some(Note::Other(999, _))));
        assert_eq!(calls[1].packed_arguments().len(), 24);
        assert_eq!(calls[1].snapshots().count(), 0);
        assert!(calls.iter().all(cutape_format::Call::succeeded));
    };
    let trace = Trace::open(&path).unwrap();
    check(&trace);
    let packed = path.with_extension("packed");
    cutape_format::pack(&trace, &packed, &[], &[]).unwrap();
    let trace = Trace::open(&packed).unwrap();
    assert_eq!(trace.head().minor, head.minor);
    assert_eq!(trace.verify(), []);
    check(&trace);
}

#[test]
fn a_chunk_that_was_being_closed_counts_as_open() {
    let path = place("follow-closing").join("closing.cutape");
    let mut builder = TraceBuilder::new(SIGNATURES);
    builder
        .call(NewCall {
            name: "cuInit",
            arguments: &[1],
            ..NewCall::default()
        })
        .leave(0, 0, &[]);
    let closed = builder.bytes();
    let open = builder.leave_open().bytes();
    let at = closed
        .windows(6)
        .position(|bytes| bytes == [b'C', b'T', b'C', b'H', 3, 0])
        .unwrap();
    // Any number of the stores that close a chunk, but not the last.
    for done in 0..=CHUNK_HEAD_LENGTH - 8 {
        let mut bytes = open.clone();
        bytes[at..at + done].copy_from_slice(&closed[at..at + done]);
        fs::write(&path, &bytes).unwrap();
        let trace = Trace::open(&path).unwrap();
        assert_eq!(
            trace.calls().filter(cutape_format::Call::succeeded).count(),
            1,
            "{done}"
        );
    }
}

#[test]
fn meta_is_read_once_it_is_closed() {
    let path = place("follow-meta").join("meta.cutape");
    let mut builder = TraceBuilder::new(SIGNATURES);
    builder.meta("program", "late").call(NewCall {
        name: "cuInit",
        arguments: &[1],
        ..NewCall::default()
    });
    let closed = builder.leave(0, 0, &[]).bytes();
    let at = closed
        .windows(6)
        .position(|bytes| bytes == [b'C', b'T', b'C', b'H', 1, 0])
        .unwrap();
    let mut bytes = closed.clone();
    let open = ChunkHead {
        kind: chunk_kind::META,
        ..calls_head(0, 0, 0)
    };
    bytes[at..at + CHUNK_HEAD_LENGTH].copy_from_slice(&open.encode());
    bytes[at + CHUNK_HEAD_LENGTH..at + CHUNK].fill(0);
    // As a killed process leaves it: no damage, no meta, all calls. The same while it is followed.
    bytes[at + CHUNK_HEAD_LENGTH] = 200;
    fs::write(&path, &bytes).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!((trace.meta(), trace.calls().count()), (&[][..], 1));
    let mut trace = Trace::follow(&path).unwrap();
    assert_eq!((trace.meta(), trace.calls().count()), (&[][..], 1));
    fs::write(&path, &closed).unwrap();
    trace.refresh().unwrap();
    assert_eq!(trace.meta_value("program"), Some("late"));
    trace.refresh().unwrap();
    assert_eq!((trace.meta().len(), trace.damage()), (1, &[][..]));
}

#[test]
fn a_file_shorter_than_its_chunk_is_waited_for() {
    let path = place("follow-short").join("short.cutape");
    let mut builder = TraceBuilder::new(SIGNATURES);
    builder
        .call(NewCall {
            name: "cuInit",
            arguments: &[1],
            ..NewCall::default()
        })
        .leave(0, 0, &[]);
    let bytes = builder.bytes();
    let calls = bytes.len() - (1 << 20);
    for length in [
        FILE_HEAD_LENGTH,
        calls,
        calls + 10,
        calls + 64,
        calls + 5000,
        bytes.len() - 1,
    ] {
        fs::write(&path, &bytes[..length]).unwrap();
        let mut trace = Trace::follow(&path).unwrap();
        assert!(
            Cursor::new().next_before(&trace, u64::MAX).is_none(),
            "{length}"
        );
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&bytes[length..], length as u64).unwrap();
        assert!(trace.refresh().unwrap(), "{length}");
        assert!(
            Cursor::new().next_before(&trace, u64::MAX).is_some(),
            "{length}"
        );
        assert_eq!(trace.damage(), [], "{length}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Any interleaving of calls over threads comes back as it was, packed or not.
    #[test]
    fn random_calls_come_back(
        steps in prop::collection::vec((0..4_u32, any::<u32>(), any::<i32>()), 1..80),
    ) {
        let place = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let raw = place.join("random-calls.cutape");
        let packed = place.join("random-calls-packed.cutape");
        let mut builder = TraceBuilder::new(SIGNATURES);
        builder.chunk_length(4096);
        let mut expected: Vec<(u32, u64, Option<i32>)> = Vec::new();
        let mut open: std::collections::HashMap<u32, usize> = std::collections::HashMap::new();
        for &(thread, value, result) in &steps {
            match open.remove(&thread) {
                Some(call) => {
                    builder.leave(thread, result, &[]);
                    expected[call].2 = Some(result);
                }
                None => {
                    builder.call(NewCall {
                        thread,
                        name: "cuInit",
                        arguments: &[u64::from(value)],
                        ..NewCall::default()
                    });
                    open.insert(thread, expected.len());
                    expected.push((thread, u64::from(value), None));
                }
            }
        }
        builder.write(&raw).unwrap();
        let _ = fs::remove_file(&packed);
        let trace = Trace::open(&raw).unwrap();
        cutape_format::pack(&trace, &packed, &[], &[]).unwrap();
        for trace in [trace, Trace::open(&packed).unwrap()] {
            let found = trace.calls().map(|call| (call.thread, call.argument(0), call.result()));
            let found: Vec<_> = found.collect();
            prop_assert_eq!(&found, &expected);
        }
    }
}
