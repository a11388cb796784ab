//! Kernel launches: parameters re-sent as recorded, with addresses that could not be placed translated.

use std::borrow::Cow;
use std::collections::HashMap;

use cutape_format::{Bytes, Call, layout::field};
use cutape_registry::{Function, Kind};
use rustc_hash::FxBuildHasher;

use crate::buffer::{Buffer, number};
use crate::compare::values::Payload;
use crate::issue::frame::{Frame, Skip};
use crate::issue::player::{Played, Player};
use crate::overrides::module::piece;

/// CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE; zero ends the list.
const BUFFER_POINTER: u64 = 1;
const BUFFER_SIZE: u64 = 2;
/// Most kernel parameters that a stand-in array provides; each can be as long as all parameters together.
const PARAMETERS: usize = 1024;
const PARAMETER_BYTES: usize = 32 << 10;

/// A CUlaunchConfig: its members that are looked at, and its size.
const CONFIG_BYTES: usize = 56;
const CONFIG_STREAM: std::ops::Range<usize> = 32..40;
const CONFIG_ATTRIBUTES: std::ops::Range<usize> = 40..48;
const CONFIG_ATTRIBUTE_COUNT: std::ops::Range<usize> = 48..52;
/// A CUlaunchAttribute: number, padding, value.
const ATTRIBUTE_BYTES: usize = 72;
const ATTRIBUTE_VALUE: std::ops::Range<usize> = 8..16;

// Numbers of CUlaunchAttributeID whose value names something.
const ACCESS_POLICY_WINDOW: u64 = 1;
const PROGRAMMATIC_EVENT: u64 = 7;
const LAUNCH_COMPLETION_EVENT: u64 = 12;
const DEVICE_UPDATABLE_KERNEL_NODE: u64 = 13;

/// The parameters of a launch in memory of the replay's own: arguments `kernelParams` and `extra`.
#[derive(Default)]
pub(crate) struct Parameters {
    pub kernel_params: u64,
    pub extra: u64,
    /// What the two point into, but for `prepared`.
    pub buffers: Vec<Buffer>,
    /// From [`Kernels`], with the recorded handle.
    prepared: Option<(u64, Buffer)>,
}

impl Parameters {
    fn lend(&mut self, buffer: Buffer) -> u64 {
        let address = buffer.address();
        self.buffers.push(buffer);
        address
    }

    /// Gives memory back after the launch: the driver has copied the parameters when it returns.
    fn release(self, player: &mut Player<'_>) {
        let prepared = self.prepared;
        match (&mut player.recorder, prepared) {
            // What is going to be repeated keeps its memory.
            (Some(recorder), prepared) => {
                recorder.keep(
                    self.buffers
                        .into_iter()
                        .chain(prepared.map(|known| known.1)),
                );
            }
            (None, Some((handle, buffer))) => player.kernels.put_back(handle, buffer),
            (None, None) => {}
        }
    }
}

/// How a function takes its parameters, and memory for them.
#[derive(Debug)]
struct Kernel {
    /// The state of the handles in which the object was looked up.
    changes: u64,
    /// The live handle, and the call that made the recorded one: together the object.
    object: (u64, u64),
    /// Where each parameter begins. Empty if neither the driver nor the trace says.
    offsets: Vec<u32>,
    /// The last parameter ends where the packed ones end.
    is_whole: bool,
    /// Bytes of all parameters together.
    length: usize,
    /// An array of pointers, and the parameters behind it. Empty while launches use them.
    spare: Vec<Buffer>,
}

impl Kernel {
    /// Where the parameters are behind the array.
    fn at(&self) -> usize {
        ((self.offsets.len() + 1) * 8).next_multiple_of(64)
    }

    /// New memory for parameters.
    fn memory(&self) -> Buffer {
        // The driver may take more parameters than the trace knows: room for the longest.
        let mut memory = Buffer::zeroed(self.at() + self.length + PARAMETER_BYTES);
        let base = memory.address() + self.at() as u64;
        // One pointer more, so that a driver that looks behind the last finds memory.
        let offsets = self.offsets.iter().copied().chain([0]);
        let words = memory.bytes_mut().chunks_exact_mut(8);
        for (word, offset) in words.zip(offsets) {
            word.copy_from_slice(&(base + u64::from(offset)).to_le_bytes());
        }
        memory
    }
}

/// What is known of functions that were launched, by recorded handle.
#[derive(Debug, Default)]
pub(crate) struct Kernels {
    known: HashMap<u64, Kernel, FxBuildHasher>,
}

impl Kernels {
    fn put_back(&mut self, handle: u64, buffer: Buffer) {
        if let Some(kernel) = self.known.get_mut(&handle) {
            kernel.spare.push(buffer);
        }
    }
}

/// Puts parameters behind an array of pointers; false if it is not known where each begins.
fn point_at(
    player: &mut Player<'_>,
    (handle, takes_extra): (u64, bool),
    packed: &[u8],
    built: &mut Parameters,
) -> bool {
    let changes = player.handles.changes_of_functions();
    let length = packed.len();
    let current = |kernel: &&mut Kernel| (kernel.changes, kernel.length) == (changes, length);
    let kernel = match player.kernels.known.get_mut(&handle).filter(current) {
        Some(kernel) => kernel,
        None => match look_up(player, handle, packed.len()) {
            Some(kernel) => kernel,
            None => return false,
        },
    };
    // A driver may refuse a list of another length than the function takes, and so must this one.
    if kernel.offsets.is_empty() || (takes_extra && !kernel.is_whole) {
        return false;
    }
    let mut memory = kernel.spare.pop().unwrap_or_else(|| kernel.memory());
    let place = memory.bytes_mut().get_mut(kernel.at()..);
    let Some(place) = place.and_then(|place| place.get_mut(..packed.len())) else {
        return false;
    };
    place.copy_from_slice(packed);
    built.kernel_params = memory.address();
    built.prepared = Some((handle, memory));
    true
}

/// Finds out how a function takes its parameters, which are `length` bytes.
#[cold]
fn look_up<'p>(player: &'p mut Player<'_>, handle: u64, length: usize) -> Option<&'p mut Kernel> {
    let object = player.handles.live_object(Kind::Function, handle)?;
    let object = (object.live?, object.made);
    let changes = player.handles.changes_of_functions();
    let known = player.kernels.known.remove(&handle);
    let known = known.filter(|known| known.object == object && known.length == length);
    let mut kernel = known.unwrap_or_else(|| {
        let is_whole = |layout: &Vec<(u32, u32)>| {
            let ends = layout
                .iter()
                .map(|&(offset, size)| u64::from(offset) + u64::from(size));
            ends.max() == Some(length as u64)
        };
        let is_kernel = player.handles.is_live_kernel(object.0);
        // A question about a function may load it, which is not for the time of a capture.
        let asked = match player.captures.any_open() {
            true => None,
            false => player.api.parameters_of(object.0, is_kernel),
        };
        let recorded = || player.layouts.get(&handle).cloned();
        let layout = asked.filter(is_whole).or_else(recorded).unwrap_or_default();
        Kernel {
            changes,
            object,
            is_whole: is_whole(&layout),
            offsets: layout
                .iter()
                .map(|known| known.0.min(length as u32))
                .collect(),
            length,
            spare: Vec::new(),
        }
    });
    kernel.changes = changes;
    Some(player.kernels.known.entry(handle).or_insert(kernel))
}

/// cuLaunchKernel.
pub(crate) fn kernel<'t>(
    player: &mut Player<'t>,
    call: &Call<'t>,
    function: &'static Function,
) -> Played {
    const FUNCTION: usize = 0;
    const STREAM: usize = 8;
    const KERNEL_PARAMS: usize = 9;
    const EXTRA: usize = 10;
    let mut args = [0; EXTRA + 1];
    call.arguments(&mut args);
    let given = Given {
        handle: args[FUNCTION],
        has_params: args[KERNEL_PARAMS] != 0,
        params: KERNEL_PARAMS,
        extra: (args[EXTRA] != 0).then_some(EXTRA),
        takes_extra: true,
    };
    let parameters = rebuild(player, call, given)?;
    args[FUNCTION] = player.live_handle(call, Kind::Function, args[FUNCTION])?;
    args[STREAM] = player.live_handle(call, Kind::Stream, args[STREAM])?;
    args[KERNEL_PARAMS] = parameters.kernel_params;
    args[EXTRA] = parameters.extra;
    let result = player.issue_with(call, function, &args)?;
    parameters.release(player);
    // A launch that succeeded gives nothing back and ends nothing.
    if result != 0 || !call.succeeded() {
        player.conclude(call, function, Frame::default(), result);
    }
    Ok(())
}

/// cuLaunchCooperativeKernel: has no `extra`.
pub(crate) fn cooperative<'t>(
    player: &mut Player<'t>,
    call: &Call<'t>,
    function: &'static Function,
) -> Played {
    let parameters = parameters(player, call, (0, 9, None))?;
    let presets = [(9, parameters.kernel_params)];
    launch(player, call, function, &presets, parameters)
}

/// cuLaunchCooperativeKernelMultiDevice: deprecated since CUDA 11.3; its list of launches is not recorded.
pub(crate) fn multi_device<'t>(_: &mut Player<'t>, _: &Call<'t>, _: &'static Function) -> Played {
    Err(Skip::because("its list of launches is not recorded"))
}

/// cuLaunchKernelEx.
pub(crate) fn kernel_ex<'t>(
    player: &mut Player<'t>,
    call: &Call<'t>,
    function: &'static Function,
) -> Played {
    let mut parameters = parameters(player, call, (1, 2, Some(3)))?;
    let config = config(player, call, 0, &mut parameters)?;
    let presets = [
        (0, config),
        (2, parameters.kernel_params),
        (3, parameters.extra),
    ];
    launch(player, call, function, &presets, parameters)
}

/// cuOccupancyMaxPotentialClusterSize, cuOccupancyMaxActiveClusters.
pub(crate) fn clusters<'t>(
    player: &mut Player<'t>,
    call: &Call<'t>,
    function: &'static Function,
) -> Played {
    const CONFIG: usize = 2;
    let mut built = Parameters::default();
    let config = config(player, call, CONFIG, &mut built)?;
    let mut frame = player.marshal(call, function, &[(CONFIG, config)])?;
    frame.buffers.append(&mut built.buffers);
    player.reissue(call, function, frame)
}

fn launch<'t>(
    player: &mut Player<'t>,
    call: &Call<'t>,
    function: &'static Function,
    presets: &[(usize, u64)],
    mut parameters: Parameters,
) -> Played {
    let mut frame = player.marshal(call, function, presets)?;
    let result = player.issue(call, function, &frame)?;
    // A launch writes nothing: no memory of the frame is read again.
    parameters.buffers.append(&mut frame.buffers);
    parameters.release(player);
    player.conclude(call, function, frame, result);
    Ok(())
}

/// Rebuilds the parameters; `at` says where the function, `kernelParams` and `extra` stand.
fn parameters<'t>(
    player: &mut Player<'t>,
    call: &Call<'t>,
    at: (usize, usize, Option<usize>),
) -> Result<Parameters, Skip> {
    let (function, params, extra) = at;
    let given = Given {
        handle: call.argument(function),
        has_params: call.argument(params) != 0,
        params,
        extra: extra.filter(|&position| call.argument(position) != 0),
        takes_extra: extra.is_some(),
    };
    rebuild(player, call, given)
}

/// The parameters of a kernel node, which stand behind one struct; `given` says whether there are `kernelParams` and `extra`.
pub(crate) fn node_parameters<'t>(
    player: &mut Player<'t>,
    call: &Call<'t>,
    position: usize,
    handle: u64,
    given: (bool, bool),
) -> Result<Parameters, Skip> {
    // Without a layout only the packed form can be given.
    let takes_extra = player.layouts.get(&handle).is_none_or(Vec::is_empty);
    let given = Given {
        handle,
        has_params: given.0,
        params: position,
        extra: given.1.then_some(position),
        takes_extra,
    };
    let mut built = rebuild(player, call, given)?;
    let prepared = built.prepared.take();
    built.buffers.extend(prepared.map(|known| known.1));
    Ok(built)
}

/// What a call gave as parameters of a kernel.
struct Given {
    handle: u64,
    has_params: bool,
    /// With which parameter the packed ones are recorded.
    params: usize,
    /// With which parameter `extra` is recorded, if the call gave it.
    extra: Option<usize>,
    /// Whether the call can be given `extra`.
    takes_extra: bool,
}

fn rebuild<'t>(player: &mut Player<'t>, call: &Call<'t>, given: Given) -> Result<Parameters, Skip> {
    let Given {
        handle,
        has_params,
        params,
        extra,
        takes_extra,
    } = given;
    let mut built = Parameters::default();
    if !has_params && extra.is_none() {
        return Ok(built);
    }
    if has_params && extra.is_some() {
        // Refused by the driver (INVALID_VALUE, observed) without a look at either.
        built.kernel_params = stub(player);
        built.extra = built.lend(Buffer::of_words(&[0, 0]));
        return Ok(built);
    }
    let packed = recorded(player, call, params)
        .or_else(|| extra.and_then(|extra| recorded(player, call, extra)));
    let Some(mut packed) = packed else {
        let unreadable = call
            .snapshot(params, field::KERNEL_PARAMETERS)
            .is_some_and(|capture| capture.bytes == Bytes::Unreadable);
        if call.succeeded() && (unreadable || has_layout(player, handle)) {
            return Err(Skip::because("its parameters are not in the trace"));
        }
        // No parameters, or a launch that was refused before they mattered.
        match extra {
            Some(extra) => {
                let words = piece(player, call, extra, field::EXTRA).unwrap_or_default();
                let nothing = words
                    .chunks_exact(8)
                    .next()
                    .is_none_or(|word| number(word) == 0);
                if !nothing && call.succeeded() {
                    return Err(Skip::because("its parameters are not in the trace"));
                }
                built.extra = built.lend(Buffer::of_words(&[0, 0]));
            }
            None => built.kernel_params = stub(player),
        }
        return Ok(built);
    };
    note_host_memory(player, &packed);
    if player.ranges.any_translated() || player.captures.has_moved_conditions() {
        let layout = player.layouts.get(&handle).cloned().unwrap_or_default();
        let packed = packed.to_mut();
        if let Some((address, words)) = player.ranges.translate_words(packed, &layout) {
            player.name_stale(call, address, words);
        }
        player.captures.translate_conditions(packed, &layout);
    }
    if packed.is_empty() {
        built.kernel_params = stub(player);
    } else if !point_at(player, (handle, takes_extra), &packed, &mut built) {
        match takes_extra {
            true => built.extra = built.lend(as_list(&packed)),
            false => built.kernel_params = as_one(&mut built, &packed),
        }
    }
    Ok(built)
}

fn has_layout(player: &Player<'_>, handle: u64) -> bool {
    let layout = player.layouts.get(&handle);
    layout.is_some_and(|layout| !layout.is_empty())
}

/// The packed parameters that were recorded with a parameter.
fn recorded<'t>(player: &Player<'t>, call: &Call<'t>, position: usize) -> Option<Cow<'t, [u8]>> {
    match player.payload(&call.snapshot(position, field::KERNEL_PARAMETERS)?) {
        Payload::Here(bytes) => Some(bytes),
        Payload::Left(..) | Payload::Unreadable => None,
    }
}

/// The list for `extra`, the length, and the packed parameters, in one piece of memory.
fn as_list(packed: &[u8]) -> Buffer {
    const LENGTH_AT: usize = 48;
    const PARAMETERS_AT: usize = 64;
    let mut buffer = Buffer::zeroed(PARAMETERS_AT + packed.len());
    let address = buffer.address();
    let list = [
        BUFFER_POINTER,
        address + PARAMETERS_AT as u64,
        BUFFER_SIZE,
        address + LENGTH_AT as u64,
        0,
        0,
        packed.len() as u64,
    ];
    let bytes = buffer.bytes_mut();
    for (place, word) in bytes.chunks_exact_mut(8).zip(list) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes[PARAMETERS_AT..].copy_from_slice(packed);
    buffer
}

/// An array with a pointer to the packed parameters, as if they were one.
fn as_one(built: &mut Parameters, packed: &[u8]) -> u64 {
    let mut padded = packed.to_vec();
    padded.resize(packed.len() + PARAMETER_BYTES, 0);
    let base = built.lend(Buffer::of(&padded));
    // One more, so that a driver that looks behind the last finds memory.
    built.lend(Buffer::of_words(&[base, base + packed.len() as u64]))
}

/// How the note about that begins.
pub(crate) const HOST_MEMORY_GIVEN: &str = "parameters of launches hold addresses of memory of";

/// Says which host memory a kernel was given of which the trace does not say what the program itself has written there.
fn note_host_memory(player: &mut Player<'_>, packed: &[u8]) {
    let mut told = Vec::new();
    for word in packed.chunks_exact(8) {
        let Some(range) = player.ranges.find_of_host(number(word)) else {
            continue;
        };
        let made_by = range.made_by;
        if !player.has_host_memory(range) && !told.contains(&made_by) {
            told.push(made_by);
            player.report.note(format!(
                "{HOST_MEMORY_GIVEN} {made_by} that the program can write without a call: what it wrote there is not recorded",
            ));
        }
    }
}

/// An array of pointers to zeros, for launches whose parameters nobody reads; made once.
fn stub(player: &mut Player<'_>) -> u64 {
    if player.stub == 0 {
        let zeros = Buffer::zeroed(PARAMETER_BYTES);
        let array = Buffer::of_words(&[zeros.address(); PARAMETERS]);
        player.stub = array.address();
        player.kept.extend([zeros, array]);
    }
    player.stub
}

/// Rebuilds a launch configuration with live stream and attributes.
fn config<'t>(
    player: &mut Player<'t>,
    call: &Call<'t>,
    position: usize,
    built: &mut Parameters,
) -> Result<u64, Skip> {
    if call.argument(position) == 0 {
        return Ok(0);
    }
    let config =
        piece(player, call, position, field::POINTEE).filter(|config| config.len() >= CONFIG_BYTES);
    let Some(mut config) = config else {
        return Err(Skip::because(
            "its configuration could not be read when it was recorded",
        ));
    };
    let stream = player.live_handle(call, Kind::Stream, number(&config[CONFIG_STREAM]))?;
    config[CONFIG_STREAM].copy_from_slice(&stream.to_le_bytes());
    let count = number(&config[CONFIG_ATTRIBUTE_COUNT]) as usize;
    if number(&config[CONFIG_ATTRIBUTES]) != 0 {
        let attributes = piece(player, call, position, field::ATTRIBUTES);
        let Some(mut attributes) = attributes.or_else(|| (count == 0).then(Vec::new)) else {
            return Err(Skip::because(
                "its attributes could not be read when it was recorded",
            ));
        };
        if attributes.len() < count.saturating_mul(ATTRIBUTE_BYTES) {
            return Err(Skip::because(
                "the trace holds fewer attributes than it counts",
            ));
        }
        for attribute in attributes.chunks_exact_mut(ATTRIBUTE_BYTES) {
            attribute_live(player, call, attribute)?;
        }
        let address = built.lend(Buffer::of(&attributes));
        config[CONFIG_ATTRIBUTES].copy_from_slice(&address.to_le_bytes());
    }
    Ok(built.lend(Buffer::of(&config)))
}

/// The value of one attribute of a kernel node, with live handles and addresses.
pub(crate) fn attribute_value_live<'t>(
    player: &mut Player<'t>,
    call: &Call<'t>,
    attribute: u64,
    value: &[u8],
) -> Result<Vec<u8>, Skip> {
    let mut whole = vec![0; ATTRIBUTE_BYTES];
    whole[..4].copy_from_slice(&(attribute as u32).to_le_bytes());
    let room = &mut whole[ATTRIBUTE_VALUE.start..];
    let length = value.len().min(room.len());
    room[..length].copy_from_slice(&value[..length]);
    attribute_live(player, call, &mut whole)?;
    Ok(whole.split_off(ATTRIBUTE_VALUE.start))
}

/// Replaces handles and addresses in one attribute.
fn attribute_live<'t>(
    player: &mut Player<'t>,
    call: &Call<'t>,
    attribute: &mut [u8],
) -> Result<(), Skip> {
    let value = number(&attribute[ATTRIBUTE_VALUE]);
    let live = match number(&attribute[..4]) {
        ACCESS_POLICY_WINDOW => player.ranges.translate(value),
        PROGRAMMATIC_EVENT | LAUNCH_COMPLETION_EVENT => {
            player.live_handle(call, Kind::Event, value)?
        }
        DEVICE_UPDATABLE_KERNEL_NODE => {
            return Err(Skip::because(
                "device-updatable kernel nodes are not re-issued",
            ));
        }
        _ => return Ok(()),
    };
    attribute[ATTRIBUTE_VALUE].copy_from_slice(&live.to_le_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_where_cuda_h_has_them() {
        let function = cutape_registry::function("cuLaunchKernel").expect("known");
        let names = ["f", "hStream", "kernelParams", "extra"];
        let at = names.map(|name| function.params.iter().position(|param| param.name == name));
        assert_eq!(at, [Some(0), Some(8), Some(9), Some(10)]);
        assert_eq!(function.params.len(), 11);
    }

    fn words(buffer: &Buffer, count: usize) -> Vec<u64> {
        let words = buffer.bytes().chunks_exact(8);
        words.take(count).map(number).collect()
    }

    #[test]
    fn packed_parameters_are_behind_their_list() {
        let buffer = as_list(&[7; 5]);
        let base = buffer.address();
        assert_eq!(words(&buffer, 8), [1, base + 64, 2, base + 48, 0, 0, 5, 0]);
        assert_eq!(buffer.bytes()[64..], [7; 5]);
    }

    #[test]
    fn parameters_are_pointed_at_by_the_layout() {
        let kernel = Kernel {
            changes: 0,
            object: (0, 0),
            offsets: vec![0, 8, 16],
            is_whole: true,
            length: 24,
            spare: Vec::new(),
        };
        let memory = kernel.memory();
        let base = memory.address() + 64;
        assert_eq!(words(&memory, 5), [base, base + 8, base + 16, base, 0]);
        assert!(memory.len() >= kernel.at() + kernel.length);
    }
}
