//! The needs of calls: a list for each call that may still be asked for.

use rustc_hash::FxHashMap;

/// Why a call needs another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Need {
    /// Without it the call could not be made: it created an operand, made the context current, or
    /// initialised the driver.
    Existence,
    /// It changed an operand, or ended it.
    Setting,
    /// It wrote memory that the call may read.
    Content,
    /// It orders the call's work behind work that uses the same memory.
    Order,
    /// The later call ends what this one began: it destroys its object, ends its capture, or makes
    /// the context current again that was current before.
    Completion,
}

/// A call, and where its needs begin.
#[derive(Clone, Copy, Debug)]
struct Entry {
    call: u32,
    computes: bool,
    reads: bool,
    lacks_bytes: bool,
    start: usize,
}

/// The needs of a call on earlier ones, while they are found.
#[derive(Debug, Default)]
pub(super) struct CallNeeds {
    pub(super) earlier: Vec<(u32, Need)>,
    /// The call runs kernels or functions of the program.
    pub(super) computes: bool,
    /// The call needs what memory holds.
    pub(super) reads: bool,
    /// The trace lacks bytes that the call copied.
    pub(super) lacks_bytes: bool,
}

/// The needs of the calls of a trace, by call index.
#[derive(Debug, Default)]
pub struct Needs {
    calls: u32,
    /// The first call of all that copied bytes which the trace lacks.
    first_that_lacks: Option<u32>,
    /// In order of calls.
    entries: Vec<Entry>,
    /// The calls that those of `entries` need, and why.
    needed: Vec<u32>,
    reasons: Vec<Need>,
    /// A call, a later one that it needs, and why; in order, once all are found.
    later: Vec<(u32, u32, Need)>,
    /// By address or handle: from which call on notes of memory there are about what another call
    /// created, in order; `None` for nothing known.
    noted: FxHashMap<u64, Vec<(u32, Option<u32>)>>,
}

impl Needs {
    /// Of calls with these needs, for tests of code that uses them.
    pub fn of_lists(lists: impl IntoIterator<Item = Vec<(u32, Need)>>) -> Self {
        let mut needs = Self::default();
        for (call, list) in (0..).zip(lists) {
            let mut found = CallNeeds {
                reads: list.iter().any(|&(_, need)| need == Need::Content),
                ..CallNeeds::default()
            };
            for (needed, need) in list {
                match needed > call {
                    true => needs.later.push((call, needed, need)),
                    false => found.earlier.push((needed, need)),
                }
            }
            needs.push(&mut found);
        }
        needs
    }

    /// Adds the next call. Empties its needs, for the call after it.
    pub(super) fn push(&mut self, found: &mut CallNeeds) {
        if found.lacks_bytes {
            self.first_that_lacks.get_or_insert(self.calls);
        }
        found.earlier.sort_unstable();
        found.earlier.dedup();
        self.entries.push(Entry {
            call: self.calls,
            computes: std::mem::take(&mut found.computes),
            reads: std::mem::take(&mut found.reads),
            lacks_bytes: std::mem::take(&mut found.lacks_bytes),
            start: self.needed.len(),
        });
        let (needed, reasons): (Vec<u32>, Vec<Need>) = found.earlier.drain(..).unzip();
        self.needed.extend(needed);
        self.reasons.extend(reasons);
        self.calls += 1;
    }

    /// A call needs a later one, too.
    pub(super) fn push_later(&mut self, call: u32, later: u32, need: Need) {
        self.later.push((call, later, need));
    }

    /// A note of a call about memory at an address, or of a handle, is about what another call
    /// created.
    pub(super) fn note(&mut self, call: u32, place: u64, creator: Option<u32>) {
        match self.noted.get_mut(&place) {
            Some(known) if known.last().is_some_and(|&(_, last)| last == creator) => {}
            Some(known) => known.push((call, creator)),
            None if creator.is_some() => _ = self.noted.insert(place, vec![(call, creator)]),
            None => {}
        }
    }

    /// All calls have been added.
    pub(super) fn complete(&mut self) {
        self.later.sort_unstable();
        self.later.dedup();
    }

    /// How many calls there are.
    pub fn calls(&self) -> u64 {
        u64::from(self.calls)
    }

    /// How many of them are in memory.
    pub(super) fn held(&self) -> usize {
        self.entries.len()
    }

    /// These calls, in order.
    pub(super) fn held_calls(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().map(|entry| u64::from(entry.call))
    }

    /// Whether the needs of a call are in memory.
    pub(super) fn holds(&self, call: u32) -> bool {
        self.place(call).is_some()
    }

    fn place(&self, call: u32) -> Option<usize> {
        self.entries
            .binary_search_by_key(&call, |entry| entry.call)
            .ok()
    }

    fn entry(&self, call: u64) -> Option<Entry> {
        let place = self.place(u32::try_from(call).ok()?)?;
        self.entries.get(place).copied()
    }

    /// The calls that a call needs directly, and why; those with [`Need::Completion`] are later
    /// ones.
    pub fn of(&self, call: u64) -> impl Iterator<Item = (u32, Need)> {
        let call = u32::try_from(call).unwrap_or(u32::MAX);
        let earlier = self.place(call).map_or(0..0, |place| self.range(place));
        let needed = self.needed.get(earlier.clone()).unwrap_or_default();
        let reasons = self.reasons.get(earlier).unwrap_or_default();
        let first = self.later.partition_point(|entry| entry.0 < call);
        let later = self.later.iter().skip(first);
        let later = later.take_while(move |entry| entry.0 == call);
        let earlier = needed.iter().copied().zip(reasons.iter().copied());
        earlier.chain(later.map(|&(_, later, need)| (later, need)))
    }

    /// Where the needs of an entry are.
    fn range(&self, place: usize) -> std::ops::Range<usize> {
        let start = |place| self.entries.get(place).map(|entry: &Entry| entry.start);
        let end = start(place + 1).unwrap_or(self.needed.len());
        start(place).unwrap_or(end)..end
    }

    /// Whether a call runs kernels or functions of the program.
    pub fn computes(&self, call: u64) -> bool {
        self.entry(call).is_some_and(|entry| entry.computes)
    }

    /// Whether a call needs what memory holds.
    pub fn reads_memory(&self, call: u64) -> bool {
        let entry = self.entry(call);
        entry.is_some_and(|entry| entry.computes || entry.reads)
    }

    /// Whether the trace lacks bytes that a call copied.
    pub fn lacks_bytes(&self, call: u64) -> bool {
        self.entry(call).is_some_and(|entry| entry.lacks_bytes)
    }

    /// The first call of all for which this is so.
    pub fn first_that_lacks_bytes(&self) -> Option<u64> {
        self.first_that_lacks.map(u64::from)
    }

    /// The call that created the memory, or loaded the module, that a note of a call is about: by
    /// its address or handle.
    pub fn noted_memory(&self, call: u64, address: u64) -> Option<u64> {
        let known = self.noted.get(&address)?;
        let after = known.partition_point(|&(from, _)| u64::from(from) <= call);
        known.get(after.checked_sub(1)?)?.1.map(u64::from)
    }

    /// The chosen calls and all that they need, transitively; `follows` decides by the needing
    /// call, the needed one, and the reason.
    pub fn closure(
        &self,
        chosen: impl IntoIterator<Item = u64>,
        mut follows: impl FnMut(u64, u64, Need) -> bool,
    ) -> Vec<bool> {
        let mut kept = vec![false; self.calls() as usize];
        let mut open: Vec<u64> = chosen.into_iter().collect();
        while let Some(call) = open.pop() {
            match kept.get_mut(call as usize) {
                Some(known) if !*known => *known = true,
                _ => continue,
            }
            for (needed, need) in self.of(call) {
                let needed = u64::from(needed);
                if kept.get(needed as usize) == Some(&false) && follows(call, needed, need) {
                    open.push(needed);
                }
            }
        }
        kept
    }

    /// Forgets the needs of all calls that none of these calls needs.
    pub(super) fn retain(&mut self, roots: Vec<u32>) {
        self.complete();
        let reached = self.closure(roots.into_iter().map(u64::from), |_, _, _| true);
        let is_reached = |call: u32| reached.get(call as usize) == Some(&true);
        let (mut entries, mut end) = (0, 0);
        for place in 0..self.entries.len() {
            let range = self.range(place);
            let Some(&entry) = self
                .entries
                .get(place)
                .filter(|entry| is_reached(entry.call))
            else {
                continue;
            };
            let length = range.len();
            self.needed.copy_within(range.clone(), end);
            self.reasons.copy_within(range, end);
            if let Some(moved) = self.entries.get_mut(entries) {
                *moved = Entry {
                    start: end,
                    ..entry
                };
            }
            entries += 1;
            end += length;
        }
        self.entries.truncate(entries);
        self.needed.truncate(end);
        self.reasons.truncate(end);
        self.later.retain(|&(call, ..)| is_reached(call));
        self.noted.retain(|_, known| {
            for (_, creator) in known.iter_mut() {
                *creator = creator.filter(|&creator| is_reached(creator));
            }
            known.dedup_by_key(|&mut (_, creator)| creator);
            known.iter().any(|(_, creator)| creator.is_some())
        });
    }
}
