//! The values in which two calls differ.

use std::collections::BTreeSet;

use cutape_image::{CodeKind, EntryCode, Target};

use crate::describe::{Described, Item, Value, hexadecimal, word_text};
use crate::part::{Facet, KERNEL_PARAMETERS};
use crate::report::{Change, Kind};

/// How many functions of an image are listed.
const SHOWN_FUNCTIONS: usize = 8;

/// Says whether an object of A and one of B correspond, and which of B corresponds to one of A.
pub(crate) trait Objects {
    fn are_same(&self, a: u32, b: u32) -> bool;
    fn counterpart(&self, a: u32) -> Option<String>;
}

/// The values in which two calls differ, in the order of the call.
pub(crate) fn changes(a: &Described, b: &Described, objects: &dyn Objects) -> Vec<Change> {
    let mut found = Vec::new();
    for prefix in ["gridDim", "blockDim"] {
        let (in_a, in_b) = (dimensions(a, prefix), dimensions(b, prefix));
        if let (Some(in_a), Some(in_b)) = (in_a, in_b)
            && in_a != in_b
        {
            let what = prefix.trim_end_matches("Dim").to_owned();
            found.push(Change {
                kind: Kind::Shape,
                what,
                values: [Some(in_a), Some(in_b)],
            });
        }
    }
    let mut rest: Vec<Option<&Item>> = b.items.iter().map(Some).collect();
    for item in &a.items {
        let is_it = |other: &Option<&Item>| {
            other.is_some_and(|other| other.facet == item.facet && other.label == item.label)
        };
        let other = rest.iter().position(is_it);
        let other = other.and_then(|at| rest.get_mut(at)?.take());
        match other {
            Some(other) if item.label.name == KERNEL_PARAMETERS => {
                let layout = a.layout.as_deref().or(b.layout.as_deref());
                parameters(item, other, layout.unwrap_or(&[]), objects, &mut found);
            }
            Some(other) => compare(item, other, objects, &mut found),
            None => found.push(one_sided(item, 0)),
        }
    }
    found.extend(rest.into_iter().flatten().map(|item| one_sided(item, 1)));
    found
}

/// Names and values of a call's parts.
pub(crate) fn values(call: &Described) -> Vec<(String, String)> {
    let items = call.items.iter();
    items.map(|item| (what(item), text(&item.value))).collect()
}

fn is_dimension(item: &Item) -> bool {
    ["gridDim", "blockDim"]
        .iter()
        .any(|prefix| has_prefix(item, prefix))
}

fn has_prefix(item: &Item, prefix: &str) -> bool {
    item.facet == Facet::Shape
        && (item.label.name.starts_with(prefix) || item.label.member.starts_with(prefix))
}

/// `4x1x1`
fn dimensions(call: &Described, prefix: &str) -> Option<String> {
    let items = call.items.iter().filter(|item| has_prefix(item, prefix));
    let numbers: Vec<&str> = items
        .filter_map(|item| match &item.value {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    (numbers.len() == 3).then(|| numbers.join("x"))
}

fn what(item: &Item) -> String {
    match item.facet {
        Facet::Kernel => "kernel".to_owned(),
        _ => item.label.text(),
    }
}

fn one_sided(item: &Item, side: usize) -> Change {
    let mut values = [None, None];
    if let Some(value) = values.get_mut(side) {
        *value = Some(text(&item.value));
    }
    Change {
        kind: item.facet.kind(),
        what: what(item),
        values,
    }
}

/// `memory#3 + 16`
fn text(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Word(word) => word_text(*word, 8),
        Value::Place(_, label, offset, is_alive) => {
            let offset = match offset {
                0 => String::new(),
                offset => format!(" + {offset}"),
            };
            let end = if *is_alive { "" } else { " (destroyed)" };
            format!("{label}{offset}{end}")
        }
        Value::Bytes(length, hash, _) => {
            let hash = hash
                .map(|hash| format!(", blake3 {}…", hexadecimal(&hash[..4], 0).replace(' ', "")));
            format!("{length} bytes{}", hash.unwrap_or_default())
        }
        Value::Image(_, bytes) => match bytes {
            Some(bytes) => format!("an image of {} bytes", bytes.len()),
            None => "an image".to_owned(),
        },
    }
}

fn compare(a: &Item, b: &Item, objects: &dyn Objects, found: &mut Vec<Change>) {
    let kind = a.facet.kind();
    let mut add = |kind, what, in_a, in_b| {
        found.push(Change {
            kind,
            what,
            values: [Some(in_a), Some(in_b)],
        });
    };
    match (&a.value, &b.value) {
        (Value::Place(one, _, of_a, a_lives), Value::Place(other, _, of_b, b_lives)) => {
            let is_same = objects.are_same(*one, *other);
            if is_same && (of_a, a_lives) == (of_b, b_lives) {
                return;
            }
            let mut in_b = text(&b.value);
            if !is_same && let Some(expected) = objects.counterpart(*one) {
                in_b += &format!(", not {expected}");
            }
            let kind = if is_same { kind } else { Kind::Object };
            add(kind, what(a), text(&a.value), in_b);
        }
        (Value::Bytes(in_a, hash_a, bytes_a), Value::Bytes(in_b, hash_b, bytes_b)) => {
            if (in_a, hash_a) == (in_b, hash_b) {
                return;
            }
            match (bytes_a, bytes_b) {
                (Some(bytes_a), Some(bytes_b)) if in_a == in_b && bytes_a != bytes_b => {
                    let pairs = || bytes_a.iter().zip(bytes_b);
                    let at = pairs().position(|(one, other)| one != other).unwrap_or(0);
                    let what = format!("{} from byte {at} of {in_a}:", what(a));
                    add(
                        kind,
                        what,
                        hexadecimal(bytes_a, at),
                        hexadecimal(bytes_b, at),
                    );
                }
                _ => add(kind, what(a), text(&a.value), text(&b.value)),
            }
        }
        (Value::Image(code_a, bytes_a), Value::Image(code_b, bytes_b)) => {
            if code_a == code_b {
                return;
            }
            match (bytes_a, bytes_b) {
                (Some(bytes_a), Some(bytes_b)) => found.extend(images(bytes_a, bytes_b)),
                _ => add(kind, what(a), text(&a.value), text(&b.value)),
            }
        }
        (one, other) if one == other => {}
        _ if is_dimension(a) => {}
        _ => add(kind, what(a), text(&a.value), text(&b.value)),
    }
}

/// Eight bytes of the parameters of a kernel, which may be several parameters.
fn parameters(
    a: &Item,
    b: &Item,
    layout: &[(u32, u32)],
    objects: &dyn Objects,
    found: &mut Vec<Change>,
) {
    let start = a.label.byte.unwrap_or(0);
    let within = (0..).zip(layout).filter(|(_, (offset, size))| {
        let is_before = offset.saturating_add(*size) <= start;
        !is_before && *offset < start.saturating_add(8)
    });
    let within: Vec<_> = within.collect();
    match (within.as_slice(), &a.value, &b.value) {
        ([], ..) => compare(a, b, objects, found),
        ([(place, (offset, size))], ..) => {
            let before = found.len();
            compare(a, b, objects, found);
            let at = match (start.saturating_sub(*offset), size) {
                (0, 0..=8) => String::new(),
                (at, _) => format!(" at byte {at}"),
            };
            for change in found.iter_mut().skip(before) {
                change.what = format!("kernel parameter {place}{at}");
            }
        }
        (several, Value::Word(in_a), Value::Word(in_b)) => {
            for (place, (offset, size)) in several {
                let shift = offset.saturating_sub(start).min(7) * 8;
                let mask = u64::MAX >> (64 - (*size).clamp(1, 8) * 8);
                let [one, other] = [in_a, in_b].map(|word| word >> shift & mask);
                if one != other {
                    found.push(Change {
                        kind: Kind::Argument,
                        what: format!("kernel parameter {place}"),
                        values: [one, other].map(|part| Some(word_text(part, *size))),
                    });
                }
            }
        }
        // Two small parameters that look like an address in one of the traces.
        _ => compare(a, b, objects, found),
    }
}

fn images(a: &[u8], b: &[u8]) -> Vec<Change> {
    let (a, b) = (cutape_image::code(a), cutape_image::code(b));
    let mut found = Vec::new();
    let mut rest: Vec<Option<&EntryCode>> = b.entries.iter().map(Some).collect();
    for entry in &a.entries {
        let is_it = |other: &Option<&EntryCode>| {
            let target = |entry: &EntryCode| entry.target.map(Target::number);
            other.is_some_and(|other| other.code == entry.code && target(other) == target(entry))
        };
        let at = rest.iter().position(is_it);
        match at.and_then(|at| rest.get_mut(at)?.take()) {
            Some(other) => functions(entry, other, &mut found),
            None => found.push(whole_entry(entry, 0)),
        }
    }
    found.extend(
        rest.into_iter()
            .flatten()
            .map(|entry| whole_entry(entry, 1)),
    );
    found
}

fn code_change(what: String, values: [Option<String>; 2]) -> Change {
    Change {
        kind: Kind::Code,
        what,
        values,
    }
}

fn whole_entry(entry: &EntryCode, side: usize) -> Change {
    let code = match entry.code {
        CodeKind::Elf => "machine code",
        CodeKind::Ptx => "PTX",
        CodeKind::LtoIr | CodeKind::Other(_) => "code",
    };
    let target = entry
        .target
        .map(|target| format!(" for sm_{}", target.number()));
    let mut values = [None, None];
    if let Some(value) = values.get_mut(side) {
        *value = Some(format!("{} functions", entry.functions.len()));
    }
    code_change(format!("{code}{}", target.unwrap_or_default()), values)
}

fn functions(a: &EntryCode, b: &EntryCode, found: &mut Vec<Change>) {
    let names: BTreeSet<&String> = a.functions.keys().chain(b.functions.keys()).collect();
    let text = |entry: &EntryCode, name: &String| {
        let hash = entry.functions.get(name);
        hash.map(|hash| format!("hash {:08x}", hash >> 32))
    };
    let changed: Vec<_> = names
        .into_iter()
        .map(|name| (name, [text(a, name), text(b, name)]))
        .filter(|(_, [in_a, in_b])| in_a != in_b)
        .collect();
    let count = changed.len();
    for (name, values) in changed.into_iter().take(SHOWN_FUNCTIONS) {
        found.push(code_change(format!("code of {name}"), values));
    }
    if count > SHOWN_FUNCTIONS {
        let more = format!("code of {} more functions", count - SHOWN_FUNCTIONS);
        found.push(code_change(more, [None, None]));
    }
    if a.rest != b.rest {
        let what = match a.functions.is_empty() && b.functions.is_empty() {
            true => "code",
            false => "variables and constants",
        };
        let text = |rest: u64| Some(format!("hash {:08x}", rest >> 32));
        found.push(code_change(what.to_owned(), [text(a.rest), text(b.rest)]));
    }
}
