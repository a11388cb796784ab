//! Opening a trace while threads record to it at full rate: what is read belongs to one moment.

mod sample;

use std::collections::HashSet;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cutape_format::Trace;
use cutape_format::layout::{CHUNK_HEAD_LENGTH, ChunkHead, chunk_kind};
use sample::open_head;
use sample::recorder::{Clock, Recording, Writer, new_trace};

/// Reads of one trace: later ones take longer.
const READS_OF_ONE: usize = 10;
const THREADS: u32 = 3;
/// Calls of all threads for each read, about: at full rate, the file would grow faster than it is
/// read.
const CALLS_OF_A_READ: u64 = 2000;

/// How many reads the test makes; `CUTAPE_TESTS_READS` asks for more.
fn reads() -> usize {
    let asked = std::env::var("CUTAPE_TESTS_READS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(30)
}

/// Writes a blob into a place that stays empty for a while after it was claimed.
fn put_blob(recording: &Recording) {
    const LENGTH: usize = 3 * 4096;
    let position = recording.claim(LENGTH as u64);
    std::thread::yield_now();
    let head = ChunkHead {
        first: position,
        used: (LENGTH - CHUNK_HEAD_LENGTH) as u64,
        ..open_head(chunk_kind::BLOB, 0, LENGTH)
    };
    let mut bytes = head.encode().to_vec();
    bytes.resize(LENGTH, 0xb1);
    recording.file.write_all_at(&bytes, position).unwrap();
}

/// Makes calls until `is_done`. Each call names one that had returned before, of any thread.
fn record(
    recording: &Recording,
    thread: u32,
    clock: &Clock,
    returned: &AtomicU64,
    limit: &AtomicU64,
    is_done: &AtomicBool,
) {
    // Threads begin while others record.
    while clock.now() < 1001 + u64::from(thread) * 500 && !is_done.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    let mut writer = Writer::new(recording, thread);
    for number in 0.. {
        while clock.now() > limit.load(Ordering::SeqCst) && !is_done.load(Ordering::SeqCst) {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        if is_done.load(Ordering::SeqCst) {
            return;
        }
        if number % 500 == 100 {
            put_blob(recording);
        }
        let earlier = returned.load(Ordering::SeqCst);
        writer.call_with(number, earlier, clock);
        returned.store(writer.entered, Ordering::SeqCst);
    }
}

/// Reads the trace; how many calls it has, and whether some were left out.
fn read(path: &Path) -> (usize, bool) {
    let trace = Trace::open(path).unwrap();
    assert_eq!(trace.verify(), []);
    let returned: HashSet<u64> = trace
        .calls()
        .filter(|call| call.leave.is_some())
        .map(|call| call.ticks)
        .collect();
    let (mut count, mut last) = (0, 0);
    let mut numbers = [0; THREADS as usize];
    for call in trace.calls() {
        assert!(call.ticks > last, "{} behind {last}", call.ticks);
        last = call.ticks;
        let number = &mut numbers[call.thread as usize];
        assert_eq!(
            call.number, *number,
            "a call of thread {} is missing",
            call.thread
        );
        *number += 1;
        let earlier = call.argument(0);
        assert!(
            earlier == 0 || returned.contains(&earlier),
            "the call at {} knows that the one at {earlier} returned, which is missing",
            call.ticks
        );
        count += 1;
    }
    (count, trace.is_still_recorded())
}

#[test]
fn every_read_of_a_growing_trace_is_whole() {
    let (mut left, mut shortened, mut most) = (reads(), 0, 0);
    while left > 0 {
        let (path, recording) = new_trace("growing");
        let (clock, returned, is_done) = (Clock::new(), AtomicU64::new(0), AtomicBool::new(false));
        let limit = AtomicU64::new(0);
        let mut last = 0;
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (recording, clock, returned, limit, is_done) =
                    (&recording, &clock, &returned, &limit, &is_done);
                scope.spawn(move || record(recording, thread, clock, returned, limit, is_done));
            }
            for _ in 0..READS_OF_ONE.min(left) {
                limit.store(clock.now() + 2 * CALLS_OF_A_READ, Ordering::SeqCst);
                let outcome = std::panic::catch_unwind(|| read(&path));
                let (count, is_shortened) = outcome.unwrap_or_else(|panic| {
                    is_done.store(true, Ordering::SeqCst);
                    std::panic::resume_unwind(panic)
                });
                (last, most) = (count, most.max(count));
                shortened += usize::from(is_shortened);
                left -= 1;
            }
            is_done.store(true, Ordering::SeqCst);
        });
        drop(recording);
        let (count, is_shortened) = read(&path);
        assert!(count >= last && !is_shortened, "the trace is complete now");
    }
    assert!(most > 1000, "the threads recorded {most} calls at most");
    assert!(shortened > 0, "no trace grew while it was read");
}
