//! What calls that waited have found in host memory is newer than what the recorder saw before calls
//! that were entered earlier.

use cutape_model::looked;

use crate::player::Job;

/// Of so many looks behind calls it is known when they were, the last ones.
const MOST_FOUND: usize = 64;

impl Job<'_, '_> {
    /// When the recorder looked, before the call or behind it, as far as that is known.
    pub(crate) fn looked(&self, is_after: bool) -> u64 {
        let call = self.call;
        let leave = call.leave.map_or(call.ticks, |leave| leave.ticks);
        match is_after {
            true => looked(call).unwrap_or(leave),
            false => call.ticks,
        }
    }

    /// The recorder has found bytes at a recorded address behind the call.
    pub(crate) fn found_after(&mut self, address: u64, looked: u64, length: usize) {
        let found = &mut self.player.lent.found;
        if found.len() >= MOST_FOUND {
            found.remove(0);
        }
        found.push((address..address.saturating_add(length as u64), looked));
    }

    /// What was found at a recorded address then is older than what overlapping calls have found
    /// later: there, the old bytes stay.
    pub(crate) fn keep_newer(&mut self, address: u64, looked: u64, old: &[u8], bytes: &mut [u8]) {
        let parts = self.not_newer(address, looked, bytes.len());
        for (from, end) in gaps(parts.into_iter(), bytes.len()) {
            if let (Some(newer), Some(old)) = (bytes.get_mut(from..end), old.get(from..end)) {
                newer.copy_from_slice(old);
            }
        }
    }

    /// The parts (offset of the first byte, behind the last) of so many bytes at a recorded address
    /// of which calls have found none behind themselves that are newer than that moment.
    pub(crate) fn not_newer(
        &self,
        address: u64,
        looked: u64,
        length: usize,
    ) -> Vec<(usize, usize)> {
        let newer = self.lent.found.iter().filter(|found| found.1 > looked);
        let offset = |of: u64| (of.saturating_sub(address) as usize).min(length);
        let newer = newer.map(|(found, _)| (offset(found.start), offset(found.end)));
        let mut newer: Vec<(usize, usize)> = newer.filter(|(from, end)| from < end).collect();
        newer.sort_unstable();
        gaps(newer.into_iter(), length)
    }
}

/// What is left of so many bytes between these parts, in ascending order: offset of the first, behind
/// the last.
pub(crate) fn gaps(
    parts: impl Iterator<Item = (usize, usize)>,
    length: usize,
) -> Vec<(usize, usize)> {
    let mut gaps = Vec::new();
    let mut at = 0;
    for (from, end) in parts {
        if at < from {
            gaps.push((at, from));
        }
        at = at.max(end);
    }
    if at < length {
        gaps.push((at, length));
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_what_parts_leave() {
        type Parts = &'static [(usize, usize)];
        let table: [(Parts, Parts); 5] = [
            (&[], &[(0, 10)]),
            (&[(0, 10)], &[]),
            (&[(2, 4)], &[(0, 2), (4, 10)]),
            (&[(0, 3), (2, 5), (8, 10)], &[(5, 8)]),
            (&[(1, 6), (2, 3)], &[(0, 1), (6, 10)]),
        ];
        for (parts, expected) in table {
            assert_eq!(gaps(parts.iter().copied(), 10), expected, "{parts:?}");
        }
    }
}
