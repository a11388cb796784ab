//! What calls enqueue and allocate: the facts that the recorder needs to enqueue work of its own.

use cutape_driver::types::CUmemAccessDesc;
use cutape_registry::{Family, LaunchOp, Length, MemoryOp, Role, canonical_stream, id};

use crate::driver;
use crate::hot::frame::Frame;
use crate::process::memory;
use crate::queries::{current_context, current_device};

/// Bytes of a struct whose words may be addresses.
const MOST_STRUCT: u32 = 512;

/// Does something while a context is current.
pub(crate) fn in_context(context: u64, act: impl FnOnce()) {
    if current_context() == context {
        return act();
    }
    // SAFETY: a context of the driver's; the pop writes a handle.
    unsafe {
        if driver::call(id::cuCtxPushCurrent_v2, [context, 0, 0, 0]) == Some(0) {
            act();
            let mut popped = 0_u64;
            let popped = (&raw mut popped) as u64;
            let _ = driver::call(id::cuCtxPopCurrent_v2, [popped, 0, 0, 0]);
        }
    }
}

/// The stream of a call that enqueues work; `None` if it cannot be read.
pub(crate) fn stream_of(frame: &Frame) -> Option<u64> {
    let function = frame.description();
    let stream = match function.family {
        Family::Launch(LaunchOp::Config(launch)) => {
            let offset = core::mem::offset_of!(cutape_driver::types::CUlaunchConfig, hStream);
            memory::word(frame.word(launch.config).checked_add(offset as u64)?)?
        }
        _ => function.stream.map_or(0, |at| frame.word(at)),
    };
    Some(canonical_stream(stream, function.per_thread))
}

/// Address and length of what a call has allocated.
pub(crate) fn allocated(frame: &Frame) -> Option<(u64, u64)> {
    let function = frame.description();
    let start = memory::word(frame.word(0))?;
    let length = match function.family {
        Family::Memory(MemoryOp::AllocatePitch { pitch }) => {
            const HEIGHT: u8 = 3;
            memory::word(frame.word(pitch))?.checked_mul(frame.word(HEIGHT))?
        }
        _ => match function.size? {
            Length::Param(at) => frame.word(at),
            _ => return None,
        },
    };
    Some((start, length))
}

/// What a call that enqueues work names: operands and members of structs.
pub(crate) fn operands(frame: &Frame) -> Vec<u64> {
    let mut named = Vec::new();
    for (parameter, &word) in frame.description().params.iter().zip(&frame.words) {
        match parameter.role {
            Role::DeviceRead(_) | Role::DeviceWrite(_) => named.push(word),
            Role::In(Length::Fixed(bytes)) if bytes <= MOST_STRUCT && word != 0 => {
                let at = (0..u64::from(bytes)).step_by(8);
                named.extend(at.map_while(|at| memory::word(word.wrapping_add(at))));
            }
            _ => {}
        }
    }
    named
}

/// Whether a call that gives access to mapped memory lets the current device read and write it.
pub(crate) fn gives_access_here(frame: &Frame) -> bool {
    const READ_WRITE: u64 = 3;
    const DEVICE: u64 = 1;
    let [_, _, descriptions, count, ..] = frame.words;
    let Some(device) = current_device() else {
        return false;
    };
    (0..count.min(64)).any(|index| {
        let at = descriptions.wrapping_add(index * size_of::<CUmemAccessDesc>() as u64);
        // Type and number of the location, then the flags.
        let location = memory::word(at);
        let flags = memory::word(at.wrapping_add(4)).map(|word| word >> 32);
        location == Some(DEVICE | device << 32) && flags == Some(READ_WRITE)
    })
}
