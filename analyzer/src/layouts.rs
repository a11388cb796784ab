//! Where the parameters of kernels lie, as the trace says, and which of them may be pointers.

use rustc_hash::FxHashMap;

use crate::finding::Severity;
use crate::launch::u64_at;

/// How many kernels are remembered.
const MOST: usize = 65536;

/// The parameters of functions and kernels, by handle.
#[derive(Debug, Default)]
pub(crate) struct Layouts(FxHashMap<u64, Vec<(u32, u32)>>);

impl Layouts {
    /// A note of the trace: offset and size of each parameter.
    pub(crate) fn note(&mut self, handle: u64, layout: Vec<(u32, u32)>) {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(handle, layout);
    }

    /// Offset and size of each parameter.
    pub(crate) fn of(&self, handle: u64) -> Option<&[(u32, u32)]> {
        self.0.get(&handle).map(Vec::as_slice)
    }
}

/// The longest struct whose members are looked at. Longer ones have arrays whose ends may hold what
/// was on the stack before.
pub(crate) const LONGEST_STRUCT: u32 = 64;

/// A word of a launch's parameters that may be a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pointer {
    /// The number of the parameter.
    pub(crate) number: usize,
    /// Where it is in a parameter that is a struct.
    pub(crate) member: Option<u32>,
    pub(crate) address: u64,
}

impl Pointer {
    /// How sure a finding is about what the kernel may not follow. A member of a struct may never
    /// have been set.
    pub(crate) fn severity(self) -> Severity {
        match self.member {
            None => Severity::Warning,
            Some(_) => Severity::Advice,
        }
    }

    /// `parameter 2`, or where in it.
    pub(crate) fn what(self) -> String {
        match self.member {
            None => format!("parameter {}", self.number),
            Some(offset) => format!("byte {offset} of parameter {}", self.number),
        }
    }
}

/// The parameters of eight bytes of a launch, each with its position.
pub(crate) fn parameters_of_eight<'a>(
    layout: &'a [(u32, u32)],
    bytes: &'a [u8],
) -> impl Iterator<Item = (usize, u64)> + 'a {
    let parameters = layout.iter().enumerate();
    let words = parameters.filter(|(_, (_, size))| *size == 8);
    words.filter_map(|(number, &(offset, _))| Some((number, u64_at(bytes, offset as usize)?)))
}

/// The words of a launch's parameters that may be pointers: parameters of eight bytes, and aligned
/// words of short structs. Which members of a struct are pointers is not known.
pub(crate) fn pointers<'a>(
    layout: &'a [(u32, u32)],
    bytes: &'a [u8],
) -> impl Iterator<Item = Pointer> + 'a {
    let parameters = layout.iter().enumerate();
    parameters.flat_map(move |(number, &(start, size))| {
        let words = match size {
            8..=LONGEST_STRUCT => size / 8,
            _ => 0,
        };
        let offsets = (0..words).map(|word| 8 * word);
        offsets.filter_map(move |offset| {
            let address = u64_at(bytes, start as usize + offset as usize)?;
            (address != 0).then_some(Pointer {
                number,
                member: (size != 8).then_some(offset),
                address,
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_may_be_pointers() {
        let words: [u64; 5] = [0, 1, 2, 3, 4];
        let bytes: Vec<u8> = words.iter().copied().flat_map(u64::to_le_bytes).collect();
        let mut layouts = Layouts::default();
        layouts.note(
            7,
            vec![(0, 8), (8, 4), (16, 20), (32, 8), (40, 8), (0, 128)],
        );
        let layout = layouts.of(7).unwrap();
        let found: Vec<_> = pointers(layout, &bytes).collect();
        let pointer = |number, member, address| Pointer {
            number,
            member,
            address,
        };
        let expected = [
            pointer(2, Some(0), 2),
            pointer(2, Some(8), 3),
            pointer(3, None, 4),
        ];
        assert_eq!(found, expected);
        assert_eq!(layouts.of(8), None);
    }
}
