//! What a thread needs to record its calls: the stage it fills, and how deep it is inside the driver.

use core::cell::Cell;
use core::ffi::c_void;
use core::hint::cold_path;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use cutape_format::fixed::Room;
use cutape_format::layout::{BlobRef, ThreadNote, note_kind, record_kind};
use cutape_format::write::Record;

use crate::call::{self, Frame};
use crate::cost::Cost;
use crate::errno::Errno;
use crate::stage::Stage;
use crate::stages::Stages;
use crate::thread_word;
use crate::trace_file::{self, NotKept, Rows};

/// Sizes of a thread's stages: the first, unless a record is longer. What it takes to empty one is the longest that a call may have
/// to wait where there is no mover.
const LENGTHS: [u64; 3] = [64 << 10, 256 << 10, 1 << 20];

/// Kept free at the end of each stage, for the note that recording stops.
const RESERVE: usize = 256;

/// Blobs of one record whose places are kept for the case that the record is built again.
const BLOBS: usize = 4;
/// `Thread::next` and `Thread::end` while there is no stage; an empty slice begins somewhere.
const NOWHERE: *mut u8 = core::ptr::dangling_mut::<u64>().cast();
/// How often the system runs the destructors of a thread's values; each time others may still call the driver.
const DESTRUCTOR_ROUNDS: u8 = 4;
/// `Thread::ordinal` before the first call.
const NO_ORDINAL: u32 = u32::MAX;
/// `Thread::active` while the recording is started.
const STARTING: usize = 2;
/// Set in `Thread::active` while the driver has the call; frames lie at even addresses.
const IN_DRIVER: usize = 1;

/// A thread's state. Plain cells without destructor, so that it can be used at any moment of a thread's life. What every call
/// needs is first, in one line of the cache.
#[repr(C, align(64))]
pub(crate) struct Thread {
    /// Address of the frame of the call in progress, 0 outside: calls that the driver makes into itself are not the program's.
    active: Cell<usize>,
    /// What that frame is known by.
    mark: Cell<u64>,
    /// Where the next record goes, up to where there is a `Room` for it (NULL while there is something to `attend` to, so that
    /// nobody has to ask for both), and where records must end.
    next: Cell<*mut u8>,
    last_room: Cell<*mut u8>,
    end: Cell<*mut u8>,
    /// Calls entered so far.
    pub(crate) calls: Cell<u64>,
    /// Something is to be done once the record in progress is written: see `attend`.
    attention: Cell<bool>,
    /// The note that names this thread is still to be written.
    unnamed: Cell<bool>,
    /// The trace cannot grow any more.
    full: Cell<bool>,
    /// How often the thread was about to end.
    endings: Cell<u8>,
    /// From 0, in the order of first calls.
    pub(crate) ordinal: Cell<u32>,
    /// What recording has cost this thread; NULL unless that is measured.
    pub(crate) cost: Cell<*const Cost>,
    stages: Stages,
    /// Of the chunk that will be begun next.
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
            next: Cell::new(NOWHERE),
            last_room: Cell::new(core::ptr::null_mut()),
            end: Cell::new(NOWHERE),
            calls: Cell::new(0),
            attention: Cell::new(true),
            unnamed: Cell::new(true),
            full: Cell::new(false),
            endings: Cell::new(0),
            ordinal: Cell::new(NO_ORDINAL),
            cost: Cell::new(core::ptr::null()),
            stages: Stages::none(),
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
pub(crate) fn current() -> *const Thread {
    let known = thread_word::get();
    if known.is_null() { first() } else { known }
}

/// The same where it has been asked for before, otherwise NULL.
pub(crate) fn known() -> *const Thread {
    thread_word::get()
}

/// The same, in less time; `None` where that cannot be had.
#[inline(always)]
pub(crate) fn known_directly() -> Option<*const Thread> {
    thread_word::get_directly()
}

#[cold]
fn first() -> *const Thread {
    let state = THREAD.with(core::ptr::from_ref);
    thread_word::set(state);
    state
}

/// The key whose destructor empties a thread's stages, plus 1; 0 while there is none.
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

/// A thread is about to end: its stages are emptied in the last round, so that what others call on the way is kept in them.
unsafe extern "C" fn ends(state: *mut c_void) {
    // SAFETY: the value that `begin` set: this thread's state, which outlives all destructors of its values.
    let state = unsafe { &*state.cast::<Thread>() };
    let _errno = Errno::keep();
    let round = state.endings.get() + 1;
    state.endings.set(round);
    if round < DESTRUCTOR_ROUNDS {
        state.await_end();
    } else {
        // What a signal handler calls meanwhile finds no stage.
        state.during_start(|| state.close_stages());
    }
}

/// The unfilled part of a thread's stage. There is one at a time.
pub(crate) struct Unfilled<'a> {
    thread: &'a Thread,
    place: *mut u8,
}

impl Unfilled<'_> {
    /// Where records go.
    #[inline(always)]
    pub(crate) fn space(&mut self) -> &mut [u8] {
        let length = self.thread.end.get() as usize - self.place as usize;
        // SAFETY: `next` to `end` is the unfilled part of this thread's own stage, or nothing; nobody else refers to it.
        unsafe { core::slice::from_raw_parts_mut(self.place, length) }
    }

    /// A record of that length, at most that of the space, has been put.
    #[inline(always)]
    pub(crate) fn fill(self, length: usize) {
        debug_assert!(length <= self.thread.end.get() as usize - self.place as usize);
        self.thread.next.set(self.place.wrapping_add(length));
    }
}

/// How far ahead memory is fetched: some calls, so that it has come by then.
const AHEAD: usize = 512;
/// Of a longer record the rest comes when it is put.
const MOST_AHEAD: usize = 2048;
/// Of the cache.
const LINE: usize = 64;

/// Has a line of the cache fetched to be written, so far behind a place.
#[inline(always)]
fn fetch<const DISTANCE: usize>(place: *mut u8) {
    // Not the intrinsic: without a target feature that becomes the instruction which fetches for reading.
    // SAFETY: whatever is at an address, to prefetch it changes nothing and never faults; processors that do not know the
    // instruction pass over it.
    unsafe {
        core::arch::asm!(
            "prefetchw byte ptr [{place} + {distance}]",
            place = in(reg) place,
            distance = const DISTANCE,
            options(nostack, preserves_flags, readonly)
        );
    }
}

impl Thread {
    /// Whether no call is in progress.
    #[inline]
    pub(crate) fn is_at_rest(&self) -> bool {
        self.active.get() == 0
    }

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
        self.set_attention(true);
        self.unnamed.set(true);
        self.full.set(false);
        self.calls.set(0);
        self.cost.set(core::ptr::null());
        // The parent's stages stay mapped here, untouched.
        self.stages.forget();
        self.fill_nothing();
        self.sequence.set(0);
    }

    /// There is no stage.
    fn fill_nothing(&self) {
        self.next.set(NOWHERE);
        self.set_end(NOWHERE);
    }

    fn set_end(&self, end: *mut u8) {
        self.end.set(end);
        self.last_room
            .set(if self.attention.get() || end == NOWHERE {
                core::ptr::null_mut()
            } else {
                end.wrapping_sub(Room::LENGTH)
            });
    }

    fn set_attention(&self, attention: bool) {
        self.attention.set(attention);
        self.set_end(self.end.get());
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

    /// Writes a record that `build` fills. `build` runs again with more room if the stage has too little left.
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
        self.write_with_more_room(kind, function, &mut build)
    }

    #[inline]
    fn try_write(
        &self,
        kind: u8,
        function: u16,
        build: &mut impl FnMut(&mut Record<'_>) -> Option<()>,
    ) -> bool {
        self.blobs_met.set(0);
        self.write_once(|mut record| {
            build(&mut record)?;
            record.commit(kind, function)
        })
    }

    /// Has the memory fetched in which the next calls will be recorded: the mover may have looked at it since.
    #[inline(always)]
    pub(crate) fn look_ahead(&self) {
        fetch::<AHEAD>(self.next.get());
        fetch::<{ AHEAD + LINE }>(self.next.get());
    }

    /// The same for a record of so many bytes that is about to be put, and for what `look_ahead` will pass over because of it.
    #[inline(always)]
    pub(crate) fn look_ahead_of(&self, length: usize) {
        for distance in (2 * LINE..length.min(MOST_AHEAD)).step_by(LINE) {
            fetch::<AHEAD>(self.next.get().wrapping_add(distance));
        }
    }

    /// Writes a record of fixed form where the last one ended, if there is a room left; `put` says how long it is.
    #[inline(always)]
    pub(crate) fn put_in_room(&self, put: impl FnOnce(&mut Room) -> usize) -> bool {
        let next = self.next.get();
        if next > self.last_room.get() {
            cold_path();
            return false;
        }
        // SAFETY: so much of this thread's own stage is unfilled, nobody else refers to it, any bytes make a room, and it is
        // aligned, because stages are and all records are as long as several words.
        let room = unsafe { &mut *next.cast::<Room>() };
        let length = put(room);
        // SAFETY: a record in a room is no longer than that.
        self.next.set(unsafe { next.add(length) });
        true
    }

    /// Writes a record if there is room for it where the last one ended.
    #[inline]
    pub(crate) fn write_once(&self, build: impl FnOnce(Record<'_>) -> Option<usize>) -> bool {
        let mut unfilled = self.unfilled();
        match Record::new(unfilled.space()).and_then(build) {
            Some(length) => {
                unfilled.fill(length);
                true
            }
            None => false,
        }
    }

    /// Where the last record ended.
    #[inline(always)]
    pub(crate) fn unfilled(&self) -> Unfilled<'_> {
        Unfilled {
            thread: self,
            place: self.next.get(),
        }
    }

    #[cold]
    fn write_with_more_room(
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
        if self.write_further_on(kind, function, build) {
            return true;
        }
        // A stage without records is not worth a chunk, and has no room for this one.
        if self.next.get() != NOWHERE && !self.is_stage_empty() {
            if !self.stages.change(self.next.get()) {
                self.stop();
                return false;
            }
            self.begin_chunk();
            if self.try_write(kind, function, build) || self.write_further_on(kind, function, build)
            {
                return true;
            }
        }
        for length in LENGTHS {
            self.close_stages();
            if !self.stages.open(length, self.ordinal.get()) {
                self.stop();
                return false;
            }
            self.begin_chunk();
            if self.try_write(kind, function, build) || self.write_further_on(kind, function, build)
            {
                return true;
            }
        }
        false
    }

    /// Writes a record where the stage goes on, as far as it does.
    fn write_further_on(
        &self,
        kind: u8,
        function: u16,
        build: &mut impl FnMut(&mut Record<'_>) -> Option<()>,
    ) -> bool {
        while let Some(Some(end)) = self.stages.with_current(Stage::extend) {
            // SAFETY: what is ready of a stage is longer than the reserve.
            self.set_end(unsafe { end.sub(RESERVE) });
            if self.try_write(kind, function, build) {
                return true;
            }
        }
        false
    }

    fn is_stage_empty(&self) -> bool {
        let next = self.next.get();
        self.stages.with_current(|stage| stage.is_empty(next)) == Some(true)
    }

    fn begin_chunk(&self) {
        let (sequence, first) = (self.sequence.get(), self.calls.get());
        let begun = self
            .stages
            .with_current(|stage| stage.begin(sequence, first));
        let Some((next, end)) = begun else {
            return;
        };
        self.sequence.set(sequence + 1);
        self.next.set(next);
        // SAFETY: what is ready of a stage is longer than the reserve.
        self.set_end(unsafe { end.sub(RESERVE) });
    }

    /// Lets go of the stages; what is in them goes into chunks of their own.
    fn close_stages(&self) {
        while let Some(stage) = self.stages.take_other() {
            stage.close_handed();
        }
        if let Some(mut stage) = self.stages.take_current() {
            if stage.is_empty(self.next.get()) {
                // The next chunk takes its number.
                self.sequence.set(self.sequence.get() - 1);
            }
            let is_empty = stage.move_out(self.next.get());
            stage.close(is_empty);
        }
        self.stages.end();
        self.fill_nothing();
    }

    /// Ends the recording of this process, with a note in what room there is. The stage stays for the calls in progress.
    #[cold]
    fn stop(&self) {
        if !call::stop() {
            return;
        }
        const WHY: &[u8] = b"the trace cannot grow: no space left, or its descriptor was closed";
        crate::log::line(&[WHY, b"; recording stops, the program goes on"]);
        let end = self.end.get();
        if end != NOWHERE {
            // SAFETY: the reserve behind `end` belongs to the stage.
            self.set_end(unsafe { end.add(RESERVE) });
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
            self.set_attention(true);
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
        self.set_attention(false);
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
            // By number: glibc has a function for it since 2.30, and older ones would not load us.
            libc::syscall(libc::SYS_gettid)
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
