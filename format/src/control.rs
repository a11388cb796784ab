//! What a recorder shares with the process that moves its full stages to their places: a chunk of the trace, mapped by both.
//!
//! A recording thread hands a full stage over and goes on in another one; the mover, which is `cutape record` itself, copies it
//! to a chunk of its own and gives it back. Neither ever waits: a thread that finds no stage takes one back and moves it by
//! itself, and a copy that is then not complete does not count.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::layout::{CHUNK_ALIGNMENT, CHUNK_HEAD_LENGTH, FILE_HEAD_LENGTH};

/// Where the chunk begins: behind the file head.
pub const CONTROL_POSITION: u64 = FILE_HEAD_LENGTH as u64;
/// Its length, head included.
pub const CONTROL_LENGTH: usize = 16 << 10;

/// What full stages become ends at a multiple of this, so that the next one begins there: file systems that keep a file's pages in
/// larger pieces take a third less time then (measured with ext4 on Linux 6.18).
pub const MOVE_ALIGNMENT: u64 = 64 << 10;

/// What a copy of that many bytes, head included, ends at a multiple of. Only what a full stage becomes is worth a place of its own.
pub fn copy_alignment(length: u64) -> u64 {
    if length > MOVE_ALIGNMENT / 2 {
        MOVE_ALIGNMENT
    } else {
        CHUNK_ALIGNMENT
    }
}

/// Stages that can be handed over; threads beyond these move theirs by themselves.
const SLOTS: usize = 676;

/// The chunk as both have it mapped. All zero but for its head when it is new.
#[repr(C)]
pub struct Control {
    head: [AtomicU64; CHUNK_HEAD_LENGTH / 8],
    /// Where the next chunk of the file begins.
    end: AtomicU64,
    /// The file is allocated on disk up to there.
    allocated: AtomicU64,
    /// At most so much is allocated before it is needed, and a quarter of the file while that is less.
    most_ahead: AtomicU64,
    /// Not zero while there is a mover.
    attended: AtomicU64,
    /// No slot behind so many has been in use.
    used_slots: AtomicU64,
    /// How often a stage was handed over.
    tickets: AtomicU64,
    reserved: [AtomicU64; 2],
    slots: [Slot; SLOTS],
}

const _: () = assert!(size_of::<Control>() <= CONTROL_LENGTH);

/// A stage as the two see it. Only the thread that has the stage takes and frees a slot and hands the stage over.
#[repr(C)]
pub struct Slot {
    position: AtomicU64,
    length: AtomicU64,
    /// Two bits say what is the matter; for a full stage come 30 bits with the bytes of its records and 32 with its ticket, by
    /// which a slot that was taken back, and has a full stage again, of whichever thread, is told from what it was.
    state: AtomicU64,
}

const FREE: u64 = 0;
/// The thread's: it is being filled, or it was moved and may be filled again.
const HELD: u64 = 1;
/// The mover may have it.
const FULL: u64 = 2;
/// The mover has copied all of it and is closing the copy.
const CLOSING: u64 = 3;
/// As closing, and the thread has no use for the slot any more.
const LEFT: u64 = CLOSING | 1 << 2;
/// From which state a thread that has no use for a slot any more brings it to which; the mover gives back meanwhile.
const FREEING: [(u64, u64); 3] = [(HELD, FREE), (CLOSING, LEFT), (HELD, FREE)];
const STATE_BITS: u64 = 3;
const MOST_USED: u64 = (1 << 30) - 1;

/// A stage that was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Full {
    /// Of the stage, in the file.
    pub position: u64,
    /// Bytes of the stage, head included.
    pub length: u64,
    /// By which this is told from all else that is handed over.
    pub ticket: u32,
    /// Bytes of its records.
    pub used: u64,
}

fn full(ticket: u32, used: u64) -> u64 {
    FULL | used << 2 | u64::from(ticket) << 32
}

impl Control {
    /// Sets what is known at the beginning: where chunks may begin, and how much may be allocated ahead; then the chunk's head,
    /// by which a mover knows that all is there.
    pub fn begin(&self, end: u64, most_ahead: u64, head: &[u8; CHUNK_HEAD_LENGTH]) {
        self.end.store(end, Ordering::Relaxed);
        self.allocated.store(end, Ordering::Relaxed);
        self.most_ahead.store(most_ahead, Ordering::Relaxed);
        let (words, _) = head.as_chunks::<8>();
        for (place, word) in self.head.iter().zip(words) {
            place.store(u64::from_ne_bytes(*word), Ordering::Release);
        }
    }

    /// Takes that many bytes of the file, a multiple of the chunk alignment, and as many more as let the next claim begin at a
    /// multiple of `alignment`; where they begin and how many they are. `allocate` gets a start and a length, and says whether
    /// that part of the file has its place on disk now: so the file is never cut within a chunk, whenever the process ends. It
    /// also gets whether the part is the claimed one alone, where nobody else writes: where a file system cannot allocate, only
    /// that may be written to.
    pub fn claim(
        &self,
        least: u64,
        alignment: u64,
        mut allocate: impl FnMut(u64, u64, bool) -> bool,
    ) -> Option<(u64, u64)> {
        let behind = |position: u64| {
            position
                .saturating_add(least)
                .checked_next_multiple_of(alignment)
        };
        let claimed = self
            .end
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, behind);
        let position = claimed.ok()?;
        let end = behind(position)?;
        let claimed = Some((position, end - position));
        let known = self.allocated.load(Ordering::Acquire);
        if end <= known {
            return claimed;
        }
        let most = self.most_ahead.load(Ordering::Relaxed);
        let ahead = (end / 4).min(most) / CHUNK_ALIGNMENT * CHUNK_ALIGNMENT;
        // From where the file ends, since others may be at what lies between.
        let start = known.min(position);
        for end in [end.saturating_add(ahead), end] {
            if allocate(start, end - start, false) {
                self.allocated.fetch_max(end, Ordering::AcqRel);
                return claimed;
            }
        }
        claimed.filter(|&(position, length)| allocate(position, length, true))
    }

    /// Behind all places that were taken by now.
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Whether there is a mover.
    pub fn is_attended(&self) -> bool {
        self.attended.load(Ordering::Relaxed) != 0
    }

    /// Says whether there is a mover.
    pub fn attend(&self, is_there: bool) {
        self.attended.store(is_there.into(), Ordering::Relaxed);
    }

    /// A slot for a stage; `None` if all are in use.
    pub fn take_slot(&self, position: u64, length: u64) -> Option<&Slot> {
        let (at, slot) = self.slots.iter().enumerate().find(|(_, slot)| {
            slot.state
                .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        })?;
        slot.position.store(position, Ordering::Relaxed);
        slot.length.store(length, Ordering::Relaxed);
        self.used_slots.fetch_max(at as u64 + 1, Ordering::Relaxed);
        Some(slot)
    }

    /// A ticket, for a stage that is about to be handed over.
    pub fn ticket(&self) -> u32 {
        self.tickets.fetch_add(1, Ordering::Relaxed) as u32
    }

    /// The slots that have been in use.
    pub fn slots(&self) -> &[Slot] {
        let used = self.used_slots.load(Ordering::Relaxed) as usize;
        self.slots.get(..used).unwrap_or(&self.slots)
    }
}

impl Slot {
    /// The thread hands its stage over, with that many bytes of records. False if they are too many to be told.
    pub fn hand_over(&self, ticket: u32, used: u64) -> bool {
        let fits = used <= MOST_USED;
        if fits {
            // What is in the stage comes before this.
            self.state.store(full(ticket, used), Ordering::Release);
        }
        fits
    }

    /// Whether the stage is the thread's: never handed over, or moved since.
    pub fn is_held(&self) -> bool {
        self.state.load(Ordering::Acquire) == HELD
    }

    /// The thread takes back what it handed over; false if the mover has moved it, or is just about to.
    pub fn take_back(&self, ticket: u32, used: u64) -> bool {
        self.state
            .compare_exchange(
                full(ticket, used),
                HELD,
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// The thread has no use for the slot any more. One whose stage is full stays taken; one that the mover is closing at that
    /// moment is freed by the mover.
    pub fn free(&self) {
        let _ = FREEING.iter().any(|&way| self.try_free(way));
    }

    fn try_free(&self, (known, next): (u64, u64)) -> bool {
        self.state
            .compare_exchange(known, next, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    /// For the mover: the stage, if it is full.
    pub fn full(&self) -> Option<Full> {
        let state = self.state.load(Ordering::Acquire);
        (state & STATE_BITS == FULL).then(|| Full {
            position: self.position.load(Ordering::Relaxed),
            length: self.length.load(Ordering::Relaxed),
            ticket: (state >> 32) as u32,
            used: state >> 2 & MOST_USED,
        })
    }

    /// For the mover: the copy is complete. False if the thread has taken the stage back; then the copy may be of anything.
    pub fn begin_closing(&self, stage: &Full) -> bool {
        self.state
            .compare_exchange(
                full(stage.ticket, stage.used),
                CLOSING,
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// For the mover: the copy counts, and the thread may fill the stage again.
    pub fn give_back(&self) {
        let is_held = self
            .state
            .compare_exchange(CLOSING, HELD, Ordering::Release, Ordering::Relaxed)
            .is_ok();
        if !is_held {
            self.state.store(FREE, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod interleavings;

#[cfg(test)]
mod tests {
    use super::*;

    fn control() -> Box<Control> {
        let slot = || Slot {
            position: AtomicU64::new(0),
            length: AtomicU64::new(0),
            state: AtomicU64::new(FREE),
        };
        let zero = || AtomicU64::new(0);
        Box::new(Control {
            head: core::array::from_fn(|_| zero()),
            end: zero(),
            allocated: zero(),
            most_ahead: zero(),
            attended: zero(),
            used_slots: zero(),
            tickets: zero(),
            reserved: core::array::from_fn(|_| zero()),
            slots: core::array::from_fn(|_| slot()),
        })
    }

    #[test]
    fn a_stage_goes_to_the_mover_and_back() {
        let control = control();
        let slot = control.take_slot(4096, 65536).unwrap();
        assert!(slot.is_held());
        assert_eq!(slot.full(), None);
        assert!(slot.hand_over(7, 1000));
        assert!(!slot.is_held());
        let stage = control.slots()[0].full().unwrap();
        let expected = Full {
            position: 4096,
            length: 65536,
            ticket: 7,
            used: 1000,
        };
        assert_eq!(stage, expected);
        assert!(slot.begin_closing(&stage));
        assert!(!slot.take_back(7, 1000), "the mover is closing it");
        slot.give_back();
        assert!(slot.is_held());
        slot.free();
        assert_eq!(control.slots().len(), 1);
        assert!(!control.slots()[0].is_held());
        // The thread ends while a stage of its is being closed: the mover frees the slot.
        let slot = control.take_slot(4096, 65536).unwrap();
        slot.hand_over(8, 1000);
        assert!(slot.begin_closing(&slot.full().unwrap()));
        slot.free();
        assert!(!core::ptr::eq(slot, control.take_slot(0, 1).unwrap()));
        slot.give_back();
        assert!(core::ptr::eq(slot, control.take_slot(0, 1).unwrap()));
    }

    #[test]
    fn a_copy_of_what_was_taken_back_does_not_count() {
        let control = control();
        let slot = control.take_slot(4096, 65536).unwrap();
        slot.hand_over(7, 1000);
        let stage = slot.full().unwrap();
        assert!(slot.take_back(7, 1000));
        assert!(!slot.begin_closing(&stage), "the thread has it");
        slot.hand_over(8, 1000);
        assert!(!slot.begin_closing(&stage), "it is full of something else");
        // Another thread's, that does the same and has the slot now.
        assert!(slot.take_back(8, 1000));
        slot.free();
        assert!(control.take_slot(8192, 65536).is_some());
        assert_ne!(control.ticket(), control.ticket());
        assert!(!slot.hand_over(9, 1 << 30), "too long to be told");
    }

    #[test]
    fn slots_are_as_many_as_there_are() {
        let control = control();
        for at in 0..SLOTS {
            assert!(control.take_slot(at as u64, 1).is_some());
        }
        assert!(control.take_slot(0, 1).is_none());
        control.slots()[5].free();
        assert!(control.take_slot(0, 1).is_some());
    }

    #[test]
    fn claims_do_not_overlap_and_are_allocated_ahead() {
        let control = control();
        control.begin(1 << 20, 64 << 10, &[0; CHUNK_HEAD_LENGTH]);
        let mut allocated = Vec::new();
        let mut claim = |least, alignment| {
            control.claim(least, alignment, |start, length, is_own| {
                allocated.push((start, length, is_own));
                true
            })
        };
        assert_eq!(claim(8192, 4096), Some((1 << 20, 8192)));
        assert_eq!(claim(4096, MOVE_ALIGNMENT), Some(((1 << 20) + 8192, 57344)));
        assert_eq!(claim(4096, 4096), Some(((1 << 20) + 65536, 4096)));
        assert_eq!(allocated, [(1 << 20, 8192 + 65536, false)]);
        // Where only what is claimed can be had, that is all, and the same for the next.
        for number in 0..2 {
            let position = (1 << 20) + 65536 + 4096 + number * 8192;
            let mut own = None;
            let claimed = control.claim(8192, 4096, |start, length, is_own| {
                own = is_own.then_some((start, length));
                is_own
            });
            assert_eq!((claimed, own), (Some((position, 8192)), claimed));
        }
        assert_eq!(
            control.claim(1 << 20, 4096, |_, _, _| false),
            None,
            "the disk is full"
        );
    }
}
