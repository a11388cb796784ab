//! Reads the calls that differ again, and says how they differ.

use std::borrow::Cow;

use cutape_format::{Call, Error, Trace};
use rustc_hash::FxHashMap;

use crate::masks::Masks;
use crate::part::{Facet, Label, Part, Place, Sink, WORD};
use crate::reader::Reader;

/// A value of a call.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) facet: Facet,
    pub(crate) label: Label,
    pub(crate) value: Value,
}

impl Item {
    /// The kernel's name, if it is that.
    pub(crate) fn kernel(&self) -> Option<&str> {
        match &self.value {
            Value::Text(name) if self.facet == Facet::Kernel => Some(name),
            _ => None,
        }
    }
}

/// A value, with what a description needs of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// As text.
    Text(String),
    /// Up to eight bytes of no known type.
    Word(u64),
    /// A place in an object: number, its label, offset, whether it is alive.
    Place(u32, String, u64, bool),
    /// Bytes that the program copied: length, the start of their hash, and the first of them.
    Bytes(u64, Option<[u8; 16]>, Option<Vec<u8>>),
    /// An image: its hash, and its bytes.
    Image(u64, Option<Vec<u8>>),
}

/// A call that differs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Described {
    pub(crate) index: u64,
    pub(crate) function: String,
    /// Offset and size of each parameter of the kernel that it launches, if known.
    pub(crate) layout: Option<Box<[(u32, u32)]>>,
    pub(crate) items: Vec<Item>,
}

/// Takes the wanted calls of a trace apart, in a walk that ends at the last of them. With
/// `wants_late` it also looks for what later calls show of them.
pub(crate) fn describe(
    trace: &Trace,
    (lengths_only, masks): (bool, &Masks),
    mut wanted: FxHashMap<Place, Described>,
    last: u64,
    wants_late: bool,
) -> Result<FxHashMap<Place, Described>, Error> {
    let mut reader = Reader::new(trace, lengths_only);
    let walked = trace.walk().run(|call| {
        if call.index > last && !wants_late {
            return Err(Stop::Complete);
        }
        observe(&mut reader, call, &mut wanted, (wants_late, masks));
        Ok(())
    });
    match walked {
        Ok(_) | Err(Stop::Complete) => Ok(wanted),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// Why a walk ends.
enum Stop {
    /// All wanted calls have been seen.
    Complete,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

fn observe(
    reader: &mut Reader<'_>,
    call: &Call<'_>,
    wanted: &mut FxHashMap<Place, Described>,
    (wants_late, masks): (bool, &Masks),
) {
    let place = reader.place_of(call);
    let mut sink = Items {
        masks,
        is_wanted: wanted.contains_key(&place),
        wants_late,
        items: Vec::new(),
        late: Vec::new(),
    };
    reader.observe(call, &mut sink);
    if let Some(described) = wanted.get_mut(&place) {
        complete(described, reader, call, sink.items);
    }
    for (place, item) in sink.late {
        if let Some(described) = wanted.get_mut(&place) {
            described.items.push(item);
        }
    }
}

/// What a call was given, before a reader has applied it.
pub(crate) fn inputs(reader: &mut Reader<'_>, call: &Call<'_>, masks: &Masks) -> Described {
    let mut sink = Items {
        masks,
        is_wanted: true,
        wants_late: false,
        items: Vec::new(),
        late: Vec::new(),
    };
    reader.observe_inputs(call, &mut sink);
    let mut described = Described::default();
    complete(&mut described, reader, call, sink.items);
    described
}

/// Adds the parts of a call, with the names of objects.
fn complete(described: &mut Described, reader: &Reader<'_>, call: &Call<'_>, items: Vec<Item>) {
    let labels = &reader.numbers.facts;
    let name = |mut item: Item| {
        if let Value::Place(object, label, ..) = &mut item.value {
            let facts = labels.get(*object as usize);
            *label = facts.map_or_else(String::new, |facts| facts.label());
        }
        item
    };
    described.index = call.index;
    described.function = call.signature.name.clone();
    described.layout = reader.layout(call).map(Into::into);
    described.items.extend(items.into_iter().map(name));
}

/// Keeps the parts of a call.
struct Items<'m> {
    masks: &'m Masks,
    is_wanted: bool,
    wants_late: bool,
    items: Vec<Item>,
    late: Vec<(Place, Item)>,
}

impl Sink for Items<'_> {
    fn wants_bytes(&self) -> bool {
        self.is_wanted || self.wants_late
    }

    fn part(&mut self, facet: Facet, label: Label, part: Part<'_>) {
        let kernel = self.items.iter().find_map(Item::kernel);
        if self.is_wanted
            && let Some(part) = self.masks.apply(kernel, &label, part)
        {
            let value = value(part);
            self.items.push(Item {
                facet,
                label,
                value,
            });
        }
    }

    fn late(&mut self, call: Place, label: Label, part: Part<'_>) {
        if self.wants_late {
            let item = Item {
                facet: Facet::Output,
                label,
                value: value(part),
            };
            self.late.push((call, item));
        }
    }
}

fn value(part: Part<'_>) -> Value {
    Value::Text(match part {
        Part::Number(word, WORD) => return Value::Word(word),
        Part::Number(number, c_type) => number_text(number, c_type),
        Part::Bytes(bytes) => format!("{} bytes: {}", bytes.len(), hexadecimal(bytes, 0)),
        Part::Text(text) => String::from_utf8_lossy(&text).into_owned(),
        Part::Payload(payload) => {
            let bytes = payload.bytes.map(Cow::into_owned);
            return Value::Bytes(payload.length, payload.hash, bytes);
        }
        Part::Code(code, payload) => {
            return Value::Image(code, payload.bytes.map(Cow::into_owned));
        }
        Part::Place {
            object,
            offset,
            is_alive,
        } => return Value::Place(object, String::new(), offset, is_alive),
        Part::Unknown => "an address".to_owned(),
        Part::Null => "NULL".to_owned(),
    })
}

/// A number by its C type.
fn number_text(number: u64, c_type: &str) -> String {
    let signed = i64::from(number as u32 as i32);
    if c_type == "in flight" {
        return "did not return".to_owned();
    }
    let bare = c_type.trim_start_matches("const ").trim();
    if let Some(name) = cutape_registry::enumeration(bare).and_then(|known| known.name_of(signed)) {
        return name.to_owned();
    }
    match bare {
        "int" | "CUdevice" => signed.to_string(),
        "float" => f32::from_bits(number as u32).to_string(),
        _ if number > u64::from(u32::MAX) => format!("{number:#x}"),
        _ => number.to_string(),
    }
}

/// Bytes of no known type as a number of that many bytes, and as a floating-point number if that
/// is in the range that programs use.
pub(crate) fn word_text(word: u64, size: u32) -> String {
    let (integer, float) = match size {
        4 => {
            let integer = i64::from(word as u32 as i32);
            (integer.to_string(), f64::from(f32::from_bits(word as u32)))
        }
        _ => (number_text(word, ""), f64::from_bits(word)),
    };
    match (1e-9..1e12).contains(&float.abs()) {
        true => format!("{integer} (or {float})"),
        false => integer,
    }
}

/// Eight bytes from a position on.
pub(crate) fn hexadecimal(bytes: &[u8], at: usize) -> String {
    let shown = bytes.iter().skip(at).take(8);
    let text: Vec<String> = shown.map(|byte| format!("{byte:02x}")).collect();
    text.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_by_type() {
        for (number, c_type, text) in [
            (0, "CUresult", "CUDA_SUCCESS"),
            (2, "CUresult", "CUDA_ERROR_OUT_OF_MEMORY"),
            (u64::MAX, "in flight", "did not return"),
            (0xffff_fffe, "int", "-2"),
            (0x3f80_0000, "float", "1"),
            (77, "size_t", "77"),
            (1 << 40, "size_t", "0x10000000000"),
        ] {
            assert_eq!(number_text(number, c_type), text, "{number} {c_type}");
        }
        for (word, size, text) in [
            (1000, 4, "1000"),
            (0xffff_ffff, 4, "-1"),
            (0x3f80_0000, 4, "1065353216 (or 1)"),
            (0x3ff8_0000_0000_0000, 8, "0x3ff8000000000000 (or 1.5)"),
        ] {
            assert_eq!(word_text(word, size), text, "{word:#x}");
        }
    }
}
