//! An inspection as text.

use std::fmt::Write as _;

use cutape_render::quantity::{count, grouped};

use crate::comparison::{Comparison, Difference, Largest};
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
            statistics(found, &mut out);
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

fn statistics(found: &Statistics, out: &mut String) {
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
    let counts = [
        ("NaN", found.nan),
        ("+Inf", found.positive_infinity),
        ("-Inf", found.negative_infinity),
        ("zeros", found.zeros),
        ("subnormal", found.subnormal),
    ];
    let counts = counts.map(|(name, number)| format!("{name} {}", grouped(number)));
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

fn pair(difference: &Difference) -> String {
    let Difference { index, from, to } = difference;
    format!("{}: {} -> {}", list(index), from.0, to.0)
}
