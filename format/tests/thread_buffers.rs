//! Traces whose threads write into a buffer that is flushed into chunks: read while they grow, and
//! at every moment at which a recorder can be killed.

mod sample;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cutape_format::codec;
use cutape_format::control::{CONTROL_END, CONTROL_LENGTH, CONTROL_POSITION, claim};
use cutape_format::layout::{
    BUFFER_NOTE_PADDED_LENGTH, BufferNote, CHUNK_HEAD_LENGTH, ChunkHead, FILE_HEAD_LENGTH,
    chunk_kind, note_kind, record_kind,
};
use cutape_format::write::{Record, empty_buffer};
use cutape_format::{Cursor, Trace, TraceBuilder};
use sample::{SIGNATURES, open_head, place};

/// Bytes of a thread buffer.
const BUFFER: usize = 4096;

/// A file that is being recorded.
struct Recording {
    file: File,
    control: memmap2::MmapRaw,
}

impl Recording {
    /// Claims a part of the file, which is extended without touching what other threads have.
    fn claim(&self, length: u64) -> u64 {
        let (position, end) = claim(self.end(), length, 4096).unwrap();
        self.file.write_all_at(&[0], end - 1).unwrap();
        position
    }

    fn end(&self) -> &AtomicU64 {
        // SAFETY: within the map, which begins with a page; the reader uses it as an atomic too.
        unsafe { &*self.control.as_ptr().add(CONTROL_END).cast() }
    }
}

/// Orders the calls, and knows since when each thread has been in one that it may not have written
/// yet.
struct Clock {
    ticks: AtomicU64,
    busy: [AtomicU64; 3],
}

impl Clock {
    fn new() -> Self {
        Self {
            // The builder's file head says that the clock began at 1000.
            ticks: AtomicU64::new(1001),
            busy: [const { AtomicU64::new(u64::MAX) }; 3],
        }
    }

    fn now(&self) -> u64 {
        self.ticks.load(Ordering::SeqCst)
    }

    fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::SeqCst)
    }

    /// Everything that was entered before has been written.
    fn horizon(&self) -> u64 {
        let now = self.now();
        let busy = self.busy.iter().map(|since| since.load(Ordering::SeqCst));
        busy.fold(now, u64::min)
    }
}

/// A thread's buffer in the file, and how its records are flushed: step by step, as a recorder does
/// it.
struct Writer<'f> {
    recording: &'f Recording,
    thread: u32,
    buffer: memmap2::MmapMut,
    note: BufferNote,
    filled: usize,
    sequence: u32,
    /// Ticks of the last call.
    entered: u64,
}

const BODY: usize = CHUNK_HEAD_LENGTH + BUFFER_NOTE_PADDED_LENGTH;

impl<'f> Writer<'f> {
    fn new(recording: &'f Recording, thread: u32) -> Self {
        let position = recording.claim(BUFFER as u64);
        // SAFETY: a part of the file that exists and that only this thread writes.
        let mut buffer = unsafe {
            memmap2::MmapOptions::new()
                .offset(position)
                .len(BUFFER)
                .map_mut(&recording.file)
                .unwrap()
        };
        buffer[..CHUNK_HEAD_LENGTH]
            .copy_from_slice(&open_head(chunk_kind::THREAD_BUFFER, thread, BUFFER).encode());
        let mut writer = Self {
            recording,
            thread,
            buffer,
            note: BufferNote {
                sequence: 0,
                first: 0,
                ticks: 0,
                nanoseconds: 0,
            },
            filled: 0,
            sequence: 0,
            entered: 0,
        };
        writer.begin(0);
        writer
    }

    fn map(&mut self) -> &mut [u8] {
        &mut self.buffer[CHUNK_HEAD_LENGTH..]
    }

    /// Begins the next chunk in the buffer.
    fn begin(&mut self, first: u64) {
        self.note = BufferNote {
            sequence: self.sequence,
            first,
            ticks: self.entered,
            nanoseconds: 0,
        };
        let note = self.note;
        self.sequence += 1;
        empty_buffer(self.map());
        let record = Record::new(self.map()).and_then(|mut record| {
            record.put_encoded(note)?;
            record.put(&[0; BUFFER_NOTE_PADDED_LENGTH - 40])?;
            record.commit(record_kind::NOTE, note_kind::BUFFER)
        });
        assert_eq!(record, Some(BUFFER_NOTE_PADDED_LENGTH));
        self.filled = BODY;
    }

    /// Copies the records to a new chunk. Returns where it begins, and its closed head, which is
    /// not written yet.
    fn copy(&self) -> (u64, ChunkHead) {
        self.copy_to(self.recording.claim(BUFFER as u64))
    }

    fn copy_to(&self, position: u64) -> (u64, ChunkHead) {
        let body = &self.buffer[BODY..self.filled];
        let (open, closed) = ChunkHead::of_copy(self.thread, self.note, BUFFER as u64, body);
        let mut bytes = open.encode().to_vec();
        bytes.extend_from_slice(body);
        self.recording.file.write_all_at(&bytes, position).unwrap();
        (position, closed)
    }

    fn close(&self, (position, head): (u64, ChunkHead)) {
        let bytes = head.encode();
        self.recording.file.write_all_at(&bytes, position).unwrap();
    }

    fn flush(&mut self, first: u64) {
        let copy = self.copy();
        self.close(copy);
        self.begin(first);
    }

    fn put(&mut self, calls: u64, build: &dyn Fn(Record<'_>) -> Option<usize>) {
        loop {
            let filled = self.filled - CHUNK_HEAD_LENGTH;
            if let Some(length) = Record::new(&mut self.map()[filled..]).and_then(build) {
                self.filled += length;
                return;
            }
            self.flush(calls);
        }
    }

    fn call(&mut self, number: u64, clock: &Clock) {
        let busy = &clock.busy[self.thread as usize];
        busy.store(clock.now(), Ordering::SeqCst);
        let entered = clock.tick();
        self.entered = entered;
        self.put(number, &|mut record| {
            record.put_short_enter(entered.wrapping_sub(1000), 1, [number].into_iter())?;
            record.commit(record_kind::ENTER_SHORT, 0)
        });
        busy.store(u64::MAX, Ordering::SeqCst);
        let spent = clock.tick() - entered;
        self.put(number + 1, &|record| record.commit_short_leave(spent));
    }
}

fn new_trace(name: &str) -> (std::path::PathBuf, Recording) {
    let path = place(name).join("live.cutape");
    let built = TraceBuilder::new(SIGNATURES).short().bytes();
    let (before, behind) = built.split_at(FILE_HEAD_LENGTH);
    let start = [before, &[0; CONTROL_LENGTH], behind].concat();
    fs::write(&path, &start).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let control = memmap2::MmapOptions::new()
        .offset(CONTROL_POSITION)
        .len(CONTROL_LENGTH)
        .map_raw(&file)
        .unwrap();
    let recording = Recording { file, control };
    let head = open_head(chunk_kind::CONTROL, 0, CONTROL_LENGTH);
    recording.end().store(start.len() as u64, Ordering::SeqCst);
    recording
        .file
        .write_all_at(&head.encode(), CONTROL_POSITION)
        .unwrap();
    (path, recording)
}

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
