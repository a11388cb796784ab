//! Execution Control, deprecated: block shape and parameters as state of the function, then
//! `cuLaunchGrid`.

use cutape_registry::STREAM_LEGACY;

use crate::call::answer::{Answer, INVALID_VALUE, invalid_if};
use crate::call::argument::{Stream, positive};
use crate::call::entry::entries;
use crate::object::function::LegacyLaunch;
use crate::state::{Action, Locked, lock};
use crate::work::launch::{Shape, find_target};

entries! {
    cuFuncSetBlockShape: set_block_shape;
    cuFuncSetSharedSize: set_shared_size;
    cuParamSetSize: set_size;
    cuParamSeti: |function: u64, offset: i32, value: u32|
        set_bytes(function, offset, &value.to_le_bytes());
    // A float is passed in a vector register, which is not read: no code runs.
    cuParamSetf: |function: u64, offset: i32| set_bytes(function, offset, &[0; 4]);
    cuParamSetv: set_vector;
    cuLaunch: |state: Locked, function: u64| launch(state, function, 1, 1, Stream(STREAM_LEGACY));
    cuLaunchGrid: |state: Locked, function: u64, x: i32, y: i32|
        launch(state, function, x, y, Stream(STREAM_LEGACY));
    cuLaunchGridAsync: launch;
}

/// Most bytes of parameters.
const MAX_SIZE: usize = 32_764;

fn change(function: u64, work: impl FnOnce(&mut LegacyLaunch) -> Answer) -> Answer {
    let mut state = lock();
    state.current()?;
    work(&mut state.functions.find_mut(function)?.legacy)
}

fn set_block_shape(function: u64, x: i32, y: i32, z: i32) -> Answer {
    change(function, |legacy| {
        for (size, given) in legacy.block.iter_mut().zip([x, y, z]) {
            *size = positive(given)?;
        }
        Ok(())
    })
}

fn set_shared_size(function: u64, bytes: u32) -> Answer {
    change(function, |legacy| {
        legacy.shared = bytes;
        Ok(())
    })
}

fn set_size(function: u64, bytes: u32) -> Answer {
    change(function, |legacy| {
        invalid_if(bytes as usize > MAX_SIZE)?;
        legacy.parameters.resize(bytes as usize, 0);
        Ok(())
    })
}

fn set_bytes(function: u64, offset: i32, bytes: &[u8]) -> Answer {
    change(function, |legacy| {
        let start = usize::try_from(offset).map_err(|_| INVALID_VALUE)?;
        let end = start
            .checked_add(bytes.len())
            .filter(|&end| end <= MAX_SIZE)
            .ok_or(INVALID_VALUE)?;
        if legacy.parameters.len() < end {
            legacy.parameters.resize(end, 0);
        }
        legacy.parameters[start..end].copy_from_slice(bytes);
        Ok(())
    })
}

fn set_vector(function: u64, offset: i32, data: u64, size: u32) -> Answer {
    invalid_if(data == 0 || size as usize > MAX_SIZE)?;
    // SAFETY: by the C prototype the program gives `size` readable bytes.
    let bytes = unsafe { std::slice::from_raw_parts(data as *const u8, size as usize) };
    set_bytes(function, offset, bytes)
}

fn launch(mut state: Locked, function: u64, x: i32, y: i32, stream: Stream) -> Answer {
    let target = find_target(&state, function, stream)?;
    let legacy = &state.functions.find(function)?.legacy;
    let size = |given: i32| u32::try_from(given).map_err(|_| INVALID_VALUE);
    let shape = Shape {
        grid: [size(x)?, size(y)?, 1],
        block: legacy.block,
        shared: legacy.shared,
    };
    shape.check(&target)?;
    state.mark_loaded(function);
    state.enqueue(stream, Action::Nothing).map(|_| ())
}
