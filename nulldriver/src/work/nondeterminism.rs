//! Kernels that do something else each time: `CUTAPE_NULL_NONDETERMINISTIC`.

use std::ffi::CStr;
use std::hash::{BuildHasher, Hasher, RandomState};

use crate::object::memory::{Segment, move_bytes};
use crate::settings;
use crate::state::{Action, State};

/// If a setting names the kernel: writes 8 bytes that differ from run to run where its first
/// parameter points, if device memory is there.
pub(crate) fn action(state: &State, kernel: &CStr, values: &[Box<[u8]>]) -> Option<Action> {
    const BYTES: u64 = 8;
    if !settings::get().is_nondeterministic(kernel) {
        return None;
    }
    let address = u64::from_le_bytes((**values.first()?).try_into().ok()?);
    let target = state.device_range(address, BYTES).ok()?;
    // A new `RandomState` has other keys than those before.
    let number = RandomState::new().build_hasher().finish() | 1;
    Some(Action::Run(Box::new(move |_| {
        move_bytes(&target, &[Segment::of(&number.to_le_bytes())]);
    })))
}
