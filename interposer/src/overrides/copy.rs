//! Copies whose host side the roles cannot describe: those that a struct describes, and those that
//! tell host from device by the address.

use cutape_format::layout::field;
use cutape_registry::{CopyOp, CopyShape};

use super::batch;
use super::visitor::Visitor;
use crate::described_copy::{Copy, End};
use crate::file::rows::Rows;
use crate::host_memory::{self, Access, Operand};
use crate::hot::frame::Frame;
use crate::hot::recording::Direction;
use crate::hot::thread::{Draft, Thread};
use crate::queries::is_host;
use crate::{async_readback, snapshot};

pub(super) fn visit<V: Visitor>(visitor: V, op: CopyOp) -> V {
    match op {
        CopyOp::Linear(_) | CopyOp::Peer(_) => visitor,
        CopyOp::Described(shape) => visit_sides(visitor, op).pre_call(move |thread, frame| {
            if host_memory::any() {
                let operands = operands(frame, shape).into_iter();
                host_memory::before_operands(thread, frame, operands);
            }
        }),
        CopyOp::Unified(_) => visit_sides(visitor, op),
        CopyOp::Batch { .. } | CopyOp::Batch3D { .. } => visitor
            .put_pre_call(move |draft, frame| batch::put_sources(draft, frame, op))
            .pre_call(move |thread, frame| {
                if host_memory::any() {
                    let operands = batch::operands(frame, op).into_iter();
                    host_memory::before_operands(thread, frame, operands);
                }
            })
            .post_call(move |thread, frame| batch::enqueued(thread, frame, op)),
    }
}

/// For a copy of one source and one target.
fn visit_sides<V: Visitor>(visitor: V, op: CopyOp) -> V {
    visitor
        .put_pre_call(move |draft, frame| put_source(draft, frame, op))
        .post_call(move |thread, frame| enqueued(thread, frame, op))
        .put_post_call(move |draft, frame| put_target(draft, frame, op))
}

/// What a copy does on a side that is no array.
fn operand(copy: &Copy, end: End) -> Option<Operand> {
    let (start, is_of_host) = copy.start(end)?;
    let access = match end {
        // What it reads in host memory is recorded with it.
        End::Source if is_of_host => return None,
        End::Source => Access::Read,
        End::Target if is_of_host => Access::Readback(0),
        End::Target => Access::Write(0),
    };
    Some((start, access))
}

/// What a copy that a struct describes does to memory.
fn operands(frame: &Frame, shape: CopyShape) -> Vec<Operand> {
    let copy = Copy::read(frame.word(0), shape);
    let ends = [End::Source, End::Target].into_iter();
    ends.filter_map(|end| operand(copy.as_ref()?, end))
        .collect()
}

/// The host memory on one side of a call's copy, and the parameter that leads to it; `None` if that
/// side is not in host memory.
fn host_side(frame: &Frame, op: CopyOp, end: End) -> Option<(u8, Rows)> {
    match op {
        CopyOp::Described(shape) => {
            let copy = Copy::read(frame.word(0), shape)?;
            Some((0, copy.host_memory(end)?))
        }
        CopyOp::Unified(transfer) => {
            let parameter = match end {
                End::Source => transfer.source,
                End::Target => transfer.target,
            };
            let address = frame.word(parameter);
            let rows = || Rows::flat(address, frame.word(transfer.bytes));
            is_host(address).then(|| (parameter, rows()))
        }
        _ => None,
    }
}

fn put(draft: &mut Draft<'_>, side: Option<(u8, Rows)>, direction: Direction) -> Option<()> {
    side.map_or(Some(()), |(parameter, rows)| {
        snapshot::payload(draft, parameter, field::HOST_BYTES, &rows, direction)
    })
}

/// Writes the bytes of host memory that is read, if there is any.
fn put_source(draft: &mut Draft<'_>, frame: &Frame, op: CopyOp) -> Option<()> {
    let side = host_side(frame, op, End::Source);
    put(draft, side, Direction::ToDevice)
}

/// Adds a readback for host memory that is written, if the copy is asynchronous.
fn enqueued(thread: &Thread, frame: &mut Frame, op: CopyOp) {
    if frame.description().stream.is_some() {
        let side = host_side(frame, op, End::Target);
        let (parameter, rows) = side.map_or((0, None), |(parameter, rows)| (parameter, Some(rows)));
        async_readback::add_only(thread, frame, parameter, field::HOST_BYTES, rows);
    }
}

/// Writes the bytes of host memory that was written, if the call has succeeded and the copy is
/// complete.
fn put_target(draft: &mut Draft<'_>, frame: &Frame, op: CopyOp) -> Option<()> {
    if !frame.succeeded() || !frame.has_copied() {
        return Some(());
    }
    let side = host_side(frame, op, End::Target);
    put(draft, side, Direction::FromDevice)
}
