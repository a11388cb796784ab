//! The ranges and marks of the program: how often, how long, and how many calls.

use std::collections::HashMap;

use cutape_format::{MarkerAction, Trace};
use serde::Serialize;

use crate::call_set::Markers;
use cutape_format::TraceClock;

/// All ranges of one name.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct RangeFacts {
    /// The names of the ranges around it and its own: `train/step`.
    pub(crate) range: String,
    /// `null` for NVTX's default domain.
    pub(crate) domain: Option<String>,
    pub(crate) count: u64,
    /// How many of them did not end.
    pub(crate) open: u64,
    /// Calls of all threads during them.
    pub(crate) calls: u64,
    /// How many of those are launches.
    pub(crate) launches: u64,
    pub(crate) total_ns: Option<u64>,
    pub(crate) mean_ns: Option<u64>,
    pub(crate) max_ns: Option<u64>,
}

/// All marks of one text.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct MarkFacts {
    pub(crate) mark: String,
    /// `null` for NVTX's default domain.
    pub(crate) domain: Option<String>,
    pub(crate) count: u64,
    /// When the first one was, from the start of the recording.
    pub(crate) first_ns: Option<u64>,
}

/// Counts the calls in ranges, while calls are given in order.
#[derive(Debug)]
pub(super) struct RangeCounter {
    markers: Markers,
    /// Begins and ends of ranges: when, and the counts before.
    bounds: Vec<(u64, Counts)>,
    /// How many of them have been passed.
    passed: usize,
    so_far: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    calls: u64,
    launches: u64,
}

impl RangeCounter {
    pub(super) fn new(trace: &Trace) -> Self {
        let markers = Markers::of(trace);
        let ranges = markers.ranges.iter();
        let ticks = ranges.flat_map(|range| [Some(range.begin), range.end]);
        let mut bounds: Vec<_> = ticks
            .flatten()
            .map(|ticks| (ticks, Counts::default()))
            .collect();
        bounds.sort_by_key(|(ticks, _)| *ticks);
        Self {
            markers,
            bounds,
            passed: 0,
            so_far: Counts::default(),
        }
    }

    /// Takes the next call.
    pub(super) fn add(&mut self, ticks: u64, is_launch: bool) {
        self.pass(ticks);
        self.so_far.calls += 1;
        self.so_far.launches += u64::from(is_launch);
    }

    fn pass(&mut self, ticks: u64) {
        while let Some((bound, before)) = self.bounds.get_mut(self.passed)
            && *bound <= ticks
        {
            *before = self.so_far;
            self.passed += 1;
        }
    }

    /// The calls before a moment that is a bound; all for `None`.
    fn before(&self, ticks: Option<u64>) -> Counts {
        let Some(ticks) = ticks else {
            return self.so_far;
        };
        let at = self.bounds.partition_point(|(bound, _)| *bound < ticks);
        self.bounds.get(at).map_or(self.so_far, |bound| bound.1)
    }

    /// The ranges, in the order of their first begin, and the marks in theirs. The trace ends at
    /// `last`.
    pub(super) fn finish(
        mut self,
        clock: TraceClock,
        last: u64,
    ) -> (Vec<RangeFacts>, Vec<MarkFacts>) {
        self.pass(u64::MAX);
        let mut places: HashMap<(String, &str), usize> = HashMap::new();
        let mut all: Vec<RangeFacts> = Vec::new();
        for (number, range) in self.markers.ranges.iter().enumerate() {
            let key = (self.markers.path(number), &*range.domain);
            let place = *places.entry(key).or_insert_with_key(|(path, domain)| {
                all.push(RangeFacts {
                    range: path.clone(),
                    domain: Some((*domain).to_owned()).filter(|domain| !domain.is_empty()),
                    total_ns: Some(0),
                    max_ns: Some(0),
                    ..RangeFacts::default()
                });
                all.len() - 1
            });
            let facts = &mut all[place];
            let (begin, end) = (self.before(Some(range.begin)), self.before(range.end));
            facts.count += 1;
            facts.open += u64::from(range.end.is_none());
            facts.calls += end.calls - begin.calls;
            facts.launches += end.launches - begin.launches;
            let time = clock.between(range.begin, range.end.unwrap_or(last));
            let add = |sum: u64| Some(sum.saturating_add(time?));
            facts.total_ns = facts.total_ns.and_then(add);
            facts.max_ns = facts.max_ns.and_then(|most| Some(most.max(time?)));
        }
        for facts in &mut all {
            facts.mean_ns = facts.total_ns.map(|total| total / facts.count.max(1));
        }
        let mut marks: Vec<MarkFacts> = Vec::new();
        let mut places: HashMap<(&str, &str), usize> = HashMap::new();
        for marker in &self.markers.list {
            if marker.action != MarkerAction::Mark {
                continue;
            }
            let key = (&*marker.text, &*marker.domain);
            let place = *places.entry(key).or_insert_with(|| {
                marks.push(MarkFacts {
                    mark: marker.text.clone(),
                    domain: Some(marker.domain.clone()).filter(|domain| !domain.is_empty()),
                    count: 0,
                    first_ns: clock.since_start(marker.ticks),
                });
                marks.len() - 1
            });
            marks[place].count += 1;
        }
        (all, marks)
    }
}
