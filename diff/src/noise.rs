//! What differs between recordings of one program: differences of that kind say nothing.

use cutape_format::{Error, Trace};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::counterparts::{Counterparts, Hint, entry};
use crate::describe::{Described, Item, Value};
use crate::differences::{Calls, Kinds, Raw, differences};
use crate::list::describe_all;
use crate::masks::Masks;
use crate::part::{Facet, KERNEL_PARAMETERS, Place};
use crate::report::Kind;
use crate::sequence::{Entry, Sequence};

/// How many launches of a kernel tell which of its parameter bytes are noise.
const SAMPLES: usize = 16;

/// Learns from a launch and its counterpart which bytes of its kernel's parameters are noise.
fn learn(masks: &mut Masks, a: &Described, b: &Described) {
    let Some(kernel) = a.items.iter().find_map(Item::kernel) else {
        return;
    };
    let words = |call: &Described| -> FxHashMap<u32, Value> {
        let items = call.items.iter();
        let words = items.filter(|item| item.label.name == KERNEL_PARAMETERS);
        words
            .filter_map(|item| Some((item.label.byte?, item.value.clone())))
            .collect()
    };
    let of_b = words(b);
    for (byte, in_a) in words(a) {
        let bits = match (&in_a, of_b.get(&byte)) {
            (Value::Word(one), Some(Value::Word(other))) => differing_bytes(one ^ other),
            // Another object or another place in it, which is no padding.
            (Value::Place(..), Some(Value::Place(..))) | (_, None) => 0,
            (one, Some(other)) if one != other => u64::MAX,
            _ => 0,
        };
        if bits != 0 {
            masks.add(kernel, byte, bits);
        }
    }
}

/// All bits of the bytes that have one.
pub(crate) fn differing_bytes(bits: u64) -> u64 {
    let bytes = bits.to_le_bytes();
    u64::from_le_bytes(bytes.map(|byte| if byte == 0 { 0 } else { 0xff }))
}

/// What differs between A and further recordings of the same program.
#[derive(Debug, Default)]
pub(crate) struct Noise {
    /// By call of A: in what it differs.
    calls: FxHashMap<Place, Kinds>,
    /// What calls ask for that only one of the recordings makes.
    requests: FxHashSet<u64>,
    /// Objects of A at which threads are reordered.
    objects: FxHashSet<u32>,
}

impl Noise {
    /// Adds a difference between A and another recording of its program.
    fn add(&mut self, raw: &Raw, a: &Sequence, other: &Sequence) {
        match raw.calls {
            Calls::Both(place, _) => {
                let kinds = self.calls.entry(place).or_default();
                *kinds = kinds.and(raw.kinds);
            }
            Calls::Order(order) => _ = self.objects.insert(order.object),
            _ => self.requests.extend(request(raw, a, other)),
        }
    }

    /// The kinds of a difference between A and B that are noise.
    pub(crate) fn of(&self, raw: &Raw, a: &Sequence, b: &Sequence) -> Kinds {
        let is_noise = match raw.calls {
            Calls::Both(place, _) => return self.calls.get(&place).copied().unwrap_or_default(),
            Calls::Order(order) => self.objects.contains(&order.object),
            _ => request(raw, a, b).is_some_and(|request| self.requests.contains(&request)),
        };
        match is_noise {
            true => Kinds::of(&Kind::ALL),
            false => Kinds::default(),
        }
    }
}

/// What a call asks for that only one of two traces makes; of a thread its first call.
fn request(raw: &Raw, a: &Sequence, b: &Sequence) -> Option<u64> {
    let of = |side: usize| if side == 0 { a } else { b };
    let found = match raw.calls {
        Calls::Only(side, place) | Calls::Leak(side, place, _) => entry(of(side), place),
        Calls::Thread(side, thread) => {
            let calls = of(side).threads.get(thread as usize)?;
            calls.entry(*calls.compared.first()?)
        }
        Calls::Both(..) | Calls::Order(_) => None,
    };
    found.map(Entry::request)
}

/// Every difference between two recordings, one by one.
pub(crate) fn all_differences(a: &Sequence, b: &Sequence) -> Vec<Raw> {
    let found = [Hint::None, Hint::Uses].map(|hint| {
        let mut found = Vec::new();
        let mut counterparts = Counterparts::find(a, b, hint);
        differences(a, b, &mut counterparts, &mut |raw| {
            found.push(*raw);
            Kinds::of(&Kind::ALL)
        });
        found
    });
    // The shorter explanation is the better one.
    let [plain, by_uses] = found;
    if by_uses.len() < plain.len() {
        by_uses
    } else {
        plain
    }
}

/// What of kernel parameters differs between A and further recordings of its program.
///
/// # Errors
/// If a trace cannot be read.
pub(crate) fn masks(
    a: (&Trace, &Sequence),
    others: &[(&Trace, &Sequence)],
    lengths_only: bool,
) -> Result<Masks, Error> {
    let mut masks = Masks::default();
    for other in others {
        let mut samples: FxHashMap<u64, usize> = FxHashMap::default();
        let mut raws = all_differences(a.1, other.1);
        raws.retain(|raw| {
            let Calls::Both(place, _) = raw.calls else {
                return false;
            };
            let Some(call) = entry(a.1, place).filter(|call| call.facet(Facet::Kernel) != 0) else {
                return false;
            };
            let count = samples.entry(call.name()).or_default();
            *count += 1;
            raw.kinds.contains(Kind::Argument) && *count <= SAMPLES
        });
        let [of_a, of_b] = describe_all((a.0, other.0), (lengths_only, &masks), &raws)?;
        for raw in &raws {
            if let Calls::Both(in_a, in_b) = raw.calls
                && let (Some(in_a), Some(in_b)) = (of_a.get(&in_a), of_b.get(&in_b))
            {
                learn(&mut masks, in_a, in_b);
            }
        }
    }
    Ok(masks)
}

/// What differs between A and further recordings of its program.
pub(crate) fn noise(a: &Sequence, others: &[Sequence]) -> Noise {
    let mut noise = Noise::default();
    for other in others {
        for raw in all_differences(a, other) {
            noise.add(&raw, a, other);
        }
    }
    noise
}

#[cfg(test)]
mod tests {
    use crate::part::{Label, Part, WORD};

    use super::*;

    #[test]
    fn bytes_that_differ_are_masked_whole() {
        for (bits, mask) in [
            (0, 0),
            (1, 0xff),
            (0x0100_0000_0080_0000, 0xff00_0000_00ff_0000),
            (u64::MAX, u64::MAX),
        ] {
            assert_eq!(differing_bytes(bits), mask, "{bits:#x}");
        }
    }

    #[test]
    fn only_padding_of_the_kernel_is_masked() {
        let label = |byte| Label {
            byte: Some(byte),
            ..Label::of(KERNEL_PARAMETERS)
        };
        let item = |facet, label, value| Item {
            facet,
            label,
            value,
        };
        let call = |word, text: &str| Described {
            items: vec![
                item(Facet::Kernel, Label::of("f"), Value::Text("k".to_owned())),
                item(Facet::Argument, label(8), Value::Word(word)),
                item(Facet::Argument, label(16), Value::Text(text.to_owned())),
                item(Facet::Argument, label(24), Value::Word(7)),
            ],
            ..Described::default()
        };
        let mut masks = Masks::default();
        assert!(masks.is_empty());
        learn(&mut masks, &call(0x1_0000_0005, "x"), &call(0x5, "x"));
        let other = call(0x5, "an address");
        learn(&mut masks, &call(0x200_0000_0005, "x"), &other);
        let word = |kernel, byte, word| {
            let part = masks.apply(kernel, &label(byte), Part::Number(word, WORD));
            part.map(|part| match part {
                Part::Number(word, _) => word,
                other => panic!("{other:?}"),
            })
        };
        let masked = word(Some("k"), 8, 0xffff_ffff_1234_5678);
        assert_eq!(masked, Some(0xffff_0000_1234_5678));
        assert_eq!(word(Some("k"), 16, 9), None);
        assert_eq!(word(Some("k"), 24, 9), Some(9));
        assert_eq!(word(Some("other"), 8, u64::MAX), Some(u64::MAX));
        assert_eq!(word(None, 16, 9), Some(9));
    }
}
