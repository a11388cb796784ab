//! What the numbers of an array are like.

use serde::Serialize;

use crate::values::{Number, Shown, Values};

/// How many parts a histogram has.
const BINS: usize = 10;

/// What the numbers of an array are like. Extremes, mean, deviation and histogram are those of the
/// finite numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Statistics {
    /// All numbers.
    pub count: u64,
    /// Those that are neither NaN nor infinite.
    pub finite: u64,
    /// NaN.
    pub nan: u64,
    /// Positive infinity.
    pub positive_infinity: u64,
    /// Negative infinity.
    pub negative_infinity: u64,
    /// Zeros of both signs.
    pub zeros: u64,
    /// Subnormal numbers.
    pub subnormal: u64,
    /// The first of the smallest ones.
    pub min: Option<Extreme>,
    /// The first of the largest ones.
    pub max: Option<Extreme>,
    /// The mean; `None` also if it is too large to be computed.
    pub mean: Option<f64>,
    /// The standard deviation of all numbers, not of a sample; `None` as for the mean.
    pub standard_deviation: Option<f64>,
    /// Parts of the same width from the smallest number to the largest; none if all are equal.
    pub histogram: Vec<Bin>,
}

/// A number and its place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Extreme {
    /// The number.
    pub value: Shown,
    /// Its place in the array.
    pub index: Vec<u64>,
}

/// How many numbers lie between two.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bin {
    /// The least one.
    pub from: f64,
    /// The first number of the next bin; that of the last bin belongs to it.
    pub to: f64,
    /// How many.
    pub count: u64,
}

/// An extreme while it is sought: its number counted in C order, its value, its bytes.
type Found<'a> = Option<(u64, Number, &'a [u8])>;

/// The statistics of some numbers; `None` if one cannot compute with them.
pub(crate) fn statistics(values: Values<'_>) -> Option<Statistics> {
    let decode = values.decoder()?;
    let mut counts = Statistics::default();
    let (mut min, mut max): (Found<'_>, Found<'_>) = (None, None);
    let (mut mean, mut squares) = (0.0, 0.0);
    for (place, raw) in (0..).zip(values.raw()) {
        let number = decode(raw);
        counts.count += 1;
        let value = number.value();
        if value.is_nan() {
            counts.nan += 1;
            continue;
        }
        if value.is_infinite() {
            counts.positive_infinity += u64::from(value > 0.0);
            counts.negative_infinity += u64::from(value < 0.0);
            continue;
        }
        counts.finite += 1;
        counts.zeros += u64::from(value == 0.0);
        counts.subnormal += u64::from(matches!(
            number,
            Number::Real {
                is_subnormal: true,
                ..
            }
        ));
        // Welford: sums of large numbers would lose the small ones.
        let difference = value - mean;
        mean += difference / counts.finite as f64;
        squares += difference * (value - mean);
        if min.is_none_or(|(_, least, _)| is_less(number, least)) {
            min = Some((place, number, raw));
        }
        if max.is_none_or(|(_, most, _)| is_less(most, number)) {
            max = Some((place, number, raw));
        }
    }
    let extreme = |found: Found<'_>| {
        found.map(|(place, _, raw)| Extreme {
            value: values.shown(raw),
            index: values.layout.index(place),
        })
    };
    let histogram = match (min, max) {
        (Some((_, min, _)), Some((_, max, _))) if is_less(min, max) => {
            let numbers = values.raw().map(|raw| decode(raw).value());
            histogram(numbers, min.value(), max.value())
        }
        _ => Vec::new(),
    };
    let is_any = counts.finite > 0;
    let deviation = (squares / counts.finite as f64).sqrt();
    Some(Statistics {
        min: extreme(min),
        max: extreme(max),
        mean: is_any.then_some(mean).filter(|mean| mean.is_finite()),
        standard_deviation: is_any.then_some(deviation).filter(|it| it.is_finite()),
        histogram,
        ..counts
    })
}

fn is_less(one: Number, other: Number) -> bool {
    match (one, other) {
        // Large integers are equal as `f64`.
        (Number::Integer(one), Number::Integer(other)) => one < other,
        _ => one.value() < other.value(),
    }
}

/// Counts the finite numbers between two by parts of the same width.
fn histogram(numbers: impl Iterator<Item = f64>, min: f64, max: f64) -> Vec<Bin> {
    // Half of each, because the difference of large numbers may be infinite.
    let scale = if (max - min).is_finite() { 1.0 } else { 0.5 };
    let width = max * scale - min * scale;
    let edge = |bin: usize| match bin {
        BINS => max,
        bin => (min * scale + width * (bin as f64 / BINS as f64)) / scale,
    };
    let mut bins: Vec<Bin> = (0..BINS)
        .map(|bin| Bin {
            from: edge(bin),
            to: edge(bin + 1),
            count: 0,
        })
        .collect();
    for number in numbers.filter(|number| number.is_finite()) {
        let part = (number * scale - min * scale) / width;
        let bin = ((part * BINS as f64) as usize).min(BINS - 1);
        if let Some(bin) = bins.get_mut(bin) {
            bin.count += 1;
        }
    }
    bins
}

#[cfg(test)]
mod tests {
    use cutape_render::Element;

    use super::*;
    use crate::values::Layout;

    fn of<const N: usize>(name: &str, numbers: &[[u8; N]]) -> Option<Statistics> {
        let layout = Layout::new(vec![numbers.len() as u64], None).unwrap();
        statistics(Values {
            bytes: numbers.as_flattened(),
            element: Element::named(name),
            layout: &layout,
        })
    }

    fn extremes(found: &Statistics) -> [Option<(&str, u64)>; 2] {
        [&found.min, &found.max].map(|extreme| {
            let extreme = extreme.as_ref()?;
            Some((extreme.value.0.as_str(), extreme.index[0]))
        })
    }

    #[test]
    fn integers() {
        let found = of("i32", &[4i32, 0, -2, 4, 0].map(i32::to_le_bytes)).unwrap();
        assert_eq!((found.count, found.finite, found.zeros), (5, 5, 2));
        assert_eq!(extremes(&found), [Some(("-2", 2)), Some(("4", 0))]);
        assert_eq!(found.mean, Some(1.2));
        let deviation = found.standard_deviation.unwrap();
        assert!((deviation - 5.76f64.sqrt()).abs() < 1e-12, "{deviation}");
        let counts: Vec<u64> = found.histogram.iter().map(|bin| bin.count).collect();
        assert_eq!(counts, [1, 0, 0, 2, 0, 0, 0, 0, 0, 2]);
        assert_eq!(
            (found.histogram[0].from, found.histogram[9].to),
            (-2.0, 4.0)
        );
        // Numbers that are the same as `f64`.
        let large = of("u64", &[u64::MAX - 1, u64::MAX].map(u64::to_le_bytes)).unwrap();
        let [min, max] = ["18446744073709551614", "18446744073709551615"];
        assert_eq!(extremes(&large), [Some((min, 0)), Some((max, 1))]);
        for (name, bytes, min, max) in [
            ("u8", [1, 0xff], "1", "255"),
            ("i8", [1, 0xff], "-1", "1"),
            ("bool", [0, 1], "false", "true"),
        ] {
            let found = of(name, &bytes.map(|byte| [byte])).unwrap();
            let [found_min, found_max] = extremes(&found).map(|extreme| extreme.unwrap().0);
            assert_eq!((found_min, found_max), (min, max), "{name}");
        }
    }

    #[test]
    fn what_is_not_finite_counts_for_itself() {
        let [nan, infinity, tiny] = [f32::NAN, f32::INFINITY, f32::from_bits(1)];
        let numbers = [nan, 1.0, infinity, -0.0, -infinity, 0.0, tiny, 3.0, nan];
        let found = of("f32", &numbers.map(f32::to_le_bytes)).unwrap();
        assert_eq!((found.count, found.finite, found.nan), (9, 5, 2));
        assert_eq!((found.positive_infinity, found.negative_infinity), (1, 1));
        assert_eq!((found.zeros, found.subnormal), (2, 1));
        assert_eq!(extremes(&found), [Some(("-0", 3)), Some(("3", 7))]);
        assert!((found.mean.unwrap() - 0.8).abs() < 1e-12);
        assert_eq!(found.histogram.iter().map(|bin| bin.count).sum::<u64>(), 5);
        let none = of("f64", &[f64::NAN.to_le_bytes()]).unwrap();
        assert_eq!((none.finite, &none.min, none.mean), (0, &None, None));
        assert!(none.histogram.is_empty());
        for (name, one, nan) in [("f16", 0x3c00u16, 0x7e00), ("bf16", 0x3f80, 0x7fc0)] {
            let found = of(name, &[one, nan, 1].map(u16::to_le_bytes)).unwrap();
            assert_eq!(
                (found.finite, found.nan, found.subnormal),
                (2, 1, 1),
                "{name}"
            );
            assert_eq!(extremes(&found)[1], Some(("1", 0)), "{name}");
        }
        assert_eq!(of("f8", &[[1]]), None, "either of two formats");
    }

    #[test]
    fn histograms_of_extreme_numbers() {
        let all = [f64::MIN, f64::MAX, 0.0];
        let found = of("f64", &all.map(f64::to_le_bytes)).unwrap();
        let counts: Vec<u64> = found.histogram.iter().map(|bin| bin.count).collect();
        assert_eq!(counts, [1, 0, 0, 0, 0, 1, 0, 0, 0, 1]);
        assert!(found.histogram.iter().all(|bin| bin.from.is_finite()));
        let equal = of("f64", &[2.5f64; 4].map(f64::to_le_bytes)).unwrap();
        assert!(equal.histogram.is_empty());
        assert_eq!(equal.standard_deviation, Some(0.0));
    }
}
