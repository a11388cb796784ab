//! Where the parameters of kernels lie, as the trace says, and which of them may be pointers.

use rustc_hash::FxHashMap;

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

/// The parameters of a launch that may be pointers, with their numbers: those of eight bytes. Which
/// members of a struct are pointers, and which of its bytes were never set, is not known.
pub(crate) fn pointers<'a>(
    layout: &'a [(u32, u32)],
    bytes: &'a [u8],
) -> impl Iterator<Item = (usize, u64)> + 'a {
    let parameters = layout
        .iter()
        .enumerate()
        .filter(|(_, (_, size))| *size == 8);
    parameters.filter_map(|(number, &(offset, _))| {
        let word = bytes.get(offset as usize..)?.first_chunk()?;
        Some((number, u64::from_le_bytes(*word)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parameters_of_eight_bytes_may_be_pointers() {
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from(at % 8 == 0) * at as u8;
        }
        let mut layouts = Layouts::default();
        layouts.note(7, vec![(0, 4), (8, 8), (16, 16), (32, 8), (24, 8)]);
        let layout = layouts.of(7).unwrap();
        let found: Vec<_> = pointers(layout, &bytes).collect();
        assert_eq!(found, [(1, 8), (4, 24)]);
        assert_eq!(layouts.of(8), None);
    }
}
