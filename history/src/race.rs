//! Whether two calls whose work nothing orders give another result in the other order: the question
//! of `cutape race`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;

use cutape_analyzer::{Analyzer, UnorderedPair};
use cutape_format::Trace;
use cutape_replay::{ForcedOrder, Moments, Observation, Observed, Reach};
use serde::Serialize;

use crate::calls::{CallFacts, facts};
use crate::difference::{Difference, Left, differences, differing, steady};
use crate::loads::Loads;

/// The most bytes of memory that one replay keeps.
const MOST_BYTES: u64 = 8 << 30;

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
    /// The second call is a launch with programmatic stream serialization, and the first one the
    /// kernel before it: the orders are without that attribute and with it.
    pub is_programmatic: bool,
    /// The two calls.
    pub by_calls: [CallFacts; 2],
    /// What came of it.
    pub outcome: Outcome,
    /// Of a proven race: what differs, in words.
    pub evidence: Option<String>,
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
        ..UnorderedPair::default()
    }
}

/// The pairs, without a replay.
pub fn listed(trace: &Trace, pairs: Vec<UnorderedPair>) -> Vec<Race> {
    let mut not_tried = |_: &UnorderedPair| {
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
    described(trace, pairs, &mut |pair| outcome(pair, &mut orders))
}

fn described<E>(
    trace: &Trace,
    pairs: Vec<UnorderedPair>,
    outcome: &mut dyn FnMut(&UnorderedPair) -> Result<Outcome, E>,
) -> Result<Vec<Race>, E> {
    let calls: BTreeSet<u64> = pairs
        .iter()
        .flat_map(|pair| [pair.first, pair.second])
        .collect();
    let of_calls = facts(trace, calls);
    let mut found = Vec::new();
    for pair in pairs {
        let outcome = outcome(&pair)?;
        found.push(Race {
            by_calls: [pair.first, pair.second].map(|call| of_calls.of(call)),
            first: pair.first,
            second: pair.second,
            label: pair.label,
            address: pair.address,
            is_certain: pair.is_certain,
            is_programmatic: pair.is_programmatic,
            evidence: evidence(&outcome, pair.is_programmatic),
            outcome,
        });
    }
    Ok(found)
}

fn evidence(outcome: &Outcome, is_programmatic: bool) -> Option<String> {
    match outcome {
        Outcome::Proven(found) => Some(differing(found.first()?, is_programmatic, None)),
        _ => None,
    }
}

/// The two orders of a pair, the one that the program may rely on first.
fn orders_of(pair: &UnorderedPair) -> (ForcedOrder, ForcedOrder) {
    let &UnorderedPair { first, second, .. } = pair;
    let order = |calls: [u64; 2], serialized| ForcedOrder {
        calls: calls.to_vec(),
        is_together: pair.is_programmatic,
        serialized,
        ..ForcedOrder::default()
    };
    match pair.is_programmatic {
        true => (
            order([first, second], Some(second)),
            order([first, second], None),
        ),
        false => (order([first, second], None), order([second, first], None)),
    }
}

fn outcome<E>(pair: &UnorderedPair, orders: &mut Orders<'_, E>) -> Result<Outcome, E> {
    let (in_order, reversed) = orders_of(pair);
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
    // Kernels that overlap may leave another content each time: then it must differ each time.
    let found = match pair.is_programmatic {
        true => differences(&one, &other_again).and_then(|again| {
            let differs_again =
                |found: &Difference| again.iter().any(|again| again.start == found.start);
            let found = compared.into_iter().filter(differs_again).collect();
            steady(found, &[(&one, &one_again)])
        }),
        false => steady(compared, &[(&one, &one_again), (&other, &other_again)]),
    };
    Ok(match found {
        Ok(steady) if steady.is_empty() => Outcome::Varies,
        Ok(steady) => Outcome::Proven(steady),
        Err(error) => Outcome::NotTried(error.to_string()),
    })
}
