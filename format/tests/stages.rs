//! Traces whose threads write into a stage that is emptied into chunks: read while they grow, and at every moment at which a
//! recorder can be killed.

mod sample;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cutape_format::codec;
use cutape_format::control::{CONTROL_LENGTH, CONTROL_POSITION, Control, Slot};
use cutape_format::layout::{
    BUFFER_NOTE_PADDED_LENGTH, BufferNote, CHUNK_HEAD_LENGTH, ChunkHead, FILE_HEAD_LENGTH,
    chunk_kind, note_kind, record_kind,
};
use cutape_format::write::{Record, empty_stage};
use cutape_format::{Cursor, Mover, Trace, TraceBuilder};
use sample::{SIGNATURES, open_head, place};

const STAGE: usize = 4096;

/// A file that is being recorded, and what its threads share with a mover.
struct Recording {
    file: File,
    control: memmap2::MmapRaw,
}

impl Recording {
    /// A place in the file, which is made longer without touching what other threads have.
    fn claim(&self, length: u64) -> u64 {
        let longer = |start, length, _| {
            self.file.write_all_at(&[0], start + length - 1).unwrap();
            true
        };
        self.control().claim(length, 4096, longer).unwrap().0
    }

    fn control(&self) -> &Control {
        // SAFETY: mapped with that length, aligned as pages are; all that is looked at are atomics.
        unsafe { &*self.control.as_ptr().cast::<Control>() }
    }
}

/// What orders calls, and since when each thread has been at one that it may not have written yet.
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

    /// All that was entered before that has been written.
    fn horizon(&self) -> u64 {
        let now = self.now();
        let busy = self.busy.iter().map(|since| since.load(Ordering::SeqCst));
        busy.fold(now, u64::min)
    }
}

/// One stage of a thread's.
struct Stage<'f> {
    map: memmap2::MmapMut,
    note: BufferNote,
    slot: &'f Slot,
    handed: Option<(u32, u64)>,
}

/// A thread's stages in the file, and how their records get out of them: step by step, as a recorder does it.
struct Writer<'f> {
    recording: &'f Recording,
    thread: u32,
    stages: Vec<Stage<'f>>,
    current: usize,
    filled: usize,
    sequence: u32,
    /// Ticks of the last call.
    entered: u64,
    /// Stages that went to the mover, and that were taken back from it.
    handed_over: u64,
    taken_back: u64,
}

const BODY: usize = CHUNK_HEAD_LENGTH + BUFFER_NOTE_PADDED_LENGTH;

impl<'f> Writer<'f> {
    fn new(recording: &'f Recording, thread: u32, stages: usize) -> Self {
        let stage = |_| {
            let position = recording.claim(STAGE as u64);
            // SAFETY: a part of the file that only this thread writes, and that is there.
            let mut map = unsafe {
                memmap2::MmapOptions::new()
                    .offset(position)
                    .len(STAGE)
                    .map_mut(&recording.file)
                    .unwrap()
            };
            map[..CHUNK_HEAD_LENGTH]
                .copy_from_slice(&open_head(chunk_kind::THREAD_BUFFER, thread, STAGE).encode());
            Stage {
                map,
                note: BufferNote {
                    sequence: 0,
                    first: 0,
                    ticks: 0,
                    nanoseconds: 0,
                },
                slot: recording
                    .control()
                    .take_slot(position, STAGE as u64)
                    .unwrap(),
                handed: None,
            }
        };
        let mut writer = Self {
            recording,
            thread,
            stages: (0..stages).map(stage).collect(),
            current: 0,
            filled: 0,
            sequence: 0,
            entered: 0,
            handed_over: 0,
            taken_back: 0,
        };
        writer.begin(0);
        writer
    }

    fn map(&mut self) -> &mut [u8] {
        &mut self.stages[self.current].map[CHUNK_HEAD_LENGTH..]
    }

    /// Begins the next chunk in the current stage.
    fn begin(&mut self, first: u64) {
        let note = BufferNote {
            sequence: self.sequence,
            first,
            ticks: self.entered,
            nanoseconds: 0,
        };
        self.sequence += 1;
        empty_stage(self.map());
        let record = Record::new(self.map()).and_then(|mut record| {
            record.put_encoded(note)?;
            record.put(&[0; BUFFER_NOTE_PADDED_LENGTH - 40])?;
            record.commit(record_kind::NOTE, note_kind::BUFFER)
        });
        assert_eq!(record, Some(BUFFER_NOTE_PADDED_LENGTH));
        let stage = &mut self.stages[self.current];
        (stage.note, stage.handed) = (note, None);
        self.filled = BODY;
    }

    /// Copies a stage; where the copy begins, which is not closed yet.
    fn copy(&self, at: usize, filled: usize) -> (u64, ChunkHead) {
        self.copy_to(self.recording.claim(STAGE as u64), at, filled)
    }

    fn copy_to(&self, position: u64, at: usize, filled: usize) -> (u64, ChunkHead) {
        let stage = &self.stages[at];
        let body = &stage.map[BODY..filled];
        let (open, closed) = ChunkHead::of_copy(self.thread, stage.note, STAGE as u64, body);
        let mut bytes = open.encode().to_vec();
        bytes.extend_from_slice(body);
        self.recording.file.write_all_at(&bytes, position).unwrap();
        (position, closed)
    }

    fn close(&self, (position, head): (u64, ChunkHead)) {
        let bytes = head.encode();
        self.recording.file.write_all_at(&bytes, position).unwrap();
    }

    /// Goes on in a stage that is free, if need be the oldest one after it was taken back and moved.
    fn change(&mut self, first: u64) {
        let others = (0..self.stages.len()).filter(|&at| at != self.current);
        let mut next = others.clone().find(|&at| self.stages[at].slot.is_held());
        let oldest = others.min_by_key(|&at| self.stages[at].note.sequence);
        if let (None, Some(oldest)) = (next, oldest) {
            let stage = &self.stages[oldest];
            let (ticket, used) = stage.handed.unwrap();
            if stage.slot.take_back(ticket, used) {
                let copy = self.copy(oldest, BODY + used as usize);
                self.close(copy);
                self.taken_back += 1;
                next = Some(oldest);
            }
        }
        match next {
            Some(next) => {
                let used = (self.filled - BODY) as u64;
                let ticket = self.recording.control().ticket();
                let stage = &mut self.stages[self.current];
                stage.handed = Some((ticket, used));
                assert!(stage.slot.hand_over(ticket, used));
                self.handed_over += 1;
                self.current = next;
            }
            None => {
                let copy = self.copy(self.current, self.filled);
                self.close(copy);
            }
        }
        self.begin(first);
    }

    fn put(&mut self, calls: u64, build: &dyn Fn(Record<'_>) -> Option<usize>) {
        loop {
            let filled = self.filled - CHUNK_HEAD_LENGTH;
            if let Some(length) = Record::new(&mut self.map()[filled..]).and_then(build) {
                self.filled += length;
                return;
            }
            self.change(calls);
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
    recording
        .control()
        .begin(start.len() as u64, 0, &head.encode());
    (path, recording)
}

#[test]
fn stages_are_followed_in_order_and_whole() {
    follow("stages-live", 1, false);
}

#[test]
fn stages_that_a_mover_moves_are_followed_in_order_and_whole() {
    let [handed_over, taken_back] = follow("stages-moved", 3, true);
    assert!(handed_over > 0);
    // One that is never there leaves all of it to the threads.
    let [handed_over, back] = follow("stages-taken-back", 3, false);
    assert!(
        back > 0 && back + 2 * 3 == handed_over,
        "{back} of {handed_over}"
    );
    println!("taken back from a mover that was there: {taken_back}");
}

struct SetWhenDropped<'f>(&'f AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Threads with that many stages each write while the file is followed; how many stages went to a mover, and came back from it.
fn follow(name: &str, stages: usize, has_mover: bool) -> [u64; 2] {
    const CALLS: u64 = 20_000;
    let (path, recording) = new_trace(name);
    let mut handed = [0; 2];
    let clock = Clock::new();
    let mut trace = Trace::follow(&path).unwrap();
    let mut seen = [0_u64; 3];
    let (mut while_writing, mut last) = (0, 0);
    let (followed, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // The mover ends as well when something here is not as it should be.
        let end = SetWhenDropped(&ended);
        let mover = has_mover.then(|| {
            let mut mover = Mover::attend(&path).unwrap().unwrap();
            assert!(recording.control().is_attended());
            let ended = &ended;
            scope.spawn(move || {
                while !ended.load(Ordering::SeqCst) {
                    mover.move_full().unwrap();
                }
            })
        });
        let writers: Vec<_> = (0..3)
            .map(|thread| {
                let (recording, clock, followed) = (&recording, &clock, &followed);
                scope.spawn(move || {
                    let mut writer = Writer::new(recording, thread, stages);
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
                    [writer.handed_over, writer.taken_back]
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
            let counts = writer.join().unwrap();
            handed = [handed[0] + counts[0], handed[1] + counts[1]];
        }
        drop(end);
        if let Some(mover) = mover {
            mover.join().unwrap();
        }
    });
    assert_eq!(seen, [CALLS; 3]);
    assert!(!recording.control().is_attended());
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
    handed
}

/// All calls are in the file at that moment; how many of them are found by who opens it as one that still grows.
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
    let (path, recording) = new_trace("stages-killed");
    let clock = Clock::new();
    let mut writer = Writer::new(&recording, 0, 1);
    let check = |calls: u64, moment: &str| {
        let count = found_at(&path, calls, moment);
        // What is in no chunk and no stage at that moment is found a moment later.
        assert!(count <= calls, "{moment}");
        count
    };
    check(0, "begun");
    for number in 0..300 {
        writer.call(number, &clock);
    }
    assert!(writer.sequence > 1);
    assert_eq!(check(300, "in the stage"), 300);
    let copy = writer.copy(0, writer.filled);
    assert_eq!(check(300, "copied"), 300);
    writer.close(copy);
    assert_eq!(check(300, "closed"), 300);
    empty_stage(writer.map());
    assert_eq!(check(300, "emptied"), 300);
    writer.begin(300);
    assert_eq!(check(300, "begun again"), 300);
    writer.call(300, &clock);
    assert_eq!(check(301, "used again"), 301);
}

#[test]
fn at_every_moment_all_calls_are_there_while_a_mover_moves() {
    let (path, recording) = new_trace("stages-killed-moving");
    let clock = Clock::new();
    let mut writer = Writer::new(&recording, 0, 4);
    // Who follows finds all of the stages' calls, though three of them are full.
    let check = |calls: u64, moment: &str| {
        assert_eq!(found_at(&path, calls, moment), calls, "{moment}");
    };
    let mut calls = 0;
    while writer.handed_over < 3 {
        writer.call(calls, &clock);
        calls += 1;
    }
    check(calls, "three are full");
    let mut mover = Mover::attend(&path).unwrap().unwrap();
    assert_eq!(mover.move_full().unwrap(), 3);
    check(calls, "moved");
    assert_eq!(mover.move_full().unwrap(), 0);
    while writer.handed_over < 5 {
        writer.call(calls, &clock);
        calls += 1;
    }
    check(calls, "full again");
    // The mover copies one of them, and is then not heard of any more: the copy does not count.
    let stage = &writer.stages[writer
        .stages
        .iter()
        .position(|s| s.handed.is_some())
        .unwrap()];
    let full = stage.slot.full().unwrap();
    let unfinished = writer.copy(0, BODY);
    check(calls, "a copy is begun");
    assert!(stage.slot.begin_closing(&full));
    check(calls, "a copy is being closed");
    let _ = unfinished;
    for _ in 0..3000 {
        writer.call(calls, &clock);
        calls += 1;
    }
    check(calls, "the others go on");
    assert_eq!(mover.move_full().unwrap(), 2);
    check(calls, "moved once more");
    drop(mover);
    // What a wild program makes of what it shares is told from what can be.
    let mut mover = Mover::attend(&path).unwrap().unwrap();
    let slot = recording
        .control()
        .take_slot(u64::MAX - 4096, 8192)
        .unwrap();
    slot.hand_over(0, 100);
    assert!(mover.move_full().is_err());
    check(calls, "at the end");
}

#[test]
fn a_file_without_control_has_no_mover() {
    let path = place("stages-no-control").join("old.cutape");
    for bytes in [
        TraceBuilder::new(SIGNATURES).bytes(),
        vec![0; 100],
        vec![0; 100_000],
    ] {
        fs::write(&path, bytes).unwrap();
        assert!(Mover::attend(&path).unwrap().is_none());
    }
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
fn what_is_not_found_yet_holds_back_what_came_later() {
    let (path, recording) = new_trace("stages-hidden");
    let clock = Clock::new();
    let mut trace = Trace::follow(&path).unwrap();
    let mut cursor = Cursor::new();
    let mut look = |trace: &mut Trace| {
        let horizon = trace.refresh_before(clock.horizon()).unwrap();
        take(&mut cursor, trace, horizon)
    };
    let mut writers = [0, 1].map(|thread| Writer::new(&recording, thread, 1));
    for writer in &mut writers {
        writer.call(0, &clock);
    }
    // One look later, what there is has been found for sure.
    assert_eq!(look(&mut trace), []);
    assert_eq!(look(&mut trace), [(0, 0), (1, 0)]);
    let mut seen = Vec::new();
    // Somebody takes a place and lets others go by before he writes there: the first thread, in what comes to lie behind.
    let claimed = recording.claim(STAGE as u64);
    let [first, second] = &mut writers;
    first.call(1, &clock);
    first.call(2, &clock);
    let copy = first.copy(0, first.filled);
    first.close(copy);
    first.begin(3);
    first.call(3, &clock);
    second.call(1, &clock);
    let mut hidden = Writer::new(&recording, 2, 1);
    hidden.call(0, &clock);
    second.call(2, &clock);
    for _ in 0..5 {
        seen.extend(look(&mut trace));
    }
    assert_eq!(seen, []);
    // What is written there at last is the second thread's.
    let copy = second.copy_to(claimed, 0, second.filled);
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
fn a_longer_stage_with_the_same_number_is_followed() {
    let (path, recording) = new_trace("stages-same");
    let clock = Clock::new();
    let mut writer = Writer::new(&recording, 0, 1);
    let mut trace = Trace::follow(&path).unwrap();
    trace.refresh().unwrap();
    // There is no room for the first record, so the stage is left without any, and another one has its number.
    empty_stage(writer.map());
    let mut writer = Writer::new(&recording, 0, 1);
    writer.call(0, &clock);
    trace.refresh().unwrap();
    let mut cursor = Cursor::new();
    assert_eq!(take(&mut cursor, &trace, u64::MAX), [(0, 0)]);
    let copy = writer.copy(0, writer.filled);
    writer.close(copy);
    writer.begin(1);
    writer.call(1, &clock);
    trace.refresh().unwrap();
    assert_eq!(take(&mut cursor, &trace, u64::MAX), [(0, 1)]);
    assert_eq!(trace.damage(), []);
}
