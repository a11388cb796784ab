//! Launches: writes the parameters of a kernel behind the enter record.
//!
//! Parameters are loaded as the driver is about to load them. That faults if a pointer is wild, so
//! the enter record is written first: the trace then shows the launch. The functions here handle a
//! kernel that is alive and whose layout the trace has; any other launch takes `overrides::launch`.

use cutape_driver::types::{CUlaunchAttribute, CUlaunchConfig};
use cutape_format::layout::{field, note_kind, record_kind};
use cutape_format::write::Record;
use cutape_registry::{FUNCTIONS, Family, LaunchConfig, LaunchOp, id};

use super::frame::Frame;
use super::kernel_parameters::{LOWEST_ADDRESS, ParameterLayout};
use super::plan::{EnterForm, LAUNCH, Plan};
use super::thread::Thread;
use crate::overrides;
use crate::state::{followed_work, functions};

#[allow(
    clippy::indexing_slicing,
    clippy::panic,
    reason = "evaluated when this is compiled"
)]
const LAUNCH_EX: LaunchConfig = match FUNCTIONS[id::cuLaunchKernelEx as usize].family {
    Family::Launch(LaunchOp::Config(launch)) => launch,
    _ => panic!("cuLaunchKernelEx is a launch with a configuration"),
};

/// No program was seen to pass more attributes. A greater count may be a mistake, and takes the
/// generic path, which reads memory in a way that cannot fault.
pub(crate) const USUAL_ATTRIBUTES: u64 = 16;

/// The parameters that were written last.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PackedParameters {
    bytes: *const u8,
    length: usize,
}

impl PackedParameters {
    const NONE: Self = Self {
        bytes: core::ptr::dangling(),
        length: 0,
    };

    /// Their whole words.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> + Clone {
        // SAFETY: they lie in this thread's buffer, to which nothing was written since.
        let bytes = unsafe { core::slice::from_raw_parts(self.bytes, self.length) };
        words(bytes)
    }
}

/// The whole words of a parameter buffer.
#[inline]
pub(crate) fn words(buffer: &[u8]) -> impl Iterator<Item = u64> + Clone {
    let (words, _) = buffer.as_chunks::<8>();
    words.iter().map(|word| u64::from_le_bytes(*word))
}

/// Packs parameters into a target that is `Record::SLACK` bytes longer.
#[inline(always)]
fn pack(layout: &ParameterLayout, array: u64, target: &mut [u8]) -> Option<PackedParameters> {
    // SAFETY: the driver reads as many pointers from the array, and as many bytes behind each, in
    // this very call.
    unsafe { layout.pack(array, target) }?;
    Some(PackedParameters {
        bytes: target.as_ptr(),
        length: layout.length(),
    })
}

/// Whether an array is one that the driver would look at, if it is one at all.
#[inline(always)]
fn is_plausible(array: u64) -> bool {
    array == 0 || array >= LOWEST_ADDRESS
}

/// Writes the parameters of `cuLaunchKernel` or `cuLaunchCooperativeKernel`. `None`, and nothing is
/// written, if the launch takes the generic path.
#[inline(always)]
pub(crate) fn write_parameters(
    thread: &Thread,
    frame: &Frame,
    plan: &Plan,
) -> Option<PackedParameters> {
    let array = frame.word(LAUNCH.parameters);
    let extra = LAUNCH.extra.map_or(0, |at| frame.word(at));
    let has_extra = plan.enter == EnterForm::Launch && extra != 0;
    if has_extra || !is_plausible(array) {
        return None;
    }
    let layout = functions::noted_layout(frame.word(LAUNCH.function))?;
    if array == 0 {
        return Some(PackedParameters::NONE);
    }
    let mut packed = PackedParameters::NONE;
    let is_written = thread.try_write(|mut record: Record<'_>| {
        let target = record.put_loosely(layout.length())?;
        packed = pack(layout, array, target)?;
        record.commit_snapshot(LAUNCH.parameters, field::KERNEL_PARAMETERS)
    });
    is_written.then_some(packed)
}

/// Writes configuration, attributes and parameters of `cuLaunchKernelEx`. `None`, and nothing is
/// written, if the launch takes the generic path.
#[inline(always)]
pub(crate) fn write_parameters_ex(thread: &Thread, frame: &Frame) -> Option<PackedParameters> {
    const CONFIG_LENGTH: usize = size_of::<CUlaunchConfig>();
    const ATTRIBUTE_LENGTH: usize = size_of::<CUlaunchAttribute>();
    let config = frame.word(LAUNCH_EX.config);
    let array = frame.word(LAUNCH_EX.parameters);
    let extra = frame.word(LAUNCH_EX.extra);
    if config < LOWEST_ADDRESS || extra != 0 || !is_plausible(array) {
        return None;
    }
    let layout = functions::noted_layout(frame.word(LAUNCH_EX.function))?;
    let config = config as *const CUlaunchConfig;
    // SAFETY: the driver reads the struct in this very call.
    let (attributes, count) = unsafe {
        (
            (&raw const (*config).attrs).read_unaligned() as u64,
            (&raw const (*config).numAttrs).read_unaligned(),
        )
    };
    let has_attributes = attributes != 0 && count != 0;
    if has_attributes && (attributes < LOWEST_ADDRESS || u64::from(count) > USUAL_ATTRIBUTES) {
        return None;
    }
    let mut packed = PackedParameters::NONE;
    let is_written = thread.try_write(|mut record: Record<'_>| {
        record.put_snapshot(LAUNCH_EX.config, field::POINTEE, CONFIG_LENGTH, |target| {
            let target = target.first_chunk_mut::<CONFIG_LENGTH>()?;
            // SAFETY: the driver reads the struct in this very call.
            unsafe {
                core::ptr::copy_nonoverlapping(config.cast(), target.as_mut_ptr(), CONFIG_LENGTH);
            }
            Some(0)
        })?;
        if has_attributes {
            if followed_work::any() {
                overrides::launch::forget_recorded_events(frame, LAUNCH_EX.config);
            }
            let length = count as usize * ATTRIBUTE_LENGTH;
            record.put_snapshot(LAUNCH_EX.config, field::ATTRIBUTES, length, |target| {
                let mut source = attributes as *const [u8; ATTRIBUTE_LENGTH];
                for place in target.as_chunks_mut::<ATTRIBUTE_LENGTH>().0 {
                    // SAFETY: as for the configuration, which says how many there are.
                    unsafe {
                        *place = source.read();
                        source = source.add(1);
                    }
                }
                Some(0)
            })?;
        }
        if array != 0 {
            let mut is_packed = false;
            record.put_snapshot_loosely(
                LAUNCH_EX.parameters,
                field::KERNEL_PARAMETERS,
                layout.length(),
                |target| {
                    packed = pack(layout, array, target)?;
                    is_packed = true;
                    Some(0)
                },
            )?;
            is_packed.then_some(())?;
        }
        record.commit(record_kind::NOTE, note_kind::SNAPSHOTS)
    });
    is_written.then_some(packed)
}
