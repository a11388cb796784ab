//! Traces whose threads write into a stage that is emptied into chunks: read while they grow, and at every moment at which a
//! recorder can be killed.

mod sample;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cutape_format::layout::{
    CHUNK_CLOSED, CHUNK_COPIED, CHUNK_HEAD_LENGTH, CHUNK_MAGIC, ChunkHead, STAGED_LENGTH,
    StagedNote, chunk_kind, note_kind, record_kind,
};
use cutape_format::write::{Record, empty_stage};
use cutape_format::{Cursor, Trace, TraceBuilder};
use sample::{SIGNATURES, place};

const STAGE: usize = 4096;

fn head(kind: u16, thread: u32, length: usize) -> ChunkHead {
    ChunkHead {
        magic: CHUNK_MAGIC,
        kind,
        flags: 0,
        length: length as u64,
        thread,
        sequence: 0,
        used: 0,
        first: 0,
        ticks: 0,
        nanoseconds: 0,
        body_checksum: 0,
        head_checksum: 0,
    }
}

/// A thread's stage in the file, and how its records get out of it: step by step, as a recorder does it.
struct Writer<'f> {
    file: &'f File,
    end: &'f AtomicU64,
    thread: u32,
    map: memmap2::MmapMut,
    filled: usize,
    note: StagedNote,
}

const BODY: usize = CHUNK_HEAD_LENGTH + STAGED_LENGTH;

impl<'f> Writer<'f> {
    /// A place in the file, which is made longer without touching what other threads have.
    fn claim(file: &File, end: &AtomicU64) -> u64 {
        let position = end.fetch_add(STAGE as u64, Ordering::SeqCst);
        file.write_all_at(&[0], position + STAGE as u64 - 1)
            .unwrap();
        position
    }

    fn new(file: &'f File, end: &'f AtomicU64, thread: u32) -> Self {
        let position = Self::claim(file, end);
        // SAFETY: a part of the file that only this thread writes, and that is there.
        let mut map = unsafe {
            memmap2::MmapOptions::new()
                .offset(position)
                .len(STAGE)
                .map_mut(file)
                .unwrap()
        };
        map[..CHUNK_HEAD_LENGTH].copy_from_slice(&head(chunk_kind::STAGE, thread, STAGE).encode());
        let mut writer = Self {
            file,
            end,
            thread,
            map,
            filled: 0,
            note: StagedNote {
                sequence: 0,
                first: 0,
                ticks: 0,
                nanoseconds: 0,
            },
        };
        writer.begin();
        writer
    }

    fn begin(&mut self) {
        let note = self.note;
        let record = Record::new(&mut self.map[CHUNK_HEAD_LENGTH..]).and_then(|mut record| {
            record.put_encoded(note)?;
            record.commit(record_kind::NOTE, note_kind::STAGED)
        });
        assert_eq!(record, Some(STAGED_LENGTH));
        self.filled = BODY;
    }

    /// Where the copy begins, which is not closed yet.
    fn copy(&self) -> (u64, ChunkHead) {
        let position = Self::claim(self.file, self.end);
        let body = &self.map[BODY..self.filled];
        let head = ChunkHead {
            flags: CHUNK_COPIED,
            sequence: self.note.sequence,
            first: self.note.first,
            ..head(chunk_kind::CALLS, self.thread, STAGE)
        };
        let mut bytes = head.encode().to_vec();
        bytes.extend_from_slice(body);
        self.file.write_all_at(&bytes, position).unwrap();
        let closed = ChunkHead {
            flags: CHUNK_COPIED | CHUNK_CLOSED,
            used: body.len() as u64,
            body_checksum: crc32fast::hash(body),
            ..head
        };
        (position, closed)
    }

    fn close(&self, (position, head): (u64, ChunkHead)) {
        self.file.write_all_at(&head.encode(), position).unwrap();
    }

    fn put(&mut self, calls: u64, build: &dyn Fn(Record<'_>) -> Option<usize>) {
        loop {
            let space = &mut self.map[self.filled..];
            if let Some(length) = Record::new(space).and_then(build) {
                self.filled += length;
                return;
            }
            let copy = self.copy();
            self.close(copy);
            empty_stage(&mut self.map[CHUNK_HEAD_LENGTH..self.filled]);
            self.note.sequence += 1;
            self.note.first = calls;
            self.begin();
        }
    }

    fn call(&mut self, number: u64, clock: &AtomicU64) {
        let entered = clock.fetch_add(1, Ordering::SeqCst);
        self.put(number, &|mut record| {
            // The builder's file head says that the clock began at 1000.
            record.put_short_enter(entered.wrapping_sub(1000), 1, [number].into_iter())?;
            record.commit(record_kind::ENTER_SHORT, 0)
        });
        let spent = clock.fetch_add(1, Ordering::SeqCst) - entered;
        self.put(number + 1, &|record| record.commit_short_leave(spent));
    }
}

fn new_trace(name: &str) -> (std::path::PathBuf, File, AtomicU64) {
    let path = place(name).join("live.cutape");
    let start = TraceBuilder::new(SIGNATURES).short().bytes();
    fs::write(&path, &start).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    (path, file, AtomicU64::new(start.len() as u64))
}

#[test]
fn stages_are_followed_in_order_and_whole() {
    const CALLS: u64 = 20_000;
    let (path, file, end) = new_trace("stages-live");
    let clock = AtomicU64::new(1);
    let mut trace = Trace::follow(&path).unwrap();
    let mut seen = [0_u64; 3];
    let mut while_writing = 0;
    let followed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|thread| {
                let (file, clock, end, followed) = (&file, &clock, &end, &followed);
                scope.spawn(move || {
                    let mut writer = Writer::new(file, end, thread);
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
            trace.refresh().unwrap();
            assert_eq!(trace.damage(), []);
            let horizon = if done {
                u64::MAX
            } else {
                clock.load(Ordering::SeqCst)
            };
            while let Some(call) = cursor.next_before(&trace, horizon) {
                let thread = call.thread as usize;
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
}

#[test]
fn at_every_moment_all_calls_are_there() {
    let (path, file, end) = new_trace("stages-killed");
    let clock = AtomicU64::new(1);
    let mut writer = Writer::new(&file, &end, 0);
    let check = |calls: u64, moment: &str| {
        let trace = Trace::open(&path).unwrap();
        assert_eq!(trace.verify(), [], "{moment}");
        let numbers: Vec<u64> = trace.calls().map(|call| call.argument(0)).collect();
        assert_eq!(numbers, (0..calls).collect::<Vec<_>>(), "{moment}");
        // The same for who opens it as one that still grows.
        let followed = Trace::follow(&path).unwrap();
        let mut cursor = Cursor::new();
        let mut count = 0;
        while cursor.next_before(&followed, u64::MAX).is_some() {
            count += 1;
        }
        // What is in no chunk and no stage at that moment is found a moment later.
        assert!(count <= calls, "{moment}");
        count
    };
    check(0, "begun");
    for number in 0..300 {
        writer.call(number, &clock);
    }
    assert!(writer.note.sequence > 0);
    assert_eq!(check(300, "in the stage"), 300);
    let copy = writer.copy();
    assert_eq!(check(300, "copied"), 300);
    writer.close(copy);
    assert_eq!(check(300, "closed"), 300);
    empty_stage(&mut writer.map[CHUNK_HEAD_LENGTH..writer.filled]);
    assert!(
        writer.map[CHUNK_HEAD_LENGTH..]
            .iter()
            .all(|&byte| byte == 0)
    );
    assert_eq!(check(300, "emptied"), 300);
    writer.note.sequence += 1;
    writer.note.first = 300;
    writer.begin();
    assert_eq!(check(300, "begun again"), 300);
    writer.call(300, &clock);
    assert_eq!(check(301, "used again"), 301);
}
