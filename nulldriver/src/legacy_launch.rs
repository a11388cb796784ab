//! Execution Control, deprecated: block shape and parameters as state of the function, then `cuLaunchGrid`.

use crate::answer::{Answer, INVALID_HANDLE, INVALID_VALUE};
use crate::argument::{LEGACY, Stream};
use crate::dispatch::{Entry, bind};
use crate::launch::{Shape, check_shape};
use crate::state::lock;

pub(crate) const ENTRIES: &[Entry] = &[
    ("cuFuncSetBlockShape", bind(set_block_shape)),
    ("cuFuncSetSharedSize", bind(set_shared_size)),
    ("cuParamSetSize", bind(set_size)),
    (
        "cuParamSeti",
        bind(|function: u64, offset: i32, value: u32| {
            set_bytes(function, offset, &value.to_le_bytes())
        }),
    ),
    // The float travels in a vector register, which is not looked at: no code runs.
    (
        "cuParamSetf",
        bind(|function: u64, offset: i32| set_bytes(function, offset, &[0; 4])),
    ),
    ("cuParamSetv", bind(set_vector)),
    (
        "cuLaunch",
        bind(|function: u64| launch(function, 1, 1, Stream(LEGACY))),
    ),
    (
        "cuLaunchGrid",
        bind(|function: u64, x: i32, y: i32| launch(function, x, y, Stream(LEGACY))),
    ),
    ("cuLaunchGridAsync", bind(launch)),
];

/// Most bytes of parameters.
const MOST: usize = 32_764;

/// The launch state of a function.
#[derive(Debug)]
pub(crate) struct Legacy {
    block: [u32; 3],
    shared: u32,
    parameters: Vec<u8>,
}

impl Default for Legacy {
    fn default() -> Self {
        Legacy {
            block: [1; 3],
            shared: 0,
            parameters: Vec::new(),
        }
    }
}

fn change(function: u64, work: impl FnOnce(&mut Legacy) -> Answer) -> Answer {
    let mut state = lock();
    state.current()?;
    work(
        &mut state
            .functions
            .get_mut(&function)
            .ok_or(INVALID_HANDLE)?
            .legacy,
    )
}

fn set_block_shape(function: u64, x: i32, y: i32, z: i32) -> Answer {
    change(function, |legacy| {
        for (size, given) in legacy.block.iter_mut().zip([x, y, z]) {
            *size = u32::try_from(given)
                .ok()
                .filter(|&size| size > 0)
                .ok_or(INVALID_VALUE)?;
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
        if bytes as usize > MOST {
            return Err(INVALID_VALUE);
        }
        legacy.parameters.resize(bytes as usize, 0);
        Ok(())
    })
}

fn set_bytes(function: u64, offset: i32, bytes: &[u8]) -> Answer {
    change(function, |legacy| {
        let start = usize::try_from(offset).map_err(|_| INVALID_VALUE)?;
        let end = start
            .checked_add(bytes.len())
            .filter(|&end| end <= MOST)
            .ok_or(INVALID_VALUE)?;
        if legacy.parameters.len() < end {
            legacy.parameters.resize(end, 0);
        }
        legacy.parameters[start..end].copy_from_slice(bytes);
        Ok(())
    })
}

fn set_vector(function: u64, offset: i32, data: u64, size: u32) -> Answer {
    if data == 0 || size as usize > MOST {
        return Err(INVALID_VALUE);
    }
    // SAFETY: by the C prototype the program gives `size` readable bytes.
    let bytes = unsafe { std::slice::from_raw_parts(data as *const u8, size as usize) };
    set_bytes(function, offset, bytes)
}

fn launch(function: u64, x: i32, y: i32, stream: Stream) -> Answer {
    let mut state = lock();
    let target = state.prepare(function, stream)?;
    let legacy = &state.function(function)?.legacy;
    let size = |given: i32| u32::try_from(given).map_err(|_| INVALID_VALUE);
    let shape = Shape {
        grid: [size(x)?, size(y)?, 1],
        block: legacy.block,
        shared: legacy.shared,
    };
    check_shape(&target, &shape)?;
    state.mark_loaded(function);
    Ok(())
}
