//! Durations of calls, compared with the noise that each trace shows itself.

use cutape_format::Trace;

use crate::report::{Spread, Times};
use crate::sequence::Durations;

/// Fewer calls than these show no noise: no change is reported.
pub const FEWEST_CALLS: u64 = 20;

/// Durations by function and kernel, those first that take longest in all.
pub(crate) fn times(a: (&Trace, Durations), b: (&Trace, Durations)) -> Vec<Times> {
    let (rate_a, rate_b) = (a.0.ticks_per_second(), b.0.ticks_per_second());
    let (mut a, mut b) = (a.1, b.1);
    let mut keys: Vec<u64> = a.ticks.keys().chain(b.ticks.keys()).copied().collect();
    keys.sort_unstable();
    keys.dedup();
    let mut found: Vec<(u64, Times)> = keys
        .into_iter()
        .filter_map(|key| {
            let name = a.names.get(&key).or_else(|| b.names.get(&key))?;
            let (function, kernel) = (name.0.to_string(), name.1.as_deref().map(str::to_owned));
            let sides = [
                spread(
                    a.ticks.get_mut(&key).map_or(&mut [], Vec::as_mut_slice),
                    rate_a,
                ),
                spread(
                    b.ticks.get_mut(&key).map_or(&mut [], Vec::as_mut_slice),
                    rate_b,
                ),
            ];
            let longest = sides.map(|side| side.calls.saturating_mul(side.median));
            let change = change(sides);
            let times = Times {
                function,
                kernel,
                sides,
                change,
            };
            Some((longest.into_iter().max().unwrap_or(0), times))
        })
        .collect();
    found.sort_by_key(|(longest, _)| std::cmp::Reverse(*longest));
    found.into_iter().map(|(_, times)| times).collect()
}

fn spread(ticks: &mut [u32], rate: u64) -> Spread {
    ticks.sort_unstable();
    let at = |part: usize| {
        let place = ticks.len().saturating_sub(1) * part / 4;
        let ticks = u64::from(ticks.get(place).copied().unwrap_or(0));
        (ticks * 1_000_000_000).checked_div(rate).unwrap_or(0)
    };
    Spread {
        calls: ticks.len() as u64,
        low: at(1),
        median: at(2),
        high: at(3),
    }
}

/// By how many percent B is slower; `None` within the noise: too few calls, or the middle halves of
/// the durations overlap.
fn change([a, b]: [Spread; 2]) -> Option<i64> {
    let overlap = a.low <= b.high && b.low <= a.high;
    if overlap || a.calls < FEWEST_CALLS || b.calls < FEWEST_CALLS || a.median == 0 {
        return None;
    }
    let (a, b) = (i128::from(a.median), i128::from(b.median));
    i64::try_from((b - a) * 100 / a).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise() {
        let side = |calls, low, high| Spread {
            calls,
            median: (low + high) / 2,
            low,
            high,
        };
        for (a, b, expected) in [
            (side(100, 90, 110), side(100, 190, 210), Some(100)),
            (side(100, 190, 210), side(100, 90, 110), Some(-50)),
            (side(100, 90, 110), side(100, 105, 130), None),
            (side(19, 90, 110), side(100, 190, 210), None),
        ] {
            assert_eq!(change([a, b]), expected, "{a:?} {b:?}");
        }
        let mut ticks: Vec<u32> = (0..101).rev().collect();
        let expected = Spread {
            calls: 101,
            median: 50,
            low: 25,
            high: 75,
        };
        assert_eq!(spread(&mut ticks, 1_000_000_000), expected);
        assert_eq!(spread(&mut [], 0), Spread::default());
    }
}
