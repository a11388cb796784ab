//! Lengths of the registry in the numbers of a recorded call.

use cutape_format::{Call, layout::field};
use cutape_registry::{Arguments, Function, Length};

use crate::api::buffer::number;

/// A call, for the registry's lengths.
struct Recorded<'c, 't>(&'c Call<'t>);

impl Arguments for Recorded<'_, '_> {
    fn word(&self, position: u8) -> u64 {
        self.0.argument(usize::from(position))
    }

    fn pointee(&self, position: u8, bytes: usize) -> Option<u64> {
        let position = usize::from(position);
        let given = self.0.snapshot(position, field::POINTEE);
        let given = given.and_then(|snapshot| snapshot.bytes.inline());
        let read = |memory: &[u8]| number(memory.get(..bytes).unwrap_or(memory));
        given.map(read).or_else(|| self.0.out(position))
    }
}

/// Bytes from the first to the last, or elements for arrays of handles; 0 if the call does not say.
pub(crate) fn length_of(call: &Call, function: &Function, length: Length) -> u64 {
    let extent = length.evaluate(function, &Recorded(call));
    extent.map_or(0, |extent| extent.span())
}

/// How long the memory is that a call makes or finds; 0 if the call does not say.
pub(crate) fn made_length(call: &Call, function: &Function) -> u64 {
    function.made_bytes(&Recorded(call)).unwrap_or(0)
}
