//! The text that describes one launch to the programs that make it.

use std::fmt::{Arguments, Write};

use cutape_replay::{
    MemoryKind, ObservedCall, ObservedLaunch, ObservedMemory, ObservedTexture, Piece,
};

/// The files that a description names, relative to it.
pub(super) struct Files<'a> {
    pub(super) contents: &'a str,
    /// The image that a call loads, or why the trace does not have it, in a phrase.
    pub(super) image: &'a dyn Fn(u64) -> Result<String, String>,
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
    let Some(loaded) = launch.loaded else {
        return Err("the trace does not show which image its kernel is from".into());
    };
    let memory = placed(observed, launch, files)?;
    let image = (files.image)(loaded)?;
    let mut text = format!(
        "cutape-launch 1\nsource {source}\nkernel {}\nimage {image}\ncontents {}\n",
        launch.kernel, files.contents
    );
    text += &configuration(launch);
    text += &parameters(launch, &memory);
    text += &contents(&memory, loaded, files)?;
    text += &textures(&launch.textures, &memory);
    Ok(text)
}

/// The device, and how the kernel is launched there.
fn configuration(launch: &ObservedLaunch) -> String {
    let mut text = String::new();
    let mut line = |words: Arguments<'_>| {
        let _ = writeln!(text, "{words}");
    };
    let three = |values: [u32; 3]| values.map(|value| value.to_string()).join(" ");
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
    text
}

/// The bytes of the parameters, and which are addresses of variables.
fn parameters(launch: &ObservedLaunch, memory: &[&ObservedMemory]) -> String {
    let bytes = &launch.parameters;
    let mut text = String::from("# Length and bytes; then offset and size of each\n");
    let _ = writeln!(text, "parameters {} {}", bytes.len(), hex(bytes));
    for &(offset, size) in &launch.layout {
        let value = value_text(launch, memory, (offset as usize, size as usize));
        let _ = writeln!(text, "parameter {offset} {size}{value}");
    }
    let words = bytes.chunks_exact(8).map(word);
    for (place, word) in (0..).zip(words) {
        if let Some((number, addend)) = variable_at(memory, word) {
            let _ = writeln!(text, "relocate {} {number} {addend}", place * 8);
        }
    }
    text
}

/// The memory, with its contents before and after, and the modules of variables.
fn contents(memory: &[&ObservedMemory], loaded: u64, files: &Files<'_>) -> Result<String, String> {
    let mut text = String::new();
    let mut line = |words: Arguments<'_>| {
        let _ = writeln!(text, "{words}");
    };
    line(format_args!(
        "# Memory: address and length, then contents: offset, length, place in the file"
    ));
    if memory.iter().any(|known| known.array.is_some()) {
        line(format_args!(
            "# Arrays: length, width, height, depth, CUarray_format, channels, flags, mipmap levels"
        ));
    }
    let mut module = loaded;
    for known in memory {
        if known.kind == MemoryKind::Variable && known.made != module {
            module = known.made;
            line(format_args!("# Of the module that call {module} loads"));
            line(format_args!("module {}", (files.image)(module)?));
        }
        if !matches!(known.kind, MemoryKind::Variable | MemoryKind::Array) {
            line(format_args!("# {} at call {}", known.name, known.made));
        }
        line(format_args!("{}", first_line(known)));
        for Piece { at, length, file } in &known.before {
            line(format_args!("before {at} {length} {file}"));
        }
        for (at, length, file) in changes(&known.before, &known.after) {
            match file {
                Some(file) => line(format_args!("after {at} {length} {file}")),
                None => line(format_args!("after-zero {at} {length}")),
            }
        }
        for (when, addresses) in [
            ("before", &known.addresses_before),
            ("after", &known.addresses_after),
        ] {
            for &(at, address) in addresses {
                if let Some((number, addend)) = variable_at(memory, address) {
                    line(format_args!("{when}-address {at} {number} {addend}"));
                }
            }
        }
    }
    Ok(text)
}

/// The line that begins some memory.
fn first_line(memory: &ObservedMemory) -> String {
    let ObservedMemory {
        length, name, live, ..
    } = memory;
    match (memory.kind, memory.array) {
        (MemoryKind::Variable, _) if memory.as_loaded => format!("loaded-variable {length} {name}"),
        (MemoryKind::Variable, _) => format!("variable {length} {name}"),
        (MemoryKind::Host, _) => format!("host-memory {live:#x} {length}"),
        (MemoryKind::Array, Some(shape)) => {
            let (format, channels, flags) = (shape.format, shape.channels, shape.flags);
            format!(
                "array {length} {} {} {} {format} {channels} {flags} {}",
                shape.width, shape.height, shape.depth, shape.levels
            )
        }
        _ => format!("memory {live:#x} {length}"),
    }
}

/// The texture and surface objects.
fn textures(textures: &[ObservedTexture], memory: &[&ObservedMemory]) -> String {
    let mut text = String::new();
    if !textures.is_empty() {
        text += "# Texture and surface objects: offset of the parameter, handle; which memory; \
                 CUDA_RESOURCE_DESC,\n# CUDA_TEXTURE_DESC and CUDA_RESOURCE_VIEW_DESC as bytes, \
                 without zeros at the end\n";
    }
    for texture in textures {
        let kind = if texture.is_surface {
            "surface"
        } else {
            "texture"
        };
        let _ = writeln!(text, "{kind} {} {}", texture.offset, texture.handle);
        let is_it =
            |known: &&ObservedMemory| known.array.is_some() && Some(known.live) == texture.array;
        if let Some(number) = memory.iter().position(is_it) {
            let _ = writeln!(text, "of-array {number}");
        }
        for (word, bytes) in [
            ("resource", &texture.resource),
            ("sampler", &texture.sampler),
            ("view", &texture.view),
        ] {
            if !bytes.is_empty() {
                let _ = writeln!(text, "{word} {}", hex(without_zeros(bytes)));
            }
        }
    }
    text
}

/// The bytes without zeros at the end, but at least one.
fn without_zeros(bytes: &[u8]) -> &[u8] {
    let last = bytes.iter().rposition(|&byte| byte != 0).unwrap_or(0);
    bytes.get(..=last).unwrap_or(bytes)
}

fn is_one_line(text: &str) -> bool {
    !text.contains(char::is_control)
}

/// The memory to place, then the variables of other modules, by module. Left out are variables that
/// are as the image has them, before and after.
fn placed<'o>(
    observed: &'o ObservedCall,
    launch: &ObservedLaunch,
    files: &Files<'_>,
) -> Result<Vec<&'o ObservedMemory>, String> {
    let mut placed = Vec::new();
    let words = || launch.parameters.chunks_exact(8).map(word);
    let in_memory = || {
        let memory = observed.memory.iter();
        let words = memory.flat_map(|memory| {
            memory
                .addresses_before
                .iter()
                .chain(&memory.addresses_after)
        });
        words.map(|&(_, word)| word)
    };
    for memory in &observed.memory {
        let is_named = || words().chain(in_memory()).any(|word| holds(memory, word));
        if memory.as_loaded && memory.before == memory.after && !is_named() {
            continue;
        }
        let is_variable = memory.kind == MemoryKind::Variable;
        let image = match is_variable && Some(memory.made) != launch.loaded {
            true => (files.image)(memory.made).map(drop),
            false => Ok(()),
        };
        match image {
            Ok(()) if !is_variable || is_one_line(&memory.name) => placed.push(memory),
            Err(why) if is_named() => {
                return Err(format!("it reaches a variable of another module: {why}"));
            }
            _ => {}
        }
    }
    let module = |memory: &&ObservedMemory| match memory.kind {
        MemoryKind::Variable if Some(memory.made) != launch.loaded => Some(memory.made),
        _ => None,
    };
    placed.sort_by_key(module);
    Ok(placed)
}

fn word(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

fn holds(memory: &ObservedMemory, address: u64) -> bool {
    let addresses = memory.live..memory.live.saturating_add(memory.length);
    memory.kind != MemoryKind::Array && addresses.contains(&address)
}

/// The variable that an address lies in: the number of the memory, and the offset. A module lies
/// elsewhere in each process.
fn variable_at(memory: &[&ObservedMemory], address: u64) -> Option<(usize, u64)> {
    let mut all = memory.iter().enumerate();
    let (number, variable) =
        all.find(|(_, memory)| memory.kind == MemoryKind::Variable && holds(memory, address))?;
    Some((number, address - variable.live))
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
    let textures = || {
        let textures = launch.textures.iter();
        textures.filter(|texture| texture.offset as usize == offset)
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
                None if textures().next().is_some() => " # a texture or surface object".to_owned(),
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
    use cutape_replay::ArrayShape;

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
        contents: "memory.bin",
        image: &|loaded| match loaded {
            3 | 4 => Ok(format!("{loaded}.cubin")),
            _ => Err(format!("no image {loaded}")),
        },
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
    fn variables_of_other_modules_and_their_addresses_in_memory() {
        let mut call = observed();
        call.memory[1].made = 4;
        call.memory[0].addresses_before.push((8, 0x9008));
        call.memory[0].addresses_after.push((0, 0x900f));
        // Another module's variable, which nothing names and nothing has changed.
        call.memory.push(ObservedMemory {
            name: "idle".to_owned(),
            kind: MemoryKind::Variable,
            live: 0xa000,
            length: 8,
            made: 3,
            as_loaded: true,
            ..ObservedMemory::default()
        });
        let text = describe(&call, "app.cutape", &FILES).unwrap();
        let expected = "\
            memory 0x1000 16\n\
            before-address 8 1 8\n\
            after-address 0 1 15\n\
            # Of the module that call 4 loads\n\
            module 4.cubin\n\
            variable 16 counter\n";
        assert!(text.contains(expected), "{text}");
        assert!(
            text.contains("image 3.cubin\n") && !text.contains("idle"),
            "{text}"
        );
    }

    #[test]
    fn textures_name_their_array() {
        let mut call = observed();
        let shape = ArrayShape {
            width: 4,
            format: 3,
            channels: 1,
            ..ArrayShape::default()
        };
        call.memory.push(ObservedMemory {
            kind: MemoryKind::Array,
            // A handle may look like an address.
            live: 0x1000,
            length: 16,
            array: Some(shape),
            ..ObservedMemory::default()
        });
        let texture = ObservedTexture {
            offset: 8,
            handle: 7,
            resource: vec![0, 1, 0, 0],
            sampler: vec![0; 4],
            array: Some(0x1000),
            ..ObservedTexture::default()
        };
        let surface = ObservedTexture {
            is_surface: true,
            sampler: Vec::new(),
            ..texture.clone()
        };
        call.launch.as_mut().unwrap().textures = vec![texture, surface];
        let text = describe(&call, "app.cutape", &FILES).unwrap();
        let expected = "\
            texture 8 7\nof-array 2\nresource 0001\nsampler 00\n\
            surface 8 7\nof-array 2\nresource 0001\n";
        assert!(text.ends_with(expected), "{text}");
        assert!(text.contains("array 16 4 0 0 3 1 0 0\n"), "{text}");
    }

    #[test]
    fn what_cannot_be_extracted_has_a_reason() {
        type Change = fn(&mut ObservedCall);
        let table: [(Change, &str); 6] = [
            (
                |call| call.launch.as_mut().unwrap().loaded = None,
                "the trace does not show which image its kernel is from",
            ),
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
                "it reaches a variable of another module: no image 9",
            ),
        ];
        for (change, expected) in table {
            let mut call = observed();
            change(&mut call);
            assert_eq!(describe(&call, "", &FILES), Err(expected.to_owned()));
        }
    }
}
