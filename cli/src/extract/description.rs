//! The text that describes one launch to the programs that make it.

use std::fmt::Write;

use cutape_replay::{MemoryKind, ObservedCall, ObservedLaunch, ObservedMemory, Piece};

/// Where the files are that a description names, relative to it.
pub(super) struct Files<'a> {
    pub(super) image: &'a str,
    pub(super) contents: &'a str,
}

/// Describes a launch.
///
/// # Errors
/// Why it cannot be extracted, in a phrase.
pub(super) fn describe(
    observed: &ObservedCall,
    source: &str,
    files: &Files<'_>,
) -> Result<String, String> {
    let Some(launch) = &observed.launch else {
        return Err("it is not a launch of a kernel".into());
    };
    if let Some(first) = observed.left_out.first() {
        return Err(format!("memory is left out: {first}"));
    }
    if launch.kernel.is_empty() {
        return Err("the driver does not tell the name of its kernel".into());
    }
    if !is_one_line(&launch.kernel) {
        return Err("the name of its kernel does not fit on a line".into());
    }
    let memory = placed(observed, launch)?;
    let mut text = String::from("cutape-launch 1\n");
    let mut line = |words: std::fmt::Arguments<'_>| {
        let _ = writeln!(text, "{words}");
    };
    let three = |values: [u32; 3]| values.map(|value| value.to_string()).join(" ");
    line(format_args!("source {source}"));
    line(format_args!("kernel {}", launch.kernel));
    line(format_args!("image {}", files.image));
    line(format_args!("contents {}", files.contents));
    let [major, minor] = launch.capability;
    line(format_args!("device {major} {minor} {}", launch.device));
    line(format_args!("grid {}", three(launch.grid)));
    line(format_args!("block {}", three(launch.block)));
    line(format_args!("shared {}", launch.shared));
    line(format_args!(
        "# CUlimit (stack, printf buffer, heap), value"
    ));
    for (limit, value) in &launch.limits {
        line(format_args!("limit {limit} {value}"));
    }
    line(format_args!("# CUfunction_attribute, value"));
    for (attribute, value) in &launch.function_attributes {
        line(format_args!("function-attribute {attribute} {value}"));
    }
    if !launch.attributes.is_empty() {
        line(format_args!("# CUlaunchAttributeID, value as bytes"));
    }
    for (attribute, value) in &launch.attributes {
        line(format_args!("attribute {attribute} {}", hex(value)));
    }
    line(format_args!(
        "# Length and bytes; then offset and size of each"
    ));
    let bytes = &launch.parameters;
    line(format_args!("parameters {} {}", bytes.len(), hex(bytes)));
    for &(offset, size) in &launch.layout {
        let value = value_text(launch, &memory, (offset as usize, size as usize));
        line(format_args!("parameter {offset} {size}{value}"));
    }
    for (offset, number, addend) in relocations(launch, &memory) {
        line(format_args!("relocate {offset} {number} {addend}"));
    }
    for texture in &launch.textures {
        line(format_args!("# {texture}, which is not extracted"));
    }
    line(format_args!(
        "# Memory: address and length, then contents: offset, length, place in the file"
    ));
    for memory in memory {
        let first = match memory.kind {
            MemoryKind::Variable if memory.as_loaded => {
                format!("loaded-variable {} {}", memory.length, memory.name)
            }
            MemoryKind::Variable => format!("variable {} {}", memory.length, memory.name),
            MemoryKind::Host => format!("host-memory {:#x} {}", memory.live, memory.length),
            _ => format!("memory {:#x} {}", memory.live, memory.length),
        };
        if memory.kind != MemoryKind::Variable {
            let (name, made) = (&memory.name, memory.made);
            line(format_args!("# {name} at call {made}"));
        }
        line(format_args!("{first}"));
        for Piece { at, length, file } in &memory.before {
            line(format_args!("before {at} {length} {file}"));
        }
        for (at, length, file) in changes(&memory.before, &memory.after) {
            match file {
                Some(file) => line(format_args!("after {at} {length} {file}")),
                None => line(format_args!("after-zero {at} {length}")),
            }
        }
    }
    Ok(text)
}

fn is_one_line(text: &str) -> bool {
    !text.contains(char::is_control)
}

/// The memory to place, and the variables of the kernel's own module. Left out are variables that
/// are as the image has them, before and after.
fn placed<'o>(
    observed: &'o ObservedCall,
    launch: &ObservedLaunch,
) -> Result<Vec<&'o ObservedMemory>, String> {
    let mut placed = Vec::new();
    let words = || launch.parameters.chunks_exact(8).map(word);
    for memory in &observed.memory {
        let is_variable = memory.kind == MemoryKind::Variable;
        let is_named = || words().any(|word| holds(memory, word));
        if memory.as_loaded && memory.before == memory.after && !is_named() {
            continue;
        }
        if !is_variable || Some(memory.made) == launch.loaded && is_one_line(&memory.name) {
            placed.push(memory);
            continue;
        }
        if is_named() {
            return Err(format!(
                "its parameters name a variable of another module, which {} found at call {}",
                memory.name, memory.made
            ));
        }
    }
    Ok(placed)
}

fn word(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

fn holds(memory: &ObservedMemory, address: u64) -> bool {
    (memory.live..memory.live.saturating_add(memory.length)).contains(&address)
}

/// Words of the parameters that hold addresses of variables, which lie elsewhere in each process:
/// offset, number of the memory, offset in the variable.
fn relocations(launch: &ObservedLaunch, memory: &[&ObservedMemory]) -> Vec<(usize, usize, u64)> {
    let words = launch.parameters.chunks_exact(8).map(word).enumerate();
    let relocations = words.filter_map(|(place, word)| {
        let (number, variable) = memory
            .iter()
            .enumerate()
            .find(|(_, memory)| memory.kind == MemoryKind::Variable && holds(memory, word))?;
        Some((place * 8, number, word - variable.live))
    });
    relocations.collect()
}

/// What a parameter is, as a comment behind it.
fn value_text(
    launch: &ObservedLaunch,
    memory: &[&ObservedMemory],
    (offset, size): (usize, usize),
) -> String {
    let Some(bytes) = launch.parameters.get(offset..offset + size) else {
        return String::new();
    };
    match *bytes {
        [one] => format!(" # {one}"),
        [a, b, c, d] => {
            let bits = u32::from_le_bytes([a, b, c, d]);
            format!(" # {}, as a float {:e}", bits as i32, f32::from_bits(bits))
        }
        _ if size == 8 => {
            let word = word(bytes);
            let found = memory.iter().enumerate().find(|found| holds(found.1, word));
            match found {
                Some((_, known)) if known.kind == MemoryKind::Variable => {
                    format!(" # {} + {}", known.name, word - known.live)
                }
                Some((_, known)) => format!(" # {:#x} + {}", known.live, word - known.live),
                None => format!(" # {}, as a double {:e}", word as i64, f64::from_bits(word)),
            }
        }
        _ => String::new(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where contents differ between before and after: offset, length, and the place in the file
/// afterwards; `None` for zeros. Both lists are sorted.
fn changes(before: &[Piece], after: &[Piece]) -> Vec<(u64, u64, Option<u64>)> {
    let mut changes: Vec<(u64, u64, Option<u64>)> = Vec::new();
    let (mut one, mut other) = (before.iter().peekable(), after.iter().peekable());
    let mut at = 0;
    loop {
        let behind = |piece: &&Piece| piece.at + piece.length;
        while one.next_if(|piece| behind(piece) <= at).is_some() {}
        while other.next_if(|piece| behind(piece) <= at).is_some() {}
        let next = [one.peek(), other.peek()].into_iter().flatten();
        // The next place at which one of the two begins or ends.
        let edges = next.flat_map(|piece| [piece.at, behind(piece)]);
        let Some(end) = edges.filter(|&edge| edge > at).min() else {
            return changes;
        };
        let place = |piece: Option<&&Piece>| {
            let piece = piece.filter(|piece| piece.at <= at)?;
            Some(piece.file + (at - piece.at))
        };
        let (was, is) = (place(one.peek()), place(other.peek()));
        if was != is {
            match changes.last_mut() {
                Some((start, length, file))
                    if *start + *length == at && file.map(|file| file + *length) == is =>
                {
                    *length += end - at;
                }
                _ => changes.push((at, end - at, is)),
            }
        }
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_a_change() {
        let piece = |(at, length, file)| Piece { at, length, file };
        type Pieces = &'static [(u64, u64, u64)];
        type Row = (Pieces, Pieces, &'static [(u64, u64, Option<u64>)]);
        let table: [Row; 7] = [
            (&[], &[], &[]),
            (&[(0, 8, 0)], &[(0, 8, 0)], &[]),
            (&[], &[(4, 4, 20)], &[(4, 4, Some(20))]),
            (&[(4, 4, 20)], &[], &[(4, 4, None)]),
            // One page in the middle.
            (
                &[(0, 12, 0)],
                &[(0, 4, 0), (4, 4, 90), (8, 4, 8)],
                &[(4, 4, Some(90))],
            ),
            // The same contents, in other pieces.
            (&[(0, 8, 0), (8, 4, 8)], &[(0, 4, 0), (4, 8, 4)], &[]),
            // A longer one, and zeros that follow.
            (
                &[(0, 4, 0), (8, 4, 8)],
                &[(0, 8, 50)],
                &[(0, 8, Some(50)), (8, 4, None)],
            ),
        ];
        for (before, after, expected) in table {
            let pieces = |list: Pieces| list.iter().copied().map(piece).collect::<Vec<_>>();
            assert_eq!(
                changes(&pieces(before), &pieces(after)),
                expected,
                "{before:?} {after:?}"
            );
        }
    }

    /// A launch with two parameters, a pointer and a number, that changes a variable.
    fn observed() -> ObservedCall {
        let memory = |kind, live, name: &str, made| ObservedMemory {
            recorded: live,
            live,
            length: 16,
            kind,
            name: name.to_owned(),
            made,
            ..ObservedMemory::default()
        };
        let mut variable = memory(MemoryKind::Variable, 0x9000, "counter", 3);
        variable.after.push(Piece {
            at: 0,
            length: 16,
            file: 4096,
        });
        let parameters = [0x1008, 0x9004].map(u64::to_le_bytes).concat();
        ObservedCall {
            call: 57,
            launch: Some(ObservedLaunch {
                kernel: "k".to_owned(),
                loaded: Some(3),
                parameters: [&parameters[..], &7u32.to_le_bytes()].concat(),
                layout: vec![(0, 8), (8, 8), (16, 4)],
                ..ObservedLaunch::default()
            }),
            memory: vec![
                memory(MemoryKind::Device, 0x1000, "cuMemAlloc_v2", 5),
                variable,
            ],
            ..ObservedCall::default()
        }
    }

    const FILES: Files<'static> = Files {
        image: "kernel.cubin",
        contents: "memory.bin",
    };

    #[test]
    fn parameters_that_name_variables_are_relocated() {
        let text = describe(&observed(), "app.cutape", &FILES).unwrap();
        for line in [
            "kernel k",
            "parameters 20 0810000000000000049000000000000007000000",
            "parameter 0 8 # 0x1000 + 8",
            "parameter 8 8 # counter + 4",
            "parameter 16 4 # 7, as a float 1e-44",
            "relocate 8 1 4",
            "memory 0x1000 16",
            "variable 16 counter",
            "after 0 16 4096",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
    }

    #[test]
    fn what_cannot_be_extracted_has_a_reason() {
        type Change = fn(&mut ObservedCall);
        let table: [(Change, &str); 5] = [
            (|call| call.launch = None, "it is not a launch of a kernel"),
            (
                |call| call.left_out.push("memory x: y".to_owned()),
                "memory is left out: memory x: y",
            ),
            (
                |call| call.launch.as_mut().unwrap().kernel.clear(),
                "the driver does not tell the name of its kernel",
            ),
            (
                |call| call.launch.as_mut().unwrap().kernel.push('\n'),
                "the name of its kernel does not fit on a line",
            ),
            (
                |call| call.memory[1].made = 9,
                "its parameters name a variable of another module, which counter found at call 9",
            ),
        ];
        for (change, expected) in table {
            let mut call = observed();
            change(&mut call);
            assert_eq!(describe(&call, "", &FILES), Err(expected.to_owned()));
        }
    }
}
