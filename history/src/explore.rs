//! Whether work that nothing orders gives another result in other legal orders: `cutape race
//! --explore`.

use std::collections::{BTreeMap, BTreeSet};

use cutape_analyzer::{Analyzer, UnorderedPair};
use cutape_format::Trace;
use cutape_replay::ForcedOrder;
use serde::Serialize;

use crate::difference::{differences, steady};
use crate::race::{Observe, Orders, Outcome};

/// The most calls of a window: so many are kept back at once.
const WIDEST: usize = 12;
/// How often a new order is looked for, for each that is wanted.
const DRAWS: usize = 16;

/// Calls of which some have no order, and what other orders of them gave.
#[derive(Clone, Debug, Serialize)]
pub struct Explored {
    /// The calls, as recorded.
    pub calls: Vec<u64>,
    /// The other orders that were tried.
    pub tried: Vec<Interleaving>,
}

/// An order of calls that is as legal as the recorded one.
#[derive(Clone, Debug, Serialize)]
pub struct Interleaving {
    /// The calls, in the order of their work.
    pub calls: Vec<u64>,
    /// What came of it, compared with the recorded order.
    pub outcome: Outcome,
}

/// Which orders are tried.
#[derive(Clone, Copy, Debug)]
pub struct Exploration {
    /// How many of each window.
    pub orders: usize,
    /// Of how many windows.
    pub windows: usize,
    /// Equal seeds try equal orders.
    pub seed: u64,
}

/// Replays orders of calls that the pairs connect. Two calls alone are none: [`crate::races`] tries
/// their orders.
///
/// # Errors
/// Those of the replay.
pub fn explore<E>(
    trace: &Trace,
    pairs: &[UnorderedPair],
    exploration: Exploration,
    observe: Observe<'_, E>,
) -> Result<Vec<Explored>, E> {
    let mut windows = windows(pairs);
    windows.truncate(exploration.windows);
    let unordered = unordered(trace, &windows);
    let spans = windows
        .iter()
        .filter_map(|calls| Some((*calls.first()?, *calls.last()?)));
    let mut orders = Orders::new(trace, &spans.collect::<Vec<_>>(), observe);
    let mut random = exploration.seed;
    let mut found = Vec::new();
    for calls in windows {
        let tried = interleavings(&calls, &unordered, exploration.orders, &mut random);
        let tried = compared(&calls, tried, &mut orders)?;
        found.push(Explored { calls, tried });
    }
    Ok(found)
}

/// Replays the recorded order and each of the others.
fn compared<E>(
    recorded: &[u64],
    others: Vec<Vec<u64>>,
    orders: &mut Orders<'_, E>,
) -> Result<Vec<Interleaving>, E> {
    let order = |calls: &[u64]| ForcedOrder {
        calls: calls.to_vec(),
        ..ForcedOrder::default()
    };
    let mut references = Vec::new();
    let mut tried = Vec::new();
    for calls in others {
        if references.is_empty() {
            references.push(orders.run(order(recorded))?);
        }
        let mut outcome = |orders: &mut Orders<'_, E>| {
            let other = orders.run(order(&calls))?;
            let (Some(Ok(reference)), Ok(left)) = (references.first(), &other) else {
                let why = references
                    .first()
                    .and_then(|one| one.as_ref().err().cloned());
                return Ok(Outcome::NotTried(why.or(other.err()).unwrap_or_default()));
            };
            let found = match differences(reference, left) {
                Ok(found) if found.is_empty() => return Ok(Outcome::Same),
                Ok(found) => found,
                Err(error) => return Ok(Outcome::NotTried(error.to_string())),
            };
            if references.len() == 1 {
                references.push(orders.run(order(recorded))?);
            }
            let again = orders.run(order(&calls))?;
            let [Ok(one), Ok(one_again)] = references.as_slice() else {
                return Ok(Outcome::Varies);
            };
            let Ok(again) = again else {
                return Ok(Outcome::Varies);
            };
            Ok(match steady(found, &[(one, one_again), (left, &again)]) {
                Ok(found) if found.is_empty() => Outcome::Varies,
                Ok(found) => Outcome::Proven(found),
                Err(error) => Outcome::NotTried(error.to_string()),
            })
        };
        let outcome = outcome(orders)?;
        tried.push(Interleaving { calls, outcome });
    }
    Ok(tried)
}

/// The calls that pairs connect, at most [`WIDEST`] together, in the order of the trace.
fn windows(pairs: &[UnorderedPair]) -> Vec<Vec<u64>> {
    // By call, the first call of those that it is connected with.
    let mut firsts: BTreeMap<u64, u64> = BTreeMap::new();
    for pair in pairs.iter().filter(|pair| !pair.is_programmatic) {
        let of = |call: u64| firsts.get(&call).copied().unwrap_or(call);
        let (one, other) = (of(pair.first), of(pair.second));
        let first = one.min(other);
        firsts.insert(pair.first, first);
        firsts.insert(pair.second, first);
        let joined = firsts
            .values_mut()
            .filter(|known| **known == one || **known == other);
        joined.for_each(|known| *known = first);
    }
    let mut connected: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (call, first) in firsts {
        connected.entry(first).or_default().push(call);
    }
    let windows = connected.values().flat_map(|calls| calls.chunks(WIDEST));
    windows
        .filter(|calls| calls.len() > 2)
        .map(<[u64]>::to_vec)
        .collect()
}

/// Which two calls of the windows nothing orders.
fn unordered(trace: &Trace, windows: &[Vec<u64>]) -> BTreeSet<(u64, u64)> {
    let calls: BTreeSet<u64> = windows.iter().flatten().copied().collect();
    let last = calls.last().copied().unwrap_or(0);
    let mut analyzer = Analyzer::new();
    analyzer.collect_order(calls);
    for call in trace.calls().take_while(|call| call.index <= last) {
        analyzer.push(trace, &call);
    }
    analyzer.take_unordered()
}

/// Orders that differ from the recorded one, and only in calls that nothing orders.
fn interleavings(
    calls: &[u64],
    unordered: &BTreeSet<(u64, u64)>,
    count: usize,
    random: &mut u64,
) -> Vec<Vec<u64>> {
    let mut found: Vec<Vec<u64>> = Vec::new();
    for _ in 0..count.saturating_mul(DRAWS) {
        if found.len() >= count {
            break;
        }
        let mut left = calls.to_vec();
        let mut order = Vec::new();
        while !left.is_empty() {
            let is_free = |at: &usize| {
                let earlier = left.iter().take(*at);
                let call = left.get(*at).copied().unwrap_or_default();
                earlier
                    .copied()
                    .all(|earlier| unordered.contains(&(earlier, call)))
            };
            let free: Vec<usize> = (0..left.len()).filter(is_free).collect();
            // The first one is always free.
            let at = next(random) as usize % free.len().max(1);
            order.push(left.remove(free.get(at).copied().unwrap_or(0)));
        }
        if order != calls && !found.contains(&order) {
            found.push(order);
        }
    }
    found
}

/// A step of splitmix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_connect_calls() {
        let pair = |first, second| UnorderedPair {
            first,
            second,
            ..UnorderedPair::default()
        };
        let pairs = [pair(5, 9), pair(1, 2), pair(7, 8), pair(8, 9), pair(20, 21)];
        assert_eq!(windows(&pairs), [vec![5, 7, 8, 9]]);
        let programmatic = UnorderedPair {
            is_programmatic: true,
            ..pair(2, 3)
        };
        assert!(windows(&[pair(1, 2), programmatic]).is_empty());
    }

    #[test]
    fn orders_keep_what_is_ordered() {
        // 1 before 2; 3 is free.
        let unordered = BTreeSet::from([(1, 3), (2, 3)]);
        let mut found = interleavings(&[1, 2, 3], &unordered, 9, &mut 1);
        found.sort();
        assert_eq!(found, [vec![1, 3, 2], vec![3, 1, 2]]);
        assert_eq!(interleavings(&[1, 2, 3], &unordered, 1, &mut 1).len(), 1);
        assert!(interleavings(&[1, 2, 3], &BTreeSet::new(), 9, &mut 1).is_empty());
    }
}
