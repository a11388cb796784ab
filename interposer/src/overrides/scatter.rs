//! Queries for several attributes, each with a pointer to where its value goes.

use cutape_format::layout::field;
use cutape_registry::{FUNCTIONS, PointerOp, Role, id};

use super::visitor::Visitor;
use crate::hot::frame::Frame;
use crate::hot::thread::Draft;
use crate::process::memory;
use crate::snapshot;

/// Further questions of one call are ignored: there are fewer attributes.
const MOST_QUESTIONS: u64 = 64;
/// Bytes of all answers together; the longest is a list of devices.
const MOST_BYTES: usize = 4096;

pub(super) fn visit<V: Visitor>(visitor: V, op: PointerOp) -> V {
    match op {
        PointerOp::Attributes { .. } | PointerOp::RangeAttributes { .. } => {
            visitor.put_post_call(move |draft, frame| put_answers(draft, frame, op))
        }
        PointerOp::Attribute | PointerOp::SetAttribute | PointerOp::RangeAttribute => visitor,
    }
}

/// Writes the answers of a successful call, one after the other.
fn put_answers(draft: &mut Draft<'_>, frame: &Frame, op: PointerOp) -> Option<()> {
    if !frame.succeeded() {
        return Some(());
    }
    let element = |array: u8, index: u64| memory::word(frame.word(array).wrapping_add(8 * index));
    let (data, answers) = match op {
        PointerOp::Attributes {
            count,
            attributes,
            data,
        } => {
            let length = |index| pointer_attribute(frame.word(attributes), index);
            let count = u64::from(frame.word(count) as u32);
            (data, answers(count, length, |index| element(data, index)))
        }
        PointerOp::RangeAttributes {
            count, data, sizes, ..
        } => {
            let length = |index| element(sizes, index);
            let count = frame.word(count);
            (data, answers(count, length, |index| element(data, index)))
        }
        PointerOp::Attribute | PointerOp::SetAttribute | PointerOp::RangeAttribute => {
            return Some(());
        }
    };
    match answers {
        Some(answers) => snapshot::own(draft, data, field::HOST_BYTES, &answers),
        None => snapshot::unreadable(draft, data, field::HOST_BYTES),
    }
}

/// The answers, given how long each is and where it was written; `None` if one cannot be read.
fn answers(
    count: u64,
    length: impl Fn(u64) -> Option<u64>,
    address: impl Fn(u64) -> Option<u64>,
) -> Option<Vec<u8>> {
    let mut answers = Vec::new();
    for index in 0..count.min(MOST_QUESTIONS) {
        let (length, address) = (length(index)?, address(index)?);
        let start = answers.len();
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        if end > MOST_BYTES {
            return None;
        }
        answers.resize(end, 0);
        if !memory::read_all(address, answers.get_mut(start..)?) {
            return None;
        }
    }
    Some(answers)
}

/// Bytes of the value of an attribute; 0 for one that this build does not know.
fn pointer_attribute(attributes: u64, index: u64) -> Option<u64> {
    let mut number = [0; 4];
    if !memory::read_all(attributes.wrapping_add(4 * index), &mut number) {
        return None;
    }
    let query = FUNCTIONS.get(usize::from(id::cuPointerGetAttribute))?;
    let Role::Out(types) = query.params.first()?.role else {
        return Some(0);
    };
    let known = types.attribute_type(u64::from(u32::from_le_bytes(number)));
    Some(known.map_or(0, |known| u64::from(known.bytes)))
}
