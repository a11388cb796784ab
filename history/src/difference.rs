//! Memory whose contents differ between two replays of one trace.

use std::collections::BTreeSet;
use std::io;

use cutape_render::Element;
use cutape_render::quantity::count;
use cutape_replay::ObservedMemory;
use serde::Serialize;

use crate::contents::{Contents, MemoryPairs};

/// Contents are compared in pieces of so many bytes.
const PART: u64 = 1 << 20;
/// Bytes of a difference that are kept.
const KEPT: usize = 64;
/// Bytes that are shown of memory without a type.
const SHOWN: usize = 16;

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
    /// Some bytes from the address on, in the recorded order; of a launch with programmatic stream
    /// serialization without it.
    pub in_order: Vec<u8>,
    /// The same bytes in the other order, or with it.
    pub reversed: Vec<u8>,
}

/// What a replay left in memory.
pub(crate) type Left = (Vec<ObservedMemory>, Contents);

/// Those differences whose memory holds the same in each two replays of one order.
pub(crate) fn steady(
    found: Vec<Difference>,
    replays: &[(&Left, &Left)],
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
        let parts = pieces
            .flat_map(|piece| piece.at / PART..=(piece.at + piece.length).saturating_sub(1) / PART);
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
                    let bytes = bytes.iter().skip(first & !7).take(KEPT);
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

/// A difference in words, with numbers of that type.
pub(crate) fn differing(
    difference: &Difference,
    is_programmatic: bool,
    element: Option<&Element>,
) -> String {
    let (made_by, made) = &difference.made;
    let size = element.map_or(1, |element| element.bytes as usize);
    let pairs = difference.in_order.chunks_exact(size);
    let mut pairs = pairs.zip(difference.reversed.chunks_exact(size));
    let (number, (in_order, reversed)) = (0..)
        .zip(&mut pairs)
        .find(|(_, (one, other))| one != other)
        .unwrap_or_default();
    let (one, other) = match is_programmatic {
        true => ("without the attribute", "with it"),
        false => ("as recorded", "in the other order"),
    };
    format!(
        "{} of {:#x} (memory of {made_by} at call {made}) differ; at {:#x} {} {one}, {} {other}",
        count(difference.bytes, "byte"),
        difference.start,
        difference.address + number * size as u64,
        shown(element, in_order),
        shown(element, reversed),
    )
}

/// Numbers, or bytes in hexadecimal.
pub(crate) fn shown(element: Option<&Element>, bytes: &[u8]) -> String {
    if let Some(element) = element {
        return element.text(bytes);
    }
    let mut texts: Vec<String> = bytes
        .iter()
        .take(SHOWN)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    if bytes.len() > SHOWN {
        texts.push("…".to_owned());
    }
    texts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutape_replay::Piece;
    use std::fs::File;
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
        assert_eq!(found[0].in_order, vec![0; KEPT]);
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
