//! Marks around launches that may wait for values in host memory: they tell which launch runs.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use cutape_model::PendingWrite;

use crate::api::Api;
use crate::ranks::peers::Peers;

/// How many launches have marks. The marks of the oldest are used again.
pub(crate) const MOST_MARKS: usize = 256;
/// Of how many writes it is kept what was there before, and of how many bytes at most.
const MOST_HELD: usize = 64;
pub(crate) const LONGEST_HELD: u64 = 1 << 20;
/// Between two looks.
pub(crate) const PAUSE: Duration = Duration::from_micros(500);
/// How often all must stand still before a value counts as waited for. Looks are counted and not
/// time, so that a replay that is slow, or stopped for a while, does the same.
const PATIENCE: u64 = 20;
/// The same before a call that is no wait: all is complete soon, unless a kernel waits for the host.
pub(crate) const PATIENCE_BEFORE: u64 = 600;
/// The same if it is not known which launch may wait: its parameters do not point to the memory.
const LONG_PATIENCE: u64 = 1000;
/// The same while other ranks, whose kernels and CPU threads may write the value, stand still.
const PATIENCE_WITH_RANKS: u64 = 200;
/// The most looks that a long kernel of the recording asks for.
const MOST_PATIENCE: u64 = 4000;

/// Events around the work of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub call: u64,
    /// The recorded handle of the kernel that it launches, or 0.
    pub kernel: u64,
    pub context: u64,
    pub before: u64,
    pub after: u64,
}

/// The marks of the last launches, and what was learned from them.
#[derive(Debug, Default)]
pub(crate) struct LaunchMarks {
    pub by_call: BTreeMap<u64, Mark>,
    /// Kernels that have been seen to wait for a value of the host, by recorded handle.
    waiting_kernels: HashSet<u64>,
    /// What was at a recorded address before work that writes there, the oldest first.
    held: VecDeque<(u64, Vec<u8>)>,
}

impl LaunchMarks {
    /// Keeps what was at a recorded address before work that writes there.
    pub(crate) fn hold(&mut self, start: u64, bytes: Vec<u8>) {
        if self.held.len() >= MOST_HELD {
            self.held.pop_front();
        }
        self.held.push_back((start, bytes));
    }

    /// Whether a byte at a recorded address is known to have been another one before work wrote
    /// there.
    pub(crate) fn held_otherwise(&self, address: u64, byte: Option<&u8>) -> bool {
        let held = self.held.iter().filter_map(|(start, bytes)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            bytes.get(at)
        });
        let mut held = held.peekable();
        held.peek().is_some() && held.all(|held| Some(held) != byte)
    }

    /// Remembers that the kernels of these launches wait for values of the host.
    pub(crate) fn learn(&mut self, writers: &[PendingWrite]) {
        let kernels = writers.iter().filter_map(|write| {
            let mark = self.by_call.get(&write.call)?;
            Some(mark.kernel).filter(|&kernel| kernel != 0)
        });
        self.waiting_kernels.extend(kernels.collect::<Vec<_>>());
    }

    /// Where to look whether one of these launches stands still. `recorded` is how long they took
    /// at most in the recording.
    pub(crate) fn watch(
        &self,
        writers: &[PendingWrite],
        recorded: Duration,
        others: Option<Arc<Peers>>,
    ) -> Watch {
        // What ranks share, kernels reach through memory, and not only by their parameters.
        let writers = if others.is_some() { &[] } else { writers };
        let marks = writers
            .iter()
            .filter_map(|write| self.by_call.get(&write.call));
        let mut marks: Vec<Mark> = marks.copied().collect();
        marks.dedup_by_key(|mark| mark.call);
        let is_known = |mark: &Mark| self.waiting_kernels.contains(&mark.kernel);
        let twice = (recorded.as_micros() * 2 / PAUSE.as_micros()) as u64;
        let patience = match () {
            () if others.is_some() => PATIENCE_WITH_RANKS,
            () if marks.is_empty() => LONG_PATIENCE,
            () if marks.iter().any(is_known) => 1,
            () => twice.clamp(PATIENCE, MOST_PATIENCE),
        };
        Watch {
            marks,
            others,
            patience,
            seen: (0, 0),
            standing: 0,
        }
    }
}

/// What looking at launches shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// All are complete.
    Complete,
    /// Something goes on, or may.
    Progress,
    /// One runs, and nothing else goes on.
    Waiting,
}

/// Looks at launches until they are complete or stand still.
#[derive(Debug)]
pub(crate) struct Watch {
    pub marks: Vec<Mark>,
    others: Option<Arc<Peers>>,
    pub patience: u64,
    /// How many marks were passed, and the progress of other ranks, at the last look.
    seen: (usize, u64),
    standing: u64,
}

impl Watch {
    /// Makes the context of the launches current in the calling thread.
    pub(crate) fn enter_context(&self, api: &Api) {
        if let Some(mark) = self.marks.first() {
            let _ = api.set_current(mark.context);
        }
    }

    /// Looks once, in a thread where the context of the launches is current.
    pub(crate) fn look(&mut self, api: &Api) -> Seen {
        let mut passed = 0;
        let mut runs = self.marks.is_empty();
        let mut is_complete = !self.marks.is_empty();
        for mark in &self.marks {
            let has_begun = api.is_mark_passed(mark.before);
            let is_over = has_begun && api.is_mark_passed(mark.after);
            passed += usize::from(has_begun) + usize::from(is_over);
            runs |= has_begun && !is_over;
            is_complete &= is_over;
        }
        if is_complete {
            return Seen::Complete;
        }
        let others = self.others.as_ref();
        let now = (passed, others.map_or(0, |peers| peers.progress_of_others()));
        match now == self.seen {
            true => self.standing += 1,
            false => self.standing = 0,
        }
        self.seen = now;
        match runs && self.standing >= self.patience {
            true => Seen::Waiting,
            false => Seen::Progress,
        }
    }
}
