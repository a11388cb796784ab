//! The findings that count, and how often each mistake repeats.

use std::collections::HashMap;

use crate::finding::{Class, Confidence, Finding, FindingKey};
use crate::output::Omitted;

/// How many keys are told apart when repeats are counted.
const MOST_KEYS: usize = 1 << 16;

/// Which findings count.
#[derive(Clone, Copy, Debug)]
pub struct FindingLimits {
    /// Those of every class, not only misuse.
    pub all: bool,
    /// The least confidence.
    pub confidence: Confidence,
    /// How many findings with one key are listed.
    pub most_repeats: u64,
}

impl Default for FindingLimits {
    fn default() -> Self {
        Self {
            all: false,
            confidence: Confidence::Assumed,
            most_repeats: 1,
        }
    }
}

/// Keeps the findings that count, and counts the others.
#[derive(Debug, Default)]
pub struct FindingList {
    limits: FindingLimits,
    /// How many there were, and which of `findings` was the first.
    keys: HashMap<FindingKey, (u64, usize)>,
    /// The findings that count.
    pub findings: Vec<Finding>,
    /// Those that do not.
    pub omitted: Omitted,
}

impl FindingList {
    /// An empty list.
    pub fn new(limits: FindingLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Adds a finding; returns whether it counts, and is the last of the list.
    pub fn add(&mut self, finding: Finding) -> bool {
        if finding.class != Class::Misuse && !self.limits.all {
            *self.omitted.hidden.entry(finding.class).or_default() += 1;
            return false;
        }
        if finding.confidence < self.limits.confidence {
            self.omitted.uncertain += 1;
            return false;
        }
        let is_new = !self.is_repeated(&finding.key);
        if is_new {
            self.findings.push(finding);
        } else if let Some((_, first)) = self.keys.get(&finding.key)
            && let Some(known) = self.findings.get_mut(*first)
            && known.severity < finding.severity
        {
            // The worst of them stands for all.
            let repeats = known.repeats;
            *known = Finding { repeats, ..finding };
        }
        is_new
    }

    /// Adds findings.
    pub fn extend(&mut self, findings: Vec<Finding>) {
        for finding in findings {
            self.add(finding);
        }
    }

    /// Counts the findings that [`Analyzer::take_repeats`](crate::Analyzer::take_repeats) says were
    /// left out.
    pub fn count_repeats(&mut self, repeats: HashMap<FindingKey, u64>) {
        for (key, count) in repeats {
            if let Some((_, first)) = self.keys.get(&key) {
                self.count(*first, count);
            }
        }
    }

    /// Forgets the findings from a position on; `omitted` is what was left out before them.
    pub fn truncate(&mut self, length: usize, omitted: Omitted) {
        self.findings.truncate(length);
        self.keys.retain(|_, (_, first)| *first < length);
        self.omitted = omitted;
    }

    /// Counts the findings with a key; true beyond the limit.
    fn is_repeated(&mut self, key: &FindingKey) -> bool {
        let Some((count, first)) = self.keys.get_mut(key) else {
            let is_full = self.keys.len() >= MOST_KEYS;
            if is_full {
                self.omitted.repeated += 1;
            } else {
                self.keys.insert(key.clone(), (1, self.findings.len()));
            }
            return is_full;
        };
        *count += 1;
        let (is_beyond, first) = (*count > self.limits.most_repeats, *first);
        if is_beyond {
            self.count(first, 1);
        }
        is_beyond
    }

    fn count(&mut self, first: usize, count: u64) {
        self.omitted.repeated += count;
        if let Some(first) = self.findings.get_mut(first) {
            first.repeats += count;
        }
    }
}
