//! Links: inputs, options, and the linked cubin. The driver may write to the option arrays of
//! `cuLinkCreate` until the link state is destroyed, so they are recorded again at every step.

use cutape_format::layout::field;
use cutape_registry::{LinkOp, OptionArray};

use super::image;
use super::jit_options::{self, Logs, Options};
use super::visitor::Visitor;
use crate::hot::frame::Frame;
use crate::hot::thread::Draft;
use crate::process::memory;
use crate::process::process_lock::ProcessLock;
use crate::snapshot;

/// A cubin that claims to be longer is damaged.
const LONGEST_CUBIN: u64 = 4 << 30;

/// What the driver may write to while a link state lives.
struct State {
    handle: u64,
    values: u64,
    count: u64,
    logs: Logs,
}

static STATES: ProcessLock<Vec<State>> = ProcessLock::new();

/// In a forked child: the parent's states are not this process's.
pub(super) fn forget() {
    STATES.forget();
}

pub(super) fn visit<V: Visitor>(visitor: V, op: LinkOp) -> V {
    match op {
        LinkOp::Create { options, output } => jit_options::visit(visitor, options)
            .finish_call(move |frame| created(frame, options, output)),
        LinkOp::AddData {
            data,
            size,
            options,
        } => {
            let visitor = visitor
                .owns(1 << data)
                .put_pre_call(move |draft, frame| put_data(draft, frame, data, size));
            visit_state(jit_options::visit(visitor, options))
        }
        LinkOp::AddFile { path, options } => {
            let visitor = visitor.put_pre_call(move |draft, frame| image::file(draft, frame, path));
            visit_state(jit_options::visit(visitor, options))
        }
        LinkOp::Complete { cubin, size } => {
            let visitor =
                visitor.put_post_call(move |draft, frame| put_cubin(draft, frame, cubin, size));
            visit_state(visitor)
        }
        LinkOp::Destroy => visitor
            .put_pre_call(put_state_arrays)
            .finish_call(|frame| destroyed(frame)),
    }
}

/// At calls during the life of a state.
fn visit_state<V: Visitor>(visitor: V) -> V {
    visitor
        .put_pre_call(put_state_arrays)
        .put_post_call(put_state_arrays)
}

/// Adds the arrays of a new state.
fn created(frame: &Frame, array: OptionArray, output: u8) {
    if !frame.succeeded() || frame.word(output) == 0 {
        return;
    }
    let Some(options) = Options::read(frame, array) else {
        return;
    };
    let Some(handle) = memory::word(frame.word(output)) else {
        return;
    };
    let state = State {
        handle,
        values: frame.word(array.values),
        count: options.values.len() as u64,
        logs: options.saved_logs(frame),
    };
    let mut states = STATES.lock();
    states.retain(|other| other.handle != handle);
    states.push(state);
}

/// Forgets a state.
fn destroyed(frame: &Frame) {
    if frame.succeeded() {
        STATES.lock().retain(|state| state.handle != frame.word(0));
    }
}

/// Writes the input that the call is going to read.
fn put_data(draft: &mut Draft<'_>, frame: &Frame, data: u8, size: u8) -> Option<()> {
    let (address, length) = (frame.word(data), frame.word(size));
    if address == 0 {
        return Some(());
    }
    image::bytes(draft, data, field::POINTEE, address, length)?;
    // It shows whether a text ends in a NUL that its size leaves out.
    let behind = address.wrapping_add(length);
    snapshot::bytes(draft, data, field::BYTE_BEHIND, behind, 1)
}

fn put_cubin(draft: &mut Draft<'_>, frame: &Frame, cubin: u8, size: u8) -> Option<()> {
    if frame.succeeded()
        && let Some(address) = memory::word(frame.word(cubin)).filter(|&address| address != 0)
        && let Some(size) = memory::word(frame.word(size))
        && size <= LONGEST_CUBIN
    {
        snapshot::bytes(draft, cubin, field::FILE, address, size)?;
    }
    Some(())
}

/// Writes the arrays of the link state. The program may have freed them, a mistake that the trace
/// is to show.
fn put_state_arrays(draft: &mut Draft<'_>, frame: &Frame) -> Option<()> {
    let (values, count, logs) = {
        let states = STATES.lock();
        let Some(state) = states.iter().find(|state| state.handle == frame.word(0)) else {
            return Some(());
        };
        (state.values, state.count, state.logs)
    };
    snapshot::bytes(draft, 0, field::OPTION_VALUES, values, count * 8)?;
    jit_options::put_logs(draft, 0, logs)
}
