//! The slots of address space that a replay reserves, and ranges of it.

/// Unit of reservations.
pub(crate) const SLOT: u64 = 32 << 20;
/// Reservations are refused above this (measured).
const RESERVATION_END: u64 = 1 << 48;

/// The slots around some bytes; `None` where no reservation can lie.
pub(crate) fn slots_around(start: u64, length: u64) -> Option<(u64, u64)> {
    let end = start
        .checked_add(length.max(1))?
        .checked_next_multiple_of(SLOT)?;
    let start = start / SLOT * SLOT;
    (start != 0 && end <= RESERVATION_END).then_some((start, end))
}

/// Joins ranges that overlap or touch.
pub(crate) fn union(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match joined.last_mut() {
            Some(last) if last.1 >= start => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}

/// The parts of a range that none of the sorted, disjoint pieces covers.
pub(crate) fn gaps(range: (u64, u64), pieces: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    let mut at = range.0;
    for (start, end) in pieces {
        if start >= range.1 {
            break;
        }
        if start > at {
            gaps.push((at, start));
        }
        at = at.max(end);
    }
    if at < range.1 {
        gaps.push((at, range.1));
    }
    gaps
}
