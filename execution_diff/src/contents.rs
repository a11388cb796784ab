//! Compares launches by the contents of the memory that they can reach.

use std::io;

use cutape_history::{Contents, MemoryPairs, contains};
use cutape_replay::{MemoryKind, Mismatch, ObservedCall, ObservedLaunch, ObservedMemory, Piece};
use cutape_replay::{Tolerance, compare};

use crate::launches::Counterparts;

/// Memory that differs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Difference {
    /// Of a variable its name.
    pub(crate) variable: Option<String>,
    /// Its recorded address in A.
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) parameters: Vec<u32>,
    pub(crate) mismatch: Option<Mismatch>,
}

/// How a launch of A and one of B differ.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Differences {
    /// Parameters and shape of the launch, one line each.
    pub(crate) arguments: Vec<String>,
    pub(crate) inputs: Vec<Difference>,
    /// Inputs differ, but within the tolerance.
    pub(crate) has_near_inputs: bool,
    pub(crate) outputs: Vec<Difference>,
}

/// An observed launch of one trace.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) call: &'a ObservedCall,
    pub(crate) contents: &'a Contents,
}

/// Compares the launch of A and that of B.
///
/// # Errors
/// Contents cannot be read.
pub(crate) fn differences(
    a: Seen<'_>,
    b: Seen<'_>,
    counterparts: &Counterparts,
    tolerance: &Tolerance,
) -> io::Result<Differences> {
    let pairs = pairs(&a.call.memory, &b.call.memory, counterparts);
    let pairs = MemoryPairs::new(&a.call.memory, &b.call.memory, pairs);
    let mut found = Differences {
        arguments: arguments(a.call, b.call, &pairs),
        ..Differences::default()
    };
    for (number, memory) in a.call.memory.iter().enumerate() {
        let of = |mismatch| difference(memory, a.call.launch.as_ref(), mismatch);
        let Some(other) = pairs.other(number) else {
            found.inputs.push(of(None));
            continue;
        };
        if other.length != memory.length {
            found.inputs.push(of(None));
            continue;
        }
        let read = |pieces_a: &[Piece], pieces_b: &[Piece]| {
            let in_a = a.contents.read(memory, pieces_a)?;
            let mut in_b = b.contents.read(other, pieces_b)?;
            pairs.as_in_a(&in_a, &mut in_b);
            Ok::<_, io::Error>((in_a, in_b))
        };
        let before = read(&memory.before, &other.before)?;
        match compare(&before.0, &before.1, tolerance) {
            // Variables with their first values are a part of the code.
            Some(_) if memory.as_loaded && other.as_loaded => {}
            Some(mismatch) => found.inputs.push(of(Some(mismatch))),
            None => found.has_near_inputs |= before.0 != before.1,
        }
        let after = read(&memory.after, &other.after)?;
        let is_written = before != after;
        if is_written && let Some(mismatch) = compare(&after.0, &after.1, tolerance) {
            found.outputs.push(of(Some(mismatch)));
        }
    }
    Ok(found)
}

fn difference(
    memory: &ObservedMemory,
    launch: Option<&ObservedLaunch>,
    mismatch: Option<Mismatch>,
) -> Difference {
    let is_variable = memory.kind == MemoryKind::Variable;
    Difference {
        variable: is_variable.then(|| memory.name.clone()),
        address: memory.recorded,
        length: memory.length,
        parameters: launch.map_or(Vec::new(), |launch| pointers_to(launch, memory)),
        mismatch,
    }
}

/// The parameters that point into some memory.
fn pointers_to(launch: &ObservedLaunch, memory: &ObservedMemory) -> Vec<u32> {
    let points = |&(_, bytes): &(u32, &[u8])| {
        let words = bytes.as_chunks::<8>().0.iter();
        let mut words = words.map(|word| u64::from_le_bytes(*word));
        words.any(|word| contains(memory, word))
    };
    let parameters = parameters(launch).filter(points);
    parameters.map(|(number, _)| number).collect()
}

/// The parameters of a kernel by number.
fn parameters(launch: &ObservedLaunch) -> impl Iterator<Item = (u32, &[u8])> {
    (0..).zip(&launch.layout).map(|(number, &(offset, size))| {
        let end = offset.saturating_add(size) as usize;
        let bytes = launch.parameters.get(offset as usize..end);
        (number, bytes.unwrap_or_default())
    })
}

/// The memory of B that corresponds to each of A: what the same call made, in the order of
/// addresses.
pub(crate) fn pairs(
    a: &[ObservedMemory],
    b: &[ObservedMemory],
    counterparts: &Counterparts,
) -> Vec<Option<usize>> {
    let name = |memory: &ObservedMemory| match memory.kind {
        MemoryKind::Variable => memory.name.clone(),
        _ => String::new(),
    };
    let mut is_taken = vec![false; b.len()];
    let mut find = |memory: &ObservedMemory| {
        let made = counterparts.get(&memory.made).copied()?;
        let is_same = |&(number, other): &(usize, &ObservedMemory)| {
            is_taken.get(number) == Some(&false)
                && (other.made, other.kind) == (made, memory.kind)
                && name(other) == name(memory)
        };
        let found = b.iter().enumerate().filter(is_same);
        let (number, _) = found.min_by_key(|(_, other)| other.recorded)?;
        if let Some(taken) = is_taken.get_mut(number) {
            *taken = true;
        }
        Some(number)
    };
    let mut order: Vec<usize> = (0..a.len()).collect();
    order.sort_by_key(|&number| a.get(number).map(|memory| memory.recorded));
    let mut pairs = vec![None; a.len()];
    for number in order {
        if let (Some(memory), Some(pair)) = (a.get(number), pairs.get_mut(number)) {
            *pair = find(memory);
        }
    }
    pairs
}

/// Parameters and shape that differ.
fn arguments(a: &ObservedCall, b: &ObservedCall, pairs: &MemoryPairs<'_>) -> Vec<String> {
    let (Some(a), Some(b)) = (&a.launch, &b.launch) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (what, a, b) in [("grid", a.grid, b.grid), ("block", a.block, b.block)] {
        let shape = |[x, y, z]: [u32; 3]| format!("{x}x{y}x{z}");
        if a != b {
            found.push(format!("{what} {} → {}", shape(a), shape(b)));
        }
    }
    if a.shared != b.shared {
        found.push(format!("shared memory {} → {} bytes", a.shared, b.shared));
    }
    if a.layout != b.layout {
        found.push("other parameters".to_owned());
        return found;
    }
    for ((number, of_a), (_, of_b)) in parameters(a).zip(parameters(b)) {
        let mut of_b = of_b.to_vec();
        pairs.as_in_a(of_a, &mut of_b);
        if *of_a != *of_b {
            let [a, b] = [of_a, &of_b].map(value);
            found.push(format!("parameter {number} {a} → {b}"));
        }
    }
    found
}

/// A parameter in hexadecimal; of a long one the first words.
fn value(bytes: &[u8]) -> String {
    const SHOWN: usize = 16;
    if bytes.len() <= 8 {
        let number = bytes.iter().rev();
        let number = number.fold(0u64, |number, &byte| number << 8 | u64::from(byte));
        return format!("{number:#x}");
    }
    let words = bytes.iter().take(SHOWN).map(|byte| format!("{byte:02x}"));
    let more = if bytes.len() > SHOWN { "..." } else { "" };
    words.collect::<Vec<_>>().join(" ") + more
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(made: u64, live: u64, name: &str) -> ObservedMemory {
        ObservedMemory {
            recorded: live,
            live,
            length: 64,
            made,
            kind: match name {
                "" => MemoryKind::Device,
                _ => MemoryKind::Variable,
            },
            name: name.to_owned(),
            ..ObservedMemory::default()
        }
    }

    #[test]
    fn memory_corresponds_if_the_calls_that_made_it_do() {
        let counterparts = [(1, 1), (2, 3)].into_iter().collect();
        let a = [
            memory(2, 0x2000, ""),
            memory(1, 0x1000, ""),
            memory(5, 0x3000, ""),
        ];
        let b = [memory(1, 0x9000, ""), memory(3, 0x8000, "")];
        assert_eq!(pairs(&a, &b, &counterparts), [Some(1), Some(0), None]);
        // Variables of one module by name; parts of one memory in the order of addresses.
        let a = [
            memory(1, 0x1000, "x"),
            memory(1, 0x2000, "y"),
            memory(2, 0x3000, ""),
        ];
        let b = [
            memory(1, 0x1000, "y"),
            memory(1, 0x2000, "x"),
            memory(3, 0x4000, ""),
        ];
        assert_eq!(pairs(&a, &b, &counterparts), [Some(1), Some(0), Some(2)]);
    }

    #[test]
    fn parameters_and_shape_are_compared() {
        let call = |parameters: [u64; 2], grid| ObservedCall {
            launch: Some(ObservedLaunch {
                kernel: "k".to_owned(),
                grid: [grid, 1, 1],
                layout: vec![(0, 8), (8, 8)],
                parameters: parameters
                    .iter()
                    .flat_map(|word| word.to_le_bytes())
                    .collect(),
                ..ObservedLaunch::default()
            }),
            ..ObservedCall::default()
        };
        let (a, b) = ([memory(1, 0x1000, "")], [memory(1, 0x9000, "")]);
        let pairs = MemoryPairs::new(&a, &b, vec![Some(0)]);
        let first = call([0x1000, 5], 1);
        for (other, expected) in [
            (call([0x9000, 5], 1), &[][..]),
            (call([0x9000, 6], 1), &["parameter 1 0x5 → 0x6"]),
            (call([0x9008, 5], 1), &["parameter 0 0x1000 → 0x9008"]),
            (call([0x9000, 5], 2), &["grid 1x1x1 → 2x1x1"]),
        ] {
            assert_eq!(arguments(&first, &other, &pairs), expected);
        }
        let launch = first.launch.as_ref().unwrap();
        assert_eq!(pointers_to(launch, &a[0]), [0]);
    }
}
