//! Kernel launches: the parameters' bytes, in the order and at the offsets that the kernel takes them.

use cutape_driver::types::{CUDA_LAUNCH_PARAMS, CUlaunchAttribute, CUlaunchConfig};
use cutape_format::fixed::SnapshotsNote;
use cutape_format::layout::{LayoutNote, SNAPSHOT_HEAD_LENGTH, field, note_kind, record_kind};
use cutape_format::write::Record;

use super::Handling;
use crate::call::Frame;
use crate::errno::Errno;
use crate::layouts::{self, LOWEST_ADDRESS, Layout};
use crate::thread::Thread;
use crate::{host_memory, memory, snapshot};

/// CU_LAUNCH_PARAM_END, _BUFFER_POINTER and _BUFFER_SIZE of cuda.h.
const END: u64 = 0;
const BUFFER_POINTER: u64 = 1;
const BUFFER_SIZE: u64 = 2;
/// More words than the three marks make sense of.
const MOST_EXTRA: u64 = 16;
/// Longer parameter buffers are refused by the driver (CUDA 12.1: 32,764 bytes).
const MOST_BUFFER: usize = 64 << 10;
/// Attributes of one launch; there are not so many kinds.
const MOST_ATTRIBUTES: u64 = 64;
/// No program was seen to pass more: a greater count may be no count, and is not taken at its word.
const USUAL_ATTRIBUTES: u64 = 16;
/// The position of `cuLaunchKernelEx`'s struct.
pub(super) const CONFIG: usize = 0;

/// The positions of a launch's stream, of its parameters, and of its extra options, if it has any; the function is the first.
const STREAM: usize = 8;
pub(super) const PARAMETERS: u8 = 9;
pub(super) const EXTRA: u8 = 10;

/// Writes what a launch passes behind its enter record: parameters are read as the driver would read them, which faults
/// where they are wild, and then the launch itself is to be in the trace.
pub(super) fn note(state: &Thread, build: impl FnMut(&mut Record<'_>) -> Option<()>) {
    state.write(record_kind::NOTE, note_kind::SNAPSHOTS, build);
}

/// The parameters that were put last.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct NewSnapshot {
    bytes: *const u8,
    length: usize,
}

const NO_PARAMETERS: NewSnapshot = NewSnapshot {
    bytes: core::ptr::dangling(),
    length: 0,
};

/// The layout for a launch like nearly every one: of a function that is known and alive, whose layout stands in the trace, without
/// parameters or with an array of pointers to them.
#[inline(always)]
pub(crate) fn usual_layout(frame: &Frame, has_extra: bool) -> Option<&'static Layout> {
    let array = frame.words[usize::from(PARAMETERS)];
    if has_extra && frame.words[usize::from(EXTRA)] != 0 || array < LOWEST_ADDRESS && array != 0 {
        return None;
    }
    layouts::noted(frame.words[0])
}

/// Writes what such a launch passes; `None`, and nothing done, if there is too little space. `IS_FEW`: only for a layout of
/// nothing but words.
#[inline(always)]
pub(crate) fn capture_directly<const IS_FEW: bool>(
    state: &Thread,
    frame: &Frame,
    layout: &Layout,
) -> Option<NewSnapshot> {
    let array = frame.words[usize::from(PARAMETERS)];
    if array == 0 {
        return Some(NO_PARAMETERS);
    }
    state.look_ahead_of(layout.length());
    let mut unfilled = state.unfilled();
    let mut snapshot = layout.form().begin(unfilled.space(), PARAMETERS)?;
    let captured = put_parameters::<IS_FEW>(layout, array, snapshot.bytes())?;
    let length = snapshot.commit();
    unfilled.fill(length);
    Some(captured)
}

/// Puts the parameters that an array of pointers leads to into a target that is eight bytes longer.
#[inline(always)]
fn put_parameters<const IS_FEW: bool>(
    layout: &Layout,
    array: u64,
    target: &mut [u8],
) -> Option<NewSnapshot> {
    // SAFETY: the driver reads as many pointers from the array, and as many bytes behind each, in this very call.
    unsafe {
        if IS_FEW {
            layout.pack_few(array, target)
        } else {
            layout.pack_words(array, target)
        }
    }?;
    Some(NewSnapshot {
        bytes: target.as_ptr(),
        length: layout.length(),
    })
}

/// Looks at the host memory that a launch can reach, if there is any.
#[inline(never)]
pub(crate) fn look(state: &Thread, frame: &Frame, handling: Handling, captured: NewSnapshot) {
    // SAFETY: that is in this thread's stage, which nobody has written to since.
    let bytes = unsafe { core::slice::from_raw_parts(captured.bytes, captured.length) };
    if host_memory::may_reach(words(bytes)) {
        match handling {
            Handling::Launch { has_extra } => look_at_host_memory(state, frame, has_extra),
            _ => look_at_host_memory_ex(state, frame),
        }
    }
}

/// Both of the above for `cuLaunchKernelEx`; `None`, and nothing done, also if a launch is not as usual.
#[inline(always)]
pub(crate) fn capture_ex_directly<const IS_FEW: bool>(
    state: &Thread,
    frame: &Frame,
) -> Option<NewSnapshot> {
    const CONFIG_LENGTH: usize = size_of::<CUlaunchConfig>();
    const ATTRIBUTE_LENGTH: usize = size_of::<CUlaunchAttribute>();
    let [config, function, array, extra, ..] = frame.words;
    if config < LOWEST_ADDRESS || extra != 0 || array < LOWEST_ADDRESS && array != 0 {
        return None;
    }
    let layout = layouts::noted(function)?;
    let config = config as *const CUlaunchConfig;
    // SAFETY: the driver reads the struct in this very call.
    let (attributes, count) = unsafe {
        (
            (&raw const (*config).attrs).read_unaligned() as u64,
            (&raw const (*config).numAttrs).read_unaligned() as usize,
        )
    };
    let has_attributes = attributes != 0 && count != 0;
    if has_attributes && (attributes < LOWEST_ADDRESS || count > USUAL_ATTRIBUTES as usize) {
        return None;
    }
    let snapshots = 3 * SNAPSHOT_HEAD_LENGTH
        + CONFIG_LENGTH
        + if has_attributes {
            count * ATTRIBUTE_LENGTH
        } else {
            0
        }
        + layout.length();
    state.look_ahead_of(snapshots);
    let mut unfilled = state.unfilled();
    let mut note = SnapshotsNote::new(unfilled.space(), snapshots)?;
    let target = note.put(CONFIG as u8, field::POINTEE, CONFIG_LENGTH as u32)?;
    let target = target.first_chunk_mut::<CONFIG_LENGTH>()?;
    // SAFETY: the driver reads the struct in this very call.
    unsafe { core::ptr::copy_nonoverlapping(config.cast(), target.as_mut_ptr(), CONFIG_LENGTH) };
    if has_attributes {
        let length = (count * ATTRIBUTE_LENGTH) as u32;
        let target = note.put(CONFIG as u8, field::ATTRIBUTES, length)?;
        let mut source = attributes as *const [u8; ATTRIBUTE_LENGTH];
        for place in target.as_chunks_mut::<ATTRIBUTE_LENGTH>().0 {
            // SAFETY: as for the configuration, which says how many there are.
            unsafe {
                *place = source.read();
                source = source.add(1);
            }
        }
    }
    let mut captured = NO_PARAMETERS;
    if array != 0 {
        let target = note.put(2, field::KERNEL_PARAMETERS, layout.length() as u32)?;
        captured = put_parameters::<IS_FEW>(layout, array, target)?;
    }
    let length = note.commit()?;
    unfilled.fill(length);
    Some(captured)
}

/// The whole words of a parameter buffer.
#[inline]
fn words(buffer: &[u8]) -> impl Iterator<Item = u64> + Clone {
    let (words, _) = buffer.as_chunks::<8>();
    words.iter().map(|word| u64::from_le_bytes(*word))
}

/// Puts what a launch passes. Sets `reaches` if host memory may be to be looked at.
pub(super) fn snapshots(
    record: &mut Record<'_>,
    frame: &Frame,
    has_extra: bool,
    reaches: &mut bool,
) -> Option<()> {
    let array = frame.words[usize::from(PARAMETERS)];
    kernel_parameters(record, PARAMETERS, frame.words[0], array, reaches)?;
    if !has_extra {
        return Some(());
    }
    let array = frame.words[usize::from(EXTRA)];
    *reaches |= array != 0;
    extra_words(record, EXTRA, array)
}

/// The parameters that an array of pointers leads to, packed by the kernel's layout. Read as the driver is about to. Sets
/// `reaches` if one of them may point into host memory that the device reaches, or they are not known.
pub(super) fn kernel_parameters(
    record: &mut Record<'_>,
    position: u8,
    function: u64,
    array: u64,
    reaches: &mut bool,
) -> Option<()> {
    if array == 0 {
        *reaches |= host_memory::may_reach(core::iter::empty());
        return Some(());
    }
    let Some((layout, is_alive)) = layouts::of(function).filter(|_| array >= LOWEST_ADDRESS) else {
        *reaches = true;
        return snapshot::unreadable(record, position, field::KERNEL_PARAMETERS);
    };
    record.put_snapshot(
        position,
        field::KERNEL_PARAMETERS,
        layout.length(),
        |target| {
            let packed = if is_alive {
                pack(layout, array, target)
            } else {
                pack_with_care(layout, array, target)
            };
            *reaches |= packed.is_none() || host_memory::may_reach(words(target));
            packed
        },
    )
}

/// For a function that is gone: the driver will refuse the launch without looking at the parameters.
#[cold]
fn pack_with_care(layout: &Layout, array: u64, target: &mut [u8]) -> Option<u16> {
    target.fill(0);
    for (index, &(offset, size)) in layout.parameters().iter().enumerate() {
        let source = memory::word(array.wrapping_add(index as u64 * 8))?;
        let place = target
            .get_mut(offset as usize..)?
            .get_mut(..size as usize)?;
        if !memory::read_all(source, place) {
            return None;
        }
    }
    Some(0)
}

fn pack(layout: &Layout, array: u64, target: &mut [u8]) -> Option<u16> {
    // SAFETY: the driver reads as many pointers from the array, and as many bytes behind each, in this very call.
    unsafe { layout.pack(array, target) }.map(|()| 0)
}

/// The `extra` array and the buffer that it names.
pub(super) fn extra_words(record: &mut Record<'_>, position: u8, array: u64) -> Option<()> {
    if array == 0 {
        return Some(());
    }
    let (words, count, buffer) = read_extra(array);
    record.put_snapshot(position, field::EXTRA, count * 8, |target| {
        for (place, word) in target.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        Some(0)
    })?;
    if let Some((buffer, size)) = buffer {
        snapshot::bytes(record, position, field::KERNEL_PARAMETERS, buffer, size)?;
    }
    Some(())
}

/// The words of an `extra` array, how many there are, and the buffer that they name with its size.
fn read_extra(array: u64) -> ([u64; MOST_EXTRA as usize], usize, Option<(u64, u64)>) {
    let mut words = [0u64; MOST_EXTRA as usize];
    let (mut count, mut buffer, mut size) = (0, None, None);
    while count + 1 < words.len() {
        let Some(mark) = memory::word(array.wrapping_add(count as u64 * 8)) else {
            break;
        };
        words[count] = mark;
        count += 1;
        if mark == END {
            break;
        }
        let Some(value) = memory::word(array.wrapping_add(count as u64 * 8)) else {
            break;
        };
        words[count] = value;
        count += 1;
        match mark {
            BUFFER_POINTER => buffer = Some(value),
            BUFFER_SIZE => size = memory::word(value),
            _ => {}
        }
    }
    (words, count, buffer.zip(size))
}

/// `cuLaunchKernelEx(config, f, kernelParams, extra)`.
pub(super) fn captures_ex(
    record: &mut Record<'_>,
    frame: &Frame,
    reaches: &mut bool,
) -> Option<()> {
    let mut config = [0u8; size_of::<CUlaunchConfig>()];
    let at = frame.words[CONFIG];
    if at != 0 && at < LOWEST_ADDRESS {
        snapshot::unreadable(record, CONFIG as u8, field::POINTEE)?;
    } else if at != 0 {
        // SAFETY: the driver reads the struct in this very call.
        unsafe {
            core::ptr::copy_nonoverlapping(at as *const u8, config.as_mut_ptr(), config.len());
        }
        snapshot::own(record, CONFIG as u8, field::POINTEE, &config)?;
        attributes(record, CONFIG as u8, &config, true)?;
    }
    kernel_parameters(record, 2, frame.words[1], frame.words[2], reaches)?;
    *reaches |= frame.words[3] != 0;
    extra_words(record, 3, frame.words[3])
}

/// The attributes that a configuration points at. `is_launched`: the driver reads them in this very call.
fn attributes(
    record: &mut Record<'_>,
    position: u8,
    config: &[u8],
    is_launched: bool,
) -> Option<()> {
    let attributes = u64_at(config, core::mem::offset_of!(CUlaunchConfig, attrs));
    let count = u64_at(config, core::mem::offset_of!(CUlaunchConfig, numAttrs) - 4) >> 32;
    if attributes == 0 || count == 0 {
        return Some(());
    }
    let length = count.min(MOST_ATTRIBUTES) * size_of::<CUlaunchAttribute>() as u64;
    if is_launched && attributes >= LOWEST_ADDRESS && count <= USUAL_ATTRIBUTES {
        return record.put_snapshot(position, field::ATTRIBUTES, length as usize, |target| {
            // SAFETY: as for the configuration, which says how many there are.
            unsafe {
                core::ptr::copy_nonoverlapping(
                    attributes as *const u8,
                    target.as_mut_ptr(),
                    target.len(),
                );
            }
            Some(0)
        });
    }
    snapshot::bytes(record, position, field::ATTRIBUTES, attributes, length)
}

/// `cuOccupancyMaxActiveClusters(numClusters, func, config)` and its like: the struct itself is captured by its role.
pub(super) fn before_clusters(record: &mut Record<'_>, frame: &Frame) -> Option<()> {
    const CONFIG: usize = 2;
    let mut config = [0u8; size_of::<CUlaunchConfig>()];
    if frame.words[CONFIG] == 0 || !memory::read_all(frame.words[CONFIG], &mut config) {
        return Some(());
    }
    attributes(record, CONFIG as u8, &config, false)
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    bytes
        .get(offset..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |word| u64::from_le_bytes(*word))
}

/// The functions and parameter arrays of `cuLaunchCooperativeKernelMultiDevice(launchParamsList, numDevices, flags)`.
fn multi_device(frame: &Frame) -> impl Iterator<Item = (u64, u64)> {
    let (list, count) = (frame.words[0], u64::from(frame.words[1] as u32).min(64));
    let size = size_of::<CUDA_LAUNCH_PARAMS>() as u64;
    (0..count).map_while(move |index| {
        let entry = list.wrapping_add(index * size);
        let function = core::mem::offset_of!(CUDA_LAUNCH_PARAMS, function) as u64;
        let parameters = core::mem::offset_of!(CUDA_LAUNCH_PARAMS, kernelParams) as u64;
        Some((
            memory::word(entry + function)?,
            memory::word(entry + parameters)?,
        ))
    })
}

/// Puts each device's parameters, in the order of the list.
pub(super) fn captures_multi_device(record: &mut Record<'_>, frame: &Frame) -> Option<()> {
    for (function, parameters) in multi_device(frame) {
        kernel_parameters(record, 0, function, parameters, &mut false)?;
    }
    Some(())
}

/// The 8-byte words of a launch's parameters; `None` if these are not known.
fn parameter_words(function: u64, array: u64, extra: u64) -> Option<Vec<u64>> {
    let mut bytes = Vec::new();
    if array != 0 {
        let (layout, is_alive) = layouts::of(function).filter(|_| array >= LOWEST_ADDRESS)?;
        bytes.resize(layout.length(), 0);
        if is_alive {
            pack(layout, array, &mut bytes)?;
        } else {
            pack_with_care(layout, array, &mut bytes)?;
        }
    } else if extra != 0 {
        let (_, _, buffer) = read_extra(extra);
        let (address, size) = buffer?;
        bytes.resize(
            usize::try_from(size)
                .ok()
                .filter(|&size| size <= MOST_BUFFER)?,
            0,
        );
        if !memory::read_all(address, &mut bytes) {
            return None;
        }
    }
    let words = bytes.chunks_exact(8).map(|word| u64_at(word, 0));
    Some(words.collect())
}

/// Looks at the host memory that a launch can reach.
#[cold]
pub(super) fn look_at_host_memory(state: &Thread, frame: &Frame, has_extra: bool) {
    let _errno = Errno::keep();
    let argument = |at: u8| frame.words[usize::from(at)];
    let extra = if has_extra { argument(EXTRA) } else { 0 };
    let words = parameter_words(frame.words[0], argument(PARAMETERS), extra);
    host_memory::before_launch(state, frame, frame.words[STREAM], words.as_deref());
}

/// As above, for `cuLaunchKernelEx`.
#[cold]
pub(super) fn look_at_host_memory_ex(state: &Thread, frame: &Frame) {
    let _errno = Errno::keep();
    let place = core::mem::offset_of!(CUlaunchConfig, hStream) as u64;
    let Some(stream) = memory::word(frame.words[CONFIG].wrapping_add(place)) else {
        return;
    };
    let words = parameter_words(frame.words[1], frame.words[2], frame.words[3]);
    host_memory::before_launch(state, frame, stream, words.as_deref());
}

/// As above, for `cuLaunchCooperativeKernelMultiDevice`, each device on its stream.
#[cold]
pub(super) fn look_at_host_memory_multi_device(state: &Thread, frame: &Frame) {
    let _errno = Errno::keep();
    let stream = core::mem::offset_of!(CUDA_LAUNCH_PARAMS, hStream) as u64;
    let size = size_of::<CUDA_LAUNCH_PARAMS>() as u64;
    for (index, (function, parameters)) in multi_device(frame).enumerate() {
        let entry = frame.words[0].wrapping_add(index as u64 * size);
        if let Some(stream) = memory::word(entry.wrapping_add(stream)) {
            let words = parameter_words(function, parameters, 0);
            host_memory::before_launch(state, frame, stream, words.as_deref());
        }
    }
}

/// Notes the layouts of all functions of the list.
pub(super) fn note_layouts(state: &Thread, frame: &Frame) {
    for (function, _) in multi_device(frame) {
        note_layout(state, function);
    }
}

/// Notes how a kernel takes its parameters, in the first launch that meets it.
pub(super) fn note_layout(state: &Thread, function: u64) {
    let Some(layout) = layouts::to_be_noted(function) else {
        return;
    };
    let head = LayoutNote {
        handle: function,
        count: layout.parameters().len() as u32,
    };
    state.write(record_kind::NOTE, note_kind::LAYOUT, |record| {
        record.put_encoded(head)?;
        for &(offset, size) in layout.parameters() {
            record.put_number(u64::from(offset), 4)?;
            record.put_number(u64::from(size), 4)?;
        }
        Some(())
    });
}
