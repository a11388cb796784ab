//! An inspection as text.

use std::fmt::Write as _;

use cutape_render::quantity::{count, grouped};

use crate::comparison::{Comparison, DifferingPair, Largest};
use crate::inspection::{COLUMNS, Inspection, Look};
use crate::statistics::{Extreme, Statistics};
use crate::values::Shown;

/// Bytes of a line.
const BYTES: usize = 16;
/// The longest bar of a histogram.
const BAR: u64 = 40;

/// The text of an inspection.
pub fn inspection_text(inspection: &Inspection) -> String {
    let mut out = String::new();
    for look in &inspection.moments {
        head(inspection, look, &mut out);
        let total = inspection.layout.count;
        let shown = look.values.len() as u64;
        match inspection.type_name {
            Some(_) => numbers(inspection, &look.values, &mut out),
            None => hex_dump(inspection.address, &look.bytes, &mut out),
        }
        if shown < total {
            let more = grouped(total - shown);
            let _ = writeln!(out, "… {more} more: --most N shows N");
        }
        if let Some(found) = &look.statistics {
            statistics(found, inspection.type_name, &mut out);
        }
    }
    if let (Some(found), [one, other, ..]) = (&inspection.comparison, &*inspection.moments) {
        comparison(inspection, found, (one, other), &mut out);
    }
    out
}

/// What the memory is, when, and what is in it.
fn head(inspection: &Inspection, look: &Look, out: &mut String) {
    let Inspection {
        address, length, ..
    } = inspection;
    let bytes = count(*length, "byte");
    let place = match &look.label {
        Some(label) => format!("{label} ({address:#x}, {bytes})"),
        None => format!("{address:#x}, {bytes}"),
    };
    let _ = write!(out, "{place}, {}", look.when);
    if let Some(name) = inspection.type_name {
        let _ = write!(out, ": {} {name}", grouped(inspection.layout.count));
    }
    if inspection.shape.len() != 1 || inspection.strides != [1] {
        let (shape, strides) = (list(&inspection.shape), list(&inspection.strides));
        let _ = write!(out, ", shape {shape}, strides {strides}");
    }
    out.push('\n');
}

/// `[1,2]`.
fn list(numbers: &[u64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    format!("[{}]", numbers.join(","))
}

/// Rows of the last side, each line with the index of its first number.
fn numbers(inspection: &Inspection, values: &[Shown], out: &mut String) {
    let layout = &inspection.layout;
    let row = layout.shape.last().copied().unwrap_or(1).max(1);
    let row = usize::try_from(row).unwrap_or(usize::MAX);
    let mut lines: Vec<(String, &[Shown])> = Vec::new();
    let mut place = 0u64;
    for row in values.chunks(row) {
        for line in row.chunks(COLUMNS) {
            lines.push((list(&layout.index(place)), line));
            place += line.len() as u64;
        }
    }
    let wide = |text: &str| text.chars().count();
    let index_width = lines
        .iter()
        .map(|(index, _)| wide(index))
        .max()
        .unwrap_or(0);
    let width = values.iter().map(|value| wide(&value.0)).max().unwrap_or(0);
    for (index, line) in lines {
        let _ = write!(out, "{index:<index_width$}");
        for Shown(value) in line {
            let _ = write!(out, "  {value:>width$}");
        }
        out.push('\n');
    }
}

fn hex_dump(address: u64, bytes: &[u8], out: &mut String) {
    for (line, bytes) in (0u64..).zip(bytes.chunks(BYTES)) {
        let _ = write!(out, "{:#x} ", address.wrapping_add(line * BYTES as u64));
        for column in 0..BYTES {
            let gap = if column % 8 == 0 { " " } else { "" };
            let text = bytes.get(column).map(|byte| format!("{byte:02x}"));
            let _ = write!(out, "{gap}{:2} ", text.unwrap_or_default());
        }
        let is_shown = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
        let text = bytes.iter().map(|byte| match is_shown(byte) {
            true => char::from(*byte),
            false => '.',
        });
        let _ = writeln!(out, " |{}|", text.collect::<String>());
    }
}

/// A computed number with few digits.
fn rounded(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e12).contains(&size) {
        return format!("{value:.5e}");
    }
    let digits = if size >= 1.0 {
        size.log10() as usize
    } else {
        0
    };
    let text = format!("{value:.*}", 6usize.saturating_sub(digits));
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn statistics(found: &Statistics, type_name: Option<&str>, out: &mut String) {
    let mut facts = Vec::new();
    for (name, extreme) in [("min", &found.min), ("max", &found.max)] {
        let text =
            |extreme: &Extreme| format!("{name} {} at {}", extreme.value.0, list(&extreme.index));
        facts.extend(extreme.as_ref().map(text));
    }
    let computed = [
        ("mean", found.mean),
        ("standard deviation", found.standard_deviation),
    ];
    for (name, value) in computed {
        facts.extend(value.map(|value| format!("{name} {}", rounded(value))));
    }
    if !facts.is_empty() {
        let _ = writeln!(out, "{}", facts.join(", "));
    }
    let is_real = type_name.is_some_and(|name| name.contains('f'));
    let counts = [
        ("NaN", found.nan, is_real),
        ("+Inf", found.positive_infinity, is_real),
        ("-Inf", found.negative_infinity, is_real),
        ("zeros", found.zeros, true),
        ("subnormal", found.subnormal, is_real),
    ];
    let counts = counts.iter().filter(|(.., is_known)| *is_known);
    let counts: Vec<String> = counts
        .map(|(name, number, _)| format!("{name} {}", grouped(*number)))
        .collect();
    let _ = writeln!(out, "{}", counts.join(", "));
    if found.finite < found.count && found.finite > 0 {
        let finite = count(found.finite, "finite number");
        let _ = writeln!(out, "min, max, mean and deviation are those of {finite}");
    }
    let bins: Vec<(String, String, u64)> = found
        .histogram
        .iter()
        .map(|bin| (rounded(bin.from), rounded(bin.to), bin.count))
        .collect();
    let most = bins.iter().map(|bin| bin.2).max().unwrap_or(0).max(1);
    let [from, to] = [0, 1].map(|side| {
        let texts = bins.iter().map(|bin| [&bin.0, &bin.1].map(String::len));
        texts
            .filter_map(|lengths| lengths.get(side).copied())
            .max()
            .unwrap_or(0)
    });
    for (start, end, number) in bins {
        let bar = "█".repeat((number * BAR).div_ceil(most) as usize);
        let line = format!("  {start:>from$} .. {end:<to$}  {} {bar}", grouped(number));
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

fn comparison(
    inspection: &Inspection,
    found: &Comparison,
    (one, other): (&Look, &Look),
    out: &mut String,
) {
    let name = inspection.type_name.unwrap_or("bytes");
    let (differing, all) = (grouped(found.differing), grouped(found.count));
    let _ = writeln!(
        out,
        "{} and {}: {differing} of {all} {name} differ",
        one.when, other.when
    );
    if one.made != other.made {
        let _ = writeln!(
            out,
            "not the same memory: call {} made one, call {} the other",
            one.made, other.made
        );
    }
    if found.not_finite > 0 {
        let pairs = grouped(found.not_finite);
        let _ = writeln!(
            out,
            "{pairs} of them are NaN or infinite on one side or both"
        );
    }
    for (name, largest) in [
        ("largest difference", &found.absolute),
        ("largest relative difference", &found.relative),
    ] {
        if let Some(Largest { size, of }) = largest {
            let size = rounded(*size);
            let _ = writeln!(out, "{name} {size} at {}", pair(of));
        }
    }
    for difference in &found.first {
        let _ = writeln!(out, "  {}", pair(difference));
    }
    let listed = found.first.len() as u64;
    if listed < found.differing {
        let more = grouped(found.differing - listed);
        let _ = writeln!(out, "  … {more} more");
    }
}

fn pair(difference: &DifferingPair) -> String {
    let DifferingPair { index, from, to } = difference;
    format!("{}: {} -> {}", list(index), from.0, to.0)
}

#[cfg(test)]
mod tests {
    use cutape_render::Element;

    use super::*;
    use crate::lifetimes::When;
    use crate::number_format::NumberFormat;
    use crate::snapshot::Snapshot;

    fn text(
        snapshots: &[(When, Vec<u8>)],
        name: Option<&str>,
        shape: Option<&[u64]>,
        most: usize,
    ) -> String {
        let snapshot = |(when, bytes): &(When, Vec<u8>)| Snapshot {
            when: *when,
            label: Some("memory#3".to_owned()),
            made: 8,
            address: 0x1000,
            bytes: bytes.clone(),
        };
        let snapshots: Vec<Snapshot> = snapshots.iter().map(snapshot).collect();
        let element = name.and_then(Element::named);
        let shape = shape.map(<[u64]>::to_vec);
        let format = NumberFormat::new(element, shape, None).unwrap();
        inspection_text(&Inspection::new(&snapshots, &format, most).unwrap())
    }

    #[test]
    fn bytes_as_in_a_hex_dump() {
        let bytes: Vec<u8> = (0x3c..0x50).chain([0, 0xff]).collect();
        let expected = "\
memory#3 (0x1000, 22 bytes), before call 20
0x1000  3c 3d 3e 3f 40 41 42 43  44 45 46 47 48 49 4a 4b  |<=>?@ABCDEFGHIJK|
0x1010  4c 4d 4e 4f 00                                    |LMNO.|
… 1 more: --most N shows N
";
        assert_eq!(text(&[(When::Before(20), bytes)], None, None, 21), expected);
    }

    #[test]
    fn numbers_with_what_they_are_like() {
        let numbers = [f32::NAN, 1.0, f32::INFINITY, -2.5, 0.0, 1e-40, 1e20, 0.0];
        let bytes = numbers.map(f32::to_le_bytes).concat();
        let expected = "\
memory#3 (0x1000, 32 bytes), at the end: 8 f32, shape [2,4], strides [4,1]
[0,0]    NaN      1    inf   -2.5
[1,0]      0  1e-40
… 2 more: --most N shows N
min -2.5 at [0,3], max 1e20 at [1,2], mean 1.66667e19, standard deviation 3.72678e19
NaN 1, +Inf 1, -Inf 0, zeros 2, subnormal 1
min, max, mean and deviation are those of 6 finite numbers
        -2.5 .. 1.00000e19  5 ████████████████████████████████████████
  1.00000e19 .. 2.00000e19  0
  2.00000e19 .. 3.00000e19  0
  3.00000e19 .. 4.00000e19  0
  4.00000e19 .. 5.00000e19  0
  5.00000e19 .. 6.00000e19  0
  6.00000e19 .. 7.00000e19  0
  7.00000e19 .. 8.00000e19  0
  8.00000e19 .. 9.00000e19  0
  9.00000e19 .. 1.00000e20  1 ████████
";
        let found = text(&[(When::End, bytes)], Some("f32"), Some(&[2, 4]), 6);
        assert_eq!(found, expected);
    }

    #[test]
    fn two_moments_and_what_differs() {
        let bytes = |numbers: [i16; 3]| numbers.map(i16::to_le_bytes).concat();
        let [before, after] = [bytes([5, 5, -7]), bytes([5, 10, 7])];
        let expected = "\
memory#3 (0x1000, 6 bytes), before call 9: 3 i16
[0]  5
… 2 more: --most N shows N
min -7 at [2], max 5 at [0], mean 1, standard deviation 5.656854
zeros 0
";
        let moments = [(When::Before(9), before), (When::After(9), after)];
        let found = text(&moments, Some("i16"), None, 1);
        assert!(found.starts_with(expected), "{found}");
        let expected = "
before call 9 and after call 9: 2 of 3 i16 differ
largest difference 14 at [2]: -7 -> 7
largest relative difference 2 at [2]: -7 -> 7
  [1]: 5 -> 10
  … 1 more
";
        assert!(found.ends_with(expected), "{found}");
    }

    #[test]
    fn computed_numbers_have_few_digits() {
        for (value, expected) in [
            (0.0, "0"),
            (2.0, "2"),
            (1.0 / 3.0, "0.333333"),
            (-1234.56789, "-1234.568"),
            (4_190_209.0, "4190209"),
            (123_456_789_012.0, "123456789012"),
            (1e-5, "1.00000e-5"),
            (f64::MAX, "1.79769e308"),
        ] {
            assert_eq!(rounded(value), expected);
        }
    }
}
