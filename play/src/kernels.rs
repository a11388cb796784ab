//! How the kernels of a recording take their parameters.

use cutape_format::{Call, Note};
use rustc_hash::FxHashMap;

/// Offset and size of each parameter.
type Layout = Vec<(u32, u32)>;

/// By recorded handle: from which call on. A handle may be given again to another kernel.
#[derive(Debug, Default)]
pub(crate) struct Kernels(FxHashMap<u64, Vec<(u64, Layout)>>);

impl Kernels {
    /// Takes in what a call says about kernels; expects every call, in order.
    pub(crate) fn learn(&mut self, call: &Call<'_>) {
        if !call.has_notes() {
            return;
        }
        for note in call.notes() {
            if let Note::Layout(handle, layout) = note {
                self.0.entry(handle).or_default().push((call.index, layout));
            }
        }
    }

    /// The layout of a kernel as a recorded call has it.
    pub(crate) fn layout(&self, call: u64, kernel: u64) -> Option<&[(u32, u32)]> {
        let known = self.0.get(&kernel)?;
        let before = known.iter().rev().find(|(from, _)| *from <= call);
        Some(&before.or(known.first())?.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_of_the_kernel_that_has_it_then() {
        let (first, second) = (vec![(0, 8)], vec![(0, 8), (8, 4)]);
        let known = vec![(5, first.clone()), (9, second.clone())];
        let kernels = Kernels([(7, known)].into_iter().collect());
        for (call, kernel, expected) in [
            (4, 7, Some(&first)),
            (8, 7, Some(&first)),
            (9, 7, Some(&second)),
            (9, 6, None),
        ] {
            let found = kernels.layout(call, kernel);
            assert_eq!(found, expected.map(|layout| &layout[..]), "{call} {kernel}");
        }
    }
}
