//! Device address ranges, live and dead: whose an address is, or was.

use std::collections::BTreeMap;

use super::objects::ObjectId;

/// How many dead ranges are remembered.
const DEAD_RANGES: usize = 8192;
/// How many dead ranges that begin before an address are looked at; more than one only where they overlap.
const LOOK_BACK: usize = 8;

/// All ranges.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    live: BTreeMap<u64, (u64, ObjectId)>,
    dead: BTreeMap<u64, (u64, ObjectId)>,
}

impl Ranges {
    /// A new range; what was dead there is forgotten.
    pub(crate) fn insert(&mut self, start: u64, size: u64, id: ObjectId) {
        self.clear_dead(start, size.max(1));
        self.live
            .insert(start, (start.saturating_add(size.max(1)), id));
    }

    /// The object of a range ended.
    pub(crate) fn end(&mut self, start: u64, id: ObjectId) {
        let Some(&(end, owner)) = self.live.get(&start) else {
            return;
        };
        if owner != id {
            return;
        }
        self.live.remove(&start);
        if self.dead.len() >= DEAD_RANGES {
            self.dead.pop_first();
        }
        self.dead.insert(start, (end, id));
    }

    /// The range may belong to something else now.
    pub(crate) fn clear_dead(&mut self, start: u64, size: u64) {
        if self.dead.is_empty() {
            return;
        }
        let end = start.saturating_add(size);
        let stale: Vec<u64> = self
            .dead
            .range(..end)
            .rev()
            .take_while(|(at, _)| **at >= start)
            .map(|(at, _)| *at)
            .chain(
                self.dead
                    .range(..start)
                    .rev()
                    .take(LOOK_BACK)
                    .filter(|(_, range)| range.0 > start)
                    .map(|(at, _)| *at),
            )
            .collect();
        for at in stale {
            self.dead.remove(&at);
        }
    }

    /// The live object that an address lies in.
    pub(crate) fn live_at(&self, address: u64) -> Option<ObjectId> {
        let ranges = self.live.range(..=address).rev().take(2);
        ranges
            .map(|(_, range)| *range)
            .find(|range| address < range.0)
            .map(|range| range.1)
    }

    /// The dead object that an address lies in, if no live one does.
    pub(crate) fn dead_at(&self, address: u64) -> Option<ObjectId> {
        if self.dead.is_empty() {
            return None;
        }
        let ranges = self.dead.range(..=address).rev().take(LOOK_BACK);
        let found = ranges
            .map(|(_, range)| *range)
            .find(|range| address < range.0)?
            .1;
        if self.live_at(address).is_some() {
            None
        } else {
            Some(found)
        }
    }

    /// True while any dead range is remembered.
    pub(crate) fn any_dead(&self) -> bool {
        !self.dead.is_empty()
    }
}
