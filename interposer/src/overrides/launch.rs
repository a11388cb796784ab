//! Launches on the generic path: the first launch of a kernel, `extra`, dead or unknown functions,
//! wild pointers. `hot::launch` handles the rest.

use cutape_driver::types::{
    CUDA_LAUNCH_PARAMS, CUlaunchAttribute, CUlaunchAttributeID_enum, CUlaunchConfig,
};
use cutape_format::layout::{LayoutNote, field, note_kind};
use cutape_registry::{LaunchArguments, LaunchConfig, LaunchOp};

use super::origin;
use super::visitor::Visitor;
use crate::hot::frame::Frame;
use crate::hot::kernel_parameters::{LOWEST_ADDRESS, ParameterLayout};
use crate::hot::launch::{USUAL_ATTRIBUTES, words};
use crate::hot::thread::{Draft, Thread};
use crate::process::errno::Errno;
use crate::process::memory;
use crate::state::followed_work;
use crate::state::functions;
use crate::{host_memory, snapshot};

/// CU_LAUNCH_PARAM_END, _BUFFER_POINTER and _BUFFER_SIZE of cuda.h.
const END: u64 = 0;
const BUFFER_POINTER: u64 = 1;
const BUFFER_SIZE: u64 = 2;
/// Most words of an `extra` array; there are three kinds of entries.
const MOST_EXTRA: usize = 16;
/// The driver refuses longer parameter buffers (CUDA 12.1: 32,764 bytes).
const MOST_BUFFER: usize = 64 << 10;
/// Most attributes of one launch; there are fewer kinds.
const MOST_ATTRIBUTES: u64 = 64;
/// Most devices of one launch.
const MOST_DEVICES: u64 = 64;

/// One kernel of a launch.
struct Kernel {
    function: u64,
    /// `kernelParams` and its position.
    array: u64,
    position: u8,
    /// `extra` and its position; 0 if there is none.
    extra: u64,
    extra_position: u8,
    /// `None` if the configuration cannot be read.
    stream: Option<u64>,
}

/// Reads a member of a struct of the program.
fn member(address: u64, offset: usize) -> Option<u64> {
    memory::word(address.checked_add(offset as u64)?)
}

impl Kernel {
    fn of_arguments(frame: &Frame, launch: LaunchArguments) -> Self {
        Self {
            function: frame.word(launch.function),
            array: frame.word(launch.parameters),
            position: launch.parameters,
            extra: launch.extra.map_or(0, |at| frame.word(at)),
            extra_position: launch.extra.unwrap_or(0),
            stream: Some(frame.word(launch.stream)),
        }
    }

    fn of_config(frame: &Frame, launch: LaunchConfig) -> Self {
        let stream = core::mem::offset_of!(CUlaunchConfig, hStream);
        Self {
            function: frame.word(launch.function),
            array: frame.word(launch.parameters),
            position: launch.parameters,
            extra: frame.word(launch.extra),
            extra_position: launch.extra,
            stream: member(frame.word(launch.config), stream),
        }
    }

    /// Element of the list of `cuLaunchCooperativeKernelMultiDevice`.
    fn of_list(list: u64, index: u64) -> Option<Self> {
        let entry = list.checked_add(index * size_of::<CUDA_LAUNCH_PARAMS>() as u64)?;
        Some(Self {
            function: member(entry, core::mem::offset_of!(CUDA_LAUNCH_PARAMS, function))?,
            array: member(
                entry,
                core::mem::offset_of!(CUDA_LAUNCH_PARAMS, kernelParams),
            )?,
            position: 0,
            extra: 0,
            extra_position: 0,
            stream: member(entry, core::mem::offset_of!(CUDA_LAUNCH_PARAMS, hStream)),
        })
    }
}

/// The kernels of a launch. Allocates nothing: a launch whose parameters just did not fit into the
/// thread's buffer comes here too.
fn kernels(frame: &Frame, op: LaunchOp) -> impl Iterator<Item = Kernel> {
    let count = match op {
        LaunchOp::Arguments(_) | LaunchOp::Config(_) => 1,
        LaunchOp::MultiDevice { count, .. } => {
            u64::from(frame.word(count) as u32).min(MOST_DEVICES)
        }
        LaunchOp::Legacy { .. } => 0,
    };
    (0..count).map_while(move |index| match op {
        LaunchOp::Arguments(launch) => Some(Kernel::of_arguments(frame, launch)),
        LaunchOp::Config(launch) => Some(Kernel::of_config(frame, launch)),
        LaunchOp::MultiDevice { list, .. } => Kernel::of_list(frame.word(list), index),
        LaunchOp::Legacy { .. } => None,
    })
}

pub(super) fn visit<V: Visitor>(visitor: V, op: LaunchOp) -> V {
    let visitor = match op {
        LaunchOp::Config(launch) => visitor.owns(1 << launch.config),
        _ => visitor,
    };
    visitor.pre_call(move |thread, frame| pre_call(thread, frame, op))
}

/// Records what a launch passes, and which host memory it can reach.
fn pre_call(thread: &Thread, frame: &Frame, op: LaunchOp) {
    let _errno = Errno::keep();
    if let LaunchOp::Legacy { .. } = op {
        // Earlier calls have set its parameters.
        if host_memory::any() {
            let stream = frame.description().stream.map_or(0, |at| frame.word(at));
            host_memory::before_launch(thread, frame, stream, None);
        }
        return;
    }
    for kernel in kernels(frame, op) {
        origin::about_to_use(thread, kernel.function);
        note_layout(thread, kernel.function);
    }
    let mut may_reach = false;
    thread.note(note_kind::SNAPSHOTS, |draft| {
        if let LaunchOp::Config(launch) = op {
            put_config(draft, frame, launch.config)?;
        }
        for kernel in kernels(frame, op) {
            may_reach |= put_parameters(draft, kernel.position, kernel.function, kernel.array)?;
            may_reach |= kernel.extra != 0;
            put_extra(draft, kernel.extra_position, kernel.extra)?;
        }
        Some(())
    });
    if let LaunchOp::Config(launch) = op
        && followed_work::any()
    {
        forget_recorded_events(frame, launch.config);
    }
    if may_reach && host_memory::any() {
        look_at_host_memory(thread, frame, op);
    }
}

/// Forgets the earlier records of the events that a launch records, by its attributes.
#[cold]
pub(crate) fn forget_recorded_events(frame: &Frame, position: u8) {
    let _errno = Errno::keep();
    let mut config = [0u8; size_of::<CUlaunchConfig>()];
    if !memory::read_all(frame.word(position), &mut config) {
        return;
    }
    // SAFETY: the struct holds integers and raw pointers, so any bytes make one.
    let config: CUlaunchConfig =
        unsafe { config.as_ptr().cast::<CUlaunchConfig>().read_unaligned() };
    let (attributes, count) = (config.attrs as u64, u64::from(config.numAttrs));
    let event = |index: u64| {
        let at = attributes.checked_add(index * size_of::<CUlaunchAttribute>() as u64)?;
        let kind = CUlaunchAttributeID_enum(memory::word(at)? as u32);
        let is_recorded = matches!(
            kind,
            CUlaunchAttributeID_enum::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
                | CUlaunchAttributeID_enum::CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT
        );
        // Either value begins with the event.
        let value = core::mem::offset_of!(CUlaunchAttribute, value);
        is_recorded.then(|| member(at, value))?
    };
    let count = if attributes == 0 { 0 } else { count };
    let events: Vec<u64> = (0..count.min(MOST_ATTRIBUTES)).filter_map(event).collect();
    if !events.is_empty() {
        followed_work::forget_events(&events);
    }
}

/// Compares the host memory that a launch can reach.
#[cold]
pub(super) fn look_at_host_memory(thread: &Thread, frame: &Frame, op: LaunchOp) {
    let _errno = Errno::keep();
    for kernel in kernels(frame, op) {
        if let Some(stream) = kernel.stream {
            let words = parameter_words(&kernel);
            host_memory::before_launch(thread, frame, stream, words.as_deref());
        }
    }
}

/// The 8-byte words of the parameters of all kernels of a launch; `None` if some are not known.
pub(super) fn words_of_kernels(frame: &Frame, op: LaunchOp) -> Option<Vec<u64>> {
    let mut words = None;
    for kernel in kernels(frame, op) {
        words
            .get_or_insert_with(Vec::new)
            .extend(parameter_words(&kernel)?);
    }
    words
}

/// The same for the parameters of a kernel node.
pub(super) fn words_of_node(function: u64, array: u64, extra: u64) -> Option<Vec<u64>> {
    parameter_words(&Kernel {
        function,
        array,
        position: 0,
        extra,
        extra_position: 0,
        stream: None,
    })
}

/// Writes how a kernel takes its parameters, before its first launch.
pub(super) fn note_layout(thread: &Thread, function: u64) {
    let Some(layout) = functions::take_unnoted_layout(function) else {
        return;
    };
    let head = LayoutNote {
        handle: function,
        count: layout.parameters().len() as u32,
    };
    thread.note(note_kind::LAYOUT, |draft| {
        draft.put_encoded(head)?;
        for &(offset, size) in layout.parameters() {
            draft.put_number(offset.into(), 4)?;
            draft.put_number(size.into(), 4)?;
        }
        Some(())
    });
}

/// Writes the parameters that an array of pointers leads to. Returns whether one of them may point
/// into host memory that the device can access, or they are not known.
pub(super) fn put_parameters(
    draft: &mut Draft<'_>,
    position: u8,
    function: u64,
    array: u64,
) -> Option<bool> {
    if array == 0 {
        return Some(host_memory::may_reach(core::iter::empty()));
    }
    let Some((layout, is_alive)) = functions::layout(function).filter(|_| array >= LOWEST_ADDRESS)
    else {
        snapshot::unreadable(draft, position, field::KERNEL_PARAMETERS)?;
        return Some(true);
    };
    let mut may_reach = true;
    draft.put_snapshot_loosely(
        position,
        field::KERNEL_PARAMETERS,
        layout.length(),
        |target| {
            pack(layout, is_alive, array, target)?;
            may_reach = host_memory::may_reach(words(target.get(..layout.length())?));
            Some(0)
        },
    )?;
    Some(may_reach)
}

/// Packs parameters into a target that is `Record::SLACK` bytes longer. `None` if they cannot be
/// read.
fn pack(layout: &ParameterLayout, is_alive: bool, array: u64, target: &mut [u8]) -> Option<()> {
    if is_alive {
        // SAFETY: the driver reads as many pointers from the array, and as many bytes behind each,
        // in this very call.
        return unsafe { layout.pack(array, target) };
    }
    // The driver will refuse the launch without a look at the parameters, so they need not be
    // readable.
    target.fill(0);
    for (index, &(offset, size)) in (0..).zip(layout.parameters()) {
        let source = memory::word(array.wrapping_add(index * 8))?;
        let place = target
            .get_mut(offset as usize..)?
            .get_mut(..size as usize)?;
        if !memory::read_all(source, place) {
            return None;
        }
    }
    Some(())
}

/// Writes an `extra` array and the buffer that it names.
pub(super) fn put_extra(draft: &mut Draft<'_>, position: u8, array: u64) -> Option<()> {
    if array == 0 {
        return Some(());
    }
    let extra = Extra::read(array);
    let bytes: Vec<u8> = extra
        .words
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    snapshot::own(draft, position, field::EXTRA, &bytes)?;
    if let Some((buffer, size)) = extra.buffer {
        snapshot::bytes(draft, position, field::KERNEL_PARAMETERS, buffer, size)?;
    }
    Some(())
}

/// An `extra` array, as far as it can be read.
struct Extra {
    words: Vec<u64>,
    /// Address and size of the buffer that it names.
    buffer: Option<(u64, u64)>,
}

impl Extra {
    fn read(array: u64) -> Self {
        let mut words = Vec::new();
        let (mut buffer, mut size) = (None, None);
        let mut unread = (0..).map_while(|index: u64| memory::word(array.wrapping_add(index * 8)));
        while words.len() + 1 < MOST_EXTRA
            && let Some(mark) = unread.next()
        {
            words.push(mark);
            if mark == END {
                break;
            }
            let Some(value) = unread.next() else {
                break;
            };
            words.push(value);
            match mark {
                BUFFER_POINTER => buffer = Some(value),
                BUFFER_SIZE => size = memory::word(value),
                _ => {}
            }
        }
        Self {
            words,
            buffer: buffer.zip(size),
        }
    }
}

/// Writes the `CUlaunchConfig` of a launch and its attributes.
fn put_config(draft: &mut Draft<'_>, frame: &Frame, position: u8) -> Option<()> {
    let address = frame.word(position);
    if address == 0 {
        return Some(());
    }
    if address < LOWEST_ADDRESS {
        return snapshot::unreadable(draft, position, field::POINTEE);
    }
    let mut config = [0u8; size_of::<CUlaunchConfig>()];
    // SAFETY: the driver reads the struct in this very call.
    unsafe {
        core::ptr::copy_nonoverlapping(address as *const u8, config.as_mut_ptr(), config.len());
    }
    snapshot::own(draft, position, field::POINTEE, &config)?;
    put_attributes(draft, position, &config, true)
}

/// Writes the attributes of the `CUlaunchConfig` of a query; the struct itself is written by its
/// role.
pub(super) fn put_attributes_of(draft: &mut Draft<'_>, frame: &Frame, position: u8) -> Option<()> {
    let mut config = [0u8; size_of::<CUlaunchConfig>()];
    let address = frame.word(position);
    if address == 0 || !memory::read_all(address, &mut config) {
        return Some(());
    }
    put_attributes(draft, position, &config, false)
}

/// Writes the attributes that a configuration points at. `is_launched`: the driver reads them in
/// this very call.
fn put_attributes(
    draft: &mut Draft<'_>,
    position: u8,
    config: &[u8; size_of::<CUlaunchConfig>()],
    is_launched: bool,
) -> Option<()> {
    // SAFETY: the struct holds integers and raw pointers, so any bytes make one.
    let config: CUlaunchConfig =
        unsafe { config.as_ptr().cast::<CUlaunchConfig>().read_unaligned() };
    let (attributes, count) = (config.attrs as u64, u64::from(config.numAttrs));
    if attributes == 0 || count == 0 {
        return Some(());
    }
    let length = count.min(MOST_ATTRIBUTES) * size_of::<CUlaunchAttribute>() as u64;
    if is_launched && attributes >= LOWEST_ADDRESS && count <= USUAL_ATTRIBUTES {
        return draft.put_snapshot(position, field::ATTRIBUTES, length as usize, |target| {
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
    snapshot::bytes(draft, position, field::ATTRIBUTES, attributes, length)
}

/// The 8-byte words of a kernel's parameters; `None` if these are not known.
fn parameter_words(kernel: &Kernel) -> Option<Vec<u64>> {
    let mut bytes = Vec::new();
    if kernel.array != 0 {
        let (layout, is_alive) =
            functions::layout(kernel.function).filter(|_| kernel.array >= LOWEST_ADDRESS)?;
        bytes.resize(layout.length() + cutape_format::write::Record::SLACK, 0);
        pack(layout, is_alive, kernel.array, &mut bytes)?;
        bytes.truncate(layout.length());
    } else if kernel.extra != 0 {
        let (address, size) = Extra::read(kernel.extra).buffer?;
        let size = usize::try_from(size).ok()?;
        if size > MOST_BUFFER {
            return None;
        }
        bytes.resize(size, 0);
        if !memory::read_all(address, &mut bytes) {
            return None;
        }
    }
    Some(words(&bytes).collect())
}
