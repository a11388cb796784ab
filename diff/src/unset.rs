//! Bytes of struct parameters that differ without an effect: padding, and unused ends of arrays.
//!
//! A trace does not tell which bytes of a struct the program has set. Bytes that differ in launches
//! of a kernel count as unset if no difference that is not of this sort comes before, and bytes that
//! a later call copied back to the host are compared and equal. Parameters of at most eight bytes
//! are numbers and pointers: they always count. Where kernels do not run, equal results say nothing.

use std::collections::BTreeMap;
use std::ops::Range;

use cutape_format::{Error, Trace};
use rustc_hash::FxHashMap;

use crate::counterparts::{Counterparts, Hint, Step, entry};
use crate::describe::{Described, Item, Value};
use crate::differences::{Calls, Kinds, Raw};
use crate::list::describe_all;
use crate::masks::{Masks, ranges};
use crate::noise::{all_differences, differing_bytes};
use crate::part::{Facet, KERNEL_PARAMETERS};
use crate::report::Kind;
use crate::sequence::Sequence;

/// Longer parameters are structs.
const LONGEST_NUMBER: u32 = 8;
/// How many launches are looked at; further ones are no evidence.
const MOST: usize = 4096;

/// Bytes that may be unset.
#[derive(Debug, Default)]
pub(crate) struct Unset {
    pub(crate) masks: Masks,
    /// By kernel: which bytes of its parameters, and in how many launches they differ.
    pub(crate) kernels: BTreeMap<String, (Vec<Range<u32>>, u64)>,
}

/// Compares two traces, of which `known` bytes do not count.
///
/// # Errors
/// If a trace cannot be read.
pub(crate) fn find(
    (a, in_a): (&Trace, &Sequence),
    (b, in_b): (&Trace, &Sequence),
    known: &Masks,
) -> Result<Unset, Error> {
    let mut unset = Unset::default();
    if [a, b]
        .iter()
        .any(|trace| trace.meta_value("driver.kind") == Some("null"))
    {
        return Ok(unset);
    }
    let mut raws = all_differences(in_a, in_b);
    let argument = Kinds::of(&[Kind::Argument]);
    let is_launch = |raw: &Raw| match raw.calls {
        Calls::Both(place, _) => {
            entry(in_a, place).is_some_and(|call| call.facet(Facet::Kernel) != 0)
        }
        _ => false,
    };
    // What other differences cause is no evidence.
    let others = raws
        .iter()
        .filter(|raw| raw.kinds != argument || !is_launch(raw));
    let others = others.filter(|raw| raw.kinds != Kinds::of(&[Kind::Machine]));
    let mut end = others.map(|raw| raw.position.0).min().unwrap_or(u64::MAX);
    raws.retain(|raw| raw.kinds == argument && is_launch(raw));
    if let Some(beyond) = raws.get(MOST) {
        end = end.min(beyond.position.0);
    }
    raws.truncate(MOST);
    raws.retain(|raw| raw.position.0 < end);
    if raws.is_empty() {
        return Ok(unset);
    }
    let [of_a, of_b] = describe_all((a, b), (false, known), &raws)?;
    let described = |raw: &Raw| match raw.calls {
        Calls::Both(in_a, in_b) => Some((of_a.get(&in_a)?, of_b.get(&in_b)?)),
        _ => None,
    };
    let mut found = Vec::new();
    for raw in &raws {
        match described(raw).and_then(|(a, b)| struct_bytes(a, b)) {
            Some(bytes) => found.push((raw.position.0, bytes)),
            None => {
                end = raw.position.0;
                break;
            }
        }
    }
    let shown = last_equal_output(in_a, in_b, end);
    let evident = found.iter().filter(|(call, _)| Some(*call) < shown);
    for (_, bytes) in evident {
        for (&byte, &bits) in &bytes.by_offset {
            unset.masks.add(&bytes.kernel, byte, bits);
        }
    }
    for (_, bytes) in found {
        let known = unset.masks.bits(&bytes.kernel);
        let is_covered = bytes
            .by_offset
            .iter()
            .all(|(byte, bits)| bits & !known.get(byte).copied().unwrap_or(0) == 0);
        if is_covered {
            let ranges = || ranges(&known);
            let kernel = unset
                .kernels
                .entry(bytes.kernel)
                .or_insert_with(|| (ranges(), 0));
            kernel.1 += 1;
        }
    }
    Ok(unset)
}

/// The bytes in which the parameters of two launches differ.
#[derive(Debug, PartialEq, Eq)]
struct Bytes {
    kernel: String,
    /// By offset of eight bytes: a set bit differs.
    by_offset: BTreeMap<u32, u64>,
}

/// `None` if launches differ in anything but bytes of structs.
fn struct_bytes(a: &Described, b: &Described) -> Option<Bytes> {
    let layout = a.layout.as_deref().or(b.layout.as_deref())?;
    let is_struct = |byte: u32| {
        let mut around = layout.iter();
        around.any(|&(start, size)| {
            size > LONGEST_NUMBER && (start..start.saturating_add(size)).contains(&byte)
        })
    };
    let is_parameter = |item: &&Item| item.label.name == KERNEL_PARAMETERS;
    let words = |call: &Described| -> FxHashMap<u32, Value> {
        let items = call.items.iter().filter(is_parameter);
        items
            .filter_map(|item| Some((item.label.byte?, item.value.clone())))
            .collect()
    };
    let (of_a, of_b) = (words(a), words(b));
    let mut by_offset = BTreeMap::new();
    for (byte, one) in &of_a {
        let bits = match (one, of_b.get(byte)?) {
            (one, other) if one == other => 0,
            (Value::Word(one), Value::Word(other)) => differing_bytes(one ^ other),
            // Whether objects correspond, a hash has told.
            (Value::Place(_, _, one, lives), Value::Place(_, _, other, live)) => {
                if (one, lives) != (other, live) {
                    return None;
                }
                0
            }
            _ => u64::MAX,
        };
        let differing = (0..8).filter(|at| bits >> (8 * at) & 0xff != 0);
        if !{ differing }.all(|at| is_struct(byte.saturating_add(at))) {
            return None;
        }
        if bits != 0 {
            by_offset.insert(*byte, bits);
        }
    }
    let kernel = a.items.iter().find_map(Item::kernel)?.to_owned();
    (of_a.len() == of_b.len() && !by_offset.is_empty()).then_some(Bytes { kernel, by_offset })
}

/// The last call of A before `end` that copied the same bytes to the host as its counterpart.
fn last_equal_output(a: &Sequence, b: &Sequence, end: u64) -> Option<u64> {
    let mut last = None;
    Counterparts::find(a, b, Hint::None).steps(a, b, |step| {
        if let Step::Both(of_a, of_b) = step
            && let (Some(in_a), Some(in_b)) = (entry(a, of_a), entry(b, of_b))
            && in_a.index < end
        {
            let late = in_a.late != 0 && in_a.late == in_b.late;
            let output = (in_a.facet(Facet::Output), in_b.facet(Facet::Output));
            let at_once = in_a.copies_back && in_b.copies_back && output.0 == output.1;
            if late || at_once {
                last = last.max(Some(in_a.index));
            }
        }
    });
    last
}

#[cfg(test)]
mod tests {
    use crate::part::Label;

    use super::*;

    fn launch(words: &[Value]) -> Described {
        let parameters = (0..).zip(words).map(|(place, value)| Item {
            facet: Facet::Argument,
            label: Label {
                byte: Some(place * 8),
                ..Label::of(KERNEL_PARAMETERS)
            },
            value: value.clone(),
        });
        let kernel = Item {
            facet: Facet::Kernel,
            label: Label::of("f"),
            value: Value::Text("k".to_owned()),
        };
        Described {
            // A number, a struct of 20 bytes, a number of 4 bytes.
            layout: Some([(0, 8), (8, 20), (28, 4)].into()),
            items: [kernel].into_iter().chain(parameters).collect(),
            ..Described::default()
        }
    }

    #[test]
    fn only_bytes_of_structs_may_be_unset() {
        use Value::Word;
        let host = || Value::Text("an address".to_owned());
        let words = |at: usize, value: Value| {
            let mut words = vec![Word(1), Word(2), Word(3), Word(4)];
            words[at] = value;
            launch(&words)
        };
        let place = |offset| Value::Place(1, String::new(), offset, true);
        let plain = words(0, Word(1));
        for (other, expected) in [
            (words(0, Word(9)), None),
            (words(0, host()), None),
            (words(1, Word(0x100_0002)), Some((8, 0xff00_0000))),
            (words(2, host()), Some((16, u64::MAX))),
            (words(2, place(0)), Some((16, u64::MAX))),
            // The last four bytes of the struct, then the number behind it.
            (words(3, Word(0x9000_0004)), Some((24, 0xff00_0000))),
            (words(3, Word(0x1_0000_0004)), None),
            // Nothing that is known.
            (words(0, Word(1)), None),
            (launch(&[Word(1)]), None),
        ] {
            let found = struct_bytes(&plain, &other);
            let found = found.map(|bytes| bytes.by_offset.into_iter().collect::<Vec<_>>());
            assert_eq!(found, expected.map(|one| vec![one]), "{other:?}");
        }
        // Another place in an object is no padding.
        assert_eq!(struct_bytes(&words(2, place(0)), &words(2, place(8))), None);
        let without = Described {
            layout: None,
            ..plain.clone()
        };
        assert_eq!(
            struct_bytes(&without, &words(1, Word(7))).map(|_| ()),
            Some(())
        );
        let other = Described {
            layout: None,
            ..words(1, Word(7))
        };
        assert_eq!(struct_bytes(&without, &other), None);
    }

    #[test]
    fn bytes_become_ranges() {
        let bits = BTreeMap::from([(0, 0xff00_0000_0000_0000), (8, 0xff), (16, 0xff00)]);
        assert_eq!(ranges(&bits), [7..9, 17..18]);
    }
}
