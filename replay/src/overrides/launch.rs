//! Kernel launches: parameters re-sent as recorded, with addresses that could not be placed
//! translated.

use std::borrow::Cow;

use cutape_format::{Bytes, layout::field};
use cutape_registry::Kind;
use cutape_registry::layout::{offset_of, size_of};

use crate::buffer::{Buffer, copy_common, first, lend, number, set_word, word};
use crate::compare::payload::Payload;
use crate::issue::frame::Frame;
use crate::issue::kernels::{Memory, PARAMETER_BYTES, Wish};
use crate::issue::player::{Job, Played, Player};
use crate::issue::skip::{Skip, skip};
use crate::overrides::module::piece;

/// CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE; zero ends the list.
const BUFFER_POINTER: u64 = 1;
const BUFFER_SIZE: u64 = 2;
const CONFIG_BYTES: usize = size_of("CUlaunchConfig");
const CONFIG_STREAM: usize = offset_of("CUlaunchConfig", "hStream");
const CONFIG_ATTRIBUTES: usize = offset_of("CUlaunchConfig", "attrs");
const CONFIG_ATTRIBUTE_COUNT: usize = offset_of("CUlaunchConfig", "numAttrs");
const ATTRIBUTE_BYTES: usize = size_of("CUlaunchAttribute");
const ATTRIBUTE_VALUE: usize = offset_of("CUlaunchAttribute", "value.clusterDim.x");

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
    /// What the two point into, unless it is memory of the kernel's.
    pub buffers: Vec<Buffer>,
    /// The live function, and whose memory it is.
    given: Option<(u64, Option<usize>)>,
}

impl Parameters {
    /// After the launch: the driver has copied the parameters when it returns.
    #[inline]
    fn release(self, player: &mut Player<'_>) {
        if let Some((_, Some(number))) = self.given {
            player.issuer.kernels.take_back(number);
        }
        // What is going to be repeated keeps its memory.
        if let Some(recorder) = &mut player.issuer.recorder {
            recorder.keep(self.buffers);
        }
    }
}

/// cuLaunchKernel.
pub(crate) fn kernel(job: &mut Job<'_, '_>) -> Played {
    const FUNCTION: usize = 0;
    const STREAM: usize = 8;
    const KERNEL_PARAMS: usize = 9;
    const EXTRA: usize = 10;
    let mut args: [u64; EXTRA + 1] = job.current.decoded.arguments();
    let given = Given {
        handle: args[FUNCTION],
        has_params: args[KERNEL_PARAMS] != 0,
        params: KERNEL_PARAMS,
        extra: (args[EXTRA] != 0).then_some(EXTRA),
        takes_extra: true,
        keeps_memory: false,
    };
    let mut parameters = Parameters::default();
    rebuild(job, given, &mut parameters)?;
    args[FUNCTION] = match parameters.given {
        Some((live, _)) => live,
        None => job.live_handle(Kind::Function, args[FUNCTION])?,
    };
    let stream = match job.handles.live_stream(args[STREAM]) {
        Some(stream) => Ok(stream),
        None => job.live_handle(Kind::Stream, args[STREAM]),
    };
    args[KERNEL_PARAMS] = parameters.kernel_params;
    args[EXTRA] = parameters.extra;
    let issued = stream.and_then(|stream| {
        args[STREAM] = stream;
        job.issue_with(&args)
    });
    parameters.release(job);
    let result = issued?;
    // A launch that succeeded gives nothing back and ends nothing.
    if result != 0 || !job.call.succeeded() {
        job.conclude(Frame::default(), result)?;
    }
    Ok(())
}

/// cuLaunchCooperativeKernel: has no `extra`.
pub(crate) fn cooperative(job: &mut Job<'_, '_>) -> Played {
    let parameters = parameters(job, (0, 9, None))?;
    let presets = [(9, parameters.kernel_params)];
    launch(job, &presets, parameters)
}

/// cuLaunchCooperativeKernelMultiDevice: deprecated since CUDA 11.3; its list of launches is not
/// recorded.
pub(crate) fn multi_device(_: &mut Job<'_, '_>) -> Played {
    skip("its list of launches is not recorded")
}

/// cuLaunchKernelEx.
pub(crate) fn kernel_ex(job: &mut Job<'_, '_>) -> Played {
    let mut parameters = parameters(job, (1, 2, Some(3)))?;
    let config = config(job, 0, &mut parameters)?;
    let presets = [
        (0, config),
        (2, parameters.kernel_params),
        (3, parameters.extra),
    ];
    launch(job, &presets, parameters)
}

/// cuOccupancyMaxPotentialClusterSize, cuOccupancyMaxActiveClusters.
pub(crate) fn clusters(job: &mut Job<'_, '_>) -> Played {
    const CONFIG: usize = 2;
    let mut built = Parameters::default();
    let config = config(job, CONFIG, &mut built)?;
    job.reissue_presets(&[(CONFIG, config)], built.buffers)
}

fn launch(job: &mut Job<'_, '_>, presets: &[(usize, u64)], mut parameters: Parameters) -> Played {
    let mut frame = job.marshal(presets)?;
    let result = job.issue(&frame)?;
    // A launch writes nothing: no memory of the frame is read again.
    parameters.buffers.append(&mut frame.buffers);
    parameters.release(job);
    job.conclude(frame, result)
}

/// Rebuilds the parameters; `at` says where the function, `kernelParams` and `extra` stand.
fn parameters(
    job: &mut Job<'_, '_>,
    at: (usize, usize, Option<usize>),
) -> Result<Parameters, Skip> {
    let (function, params, extra) = at;
    let given = Given {
        handle: job.call.argument(function),
        has_params: job.call.argument(params) != 0,
        params,
        extra: extra.filter(|&position| job.call.argument(position) != 0),
        takes_extra: extra.is_some(),
        keeps_memory: false,
    };
    let mut built = Parameters::default();
    rebuild(job, given, &mut built)?;
    Ok(built)
}

/// The parameters of a kernel node, which stand behind one struct; `given` says whether there are
/// `kernelParams` and `extra`.
pub(crate) fn node_parameters(
    job: &mut Job<'_, '_>,
    position: usize,
    handle: u64,
    given: (bool, bool),
) -> Result<Parameters, Skip> {
    // Without a layout only the packed form can be given.
    let takes_extra = job.issuer.kernels.layout(handle).is_empty();
    let given = Given {
        handle,
        has_params: given.0,
        params: position,
        extra: given.1.then_some(position),
        takes_extra,
        keeps_memory: true,
    };
    let mut built = Parameters::default();
    rebuild(job, given, &mut built)?;
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
    /// The driver may read the parameters after the call.
    keeps_memory: bool,
}

fn rebuild(job: &mut Job<'_, '_>, given: Given, built: &mut Parameters) -> Result<(), Skip> {
    let Given {
        handle,
        has_params,
        params,
        extra,
        takes_extra,
        keeps_memory,
    } = given;
    if !has_params && extra.is_none() {
        return Ok(());
    }
    if has_params && extra.is_some() {
        // Refused by the driver (INVALID_VALUE, observed) without a look at either.
        built.kernel_params = job.lent.stub();
        built.extra = lend(&mut built.buffers, Buffer::of_words(&[0, 0]));
        return Ok(());
    }
    let inline = job.current.decoded.kernel_parameters;
    let packed = inline
        .map(Cow::Borrowed)
        .or_else(|| recorded(job, params))
        .or_else(|| extra.and_then(|extra| recorded(job, extra)));
    let Some(mut packed) = packed else {
        let unreadable = job
            .call
            .snapshot(params, field::KERNEL_PARAMETERS)
            .is_some_and(|capture| capture.bytes == Bytes::Unreadable);
        if job.call.succeeded() && (unreadable || !job.issuer.kernels.layout(handle).is_empty()) {
            return skip("its parameters are not in the trace");
        }
        // No parameters, or a launch that was refused before they mattered.
        match extra {
            Some(extra) => {
                let words = piece(job, extra, field::EXTRA).unwrap_or_default();
                let nothing = words
                    .chunks_exact(8)
                    .next()
                    .is_none_or(|word| number(word) == 0);
                if !nothing && job.call.succeeded() {
                    return skip("its parameters are not in the trace");
                }
                built.extra = lend(&mut built.buffers, Buffer::of_words(&[0, 0]));
            }
            None => built.kernel_params = job.lent.stub(),
        }
        return Ok(());
    };
    note_host_memory(job, &packed);
    if job.ranges.any_translated() || job.captures.has_moved_conditions() {
        let layout = job.issuer.kernels.layout(handle).to_vec();
        let packed = packed.to_mut();
        if let Some((address, words)) = job.ranges.translate_words(packed, &layout) {
            job.name_stale(address, words);
        }
        job.captures.translate_conditions(packed, &layout);
    }
    if packed.is_empty() {
        built.kernel_params = job.lent.stub();
        return Ok(());
    }
    let wish = Wish {
        handle,
        takes_extra,
        keeps_memory: keeps_memory || job.issuer.recorder.is_some(),
        is_capturing: job.captures.any_open(),
    };
    let known = (&job.player.handles, &*job.player.api);
    match job.player.issuer.kernels.give(known, wish, &packed) {
        Some(given) => {
            built.kernel_params = given.kernel_params;
            let number = match given.memory {
                Memory::Shared(number) => Some(number),
                Memory::Own(buffer) => {
                    built.buffers.push(buffer);
                    None
                }
            };
            built.given = Some((given.function, number));
        }
        None if takes_extra => built.extra = lend(&mut built.buffers, as_list(&packed)),
        None => built.kernel_params = as_one(built, &packed),
    }
    Ok(())
}

/// The packed parameters that were recorded with a parameter.
fn recorded<'t>(job: &Job<'_, 't>, position: usize) -> Option<Cow<'t, [u8]>> {
    match job.payload(&job.call.snapshot(position, field::KERNEL_PARAMETERS)?) {
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
    copy_common(bytes.get_mut(PARAMETERS_AT..).unwrap_or_default(), packed);
    buffer
}

/// An array with a pointer to the packed parameters, as if they were one.
fn as_one(built: &mut Parameters, packed: &[u8]) -> u64 {
    let mut padded = packed.to_vec();
    padded.resize(packed.len() + PARAMETER_BYTES, 0);
    let base = lend(&mut built.buffers, Buffer::of(&padded));
    // One more, so that a driver that looks behind the last finds memory.
    lend(
        &mut built.buffers,
        Buffer::of_words(&[base, base + packed.len() as u64]),
    )
}

/// Says which host memory a kernel was given of which the trace does not say what the program
/// itself has written there.
fn note_host_memory(player: &mut Player<'_>, packed: &[u8]) {
    let mut told = Vec::new();
    for word in packed.chunks_exact(8) {
        let Some(range) = player.ranges.find_of_host(number(word)) else {
            continue;
        };
        let made_by = range.made_by.name;
        if !player.has_host_memory(range) && !told.contains(&made_by) {
            told.push(made_by);
            player.comparer.host_memory_given = true;
            player.report.note(format!(
                "parameters of launches hold addresses of memory of {made_by} that the program can write without a call: what it wrote there is not recorded",
            ));
        }
    }
}

/// Rebuilds a launch configuration with live stream and attributes.
fn config(job: &mut Job<'_, '_>, position: usize, built: &mut Parameters) -> Result<u64, Skip> {
    if job.call.argument(position) == 0 {
        return Ok(0);
    }
    let config = piece(job, position, field::POINTEE).filter(|config| config.len() >= CONFIG_BYTES);
    let Some(mut config) = config else {
        return skip("its configuration could not be read when it was recorded");
    };
    let stream = job.live_handle(Kind::Stream, word(&config, CONFIG_STREAM))?;
    set_word(&mut config, CONFIG_STREAM, stream);
    let count = word(&config, CONFIG_ATTRIBUTE_COUNT) as u32 as usize;
    if word(&config, CONFIG_ATTRIBUTES) != 0 {
        let attributes = piece(job, position, field::ATTRIBUTES);
        let Some(mut attributes) = attributes.or_else(|| (count == 0).then(Vec::new)) else {
            return skip("its attributes could not be read when it was recorded");
        };
        if attributes.len() < count.saturating_mul(ATTRIBUTE_BYTES) {
            return skip("the trace holds fewer attributes than it counts");
        }
        for attribute in attributes.chunks_exact_mut(ATTRIBUTE_BYTES) {
            attribute_live(job, attribute)?;
        }
        let address = lend(&mut built.buffers, Buffer::of(&attributes));
        set_word(&mut config, CONFIG_ATTRIBUTES, address);
    }
    Ok(lend(&mut built.buffers, Buffer::of(&config)))
}

/// The value of one attribute of a kernel node, with live handles and addresses.
pub(crate) fn attribute_value_live(
    job: &mut Job<'_, '_>,
    attribute: u64,
    value: &[u8],
) -> Result<Vec<u8>, Skip> {
    let mut whole = vec![0; ATTRIBUTE_BYTES];
    copy_common(&mut whole, &(attribute as u32).to_le_bytes());
    copy_common(whole.get_mut(ATTRIBUTE_VALUE..).unwrap_or_default(), value);
    attribute_live(job, &mut whole)?;
    Ok(whole.split_off(ATTRIBUTE_VALUE))
}

/// Replaces handles and addresses in one attribute.
fn attribute_live(job: &mut Job<'_, '_>, attribute: &mut [u8]) -> Result<(), Skip> {
    let value = word(attribute, ATTRIBUTE_VALUE);
    let live = match number(first(attribute, 4)) {
        ACCESS_POLICY_WINDOW => job.ranges.translate(value),
        PROGRAMMATIC_EVENT | LAUNCH_COMPLETION_EVENT => job.live_handle(Kind::Event, value)?,
        DEVICE_UPDATABLE_KERNEL_NODE => {
            return skip("device-updatable kernel nodes are not re-issued");
        }
        _ => return Ok(()),
    };
    set_word(attribute, ATTRIBUTE_VALUE, live);
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
}
