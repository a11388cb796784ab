//! Which functions are alive: only those may be asked for their parameters.

use cutape_registry::FunctionOp;

use crate::host_memory::{self, Which};
use crate::hot::frame::Frame;
use crate::hot::functions::{self, Owner};
use crate::process::memory;
use crate::{async_readback, contexts};

/// After a call that may have returned functions or kernels.
pub(super) fn found(frame: &Frame, op: FunctionOp, is_kernel: bool) {
    if !frame.succeeded() {
        return;
    }
    match op {
        FunctionOp::Find { output, owner, .. } => {
            found_one(frame, output, is_kernel, frame.word(owner));
        }
        // The function of a kernel belongs to the kernel's library.
        FunctionOp::OfKernel { output, kernel } => {
            found_one(
                frame,
                output,
                is_kernel,
                functions::owner_of(frame.word(kernel)),
            );
        }
        FunctionOp::List {
            output,
            count,
            owner,
        } => {
            let place = frame.word(output);
            let count = u64::from(frame.word(count) as u32);
            // Read in a way that cannot fault: the driver may have written fewer. A NULL ends them.
            let handles = (0..count)
                .map_while(|index| memory::word(place.wrapping_add(index * 8)))
                .take_while(|&handle| handle != 0);
            for handle in handles {
                functions::add(handle, is_kernel, frame.word(owner));
            }
        }
        FunctionOp::Count
        | FunctionOp::Name { .. }
        | FunctionOp::GetAttribute
        | FunctionOp::SetAttribute
        | FunctionOp::SetCacheConfig
        | FunctionOp::ParameterInfo
        | FunctionOp::SetLaunchState => {}
    }
}

fn found_one(frame: &Frame, output: u8, is_kernel: bool, owner: u64) {
    if let Some(handle) = returned(frame, output) {
        functions::add(handle, is_kernel, owner);
    }
}

/// The handle that a successful call has returned.
fn returned(frame: &Frame, output: u8) -> Option<u64> {
    let place = frame.word(output);
    // SAFETY: the driver has just written a handle there.
    (place != 0).then(|| unsafe { (place as *const u64).read_unaligned() })
}

/// Before a module or library is unloaded: the driver is not asked about its functions any more.
pub(super) fn ending(frame: &Frame) {
    functions::end(Owner::Module(frame.word(0)));
}

/// After the call that should have unloaded it.
pub(super) fn ended(frame: &Frame) {
    if !frame.succeeded() {
        functions::revive(frame.word(0));
    }
}

/// After a call that destroys a context, and all modules in it.
pub(super) fn context_ended(frame: &Frame) {
    let which = Which::OfContext(frame.word(0));
    host_memory::ended(which, frame.succeeded());
    if frame.succeeded() {
        async_readback::contexts_ended(which);
        functions::end(Owner::Context(frame.word(0)));
        contexts::destroyed(frame.word(0));
    }
}

/// After a call that may have created a context, or retained the primary one of `device`.
pub(super) fn context_returned(frame: &Frame, device: Option<u64>) {
    if let Some(context) = frame.succeeded().then(|| returned(frame, 0)).flatten() {
        match device {
            Some(device) => contexts::retained(context, device),
            None => contexts::created(context),
        }
    }
}

/// After a primary context was released or reset.
pub(super) fn primary_context_ended(frame: &Frame) {
    let device = frame.word(0);
    let has_ended = frame.succeeded() && contexts::has_primary_ended(device);
    let which = Which::OfPrimary(device);
    host_memory::ended(which, has_ended);
    if has_ended {
        async_readback::contexts_ended(which);
        functions::end(Owner::Primary(device));
    }
}
