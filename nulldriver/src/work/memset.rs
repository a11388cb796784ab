//! Memsets of rows: checked as a whole, then done.

use cutape_driver::types::CUDA_MEMSET_NODE_PARAMS_v2;

use crate::call::answer::{Answer, INVALID_VALUE, invalid_if};
use crate::object::memory::{Segment, fill_bytes};
use crate::player;
use crate::state::{Action, State};

/// The rows of a memset, checked.
pub(crate) fn rows(
    state: &State,
    memset: &CUDA_MEMSET_NODE_PARAMS_v2,
) -> Answer<Vec<Vec<Segment>>> {
    let unit = u64::from(memset.elementSize);
    let (width, height) = (memset.width as u64, memset.height as u64);
    let pitch = memset.pitch as u64;
    if width == 0 || height == 0 {
        return Ok(Vec::new());
    }
    let row = width.checked_mul(unit).ok_or(INVALID_VALUE)?;
    let is_pitch_wrong = !pitch.is_multiple_of(unit) || pitch < row;
    invalid_if(height > 1 && is_pitch_wrong)?;
    let start = |index: u64| memset.dst.checked_add(index.checked_mul(pitch)?);
    (0..height)
        .map(|index| state.device_range(start(index).ok_or(INVALID_VALUE)?, row))
        .collect()
}

/// The rows of a memset node, checked.
pub(crate) fn node_rows(
    state: &State,
    memset: &CUDA_MEMSET_NODE_PARAMS_v2,
) -> Answer<Vec<Vec<Segment>>> {
    let unit = memset.elementSize;
    let is_aligned = matches!(unit, 1 | 2 | 4) && memset.dst.is_multiple_of(u64::from(unit));
    invalid_if(!is_aligned)?;
    rows(state, memset)
}

/// Fills rows with the low bytes of the memset's value.
pub(crate) fn action(rows: Vec<Vec<Segment>>, memset: &CUDA_MEMSET_NODE_PARAMS_v2) -> Action {
    let (unit, size) = (memset.value.to_le_bytes(), memset.elementSize as usize);
    let call = player::call();
    Action::Run(Box::new(move |_| {
        for segments in &rows {
            fill_bytes(segments, &unit[..size]);
            player::wrote(segments, call);
        }
    }))
}
