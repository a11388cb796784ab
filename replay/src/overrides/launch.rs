//! Kernel launches: parameters re-sent as recorded, with addresses that could not be placed translated.

use cutape_format::{Bytes, Call, layout::field};
use cutape_registry::{Function, Kind};

use crate::buffer::{Buffer, number};
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

/// The parameters of a launch in memory of the replayer's own: arguments `kernelParams` and `extra`.
pub(crate) struct Parameters {
    pub kernel_params: u64,
    pub extra: u64,
    pub buffers: Vec<Buffer>,
}

impl Parameters {
    fn lend(&mut self, buffer: Buffer) -> u64 {
        let address = buffer.address();
        self.buffers.push(buffer);
        address
    }
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
    if args[KERNEL_PARAMS] != 0
        && args[EXTRA] == 0
        && let Some(packed) = as_recorded(player, call, KERNEL_PARAMS)
    {
        args[FUNCTION] = player.live_handle(call, Kind::Function, args[FUNCTION])?;
        args[STREAM] = player.live_handle(call, Kind::Stream, args[STREAM])?;
        args[KERNEL_PARAMS] = 0;
        args[EXTRA] = packed.address();
        let result = player.issue_with(call, function, &args)?;
        // The driver has copied the parameters when it returns.
        if player.parameters.len() < PACKED_KEPT {
            player.parameters.push(packed);
        }
        // A launch that succeeded gives nothing back and ends nothing.
        if result != 0 || !call.succeeded() {
            player.conclude(call, function, Frame::default(), result);
        }
        return Ok(());
    }
    let parameters = parameters(player, call, (FUNCTION, KERNEL_PARAMS, Some(EXTRA)))?;
    let presets = [
        (KERNEL_PARAMS, parameters.kernel_params),
        (EXTRA, parameters.extra),
    ];
    launch(player, call, function, &presets, parameters.buffers)
}

/// cuLaunchCooperativeKernel: has no `extra`.
pub(crate) fn cooperative<'t>(
    player: &mut Player<'t>,
    call: &Call<'t>,
    function: &'static Function,
) -> Played {
    let parameters = parameters(player, call, (0, 9, None))?;
    launch(
        player,
        call,
        function,
        &[(9, parameters.kernel_params)],
        parameters.buffers,
    )
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
    if call.argument(2) != 0
        && call.argument(3) == 0
        && let Some(packed) = as_recorded(player, call, 2)
    {
        let mut built = Parameters {
            kernel_params: 0,
            extra: packed.address(),
            buffers: vec![packed],
        };
        let presets = [
            (0, config(player, call, 0, &mut built)?),
            (2, 0),
            (3, built.extra),
        ];
        return launch(player, call, function, &presets, built.buffers);
    }
    let mut parameters = parameters(player, call, (1, 2, Some(3)))?;
    let config = config(player, call, 0, &mut parameters)?;
    let presets = [
        (0, config),
        (2, parameters.kernel_params),
        (3, parameters.extra),
    ];
    launch(player, call, function, &presets, parameters.buffers)
}

/// cuOccupancyMaxPotentialClusterSize, cuOccupancyMaxActiveClusters.
pub(crate) fn clusters<'t>(
    player: &mut Player<'t>,
    call: &Call<'t>,
    function: &'static Function,
) -> Played {
    const CONFIG: usize = 2;
    let mut built = Parameters {
        kernel_params: 0,
        extra: 0,
        buffers: Vec::new(),
    };
    let config = config(player, call, CONFIG, &mut built)?;
    let mut frame = player.marshal(call, function, &[(CONFIG, config)])?;
    frame.buffers.extend(built.buffers);
    player.reissue(call, function, frame)
}

fn launch<'t>(
    player: &mut Player<'t>,
    call: &Call<'t>,
    function: &'static Function,
    presets: &[(usize, u64)],
    buffers: Vec<Buffer>,
) -> Played {
    let mut frame: Frame = player.marshal(call, function, presets)?;
    frame.buffers.extend(buffers);
    let result = player.issue(call, function, &frame)?;
    // The driver has copied the parameters when it returns, and a launch writes nothing: no memory of the frame is read again.
    match &mut player.recorder {
        Some(recorder) => recorder.keep(frame.buffers.drain(..)),
        None => frame.buffers.clear(),
    }
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
    rebuild(player, call, given)
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
    let mut built = Parameters {
        kernel_params: 0,
        extra: 0,
        buffers: Vec::new(),
    };
    if !has_params && extra.is_none() {
        return Ok(built);
    }
    if has_params && extra.is_some() {
        // Refused by the driver (INVALID_VALUE, observed) without a look at either.
        built.kernel_params = stub(player);
        built.extra = built.lend(Buffer::of_words(&[0, 0]));
        return Ok(built);
    }
    let layout = player.layouts.get(&handle).cloned().unwrap_or_default();
    let packed = piece(player, call, params, field::KERNEL_PARAMETERS)
        .or_else(|| extra.and_then(|extra| piece(player, call, extra, field::KERNEL_PARAMETERS)));
    let Some(mut packed) = packed else {
        let unreadable = call
            .snapshot(params, field::KERNEL_PARAMETERS)
            .is_some_and(|capture| capture.bytes == Bytes::Unreadable);
        if call.succeeded() && (unreadable || !layout.is_empty()) {
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
    if let Some((address, words)) = player.ranges.translate_words(&mut packed, &layout) {
        player.name_stale(call, address, words);
    }
    if packed.is_empty() {
        built.kernel_params = stub(player);
        return Ok(built);
    }
    player.captures.translate_conditions(&mut packed, &layout);
    if !takes_extra {
        built.kernel_params = pointers(&mut built, &packed, &layout);
        return Ok(built);
    }
    let mut buffer = Buffer::zeroed(PARAMETERS_AT + packed.len());
    put_packed(&mut buffer, &packed);
    built.extra = built.lend(buffer);
    Ok(built)
}

/// Where the length and the packed parameters stand behind the list for `extra`, in one piece of memory.
const LENGTH_AT: usize = 48;
pub(crate) const PARAMETERS_AT: usize = 64;

/// Writes the list for `extra`, the length, and the packed parameters.
pub(crate) fn put_packed(buffer: &mut Buffer, packed: &[u8]) {
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
    bytes[PARAMETERS_AT..PARAMETERS_AT + packed.len()].copy_from_slice(packed);
}

/// Buffers for packed parameters that are kept: as many as threads may use at once on most machines.
const PACKED_KEPT: usize = 64;

/// The usual case: `kernelParams` that are sent again byte by byte. A buffer with the list for `extra`.
fn as_recorded<'t>(player: &mut Player<'t>, call: &Call<'t>, params: usize) -> Option<Buffer> {
    // What is to be repeated keeps its own memory.
    if player.recorder.is_some() || player.captures.has_moved_conditions() {
        return None;
    }
    let packed = call
        .snapshot(params, field::KERNEL_PARAMETERS)?
        .bytes
        .inline()?;
    // The words that `translate_words` looks at, and all between them.
    if packed.is_empty() || player.ranges.stale_words(packed, 4).is_some() {
        return None;
    }
    note_host_memory(player, packed);
    let needed = PARAMETERS_AT + packed.len();
    let mut buffer = match player.parameters.pop() {
        Some(buffer) if buffer.len() >= needed => buffer,
        _ => Buffer::zeroed(needed.next_power_of_two()),
    };
    put_packed(&mut buffer, packed);
    Some(buffer)
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

/// An array of pointers into packed parameters, as the layout says; one parameter if there is no layout.
fn pointers(built: &mut Parameters, packed: &[u8], layout: &[(u32, u32)]) -> u64 {
    let mut padded = packed.to_vec();
    padded.resize(packed.len() + PARAMETER_BYTES, 0);
    let base = built.lend(Buffer::of(&padded));
    let mut words: Vec<u64> = layout
        .iter()
        .map(|&(offset, _)| base + u64::from(offset).min(packed.len() as u64))
        .collect();
    if words.is_empty() {
        words.push(base);
    }
    // One more, so that a driver that looks behind the last finds memory.
    words.push(base + packed.len() as u64);
    built.lend(Buffer::of_words(&words))
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

    #[test]
    fn packed_parameters_stand_behind_their_list() {
        let mut buffer = Buffer::zeroed(PARAMETERS_AT + 100);
        put_packed(&mut buffer, &[9; 12]);
        put_packed(&mut buffer, &[7; 5]);
        let base = buffer.address();
        let words: Vec<u64> = buffer.bytes()[..PARAMETERS_AT]
            .chunks_exact(8)
            .map(number)
            .collect();
        let list = [1, base + 64, 2, base + 48, 0, 0, 5, 0];
        assert_eq!(words, list);
        assert_eq!(buffer.bytes()[PARAMETERS_AT..][..6], [7, 7, 7, 7, 7, 9]);
    }

    #[test]
    fn parameters_are_pointed_at_by_the_layout() {
        let mut built = Parameters {
            kernel_params: 0,
            extra: 0,
            buffers: Vec::new(),
        };
        pointers(&mut built, &[0; 24], &[(0, 8), (8, 4), (16, 8), (4000, 8)]);
        let base = built.buffers[0].address();
        let words: Vec<u64> = built.buffers[1]
            .bytes()
            .chunks_exact(8)
            .map(number)
            .collect();
        assert_eq!(
            words,
            [base, base + 8, base + 16, base + 24, base + 24],
            "an offset behind the end stays inside"
        );
    }
}
