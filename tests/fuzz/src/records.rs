//! Changes of the records of a chunk, which stay whole.

use std::ops::Range;

use cutape_format::layout::{RECORD_HEAD_LENGTH, RecordHead, record_kind};
use cutape_random::dice::Dice;

use crate::bytes::mutated;

/// Removes, repeats, exchanges or moves a record, or a call with all of its records, or copies a
/// number from one to another.
pub(crate) fn change_records(body: &mut Vec<u8>, dice: &mut Dice) {
    let ranges = match dice.one_in(2) {
        true => records(body).map(|(range, _)| range).collect(),
        false => calls(body),
    };
    if ranges.is_empty() {
        *body = mutated(body, dice);
        return;
    }
    let one = ranges[dice.below(ranges.len())].clone();
    let other = ranges[dice.below(ranges.len())].clone();
    match dice.below(6) {
        0 => drop(body.drain(one)),
        1 => {
            let copy = body[one].to_vec();
            body.splice(other.start..other.start, copy);
        }
        2 => drop(body.drain(one.start.min(other.start)..one.start.max(other.start))),
        3 => {
            let moved: Vec<u8> = body.drain(one.clone()).collect();
            let to = match other.start > one.start {
                true => other.start - moved.len(),
                false => other.start,
            };
            body.splice(to..to, moved);
        }
        _ => {
            // A handle or an address of another call.
            let from = number(&one, dice);
            let to = number(&other, dice);
            body.copy_within(from..from + 8, to);
        }
    }
}

/// Where a number of a record may be: its head is left out.
fn number(record: &Range<usize>, dice: &mut Dice) -> usize {
    let words = (record.len() / 8).max(2) - 1;
    let at = record.start + 8 * (1 + dice.below(words));
    at.min(record.end - 8)
}

/// The records, as far as they are sound.
pub(crate) fn records(body: &[u8]) -> impl Iterator<Item = (Range<usize>, RecordHead)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let word = body.get(at..)?.first_chunk()?;
        let head = RecordHead::from_word(u64::from_le_bytes(*word));
        let range = at..at + head.length as usize;
        let is_sound = range.len() >= RECORD_HEAD_LENGTH && range.len().is_multiple_of(8);
        at = range.end;
        (is_sound && range.end <= body.len()).then_some((range, head))
    })
}

/// The calls with all of their records.
pub(crate) fn calls(body: &[u8]) -> Vec<Range<usize>> {
    let mut calls: Vec<Range<usize>> = Vec::new();
    for (range, head) in records(body) {
        match calls.last_mut() {
            Some(last) if !record_kind::is_enter(head.kind) => last.end = range.end,
            _ => calls.push(range),
        }
    }
    calls
}
