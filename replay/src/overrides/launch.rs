//! Kernel launches: parameters re-sent as recorded, with addresses that could not be placed
//! translated.

use std::borrow::Cow;

use cutape_format::{Bytes, layout::field};
use cutape_registry::layout::{offset_of, size_of};
use cutape_registry::{
    AttributeType, Family, Kind, LaunchAttribute, LaunchOp, Meaning, attributes,
};

use crate::api::buffer::{Buffer, copy_common, lend, number, set_word, word};
use crate::calls::frame::{Frame, Presets};
use crate::compare::payload::Payload;
use crate::digests;
use crate::objects::kernels::{PARAMETER_BYTES, Prepared, Wish};
use crate::objects::skip::{Skip, skip};
use crate::place::address::Found;
use crate::player::{Job, Played, Player};
use crate::report::AssumedHandle;

/// CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE; zero ends the list.
const BUFFER_POINTER: u64 = 1;
const BUFFER_SIZE: u64 = 2;
const CONFIG_BYTES: usize = size_of("CUlaunchConfig");
const CONFIG_STREAM: usize = offset_of("CUlaunchConfig", "hStream");
const CONFIG_ATTRIBUTES: usize = offset_of("CUlaunchConfig", "attrs");
const CONFIG_ATTRIBUTE_COUNT: usize = offset_of("CUlaunchConfig", "numAttrs");
const ATTRIBUTE_BYTES: usize = size_of("CUlaunchAttribute");
const ATTRIBUTE_VALUE: usize = offset_of("CUlaunchAttribute", "value.clusterDim.x");

/// The parameters of a launch in memory of the replay's own: arguments `kernelParams` and `extra`.
#[derive(Default)]
pub(crate) struct Parameters {
    pub kernel_params: u64,
    pub extra: u64,
    /// What the two point into, unless it is in `given`.
    pub buffers: Vec<Buffer>,
    /// The live function, if it is known.
    function: Option<u64>,
    /// Memory of the kernel's.
    given: Option<Box<Prepared>>,
}

impl Parameters {
    /// After the launch: the driver has copied the parameters when it returns.
    #[inline]
    fn release(&mut self, player: &mut Player<'_>) {
        // What is going to be repeated keeps its memory.
        if let Some(recorder) = &mut player.issuer.recorder {
            recorder.keep(std::mem::take(self).into_buffers());
        } else if let Some(prepared) = self.given.take() {
            player.issuer.kernels.take_back(prepared);
        }
    }

    /// All memory, for a driver that may read the parameters after the call.
    pub(crate) fn into_buffers(self) -> impl Iterator<Item = Buffer> {
        let given = self.given.map(|given| given.memory);
        self.buffers.into_iter().chain(given)
    }
}

/// What a call gives as parameters of a kernel.
pub(crate) struct Source {
    /// The recorded function.
    pub handle: u64,
    pub has_params: bool,
    /// With which parameter the packed ones are recorded.
    pub params: usize,
    /// With which parameter `extra` is recorded, if the call gave it.
    pub extra: Option<usize>,
    /// Whether the call can be given `extra`.
    pub takes_extra: bool,
    /// The driver may read the parameters after the call.
    pub keeps_memory: bool,
}

/// cuLaunchKernel.
pub(crate) fn kernel(job: &mut Job<'_, '_>) -> Played {
    const FUNCTION: usize = 0;
    const STREAM: usize = 8;
    const KERNEL_PARAMS: usize = 9;
    const EXTRA: usize = 10;
    let mut args: [u64; EXTRA + 1] = job.decoded.arguments();
    let source = Source {
        handle: args[FUNCTION],
        has_params: args[KERNEL_PARAMS] != 0,
        params: KERNEL_PARAMS,
        extra: (args[EXTRA] != 0).then_some(EXTRA),
        takes_extra: true,
        keeps_memory: false,
    };
    let mut parameters = Parameters::default();
    rebuild(job, &source, &mut parameters)?;
    args[FUNCTION] = match parameters.function {
        Some(function) => function,
        None => job.live_handle(Kind::Function, args[FUNCTION])?,
    };
    args[KERNEL_PARAMS] = parameters.kernel_params;
    args[EXTRA] = parameters.extra;
    let issued = job.live_handle(Kind::Stream, args[STREAM]);
    let issued = issued.and_then(|stream| {
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

/// cuLaunchCooperativeKernel, cuLaunchKernelEx.
pub(crate) fn other(job: &mut Job<'_, '_>) -> Played {
    let (extra, at) = match job.function.family {
        Family::Launch(LaunchOp::Arguments(at)) => (at.extra, None),
        Family::Launch(LaunchOp::Config(at)) => (Some(at.extra), Some(at.config)),
        _ => return job.plain(),
    };
    let Some(source) = source_of(job) else {
        return job.plain();
    };
    let mut parameters = Parameters::default();
    rebuild(job, &source, &mut parameters)?;
    let mut presets = Presets::default();
    presets.set(source.params, parameters.kernel_params);
    if let Some(extra) = extra {
        presets.set(extra, parameters.extra);
    }
    if let Some(at) = at {
        config(job, usize::from(at), &mut presets)?;
    }
    let (mut frame, result) = job.issued(&presets.args)?;
    // A launch writes nothing: no memory of the frame is read again.
    parameters.buffers.append(&mut presets.buffers);
    parameters.buffers.append(&mut frame.buffers);
    parameters.release(job);
    job.conclude(frame, result)
}

/// cuLaunchCooperativeKernelMultiDevice: deprecated since CUDA 11.3; its list of launches is not
/// recorded.
pub(crate) fn multi_device(_: &mut Job<'_, '_>) -> Played {
    skip("its list of launches is not recorded")
}

/// cuOccupancyMaxPotentialClusterSize, cuOccupancyMaxActiveClusters.
pub(crate) fn clusters(job: &mut Job<'_, '_>) -> Played {
    const CONFIG: usize = 2;
    let mut presets = Presets::default();
    config(job, CONFIG, &mut presets)?;
    job.reissue_with(presets)
}

/// What a launch gives as parameters.
pub(crate) fn source_of(job: &Job<'_, '_>) -> Option<Source> {
    let (function, params, extra) = match job.function.family {
        Family::Launch(LaunchOp::Arguments(at)) => (at.function, at.parameters, at.extra),
        Family::Launch(LaunchOp::Config(at)) => (at.function, at.parameters, Some(at.extra)),
        _ => return None,
    };
    let argument = |position: u8| job.call.argument(usize::from(position));
    Some(Source {
        handle: argument(function),
        has_params: argument(params) != 0,
        params: usize::from(params),
        extra: extra.filter(|&extra| argument(extra) != 0).map(usize::from),
        takes_extra: extra.is_some(),
        keeps_memory: false,
    })
}

/// The packed parameters with live addresses and handles; `None` if the trace does not have them.
pub(crate) fn packed<'t>(job: &mut Job<'_, 't>, source: &Source) -> Option<Cow<'t, [u8]>> {
    let mut packed = match job.decoded.kernel_parameters {
        Some(inline) => Cow::Borrowed(inline),
        None => recorded(job, source.params).or_else(|| recorded(job, source.extra?))?,
    };
    note_host_memory(job, &packed);
    digests::launches::parameters(job, &packed);
    if job.ranges.any_translated()
        || job.captures.has_moved_conditions()
        || job.handles.any_moved_texture()
    {
        let layout = job.issuer.kernels.layout(source.handle).to_vec();
        let packed = packed.to_mut();
        let textures = moved_textures(job, packed, &layout);
        if let Some((address, words)) = job.ranges.translate_words(packed, &layout) {
            job.name_stale(address, words);
        }
        job.captures.translate_conditions(packed, &layout);
        for (at, live) in textures {
            set_word(packed, at, live);
        }
    }
    Some(packed)
}

/// Puts the parameters of a launch, or of a kernel node, into memory.
pub(crate) fn rebuild(
    job: &mut Job<'_, '_>,
    source: &Source,
    built: &mut Parameters,
) -> Result<(), Skip> {
    let &Source {
        handle,
        has_params,
        extra,
        ..
    } = source;
    if !has_params && extra.is_none() {
        return Ok(());
    }
    if has_params && extra.is_some() {
        // Refused by the driver (INVALID_VALUE, observed) without a look at either.
        built.kernel_params = job.lent.stub();
        built.extra = lend(&mut built.buffers, Buffer::of_words(&[0, 0]));
        return Ok(());
    }
    let Some(packed) = packed(job, source) else {
        return missing(job, source, built);
    };
    if packed.is_empty() {
        built.kernel_params = job.lent.stub();
        return Ok(());
    }
    let wish = Wish {
        handle,
        takes_extra: source.takes_extra,
        keeps_memory: source.keeps_memory || job.issuer.recorder.is_some(),
        is_capturing: job.captures.any_open(),
    };
    let state = &mut **job.player;
    let known = (&state.handles, &*state.api);
    match state.issuer.kernels.give(known, wish, &packed) {
        Some((function, given)) => {
            built.function = Some(function);
            match &mut state.issuer.recorder {
                Some(recorder) => {
                    built.kernel_params = recorder.parameters.keep(*given, &packed);
                }
                None => {
                    built.kernel_params = given.memory.address();
                    built.given = Some(given);
                }
            }
        }
        None if source.takes_extra => built.extra = lend(&mut built.buffers, as_list(&packed)),
        None => built.kernel_params = as_one(&mut built.buffers, &packed),
    }
    Ok(())
}

/// The parameters of 8 bytes that equal the recorded handle of a live texture or surface object
/// whose handle differs here: their offsets, and that handle. The report lists them, because a
/// number may equal a handle.
fn moved_textures(
    job: &mut Job<'_, '_>,
    packed: &[u8],
    layout: &[(u32, u32)],
) -> Vec<(usize, u64)> {
    let mut replaced = Vec::new();
    if !job.handles.any_moved_texture() {
        return replaced;
    }
    for &(offset, size) in layout {
        let at = offset as usize;
        if size != 8 || !at.is_multiple_of(8) || packed.len() < at + 8 {
            continue;
        }
        let recorded = word(packed, at);
        if matches!(job.ranges.find(recorded), Found::Live(..)) {
            continue;
        }
        let Ok(moved) = job.handles.moved_texture(recorded) else {
            job.report.note(
                "kernel parameters equal the handle of a texture object and of a surface object, which differ here: they are left as recorded",
            );
            continue;
        };
        let Some(moved) = moved else { continue };
        let assumed = AssumedHandle {
            call: job.call.index,
            function: job.function.name.to_owned(),
            offset,
            recorded,
            replayed: moved.live,
            object: format!("{}, created at call {}", moved.kind.name(), moved.made),
        };
        job.report.assume(assumed);
        replaced.push((at, moved.live));
    }
    replaced
}

/// The trace has no parameters: there are none, or the launch was refused before they mattered.
#[cold]
fn missing(job: &mut Job<'_, '_>, source: &Source, built: &mut Parameters) -> Result<(), Skip> {
    let snapshot = job.call.snapshot(source.params, field::KERNEL_PARAMETERS);
    let is_unreadable = snapshot.is_some_and(|snapshot| snapshot.bytes == Bytes::Unreadable);
    let has_layout = !job.issuer.kernels.layout(source.handle).is_empty();
    let has_list = source.extra.is_some_and(|extra| {
        let words = job.piece(extra, field::EXTRA).unwrap_or_default();
        words.len() >= 8 && word(&words, 0) != 0
    });
    if job.call.succeeded() && (is_unreadable || has_layout || has_list) {
        return skip("its parameters are not in the trace");
    }
    match source.extra {
        Some(_) => built.extra = lend(&mut built.buffers, Buffer::of_words(&[0, 0])),
        None => built.kernel_params = job.lent.stub(),
    }
    Ok(())
}

/// The packed parameters that were recorded with a parameter.
fn recorded<'t>(job: &Job<'_, 't>, position: usize) -> Option<Cow<'t, [u8]>> {
    match job.payload(&job.call.snapshot(position, field::KERNEL_PARAMETERS)?) {
        Payload::Here(bytes) => Some(bytes.into_cow()),
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
fn as_one(buffers: &mut Vec<Buffer>, packed: &[u8]) -> u64 {
    let mut padded = packed.to_vec();
    padded.resize(packed.len() + PARAMETER_BYTES, 0);
    let base = lend(buffers, Buffer::of(&padded));
    // One more, so that a driver that looks behind the last finds memory.
    lend(
        buffers,
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
fn config(job: &mut Job<'_, '_>, position: usize, presets: &mut Presets) -> Result<(), Skip> {
    if job.call.argument(position) == 0 {
        presets.set(position, 0);
        return Ok(());
    }
    let config = job.piece(position, field::POINTEE);
    let config = config.filter(|config| config.len() >= CONFIG_BYTES);
    let Some(mut config) = config else {
        return skip("the trace does not have its configuration");
    };
    let stream = job.live_handle(Kind::Stream, word(&config, CONFIG_STREAM))?;
    set_word(&mut config, CONFIG_STREAM, stream);
    let count = word(&config, CONFIG_ATTRIBUTE_COUNT) as u32 as usize;
    if word(&config, CONFIG_ATTRIBUTES) != 0 {
        let attributes = job.piece(position, field::ATTRIBUTES);
        let Some(mut attributes) = attributes.or_else(|| (count == 0).then(Vec::new)) else {
            return skip("the trace does not have its attributes");
        };
        if attributes.len() < count.saturating_mul(ATTRIBUTE_BYTES) {
            return skip("the trace holds fewer attributes than it counts");
        }
        let serialized = job.observer.as_ref().and_then(|observer| {
            let order = observer.job.order.as_ref()?;
            order.serialized
        });
        for attribute in attributes.chunks_exact_mut(ATTRIBUTE_BYTES) {
            attribute_live(job, attribute)?;
            let id = word(attribute, 0) as u32;
            if serialized == Some(job.call.index)
                && id == LaunchAttribute::ProgrammaticSerialization as u32
            {
                set_word(attribute, ATTRIBUTE_VALUE, 0);
            }
        }
        let address = presets.lend(Buffer::of(&attributes));
        set_word(&mut config, CONFIG_ATTRIBUTES, address);
    }
    presets.point(position, Buffer::of(&config));
    Ok(())
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
    let known = AttributeType::of(attributes::CUlaunchAttributeID, word(attribute, 0));
    let live = match known.map(|known| known.meaning) {
        Some(Meaning::Address) => job.ranges.translate(value),
        Some(Meaning::Handle(kind)) => job.live_handle(kind, value)?,
        // The first field says whether the device may update the node; else the handle is unused.
        Some(Meaning::MayDiffer) if value as u32 == 0 => return Ok(()),
        Some(Meaning::MayDiffer) => {
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
