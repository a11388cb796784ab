//! What calls create and end: contexts, functions and the memory that the host uses. Only functions
//! that are alive may be asked for their parameters.

use cutape_registry::{ContextOp, Family, FunctionOp, HostMemoryOp, MemoryOp, PrimaryOp};

use super::sharing;
use super::visitor::Visitor;
use crate::async_readback;
use crate::host_memory::{self, Origin, Which};
use crate::hot::frame::Frame;
use crate::process::memory;
use crate::queries::{Freed, freed_at};
use crate::state::functions::{self, Owner};
use crate::state::{contexts, followed_work};

pub(super) fn visit_context<V: Visitor>(visitor: V, family: Family) -> V {
    match family {
        Family::Context(ContextOp::Create) => {
            visitor.finish_call(|frame| context_returned(frame, None))
        }
        Family::PrimaryContext(PrimaryOp::Retain) => {
            visitor.finish_call(|frame| context_returned(frame, Some(frame.word(1))))
        }
        Family::Context(ContextOp::Destroy) => visitor
            .pre_call(|_, frame| host_memory::ending(Which::OfContext(frame.word(0))))
            .finish_call(|frame| context_ended(frame)),
        Family::PrimaryContext(PrimaryOp::Release | PrimaryOp::Reset) => visitor
            .pre_call(|_, frame| host_memory::ending(Which::OfPrimary(frame.word(0))))
            .finish_call(|frame| primary_context_ended(frame)),
        _ => visitor,
    }
}

pub(super) fn visit_unload<V: Visitor>(visitor: V) -> V {
    visitor
        .pre_call(|_, frame| ending(frame))
        .finish_call(|frame| ended(frame))
}

pub(super) fn visit_functions<V: Visitor>(visitor: V, op: FunctionOp, is_kernel: bool) -> V {
    match op {
        FunctionOp::Find { output, owner, .. } => {
            visitor.finish_call(move |frame| found_one(frame, output, is_kernel, frame.word(owner)))
        }
        // The function of a kernel belongs to the kernel's library.
        FunctionOp::OfKernel { output, kernel } => visitor.finish_call(move |frame| {
            let owner = functions::owner_of(frame.word(kernel));
            found_one(frame, output, is_kernel, owner);
        }),
        FunctionOp::List {
            output,
            count,
            owner,
        } => visitor.finish_call(move |frame| {
            found_list(frame, [output, count, owner], is_kernel);
        }),
        FunctionOp::Count
        | FunctionOp::Name { .. }
        | FunctionOp::GetAttribute
        | FunctionOp::SetAttribute
        | FunctionOp::SetCacheConfig
        | FunctionOp::ParameterInfo
        | FunctionOp::SetLaunchState => visitor,
    }
}

pub(super) fn visit_memory<V: Visitor>(visitor: V, family: Family) -> V {
    match family {
        Family::HostMemory(HostMemoryOp::Allocate) => {
            visitor.finish_call(|frame| memory_created(frame, Origin::Allocated))
        }
        Family::HostMemory(HostMemoryOp::Register) => visitor
            .post_call(|thread, frame| sharing::registered(thread, frame))
            .finish_call(|frame| memory_created(frame, Origin::Registered)),
        Family::Memory(MemoryOp::AllocateManaged) => {
            visitor.finish_call(|frame| memory_created(frame, Origin::Managed))
        }
        Family::Memory(MemoryOp::Free)
        | Family::HostMemory(HostMemoryOp::Free | HostMemoryOp::Unregister) => visitor
            .pre_call(|_, frame| memory_ending(frame))
            .finish_call(|frame| {
                host_memory::ended(Which::At(frame.word(0)), frame.succeeded());
            }),
        _ => visitor,
    }
}

/// After a call that may have made memory which the host uses.
fn memory_created(frame: &Frame, origin: Origin) {
    contexts::known_current();
    host_memory::created(frame, origin);
}

/// Before memory is freed or unregistered.
fn memory_ending(frame: &mut Frame) {
    let address = frame.word(0);
    let freed = match followed_work::any() {
        true => freed_at(address),
        false => Freed::default(),
    };
    frame.set_waits_for_context(freed.context);
    async_readback::memory_ends(address, freed.length);
    host_memory::ending(Which::At(address));
}

/// After a call that may have returned several functions or kernels. The parameters are where they
/// are written, how many there are, and who owns them.
fn found_list(frame: &Frame, [output, count, owner]: [u8; 3], is_kernel: bool) {
    if !frame.succeeded() {
        return;
    }
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

/// After a call that may have returned a function or kernel.
fn found_one(frame: &Frame, output: u8, is_kernel: bool, owner: u64) {
    if frame.succeeded()
        && let Some(handle) = returned(frame, output)
    {
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
fn ending(frame: &Frame) {
    host_memory::ending(Which::OfOwner(frame.word(0)));
    functions::end(Owner::Module(frame.word(0)));
}

/// After the call that should have unloaded it.
fn ended(frame: &Frame) {
    host_memory::ended(Which::OfOwner(frame.word(0)), frame.succeeded());
    if !frame.succeeded() {
        functions::revive(frame.word(0));
    }
}

/// After a call that destroys a context, and all modules in it.
fn context_ended(frame: &Frame) {
    let which = Which::OfContext(frame.word(0));
    host_memory::ended(which, frame.succeeded());
    if frame.succeeded() {
        async_readback::contexts_ended(which);
        functions::end(Owner::Context(frame.word(0)));
        contexts::destroyed(frame.word(0));
    }
}

/// After a call that may have created a context, or retained the primary one of `device`.
fn context_returned(frame: &Frame, device: Option<u64>) {
    if let Some(context) = frame.succeeded().then(|| returned(frame, 0)).flatten() {
        match device {
            Some(device) => contexts::retained(context, device),
            None => contexts::created(context),
        }
    }
}

/// After a primary context was released or reset.
fn primary_context_ended(frame: &Frame) {
    let device = frame.word(0);
    let has_ended = frame.succeeded() && contexts::has_primary_ended(device);
    let which = Which::OfPrimary(device);
    host_memory::ended(which, has_ended);
    if has_ended {
        async_readback::contexts_ended(which);
        functions::end(Owner::Primary(device));
    }
}
