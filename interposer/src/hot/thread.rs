//! The state of a recording thread: the call in progress, and where its next record goes.

use core::cell::Cell;
use core::ffi::c_void;
use core::hint::cold_path;
use core::mem::offset_of;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use cutape_format::control::Pausing;
use cutape_format::layout::{
    BlobRef, GapNote, LookedNote, NestedCallNote, ThreadNote, note_kind, record_kind,
};
use cutape_format::slot::Slot;
use cutape_format::write::Record;
use cutape_order::Moment;

use super::cost::Cost;
use super::recording::Direction;
use super::{clock, recording, tls};
use crate::file::kept_blobs;
use crate::file::rows::{Memory, NotKept};
use crate::file::thread_buffer::ThreadBuffer;
use crate::file::trace_file;
use crate::loaded::data_files::{self, FilePart};
use crate::loaded::tensor_files;
use crate::process::errno::Errno;
use crate::process::{log, memory};

/// Lengths of a thread's buffer: the first, unless a record is longer. A call that finds the buffer
/// full waits until it is flushed, so it is short.
const LENGTHS: [u64; 3] = [64 << 10, 256 << 10, 1 << 20];

/// Kept free at the end of a buffer, for the note that recording stops.
const RESERVE: usize = 256;

/// Blobs of one record that are remembered in case the record is written again.
const BLOBS: usize = 4;
/// `Thread::next` and `Thread::end` while there is no buffer.
const NOWHERE: *mut u8 = core::ptr::dangling_mut::<u64>().cast();
/// How often the system runs the destructors of a thread's values; each round may still call the
/// driver. ThreadSanitizer's part of a thread ends in the last one.
const DESTRUCTOR_ROUNDS: u8 = if cfg!(thread_sanitizer) { 3 } else { 4 };
/// `Thread::ordinal` before the first call.
const NO_ORDINAL: u32 = u32::MAX;
/// `Thread::active` in `outside_calls`.
const OUTSIDE: usize = 2;
/// `Activation::mark` of a call inside another one; `begin_call` gives none that number.
const NESTED: u64 = 0;
/// The same of a call that is left out.
const LEFT_OUT: u64 = 1;
/// Bit of `Thread::active` that is set while the driver runs; frames have even addresses.
const IN_DRIVER: usize = 1;

/// Where bytes are that a record refers to.
#[derive(Clone, Copy)]
pub(crate) enum Kept {
    Blob(BlobRef),
    InFile(FilePart),
}

/// The state of a thread. Plain cells without a destructor, so that it can be used at any moment of
/// a thread's life. What every call needs is first, in one cache line.
#[repr(C, align(64))]
pub(crate) struct Thread {
    /// Address of the frame of the call in progress, or 0: a call that the driver makes into itself
    /// is not the program's.
    active: Cell<usize>,
    /// The mark of that frame.
    mark: Cell<u64>,
    /// Where the next record goes.
    next: Cell<*mut u8>,
    /// Last address with a free `Slot` behind it; NULL while `attention` is set, so that the fast
    /// path makes one comparison.
    last_slot: Cell<*mut u8>,
    /// Where records must end.
    end: Cell<*mut u8>,
    /// Calls recorded so far.
    pub(crate) calls: Cell<u64>,
    /// The word about pauses with which this thread takes the fast path; `Pausing::NONE` if none.
    pub(crate) seen: Cell<Pausing>,
    /// `attend` has something to do after the record in progress.
    attention: Cell<bool>,
    /// The note with this thread's name is not written yet.
    is_unnamed: Cell<bool>,
    /// The trace cannot grow any more.
    is_full: Cell<bool>,
    /// Destructor rounds so far.
    rounds: Cell<u8>,
    /// From 0, in the order of first calls.
    pub(crate) ordinal: Cell<u32>,
    /// When host memory had been read for notes of the call in progress, if none says so yet; else 0.
    pub(crate) looked: Cell<u64>,
    /// The operating system's number; 0 until it is asked for.
    number: Cell<u32>,
    /// The cost of recording on this thread; NULL unless it is measured.
    pub(crate) cost: Cell<*const Cost>,
    buffer: Cell<Option<ThreadBuffer>>,
    /// Number of the thread's next chunk.
    sequence: Cell<u32>,
    /// What was kept of the record in progress, how many there are, and how many of them this attempt
    /// has met.
    blobs: [Cell<Option<Result<Kept, NotKept>>>; BLOBS],
    blobs_written: Cell<u8>,
    blobs_met: Cell<u8>,
    /// The call in progress may have a stack.
    wants_stack: Cell<bool>,
    /// When the call in progress was entered, if it has begun followed work; else 0.
    begun: Cell<Moment>,
    /// Calls left out since the last note about that.
    left_out: Cell<u64>,
    /// The word about pauses that the last such note was about.
    noted: Cell<Pausing>,
    /// Such a note is due, about that word.
    due: Cell<Option<Pausing>>,
    /// Where the thread's stack begins and ends; zeros until it is asked for.
    pub(crate) stack: Cell<(u64, u64)>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            active: Cell::new(0),
            mark: Cell::new(0),
            next: Cell::new(NOWHERE),
            last_slot: Cell::new(core::ptr::null_mut()),
            end: Cell::new(NOWHERE),
            calls: Cell::new(0),
            seen: Cell::new(Pausing::NONE),
            attention: Cell::new(true),
            is_unnamed: Cell::new(true),
            is_full: Cell::new(false),
            rounds: Cell::new(0),
            ordinal: Cell::new(NO_ORDINAL),
            looked: Cell::new(0),
            number: Cell::new(0),
            cost: Cell::new(core::ptr::null()),
            buffer: Cell::new(None),
            sequence: Cell::new(0),
            blobs: [const { Cell::new(None) }; BLOBS],
            blobs_written: Cell::new(0),
            blobs_met: Cell::new(0),
            wants_stack: Cell::new(false),
            begun: Cell::new(0),
            left_out: Cell::new(0),
            noted: Cell::new(Pausing::NONE),
            due: Cell::new(None),
            stack: Cell::new((0, 0)),
        }
    };
}

// The system frees the memory with the thread. A destructor would make the cells unusable before
// that.
const _: () = assert!(!core::mem::needs_drop::<Thread>());

/// The start of every frame: by this a thread recognises the call in progress.
#[repr(C)]
pub(crate) struct Activation {
    pub(crate) thread: *const Thread,
    mark: u64,
}

impl Activation {
    /// Of a frame without a call.
    #[cfg(test)]
    pub(crate) const NONE: Self = Self {
        thread: core::ptr::null(),
        mark: 0,
    };

    /// Of a call that is made inside another one and noted when it returns.
    pub(crate) fn nested(thread: &Thread) -> Self {
        Self {
            thread: core::ptr::from_ref(thread),
            mark: NESTED,
        }
    }

    pub(crate) fn is_nested(&self) -> bool {
        self.mark == NESTED
    }

    /// Of a call that is left out, unless it fails.
    pub(crate) fn left_out(thread: &Thread) -> Self {
        Self {
            thread: core::ptr::from_ref(thread),
            mark: LEFT_OUT,
        }
    }

    pub(crate) fn is_left_out(&self) -> bool {
        self.mark == LEFT_OUT
    }

    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }
}

/// The calling thread's state, valid as long as the thread.
pub(crate) fn current() -> *const Thread {
    let known = known();
    if known.is_null() { first() } else { known }
}

/// The same if the thread has asked before, otherwise NULL.
pub(crate) fn known() -> *const Thread {
    tls::get().cast()
}

/// As `known`, faster; `None` if the fast access is not available.
#[inline(always)]
pub(crate) fn known_directly() -> Option<*const Thread> {
    tls::get_directly().map(|word| word.cast())
}

#[cold]
fn first() -> *const Thread {
    let thread = THREAD.with(core::ptr::from_ref);
    tls::set(thread.cast());
    thread
}

/// The key whose destructor closes a thread's buffer, plus 1; 0 while there is none.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Has the system tell us when threads end. To be called before any thread records.
pub(crate) fn watch_ends() {
    if KEY.load(Ordering::Relaxed) != 0 {
        return;
    }
    let mut key = 0;
    // SAFETY: `key` is valid for writing; this library is never unloaded, so the destructor stays.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(at_thread_end)) } == 0 {
        KEY.store(key + 1, Ordering::Relaxed);
    }
}

/// Closes the buffer in the last round of destructors, since calls that other destructors make are
/// still recorded.
unsafe extern "C" fn at_thread_end(thread: *mut c_void) {
    // SAFETY: the value that `await_end` set: this thread's state, which outlives all destructors
    // of its values.
    let thread = unsafe { &*thread.cast::<Thread>() };
    let _errno = Errno::keep();
    let round = thread.rounds.get() + 1;
    thread.rounds.set(round);
    if round < DESTRUCTOR_ROUNDS {
        thread.await_end();
    } else {
        // A signal handler that calls the driver meanwhile is not recorded.
        thread.outside_calls(|| thread.close_buffer());
    }
}

/// A record that a thread writes part by part. Long snapshots become blobs of that thread.
pub(crate) struct Draft<'a> {
    pub(crate) record: Record<'a>,
    pub(crate) thread: &'a Thread,
}

impl<'a> Deref for Draft<'a> {
    type Target = Record<'a>;

    fn deref(&self) -> &Record<'a> {
        &self.record
    }
}

impl<'a> DerefMut for Draft<'a> {
    fn deref_mut(&mut self) -> &mut Record<'a> {
        &mut self.record
    }
}

/// The call in progress.
impl Thread {
    /// Whether no call is in progress.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.active.get() == 0
    }

    /// Whether a call whose frame is at that address is made inside another call of this thread: by
    /// the driver, by what the driver calls, or by a signal handler.
    #[inline]
    pub(crate) fn is_inside_call(&self, frame: usize) -> bool {
        let active = self.active.get();
        active != 0 && self.is_inside_of(active, frame)
    }

    /// After a `longjmp` out of a call, its frame lies below the new one, or its mark is
    /// overwritten: the new call is the program's.
    #[cold]
    fn is_inside_of(&self, active: usize, frame: usize) -> bool {
        if active & IN_DRIVER == 0 {
            return true;
        }
        let outer = active - IN_DRIVER;
        let mark = (outer + offset_of!(Activation, mark)) as u64;
        outer > frame && memory::word(mark) == Some(self.mark.get())
    }

    /// Whether the driver is at work on a call of the program that is recorded.
    pub(crate) fn is_in_driver(&self) -> bool {
        self.active.get() & IN_DRIVER != 0
    }

    /// Begins a call of the program.
    #[inline(always)]
    pub(crate) fn begin_call(&self, activation: &mut Activation) {
        activation.thread = core::ptr::from_ref(self);
        // A value that other memory is unlikely to hold.
        activation.mark = self.mark.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.mark.set(activation.mark);
        // A signal handler of this thread must see the mark with the frame, and the frame before
        // anything is written.
        compiler_fence(Ordering::SeqCst);
        self.active.set(activation.address());
        compiler_fence(Ordering::SeqCst);
    }

    /// Marks the call as being in the driver.
    #[inline(always)]
    pub(crate) fn enter_driver(&self) {
        compiler_fence(Ordering::SeqCst);
        self.active.set(self.active.get() | IN_DRIVER);
    }

    /// The driver has returned. False if that call is not the one in progress any more.
    #[inline(always)]
    pub(crate) fn leave_driver(&self, activation: &Activation) -> bool {
        let frame = activation.address();
        if self.active.get() != frame | IN_DRIVER {
            return false;
        }
        self.active.set(frame);
        compiler_fence(Ordering::SeqCst);
        true
    }

    /// Ends the call in progress.
    #[inline(always)]
    pub(crate) fn end_call(&self) {
        compiler_fence(Ordering::SeqCst);
        self.active.set(0);
    }

    /// Runs `act` without recording what it calls, for example what the driver's constructors call
    /// while it is loaded.
    pub(crate) fn outside_calls<T>(&self, act: impl FnOnce() -> T) -> T {
        self.active.set(OUTSIDE);
        let result = act();
        self.active.set(0);
        result
    }

    /// Runs `act`, which is not a call and records none, perhaps within a call. Not if this
    /// interrupts our own code, as a signal handler does.
    pub(crate) fn aside(&self, act: impl FnOnce()) {
        let active = self.active.get();
        if active != 0 && active & IN_DRIVER == 0 {
            return;
        }
        self.active.set(OUTSIDE);
        compiler_fence(Ordering::SeqCst);
        act();
        compiler_fence(Ordering::SeqCst);
        self.active.set(active);
    }

    /// The operating system's number of the thread.
    pub(crate) fn number(&self) -> u32 {
        if self.number.get() == 0 {
            // By number: glibc before 2.30 has no function for it and would not load us.
            // SAFETY: no memory is involved.
            self.number
                .set(unsafe { libc::syscall(libc::SYS_gettid) } as u32);
        }
        self.number.get()
    }

    /// In a forked child: this thread has recorded nothing yet.
    pub(crate) fn forget(&self) {
        if self.active.get() != OUTSIDE {
            self.active.set(0);
        }
        self.ordinal.set(NO_ORDINAL);
        self.number.set(0);
        self.set_attention(true);
        self.is_unnamed.set(true);
        self.is_full.set(false);
        self.begun.set(0);
        self.calls.set(0);
        self.seen.set(Pausing::NONE);
        self.left_out.set(0);
        self.noted.set(Pausing::NONE);
        self.due.set(None);
        self.cost.set(core::ptr::null());
        // The parent's buffer stays mapped here, untouched.
        self.buffer.set(None);
        self.set_no_buffer();
        self.sequence.set(0);
    }
}

/// Writing records.
impl Thread {
    /// Writes a record of fixed form if a slot is free; `put` returns its length.
    #[inline(always)]
    pub(crate) fn put_in_slot(&self, put: impl FnOnce(&mut Slot) -> usize) -> bool {
        let next = self.next.get();
        if next > self.last_slot.get() {
            cold_path();
            return false;
        }
        // SAFETY: `last_slot` says that a slot is free.
        unsafe { self.put_at(next, put) };
        true
    }

    /// The same, making room first if there is none. False if nothing could be written; then
    /// recording has stopped.
    pub(crate) fn put_in_new_slot(&self, put: impl FnOnce(&mut Slot) -> usize) -> bool {
        let is_free = || self.end.get() as usize - self.next.get() as usize >= Slot::LENGTH;
        if !is_free() && !self.make_room(&mut || is_free()) {
            return false;
        }
        // SAFETY: a slot is free, as was just checked.
        unsafe { self.put_at(self.next.get(), put) };
        true
    }

    /// # Safety
    /// At `next`, where the last record ended, a slot is free.
    #[inline(always)]
    unsafe fn put_at(&self, next: *mut u8, put: impl FnOnce(&mut Slot) -> usize) {
        // SAFETY: the bytes are an unfilled part of this thread's buffer, to which no other
        // reference exists; any bytes make a slot; it is aligned, because buffers are and records
        // are multiples of 8 bytes long.
        let slot = unsafe { &mut *next.cast::<Slot>() };
        let length = put(slot);
        // SAFETY: a record in a slot is no longer than that.
        self.next.set(unsafe { next.add(length) });
    }

    /// Writes a record that `build` fills and commits, if the buffer has enough room left.
    #[inline(always)]
    pub(crate) fn try_write(&self, build: impl FnOnce(Record<'_>) -> Option<usize>) -> bool {
        let next = self.next.get();
        let length = self.end.get() as usize - next as usize;
        // SAFETY: `next` to `end` is the unfilled part of this thread's buffer, or empty; no other
        // reference exists.
        let space = unsafe { core::slice::from_raw_parts_mut(next, length) };
        let Some(length) = Record::new(space).and_then(build) else {
            return false;
        };
        self.next.set(next.wrapping_add(length));
        true
    }

    /// Writes a record that `build` fills. `build` runs again with more room if the buffer has too
    /// little left. False if nothing could be written; then recording has stopped.
    pub(crate) fn write(
        &self,
        kind: u8,
        function: u16,
        mut build: impl FnMut(&mut Draft<'_>) -> Option<()>,
    ) -> bool {
        self.blobs_written.set(0);
        let mut attempt = || {
            self.blobs_met.set(0);
            self.try_write(|record| {
                let thread = self;
                let mut draft = Draft { record, thread };
                build(&mut draft)?;
                draft.record.commit(kind, function)
            })
        };
        attempt() || self.make_room(&mut attempt)
    }

    /// Writes a note.
    pub(crate) fn note(&self, kind: u16, build: impl FnMut(&mut Draft<'_>) -> Option<()>) -> bool {
        self.write(record_kind::NOTE, kind, build)
    }

    /// Notes a call that the program has made while the driver is at work on the one in progress.
    pub(crate) fn note_nested(&self, nested: NestedCallNote) {
        if self.is_in_driver() {
            let _errno = Errno::keep();
            self.aside(|| {
                self.note(note_kind::NESTED_CALL, |draft| draft.put_encoded(nested));
            });
        }
    }

    /// Notes when host memory had been read, if calls of other threads can have been entered meanwhile.
    pub(crate) fn note_look(&self, kind: u16) {
        let ticks = self.looked.replace(0);
        if ticks != 0 && recording::has_several_threads() {
            let note = LookedNote { ticks };
            self.note(kind, |draft| draft.put_encoded(note));
        }
    }

    /// Makes room until `attempt` succeeds: flushes the buffer, or opens a longer one. False if
    /// that is not possible; then recording has stopped.
    #[cold]
    fn make_room(&self, attempt: &mut dyn FnMut() -> bool) -> bool {
        if !recording::is_recording() {
            return false;
        }
        let _errno = Errno::keep();
        if self.ordinal.get() == NO_ORDINAL {
            self.ordinal.set(recording::next_thread());
            self.await_end();
        }
        let next = self.next.get();
        // A buffer without records is not worth a chunk, and has no room for this one.
        if self.with_buffer(|buffer| buffer.is_empty(next)) == Some(false) {
            if self.with_buffer(|buffer| buffer.flush(next)) != Some(true) {
                self.stop();
                return false;
            }
            self.begin_chunk();
            if attempt() {
                return true;
            }
        }
        for length in LENGTHS {
            self.close_buffer();
            self.buffer
                .set(ThreadBuffer::open(length, self.ordinal.get()));
            if self.with_buffer(|_| ()).is_none() {
                self.stop();
                return false;
            }
            self.begin_chunk();
            if attempt() {
                return true;
            }
        }
        false
    }

    fn with_buffer<T>(&self, act: impl FnOnce(&mut ThreadBuffer) -> T) -> Option<T> {
        let mut buffer = self.buffer.take()?;
        let result = act(&mut buffer);
        self.buffer.set(Some(buffer));
        Some(result)
    }

    fn begin_chunk(&self) {
        let (sequence, first) = (self.sequence.get(), self.calls.get());
        let Some((next, end)) = self.with_buffer(|buffer| buffer.begin(sequence, first)) else {
            return;
        };
        self.sequence.set(sequence + 1);
        self.next.set(next);
        // SAFETY: a buffer is longer than the reserve.
        self.set_end(unsafe { end.sub(RESERVE) });
    }

    /// Flushes and unmaps the buffer.
    fn close_buffer(&self) {
        if let Some(mut buffer) = self.buffer.take() {
            if buffer.is_empty(self.next.get()) {
                // The next chunk takes its number.
                self.sequence.set(self.sequence.get() - 1);
            }
            let is_flushed = buffer.flush(self.next.get());
            buffer.close(is_flushed);
        }
        self.set_no_buffer();
    }

    fn set_no_buffer(&self) {
        self.next.set(NOWHERE);
        self.set_end(NOWHERE);
    }

    fn set_end(&self, end: *mut u8) {
        self.end.set(end);
        self.last_slot
            .set(if self.attention.get() || end == NOWHERE {
                core::ptr::null_mut()
            } else {
                end.wrapping_sub(Slot::LENGTH)
            });
    }

    fn set_attention(&self, attention: bool) {
        self.attention.set(attention);
        self.set_end(self.end.get());
    }

    fn await_end(&self) {
        if let Some(key) = KEY.load(Ordering::Relaxed).checked_sub(1) {
            // SAFETY: the key exists; the state outlives the destructors of this thread's values.
            unsafe { libc::pthread_setspecific(key, core::ptr::from_ref(self).cast()) };
        }
    }

    /// Ends the recording of this process, with a note in the reserve. The buffer stays for the
    /// calls in progress.
    #[cold]
    fn stop(&self) {
        if !recording::stop() {
            return;
        }
        trace_file::mark_incomplete(trace_file::Lacking::Calls);
        let [what, why] = trace_file::why_it_cannot_grow();
        log::line(&[what, why, b"; recording stops, the program continues"]);
        let end = self.end.get();
        if end != NOWHERE {
            // SAFETY: the reserve behind `end` belongs to the buffer.
            self.set_end(unsafe { end.add(RESERVE) });
            self.try_write(|mut record| {
                record.put(what)?;
                record.put(why)?;
                record.commit(record_kind::NOTE, note_kind::STOPPED)
            });
        }
    }

    /// Keeps bytes of the record in progress outside it. A record that is written again has them
    /// already.
    pub(crate) fn keep(
        &self,
        memory: &(impl Memory + ?Sized),
        payload: Option<Direction>,
    ) -> Result<Kept, NotKept> {
        let at = self.blobs_met.get();
        self.blobs_met.set(at.saturating_add(1));
        let place = self.blobs.get(usize::from(at));
        if let Some(known) = place
            .filter(|_| at < self.blobs_written.get())
            .and_then(Cell::get)
        {
            return known;
        }
        let in_file = || {
            let (address, length) = memory.in_one_piece()?;
            data_files::holding(address, length).or_else(|| tensor_files::holding(address, length))
        };
        // What comes from a device is in no file yet.
        let may_be_in_file = payload == Some(Direction::ToDevice);
        let result = match may_be_in_file.then(in_file).flatten() {
            Some(part) => Ok(Kept::InFile(part)),
            None => kept_blobs::blob(memory, payload).map(Kept::Blob),
        };
        if let Some(place) = place {
            place.set(Some(result));
            self.blobs_written.set(at + 1);
        }
        if matches!(result, Err(NotKept::Disk)) {
            self.is_full.set(true);
            self.set_attention(true);
        }
        result
    }

    /// Has the next `attend` return true: the call in progress may have a stack.
    pub(crate) fn ask_for_stack(&self) {
        self.wants_stack.set(true);
        self.set_attention(true);
    }

    /// The call in progress, which was entered then, enqueues work that is followed once the driver
    /// has returned: the leave record is followed by `attend`.
    pub(crate) fn set_begun(&self, entered: Moment) {
        self.begun.set(entered);
        self.set_attention(true);
    }

    /// When the call was entered that has begun followed work, once.
    pub(crate) fn take_begun(&self) -> Option<Moment> {
        Some(self.begun.replace(0)).filter(|&entered| entered != 0)
    }

    /// Does, after a record, what could not be done within it. Returns whether there is more for
    /// the caller to do, because the call is the thread's first or may have a stack. `enqueued` gets
    /// the times of a call that has begun followed work, and has returned.
    #[inline]
    pub(crate) fn attend(&self, enqueued: fn(&Self, Moment, Moment)) -> bool {
        self.attention.get() && self.attend_now(enqueued)
    }

    #[cold]
    fn attend_now(&self, enqueued: fn(&Self, Moment, Moment)) -> bool {
        self.set_attention(false);
        let is_first = self.is_unnamed.replace(false);
        if is_first {
            self.write_name();
        }
        if self.is_full.replace(false) {
            self.stop();
        }
        if let Some(pausing) = self.due.take() {
            self.note_gap(pausing);
        }
        if let Some(entered) = self.take_begun() {
            let _errno = Errno::keep();
            enqueued(self, entered, clock::ticks());
        }
        self.wants_stack.replace(false) || is_first
    }

    /// Takes notice of whether recording is paused, within a call that is recorded. The call gets a
    /// note if others are missing before it.
    pub(crate) fn notice_pausing(&self, is_fast: bool) {
        let pausing = recording::pausing();
        let is_fast = is_fast && !pausing.is_paused();
        self.seen.set(if is_fast { pausing } else { Pausing::NONE });
        let is_news = pausing != self.noted.get() && pausing.pauses() > 0;
        if is_news || self.left_out.get() > 0 {
            self.due.set(Some(pausing));
            self.set_attention(true);
        }
    }

    /// Counts a call that was left out.
    pub(crate) fn leave_out(&self) {
        self.left_out.set(self.left_out.get() + 1);
        recording::control().leave_out(self.ordinal.get());
    }

    /// Notes that calls are missing before the one in progress.
    fn note_gap(&self, pausing: Pausing) {
        self.noted.set(pausing);
        let control = recording::control();
        let (paused, resumed) = control.pause_ticks();
        // Otherwise another pause has begun since, or ended: these are its times.
        let are_known = control.pausing() == pausing;
        let note = GapNote {
            calls: self.left_out.replace(0),
            pause: pausing.pauses(),
            paused: if are_known { paused } else { 0 },
            // 0 would say that the pause goes on.
            resumed: match pausing.is_paused() {
                true => 0,
                false if are_known => resumed.max(1),
                false => clock::ticks(),
            },
        };
        self.note(note_kind::GAP, |draft| draft.put_encoded(note));
    }

    /// Writes the thread's number and name, within its first call.
    fn write_name(&self) {
        let _errno = Errno::keep();
        let mut name = [0u8; 16];
        // SAFETY: the name buffer has the 16 bytes that the request writes.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        let number = self.number();
        let note = ThreadNote { number, name };
        self.note(note_kind::THREAD, |draft| draft.put_encoded(note));
    }
}
