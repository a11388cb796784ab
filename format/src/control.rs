//! The chunk that a recorder shares with other processes while it records, directly behind the file
//! head: how far the file is claimed, what could not be recorded, for which a full disk has no other
//! place, and since version 1.12 whether recording is paused.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::layout::{CHUNK_HEAD_LENGTH, FILE_HEAD_LENGTH};

/// Where the chunk begins: behind the file head.
pub const CONTROL_POSITION: u64 = FILE_HEAD_LENGTH as u64;
/// Its length, head included. Chunks of earlier recorders are longer and hold more behind the
/// number.
pub const CONTROL_LENGTH: usize = size_of::<Control>();
/// Where the number is in the chunk, which recorder and reader map as an atomic.
pub const CONTROL_END: usize = offset_of!(Control, end);
/// Where [`Incomplete`] is in the chunk, since version 1.8; an atomic as well.
pub const CONTROL_INCOMPLETE: usize = offset_of!(Control, incomplete);
/// Since this minor version, the chunk has what follows these two.
pub const CONTROL_SINCE_MINOR: u32 = 12;
/// How many counters of calls left out there are: one each for the first threads, the last for all
/// others.
pub const LEFT_OUT_COUNTERS: usize = 32;

/// The chunk, as recorder and other processes map it.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Control {
    head: [u8; CHUNK_HEAD_LENGTH],
    /// Where the next chunk of the file will begin.
    pub end: AtomicU64,
    /// [`Incomplete`].
    pub incomplete: AtomicU64,
    /// [`Pausing`].
    pausing: AtomicU64,
    /// The ticks at which the last pause began.
    paused: AtomicU64,
    /// The ticks at which the last pause ended.
    resumed: AtomicU64,
    /// How often the flight recorder was asked to keep what it has.
    keeps_asked: AtomicU64,
    /// 1 more than the number of requests that it has served; 0 if there is no flight recorder.
    keeps_served: AtomicU64,
    /// Where chunks begin that later calls may name again; blobs before may be erased.
    reuse_from: AtomicU64,
    /// See [`Control::set_bounds`].
    pause_beyond: AtomicU64,
    wait_beyond: AtomicU64,
    wait_until: AtomicU64,
    /// The number of the pause that the recorder has begun because of the bound.
    paused_at_bound: AtomicU64,
    /// For how many milliseconds calls have waited, in all.
    waited: AtomicU64,
    rest: [u64; 235],
    /// Calls left out.
    left_out: [LeftOut; LEFT_OUT_COUNTERS],
}

const _: () = assert!(CONTROL_LENGTH == 4096 && CONTROL_END == CHUNK_HEAD_LENGTH);
const _: () = assert!(offset_of!(Control, left_out) == 2048);

/// A counter of its own cache line.
#[derive(Debug)]
#[repr(C, align(64))]
struct LeftOut(AtomicU64);

/// Whether recording is paused: a word that changes with every pause and every end of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pausing(u64);

impl Pausing {
    /// Set in every word that a recorder has written.
    const WRITTEN: u64 = 1;
    const PAUSED: u64 = 2;
    const REFUSED: u64 = 4;
    const CHANGE: u64 = 1 << 32;
    /// A word that is in no chunk.
    pub const NONE: Self = Self(0);
    /// The word while there is no trace.
    const NO_FILE: u64 = 1 << 31;

    /// Whether recording is paused.
    pub fn is_paused(self) -> bool {
        self.0 & Self::PAUSED != 0
    }

    /// Whether the recorder was started with options that allow no pause.
    pub fn is_refused(self) -> bool {
        self.0 & Self::REFUSED != 0
    }

    /// How many pauses have begun.
    pub fn pauses(self) -> u32 {
        ((self.0 >> 32) as u32).div_ceil(2)
    }
}

impl Control {
    /// One of no file, in which nothing changes.
    pub const fn of_no_file() -> Self {
        Self {
            head: [0; CHUNK_HEAD_LENGTH],
            end: AtomicU64::new(0),
            incomplete: AtomicU64::new(0),
            pausing: AtomicU64::new(Pausing::NO_FILE),
            paused: AtomicU64::new(0),
            resumed: AtomicU64::new(0),
            keeps_asked: AtomicU64::new(0),
            keeps_served: AtomicU64::new(0),
            reuse_from: AtomicU64::new(0),
            pause_beyond: AtomicU64::new(0),
            wait_beyond: AtomicU64::new(0),
            wait_until: AtomicU64::new(0),
            paused_at_bound: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            rest: [0; 235],
            left_out: [const { LeftOut(AtomicU64::new(0)) }; LEFT_OUT_COUNTERS],
        }
    }

    /// Begins, recording or not; `can_pause` says whether that may change. By the recorder, before
    /// others see the chunk.
    pub fn begin(&self, end: u64, can_pause: bool, paused: Option<u64>) {
        let mut word = Pausing::WRITTEN;
        if !can_pause {
            word |= Pausing::REFUSED;
        }
        self.pausing.store(word, Ordering::Relaxed);
        if let Some(ticks) = paused {
            self.pause(ticks);
        }
        self.end.store(end, Ordering::Release);
    }

    /// Whether recording is paused.
    #[inline(always)]
    pub fn pausing(&self) -> Pausing {
        Pausing(self.pausing.load(Ordering::Acquire))
    }

    /// When the last pause began and when the last one ended; 0 if none has.
    pub fn pause_ticks(&self) -> (u64, u64) {
        let resumed = self.resumed.load(Ordering::Acquire);
        (self.paused.load(Ordering::Acquire), resumed)
    }

    /// Pauses recording at that moment. False if it is paused or cannot be.
    pub fn pause(&self, ticks: u64) -> bool {
        self.change(|word| !word.is_paused() && !word.is_refused(), ticks)
    }

    /// Ends a pause at that moment. False if there is none.
    pub fn resume(&self, ticks: u64) -> bool {
        self.change(Pausing::is_paused, ticks)
    }

    fn change(&self, may: impl Fn(Pausing) -> bool, ticks: u64) -> bool {
        let mut word = self.pausing();
        loop {
            if word.0 & Pausing::WRITTEN == 0 || !may(word) {
                return false;
            }
            let place = if word.is_paused() {
                &self.resumed
            } else {
                // It is read while the pause lasts: as long as it has no end.
                &self.paused
            };
            // Before the word, by which others find it.
            let before = place.swap(ticks, Ordering::AcqRel);
            let next = (word.0 ^ Pausing::PAUSED).wrapping_add(Pausing::CHANGE);
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            match self
                .pausing
                .compare_exchange(word.0, next, success, failure)
            {
                Ok(_) => return true,
                Err(now) => {
                    // Another one was faster, whose ticks these may have replaced.
                    let _ = place.compare_exchange(ticks, before, success, failure);
                    word = Pausing(now);
                }
            }
        }
    }

    /// Says, as the flight recorder, that requests up to that number are served; with 0, that there is
    /// one.
    pub fn serve_keeps(&self, number: u64) {
        self.keeps_served
            .store(number.saturating_add(1), Ordering::Release);
    }

    /// Where chunks begin that later calls may name again as blobs.
    pub fn reuse_from(&self) -> u64 {
        self.reuse_from.load(Ordering::Acquire)
    }

    /// Later calls name no blobs again that are in the file now. Returns where it ends.
    pub fn end_reuse(&self) -> u64 {
        let end = self.end.load(Ordering::Acquire);
        self.reuse_from.store(end, Ordering::Release);
        end
    }

    /// Bounds the file, as the flight recorder: where it is longer than `pause`, recording is paused,
    /// and where it is longer than `wait`, what must be recorded waits, until a time in nanoseconds
    /// of `CLOCK_MONOTONIC`.
    pub fn set_bounds(&self, pause: u64, wait: u64, until: u64) {
        self.wait_beyond.store(wait, Ordering::Relaxed);
        self.wait_until.store(until, Ordering::Relaxed);
        self.pause_beyond.store(pause, Ordering::Release);
    }

    /// By the recorder, before it makes the file longer: pauses recording if it is longer than the
    /// bound. True if the caller is to wait for a millisecond, and to ask again. `now` gives ticks,
    /// and nanoseconds of `CLOCK_MONOTONIC`.
    #[inline]
    pub fn is_at_bound(&self, now: impl Fn() -> (u64, u64)) -> bool {
        let bound = self.pause_beyond.load(Ordering::Acquire);
        let end = self.end.load(Ordering::Relaxed);
        bound != 0 && end > bound && self.meet_bound(end, now())
    }

    #[cold]
    fn meet_bound(&self, end: u64, (ticks, nanoseconds): (u64, u64)) -> bool {
        if self.pause(ticks) {
            let number = self.pausing().pauses();
            self.paused_at_bound.store(number.into(), Ordering::Release);
        }
        let waits = end > self.wait_beyond.load(Ordering::Relaxed)
            && nanoseconds < self.wait_until.load(Ordering::Relaxed);
        if waits {
            self.waited.fetch_add(1, Ordering::Relaxed);
        }
        waits
    }

    /// Ends the pause that the recorder has begun at the bound, if it still lasts. False if there is
    /// none.
    pub fn resume_after_bound(&self, ticks: u64) -> bool {
        let number = self.paused_at_bound.swap(0, Ordering::AcqRel);
        number != 0 && number == u64::from(self.pausing().pauses()) && self.resume(ticks)
    }

    /// For how many milliseconds calls have waited because the file was longer than its bound: the
    /// sum over all threads.
    pub fn waited(&self) -> u64 {
        self.waited.load(Ordering::Relaxed)
    }

    /// Asks the flight recorder to keep what it has. The number of the request, from 1; `None` if
    /// there is no flight recorder.
    pub fn ask_to_keep(&self) -> Option<u64> {
        (self.keeps_served.load(Ordering::Acquire) != 0)
            .then(|| self.keeps_asked.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// How many requests there were.
    pub fn keeps_asked(&self) -> u64 {
        self.keeps_asked.load(Ordering::Acquire)
    }

    /// How many of them are served.
    pub fn kept(&self) -> u64 {
        self.keeps_served.load(Ordering::Acquire).saturating_sub(1)
    }

    /// Counts a call that a thread has left out; each thread has an ordinal of its own, from 0.
    #[inline]
    pub fn leave_out(&self, thread: u32) {
        let last = LEFT_OUT_COUNTERS - 1;
        let at = (thread as usize).min(last);
        let Some(LeftOut(counter)) = self.left_out.get(at) else {
            return;
        };
        if at == last {
            counter.fetch_add(1, Ordering::Relaxed);
        } else {
            // Nobody else writes it.
            counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// Calls that all threads have left out.
    pub fn left_out(&self) -> u64 {
        let counters = self.left_out.iter();
        counters
            .map(|LeftOut(counter)| counter.load(Ordering::Relaxed))
            .fold(0, u64::saturating_add)
    }
}

/// That a trace lacks something because its file could not grow; as a word, 0 is a trace that lacks
/// nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Incomplete {
    /// Calls are missing.
    pub lacks_calls: bool,
    /// Payloads are missing, which the policies would have kept.
    pub lacks_payloads: bool,
    /// Call stacks, markers or facts about program and machine are missing.
    pub lacks_others: bool,
    /// Because of the limit that the user has set; otherwise because of `error`.
    pub is_limited: bool,
    /// The system's error number.
    pub error: u32,
}

impl Incomplete {
    const LACKS_OTHERS: u64 = 1 << 32;
    const LACKS_CALLS: u64 = 1 << 33;
    /// Since version 1.12, as the next.
    const LACKS_PAYLOADS: u64 = 1 << 34;
    const IS_LIMITED: u64 = 1 << 35;

    /// As it is stored.
    pub fn word(self) -> u64 {
        let flags = [
            (self.lacks_others, Self::LACKS_OTHERS),
            (self.lacks_calls, Self::LACKS_CALLS),
            (self.lacks_payloads, Self::LACKS_PAYLOADS),
            (self.is_limited, Self::IS_LIMITED),
        ];
        let set = flags.into_iter().filter(|(is_set, _)| *is_set);
        set.fold(u64::from(self.error), |word, (_, flag)| word | flag)
    }

    /// What a stored word says.
    pub fn from_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self {
            lacks_calls: word & Self::LACKS_CALLS != 0,
            lacks_payloads: word & Self::LACKS_PAYLOADS != 0,
            lacks_others: word & Self::LACKS_OTHERS != 0,
            is_limited: word & Self::IS_LIMITED != 0,
            error: word as u32,
        })
    }

    /// What is missing with what was missing before; the reason is the first one.
    pub fn after(self, before: Option<Self>) -> Self {
        let Some(before) = before else {
            return self;
        };
        Self {
            lacks_calls: self.lacks_calls | before.lacks_calls,
            lacks_payloads: self.lacks_payloads | before.lacks_payloads,
            lacks_others: self.lacks_others | before.lacks_others,
            ..before
        }
    }
}

/// Takes `least` bytes of the file, which is claimed up to `end`, and as many more as let the next
/// claim begin at a multiple of `alignment`. Returns where they begin and end.
pub fn claim(end: &AtomicU64, least: u64, alignment: u64) -> Option<(u64, u64)> {
    let end_of = |position: u64| {
        position
            .saturating_add(least)
            .checked_next_multiple_of(alignment)
    };
    let claimed = end.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end_of);
    let position = claimed.ok()?;
    Some((position, end_of(position)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_at_its_bound_is_paused_once() {
        let control = Control::of_no_file();
        control.begin(4096, true, None);
        let now = || (5, 100);
        assert!(!control.is_at_bound(now) && !control.resume_after_bound(6));
        control.set_bounds(4096, 8192, 101);
        assert!(!control.is_at_bound(now) && !control.pausing().is_paused());
        control.end.store(8192, Ordering::Relaxed);
        assert!(!control.is_at_bound(now) && control.pausing().is_paused());
        control.end.store(8193, Ordering::Relaxed);
        assert!(control.is_at_bound(now) && !control.is_at_bound(|| (5, 101)));
        assert_eq!((control.waited(), control.pausing().pauses()), (1, 1));
        assert!(control.resume_after_bound(6) && !control.resume_after_bound(7));
        // Who has paused it meanwhile ends that.
        assert!(control.is_at_bound(now) && control.resume(8) && control.pause(9));
        assert!(!control.resume_after_bound(10) && control.pausing().is_paused());
    }

    #[test]
    fn pauses_begin_and_end_once() {
        let control = Control::of_no_file();
        assert!(!control.pause(1) && !control.resume(1), "no file");
        control.begin(4096, true, None);
        assert!(!control.resume(1));
        let mut words = vec![control.pausing()];
        for pause in 1..=3 {
            assert!(control.pause(10 * u64::from(pause)) && !control.pause(7));
            assert!(control.pausing().is_paused());
            assert_eq!(control.pausing().pauses(), pause);
            words.push(control.pausing());
            assert!(control.resume(10 * u64::from(pause) + 5) && !control.resume(7));
            assert_eq!(control.pausing().pauses(), pause);
            words.push(control.pausing());
        }
        assert_eq!(control.pause_ticks(), (30, 35));
        let mut distinct = words.iter().map(|word| word.0).collect::<Vec<_>>();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), words.len());
        control.begin(4096, false, None);
        assert!(control.pausing().is_refused() && !control.pause(1));
        control.begin(4096, true, Some(3));
        assert!(control.pausing().is_paused());
    }

    /// Who sees a pause sees its ticks: under Miri, with the orders that the memory model allows.
    #[test]
    fn pauses_are_seen_with_their_ticks() {
        const PAUSES: u32 = 4;
        let control = Control::of_no_file();
        control.begin(4096, true, None);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for pause in 1..=u64::from(PAUSES) {
                    assert!(control.pause(10 * pause));
                    assert!(pause == PAUSES.into() || control.resume(10 * pause + 5));
                }
            });
            loop {
                let word = control.pausing();
                let (paused, resumed) = control.pause_ticks();
                let begun = u64::from(word.pauses());
                // Later ones may have begun and ended since.
                assert!(paused >= 10 * begun, "pause {begun} at {paused}");
                let ended = begun - u64::from(word.is_paused());
                assert!(ended == 0 || resumed >= 10 * ended + 5, "{ended} {resumed}");
                if begun == PAUSES.into() {
                    break;
                }
                std::thread::yield_now();
            }
        });
    }

    #[test]
    fn a_pause_has_the_ticks_of_who_began_it() {
        let control = Control::of_no_file();
        control.begin(4096, true, None);
        // Another one is faster, after the word was read.
        let may_pause = |word: Pausing| {
            control.pause(5);
            !word.is_paused()
        };
        assert!(!control.change(may_pause, 9));
        assert_eq!(control.pause_ticks(), (5, 0));
        assert_eq!(control.pausing().pauses(), 1);
    }

    #[test]
    fn flight_recorders_serve_requests() {
        let control = Control::of_no_file();
        assert_eq!(control.ask_to_keep(), None);
        control.serve_keeps(0);
        assert_eq!(
            (control.ask_to_keep(), control.ask_to_keep()),
            (Some(1), Some(2))
        );
        control.serve_keeps(1);
        assert_eq!((control.keeps_asked(), control.kept()), (2, 1));
    }

    #[test]
    fn every_thread_counts() {
        let control = Control::of_no_file();
        for thread in [0, 0, 30, 31, 32, u32::MAX] {
            control.leave_out(thread);
        }
        assert_eq!(control.left_out(), 6);
    }

    #[test]
    fn incomplete_traces() {
        assert_eq!(Incomplete::from_word(0), None);
        let calls = Incomplete {
            lacks_calls: true,
            error: 28,
            ..Incomplete::default()
        };
        let payloads = Incomplete {
            lacks_payloads: true,
            is_limited: true,
            ..Incomplete::default()
        };
        let others = Incomplete {
            lacks_others: true,
            error: u32::MAX,
            ..Incomplete::default()
        };
        for incomplete in [calls, payloads, others] {
            assert_eq!(Incomplete::from_word(incomplete.word()), Some(incomplete));
            assert_eq!(incomplete.after(None), incomplete);
        }
        let both = calls.after(Some(payloads));
        assert!(both.lacks_calls && both.lacks_payloads && both.is_limited && both.error == 0);
    }

    #[test]
    fn claims_do_not_overlap() {
        let start = 1 << 20;
        let end = AtomicU64::new(start);
        for (least, alignment, expected) in [
            (8192, 4096, Some((start, start + 8192))),
            (4096, 65536, Some((start + 8192, start + 65536))),
            (4096, 4096, Some((start + 65536, start + 69632))),
            (u64::MAX, 4096, None),
        ] {
            assert_eq!(claim(&end, least, alignment), expected);
        }
        assert_eq!(end.into_inner(), start + 69632);
    }
}
