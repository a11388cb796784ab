//! The one kernel that has an effect here: that of cutape's digests of memory. It is known by its
//! name, and what it would compute is computed on the CPU.

use cutape_driver::digest;

use crate::call::answer::{Answer, INVALID_VALUE};
use crate::call::argument::Out;
use crate::object::function::Launchable;
use crate::object::memory::Segment;
use crate::state::State;
use crate::work::launch::Parameters;

/// Runs the kernel if the launched function is that one.
pub(crate) fn run(state: &State, target: &Launchable, parameters: Parameters) -> Answer {
    if target.spec.name != digest::NAME {
        return Ok(());
    }
    let values = parameters.values(&target.spec)?;
    let word = |value: &[u8]| Some(u64::from_le_bytes(value.try_into().ok()?));
    let words: Option<Vec<u64>> = values.iter().map(|value| word(value)).collect();
    let Some(&[address, length, slot, mark]) = words.as_deref() else {
        return Err(INVALID_VALUE);
    };
    let value = match length {
        0 => 0,
        _ => digest_of(&state.any_range(address, length)?),
    };
    let place = Out::<u64>::at(slot);
    place.check()?;
    place.set_at(0, value);
    place.set_at(1, mark);
    Ok(())
}

fn digest_of(segments: &[Segment]) -> u64 {
    let pieces = segments.iter().map(|segment| {
        // SAFETY: known segments lie in living memory, which the lock held by the caller keeps
        // alive.
        unsafe { std::slice::from_raw_parts(segment.bytes as *const u8, segment.size as usize) }
    });
    match pieces.clone().count() {
        1 => pieces.map(digest::digest).sum(),
        _ => digest::digest(&pieces.collect::<Vec<_>>().concat()),
    }
}
