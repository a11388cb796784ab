//! Describes a launch as the driver gets it.

use cutape_format::layout::field;
use cutape_registry::layout::{offset_of, size_of};
use cutape_registry::{AttributeType, Family, LaunchOp, Meaning, attributes};

use crate::api::buffer::{set_word, word};
use crate::api::result_name;
use crate::observation::job::ObservedLaunch;
use crate::observation::texture::textures_of;
use crate::overrides::launch::{Source, packed, source_of};
use crate::player::{Job, Player};

const CONFIG_BYTES: usize = size_of("CUlaunchConfig");
const CONFIG_GRID: usize = offset_of("CUlaunchConfig", "gridDimX");
const CONFIG_BLOCK: usize = offset_of("CUlaunchConfig", "blockDimX");
const CONFIG_SHARED: usize = offset_of("CUlaunchConfig", "sharedMemBytes");
const ATTRIBUTE_BYTES: usize = size_of("CUlaunchAttribute");
const ATTRIBUTE_VALUE: usize = offset_of("CUlaunchAttribute", "value.clusterDim.x");
/// CU_LAUNCH_ATTRIBUTE_COOPERATIVE.
const COOPERATIVE: u32 = 2;

/// CUfunction_attribute: maximum dynamic shared size, preferred carveout, cluster width, height and
/// depth, non-portable cluster size, cluster scheduling policy.
const SETTABLE: [u32; 7] = [8, 9, 11, 12, 13, 14, 15];
/// CUlimit: stack size, printf FIFO size, malloc heap size.
const LIMITS: [u32; 3] = [0, 1, 2];

/// CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR.
const CAPABILITY: [u32; 2] = [75, 76];

/// A launch, and what in the driver it belongs to.
pub(super) struct Described {
    pub(super) launch: ObservedLaunch,
    /// The live module of the function.
    pub(super) module: Option<u64>,
}

/// The call that loaded the module or library of a recorded function.
pub(super) fn loaded_by(player: &Player<'_>, function: u64) -> Option<u64> {
    player.handles.owner_of_function(function)
}

/// What a launch names, a function or a kernel, and the function in the current context.
///
/// # Errors
/// Why there is none, in a phrase.
pub(super) fn live_function(player: &Player<'_>, recorded: u64) -> Result<(u64, u64), String> {
    let Some((_, handle)) = player.handles.live_function(recorded) else {
        return Err("the replay does not have its kernel".into());
    };
    if !player.handles.is_live_kernel(handle) {
        return Ok((handle, handle));
    }
    let function = player.api.kernel_function(handle);
    let function =
        function.map_err(|code| format!("cuKernelGetFunction returned {}", result_name(code)))?;
    Ok((handle, function))
}

/// What all launches in the current context have in common. The function attributes have their
/// numbers only.
pub(super) fn of_context(player: &Player<'_>) -> ObservedLaunch {
    let api = &player.api;
    let device = api.current_device().unwrap_or(0);
    let limit = |id| Some((id, api.limit(id).ok()?));
    ObservedLaunch {
        device: api.device_name(device).unwrap_or_default(),
        capability: CAPABILITY.map(|id| api.device_attribute(id, device).unwrap_or(0)),
        function_attributes: SETTABLE.map(|id| (id, 0)).to_vec(),
        limits: LIMITS.into_iter().filter_map(limit).collect(),
        ..ObservedLaunch::default()
    }
}

/// Describes a launch that is about to be issued.
///
/// # Errors
/// Why it cannot be described, in a phrase.
pub(super) fn describe(job: &mut Job<'_, '_>) -> Result<Described, String> {
    let Some(source) = source_of(job) else {
        return Err("it is not a launch of a kernel".into());
    };
    let mut launch = ObservedLaunch {
        loaded: loaded_by(job, source.handle),
        parameters: parameters(job, &source)?,
        ..of_context(job)
    };
    shape(job, &mut launch)?;
    let (handle, function) = live_function(job, source.handle)?;
    let api = &job.api;
    let is_kernel = handle != function;
    launch.kernel = api.name_of(function).unwrap_or_default();
    let ends_with = |layout: &Vec<(u32, u32)>| {
        let ends = layout
            .iter()
            .map(|&(offset, size)| (offset + size) as usize);
        ends.max().unwrap_or(0) == launch.parameters.len()
    };
    launch.layout = api
        .parameters_of(handle, is_kernel)
        .filter(ends_with)
        .or_else(|| Some(job.issuer.kernels.layout(source.handle).to_vec()))
        .filter(ends_with)
        .unwrap_or_default();
    let attribute = |id| Some((id, api.function_attribute(function, id).ok()?));
    launch.function_attributes = SETTABLE.into_iter().filter_map(attribute).collect();
    launch.textures = textures_of(
        (&job.api, &job.ranges, &job.handles),
        &launch.parameters,
        &launch.layout,
    )?;
    let module = api.module_of(function).ok();
    Ok(Described { launch, module })
}

fn parameters(job: &mut Job<'_, '_>, source: &Source) -> Result<Vec<u8>, String> {
    if !source.has_params && source.extra.is_none() {
        return Ok(Vec::new());
    }
    if let Some(packed) = packed(job, source) {
        return Ok(packed.into_owned());
    }
    let takes_none = job.issuer.kernels.layout(source.handle).is_empty();
    match takes_none && source.extra.is_none() {
        true => Ok(Vec::new()),
        false => Err("its parameters are not in the trace".into()),
    }
}

/// Reads grid, block, shared memory and attributes.
fn shape(job: &Job<'_, '_>, launch: &mut ObservedLaunch) -> Result<(), String> {
    let argument = |position: u8| job.call.argument(usize::from(position)) as u32;
    match job.function.family {
        Family::Launch(LaunchOp::Arguments(at)) => {
            let three = |at: u8| [argument(at), argument(at + 1), argument(at + 2)];
            launch.grid = three(at.grid);
            launch.block = three(at.grid + 3);
            launch.shared = argument(at.shared);
            if at.extra.is_none() {
                launch.attributes.push((COOPERATIVE, one()));
            }
        }
        Family::Launch(LaunchOp::Config(at)) => {
            let position = usize::from(at.config);
            let config = job.piece(position, field::POINTEE);
            let Some(config) = config.filter(|config| config.len() >= CONFIG_BYTES) else {
                return Err("its configuration is not in the trace".into());
            };
            let at = |at: usize| word(&config, at) as u32;
            let three = |first: usize| [at(first), at(first + 4), at(first + 8)];
            launch.grid = three(CONFIG_GRID);
            launch.block = three(CONFIG_BLOCK);
            launch.shared = at(CONFIG_SHARED);
            let attributes = job.piece(position, field::ATTRIBUTES).unwrap_or_default();
            launch.attributes = attributes
                .chunks_exact(ATTRIBUTE_BYTES)
                .filter_map(|attribute| attribute_of(job, attribute))
                .collect();
        }
        _ => return Err("it is not a launch of a kernel".into()),
    }
    Ok(())
}

/// The value of an attribute that is 1.
fn one() -> Vec<u8> {
    let mut value = vec![0; ATTRIBUTE_BYTES - ATTRIBUTE_VALUE];
    set_word(&mut value, 0, 1);
    value
}

/// An attribute with live addresses; `None` if it names an event or a graph.
fn attribute_of(player: &Player<'_>, attribute: &[u8]) -> Option<(u32, Vec<u8>)> {
    let id = word(attribute, 0) as u32;
    let mut value = attribute.get(ATTRIBUTE_VALUE..)?.to_vec();
    let known = AttributeType::of(attributes::CUlaunchAttributeID, u64::from(id));
    match known.map(|known| known.meaning) {
        Some(Meaning::Address) => {
            let live = player.ranges.translate(word(&value, 0));
            set_word(&mut value, 0, live);
        }
        Some(Meaning::Handle(_) | Meaning::MayDiffer) => return None,
        _ => {}
    }
    Some((id, value))
}
