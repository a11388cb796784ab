//! What the registry's roles cannot say: one file for each subject, named as on the replaying side
//! if that has code for it.
//!
//! A call runs these hooks, in this order; `hooks` says which families have code for which of them:
//!
//! | hook | runs |
//! |---|---|
//! | `put_pre_call` | while the enter record is written |
//! | `pre_call` | between the enter record and the driver |
//! | `post_call` | between the driver and the leave record, if the call succeeded |
//! | `put_post_call` | while the leave record is written |
//! | `finish_call` | after the leave record |

mod batch;
pub(crate) mod copy;
mod entry_point;
mod graph;
mod graph_copies;
pub(crate) mod hooks;
mod image;
mod jit_options;
pub(crate) mod launch;
mod lifetime;
mod link;
mod origin;
mod scatter;
mod sharing;

use cutape_registry::{
    ContextOp, CopyOp, Family, FunctionOp, GraphOp, HostMemoryOp, LinkOp, MemoryOp, OccupancyOp,
    PrimaryOp, StreamMemoryOp, StreamOp,
};

use crate::contexts;
use crate::digests::{self, step::DigestStep};
use crate::exchanges::{self, step::ExchangeStep};
use crate::file::identity;
use crate::host_memory::{self, Which};
use crate::hot::frame::Frame;
use crate::hot::plan::Plan;
use crate::hot::thread::{Draft, Thread};
use crate::loaded::{address_space, maps};
use crate::queries::{Freed, freed_at};
use crate::{async_readback, device_work, driver_log, followed_work};

/// In a forked child: objects of the parent are not this process's.
pub(crate) fn forget() {
    link::forget();
    graph_copies::forget();
    address_space::forget();
}

/// Writes what the override snapshots before the call.
pub(crate) fn put_pre_call(draft: &mut Draft<'_>, frame: &Frame, plan: &Plan) -> Option<()> {
    match plan.family {
        Family::ModuleLoad(load) | Family::LibraryLoad(load) => image::put_load(draft, frame, load),
        Family::Link(op) => link::put_pre_call(draft, frame, op),
        Family::Copy(op @ (CopyOp::Batch { .. } | CopyOp::Batch3D { .. })) => {
            batch::put_sources(draft, frame, op)
        }
        Family::Copy(op @ (CopyOp::Described(_) | CopyOp::Unified(_))) => {
            copy::put_source(draft, frame, op)
        }
        Family::Graph(GraphOp::Launch) => graph::put_launch(draft, frame),
        Family::Sharing(op) => sharing::put_import(draft, frame, op),
        Family::Occupancy(OccupancyOp::Config { config, .. }) => {
            launch::put_attributes_of(draft, frame, config)
        }
        _ => Some(()),
    }
}

/// Runs between the enter record and the driver.
pub(crate) fn pre_call(thread: &Thread, frame: &mut Frame, plan: &Plan) {
    if plan.family.may_reserve_addresses() {
        address_space::before(thread, frame, plan.family);
    }
    match plan.family {
        Family::Launch(op) => launch::pre_call(thread, frame, op),
        Family::Init
        | Family::Context(ContextOp::Create)
        | Family::PrimaryContext(PrimaryOp::Retain) => {
            address_space::before(thread, frame, plan.family);
        }
        Family::ModuleUnload | Family::LibraryUnload => lifetime::ending(frame),
        Family::Graph(GraphOp::Launch) => {
            if followed_work::any() {
                followed_work::forget_events(&graph_copies::events(frame.word(0)));
            }
            // Which memory the kernels of a graph reach is not known: their parameters may change
            // in many calls.
            if host_memory::any() {
                host_memory::before_launch(thread, frame, frame.word(1), None);
            }
        }
        Family::Graph(op) => graph::pre_call(thread, frame, op),
        Family::Plain => graph::pre_plain_call(frame),
        Family::Sharing(op) => sharing::pre_call(thread, frame, op),
        Family::Memory(MemoryOp::Free)
        | Family::HostMemory(HostMemoryOp::Free | HostMemoryOp::Unregister) => {
            let address = frame.word(0);
            let freed = match followed_work::any() {
                true => freed_at(address),
                false => Freed::default(),
            };
            frame.set_waits_for_context(freed.context);
            async_readback::memory_ends(address, freed.length);
            host_memory::ending(Which::At(address));
        }
        Family::Context(ContextOp::Destroy) => {
            host_memory::ending(Which::OfContext(frame.word(0)));
        }
        Family::PrimaryContext(PrimaryOp::Release | PrimaryOp::Reset) => {
            host_memory::ending(Which::OfPrimary(frame.word(0)));
        }
        Family::ModuleLoad(load) | Family::LibraryLoad(load) => {
            jit_options::save_log_lengths(frame, load.options);
        }
        Family::Link(
            LinkOp::Create { options, .. }
            | LinkOp::AddData { options, .. }
            | LinkOp::AddFile { options, .. },
        ) => jit_options::save_log_lengths(frame, Some(options)),
        Family::Copy(op) if host_memory::any() => {
            let operands = match op {
                CopyOp::Described(shape) => copy::operands(frame, shape),
                CopyOp::Batch { .. } | CopyOp::Batch3D { .. } => batch::operands(frame, op),
                CopyOp::Linear(_) | CopyOp::Peer(_) | CopyOp::Unified(_) => Vec::new(),
            };
            host_memory::before_operands(thread, frame, operands.into_iter());
        }
        Family::StreamMemory(StreamMemoryOp::Batch) if host_memory::any() => {
            let operands = batch::memory_operations(frame);
            host_memory::before_operands(thread, frame, operands.into_iter());
        }
        _ => {}
    }
    if plan.operands != 0 && host_memory::any() {
        host_memory::before_arguments(thread, frame);
    }
    if plan.has_steps {
        steps_before(thread, frame, plan);
    }
}

/// What digests and outputs of exchanges do before a call.
#[cold]
fn steps_before(thread: &Thread, frame: &Frame, plan: &Plan) {
    if plan.digests != DigestStep::Nothing {
        digests::pre_call(thread, frame, plan.digests);
    }
    if plan.exchanges != ExchangeStep::Nothing {
        let words = match plan.family {
            Family::Launch(op) => launch::words_of_kernels(frame, op),
            _ => None,
        };
        exchanges::pre_call(thread, frame, plan.exchanges, words);
    }
}

/// The same after it.
#[cold]
fn steps_after(thread: &Thread, frame: &Frame, plan: &Plan) {
    // The copies first: they belong to the call's work.
    if plan.exchanges != ExchangeStep::Nothing {
        exchanges::post_call(thread, frame, plan.exchanges);
    }
    if plan.digests != DigestStep::Nothing {
        let words = match plan.family {
            Family::Launch(op) => launch::words_of_kernels(frame, op),
            _ => Some(device_work::operands(frame)),
        };
        digests::post_call(thread, frame, plan.digests, words);
    }
}

/// Compares the host memory that a launch can reach.
pub(crate) fn look_at_host_memory(thread: &Thread, frame: &Frame, plan: &Plan) {
    if let Family::Launch(op) = plan.family {
        launch::look_at_host_memory(thread, frame, op);
    }
}

/// Runs between the driver and the leave record.
pub(crate) fn post_call(thread: &Thread, frame: &mut Frame, plan: &Plan) {
    if plan.has_steps {
        steps_after(thread, frame, plan);
    }
    if !frame.succeeded() {
        return;
    }
    match plan.family {
        Family::Init => {
            identity::write_devices();
            driver_log::register();
        }
        Family::Graph(op) => graph::post_call(thread, frame, op),
        Family::Copy(op @ (CopyOp::Batch { .. } | CopyOp::Batch3D { .. })) => {
            batch::enqueued(thread, frame, op);
        }
        Family::Copy(op @ (CopyOp::Described(_) | CopyOp::Unified(_))) => {
            copy::enqueued(thread, frame, op);
        }
        Family::ModuleLoad(_) | Family::LibraryLoad(_) => maps::write_if_changed(),
        Family::Sharing(op) => sharing::post_call(thread, frame, op),
        Family::HostMemory(HostMemoryOp::Register) => sharing::registered(thread, frame),
        Family::ProcAddress { name, address } => {
            entry_point::note_unknown(thread, frame, name, address);
        }
        // A launch traces its function before the call; a new function is noted by `finish_call`.
        Family::Launch(_) | Family::Function(FunctionOp::OfKernel { .. }) => {}
        _ if plan.awaits_copy => async_readback::add_by_roles(thread, frame),
        _ => {
            if let Some(at) = plan.function {
                origin::used(thread, frame.word(at));
            }
        }
    }
}

/// Writes what the override snapshots after the call, whatever its result.
pub(crate) fn put_post_call(draft: &mut Draft<'_>, frame: &Frame, plan: &Plan) -> Option<()> {
    match plan.family {
        Family::ModuleLoad(load) | Family::LibraryLoad(load) => {
            jit_options::put_post_call(draft, frame, load.options)
        }
        Family::Link(op) => link::put_post_call(draft, frame, op),
        Family::Copy(op @ (CopyOp::Described(_) | CopyOp::Unified(_))) => {
            copy::put_target(draft, frame, op)
        }
        Family::Pointer(op) => scatter::put_answers(draft, frame, op),
        Family::ProcAddress { address, .. } => entry_point::put_address(draft, frame, address),
        Family::Stream(StreamOp::CaptureInfo { status }) => {
            graph::put_capture_info(draft, frame, status)
        }
        Family::Graph(op) => graph::put_post_call(draft, frame, op),
        _ => Some(()),
    }
}

/// Runs when the leave record is written, just before the program continues.
pub(crate) fn finish_call(frame: &mut Frame, plan: &Plan) {
    let succeeded = frame.succeeded();
    match plan.family {
        Family::Function(op) => lifetime::found(frame, op, false),
        Family::Kernel(op) => lifetime::found(frame, op, true),
        Family::HostMemory(HostMemoryOp::Allocate) => {
            contexts::known_current();
            host_memory::created(frame, host_memory::Origin::Allocated);
        }
        Family::HostMemory(HostMemoryOp::Register) => {
            contexts::known_current();
            host_memory::created(frame, host_memory::Origin::Registered);
        }
        Family::Memory(MemoryOp::AllocateManaged) => {
            contexts::known_current();
            host_memory::created(frame, host_memory::Origin::Managed);
        }
        Family::HostMemory(HostMemoryOp::Free | HostMemoryOp::Unregister)
        | Family::Memory(MemoryOp::Free) => {
            host_memory::ended(Which::At(frame.word(0)), succeeded);
        }
        Family::Context(ContextOp::Create) => lifetime::context_returned(frame, None),
        Family::PrimaryContext(PrimaryOp::Retain) => {
            lifetime::context_returned(frame, Some(frame.word(1)));
        }
        Family::Context(ContextOp::Destroy) => lifetime::context_ended(frame),
        Family::PrimaryContext(PrimaryOp::Release | PrimaryOp::Reset) => {
            lifetime::primary_context_ended(frame);
        }
        Family::ModuleUnload | Family::LibraryUnload => lifetime::ended(frame),
        Family::Link(LinkOp::Create { options, output }) => link::created(frame, options, output),
        Family::Link(LinkOp::Destroy) => link::destroyed(frame),
        Family::ProcAddress { address, .. } => entry_point::replace(frame, address),
        Family::Sharing(op) => sharing::finish(frame, op),
        _ => {}
    }
}
