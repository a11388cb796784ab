//! A small language for call sequences, so that a test is a few lines: one call a line, `[t1]
//! function parameter=value ... [-> result]`.
//!
//! `at N` sets the clock for the next record, `meta KEY VALUE` adds metadata, and after `looped`
//! all calls of a function come from one place. `p=[1,2,0*3]` an array or struct of words that the
//! call reads, `p=[4:1,2]` of four bytes each; `p=0x10` a value; `p:=0x30` the output behind a
//! pointer, `p:=[1,2]` several; `p="text"` a string; `p@0x5000` puts a pointer there (else every
//! parameter has an address of its own); `p@0x5000:NAME` an image of that name; `p?` memory that
//! cannot be read; `p/17="text"` and `p/7:NAME` further pieces after the call, `p/9~a.so:4096:64`
//! one that is part of a file; `opts@0x8000=3:0x9000,4:64` an option array with its values,
//! `left=0x9000,0` what the driver leaves there, `state_values=..` what is in the array of a link;
//! `params=1,2` kernel parameters, `layout=8,8` their sizes; `libopts=1:1` library options; `p%1,2`
//! 32-bit words behind a pointer, `launch_attrs=4:2,1,1;8:5` launch attributes with the words of
//! their values, `extra_words=1,0x5000,0` those of `extra`, `extra_bytes=8` the length of the
//! buffer in it. `file=40` says which file the descriptor of the call names, `mapped=40:0x8000:4096`
//! of which file the registered memory is a mapping there, and of how many bytes; several with
//! commas. `nested=cuMemFree_v2:800` is a call that was made inside this one, with its result. `-> !`
//! is a call in flight. `t1> call` enters only, `t1<` leaves what thread 1 has
//! entered. `loop 20 call; call` repeats calls, with the round, from 1, for each `$`. A line `meta
//! KEY VALUE` is metadata.

#![allow(dead_code, reason = "each test file uses its own part")]

mod images;
pub(crate) mod ranks;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use cutape_analyzer::{Analyzer, Finding};
use cutape_format::layout::{
    DescriptorNote, NestedCallNote, SharedMappingNote, field, note_kind, snapshot_flag,
};
use cutape_format::{NewCall, NewSnapshot, Signatures, Trace, TraceBuilder, ValueType};
use images::image;

/// PTX with a kernel "k" and a global "g".
pub(crate) const PTX: &str = "// comment\n.version 7.0\n.target sm_70\n.address_size 64\n.visible .global .u32 g;\n\
    .visible .entry k(.param .u64 p)\n{\n ret;\n}\n.visible .entry _Z5scalePf(.param .u64 p)\n{\n\
    ret;\n}\n";

/// Of device 0, as of an H200, and of device 1, a smaller one.
const DEVICE_ATTRIBUTES: [(&str, &[u64]); 15] = [
    ("MAX_GRID_DIM_X", &[0x7fff_ffff, 0x7fff_ffff]),
    ("MAX_GRID_DIM_Y", &[65535, 65535]),
    ("MAX_GRID_DIM_Z", &[65535, 65535]),
    ("MAX_BLOCK_DIM_X", &[1024, 1024]),
    ("MAX_BLOCK_DIM_Y", &[1024, 1024]),
    ("MAX_BLOCK_DIM_Z", &[64, 64]),
    ("MAX_THREADS_PER_BLOCK", &[1024, 1024]),
    ("MAX_SHARED_MEMORY_PER_BLOCK", &[49152, 49152]),
    ("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", &[232_448, 101_376]),
    ("MAX_REGISTERS_PER_BLOCK", &[65536, 65536]),
    ("MULTIPROCESSOR_COUNT", &[132, 40]),
    ("COOPERATIVE_LAUNCH", &[1, 0]),
    ("COOPERATIVE_MULTI_DEVICE_LAUNCH", &[1, 1, 0]),
    ("CLUSTER_LAUNCH", &[1, 0]),
    ("MAX_ACCESS_POLICY_WINDOW_SIZE", &[134_217_728, 134_217_728]),
];

/// A snapshot that owns its bytes.
struct Piece {
    parameter: u8,
    field: u8,
    flags: u16,
    bytes: Vec<u8>,
}

impl Piece {
    fn view(&self) -> NewSnapshot<'_> {
        NewSnapshot {
            parameter: self.parameter,
            field: self.field,
            flags: self.flags,
            bytes: &self.bytes,
        }
    }
}

fn number(text: &str) -> u64 {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse::<i64>().ok().map(|value| value as u64),
    };
    parsed.unwrap_or_else(|| panic!("no number: {text}"))
}

fn words(list: &str) -> Vec<u8> {
    let (width, list) = match list.split_once(':') {
        Some((width, list)) => (number(width) as usize, list),
        None => (8, list),
    };
    let mut bytes = Vec::new();
    for word in list.split(',').filter(|word| !word.is_empty()) {
        let (value, times) = word.split_once('*').unwrap_or((word, "1"));
        for _ in 0..number(times) {
            bytes.extend_from_slice(&number(value).to_le_bytes()[..width]);
        }
    }
    bytes
}

fn words32(list: &str) -> Vec<u8> {
    list.split(',')
        .flat_map(|word| (number(word) as u32).to_le_bytes())
        .collect()
}

struct Line {
    arguments: Vec<u64>,
    before: Vec<Piece>,
    after: Vec<Piece>,
    layout: Option<(u64, Vec<(u32, u32)>)>,
    file: Option<u64>,
    mapped: Vec<SharedMappingNote>,
    nested: Vec<NestedCallNote>,
}

fn pairs(list: &str) -> (Vec<u8>, Vec<u8>, u64) {
    let (mut numbers, mut values, mut count) = (Vec::new(), Vec::new(), 0);
    for pair in list.split(',').filter(|pair| !pair.is_empty()) {
        let (option, value) = pair.split_once(':').expect("option:value");
        numbers.extend((number(option) as u32).to_le_bytes());
        values.extend(number(value).to_le_bytes());
        count += 1;
    }
    (numbers, values, count)
}

/// The end of a parameter's name in a token.
fn split(token: &str) -> (&str, &str) {
    let end = token
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .unwrap_or(token.len());
    token.split_at(end)
}

/// `40:0x8000:4096`: file, address, bytes.
fn mapping(text: &str) -> SharedMappingNote {
    let numbers: Vec<u64> = text.split(':').map(number).collect();
    let [inode, address, length] = numbers[..] else {
        panic!("cannot read mapping {text}");
    };
    SharedMappingNote {
        address,
        length,
        device: 1,
        inode,
        offset: 0,
    }
}

fn line(signatures: &Signatures, function: &str, tokens: &[&str]) -> Line {
    let signature = signatures
        .by_name(function)
        .unwrap_or_else(|| panic!("no function {function}"));
    let mut line = Line {
        arguments: vec![0; signature.parameters.len()],
        before: Vec::new(),
        after: Vec::new(),
        layout: None,
        file: None,
        mapped: Vec::new(),
        nested: Vec::new(),
    };
    let at = |names: &[&str]| {
        let found = names.iter().find_map(|name| signature.parameter(name));
        found.unwrap_or_else(|| panic!("{function} has no parameter {names:?}"))
    };
    for token in tokens {
        let (name, rest) = split(token);
        let (address, rest) = match rest.strip_prefix('@') {
            Some(rest) => {
                let end = rest.find([':', '=', '?']).unwrap_or(rest.len());
                (Some(number(&rest[..end])), &rest[end..])
            }
            None => (None, rest),
        };
        if name == "file" {
            line.file = rest.strip_prefix('=').map(number);
            continue;
        }
        if name == "nested" {
            let (function, result) = rest[1..].split_once(':').expect("a function and a result");
            let function = signatures.by_name(function).expect("a function").id;
            line.nested.push(NestedCallNote {
                caller: 0x40_9000,
                result: number(result) as i32,
                function,
            });
            continue;
        }
        if name == "mapped" {
            line.mapped = rest
                .trim_start_matches('=')
                .split(',')
                .map(mapping)
                .collect();
            continue;
        }
        if matches!(
            name,
            "opts"
                | "left"
                | "state_values"
                | "params"
                | "layout"
                | "libopts"
                | "launch_attrs"
                | "extra_words"
                | "extra_bytes"
        ) {
            let list = rest.strip_prefix('=').expect("=");
            special(&mut line, &at, name, address, list);
            continue;
        }
        let position = at(&[name]);
        let parameter = position as u8;
        let pointer = address.unwrap_or(0x7ff0_0000_0000 + 0x100 * position as u64);
        let piece = |field, bytes| Piece {
            parameter,
            field,
            flags: 0,
            bytes,
        };
        if let Some(value) = rest.strip_prefix(":=") {
            line.arguments[position] = pointer;
            let c_type = signature.parameters[position].c_type.as_str();
            let short = c_type.starts_with("unsigned int")
                || c_type.starts_with("int")
                || c_type.contains("Mode");
            let bytes = match value.strip_prefix('[') {
                Some(list) => words(list.trim_end_matches(']')),
                None if short => number(value).to_le_bytes()[..4].to_vec(),
                None => words(value),
            };
            line.after.push(piece(field::POINTEE, bytes));
        } else if let Some(text) = rest.strip_prefix("=\"") {
            line.arguments[position] = pointer;
            let mut bytes = text.trim_end_matches('"').as_bytes().to_vec();
            bytes.push(0);
            line.before.push(piece(field::POINTEE, bytes));
        } else if let Some(list) = rest.strip_prefix("=[") {
            line.arguments[position] = pointer;
            let bytes = words(list.trim_end_matches(']'));
            line.before.push(piece(field::POINTEE, bytes));
        } else if let Some(value) = rest.strip_prefix('=') {
            line.arguments[position] = number(value);
        } else if let Some(image_name) = rest.strip_prefix(':') {
            line.arguments[position] = pointer;
            line.before.push(piece(field::POINTEE, image(image_name)));
        } else if let Some(list) = rest.strip_prefix('%') {
            line.arguments[position] = pointer;
            let bytes = words32(list);
            line.before.push(piece(field::POINTEE, bytes));
        } else if rest == "?" {
            line.arguments[position] = pointer;
            let flags = snapshot_flag::UNREADABLE;
            line.before.push(Piece {
                parameter,
                field: field::POINTEE,
                flags,
                bytes: Vec::new(),
            });
        } else if let Some(rest) = rest.strip_prefix('/') {
            let end = rest.find([':', '=', '?', '~']).expect("a piece");
            let kind = number(&rest[..end]) as u8;
            let (mark, value) = rest[end..].split_at(1);
            let mut flags = 0;
            let bytes = match mark {
                ":" => image(value),
                "?" => {
                    flags = snapshot_flag::UNREADABLE;
                    Vec::new()
                }
                "~" => {
                    flags = snapshot_flag::IN_FILE;
                    file_range(value)
                }
                _ if value.starts_with('[') => words(value.trim_matches(['[', ']'])),
                _ => match value.strip_prefix('"') {
                    Some(text) => [text.trim_end_matches('"').as_bytes(), &[0]].concat(),
                    None => vec![number(value) as u8],
                },
            };
            let piece = Piece {
                parameter,
                field: kind,
                flags,
                bytes,
            };
            let late = matches!(kind, field::TEXT | field::INFO_LOG | field::ERROR_LOG)
                || function.starts_with("cuLinkComplete");
            if late {
                line.after.push(piece)
            } else {
                line.before.push(piece)
            }
        } else {
            panic!("cannot read {token}");
        }
    }
    // The recorder snapshots as many bytes as the call states.
    if let Some(data) = signature.parameter("data")
        && let Some(size) = signature.parameter("size")
        && line.arguments[size] == 0
        && let Some(piece) = line
            .before
            .iter()
            .find(|piece| usize::from(piece.parameter) == data)
    {
        line.arguments[size] = piece.bytes.len() as u64;
    }
    line
}

fn special(
    line: &mut Line,
    at: &dyn Fn(&[&str]) -> usize,
    name: &str,
    address: Option<u64>,
    list: &str,
) {
    let numbers_at = || at(&["options", "jitOptions"]);
    let values_at = || at(&["optionValues", "jitOptionsValues"]);
    let mut piece = |after: bool, parameter: usize, field, bytes| {
        let piece = Piece {
            parameter: parameter as u8,
            field,
            flags: 0,
            bytes,
        };
        if after {
            line.after.push(piece)
        } else {
            line.before.push(piece)
        }
    };
    match name {
        "opts" => {
            let (numbers, values, count) = pairs(list);
            piece(false, numbers_at(), field::OPTIONS, numbers);
            piece(false, values_at(), field::OPTION_VALUES, values);
            line.arguments[numbers_at()] = 0x7ff1_0000_0000;
            line.arguments[values_at()] = address.unwrap_or(0x7ff2_0000_0000);
            line.arguments[at(&["numOptions", "numJitOptions"])] = count;
        }
        "libopts" => {
            let (numbers, values, count) = pairs(list);
            piece(
                false,
                at(&["libraryOptions"]),
                field::LIBRARY_OPTIONS,
                numbers,
            );
            piece(
                false,
                at(&["libraryOptionValues"]),
                field::LIBRARY_OPTION_VALUES,
                values,
            );
            line.arguments[at(&["numLibraryOptions"])] = count;
        }
        "left" => piece(true, values_at(), field::OPTION_VALUES, words(list)),
        "state_values" => piece(true, 0, field::OPTION_VALUES, words(list)),
        "launch_attrs" => {
            let entry = |text: &str| {
                let (id, value) = text.split_once(':').expect("id:words");
                let mut bytes = words32(id);
                bytes.resize(8, 0);
                bytes.extend(words32(value));
                bytes.resize(72, 0);
                bytes
            };
            let bytes = list.split(';').flat_map(entry).collect();
            piece(false, at(&["config"]), field::ATTRIBUTES, bytes);
        }
        "extra_words" => {
            piece(false, at(&["extra"]), field::EXTRA, words(list));
            line.arguments[at(&["extra"])] = 0x7ff4_0000_0000;
        }
        "extra_bytes" => {
            let bytes = vec![0; number(list) as usize];
            piece(false, at(&["extra"]), field::KERNEL_PARAMETERS, bytes);
        }
        "params" => {
            piece(
                false,
                at(&["kernelParams"]),
                field::KERNEL_PARAMETERS,
                words(list),
            );
            line.arguments[at(&["kernelParams"])] = 0x7ff3_0000_0000;
        }
        _ => {
            let mut layout = Vec::new();
            let mut offset = 0;
            for size in list.split(',').map(|size| number(size) as u32) {
                layout.push((offset, size));
                offset += size;
            }
            line.layout = Some((line.arguments[0], layout));
        }
    }
}

/// An encoded part of a file, from `path:offset:length`.
fn file_range(text: &str) -> Vec<u8> {
    let parts: Vec<&str> = text.split(':').collect();
    let [path, offset, length] = parts[..] else {
        panic!("no path:offset:length: {text}");
    };
    let range = cutape_format::FileRange {
        offset: number(offset),
        length: number(length),
        file_length: 1 << 20,
        modified: 0,
        path: path.as_bytes(),
        build_id: &[],
    };
    let mut bytes = vec![0; range.encoded_length()];
    range.encode(&mut bytes).expect("the right length");
    bytes
}

/// The lines of a script with their callers; loops are unrolled.
fn lines(script: &str) -> Vec<(u64, String)> {
    let mut lines = Vec::new();
    for (place, text) in script.lines().enumerate() {
        let caller = 0x40_0000 + 16 * place as u64;
        let Some((count, body)) = text.trim().strip_prefix("loop ").map(|rest| {
            let (count, body) = rest.split_once(' ').expect("a count and a body");
            (number(count), body)
        }) else {
            lines.push((caller, text.to_owned()));
            continue;
        };
        for round in 1..=count {
            let calls = body.split(';').enumerate();
            lines.extend(calls.map(|(at, call)| {
                let text = call.replace('$', &format!("{round:x}"));
                (caller + at as u64, text)
            }));
        }
    }
    lines
}

/// Makes the trace that a script describes.
pub(crate) fn trace(script: &str) -> Trace {
    let signatures = Signatures::parse(cutape_registry::SIGNATURE_TEXT).expect("signatures");
    let mut looped = false;
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    builder
        .meta("device.0.compute-capability", "9.0")
        .meta("driver.version", "13000")
        .meta("device.0.name", "a GPU")
        .meta("device.1.name", "a GPU");
    for (name, values) in DEVICE_ATTRIBUTES {
        for (device, value) in values.iter().enumerate() {
            builder.meta(
                &format!("device.{device}.attribute.{name}"),
                &value.to_string(),
            );
        }
    }
    let mut open: std::collections::HashMap<u32, (i32, Vec<Piece>)> = Default::default();
    for (caller, text) in lines(script) {
        let text = text.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        let mut tokens: Vec<&str> = text.split_whitespace().collect();
        let mut until = None;
        match tokens.as_slice() {
            ["at", ticks] => {
                builder.at(number(ticks));
                continue;
            }
            ["at", ticks, "until", end, ..] => {
                builder.at(number(ticks));
                until = Some(number(end));
                tokens.drain(..4);
            }
            ["looped"] => {
                looped = true;
                continue;
            }
            ["meta", key, value] => {
                builder.meta(key, value);
                continue;
            }
            _ => {}
        }
        // `t1` enters and leaves; `t1>` only enters, `t1<` leaves what was entered.
        let mut thread = 0;
        let mut only_enter = false;
        if let Some(word) = tokens.first().and_then(|word| word.strip_prefix('t'))
            && word.starts_with(|c: char| c.is_ascii_digit())
        {
            thread = number(word.trim_end_matches(['>', '<'])) as u32;
            if word.ends_with('<') {
                let (result, after) = open.remove(&thread).expect("a call that was entered");
                let after: Vec<NewSnapshot<'_>> = after.iter().map(Piece::view).collect();
                builder.leave(thread, result, &after);
                continue;
            }
            only_enter = word.ends_with('>');
            tokens.remove(0);
        }
        let mut result = Some(0);
        if let Some(arrow) = tokens.iter().position(|token| *token == "->") {
            let word = tokens[arrow + 1];
            result = (word != "!").then(|| number(word) as i32);
            tokens.truncate(arrow);
        }
        let (function, tokens) = tokens.split_first().expect("a function");
        let line = line(&signatures, function, tokens);
        let words: Vec<u64> = signatures
            .by_name(function)
            .into_iter()
            .flat_map(|signature| signature.parameters.iter().zip(&line.arguments))
            .flat_map(|(parameter, &value)| match parameter.value_type {
                ValueType::Memory(bytes) => vec![value; usize::from(bytes).div_ceil(8)],
                _ => vec![value],
            })
            .collect();
        let function_id = signatures.by_name(function).map(|signature| signature.id);
        let caller = match function_id.filter(|_| looped) {
            Some(id) => 0x40_0000 + 16 * u64::from(id),
            None => caller,
        };
        let before: Vec<NewSnapshot<'_>> = line.before.iter().map(Piece::view).collect();
        builder.call(NewCall {
            thread,
            name: function,
            arguments: &words,
            snapshots: &before,
            caller,
        });
        if let Some((handle, layout)) = &line.layout {
            builder.layout_note(thread, *handle, layout);
        }
        if let Some(inode) = line.file {
            let note = DescriptorNote {
                descriptor: 9,
                mode: 0o100_600,
                device: 1,
                inode,
                size: 0,
                owner: 0,
                mark: 0,
            };
            builder.note(thread, note_kind::DESCRIPTOR, note, &[]);
        }
        for mapping in line.mapped {
            builder.note(thread, note_kind::SHARED_MAPPING, mapping, b"/dev/shm/x");
        }
        for nested in line.nested {
            builder.note(thread, note_kind::NESTED_CALL, nested, &[]);
        }
        if only_enter {
            open.insert(thread, (result.expect("a result"), line.after));
        } else if let Some(result) = result {
            if let Some(ticks) = until {
                builder.at(ticks);
            }
            let after: Vec<NewSnapshot<'_>> = line.after.iter().map(Piece::view).collect();
            let after = if result == 0 {
                after
            } else {
                // A call that failed has no outputs but the option values and logs.
                after
                    .into_iter()
                    .filter(|piece| piece.field != field::POINTEE)
                    .collect()
            };
            builder.leave(thread, result, &after);
        }
    }
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!(
        "analyzer-{}-{}.cutape",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    let path: PathBuf = std::env::temp_dir().join(name);
    builder.write(&path).expect("a trace file");
    let trace = Trace::open(&path).expect("a sound trace");
    std::fs::remove_file(&path).expect("the trace file");
    trace
}

/// What the analyzer says about a script.
pub(crate) fn findings(script: &str) -> Vec<Finding> {
    findings_until(script, true)
}

/// The same, where later calls of the program may be missing.
pub(crate) fn findings_until(script: &str, is_end: bool) -> Vec<Finding> {
    let trace = trace(script);
    let mut analyzer = Analyzer::new();
    let mut findings: Vec<Finding> = trace
        .calls()
        .flat_map(|call| analyzer.push(&trace, &call))
        .collect();
    findings.extend(analyzer.finish(&trace, is_end));
    findings
}

/// The rules' ids alone.
pub(crate) fn rules(script: &str) -> Vec<&'static str> {
    findings(script)
        .into_iter()
        .map(|finding| finding.rule)
        .collect()
}
