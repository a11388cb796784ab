//! Marks around launches that may wait for values in host memory: they tell which launch runs.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

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
/// For how long all must stand still before a value counts as waited for, at least; also twice as
/// long as the recorded work took. The device goes on while the process is slow or stopped, so time
/// is what counts, and few looks suffice. Kernels give up: those by which XLA delays work do after
/// 200 million cycles, a tenth of a second.
pub(crate) const PATIENCE: Duration = Duration::from_millis(25);
/// For how many looks, at least.
const LOOKS: u64 = 4;
/// The same where a kernel runs that has been seen to wait, however short it is.
const LOOKS_WITH_WAITING: u64 = 1;
/// For how many looks nothing may go on before work counts as waiting that has not begun: what is
/// before it in its stream may wait for the host.
const LOOKS_NOT_BEGUN: u64 = 10_000;

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

/// What memory held before work that writes there.
#[derive(Debug)]
struct Held {
    /// That of the work.
    call: u64,
    /// As recorded.
    start: u64,
    bytes: Vec<u8>,
    is_known: bool,
}

/// The marks of the last launches, and what was learned from them.
#[derive(Debug, Default)]
pub(crate) struct LaunchMarks {
    pub by_call: BTreeMap<u64, Mark>,
    /// Kernels that are known to wait for a value of the host, by recorded handle, and whether this
    /// replay has seen it.
    waiting_kernels: HashMap<u64, bool>,
    /// Launches whose kernels an earlier replay has seen waiting.
    kept: HashSet<u64>,
    /// The calls with marks that ran when a watch saw them wait.
    seen_waiting: Arc<Mutex<Vec<u64>>>,
    /// What was at a recorded address before work that writes there, the oldest first.
    held: VecDeque<Held>,
}

impl LaunchMarks {
    /// A context has ended, and with it its events.
    pub(crate) fn end_context(&mut self, context: u64) {
        self.by_call.retain(|_, mark| mark.context != context);
    }

    /// Keeps what was at a recorded address before work of a call that writes there. `is_known`: the
    /// trace has said what the program had written there.
    pub(crate) fn hold(&mut self, call: u64, start: u64, bytes: Vec<u8>, is_known: bool) {
        if self.held.len() >= MOST_HELD {
            self.held.pop_front();
        }
        self.held.push_back(Held {
            call,
            start,
            bytes,
            is_known,
        });
    }

    /// What a byte at a recorded address was before work of these calls wrote there, where that was
    /// kept; and whether it is known.
    pub(crate) fn held<'h>(
        &'h self,
        address: u64,
        calls: &'h [u64],
    ) -> impl Iterator<Item = (u8, bool)> + 'h {
        let of_calls = self.held.iter();
        let of_calls = of_calls.filter(|held| calls.contains(&held.call));
        of_calls.filter_map(move |held| {
            let at = usize::try_from(address.checked_sub(held.start)?).ok()?;
            Some((held.bytes.get(at).copied()?, held.is_known))
        })
    }

    /// Also knows what an earlier replay has kept: launches whose kernels wait.
    pub(crate) fn knowing(launches: &[u64]) -> Self {
        Self {
            kept: launches.iter().copied().collect(),
            ..Self::default()
        }
    }

    /// A call has its marks.
    pub(crate) fn add(&mut self, mark: Mark) {
        if self.kept.contains(&mark.call) {
            self.waiting_kernels.entry(mark.kernel).or_default();
        }
        self.by_call.insert(mark.call, mark);
    }

    /// Remembers that the kernels wait for values of the host that ran when the last watch saw them
    /// wait. The launches of those that this replay had not seen waiting.
    pub(crate) fn learn(&mut self) -> Vec<u64> {
        let mut waiting = self
            .seen_waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut waiting = std::mem::take(&mut *waiting);
        waiting.retain(|call| {
            let mark = self.by_call.get(call);
            let kernel = mark.map_or(0, |mark| mark.kernel);
            kernel != 0 && self.waiting_kernels.insert(kernel, true) != Some(true)
        });
        waiting
    }

    /// A kernel was unloaded: its handle may be that of another from now on.
    pub(crate) fn forget_kernel(&mut self, handle: u64) {
        self.waiting_kernels.remove(&handle);
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
        let known = |mark: &Mark| (*mark, self.waiting_kernels.contains_key(&mark.kernel));
        let mut marks: Vec<(Mark, bool)> = marks.map(known).collect();
        marks.dedup_by_key(|mark| mark.0.call);
        let seen_waiting = Arc::clone(&self.seen_waiting);
        *seen_waiting.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new();
        Watch {
            marks,
            others,
            patience: PATIENCE.max(recorded * 2),
            since: Instant::now(),
            seen: (0, 0),
            standing: (0, Duration::ZERO),
            seen_waiting,
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
    /// And whether the kernel is known to wait.
    pub marks: Vec<(Mark, bool)>,
    others: Option<Arc<Peers>>,
    patience: Duration,
    /// When the watch began; times are counted from then.
    since: Instant,
    /// How many marks were passed, and the progress of other ranks, at the last look.
    seen: (usize, u64),
    /// For how many looks this has been so, and since when.
    standing: (u64, Duration),
    seen_waiting: Arc<Mutex<Vec<u64>>>,
}

impl Watch {
    /// Makes the context of the launches current in the calling thread.
    pub(crate) fn enter_context(&self, api: &Api) {
        if let Some((mark, _)) = self.marks.first() {
            let _ = api.set_current(mark.context);
        }
    }

    /// Looks once, in a thread where the context of the launches is current.
    pub(crate) fn look(&mut self, api: &Api) -> Seen {
        let states = self.marks.iter().map(|&(mark, is_known)| {
            let has_begun = api.is_mark_passed(mark.before);
            let is_over = has_begun && api.is_mark_passed(mark.after);
            (mark.call, is_known, has_begun, is_over)
        });
        let states: Vec<_> = states.collect();
        let others = self.others.as_ref();
        let others = others.map_or(0, |peers| peers.progress_of_others());
        let now = self.since.elapsed();
        self.judge(&states, others, now)
    }

    /// Whether nothing has gone on for so long that what has not begun waits as well.
    pub(crate) fn is_stuck(&self) -> bool {
        self.stands(LOOKS_NOT_BEGUN, self.patience, self.since.elapsed())
    }

    /// Whether nothing has gone on for so many looks and so long.
    fn stands(&self, looks: u64, patience: Duration, time: Duration) -> bool {
        self.standing.0 >= looks && time.saturating_sub(self.standing.1) >= patience
    }

    /// What the states of calls show at that time: each call, and whether its kernel is known to
    /// wait, has begun, and is over.
    fn judge(&mut self, states: &[(u64, bool, bool, bool)], others: u64, time: Duration) -> Seen {
        if !states.is_empty() && states.iter().all(|state| state.3) {
            return Seen::Complete;
        }
        let passed = states
            .iter()
            .map(|state| usize::from(state.2) + usize::from(state.3));
        let now = (passed.sum(), others);
        match now == self.seen {
            true => self.standing.0 += 1,
            false => self.standing = (0, time),
        }
        self.seen = now;
        let running = || states.iter().filter(|state| state.2 && !state.3);
        let (looks, patience) = match running().any(|state| state.1) {
            true => (LOOKS_WITH_WAITING, Duration::ZERO),
            false => (LOOKS, self.patience),
        };
        let runs = states.is_empty() || running().next().is_some();
        if !runs || !self.stands(looks, patience, time) {
            return Seen::Progress;
        }
        let mut waiting = self
            .seen_waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *waiting = running().map(|state| state.0).collect();
        Seen::Waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_stands_still_for_long_waits_and_one_that_is_known_to_soon() {
        const RUNS: (bool, bool) = (true, false);
        const OVER: (bool, bool) = (true, true);
        const NOT_BEGUN: (bool, bool) = (false, false);
        let mark = |call, kernel| Mark {
            call,
            kernel,
            context: 0,
            before: 0,
            after: 0,
        };
        let write = |call| PendingWrite {
            bytes: 0..8,
            is_exact: false,
            call,
            entered: 0,
            is_before: false,
            hides_others: false,
            copy: None,
            known_since: None,
        };
        let second = Duration::from_secs(1);
        // The looks until the kernels of calls 5 and 6 count as waiting, and what is learned.
        let looks = |launches: &[u64], recorded, states: [(bool, bool); 2], pause: Duration| {
            let mut marks = LaunchMarks::knowing(launches);
            marks.add(mark(5, 0xa));
            marks.add(mark(6, 0xb));
            let mut watch = marks.watch(&[write(5), write(6)], recorded, None);
            let states = watch.marks.clone().into_iter().zip(states);
            let states =
                states.map(|((mark, known), (begun, over))| (mark.call, known, begun, over));
            let states: Vec<_> = states.collect();
            let mut looks = 0_u64;
            let time = |looks| pause * looks as u32;
            while watch.judge(&states, 0, time(looks)) == Seen::Progress && looks < LOOKS_NOT_BEGUN
            {
                looks += 1;
            }
            (looks, marks.learn())
        };
        // What is known, for how long the recorded work took, the state of both calls.
        type Case = (&'static [u64], Duration, [(bool, bool); 2]);
        type Found = (u64, &'static [u64]);
        let table: [(&str, Case, Found); 7] = [
            ("one runs", (&[], PAUSE, [RUNS, NOT_BEGUN]), (50, &[5])),
            ("the other", (&[], PAUSE, [OVER, RUNS]), (50, &[6])),
            (
                "it ran for long",
                (&[], second * 3, [RUNS, RUNS]),
                (12_000, &[]),
            ),
            ("it is known", (&[5], second, [RUNS, NOT_BEGUN]), (1, &[5])),
            ("the other is", (&[6], PAUSE, [RUNS, NOT_BEGUN]), (50, &[5])),
            (
                "none has begun",
                (&[5], PAUSE, [NOT_BEGUN; 2]),
                (10_000, &[]),
            ),
            ("all are over", (&[5], PAUSE, [OVER; 2]), (0, &[])),
        ];
        for (what, (launches, recorded, states), expected) in table {
            let (looks, learned) = looks(launches, recorded, states, PAUSE);
            let expected = (expected.0.min(LOOKS_NOT_BEGUN), expected.1.to_vec());
            assert_eq!((looks, learned), expected, "{what}");
        }
        let stopped = looks(&[], PAUSE, [RUNS, NOT_BEGUN], PATIENCE);
        assert_eq!(
            stopped,
            (LOOKS, vec![5]),
            "the process is stopped between looks"
        );
    }
}
