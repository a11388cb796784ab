//! How the kernels of a recording take their parameters.

use cutape_format::{Call, Note};
use rustc_hash::FxHashMap;

/// Offset and size of each parameter, by recorded handle.
#[derive(Debug, Default)]
pub(crate) struct Kernels(FxHashMap<u64, Vec<(u32, u32)>>);

impl Kernels {
    /// Takes in what a call says about kernels. A later one with the handle of an earlier one
    /// replaces it.
    pub(crate) fn learn(&mut self, call: &Call<'_>) {
        if !call.has_notes() {
            return;
        }
        for note in call.notes() {
            if let Note::Layout(handle, layout) = note {
                self.0.insert(handle, layout);
            }
        }
    }

    pub(crate) fn layout(&self, kernel: u64) -> Option<&[(u32, u32)]> {
        Some(self.0.get(&kernel)?)
    }
}
