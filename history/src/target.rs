//! Which bytes are asked about, and when.

use std::ops::Range;

use cutape_analyzer::decode::function_of;
use cutape_format::layout::field;
use cutape_format::{Call, Note, Trace};
use cutape_model::{Effects, LaunchShape, Operands};
use cutape_registry::Family;
use cutape_render::labels::Labels;
use rustc_hash::FxHashMap;

/// Bytes of device or host memory, by recorded addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// The first one.
    pub address: u64,
    /// How many.
    pub length: u64,
}

/// Where the bytes of a target lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The recorded address of the first one.
    pub address: u64,
    /// How many, if the target says so.
    pub length: Option<u64>,
    /// They are asked about before that call: an earlier one than was given if another memory has
    /// their address then.
    pub before: Option<u64>,
}

impl Place {
    /// Its bytes; that many if the target does not say how many.
    pub fn bytes(&self, size: u64) -> Bytes {
        Bytes {
            address: self.address,
            length: self.length.unwrap_or(size),
        }
    }
}

/// What a user asks about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `0x7f00[+LENGTH]`.
    Address(u64, Option<u64>),
    /// `memory#3[+OFFSET[+LENGTH]]`.
    Object(String, u64, Option<u64>),
    /// What a call has copied to the host.
    Result(u64),
    /// What a parameter of a launch points at, before it: the call, and the parameter's number.
    Parameter(u64, usize),
}

fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("`{}` is not a number", text.escape_debug()))
}

impl Target {
    /// Parses an address or an object.
    ///
    /// # Errors
    /// A line that says what is wrong and what is allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.split('+');
        let first = parts.next().unwrap_or_default();
        let rest: Vec<u64> = parts
            .map(number)
            .collect::<Result<_, _>>()
            .map_err(|what| format!("{what}; allowed: {ALLOWED}"))?;
        let too_many = || Err(format!("too many parts joined by +; allowed: {ALLOWED}"));
        if first.contains('#') {
            return match *rest.as_slice() {
                [] => Ok(Self::Object(first.to_owned(), 0, None)),
                [offset] => Ok(Self::Object(first.to_owned(), offset, None)),
                [offset, length] => Ok(Self::Object(first.to_owned(), offset, Some(length))),
                _ => too_many(),
            };
        }
        let address = number(first).map_err(|what| format!("{what}; allowed: {ALLOWED}"))?;
        match *rest.as_slice() {
            [] => Ok(Self::Address(address, None)),
            [length] => Ok(Self::Address(address, Some(length))),
            _ => too_many(),
        }
    }

    /// Parses `CALL:N`, a parameter of a launch.
    ///
    /// # Errors
    /// A line that says what is allowed.
    pub fn parse_parameter(text: &str) -> Result<Self, String> {
        let parts = text.split_once(':');
        let parsed = parts.and_then(|(call, at)| Some((call.parse().ok()?, at.parse().ok()?)));
        let (call, parameter) = parsed.ok_or("not CALL:N, e.g. 57:2, the third parameter")?;
        Ok(Self::Parameter(call, parameter))
    }

    /// The call before which the bytes are looked at, if the target says so.
    pub fn call(&self) -> Option<u64> {
        match *self {
            Self::Result(call) | Self::Parameter(call, _) => Some(call),
            Self::Address(..) | Self::Object(..) => None,
        }
    }

    /// The name of the object, if the target is a part of one.
    pub(crate) fn object(&self) -> Option<&str> {
        match self {
            Self::Object(name, ..) => Some(name),
            _ => None,
        }
    }

    /// Where the bytes lie before a call, or at the end.
    ///
    /// # Errors
    /// A line that says what the trace lacks.
    pub fn resolve(&self, trace: &Trace, before: Option<u64>) -> Result<Place, String> {
        let (address, length, before) = match self {
            Self::Address(address, length) => (*address, *length, before),
            Self::Object(name, offset, length) => {
                let (range, end) = named(trace, before.unwrap_or(u64::MAX), name)?;
                let size = range.end - range.start;
                if *offset >= size {
                    return Err(format!("{name} has {size} bytes"));
                }
                (range.start + offset, *length, end.or(before))
            }
            Self::Result(call) => {
                let bytes = result(&nth(trace, *call)?)?;
                (bytes.address, Some(bytes.length), before)
            }
            Self::Parameter(call, parameter) => {
                (parameter_of(trace, *call, *parameter)?, None, before)
            }
        };
        Ok(Place {
            address,
            length,
            before,
        })
    }
}

const ALLOWED: &str = "an address and bytes (0x7f0012340000+16), or an object, an offset and bytes \
     (memory#3+0x40+16)";

pub(crate) fn nth(trace: &Trace, index: u64) -> Result<Call<'_>, String> {
    let mut calls = trace.calls().skip_while(|call| call.index < index);
    let found = calls.next().filter(|call| call.index == index);
    found.ok_or_else(|| format!("the trace has no call {index}"))
}

/// The memory of that label that calls before `end` made, and the call after which another memory
/// has its address.
fn named(trace: &Trace, end: u64, name: &str) -> Result<(Range<u64>, Option<u64>), String> {
    let mut labels = Labels::default();
    let mut found: Option<Range<u64>> = None;
    for call in trace.calls().take_while(|call| call.index < end) {
        let effects = function_of(call.signature).map(Effects::of);
        let Some(effects) = effects.filter(Labels::depend_on) else {
            continue;
        };
        labels.observe(&effects, &call);
        match (labels.named(name), &found) {
            (Some(range), _) => found = Some(range),
            (None, Some(range)) => return Ok((range.clone(), Some(call.index))),
            (None, None) => {}
        }
    }
    let found = found.map(|range| (range, None));
    found.ok_or_else(|| {
        if name.starts_with("array#") || name.starts_with("mipmapped-array#") {
            return format!(
                "{name} has no address: `cutape extract --launch N` writes the arrays that a launch \
                 reads"
            );
        }
        format!("no memory is called {name}; `cutape dump` shows how memory is called")
    })
}

/// What a call copies to the host.
fn result(call: &Call<'_>) -> Result<Bytes, String> {
    let function = function_of(call.signature);
    let copy = function.filter(|function| matches!(function.family, Family::Copy(_)));
    let read = copy.and_then(|function| Operands::of(function, call).reads().next());
    let read = read.filter(|read| !read.is_empty());
    let read = read.ok_or_else(|| {
        let name = &call.signature.name;
        format!("call {}, {name}, does not copy from memory", call.index)
    })?;
    Ok(Bytes {
        address: read.start,
        length: read.end - read.start,
    })
}

/// The word of a kernel's parameter.
fn parameter_of(trace: &Trace, index: u64, parameter: usize) -> Result<u64, String> {
    let mut layouts: FxHashMap<u64, Vec<(u32, u32)>> = FxHashMap::default();
    for call in trace.calls().take_while(|call| call.index <= index) {
        for note in call.notes() {
            if let Note::Layout(handle, layout) = note {
                layouts.insert(handle, layout);
            }
        }
        if call.index < index {
            continue;
        }
        let function = function_of(call.signature);
        let launch = function.filter(|function| matches!(function.family, Family::Launch(_)));
        let kernel = launch.and_then(|function| LaunchShape::of(function, &call).kernel);
        let kernel = kernel.ok_or_else(|| format!("call {index} does not launch a kernel"))?;
        let layout = layouts.get(&kernel);
        let layout = layout.ok_or("the trace does not tell how the kernel takes parameters")?;
        let &(offset, size) = layout.get(parameter).ok_or_else(|| {
            let count = layout.len();
            format!("the kernel has {count} parameters, numbered from 0")
        })?;
        let mut snapshots = call.snapshots();
        let packed = snapshots.find(|snapshot| snapshot.field == field::KERNEL_PARAMETERS);
        let packed = packed.and_then(|packed| packed.bytes.inline());
        let word = packed.and_then(|packed| {
            let word = packed.get(offset as usize..)?.first_chunk()?;
            (size == 8).then(|| u64::from_le_bytes(*word))
        });
        return word.ok_or_else(|| format!("parameter {parameter} is not a pointer"));
    }
    Err(format!("the trace has no call {index}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        for (text, expected) in [
            ("0x7f00", Ok(Target::Address(0x7f00, None))),
            ("0x7f00+16", Ok(Target::Address(0x7f00, Some(16)))),
            ("4096+0x10", Ok(Target::Address(4096, Some(16)))),
            ("memory#3", Ok(Target::Object("memory#3".into(), 0, None))),
            (
                "memory#3+0x40",
                Ok(Target::Object("memory#3".into(), 0x40, None)),
            ),
            (
                "memory#3+64+4",
                Ok(Target::Object("memory#3".into(), 64, Some(4))),
            ),
            ("", Err("`` is not a number")),
            ("0x7f00+4+4", Err("too many parts")),
            ("memory#3+1+2+3", Err("too many parts")),
            ("x", Err("`x` is not a number")),
            ("0x1+-4", Err("`-4` is not a number")),
            ("0x1ffffffffffffffff", Err("is not a number")),
        ] {
            match (Target::parse(text), expected) {
                (Ok(target), Ok(expected)) => assert_eq!(target, expected, "{text}"),
                (Err(error), Err(expected)) => {
                    assert!(error.contains(expected), "{text}: {error}");
                    assert!(error.contains(ALLOWED), "{text}: {error}");
                }
                (other, _) => panic!("{text}: {other:?}"),
            }
        }
        assert_eq!(
            Target::parse_parameter("57:2"),
            Ok(Target::Parameter(57, 2))
        );
        assert!(Target::parse_parameter("57").is_err());
    }
}
