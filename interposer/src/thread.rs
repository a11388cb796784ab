//! What a thread needs to record its calls: the chunk it fills, and how deep it is inside the driver.

use core::cell::Cell;
use core::ffi::c_void;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use cutape_format::layout::{BlobRef, CHUNK_HEAD_LENGTH, ThreadNote, note_kind, record_kind};
use cutape_format::write::Record;

use crate::call::{self, Frame};
use crate::errno::Errno;
use crate::trace_file::{self, MappedChunk, NotKept, Rows};

/// Sizes of a thread's chunks: many threads make few calls, so they begin small.
const CHUNK_BODIES: [u64; 3] = [(64 << 10) - 64, (256 << 10) - 64, (1 << 20) - 64];

/// Kept free at the end of each chunk, for the note that recording stops.
const RESERVE: usize = 256;

/// Blobs of one record whose places are kept for the case that the record is built again.
const BLOBS: usize = 4;
/// How often the system runs the destructors of a thread's values; each time others may still call the driver.
const DESTRUCTOR_ROUNDS: u8 = 4;
/// `Thread::ordinal` before the first call.
const NO_ORDINAL: u32 = u32::MAX;
/// `Thread::active` while the recording is started.
const STARTING: usize = 2;
/// Set in `Thread::active` while the driver has the call; frames lie at even addresses.
const IN_DRIVER: usize = 1;

/// A thread's state. Plain cells without destructor, so that it can be used at any moment of a thread's life.
pub(crate) struct Thread {
    /// Address of the frame of the call in progress, 0 outside: calls that the driver makes into itself are not the program's.
    active: Cell<usize>,
    /// What that frame is known by.
    mark: Cell<u64>,
    /// From 0, in the order of first calls.
    pub(crate) ordinal: Cell<u32>,
    /// Something is to be done once the record in progress is written: see `attend`.
    attention: Cell<bool>,
    /// The note that names this thread is still to be written.
    unnamed: Cell<bool>,
    /// The trace cannot grow any more.
    full: Cell<bool>,
    /// How often the thread was about to end.
    endings: Cell<u8>,
    /// Calls entered so far.
    pub(crate) calls: Cell<u64>,
    chunk: Cell<Option<MappedChunk>>,
    /// Where the next record goes, and where records must end.
    next: Cell<*mut u8>,
    end: Cell<*mut u8>,
    sequence: Cell<u32>,
    /// What became of the blobs of the record in progress, how many there are, and how many of them this attempt has met.
    blobs: [Cell<Option<Result<BlobRef, NotKept>>>; BLOBS],
    blobs_written: Cell<u8>,
    blobs_met: Cell<u8>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            active: Cell::new(0),
            mark: Cell::new(0),
            ordinal: Cell::new(NO_ORDINAL),
            attention: Cell::new(true),
            unnamed: Cell::new(true),
            full: Cell::new(false),
            endings: Cell::new(0),
            calls: Cell::new(0),
            chunk: Cell::new(None),
            next: Cell::new(core::ptr::null_mut()),
            end: Cell::new(core::ptr::null_mut()),
            sequence: Cell::new(0),
            blobs: [const { Cell::new(None) }; BLOBS],
            blobs_written: Cell::new(0),
            blobs_met: Cell::new(0),
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

/// The key whose destructor closes a thread's chunk, plus 1; 0 while there is none.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Asks to be told of ending threads. To be called once, before any thread records.
pub(crate) fn watch_ends() {
    if KEY.load(Ordering::Relaxed) != 0 {
        return;
    }
    let mut key = 0;
    // SAFETY: `key` is valid for writing; this library is never unloaded, so the destructor stays.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(ends)) } == 0 {
        KEY.store(key + 1, Ordering::Relaxed);
    }
}

/// A thread is about to end: its chunk is closed in the last round, so that what others call on the way is kept in it.
unsafe extern "C" fn ends(state: *mut c_void) {
    // SAFETY: the value that `begin` set: this thread's state, which outlives all destructors of its values.
    let state = unsafe { &*state.cast::<Thread>() };
    let _errno = Errno::keep();
    let round = state.endings.get() + 1;
    state.endings.set(round);
    if round < DESTRUCTOR_ROUNDS {
        state.await_end();
    } else {
        state.close_chunk(true);
    }
}

impl Thread {
    /// Whether a call whose frame is at that address is made by the driver inside another call of this thread, or by a signal
    /// handler inside our own code.
    #[inline]
    pub(crate) fn is_inside(&self, frame: usize) -> bool {
        let active = self.active.get();
        active != 0 && self.is_inside_of(active, frame)
    }

    /// A call may also have been left by `longjmp`; then its frame lies below, or above with other content by now, and the
    /// call at hand is the program's.
    #[cold]
    fn is_inside_of(&self, active: usize, frame: usize) -> bool {
        if active & IN_DRIVER == 0 {
            return true;
        }
        let outer = active - IN_DRIVER;
        let mark = (outer + offset_of!(Frame, mark)) as u64;
        outer > frame && crate::memory::word(mark) == Some(self.mark.get())
    }

    /// A call of the program's begins.
    #[inline]
    pub(crate) fn enter(&self, frame: &mut Frame) {
        frame.thread = core::ptr::from_ref(self);
        // Few words in memory look like these.
        frame.mark = self.mark.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.mark.set(frame.mark);
        // A signal handler of this thread is to see the mark with the frame, and the frame before anything is written.
        compiler_fence(Ordering::SeqCst);
        self.active.set(core::ptr::from_ref(frame).addr());
        compiler_fence(Ordering::SeqCst);
    }

    /// The driver is entered.
    #[inline]
    pub(crate) fn pass_on(&self) {
        compiler_fence(Ordering::SeqCst);
        self.active.set(self.active.get() | IN_DRIVER);
    }

    /// The driver has returned to a frame; false if that call is not the one in progress any more.
    #[inline]
    pub(crate) fn return_to(&self, frame: &Frame) -> bool {
        let frame = core::ptr::from_ref(frame).addr();
        if self.active.get() != frame | IN_DRIVER {
            return false;
        }
        self.active.set(frame);
        compiler_fence(Ordering::SeqCst);
        true
    }

    /// The call in progress is over.
    #[inline]
    pub(crate) fn leave(&self) {
        compiler_fence(Ordering::SeqCst);
        self.active.set(0);
    }

    /// Keeps what `start` does out of the trace: the loader runs the driver's constructors.
    pub(crate) fn during_start<T>(&self, start: impl FnOnce() -> T) -> T {
        self.active.set(STARTING);
        let result = start();
        self.active.set(0);
        result
    }

    /// In a forked child: this thread has recorded nothing yet.
    pub(crate) fn forget(&self) {
        if self.active.get() != STARTING {
            self.active.set(0);
        }
        self.ordinal.set(NO_ORDINAL);
        self.attention.set(true);
        self.unnamed.set(true);
        self.full.set(false);
        self.calls.set(0);
        // The parent's chunk stays mapped here, untouched.
        self.chunk.set(None);
        self.next.set(core::ptr::null_mut());
        self.end.set(core::ptr::null_mut());
        self.sequence.set(0);
    }

    #[cold]
    fn begin(&self) {
        self.ordinal.set(call::next_thread());
        self.await_end();
    }

    fn await_end(&self) {
        if let Some(key) = KEY.load(Ordering::Relaxed).checked_sub(1) {
            // SAFETY: the key exists; the state outlives the destructors of this thread's values.
            unsafe { libc::pthread_setspecific(key, core::ptr::from_ref(self).cast()) };
        }
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
        self.blobs_written.set(0);
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
        self.blobs_met.set(0);
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
        if !call::is_recording() {
            return false;
        }
        let _errno = Errno::keep();
        if self.ordinal.get() == NO_ORDINAL {
            self.begin();
        }
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
        self.close_chunk(false);
        // SAFETY: the chunk is longer than head and reserve.
        unsafe {
            self.next.set(chunk.start.add(CHUNK_HEAD_LENGTH));
            self.end.set(chunk.start.add(chunk.length - RESERVE));
        }
        self.chunk.set(Some(chunk));
        self.sequence.set(self.sequence.get() + 1);
        true
    }

    fn close_chunk(&self, is_last: bool) {
        if let Some(chunk) = self.chunk.take() {
            let used = self.next.get() as usize - chunk.start as usize - CHUNK_HEAD_LENGTH;
            chunk.close(used, is_last);
        }
        self.next.set(core::ptr::null_mut());
        self.end.set(core::ptr::null_mut());
    }

    /// Ends the recording of this process, with a note in what room there is. The chunk stays for the calls in progress.
    #[cold]
    fn stop(&self) {
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
    }

    /// Writes a blob of the record in progress. A record that is built again has its blobs already.
    pub(crate) fn blob(&self, memory: &Rows) -> Result<BlobRef, NotKept> {
        let at = self.blobs_met.get();
        self.blobs_met.set(at.saturating_add(1));
        let place = self.blobs.get(usize::from(at));
        if let Some(known) = place
            .filter(|_| at < self.blobs_written.get())
            .and_then(Cell::get)
        {
            return known;
        }
        let result = trace_file::blob(memory);
        if let Some(place) = place {
            place.set(Some(result));
            self.blobs_written.set(at + 1);
        }
        if result == Err(NotKept::Disk) {
            self.full.set(true);
            self.attention.set(true);
        }
        result
    }

    /// Does, behind a record, what could not be done within it.
    #[inline]
    pub(crate) fn attend(&self) {
        if self.attention.get() {
            self.attend_now();
        }
    }

    #[cold]
    fn attend_now(&self) {
        self.attention.set(false);
        if self.unnamed.replace(false) {
            self.introduce();
        }
        if self.full.replace(false) {
            self.stop();
        }
    }

    /// Says who this thread is, in its first call.
    fn introduce(&self) {
        let _errno = Errno::keep();
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
