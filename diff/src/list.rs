//! Which differences are listed, and the calls that their descriptions need.

use cutape_format::{Error, Trace};
use rustc_hash::FxHashMap;

use crate::describe::{Described, describe};
use crate::differences::{Calls, Raw};
use crate::masks::Masks;
use crate::parallel::on_each;
use crate::part::Place;
use crate::report::Kind;

/// Differences to list, in the order of A.
pub(crate) struct Listed {
    pub(crate) raws: Vec<Raw>,
    pub(crate) omitted: u64,
}

/// With `all` every difference, else the first of each sort with their number; at most `most`.
pub(crate) fn list(raws: &[Raw], all: bool, most: usize) -> Listed {
    let mut listed: Vec<Raw> = Vec::new();
    let mut groups: FxHashMap<(u64, bool), usize> = FxHashMap::default();
    let mut omitted = 0;
    for raw in raws {
        let is_row = raw.count > 1 || matches!(raw.calls, Calls::Only(..));
        // Calls in a row have their own count.
        if !all && !is_row {
            let place = groups.get(&(raw.group, is_row));
            if let Some(first) = place.and_then(|&place| listed.get_mut(place)) {
                first.count += raw.count;
                continue;
            }
        }
        if listed.len() >= most {
            omitted += raw.count;
            continue;
        }
        groups.insert((raw.group, is_row), listed.len());
        listed.push(*raw);
    }
    Listed {
        raws: listed,
        omitted,
    }
}

/// The calls of A and B that differ.
pub(crate) type AllDescribed = [FxHashMap<Place, Described>; 2];

/// Reads the calls of differences again.
pub(crate) fn describe_all(
    (a, b): (&Trace, &Trace),
    (lengths_only, masks): (bool, &Masks),
    raws: &[Raw],
) -> Result<AllDescribed, Error> {
    let mut wanted = AllDescribed::default();
    let mut last = [0, 0];
    let mut wants_late = false;
    for raw in raws {
        wants_late |= raw.kinds.contains(Kind::Output);
        let places = match raw.calls {
            Calls::Both(of_a, of_b) => vec![(0, of_a), (1, of_b)],
            Calls::Only(side, place) | Calls::Leak(side, place, _) => vec![(side, place)],
            Calls::Thread(..) => Vec::new(),
            Calls::Order(order) => vec![
                (0, order.first.0),
                (0, order.second.0),
                (1, order.first.1),
                (1, order.second.1),
            ],
        };
        let positions = [raw.position.0, raw.position.1];
        for (side, place) in places {
            if let Some(wanted) = wanted.get_mut(side) {
                wanted.insert(place, Described::default());
            }
        }
        for (last, position) in last.iter_mut().zip(positions) {
            *last = position.max(*last);
        }
        // The second calls come later than the position.
        if let Calls::Order(_) = raw.calls {
            last = [u64::MAX; 2];
        }
    }
    let [of_a, of_b] = &wanted;
    let [last_a, last_b] = last;
    let jobs = [(a, of_a, last_a), (b, of_b, last_b)];
    let described = on_each(jobs, |(trace, wanted, last)| match wanted.is_empty() {
        true => Ok(FxHashMap::default()),
        false => describe(
            trace,
            (lengths_only, masks),
            wanted.clone(),
            last,
            wants_late,
        ),
    });
    let described: Vec<_> = described.into_iter().collect::<Result<_, _>>()?;
    Ok(described.try_into().unwrap_or_default())
}
