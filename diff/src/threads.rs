//! Which thread of one trace does the work of which thread of the other.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::hash::hash;
use crate::sequence::{Entry, Sequence, ThreadCalls};

/// Threads that correspond: of A, of B.
pub(crate) fn pairs(a: &Sequence, b: &Sequence) -> Vec<(u32, u32)> {
    let mut pairs = Vec::new();
    let mut rest: (Vec<u32>, Vec<u32>) = (
        (0..a.threads.len() as u32).collect(),
        (0..b.threads.len() as u32).collect(),
    );
    // Equal threads first: workers of one kind may start in any order.
    equal(a, b, Entry::everything, &mut rest, &mut pairs);
    equal(a, b, Entry::request, &mut rest, &mut pairs);
    by_similarity(a, b, &rest.0, &rest.1, &mut pairs);
    pairs.sort_unstable();
    pairs
}

/// Pairs threads whose calls have equal hashes.
fn equal(
    a: &Sequence,
    b: &Sequence,
    of_call: fn(&Entry) -> u64,
    rest: &mut (Vec<u32>, Vec<u32>),
    pairs: &mut Vec<(u32, u32)>,
) {
    let of_thread = |sequence: &Sequence, thread: u32| {
        let calls = sequence.threads.get(thread as usize)?;
        let entries = calls.compared.iter().filter_map(|&at| calls.entry(at));
        Some(entries.fold(0, |sum, entry| hash((sum, of_call(entry)))))
    };
    let mut known: FxHashMap<Option<u64>, Vec<u32>> = FxHashMap::default();
    for &thread in rest.1.iter().rev() {
        known.entry(of_thread(b, thread)).or_default().push(thread);
    }
    rest.0.retain(|&thread| {
        let other = known.get_mut(&of_thread(a, thread)).and_then(Vec::pop);
        pairs.extend(other.map(|other| (thread, other)));
        other.is_none()
    });
    rest.1
        .retain(|&thread| !pairs.iter().any(|pair| pair.1 == thread));
}

/// How often a thread calls what, and how often it asks for what.
fn histogram(calls: &ThreadCalls) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    for entry in calls.compared.iter().filter_map(|&at| calls.entry(at)) {
        *counts.entry(entry.name()).or_default() += 1;
        *counts
            .entry(hash((entry.request(), "request")))
            .or_default() += 1;
    }
    counts
}

/// The share of calls that two threads have in common, in thousandths.
fn similarity(a: &BTreeMap<u64, u64>, b: &BTreeMap<u64, u64>) -> u64 {
    let common = |(name, count): (&u64, &u64)| b.get(name).map_or(0, |other| *count.min(other));
    let common: u64 = a.iter().map(common).sum();
    let all: u64 = a.values().sum::<u64>() + b.values().sum::<u64>() - common;
    (common * 1000).checked_div(all).unwrap_or(1000)
}

/// The most similar first; of equally similar ones those that were created in the same order.
fn by_similarity(
    a: &Sequence,
    b: &Sequence,
    rest_of_a: &[u32],
    rest_of_b: &[u32],
    pairs: &mut Vec<(u32, u32)>,
) {
    let counts = |sequence: &Sequence, threads: &[u32]| -> Vec<_> {
        let calls = threads
            .iter()
            .filter_map(|&at| sequence.threads.get(at as usize));
        calls.map(histogram).collect()
    };
    let (of_a, of_b) = (counts(a, rest_of_a), counts(b, rest_of_b));
    let mut candidates = Vec::new();
    for (at_a, (&thread_a, in_a)) in rest_of_a.iter().zip(&of_a).enumerate() {
        for (at_b, (&thread_b, in_b)) in rest_of_b.iter().zip(&of_b).enumerate() {
            let similarity = similarity(in_a, in_b);
            if similarity > 0 {
                let distance = at_a.abs_diff(at_b);
                candidates.push((std::cmp::Reverse(similarity), distance, thread_a, thread_b));
            }
        }
    }
    candidates.sort_unstable();
    let mut taken = (Vec::new(), Vec::new());
    for (_, _, thread_a, thread_b) in candidates {
        if !taken.0.contains(&thread_a) && !taken.1.contains(&thread_b) {
            taken.0.push(thread_a);
            taken.1.push(thread_b);
            pairs.push((thread_a, thread_b));
        }
    }
}
