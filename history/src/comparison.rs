//! What differs between two arrays.

use serde::Serialize;

use crate::values::{Number, Shown, Values};

/// What differs between two arrays of one shape. Numbers are equal if their bytes are.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// The numbers of one array.
    pub count: u64,
    /// Those that differ.
    pub differing: u64,
    /// Of these, pairs with a NaN or an infinity: they have no difference.
    pub not_finite: u64,
    /// The largest difference.
    pub absolute: Option<Largest>,
    /// The largest difference in relation to the larger one of both numbers.
    pub relative: Option<Largest>,
    /// The first pairs that differ.
    pub first: Vec<DifferingPair>,
}

/// Two numbers at one place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DifferingPair {
    /// The place.
    pub index: Vec<u64>,
    /// The number of the first array.
    pub from: Shown,
    /// The number of the second one.
    pub to: Shown,
}

/// The largest difference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Largest {
    /// How large it is.
    pub size: f64,
    /// The numbers.
    #[serde(flatten)]
    pub of: DifferingPair,
}

/// A largest difference while it is sought: its size, and its number counted in C order.
type Found = Option<(f64, u64)>;

/// Compares two arrays of one layout, and lists that many differences.
pub(crate) fn compare(from: Values<'_>, to: Values<'_>, most: usize) -> Comparison {
    let mut found = Comparison::default();
    let (mut absolute, mut relative): (Found, Found) = (None, None);
    let decode = from.decoder();
    let difference = |place, one, other| DifferingPair {
        index: from.layout.index(place),
        from: from.shown(one),
        to: to.shown(other),
    };
    for (place, (one, other)) in (0..).zip(from.raw().zip(to.raw())) {
        found.count += 1;
        if one == other {
            continue;
        }
        found.differing += 1;
        if found.first.len() < most {
            found.first.push(difference(place, one, other));
        }
        let Some(decode) = decode else { continue };
        let (one, other) = (decode(one), decode(other));
        let (from, to) = (one.value(), other.value());
        if !from.is_finite() || !to.is_finite() {
            found.not_finite += 1;
            continue;
        }
        let size = match (one, other) {
            (Number::Integer(one), Number::Integer(other)) => one.abs_diff(other) as f64,
            _ => (from - to).abs(),
        };
        let larger = from.abs().max(to.abs());
        let in_relation = if larger > 0.0 { size / larger } else { 0.0 };
        if absolute.is_none_or(|(most, _)| size > most) {
            absolute = Some((size, place));
        }
        if relative.is_none_or(|(most, _)| in_relation > most) {
            relative = Some((in_relation, place));
        }
    }
    let largest = |found: Found| {
        let (size, place) = found?;
        let at = usize::try_from(place).ok()?;
        let of = difference(place, from.raw().nth(at)?, to.raw().nth(at)?);
        Some(Largest { size, of })
    };
    Comparison {
        absolute: largest(absolute),
        relative: largest(relative),
        ..found
    }
}

#[cfg(test)]
mod tests {
    use cutape_render::Element;

    use super::*;
    use crate::values::Layout;

    fn of(name: Option<&str>, shape: &[u64], from: &[u8], to: &[u8]) -> Comparison {
        let layout = Layout::new(shape.to_vec(), None).unwrap();
        let values = |bytes| Values {
            bytes,
            element: name.and_then(Element::named),
            layout: &layout,
        };
        compare(values(from), values(to), 2)
    }

    fn largest(found: Option<Largest>) -> Option<(f64, Vec<u64>)> {
        found.map(|largest| (largest.size, largest.of.index))
    }

    #[test]
    fn differences_of_numbers() {
        let floats = |numbers: [f32; 6]| numbers.map(f32::to_le_bytes).concat();
        let from = floats([1.0, 2.0, f32::NAN, 0.0, 100.0, 5.0]);
        let to = floats([1.0, 3.0, 7.0, -0.0, 90.0, f32::INFINITY]);
        let found = of(Some("f32"), &[2, 3], &from, &to);
        assert_eq!((found.count, found.differing, found.not_finite), (6, 5, 2));
        let first = found.first.iter();
        let first: Vec<_> = first
            .map(|pair| (&*pair.index, &*pair.from.0, &*pair.to.0))
            .collect();
        assert_eq!(first, [(&[0, 1][..], "2", "3"), (&[0, 2], "NaN", "7")]);
        assert_eq!(largest(found.absolute), Some((10.0, vec![1, 1])));
        let (size, index) = largest(found.relative).unwrap();
        assert_eq!(index, [0, 1]);
        assert!((size - 1.0 / 3.0).abs() < 1e-12, "{size}");
    }

    #[test]
    fn differences_of_integers_and_bytes() {
        let [one, other] =
            [[i64::MIN, 7], [i64::MAX, 7]].map(|pair| pair.map(i64::to_le_bytes).concat());
        let found = of(Some("i64"), &[2], &one, &other);
        assert_eq!(largest(found.absolute), Some((2f64.powi(64), vec![0])));
        assert_eq!(found.differing, 1);
        for (name, text) in [(None, "0xff"), (Some("f8"), "0xff"), (Some("u8"), "255")] {
            let found = of(name, &[3], &[0, 1, 2], &[0, 0xff, 3]);
            assert_eq!(
                (found.differing, &*found.first[0].to.0),
                (2, text),
                "{name:?}"
            );
            let is_known = name == Some("u8");
            assert_eq!(largest(found.absolute), is_known.then(|| (254.0, vec![1])));
        }
        let same = of(Some("f16"), &[1], &[0, 0x7e], &[0, 0x7e]);
        assert_eq!((same.differing, same.first), (0, vec![]), "the same NaN");
    }
}
