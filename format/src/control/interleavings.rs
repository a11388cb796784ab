//! All states that two recording threads, one after the other in the same slots, and a mover can come to, whoever of them takes
//! the next step: in each of them, which may be the last if the processes are killed, all that was written is there once.

use std::collections::HashSet;

use super::*;

/// What a file holds of a chunk: the number that its note says, and what its records are of. Zero: nothing.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Content {
    note: u8,
    records: u8,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    /// Position, length and state of each slot.
    slots: [[u64; 3]; 2],
    tickets: u32,
    /// Two of the first thread, then two of the second.
    stages: [Content; 4],
    /// Closed copies, in order of number.
    copies: Vec<Content>,
    thread: Thread,
    mover: Mover,
}

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    TakeSlot(usize),
    Place(usize),
    Empty,
    WriteNote,
    WriteRecords,
    Look,
    TakeBack,
    MoveOther,
    EmptyOther,
    LookAgain,
    MoveCurrent,
    HandOver,
    CloseLook,
    CloseTakeBack,
    CloseMove,
    CloseLookAgain,
    CloseEmpty,
    /// The way, and whether it is the stage that is being filled.
    Free(usize, bool),
    CloseCurrent,
    CloseEmptyCurrent,
    End,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Thread {
    step: Step,
    /// The first or the second.
    ordinal: usize,
    /// Which of its stages it fills, with what.
    current: usize,
    chunk: u8,
    /// Slot of each stage, and ticket with which it was handed over.
    slots: [usize; 2],
    handed: [u32; 2],
}

/// What the mover does next.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Mover {
    Look(usize),
    LookWhere(usize, u64),
    ReadNote(usize, Full),
    ReadRecords(usize, Full, Content),
    BeginClosing(usize, Full, Content),
    Close(usize, Content),
    GiveBack(usize),
}

/// The same for all, so that only tickets tell one from the other.
const USED: u64 = 7;
/// The last chunk of each thread.
const LAST: [u8; 2] = [4, 13];

impl State {
    fn first() -> Self {
        Self {
            slots: [[0; 3]; 2],
            tickets: 0,
            stages: [Content::default(); 4],
            copies: Vec::new(),
            thread: Thread::begin(0),
            mover: Mover::Look(0),
        }
    }

    /// Does something with a slot, as it is done with the one that is shared.
    fn slot<T>(&mut self, at: usize, act: impl FnOnce(&Slot) -> T) -> T {
        let [position, length, state] = self.slots[at].map(AtomicU64::new);
        let slot = Slot {
            position,
            length,
            state,
        };
        let result = act(&slot);
        self.slots[at] = [slot.position, slot.length, slot.state].map(AtomicU64::into_inner);
        result
    }

    /// The thread's stage in the file.
    fn stage(&mut self, which: usize) -> &mut Content {
        &mut self.stages[2 * self.thread.ordinal + which]
    }

    fn copy(&mut self, content: Content) {
        self.copies.push(content);
        self.copies.sort_by_key(|copy| copy.note);
    }

    /// The thread takes a step. False if it has ended, or waits for a slot.
    fn step_thread(&mut self) -> bool {
        let current = self.thread.current;
        let other = 1 - current;
        let slots = self.thread.slots;
        let handed = self.thread.handed;
        let chunk = self.thread.chunk;
        let choose = |holds, yes, no| if holds { yes } else { no };
        let next = match self.thread.step {
            Step::TakeSlot(which) => {
                let Some(at) = (0..2).find(|&at| self.slots[at][2] == FREE) else {
                    return false;
                };
                self.slot(at, |slot| slot.state.store(HELD, Ordering::Relaxed));
                self.thread.slots[which] = at;
                Step::Place(which)
            }
            Step::Place(which) => {
                let position = (2 * self.thread.ordinal + which) as u64;
                self.slot(slots[which], |slot| {
                    slot.position.store(position, Ordering::Relaxed);
                });
                choose(which == 0, Step::TakeSlot(1), Step::Empty)
            }
            Step::Empty => {
                self.stage(current).note = 0;
                Step::WriteNote
            }
            Step::WriteNote => {
                self.stage(current).note = chunk;
                Step::WriteRecords
            }
            Step::WriteRecords => {
                self.stage(current).records = chunk;
                let is_last = chunk == LAST[self.thread.ordinal];
                choose(is_last, Step::CloseLook, Step::Look)
            }
            Step::Look => {
                let is_held = self.slot(slots[other], Slot::is_held);
                choose(is_held, Step::HandOver, Step::TakeBack)
            }
            Step::TakeBack => {
                let is_back = self.slot(slots[other], |slot| slot.take_back(handed[other], USED));
                choose(is_back, Step::MoveOther, Step::LookAgain)
            }
            Step::MoveOther => {
                let content = *self.stage(other);
                self.copy(content);
                Step::EmptyOther
            }
            Step::EmptyOther => {
                self.stage(other).note = 0;
                Step::HandOver
            }
            Step::LookAgain => {
                let is_held = self.slot(slots[other], Slot::is_held);
                choose(is_held, Step::HandOver, Step::MoveCurrent)
            }
            Step::MoveCurrent => {
                let content = *self.stage(current);
                self.copy(content);
                self.thread.chunk += 1;
                Step::Empty
            }
            Step::HandOver => {
                self.tickets += 1;
                let ticket = self.tickets;
                self.slot(slots[current], |slot| slot.hand_over(ticket, USED));
                self.thread.handed[current] = ticket;
                self.thread.current = other;
                self.thread.chunk += 1;
                Step::Empty
            }
            Step::CloseLook => {
                let is_held = self.slot(slots[other], Slot::is_held);
                choose(is_held, Step::CloseEmpty, Step::CloseTakeBack)
            }
            Step::CloseTakeBack => {
                let is_back = self.slot(slots[other], |slot| slot.take_back(handed[other], USED));
                choose(is_back, Step::CloseMove, Step::CloseLookAgain)
            }
            Step::CloseMove => {
                let content = *self.stage(other);
                self.copy(content);
                Step::CloseEmpty
            }
            Step::CloseLookAgain => {
                let is_held = self.slot(slots[other], Slot::is_held);
                choose(is_held, Step::CloseEmpty, Step::Free(0, false))
            }
            Step::CloseEmpty => {
                self.stage(other).note = 0;
                Step::Free(0, false)
            }
            Step::Free(way, is_current) => {
                let at = slots[if is_current { current } else { other }];
                let is_free = self.slot(at, |slot| slot.try_free(FREEING[way]));
                let is_over = is_free || way + 1 == FREEING.len();
                match (is_over, is_current, self.thread.ordinal) {
                    (false, ..) => Step::Free(way + 1, is_current),
                    (true, false, _) => Step::CloseCurrent,
                    (true, true, 0) => {
                        self.thread = Thread::begin(1);
                        return true;
                    }
                    (true, true, _) => Step::End,
                }
            }
            Step::CloseCurrent => {
                let content = *self.stage(current);
                self.copy(content);
                Step::CloseEmptyCurrent
            }
            Step::CloseEmptyCurrent => {
                self.stage(current).note = 0;
                Step::Free(0, true)
            }
            Step::End => return false,
        };
        self.thread.step = next;
        true
    }

    /// The mover takes a step.
    fn step_mover(&mut self) {
        let behind = |at: usize| Mover::Look((at + 1) % 2);
        self.mover = match self.mover.clone() {
            Mover::Look(at) => match self.slots[at][2] {
                state if state & STATE_BITS == FULL => Mover::LookWhere(at, state),
                _ => behind(at),
            },
            Mover::LookWhere(at, state) => {
                // As `full` puts it together, which has read the state before.
                let mut slots = self.slots;
                slots[at][2] = state;
                let full = Self {
                    slots,
                    ..self.clone()
                }
                .slot(at, Slot::full);
                full.map_or(behind(at), |full| Mover::ReadNote(at, full))
            }
            Mover::ReadNote(at, full) => {
                let note = self.stages[full.position as usize].note;
                Mover::ReadRecords(at, full, Content { note, records: 0 })
            }
            Mover::ReadRecords(at, full, read) => {
                let records = self.stages[full.position as usize].records;
                match read.note {
                    0 => behind(at),
                    _ => Mover::BeginClosing(at, full, Content { records, ..read }),
                }
            }
            Mover::BeginClosing(at, full, read) => {
                match self.slot(at, |slot| slot.begin_closing(&full)) {
                    true => Mover::Close(at, read),
                    false => behind(at),
                }
            }
            Mover::Close(at, read) => {
                self.copy(read);
                Mover::GiveBack(at)
            }
            Mover::GiveBack(at) => {
                self.slot(at, Slot::give_back);
                behind(at)
            }
        };
    }

    fn check(&self) {
        let is_whole = |content: &Content| content.note == content.records && content.note != 0;
        assert!(self.copies.iter().all(is_whole), "a copy of two chunks");
        let is_once = self.copies.is_sorted_by(|a, b| a.note < b.note);
        assert!(is_once, "a chunk was copied twice");
        // The chunk that is being filled, and all before it.
        let written = match (self.thread.ordinal, self.thread.step) {
            (0, _) => (1..self.thread.chunk).collect(),
            (_, _) => (1..=LAST[0])
                .chain(11..self.thread.chunk)
                .collect::<Vec<u8>>(),
        };
        for chunk in written {
            let content = Content {
                note: chunk,
                records: chunk,
            };
            let is_there = self.copies.contains(&content) || self.stages.contains(&content);
            assert!(is_there, "chunk {chunk} is lost");
        }
    }
}

impl Thread {
    fn begin(ordinal: usize) -> Self {
        Self {
            step: Step::TakeSlot(0),
            ordinal,
            current: 0,
            chunk: [1, 11][ordinal],
            slots: [0; 2],
            handed: [0; 2],
        }
    }
}

#[test]
fn in_every_state_all_is_there_once() {
    let mut known = HashSet::from([State::first()]);
    let mut open = vec![State::first()];
    let mut is_moved = [false; 2];
    let mut has_ended = false;
    while let Some(state) = open.pop() {
        state.check();
        let mut after_thread = state.clone();
        let thread_goes_on = after_thread.step_thread();
        let mut after_mover = state.clone();
        after_mover.step_mover();
        is_moved[0] |= matches!(state.thread.step, Step::MoveOther);
        is_moved[1] |= matches!(state.mover, Mover::GiveBack(_));
        if state.thread.step == Step::End && matches!(state.mover, Mover::Look(_)) {
            has_ended = true;
            assert!(
                state.slots.iter().all(|slot| slot[2] == FREE),
                "a slot is lost"
            );
            assert_eq!(state.copies.len(), 7);
        }
        let is_stuck = !thread_goes_on && after_mover == state && state.thread.step != Step::End;
        assert!(!is_stuck);
        for next in [after_thread, after_mover] {
            if !known.contains(&next) {
                known.insert(next.clone());
                open.push(next);
            }
        }
    }
    assert!(has_ended && is_moved == [true; 2]);
    println!("{} states", known.len());
}
