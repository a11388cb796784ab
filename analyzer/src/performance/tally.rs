//! Counts by key, bounded.

use std::hash::Hash;

use cutape_model::Site;
use rustc_hash::FxHashMap;

/// How many keys a table counts; what comes later is not counted.
const KEYS: usize = 4096;

/// How often something happened, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tally {
    pub(super) first: Site,
    pub(super) count: u64,
    /// Time spent, in the trace's clock.
    pub(super) ticks: u64,
    pub(super) bytes: u64,
}

/// Tallies by key.
#[derive(Debug)]
pub(super) struct Tallies<K>(FxHashMap<K, Tally>);

impl<K> Default for Tallies<K> {
    fn default() -> Self {
        Self(FxHashMap::default())
    }
}

impl<K: Eq + Hash> Tallies<K> {
    /// The tally of a key, to be added to; `None` if there are too many keys.
    pub(super) fn of(&mut self, key: K, site: Site) -> Option<&mut Tally> {
        if self.0.len() >= KEYS && !self.0.contains_key(&key) {
            return None;
        }
        Some(self.0.entry(key).or_insert(Tally {
            first: site,
            count: 0,
            ticks: 0,
            bytes: 0,
        }))
    }

    /// All tallies that count at least so much, in the order of their first call.
    pub(super) fn at_least(&self, count: u64) -> Vec<(&K, &Tally)> {
        let mut all: Vec<_> = self
            .0
            .iter()
            .filter(|(_, tally)| tally.count >= count)
            .collect();
        all.sort_by_key(|(_, tally)| tally.first.index);
        all
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Turns ticks of the trace's clock into time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate(pub(super) u64);

impl Rate {
    /// Microseconds; `None` if the rate of the clock is not known.
    pub(super) fn microseconds(self, ticks: u64) -> Option<u64> {
        let scaled = u128::from(ticks) * 1_000_000;
        let time = scaled.checked_div(self.0.into())?;
        u64::try_from(time).ok()
    }

    /// Ticks of that many microseconds; `None` if the rate is not known.
    pub(super) fn ticks(self, microseconds: u64) -> Option<u64> {
        (self.0 != 0).then(|| self.0 / 1000 * microseconds / 1000)
    }

    /// `, 1.5 ms in all`, or nothing if the rate is not known.
    pub(super) fn in_all(self, ticks: u64) -> String {
        match self.microseconds(ticks) {
            None => String::new(),
            Some(time) if time < 10_000 => format!(", {time} us in all"),
            Some(time) => format!(", {} ms in all", time / 1000),
        }
    }
}
