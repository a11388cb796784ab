//! The ranges and marks of the program: how often, how long, and how many calls.

use std::collections::HashMap;

use cutape_export::rows::RangeRow;
use cutape_format::TraceClock;
use serde::Serialize;

/// All ranges of one name.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct RangeFacts {
    /// The names of the ranges around it and its own: `train/step`.
    pub range: String,
    /// `null` for NVTX's default domain.
    pub domain: Option<String>,
    /// How many.
    pub count: u64,
    /// How many of them did not end.
    pub open: u64,
    /// Calls of all threads during them.
    pub calls: u64,
    /// How many of those are launches.
    pub launches: u64,
    /// How long all of them took; those that did not end last until the end of the trace.
    pub total_ns: Option<u64>,
    /// How long one took on average.
    pub mean_ns: Option<u64>,
    /// How long the longest took.
    pub max_ns: Option<u64>,
}

/// All marks of one text.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct MarkFacts {
    /// The text.
    pub mark: String,
    /// `null` for NVTX's default domain.
    pub domain: Option<String>,
    /// How many.
    pub count: u64,
    /// When the first one was, from the start of the recording.
    pub first_ns: Option<u64>,
}

/// Counts the calls in ranges: takes first all ranges, then all calls in order.
#[derive(Debug, Default)]
pub(super) struct RangeCounter {
    /// By path and domain.
    places: HashMap<(String, String), usize>,
    facts: Vec<RangeFacts>,
    /// Position in `facts`, begin and end.
    ranges: Vec<(usize, u64, Option<u64>)>,
    mark_places: HashMap<(String, String), usize>,
    marks: Vec<MarkFacts>,
    /// Begins and ends of ranges: when, and the counts before. In order once a call was taken.
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
    /// Takes a range or a mark.
    pub(super) fn add_range(&mut self, row: &RangeRow<'_>) {
        let domain = row.domain.map(str::to_owned);
        let key = (row.path.to_owned(), domain.clone().unwrap_or_default());
        if row.is_mark {
            let place = *self.mark_places.entry(key).or_insert_with(|| {
                self.marks.push(MarkFacts {
                    mark: row.name.to_owned(),
                    domain,
                    count: 0,
                    first_ns: row.begin_ns(),
                });
                self.marks.len() - 1
            });
            if let Some(mark) = self.marks.get_mut(place) {
                mark.count += 1;
            }
            return;
        }
        let place = *self.places.entry(key).or_insert_with(|| {
            self.facts.push(RangeFacts {
                range: row.path.to_owned(),
                domain,
                total_ns: Some(0),
                max_ns: Some(0),
                ..RangeFacts::default()
            });
            self.facts.len() - 1
        });
        self.ranges.push((place, row.begin_ticks, row.end_ticks));
        let bounds = [Some(row.begin_ticks), row.end_ticks];
        let bounds = bounds.into_iter().flatten();
        self.bounds
            .extend(bounds.map(|ticks| (ticks, Counts::default())));
    }

    /// Takes the next call.
    #[inline]
    pub(super) fn add(&mut self, ticks: u64, is_launch: bool) {
        if self.so_far.calls == 0 {
            self.bounds.sort_by_key(|(ticks, _)| *ticks);
        }
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
        let mut all = std::mem::take(&mut self.facts);
        for &(place, begin_ticks, end_ticks) in &self.ranges {
            let Some(facts) = all.get_mut(place) else {
                continue;
            };
            let (begin, end) = (self.before(Some(begin_ticks)), self.before(end_ticks));
            facts.count += 1;
            facts.open += u64::from(end_ticks.is_none());
            facts.calls += end.calls - begin.calls;
            facts.launches += end.launches - begin.launches;
            let time = clock.between(begin_ticks, end_ticks.unwrap_or(last));
            let add = |sum: u64| Some(sum.saturating_add(time?));
            facts.total_ns = facts.total_ns.and_then(add);
            facts.max_ns = facts.max_ns.and_then(|most| Some(most.max(time?)));
        }
        for facts in &mut all {
            facts.mean_ns = facts.total_ns.map(|total| total / facts.count.max(1));
        }
        (all, self.marks)
    }
}
