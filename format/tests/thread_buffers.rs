//! Traces whose threads write into a buffer that is flushed into chunks: read while they grow, and
//! at every moment at which a recorder can be killed.

mod sample;

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use cutape_format::codec;
use cutape_format::layout::{ChunkHead, FILE_HEAD_LENGTH, chunk_kind};
use cutape_format::write::empty_buffer;
use cutape_format::{Cursor, Needed, Trace};
use sample::recorder::{BUFFER, Clock, Writer, new_trace};

#[test]
fn buffers_are_followed_in_order_and_whole() {
    const CALLS: u64 = 20_000;
    let (path, recording) = new_trace("buffers-live");
    let clock = Clock::new();
    let mut trace = Trace::follow(&path).unwrap();
    let mut seen = [0_u64; 3];
    let (mut while_writing, mut last) = (0, 0);
    let followed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|thread| {
                let (recording, clock, followed) = (&recording, &clock, &followed);
                scope.spawn(move || {
                    let mut writer = Writer::new(recording, thread);
                    for number in 0..CALLS {
                        let begin = std::time::Instant::now();
                        // Half is written without a reader.
                        while number == CALLS / 2
                            && !followed.load(Ordering::SeqCst)
                            && begin.elapsed() < std::time::Duration::from_secs(30)
                        {
                            std::thread::yield_now();
                        }
                        writer.call(number, clock);
                    }
                })
            })
            .collect();
        let mut cursor = Cursor::new();
        loop {
            let done = writers
                .iter()
                .all(std::thread::ScopedJoinHandle::is_finished);
            let mut horizon = trace.refresh_before(clock.horizon()).unwrap();
            assert_eq!(trace.damage(), []);
            if done {
                horizon = u64::MAX;
            }
            while let Some(call) = cursor.next_before(&trace, horizon) {
                let thread = call.thread as usize;
                assert!(call.ticks > last, "{} behind {last}", call.ticks);
                last = call.ticks;
                assert_eq!(call.number, seen[thread]);
                assert_eq!(call.argument(0), seen[thread]);
                assert_eq!(call.result(), Some(0));
                seen[thread] += 1;
                while_writing += u64::from(!done);
                followed.store(true, Ordering::SeqCst);
            }
            if done {
                break;
            }
            std::thread::yield_now();
        }
        for writer in writers {
            writer.join().unwrap();
        }
    });
    assert_eq!(seen, [CALLS; 3]);
    assert!(while_writing > 0, "nothing was read before the end");
    // The same file, opened when it is complete, and packed: everything in order of time.
    let packed = path.with_extension("packed");
    let trace = Trace::open(&path).unwrap();
    cutape_format::pack(&trace, &packed, &[], &[]).unwrap();
    for trace in [trace, Trace::open(&packed).unwrap()] {
        assert_eq!(trace.verify(), []);
        let ticks: Vec<u64> = trace.calls().map(|call| call.ticks).collect();
        assert_eq!(ticks.len() as u64, 3 * CALLS);
        assert!(ticks.is_sorted());
    }
    let mut last = [None; 3];
    let bytes = fs::read(&packed).unwrap();
    let mut rest = &bytes[FILE_HEAD_LENGTH..];
    while let Some((head, _)) = codec::decode::<ChunkHead>(rest) {
        assert_ne!(head.kind, chunk_kind::CONTROL);
        if head.kind == chunk_kind::CALLS {
            let before = &mut last[head.thread as usize];
            assert!(*before < Some(head.sequence), "{before:?} {head:?}");
            *before = Some(head.sequence);
        }
        rest = &rest[head.length as usize..];
    }
    assert_eq!(rest, []);
}

/// Checks that all calls are in the file at that moment. Returns how many are found by a reader
/// that follows it.
fn found_at(path: &std::path::Path, calls: u64, moment: &str) -> u64 {
    let trace = Trace::open(path).unwrap();
    assert_eq!(trace.verify(), [], "{moment}");
    let numbers: Vec<u64> = trace.calls().map(|call| call.argument(0)).collect();
    assert_eq!(numbers, (0..calls).collect::<Vec<_>>(), "{moment}");
    let followed = Trace::follow(path).unwrap();
    let mut cursor = Cursor::new();
    let mut count = 0;
    while cursor.next_before(&followed, u64::MAX).is_some() {
        count += 1;
    }
    count
}

#[test]
fn at_every_moment_all_calls_are_there() {
    let (path, recording) = new_trace("buffers-killed");
    let clock = Clock::new();
    let mut writer = Writer::new(&recording, 0);
    let check = |calls: u64, moment: &str| {
        let count = found_at(&path, calls, moment);
        // A call that is in no chunk and no buffer at that moment is found a moment later.
        assert!(count <= calls, "{moment}");
        count
    };
    check(0, "begun");
    for number in 0..300 {
        writer.call(number, &clock);
    }
    assert!(writer.sequence > 1);
    assert_eq!(check(300, "in the buffer"), 300);
    let copy = writer.copy();
    assert_eq!(check(300, "copied"), 300);
    writer.close(copy);
    assert_eq!(check(300, "closed"), 300);
    empty_buffer(writer.map());
    assert_eq!(check(300, "emptied"), 300);
    writer.begin(300);
    assert_eq!(check(300, "begun again"), 300);
    writer.call(300, &clock);
    assert_eq!(check(301, "used again"), 301);
}

/// The calls that are given out, as (thread, number).
fn take(cursor: &mut Cursor, trace: &Trace, horizon: u64) -> Vec<(u32, u64)> {
    std::iter::from_fn(|| {
        let call = cursor.next_before(trace, horizon)?;
        Some((call.thread, call.number))
    })
    .collect()
}

#[test]
fn a_call_that_is_not_found_yet_holds_back_later_ones() {
    let (path, recording) = new_trace("buffers-hidden");
    let clock = Clock::new();
    let mut trace = Trace::follow(&path).unwrap();
    let mut cursor = Cursor::new();
    let mut look = |trace: &mut Trace| {
        let horizon = trace.refresh_before(clock.horizon()).unwrap();
        take(&mut cursor, trace, horizon)
    };
    let mut writers = [0, 1].map(|thread| Writer::new(&recording, thread));
    for writer in &mut writers {
        writer.call(0, &clock);
    }
    // With the second look, everything from before the first is certain to be found.
    assert_eq!(look(&mut trace), []);
    assert_eq!(look(&mut trace), [(0, 0), (1, 0)]);
    let mut seen = Vec::new();
    // The second thread claims a part and has not written it when the first writes behind it.
    let claimed = recording.claim(BUFFER as u64);
    let [first, second] = &mut writers;
    first.call(1, &clock);
    first.call(2, &clock);
    let copy = first.copy();
    first.close(copy);
    first.begin(3);
    first.call(3, &clock);
    second.call(1, &clock);
    let mut hidden = Writer::new(&recording, 2);
    hidden.call(0, &clock);
    second.call(2, &clock);
    for _ in 0..5 {
        seen.extend(look(&mut trace));
    }
    assert_eq!(seen, []);
    // Then the second thread writes to its part.
    let copy = second.copy_to(claimed);
    second.close(copy);
    second.begin(3);
    for _ in 0..5 {
        seen.extend(look(&mut trace));
    }
    let rest = take(&mut cursor, &trace, u64::MAX);
    seen.extend(rest);
    assert_eq!(trace.damage(), []);
    assert_eq!(seen, [(0, 1), (0, 2), (0, 3), (1, 1), (2, 0), (1, 2)]);
}

#[test]
fn a_longer_buffer_with_the_same_number_is_followed() {
    let (path, recording) = new_trace("buffers-same");
    let clock = Clock::new();
    let mut writer = Writer::new(&recording, 0);
    let mut trace = Trace::follow(&path).unwrap();
    trace.refresh().unwrap();
    // The first record does not fit, so the buffer is left without records, and another one has its
    // number.
    empty_buffer(writer.map());
    let mut writer = Writer::new(&recording, 0);
    writer.call(0, &clock);
    trace.refresh().unwrap();
    let mut cursor = Cursor::new();
    assert_eq!(take(&mut cursor, &trace, u64::MAX), [(0, 0)]);
    let copy = writer.copy();
    writer.close(copy);
    writer.begin(1);
    writer.call(1, &clock);
    trace.refresh().unwrap();
    assert_eq!(take(&mut cursor, &trace, u64::MAX), [(0, 1)]);
    assert_eq!(trace.damage(), []);
}

#[test]
fn a_trace_with_erased_chunks_is_followed() {
    const CALLS: u64 = 600;
    let (path, recording) = new_trace("buffers-erased");
    let clock = Clock::new();
    let mut writers = [0, 1].map(|thread| Writer::new(&recording, thread));
    for number in 0..CALLS {
        for writer in &mut writers {
            writer.call(number, &clock);
        }
    }
    // Of the first thread a chunk stays, of the second none.
    let needed = Needed {
        calls: &|thread, numbers| thread == 0 && numbers.start == 0,
        blob: &|_| false,
        from: clock.now(),
    };
    let erased = Trace::open(&path).unwrap().erase(&needed, 0).unwrap();
    assert!(erased.bytes > 0);
    let left = Trace::open(&path).unwrap();
    let mut expected: Vec<_> = (left.calls())
        .map(|call| (call.thread, call.number))
        .collect();
    let first = |thread| expected.iter().filter(|call| call.0 == thread).count();
    assert!(first(0) > first(1) && first(1) > 0, "{expected:?}");
    // What was copied to the file and not closed holds back what follows.
    let [writer, other] = &mut writers;
    let copy = writer.copy();
    writer.begin(CALLS);
    writer.call(CALLS, &clock);
    let mut trace = Trace::follow(&path).unwrap();
    let mut cursor = Cursor::new();
    let mut look = || {
        let mut calls = Vec::new();
        for _ in 0..3 {
            let horizon = trace.refresh_before(clock.horizon()).unwrap();
            calls.extend(take(&mut cursor, &trace, horizon));
        }
        assert_eq!(trace.damage(), []);
        calls
    };
    let is_held_back = |call: &(u32, u64)| call.0 == 1 || call.1 > CALLS / 2;
    assert!(!look().iter().any(is_held_back));
    writer.close(copy);
    let held_back = look();
    expected.push((0, CALLS));
    let mut expected = expected.into_iter();
    assert!(
        expected
            .by_ref()
            .any(|call| Some(&call) == held_back.first())
    );
    assert_eq!(held_back[1..], expected.collect::<Vec<_>>());
    // From there on it is followed as any other.
    other.flush(CALLS);
    let later: Vec<(u32, u64)> = (CALLS..2 * CALLS).map(|number| (1, number)).collect();
    for &(_, number) in &later {
        other.call(number, &clock);
    }
    assert_eq!(look(), later);
}
