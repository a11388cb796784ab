//! Which functions are alive: only those may be asked for their parameters.

use cutape_registry::{FunctionOp, id};

use crate::hot::frame::Frame;
use crate::hot::functions::{self, Owner};
use crate::process::memory;
use crate::{driver, host_memory};

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
        | FunctionOp::SetCacheConfig => {}
    }
}

fn found_one(frame: &Frame, output: u8, is_kernel: bool, owner: u64) {
    let place = frame.word(output);
    if place != 0 {
        // SAFETY: the driver has just written a handle there.
        let handle = unsafe { (place as *const u64).read_unaligned() };
        functions::add(handle, is_kernel, owner);
    }
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
    host_memory::context_ended(frame.word(0), frame.succeeded());
    if frame.succeeded() {
        functions::end(Owner::Context(frame.word(0)));
    }
}

/// After a primary context was released or reset. It has ended if it is not active any more.
pub(super) fn primary_context_ended(frame: &Frame) {
    let (mut flags, mut active) = (0u32, 0i32);
    let words = [
        frame.word(0),
        (&raw mut flags) as u64,
        (&raw mut active) as u64,
        0,
    ];
    // SAFETY: both outputs are valid for writing an int.
    let answer = unsafe { driver::call(id::cuDevicePrimaryCtxGetState, words) };
    if frame.succeeded() && answer == Some(0) && active == 0 {
        functions::end(Owner::AnyContext);
        host_memory::forget_all();
    }
}
