//! Kernels that do something else each time: `CUTAPE_NULL_NONDETERMINISTIC`.

use std::hash::{BuildHasher, Hasher, RandomState};

use crate::object::function::Spec;
use crate::settings;
use crate::state::State;

/// Runs a kernel: if a setting names it, writes 8 bytes that differ from run to run where its first
/// parameter points, if device memory is there.
pub(crate) fn run(state: &State, spec: &Spec, first: impl FnOnce() -> Option<u64>) {
    const BYTES: u64 = 8;
    if !settings::get().is_nondeterministic(spec.name) {
        return;
    }
    let segments = first().and_then(|address| state.device_range(address, BYTES).ok());
    // A new `RandomState` has other keys than those before.
    let number = RandomState::new().build_hasher().finish() | 1;
    let mut bytes = number.to_le_bytes().into_iter();
    for segment in segments.into_iter().flatten() {
        for (offset, byte) in (0..segment.size).zip(&mut bytes) {
            // SAFETY: known segments lie in living memory, which the lock held by the caller keeps
            // alive.
            unsafe { ((segment.bytes + offset) as *mut u8).write_volatile(byte) };
        }
    }
}

/// The address in a parameter of 8 bytes.
pub(crate) fn address(parameter: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(parameter.try_into().ok()?))
}
