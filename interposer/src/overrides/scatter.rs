//! Queries whose answers go to as many places as there are questions.

use cutape_format::layout::field;
use cutape_format::write::Record;
use cutape_registry::{FUNCTIONS, Role, id};

use crate::call::Frame;
use crate::{memory, snapshot};

/// Which query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Query {
    /// `cuPointerGetAttributes(numAttributes, attributes, data, ptr)`: the attribute tells how long an answer is.
    Pointer,
    /// `cuMemRangeGetAttributes(data, dataSizes, attributes, numAttributes, devPtr, count)`.
    Range,
}

/// More questions in one call are not looked at: there are not so many attributes.
const MOST_QUESTIONS: u64 = 64;
/// Bytes of all answers together; the longest is a list of devices.
const MOST_BYTES: usize = 4096;

/// Puts the answers of a successful call, one after the other.
pub(super) fn after(record: &mut Record<'_>, frame: &Frame, query: Query) -> Option<()> {
    if frame.result as i32 != 0 {
        return Some(());
    }
    let (data, count) = match query {
        Query::Pointer => (2, u64::from(frame.words[0] as u32)),
        Query::Range => (0, frame.words[3]),
    };
    let mut answers = [0u8; MOST_BYTES];
    let mut used = 0;
    for index in 0..count.min(MOST_QUESTIONS) {
        let length = match query {
            Query::Pointer => pointer_attribute(frame.words[1], index),
            Query::Range => memory::word(frame.words[1].wrapping_add(8 * index)),
        };
        let target = memory::word(frame.words[data].wrapping_add(8 * index));
        let (Some(length), Some(target)) = (length, target) else {
            return snapshot::unreadable(record, data as u8, field::HOST_BYTES);
        };
        let place = usize::try_from(length)
            .ok()
            .and_then(|length| answers.get_mut(used..)?.get_mut(..length));
        let Some(place) = place else {
            return snapshot::unreadable(record, data as u8, field::HOST_BYTES);
        };
        if !memory::read_all(target, place) {
            return snapshot::unreadable(record, data as u8, field::HOST_BYTES);
        }
        used += place.len();
    }
    snapshot::own(record, data as u8, field::HOST_BYTES, answers.get(..used)?)
}

/// Bytes of the answer to one question; 0 for an attribute that this build does not know.
fn pointer_attribute(attributes: u64, index: u64) -> Option<u64> {
    let mut number = [0; 4];
    if !memory::read_all(attributes.wrapping_add(4 * index), &mut number) {
        return None;
    }
    let Role::Out(types) = FUNCTIONS[id::cuPointerGetAttribute as usize].params[0].role else {
        return Some(0);
    };
    let known = types.attribute_type(u64::from(u32::from_le_bytes(number)));
    Some(known.map_or(0, |known| u64::from(known.bytes)))
}
