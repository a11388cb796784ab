//! The digests of what launches write: one number for each launch, to be compared with other
//! replays.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::compare::digest_kernel::Recorded;
use crate::place::address::Range;
use crate::report::{DifferingRange, LaunchMemory, LaunchValues, MemoryPieces};

/// Launches that are digested; what comes behind them is not.
pub(crate) const MOST_LAUNCHES: usize = 1 << 20;
/// Launches that differ from the recording whose ranges are kept.
const RANGES_OF: usize = 100;

/// What is known of launches.
#[derive(Debug, Default)]
pub(crate) struct LaunchDigests {
    /// By call.
    launches: BTreeMap<u64, Launch>,
    /// By reason.
    not_digested: BTreeMap<String, u64>,
    /// The last launch that was left out.
    left_out: Option<u64>,
    pieces: Vec<MemoryPieces>,
    /// How many launches have the ranges that differ from the recording.
    with_ranges: usize,
    /// Addresses among the parameters of the launch that is being played.
    pub words: Vec<u64>,
    /// Addresses among the parameters of kernels in graphs.
    pub graph_words: BTreeSet<u64>,
    /// Each memory of each launch.
    memory: Vec<LaunchMemory>,
    /// Of the launch that is being played: its memory, as live address and length, and the number
    /// of the first.
    pub current: (Vec<(u64, u64)>, usize),
    /// Live contexts that the driver refused to prepare.
    refused: HashSet<u64>,
}

#[derive(Debug, Default)]
struct Launch {
    value: u64,
    differs: bool,
    ranges: Vec<DifferingRange>,
}

/// Joins numbers to one that depends on their order.
fn joined(value: u64, number: u64) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    (value.rotate_left(23) ^ number).wrapping_mul(FACTOR)
}

impl LaunchDigests {
    /// The driver has refused to prepare a live context.
    pub(crate) fn refuse(&mut self, context: u64) {
        self.refused.insert(context);
    }

    /// Whether it has.
    pub(crate) fn is_refused(&self, context: u64) -> bool {
        self.refused.contains(&context)
    }

    /// Whether another launch can be digested.
    pub(crate) fn has_room(&self) -> bool {
        self.launches.len().max(self.memory.len()) < MOST_LAUNCHES
    }

    /// Adds the digest of a range, as recorded, behind a launch.
    pub(crate) fn add(&mut self, call: u64, (address, length): (u64, u64), digest: u64) {
        if self.left_out == Some(call) || (!self.has_room() && !self.launches.contains_key(&call)) {
            return;
        }
        let launch = self.launches.entry(call).or_default();
        for number in [address, length, digest] {
            launch.value = joined(launch.value, number);
        }
    }

    /// As [`Self::add`], for a digest that the recorder kept.
    pub(crate) fn add_recorded(&mut self, recorded: &Recorded, received: u64, expected: u64) {
        self.add(recorded.call, recorded.range, received);
        let Some(launch) = self.launches.get_mut(&recorded.call) else {
            return;
        };
        if received == expected || !recorded.is_in_place {
            return;
        }
        self.with_ranges += usize::from(!launch.differs);
        launch.differs = true;
        if self.with_ranges <= RANGES_OF {
            launch.ranges.push(DifferingRange {
                memory: recorded.memory.describe(),
                offset: recorded.range.0 - recorded.memory.start,
                length: recorded.range.1,
            });
        }
    }

    /// A launch is not digested, or not wholly.
    pub(crate) fn leave_out(&mut self, call: u64, why: &str) {
        self.launches.remove(&call);
        if self.left_out.replace(call) != Some(call) {
            *self.not_digested.entry(why.to_owned()).or_default() += 1;
        }
    }

    /// Adds memory that is digested in pieces; returns its number.
    pub(crate) fn add_pieces(&mut self, range: &Range, part: (u64, u64), piece: u64) -> usize {
        let count = part.1.div_ceil(piece.max(1)) as usize;
        self.pieces.push(MemoryPieces {
            memory: range.describe(),
            offset: part.0 - range.start,
            length: part.1,
            piece,
            digests: vec![None; count],
        });
        self.pieces.len() - 1
    }

    /// The digest of a piece of such memory.
    pub(crate) fn set_piece(&mut self, memory: usize, piece: usize, digest: u64) {
        let known = self.pieces.get_mut(memory);
        if let Some(place) = known.and_then(|known| known.digests.get_mut(piece)) {
            *place = Some(digest);
        }
    }

    /// Adds a part of memory, as recorded, that a launch can reach; returns its number.
    pub(crate) fn add_memory(&mut self, call: u64, range: &Range, part: (u64, u64)) -> usize {
        self.memory.push(LaunchMemory {
            call,
            made: range.made,
            offset: part.0 - range.start,
            length: part.1,
            address: part.0,
            before: None,
            after: None,
        });
        self.memory.len() - 1
    }

    /// The digest of such memory.
    pub(crate) fn set_memory(&mut self, number: usize, is_before: bool, digest: u64) {
        let Some(memory) = self.memory.get_mut(number) else {
            return;
        };
        match is_before {
            true => memory.before = Some(digest),
            false => memory.after = Some(digest),
        }
    }

    /// All of it.
    pub(crate) fn take(&mut self) -> LaunchValues {
        let all = std::mem::take(self);
        let mut values = LaunchValues {
            not_digested: all.not_digested,
            pieces: all.pieces,
            memory: all.memory,
            ..LaunchValues::default()
        };
        for (call, launch) in all.launches {
            values.values.push((call, launch.value));
            if launch.differs {
                values.differing.push((call, launch.ranges));
            }
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_launch_depends_on_all_its_digests() {
        let of = |digests: &[((u64, u64), u64)]| {
            let mut launches = LaunchDigests::default();
            for &(range, digest) in digests {
                launches.add(3, range, digest);
            }
            launches.take().values
        };
        let (one, other) = (((16, 8), 1), ((32, 8), 2));
        let table = [
            of(&[one, other]),
            of(&[other, one]),
            of(&[one]),
            of(&[((16, 8), 2), other]),
            of(&[((16, 9), 1), other]),
        ];
        for (at, values) in table.iter().enumerate() {
            assert_eq!(values.len(), 1);
            assert!(!table[..at].contains(values), "{at}");
        }
        assert_eq!(of(&[one, other]), table[0]);
    }

    #[test]
    fn a_launch_that_is_left_out_has_no_number() {
        let mut launches = LaunchDigests::default();
        launches.add(3, (16, 8), 1);
        launches.add(4, (16, 8), 1);
        for _ in 0..2 {
            launches.leave_out(3, "why");
            launches.add(3, (32, 8), 1);
        }
        let taken = launches.take();
        assert_eq!(taken.values.len(), 1);
        assert_eq!(taken.values[0].0, 4);
        assert_eq!(taken.not_digested["why"], 1);
    }

    #[test]
    fn memory_has_a_digest_before_and_one_after() {
        let memory = LaunchMemory {
            call: 3,
            made: 1,
            offset: 0,
            length: 8,
            address: 16,
            before: None,
            after: None,
        };
        let mut launches = LaunchDigests {
            memory: vec![memory],
            ..LaunchDigests::default()
        };
        launches.set_memory(0, true, 5);
        launches.set_memory(1, true, 6);
        assert_eq!(
            (launches.memory[0].before, launches.memory[0].after),
            (Some(5), None)
        );
        launches.set_memory(0, false, 7);
        let memory = launches.take().memory;
        assert_eq!((memory[0].before, memory[0].after), (Some(5), Some(7)));
    }
}
