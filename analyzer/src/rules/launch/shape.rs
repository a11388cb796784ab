//! The shape of a launch: grid, block, shared memory, against the device and the function.

use cutape_registry::rules;

use super::Refused;
use crate::launch::shape;
use crate::rules::function::{MAX_DYNAMIC_SHARED, MAX_THREADS, STATIC_SHARED};
use crate::rules::{Draft, at, code};

/// The six sides of a launch, and the device attributes that limit them.
const SIDES: [(&str, &str); 6] = [
    ("gridDimX", "MAX_GRID_DIM_X"),
    ("gridDimY", "MAX_GRID_DIM_Y"),
    ("gridDimZ", "MAX_GRID_DIM_Z"),
    ("blockDimX", "MAX_BLOCK_DIM_X"),
    ("blockDimY", "MAX_BLOCK_DIM_Y"),
    ("blockDimZ", "MAX_BLOCK_DIM_Z"),
];

/// A side that is zero or too long, or too many threads for the device.
pub(super) fn dimensions(refused: &Refused<'_, '_>) -> Option<Draft> {
    let launch = refused.launch;
    let title = "launch with a dimension out of range";
    let rule = rules::LAUNCH_CONFIG_DIMENSION_OUT_OF_RANGE;
    let sizes = launch.grid.into_iter().chain(launch.block);
    for ((side, attribute), size) in SIDES.into_iter().zip(sizes) {
        if size == 0 {
            let hint = match side.starts_with("grid") {
                true => " A grid that is computed as items / block is empty if there are no items.",
                false => "",
            };
            let what = format!(
                "launches {} with {side} = 0; every dimension must be at least 1.{hint} Nothing \
                 was launched",
                refused.label()
            );
            return Some(refused.draft(rule, title, what));
        }
        let Some((limit, source)) = refused.limit(attribute) else {
            continue;
        };
        if u64::from(size) > limit {
            let what = format!(
                "launches {} with {side} = {size}, and the limit is {limit} ({source})",
                refused.label()
            );
            return Some(refused.draft(rule, title, what));
        }
    }
    let (limit, source) = refused.limit("MAX_THREADS_PER_BLOCK")?;
    if launch.threads() <= limit {
        return None;
    }
    let what = format!(
        "launches {} with blocks of {} = {} threads, and the limit is {limit} ({source})",
        refused.label(),
        shape(launch.block),
        launch.threads(),
    );
    Some(refused.draft(rule, title, what))
}

/// A block of another shape than the one that the kernel was compiled for.
pub(super) fn required_block(refused: &Refused<'_, '_>) -> Option<Draft> {
    let block = refused.launch.block;
    let required = refused.image_fact(|function| function.required_threads)?;
    if required == block {
        return None;
    }
    let what = format!(
        "launches {} with blocks of {}, but its image requires blocks of {} (.reqntid, from \
         __block_size__ or a tuned build). The launch probably belongs to another build of the kernel",
        refused.label(),
        shape(block),
        shape(required),
    );
    let title = "block differs from the one that the image requires";
    Some(refused.draft(rules::LAUNCH_CONFIG_REQNTID_MISMATCH, title, what))
}

/// More threads in a block than the function can have.
pub(super) fn threads(refused: &Refused<'_, '_>) -> Option<Draft> {
    let threads = refused.launch.threads();
    let declared = refused.image_fact(|function| function.max_threads);
    let declared = declared.map(|limit| {
        let source = "the launch bounds in its image (.maxntid)".to_owned();
        (u64::from(limit), source)
    });
    let queried = || {
        let value = refused.queried_attribute(MAX_THREADS)?;
        let source = "CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, which the program asked for";
        Some((u64::try_from(value).ok()?, source.to_owned()))
    };
    let by_registers = || {
        let out_of_resources = refused.check.call.result() == Some(code::LAUNCH_OUT_OF_RESOURCES);
        let registers = refused.image_fact(|function| function.registers);
        let registers = u64::from(registers.filter(|_| out_of_resources)?);
        let (file, source) = refused.limit("MAX_REGISTERS_PER_BLOCK")?;
        let limit = file.checked_div(registers)?;
        let source = format!("{registers} registers a thread, and {source} is {file}");
        Some((limit, source))
    };
    let exceeded = |&(limit, _): &(u64, String)| threads > limit;
    let (limit, source) = declared
        .filter(exceeded)
        .or_else(|| queried().filter(exceeded))
        .or_else(|| by_registers().filter(exceeded))?;
    let what = format!(
        "launches {} with blocks of {} = {threads} threads, but this function can have at most \
         {limit} ({source})",
        refused.label(),
        shape(refused.launch.block),
    );
    let title = "block larger than the function allows";
    Some(refused.draft(rules::LAUNCH_CONFIG_BLOCK_OVER_FUNCTION_LIMIT, title, what))
}

/// More dynamic shared memory than the function was set up for.
pub(super) fn shared_memory(refused: &Refused<'_, '_>) -> Option<Draft> {
    let shared = u64::from(refused.launch.shared);
    let (limit, source) = match refused.set_attribute(MAX_DYNAMIC_SHARED) {
        Some((value, site)) => {
            let source = format!("{} set it", at(site));
            (u64::try_from(value).ok()?, source)
        }
        None => {
            let (basic, source) = refused.limit("MAX_SHARED_MEMORY_PER_BLOCK")?;
            let queried = refused.queried_attribute(STATIC_SHARED);
            let queried = queried.and_then(|bytes| u64::try_from(bytes).ok());
            let fixed = || refused.image_fact(|function| Some(function.shared_bytes));
            let fixed = queried.or_else(fixed).unwrap_or(0);
            let opt_in = refused.limit("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN");
            let opt_in = opt_in.map_or(String::new(), |(bytes, _)| {
                format!(
                    "; cuFuncSetAttribute with CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES can \
                     raise it, up to {} bytes here",
                    bytes.saturating_sub(fixed)
                )
            });
            let less = match fixed {
                0 => String::new(),
                fixed => format!(" is {basic}, less {fixed} bytes of static shared memory"),
            };
            let source = format!("{source}{less}{opt_in}");
            (basic.saturating_sub(fixed), source)
        }
    };
    if shared <= limit {
        return None;
    }
    let what = format!(
        "launches {} with {shared} bytes of dynamic shared memory, and the limit of this function \
         is {limit} bytes ({source})",
        refused.label(),
    );
    let title = "more dynamic shared memory than the function may have";
    Some(refused.draft(rules::LAUNCH_CONFIG_DYNAMIC_SMEM_LIMIT, title, what))
}
