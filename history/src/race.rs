//! Whether two calls whose work nothing orders give another result in the other order: the question
//! of `cutape race`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;

use cutape_analyzer::{Analyzer, UnorderedPair};
use cutape_format::Trace;
use cutape_replay::{ForcedOrder, Moments, Observation, Observed, ObservedMemory, Reach};
use serde::Serialize;

use crate::calls::{CallFacts, facts};
use crate::contents::{Contents, MemoryPairs};
use crate::loads::Loads;

/// Contents are compared in pieces of so many bytes.
const PART: u64 = 1 << 20;
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

/// What a replay left in memory.
pub(crate) type Left = (Vec<ObservedMemory>, Contents);

/// Has the trace replayed.
pub type Observe<'a, E> = &'a mut dyn FnMut(Observation) -> Result<(Observed, File), E>;

/// Replays in chosen orders.
pub(crate) struct Orders<'a, E> {
    loads: Loads,
    observe: Observe<'a, E>,
}

impl<'a, E> Orders<'a, E> {
    /// Of calls in these windows, each from its first call to its last one.
    pub(crate) fn new(trace: &Trace, windows: &[(u64, u64)], observe: Observe<'a, E>) -> Self {
        Self {
            loads: Loads::of(trace, windows),
            observe,
        }
    }

    /// What memory holds after the work of these calls in an order; else why it did not run so.
    pub(crate) fn run(&mut self, order: ForcedOrder) -> Result<Result<Left, String>, E> {
        let window = order.calls.iter().min().zip(order.calls.iter().max());
        let (&first, &last) = window.unwrap_or((&0, &0));
        let moments = Moments {
            reach: Reach::All,
            after: true,
            ..Moments::default()
        };
        let (observed, contents) = (self.observe)(Observation {
            calls: BTreeMap::from([(last, moments)]),
            order: Some(ForcedOrder {
                loads: self.loads.between((first, last)),
                ..order
            }),
            longest: u64::MAX,
            most_bytes: MOST_BYTES,
            ..Observation::default()
        })?;
        if let Some(why) = observed.not_ordered {
            return Ok(Err(why));
        }
        let Some(call) = observed.calls.into_iter().next() else {
            return Ok(Err(format!("the replay did not reach call {last}")));
        };
        Ok(match call.refused {
            Some(why) => Err(why),
            None => Ok((call.memory, contents.into())),
        })
    }
}

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
    observe: Observe<'_, E>,
) -> Result<Vec<Race>, E> {
    let windows: Vec<_> = pairs.iter().map(|pair| (pair.first, pair.second)).collect();
    let mut orders = Orders::new(trace, &windows, observe);
    described(trace, pairs, &mut |calls| outcome(calls, &mut orders))
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
    let of_calls = facts(trace, calls);
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

fn outcome<E>((first, second): (u64, u64), orders: &mut Orders<'_, E>) -> Result<Outcome, E> {
    let order = |calls: [u64; 2]| ForcedOrder {
        calls: calls.to_vec(),
        ..ForcedOrder::default()
    };
    let (in_order, reversed) = (order([first, second]), order([second, first]));
    // The other order is the one that may not be possible.
    let other = match orders.run(reversed.clone())? {
        Ok(left) => left,
        Err(why) => return Ok(Outcome::NotTried(why)),
    };
    let one = match orders.run(in_order.clone())? {
        Ok(left) => left,
        Err(why) => return Ok(Outcome::NotTried(why)),
    };
    let compared = match differences(&one, &other) {
        Ok(found) => found,
        Err(error) => return Ok(Outcome::NotTried(error.to_string())),
    };
    if compared.is_empty() {
        return Ok(Outcome::Same);
    }
    let again = (orders.run(in_order)?, orders.run(reversed)?);
    let (Ok(one_again), Ok(other_again)) = again else {
        return Ok(Outcome::Varies);
    };
    let steady = steady(compared, [(&one, &one_again), (&other, &other_again)]);
    Ok(match steady {
        Ok(steady) if steady.is_empty() => Outcome::Varies,
        Ok(steady) => Outcome::Proven(steady),
        Err(error) => Outcome::NotTried(error.to_string()),
    })
}

/// Those differences whose memory holds the same in each two replays of one order.
pub(crate) fn steady<const COUNT: usize>(
    found: Vec<Difference>,
    replays: [(&Left, &Left); COUNT],
) -> io::Result<Vec<Difference>> {
    let mut unsteady = BTreeSet::new();
    for (one, again) in replays {
        let found = differences(one, again)?;
        unsteady.extend(found.into_iter().map(|difference| difference.start));
    }
    let is_steady = |difference: &Difference| !unsteady.contains(&difference.start);
    Ok(found.into_iter().filter(is_steady).collect())
}

/// The memory whose contents differ. Addresses in it are compared as recorded.
pub(crate) fn differences(a: &Left, b: &Left) -> io::Result<Vec<Difference>> {
    let pairs = MemoryPairs::as_recorded(&a.0, &b.0);
    let mut found = Vec::new();
    for (number, memory) in a.0.iter().enumerate() {
        let Some(other) = pairs.other(number) else {
            continue;
        };
        // What no piece has is zero in both.
        let pieces = memory.after.iter().chain(&other.after);
        let parts = pieces.flat_map(|piece| piece.at / PART..=(piece.at + piece.length - 1) / PART);
        let mut difference: Option<Difference> = None;
        for part in parts.collect::<BTreeSet<u64>>() {
            let part = part * PART..((part + 1) * PART).min(memory.length);
            let of_a = a.1.read_part(part.clone(), &memory.after)?;
            let mut of_b = b.1.read_part(part.clone(), &other.after)?;
            pairs.as_in_a(&of_a, &mut of_b);
            let differ = || {
                let bytes = of_a.iter().zip(&of_b).enumerate();
                bytes.filter(|(_, (a, b))| a != b).map(|(at, _)| at)
            };
            let Some(first) = differ().next() else {
                continue;
            };
            let difference = difference.get_or_insert_with(|| {
                let shown = |bytes: &[u8]| {
                    let bytes = bytes.iter().skip(first & !7).take(SHOWN);
                    bytes.copied().collect()
                };
                Difference {
                    address: memory.recorded + part.start + (first & !7) as u64,
                    bytes: 0,
                    made: (memory.name.clone(), memory.made),
                    start: memory.recorded,
                    in_order: shown(&of_a),
                    reversed: shown(&of_b),
                }
            });
            difference.bytes += differ().count() as u64;
        }
        found.extend(difference);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutape_replay::Piece;
    use std::io::{Seek, Write};

    /// Memory of 10,000 bytes, and what a replay left in it.
    fn left(name: &str, live: u64, pieces: &[(u64, u64, u64)], bytes: &[u8]) -> Left {
        let file = format!("cutape-race-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(file);
        let options = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .clone();
        let mut file = options.open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        let piece = |&(at, length, file): &(u64, u64, u64)| Piece { at, length, file };
        let memory = ObservedMemory {
            recorded: 0x1000,
            live,
            length: 10_000,
            after: pieces.iter().map(piece).collect(),
            ..ObservedMemory::default()
        };
        (vec![memory], file.into())
    }

    #[test]
    fn contents_are_compared() {
        let zeros = left("zeros", 0x1000, &[], &[]);
        // A piece of two pages.
        let mut bytes = vec![0; 8192 - 4096 + 1808];
        bytes[9] = 7;
        bytes[100] = 8;
        bytes[5000] = 9;
        let one = left("one", 0x1000, &[(4096, bytes.len() as u64, 0)], &bytes);
        assert!(differences(&one, &one).unwrap().is_empty());
        let found = differences(&zeros, &one).unwrap();
        assert_eq!((found[0].address, found[0].bytes), (0x2008, 3));
        assert_eq!(found[0].reversed[1], 7);
        assert_eq!(found[0].in_order, vec![0; SHOWN]);
    }

    #[test]
    fn addresses_are_compared_as_recorded() {
        let with = |live: u64| {
            let word = (live + 0x10).to_le_bytes();
            left("addresses", live, &[(0, 8, 0)], &word)
        };
        let (a, b) = (with(0x1000), with(0x9000_0000));
        assert!(differences(&a, &b).unwrap().is_empty());
    }
}
