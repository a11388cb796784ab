//! A recorder with thread buffers, in process: for tests that read what it writes meanwhile.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use cutape_format::TraceBuilder;
use cutape_format::control::{CONTROL_END, CONTROL_LENGTH, CONTROL_POSITION, claim};
use cutape_format::layout::{
    BUFFER_NOTE_PADDED_LENGTH, BufferNote, CHUNK_HEAD_LENGTH, ChunkHead, chunk_kind, note_kind,
    record_kind,
};
use cutape_format::write::{Record, empty_buffer};

use super::{SIGNATURES, open_head, place};

/// Bytes of a thread buffer.
pub(crate) const BUFFER: usize = 4096;

/// A file that is being recorded.
pub(crate) struct Recording {
    pub(crate) file: File,
    control: memmap2::MmapRaw,
}

impl Recording {
    /// Claims a part of the file, which is extended without touching what other threads have.
    pub(crate) fn claim(&self, length: u64) -> u64 {
        let (position, end) = claim(self.end(), length, 4096).unwrap();
        self.file.write_all_at(&[0], end - 1).unwrap();
        position
    }

    pub(crate) fn end(&self) -> &AtomicU64 {
        // SAFETY: within the map, which begins with a page; the reader uses it as an atomic too.
        unsafe { &*self.control.as_ptr().add(CONTROL_END).cast() }
    }
}

/// Orders the calls, and knows since when each thread has been in one that it may not have written
/// yet.
pub(crate) struct Clock {
    ticks: AtomicU64,
    busy: [AtomicU64; 3],
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self {
            // The builder's file head says that the clock began at 1000.
            ticks: AtomicU64::new(1001),
            busy: [const { AtomicU64::new(u64::MAX) }; 3],
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.ticks.load(Ordering::SeqCst)
    }

    pub(crate) fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::SeqCst)
    }

    /// Everything that was entered before has been written.
    pub(crate) fn horizon(&self) -> u64 {
        let now = self.now();
        let busy = self.busy.iter().map(|since| since.load(Ordering::SeqCst));
        busy.fold(now, u64::min)
    }
}

/// A thread's buffer in the file, and how its records are flushed: step by step, as a recorder does
/// it.
pub(crate) struct Writer<'f> {
    recording: &'f Recording,
    thread: u32,
    buffer: memmap2::MmapMut,
    note: BufferNote,
    filled: usize,
    pub(crate) sequence: u32,
    /// Ticks of the last call.
    pub(crate) entered: u64,
}

const BODY: usize = CHUNK_HEAD_LENGTH + BUFFER_NOTE_PADDED_LENGTH;

impl<'f> Writer<'f> {
    pub(crate) fn new(recording: &'f Recording, thread: u32) -> Self {
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

    pub(crate) fn map(&mut self) -> &mut [u8] {
        &mut self.buffer[CHUNK_HEAD_LENGTH..]
    }

    /// Begins the next chunk in the buffer.
    pub(crate) fn begin(&mut self, first: u64) {
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
    pub(crate) fn copy(&self) -> (u64, ChunkHead) {
        self.copy_to(self.recording.claim(BUFFER as u64))
    }

    pub(crate) fn copy_to(&self, position: u64) -> (u64, ChunkHead) {
        let body = &self.buffer[BODY..self.filled];
        let (open, closed) = ChunkHead::of_copy(self.thread, self.note, BUFFER as u64, body);
        let mut bytes = open.encode().to_vec();
        bytes.extend_from_slice(body);
        self.recording.file.write_all_at(&bytes, position).unwrap();
        (position, closed)
    }

    pub(crate) fn close(&self, (position, head): (u64, ChunkHead)) {
        let bytes = head.encode();
        self.recording.file.write_all_at(&bytes, position).unwrap();
    }

    pub(crate) fn flush(&mut self, first: u64) {
        let copy = self.copy();
        self.close(copy);
        self.begin(first);
    }

    pub(crate) fn put(&mut self, calls: u64, build: &dyn Fn(Record<'_>) -> Option<usize>) {
        loop {
            let filled = self.filled - CHUNK_HEAD_LENGTH;
            if let Some(length) = Record::new(&mut self.map()[filled..]).and_then(build) {
                self.filled += length;
                return;
            }
            self.flush(calls);
        }
    }

    /// Makes the thread's call of that number, which has the number as its argument.
    pub(crate) fn call(&mut self, number: u64, clock: &Clock) {
        self.call_with(number, number, clock);
    }

    /// The same with another argument.
    pub(crate) fn call_with(&mut self, number: u64, argument: u64, clock: &Clock) {
        let busy = &clock.busy[self.thread as usize];
        busy.store(clock.now(), Ordering::SeqCst);
        let entered = clock.tick();
        self.entered = entered;
        self.put(number, &|mut record| {
            record.put_short_enter(entered.wrapping_sub(1000), 1, [argument].into_iter())?;
            record.commit(record_kind::ENTER_SHORT, 0)
        });
        busy.store(u64::MAX, Ordering::SeqCst);
        let spent = clock.tick() - entered;
        self.put(number + 1, &|record| record.commit_short_leave(spent));
    }
}

/// A trace without calls, which this process records as long as it has the recording or a writer.
pub(crate) fn new_trace(name: &str) -> (std::path::PathBuf, Recording) {
    let path = place(name).join("live.cutape");
    let mut builder = TraceBuilder::new(SIGNATURES);
    let builder = builder.short().process(std::process::id()).control(None);
    builder.write(&path).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let control = memmap2::MmapOptions::new()
        .offset(CONTROL_POSITION)
        .len(CONTROL_LENGTH)
        .map_raw(&file)
        .unwrap();
    (path, Recording { file, control })
}
