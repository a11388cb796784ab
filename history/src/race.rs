//! Whether two calls whose work nothing orders give another result in the other order: the question
//! of `cutape race`.

use std::collections::{BTreeMap, BTreeSet};

use cutape_analyzer::{Analyzer, UnorderedPair};
use cutape_format::Trace;
use cutape_replay::{ForcedOrder, Moments, Observation, Observed, ObservedMemory, Piece, Reach};
use serde::Serialize;

use crate::calls::{CallFacts, facts};

/// The unit in which contents are kept (`Piece`).
const PAGE: usize = 4096;
/// The most bytes of memory that one replay keeps.
const MOST_BYTES: u64 = 8 << 30;
/// Bytes of a difference that are shown.
const SHOWN: usize = 64;

/// A pair, and what was found out about it.
#[derive(Clone, Debug, Serialize)]
pub struct Race {
    /// The call that the program made first.
    pub first: u64,
    /// The other one.
    pub second: u64,
    /// The memory that both use, e.g. `memory#3`; empty if a user named the pair.
    pub label: String,
    /// The recorded address of the first byte that both touch.
    pub address: u64,
    /// That both touch it is known, and not assumed of a kernel.
    pub is_certain: bool,
    /// The two calls.
    pub by_calls: [CallFacts; 2],
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of replaying both orders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The memory has another content in the other order: twice the same in each.
    Proven(Vec<Difference>),
    /// The memory has the same content in both orders.
    Same,
    /// It differs between replays of one order already, so nothing can be said.
    Varies,
    /// Why there was no replay in both orders.
    NotTried(String),
}

/// Bytes that differ between the orders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The recorded address of the first one.
    pub address: u64,
    /// How many of the memory differ.
    pub bytes: u64,
    /// The memory: the function that made it, and the call.
    pub made: (String, u64),
    /// Where the memory begins.
    pub start: u64,
    /// Some bytes from the address on, if the first call's work runs first.
    pub in_order: Vec<u8>,
    /// The same bytes if it runs second.
    pub reversed: Vec<u8>,
}

/// What a replay left in memory: the memory, and the bytes of its pieces.
type Contents = (Vec<ObservedMemory>, Vec<u8>);

/// The pairs of a trace, those first of which it is known that both calls touch the same bytes.
pub fn unordered_pairs(trace: &Trace) -> Vec<UnorderedPair> {
    let mut analyzer = Analyzer::new();
    analyzer.collect_pairs();
    for call in trace.calls() {
        analyzer.push(trace, &call);
    }
    let mut pairs = analyzer.take_pairs();
    pairs.sort_by_key(|pair| (!pair.is_certain, pair.second, pair.first));
    pairs
}

/// A pair that a user names: what its calls use is not known.
pub fn pair(first: u64, second: u64) -> UnorderedPair {
    UnorderedPair {
        first,
        second,
        label: String::new(),
        address: 0,
        is_certain: false,
    }
}

/// The pairs, without a replay.
pub fn listed(trace: &Trace, pairs: Vec<UnorderedPair>) -> Vec<Race> {
    let mut not_tried = |_| {
        let outcome = Outcome::NotTried("--list".to_owned());
        Ok::<_, std::convert::Infallible>(outcome)
    };
    match described(trace, pairs, &mut not_tried) {
        Ok(races) => races,
        Err(never) => match never {},
    }
}

/// Replays both orders of each pair; `observe` replays the trace with what it is given, and returns
/// what was seen with the file of contents.
///
/// # Errors
/// Those of the replay.
pub fn races<E>(
    trace: &Trace,
    pairs: Vec<UnorderedPair>,
    observe: &mut dyn FnMut(Observation) -> Result<(Observed, Vec<u8>), E>,
) -> Result<Vec<Race>, E> {
    described(trace, pairs, &mut |calls| outcome(calls, observe))
}

fn described<E>(
    trace: &Trace,
    pairs: Vec<UnorderedPair>,
    outcome: &mut dyn FnMut((u64, u64)) -> Result<Outcome, E>,
) -> Result<Vec<Race>, E> {
    let calls: BTreeSet<u64> = pairs
        .iter()
        .flat_map(|pair| [pair.first, pair.second])
        .collect();
    let mut of_calls = facts(trace, calls);
    let mut found = Vec::new();
    for pair in pairs {
        let outcome = outcome((pair.first, pair.second))?;
        found.push(Race {
            by_calls: [pair.first, pair.second].map(|call| of_calls.of(call)),
            first: pair.first,
            second: pair.second,
            label: pair.label,
            address: pair.address,
            is_certain: pair.is_certain,
            outcome,
        });
    }
    Ok(found)
}

fn outcome<E>(
    (first, second): (u64, u64),
    observe: &mut dyn FnMut(Observation) -> Result<(Observed, Vec<u8>), E>,
) -> Result<Outcome, E> {
    let mut replay = |is_reversed| -> Result<Result<Contents, String>, E> {
        let moments = Moments {
            reach: Reach::All,
            after: true,
            ..Moments::default()
        };
        let (observed, bytes) = observe(Observation {
            calls: BTreeMap::from([(second, moments)]),
            order: Some(ForcedOrder {
                first,
                second,
                is_reversed,
            }),
            longest: u64::MAX,
            most_bytes: MOST_BYTES,
            ..Observation::default()
        })?;
        if let Some(why) = observed.not_ordered {
            return Ok(Err(why));
        }
        let Some(call) = observed.calls.into_iter().next() else {
            return Ok(Err(format!("the replay did not reach call {second}")));
        };
        Ok(match call.refused {
            Some(why) => Err(why),
            None => Ok((call.memory, bytes)),
        })
    };
    // The other order is the one that may not be possible.
    let reversed = match replay(true)? {
        Ok(contents) => contents,
        Err(why) => return Ok(Outcome::NotTried(why)),
    };
    let in_order = match replay(false)? {
        Ok(contents) => contents,
        Err(why) => return Ok(Outcome::NotTried(why)),
    };
    if differences(&in_order, &reversed).is_empty() {
        return Ok(Outcome::Same);
    }
    let again = (replay(false)?, replay(true)?);
    let (Ok(in_order_again), Ok(reversed_again)) = again else {
        return Ok(Outcome::Varies);
    };
    let is_steady = |a, b| differences(a, b).is_empty();
    let steady: Vec<Difference> =
        match is_steady(&in_order, &in_order_again) && is_steady(&reversed, &reversed_again) {
            true => differences(&in_order, &reversed),
            false => {
                let unsteady: BTreeSet<u64> = differences(&in_order, &in_order_again)
                    .into_iter()
                    .chain(differences(&reversed, &reversed_again))
                    .map(|difference| difference.start)
                    .collect();
                let all = differences(&in_order, &reversed).into_iter();
                all.filter(|difference| !unsteady.contains(&difference.start))
                    .collect()
            }
        };
    Ok(match steady.is_empty() {
        true => Outcome::Varies,
        false => Outcome::Proven(steady),
    })
}

/// The memory whose contents differ. Addresses in it are compared as recorded.
fn differences(a: &Contents, b: &Contents) -> Vec<Difference> {
    let mut others: BTreeMap<(u64, u64), &ObservedMemory> = BTreeMap::new();
    for memory in &b.0 {
        others.insert((memory.recorded, memory.length), memory);
    }
    let mut found = Vec::new();
    for memory in &a.0 {
        let Some(other) = others.get(&(memory.recorded, memory.length)) else {
            continue;
        };
        let pages: BTreeSet<u64> = memory
            .after
            .iter()
            .chain(&other.after)
            .map(|piece| piece.at)
            .collect();
        let mut difference: Option<Difference> = None;
        for at in pages {
            let left = page(at, memory, a);
            let right = page(at, other, b);
            if left == right {
                continue;
            }
            let changed = left
                .iter()
                .zip(&right)
                .filter(|(left, right)| left != right)
                .count();
            let first = left
                .iter()
                .zip(&right)
                .position(|(left, right)| left != right);
            let first = first.unwrap_or(0);
            let difference = difference.get_or_insert_with(|| {
                let shown = |bytes: &[u8]| {
                    let bytes = bytes.iter().skip(first & !7).take(SHOWN);
                    bytes.copied().collect()
                };
                Difference {
                    address: memory.recorded + at + (first & !7) as u64,
                    bytes: 0,
                    made: (memory.name.clone(), memory.made),
                    start: memory.recorded,
                    in_order: shown(&left),
                    reversed: shown(&right),
                }
            });
            difference.bytes += changed as u64;
        }
        found.extend(difference);
    }
    found
}

/// A page of some memory, with recorded addresses; zeros where nothing is kept.
fn page(at: u64, memory: &ObservedMemory, contents: &Contents) -> Vec<u8> {
    let length = (memory.length - at.min(memory.length)).min(PAGE as u64);
    let mut bytes = vec![0; length as usize];
    let piece_of = |piece: &&Piece| (piece.at..piece.at + piece.length).contains(&at);
    if let Some(piece) = memory.after.iter().find(piece_of) {
        let from = (piece.file + (at - piece.at)) as usize;
        let kept = contents.1.get(from..).unwrap_or_default();
        bytes
            .iter_mut()
            .zip(kept)
            .for_each(|(to, from)| *to = *from);
    }
    if contents
        .0
        .iter()
        .any(|memory| memory.live != memory.recorded)
    {
        for word in bytes.as_chunks_mut::<8>().0 {
            let address = u64::from_le_bytes(*word);
            let area = contents.0.iter().find(|memory| {
                (memory.live..memory.live.saturating_add(memory.length)).contains(&address)
            });
            if let Some(area) = area {
                *word = (area.recorded + (address - area.live)).to_le_bytes();
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(recorded: u64, live: u64, pieces: &[(u64, u64, u64)]) -> ObservedMemory {
        let piece = |&(at, length, file): &(u64, u64, u64)| Piece { at, length, file };
        ObservedMemory {
            recorded,
            live,
            length: 10_000,
            after: pieces.iter().map(piece).collect(),
            ..ObservedMemory::default()
        }
    }

    #[test]
    fn contents_are_compared_page_by_page() {
        let zeros = (vec![memory(0x1000, 0x1000, &[])], Vec::new());
        let mut bytes = vec![0; PAGE];
        bytes[9] = 7;
        bytes[100] = 8;
        let one = (vec![memory(0x1000, 0x1000, &[(4096, 4096, 0)])], bytes);
        assert!(differences(&one, &one).is_empty());
        let found = differences(&zeros, &one);
        assert_eq!((found[0].address, found[0].bytes), (0x2008, 2));
        assert_eq!(found[0].reversed[1], 7);
        assert_eq!(found[0].in_order, vec![0; SHOWN]);
    }

    #[test]
    fn addresses_are_compared_as_recorded() {
        let with = |live: u64| {
            let mut bytes = vec![0; PAGE];
            bytes[..8].copy_from_slice(&(live + 0x10).to_le_bytes());
            (vec![memory(0x1000, live, &[(0, 4096, 0)])], bytes)
        };
        assert!(differences(&with(0x1000), &with(0x9000_0000)).is_empty());
    }
}
