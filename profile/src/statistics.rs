//! Medians, and how sure they are.

use serde::{Deserialize, Serialize};

/// The median of several values with an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// How many values there are.
    pub count: u64,
    /// The lower end of the interval.
    pub low: f64,
    /// The median.
    pub median: f64,
    /// The upper end.
    pub high: f64,
    /// How sure it is that the interval has the true median, 0 to 1: at least 0.95 from six values
    /// on, and less for fewer, whose interval is from the least to the greatest.
    pub confidence: f64,
}

impl Spread {
    /// Of values in any order; zeros for none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (left_out, confidence) = interval(values.len());
        let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
        Self {
            count: values.len() as u64,
            low: at(left_out),
            median: median(&values),
            high: at(values.len().saturating_sub(1 + left_out)),
            confidence,
        }
    }
}

/// The median of sorted values; 0 for none.
pub fn median(sorted: &[f64]) -> f64 {
    let at = |index: usize| sorted.get(index).copied().unwrap_or(0.0);
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => at(count / 2),
        count => f64::midpoint(at(count / 2 - 1), at(count / 2)),
    }
}

/// How many values to leave out at each end for at least 95 %, and how sure the interval is: the
/// true median lies outside if all or nearly all values fall on one side of it, which is a binomial
/// probability of one half.
fn interval(count: usize) -> (usize, f64) {
    let mut term = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut outside = 2.0 * term;
    let first = outside;
    let mut left_out = 0;
    // Beyond a thousand values the terms are too small to add up.
    for next in 1..=count.min(1000) / 2 {
        term *= (count + 1 - next) as f64 / next as f64;
        if outside + 2.0 * term > 0.05 {
            break;
        }
        outside += 2.0 * term;
        left_out = next;
    }
    match count {
        0 | 1 => (0, 0.0),
        _ if left_out == 0 => (0, 1.0 - first),
        _ => (left_out, 1.0 - outside),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_intervals() {
        for (values, expected, confidence) in [
            (&[][..], (0.0, 0.0, 0.0), 0.0),
            (&[3.0], (3.0, 3.0, 3.0), 0.0),
            (&[4.0, 2.0], (2.0, 3.0, 4.0), 0.5),
            (&[3.0, 1.0, 2.0, 5.0, 4.0], (1.0, 3.0, 5.0), 0.9375),
            (&[6.0, 1.0, 2.0, 5.0, 4.0, 3.0], (1.0, 3.5, 6.0), 0.96875),
        ] {
            let spread = Spread::of(values.iter().copied());
            assert_eq!((spread.low, spread.median, spread.high), expected);
            assert!((spread.confidence - confidence).abs() < 1e-12, "{spread:?}");
        }
        // Tables of the sign test: 9 values leave out one at each end (96.1 %), 20 leave out 5.
        let of = |count: u32| Spread::of((1..=count).map(f64::from));
        assert_eq!((of(9).low, of(9).high), (2.0, 8.0));
        assert_eq!((of(20).low, of(20).high), (6.0, 15.0));
        assert!((of(20).confidence - 0.958_6).abs() < 1e-3);
    }
}
