//! The calls of a script.

use cutape_format::layout::{GapNote, NestedCallNote, SharedMappingNote, field, snapshot_flag};
use cutape_format::{NewSnapshot, Signature, Signatures};

use super::images::image;

/// A call as a script describes it.
pub(super) struct Line {
    pub(super) arguments: Vec<u64>,
    pub(super) before: Vec<Piece>,
    pub(super) after: Vec<Piece>,
    pub(super) layout: Option<(u64, Vec<(u32, u32)>)>,
    pub(super) file: Option<u64>,
    pub(super) mapped: Vec<SharedMappingNote>,
    pub(super) nested: Vec<NestedCallNote>,
    pub(super) gap: Option<GapNote>,
}

impl Line {
    pub(super) fn parse(signatures: &Signatures, signature: &Signature, tokens: &[&str]) -> Self {
        let mut line = Self {
            arguments: vec![0; signature.parameters.len()],
            before: Vec::new(),
            after: Vec::new(),
            layout: None,
            file: None,
            mapped: Vec::new(),
            nested: Vec::new(),
            gap: None,
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
            match rest.strip_prefix('=') {
                Some(list) if line.note(signatures, name, list) => {}
                Some(list) if line.special(signature, name, address, list) => {}
                _ => line.argument(signature, name, address, rest),
            }
        }
        line.state_size(signature);
        line
    }

    /// What a note says; whether the name is that of one.
    fn note(&mut self, signatures: &Signatures, name: &str, list: &str) -> bool {
        match name {
            "file" => self.file = Some(number(list)),
            "gap" => {
                self.gap = Some(GapNote {
                    calls: number(list),
                    pause: 1,
                    paused: 1,
                    resumed: 2,
                });
            }
            "mapped" => self.mapped = list.split(',').map(mapping).collect(),
            "nested" => {
                let (function, result) = list.split_once(':').expect("a function and a result");
                self.nested.push(NestedCallNote {
                    caller: 0x40_9000,
                    result: number(result) as i32,
                    function: signatures.by_name(function).expect("a function").id,
                });
            }
            _ => return false,
        }
        true
    }

    /// The value of a parameter, or what its pointer leads to.
    fn argument(&mut self, signature: &Signature, name: &str, address: Option<u64>, rest: &str) {
        let position = position(signature, &[name]);
        let parameter = position as u8;
        if let Some(value) = rest.strip_prefix('=')
            && !value.starts_with(['"', '['])
        {
            self.arguments[position] = number(value);
            return;
        }
        if let Some(rest) = rest.strip_prefix('/') {
            self.further(signature, parameter, rest);
            return;
        }
        self.arguments[position] = address.unwrap_or(0x7ff0_0000_0000 + 0x100 * position as u64);
        if let Some(value) = rest.strip_prefix(":=") {
            let c_type = signature.parameters[position].c_type.as_str();
            let bytes = output(c_type, value);
            self.after
                .push(Piece::new(parameter, field::POINTEE, bytes));
            return;
        }
        let bytes = if let Some(text) = rest.strip_prefix("=\"") {
            [text.trim_end_matches('"').as_bytes(), &[0]].concat()
        } else if let Some(list) = rest.strip_prefix("=[") {
            words(list.trim_end_matches(']'))
        } else if let Some(image_name) = rest.strip_prefix(':') {
            image(image_name)
        } else if let Some(list) = rest.strip_prefix('%') {
            words32(list)
        } else if rest == "?" {
            Vec::new()
        } else {
            panic!("cannot read {name}{rest}");
        };
        let flags = match rest {
            "?" => snapshot_flag::UNREADABLE,
            _ => 0,
        };
        self.before.push(Piece {
            flags,
            ..Piece::new(parameter, field::POINTEE, bytes)
        });
    }

    /// A further piece of a parameter: `17="text"`.
    fn further(&mut self, signature: &Signature, parameter: u8, rest: &str) {
        let end = rest.find([':', '=', '?', '~']).expect("a piece");
        let kind = number(&rest[..end]) as u8;
        let (mark, value) = rest[end..].split_at(1);
        let (flags, bytes) = match mark {
            ":" => (0, image(value)),
            "?" => (snapshot_flag::UNREADABLE, Vec::new()),
            "~" => (snapshot_flag::IN_FILE, file_range(value)),
            _ if value.starts_with('[') => (0, words(value.trim_matches(['[', ']']))),
            _ => match value.strip_prefix('"') {
                Some(text) => (0, [text.trim_end_matches('"').as_bytes(), &[0]].concat()),
                None => (0, vec![number(value) as u8]),
            },
        };
        let is_late = matches!(kind, field::TEXT | field::INFO_LOG | field::ERROR_LOG)
            || signature.name.starts_with("cuLinkComplete");
        let pieces = match is_late {
            true => &mut self.after,
            false => &mut self.before,
        };
        pieces.push(Piece {
            flags,
            ..Piece::new(parameter, kind, bytes)
        });
    }

    /// What several parameters of a call mean together; whether the name is one of those.
    fn special(
        &mut self,
        signature: &Signature,
        name: &str,
        address: Option<u64>,
        list: &str,
    ) -> bool {
        let at = |names: &[&str]| position(signature, names);
        let numbers_at = || at(&["options", "jitOptions"]);
        let values_at = || at(&["optionValues", "jitOptionsValues"]);
        let mut piece = |parameter: usize, field, bytes| {
            self.before.push(Piece::new(parameter as u8, field, bytes));
        };
        match name {
            "opts" => {
                let (numbers, values, count) = pairs(list);
                piece(numbers_at(), field::OPTIONS, numbers);
                piece(values_at(), field::OPTION_VALUES, values);
                self.arguments[numbers_at()] = 0x7ff1_0000_0000;
                self.arguments[values_at()] = address.unwrap_or(0x7ff2_0000_0000);
                self.arguments[at(&["numOptions", "numJitOptions"])] = count;
            }
            "libopts" => {
                let (numbers, values, count) = pairs(list);
                piece(at(&["libraryOptions"]), field::LIBRARY_OPTIONS, numbers);
                piece(
                    at(&["libraryOptionValues"]),
                    field::LIBRARY_OPTION_VALUES,
                    values,
                );
                self.arguments[at(&["numLibraryOptions"])] = count;
            }
            "left" | "state_values" => {
                let parameter = if name == "left" { values_at() } else { 0 };
                let piece = Piece::new(parameter as u8, field::OPTION_VALUES, words(list));
                self.after.push(piece);
            }
            "bodies" => {
                let parameter = at(&["nodeParams"]) as u8;
                self.after
                    .push(Piece::new(parameter, field::ELEMENTS, words(list)));
            }
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
                piece(at(&["config"]), field::ATTRIBUTES, bytes);
            }
            "extra_words" => {
                piece(at(&["extra"]), field::EXTRA, words(list));
                self.arguments[at(&["extra"])] = 0x7ff4_0000_0000;
            }
            "extra_bytes" => {
                let bytes = vec![0; number(list) as usize];
                piece(at(&["extra"]), field::KERNEL_PARAMETERS, bytes);
            }
            "params" => {
                piece(at(&["kernelParams"]), field::KERNEL_PARAMETERS, words(list));
                self.arguments[at(&["kernelParams"])] = 0x7ff3_0000_0000;
            }
            "layout" => {
                let mut layout = Vec::new();
                let mut offset = 0;
                for size in list.split(',').map(|size| number(size) as u32) {
                    layout.push((offset, size));
                    offset += size;
                }
                self.layout = Some((self.arguments[0], layout));
            }
            _ => return false,
        }
        true
    }

    /// The recorder snapshots as many bytes as the call states.
    fn state_size(&mut self, signature: &Signature) {
        if let Some(data) = signature.parameter("data")
            && let Some(size) = signature.parameter("size")
            && self.arguments[size] == 0
        {
            let mut pieces = self.before.iter();
            if let Some(piece) = pieces.find(|piece| usize::from(piece.parameter) == data) {
                self.arguments[size] = piece.bytes.len() as u64;
            }
        }
    }
}

/// The position of the parameter that has one of these names.
fn position(signature: &Signature, names: &[&str]) -> usize {
    let found = names.iter().find_map(|name| signature.parameter(name));
    found.unwrap_or_else(|| panic!("{} has no parameter {names:?}", signature.name))
}

/// What a call leaves behind a pointer.
fn output(c_type: &str, value: &str) -> Vec<u8> {
    let is_short =
        c_type.starts_with("unsigned int") || c_type.starts_with("int") || c_type.contains("Mode");
    match value.strip_prefix('[') {
        Some(list) => words(list.trim_end_matches(']')),
        None if is_short => number(value).to_le_bytes()[..4].to_vec(),
        None => words(value),
    }
}

/// A snapshot that owns its bytes.
pub(super) struct Piece {
    parameter: u8,
    pub(super) field: u8,
    flags: u16,
    bytes: Vec<u8>,
}

impl Piece {
    fn new(parameter: u8, field: u8, bytes: Vec<u8>) -> Self {
        Self {
            parameter,
            field,
            flags: 0,
            bytes,
        }
    }

    pub(super) fn view(&self) -> NewSnapshot<'_> {
        NewSnapshot {
            parameter: self.parameter,
            field: self.field,
            flags: self.flags,
            bytes: &self.bytes,
        }
    }
}

pub(super) fn number(text: &str) -> u64 {
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
        digest: None,
    };
    let mut bytes = vec![0; range.encoded_length()];
    range.encode(&mut bytes).expect("the right length");
    bytes
}
