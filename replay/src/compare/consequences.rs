//! What follows from calls that were not re-issued: which differences may be theirs.
//!
//! What a kernel reads and writes is not known. So from the first launch that was left out, or that
//! was made while memory lacks what a left-out call would have written, every difference in bytes
//! from the device may follow from it. Before that, only copies out of such memory do.
//!
//! A pause of the recording is such a cause: calls that the recorder has left out may have written any
//! device memory. What differs because of it counts as not compared, until a snapshot says what memory
//! held.

use std::collections::HashMap;

use cutape_format::layout::GapNote;
use cutape_model::{IntervalMap, MemoryGaps};
use cutape_registry::is_sticky;
use rustc_hash::FxBuildHasher;

use crate::api::Code;
use crate::report::{Consequence, Divergence};

/// Calls whose objects are remembered as missing.
pub(crate) const OBJECTS_KEPT: usize = 1 << 20;

/// Number of a cause in [`Consequences::causes`].
pub(crate) type CauseNumber = usize;

/// What was left out, and what follows from it.
#[derive(Debug, Default)]
pub(crate) struct Consequences {
    pub causes: Vec<Consequence>,
    /// Calls that made objects and were left out.
    pub missing: HashMap<u64, CauseNumber, FxBuildHasher>,
    /// Device memory that lacks what a call would have written.
    pub changed: IntervalMap<CauseNumber>,
    /// Copies to the host out of such memory.
    pub copies: HashMap<u64, CauseNumber, FxBuildHasher>,
    /// All device memory may lack something.
    pub anywhere: Option<CauseNumber>,
    /// The cause of what the recorder has left out.
    gap: Option<CauseNumber>,
    /// Whether memory lacks what such calls did.
    pub memory_gaps: MemoryGaps,
}

impl Consequences {
    /// The number of a cause.
    pub(crate) fn cause(&mut self, text: String) -> CauseNumber {
        let known = self.causes.iter().position(|known| known.cause == text);
        known.unwrap_or_else(|| {
            self.causes.push(Consequence {
                cause: text,
                ..Consequence::default()
            });
            self.causes.len() - 1
        })
    }

    /// The number of a cause that is no call which was left out: the recording does not say enough, at
    /// that call.
    pub(crate) fn unknown(&mut self, what: &str, call: u64) -> CauseNumber {
        let known = self.causes.len();
        let number = self.cause(what.to_owned());
        if let Some(new) = self.causes.get_mut(number).filter(|_| number == known) {
            new.first = call;
        }
        number
    }

    /// Calls are missing that may have written any device memory. False if memory has what they wrote.
    pub(crate) fn apply_gap(&mut self, gap: &GapNote) -> bool {
        if !self.memory_gaps.apply(gap) {
            return false;
        }
        let cause = self.cause("calls that the recorder has left out".to_owned());
        self.gap = Some(cause);
        if self.anywhere.is_none() {
            self.changed.overwrite(&(0..u64::MAX), cause);
        }
        true
    }

    /// Device memory holds what it held in the recording when a call was entered.
    pub(crate) fn memory_restored(&mut self, ticks: u64) {
        self.memory_gaps.know_memory(ticks);
        if let Some(gap) = self.gap {
            self.changed.retain(|_, &cause| cause != gap);
            self.anywhere = self.anywhere.filter(|&cause| cause != gap);
        }
    }

    /// Whether a difference in bytes that a copy brought may follow from calls that the recorder has
    /// left out.
    pub(crate) fn follows_gap(&self, copy: u64) -> bool {
        self.gap.is_some() && self.of_copy(copy) == self.gap
    }

    /// Whether such calls may have caused an error that the recording has.
    pub(crate) fn may_follow_gap(&self, recorded: Code) -> bool {
        self.gap.is_some() && is_sticky(recorded)
    }

    /// The cause from which a difference in bytes may follow that a copy brought.
    pub(crate) fn of_copy(&self, call: u64) -> Option<CauseNumber> {
        self.anywhere.or_else(|| self.copies.get(&call).copied())
    }

    /// The cause from which a difference in device memory may follow.
    pub(crate) fn of_memory(&self, start: u64, length: u64) -> Option<CauseNumber> {
        let bytes = start..start.saturating_add(length);
        let mut changed = self.changed.pieces(&bytes);
        self.anywhere.or(changed.next().map(|(_, &cause)| cause))
    }

    /// Memory may have ended. What a gap has left out is about all addresses, of live memory or not.
    pub(crate) fn forget_ended(&mut self, is_live: impl Fn(u64) -> bool) {
        let gap = self.gap;
        self.changed
            .retain(|memory, cause| Some(*cause) == gap || is_live(memory.start));
    }

    /// A copy brings memory what other memory holds or lacks.
    pub(crate) fn copy(&mut self, source: u64, target: u64, length: u64) {
        let bytes = source..source.saturating_add(length);
        let lacking = self.changed.pieces(&bytes);
        let moved =
            lacking.map(|(piece, &cause)| (piece.start - source..piece.end - source, cause));
        let moved: Vec<_> = moved.collect();
        self.changed.cut(&(target..target.saturating_add(length)));
        for (piece, cause) in moved {
            let at = |offset: u64| target.saturating_add(offset);
            self.changed
                .overwrite(&(at(piece.start)..at(piece.end)), cause);
        }
    }

    /// The cause from which an error of a call may follow: a kernel was given other data. What
    /// the call makes is missing then.
    pub(crate) fn of_error(&mut self, call: u64, received: Code) -> Option<CauseNumber> {
        let cause = self.anywhere.filter(|_| is_sticky(received))?;
        if self.missing.len() < OBJECTS_KEPT {
            self.missing.insert(call, cause);
        }
        Some(cause)
    }

    /// Counts a difference that follows from a cause.
    pub(crate) fn add(&mut self, cause: CauseNumber, difference: Divergence) {
        if let Some(cause) = self.causes.get_mut(cause) {
            cause.differences += 1;
            cause.first_difference.get_or_insert(difference);
        }
    }

    /// The causes from which something follows.
    pub(crate) fn take(&mut self) -> Vec<Consequence> {
        let mut causes = std::mem::take(&mut self.causes);
        causes.retain(|cause| cause.lost > 0 || cause.differences > 0);
        causes.sort_by_key(|cause| cause.first);
        causes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_about_memory_as_long_as_it_lives() {
        let mut found = Consequences::default();
        assert!(found.apply_gap(&GapNote::default()));
        let gap = found.gap;
        // Memory is allocated after the gap, gets what earlier memory holds, and is freed.
        found.changed.cut(&(0x3000..0x3200));
        found.copy(0x1000, 0x3000, 0x200);
        assert_eq!(found.of_memory(0x3000, 0x200), gap);
        found.forget_ended(|address| (0x1000..0x2000).contains(&address));
        assert_eq!(found.of_memory(0x1000, 0x1000), gap);
        // Memory that lacks something for another reason is forgotten with it.
        let mut found = Consequences::default();
        let cause = found.cause("a call".to_owned());
        found.changed.overwrite(&(0x1000..0x2000), cause);
        found.changed.overwrite(&(0x3000..0x4000), cause);
        found.forget_ended(|address| address < 0x2000);
        assert_eq!(found.of_memory(0x1000, 1), Some(cause));
        assert_eq!(found.of_memory(0x3000, 1), None);
    }
}
