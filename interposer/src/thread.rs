//! What a thread needs to record its calls: the chunk it fills, and how deep it is inside the driver.

use core::cell::Cell;

use cutape_format::layout::{CHUNK_HEAD_LENGTH, ThreadNote, note_kind, record_kind};
use cutape_format::write::Record;

use crate::trace_file::{self, MappedChunk};
use crate::{call, fork};

/// Sizes of a thread's chunks: many threads make few calls, so they begin small.
const CHUNK_BODIES: [u64; 3] = [(64 << 10) - 64, (256 << 10) - 64, (1 << 20) - 64];

/// Kept free at the end of each chunk, for the note that recording stops.
const RESERVE: usize = 256;

/// A thread's state. Plain cells without destructor, so that it can be used at any moment of a thread's life.
pub(crate) struct Thread {
    /// 0 outside the driver, more inside: calls that the driver makes into itself are not the program's.
    pub(crate) depth: Cell<u32>,
    /// The fork count that the rest belongs to, plus 1; 0 before the first call.
    generation: Cell<u32>,
    /// From 0, in the order of first calls.
    pub(crate) ordinal: Cell<u32>,
    /// Calls entered so far.
    pub(crate) calls: Cell<u64>,
    /// Whether the note that names this thread is still to be written.
    unnamed: Cell<bool>,
    chunk: Cell<Option<MappedChunk>>,
    /// Where the next record goes, and where records must end.
    next: Cell<*mut u8>,
    end: Cell<*mut u8>,
    sequence: Cell<u32>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            depth: Cell::new(0),
            generation: Cell::new(0),
            ordinal: Cell::new(0),
            calls: Cell::new(0),
            unnamed: Cell::new(true),
            chunk: Cell::new(None),
            next: Cell::new(core::ptr::null_mut()),
            end: Cell::new(core::ptr::null_mut()),
            sequence: Cell::new(0),
        }
    };
}

// The thread's memory goes back to the system with the thread; a destructor would make the cells unusable before that.
const _: () = assert!(!core::mem::needs_drop::<Thread>());

/// The calling thread's state, valid as long as the thread.
#[inline]
pub(crate) fn current() -> *const Thread {
    THREAD.with(core::ptr::from_ref)
}

impl Thread {
    /// Makes the state that of this process; after a fork the child's copy is the parent's.
    #[inline]
    pub(crate) fn settle(&self) {
        let generation = fork::generation() + 1;
        if self.generation.get() != generation {
            self.begin(generation);
        }
    }

    #[cold]
    fn begin(&self, generation: u32) {
        self.generation.set(generation);
        self.ordinal.set(call::next_thread());
        self.calls.set(0);
        self.unnamed.set(true);
        // The parent's chunk stays mapped in the child, untouched.
        self.chunk.set(None);
        self.next.set(core::ptr::null_mut());
        self.end.set(core::ptr::null_mut());
        self.sequence.set(0);
    }

    /// Writes a record that `build` fills. `build` runs again with more room if the chunk has too little left.
    /// False if nothing could be written; then recording has stopped.
    #[inline]
    pub(crate) fn write(
        &self,
        kind: u8,
        function: u16,
        mut build: impl FnMut(&mut Record<'_>) -> Option<()>,
    ) -> bool {
        if self.try_write(kind, function, &mut build) {
            return true;
        }
        self.write_in_new_chunk(kind, function, &mut build)
    }

    #[inline]
    fn try_write(
        &self,
        kind: u8,
        function: u16,
        build: &mut impl FnMut(&mut Record<'_>) -> Option<()>,
    ) -> bool {
        let next = self.next.get();
        let room = self.end.get() as usize - next as usize;
        if room == 0 {
            return false;
        }
        // SAFETY: `next` to `end` is the unfilled part of this thread's own mapped chunk; nobody else refers to it.
        let space = unsafe { core::slice::from_raw_parts_mut(next, room) };
        let Some(mut record) = Record::new(space) else {
            return false;
        };
        let Some(length) = build(&mut record).and_then(|()| record.commit(kind, function)) else {
            return false;
        };
        // SAFETY: `length` is at most `room`.
        self.next.set(unsafe { next.add(length) });
        true
    }

    #[cold]
    fn write_in_new_chunk(
        &self,
        kind: u8,
        function: u16,
        build: &mut impl FnMut(&mut Record<'_>) -> Option<()>,
    ) -> bool {
        let largest = CHUNK_BODIES.len() - 1;
        for &body in &CHUNK_BODIES[(self.sequence.get() as usize).min(largest)..] {
            if !self.open_chunk(body) {
                self.stop();
                return false;
            }
            if self.try_write(kind, function, build) {
                return true;
            }
        }
        false
    }

    fn open_chunk(&self, body: u64) -> bool {
        let length = trace_file::chunk_length(body);
        let Some(chunk) = trace_file::open_chunk(
            length,
            self.ordinal.get(),
            self.sequence.get(),
            self.calls.get(),
        ) else {
            return false;
        };
        self.close_chunk();
        // SAFETY: the chunk is longer than head and reserve.
        unsafe {
            self.next.set(chunk.start.add(CHUNK_HEAD_LENGTH));
            self.end.set(chunk.start.add(chunk.length - RESERVE));
        }
        self.chunk.set(Some(chunk));
        self.sequence.set(self.sequence.get() + 1);
        true
    }

    fn close_chunk(&self) {
        if let Some(chunk) = self.chunk.take() {
            let used = self.next.get() as usize - chunk.start as usize - CHUNK_HEAD_LENGTH;
            chunk.close(used);
        }
        self.next.set(core::ptr::null_mut());
        self.end.set(core::ptr::null_mut());
    }

    /// Ends the recording of this process, with a note in what room there is.
    #[cold]
    pub(crate) fn stop(&self) {
        if !call::stop() {
            return;
        }
        const WHY: &[u8] = b"the trace cannot grow: no space left, or its descriptor was closed";
        crate::log::line(&[WHY, b"; recording stops, the program goes on"]);
        let end = self.end.get();
        if !end.is_null() {
            // SAFETY: the reserve behind `end` belongs to the chunk.
            self.end.set(unsafe { end.add(RESERVE) });
            self.try_write(record_kind::NOTE, note_kind::STOPPED, &mut |record| {
                record.put(WHY)
            });
        }
        self.close_chunk();
    }

    /// Says who this thread is, once, in its first call.
    #[inline]
    pub(crate) fn introduce(&self) {
        if self.unnamed.get() {
            self.introduce_now();
        }
    }

    #[cold]
    fn introduce_now(&self) {
        self.unnamed.set(false);
        let _errno = crate::errno::Errno::keep();
        let mut name = [0u8; 16];
        // SAFETY: the name buffer has the 16 bytes that the request writes.
        let number = unsafe {
            libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
            libc::gettid()
        };
        let note = ThreadNote {
            number: number as u32,
            name,
        };
        self.write(record_kind::NOTE, note_kind::THREAD, |record| {
            record.put_encoded(note)
        });
    }
}
