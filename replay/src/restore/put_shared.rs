//! Host memory that ranks share by mapping: registered parts of a file that several processes had
//! mapped are parts of one file in the replay as well.
//!
//! A change that a rank's recorder saw there may have been made by a CPU thread or a kernel of any
//! of the ranks. Kernels make theirs again. What a kernel of any rank may still make is waited for:
//! if it comes too early, a kernel that waits for it runs ahead of what it announces; if nobody
//! makes it, the kernel waits for ever. So it is put when the ranks stand still, and the report
//! says so; if no work is in flight, only a CPU thread can have made it, and it is put at once.

use std::sync::Arc;
use std::time::Duration;

use cutape_format::Note;
use cutape_format::layout::SharedMappingNote;

use crate::lent::late_writes::Write;
use crate::place::address::Range;
use crate::plan::PAGE;
use crate::player::{Job, Player};
use crate::process::mapping;
use crate::ranks::peers::Peers;

/// Between two looks.
const PAUSE: Duration = Duration::from_micros(100);
/// For how many looks no rank must make progress before such bytes are put before a call. Looks
/// are counted and not time, so that ranks that are slow, or stopped for a while, do the same.
const STANDSTILL: u32 = 1000;
/// For how many looks they are waited for at most, whatever the ranks do.
const MOST_LOOKS: u32 = 10_000;

/// Where the pages of a part are, how many bytes they have, and their offset in the file; `None` if
/// they are not among these pages. Both begin in the same place of a page.
fn pages_of(
    part: &SharedMappingNote,
    start: u64,
    (live, end): (u64, u64),
) -> Option<(u64, u64, u64)> {
    let in_page = part.address % PAGE;
    let offset = part.offset.checked_sub(in_page)?;
    let distance = (part.address - in_page).checked_sub(start / PAGE * PAGE)?;
    let at = live.checked_add(distance)?;
    let length = in_page.checked_add(part.length)?;
    let length = length.checked_next_multiple_of(PAGE)?;
    (length > 0 && at.checked_add(length)? <= end).then_some((at, length, offset))
}

impl Job<'_, '_> {
    /// The parts of the memory that the call registers which other ranks may have mapped.
    pub(crate) fn shared_parts(&self) -> Vec<SharedMappingNote> {
        if self.options.peers.is_none() {
            return Vec::new();
        }
        let notes = self.call.notes();
        let parts = notes.filter_map(|note| match note {
            Note::SharedMapping(part, _) => Some(part),
            _ => None,
        });
        parts.collect()
    }

    /// Maps those parts from the files that all ranks have. `pages` (first, behind the last) are
    /// those of the registered memory, of which the first is for the recorded address `start`.
    pub(crate) fn map_shared(
        &mut self,
        parts: &[SharedMappingNote],
        start: u64,
        pages: (u64, u64),
    ) {
        let Some(peers) = self.options.peers.clone() else {
            return;
        };
        let call = self.call.index;
        for part in parts {
            let Some((position, file)) = peers.file(part.device, part.inode) else {
                continue;
            };
            let Some((at, length, offset)) = pages_of(part, start, pages) else {
                self.report.note(
                    "a part of host memory that ranks share is not in the memory that the call \
                     registers: not mapped",
                );
                continue;
            };
            // SAFETY: the caller has provided these pages for this memory just now, and only the
            // driver will have their addresses.
            let is_mapped = unsafe { mapping::replace(at, length, Some((file, offset))) };
            if !is_mapped {
                self.report.note(
                    "host memory that ranks share could not be mapped: this rank has its own",
                );
                continue;
            }
            let shared = &mut self.lent.shared_memory;
            shared.pages.push((at, at + length));
            shared.of_calls.entry(call).or_default().push(position);
        }
    }

    /// Makes pages private again that an earlier registration shared.
    pub(crate) fn map_private(&mut self, start: u64, end: u64) {
        let shared = &mut self.lent.shared_memory.pages;
        let covered: Vec<_> = shared
            .iter()
            .map(|&(low, high)| (low.max(start), high.min(end)))
            .filter(|(low, high)| low < high)
            .collect();
        for (low, high) in covered {
            // SAFETY: mapped by `map_shared`; what was registered there is not any more.
            unsafe { mapping::replace(low, high - low, None) };
        }
        shared.retain(|&(low, high)| low < start || high > end);
    }
}

impl Player<'_> {
    /// The other ranks, if a range is memory that they share.
    pub(crate) fn sharers(&self, range: &Range) -> Option<Arc<Peers>> {
        let files = self.lent.shared_memory.files_of(range);
        (!files.is_empty())
            .then(|| self.options.peers.clone())
            .flatten()
    }

    /// Puts changes of shared memory that a recorder saw before a call, where nothing else has made
    /// them.
    pub(crate) fn put_shared(&mut self, range: &Range, writes: &[Write]) {
        let Some(peers) = self.sharers(range) else {
            return;
        };
        // SAFETY: the writes are in a live range of host memory of this process.
        let is_missing = |write: &&Write| unsafe { write.is_due() };
        let files = self.lent.shared_memory.files_of(range).to_vec();
        let position = Arc::clone(&self.issuer.position);
        let is_early = self.while_lent(|_| {
            let (mut seen, mut standing) = (peers.progress_of_others(), 0);
            for _ in 0..MOST_LOOKS {
                if !writes.iter().any(|write| is_missing(&write)) {
                    return false;
                }
                if !files.iter().any(|&file| peers.may_work_reach(file)) {
                    return false;
                }
                let progress = peers.progress_of_others();
                standing = match progress == seen {
                    true => standing + 1,
                    false => 0,
                };
                seen = progress;
                if standing >= STANDSTILL {
                    break;
                }
                position.looks_at_others();
                std::thread::sleep(PAUSE);
            }
            true
        });
        let due: Vec<&Write> = writes.iter().filter(is_missing).collect();
        for write in &due {
            // SAFETY: as above.
            unsafe { write.apply() };
        }
        if due.is_empty() {
            return;
        }
        self.report.note(match is_early {
            true => {
                "changes of shared host memory that were put while work was in flight, when no \
                 rank made progress: assumed to be made by a CPU thread"
            }
            false => "changes of shared host memory that were put: made by a CPU thread",
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_the_registered_memory_are_mapped() {
        // Three pages at 0x7000_0000, recorded from 0x1_0800 on.
        let (start, pages) = (0x1_0800, (0x7000_0000, 0x7000_3000));
        for (address, length, offset, expected) in [
            (0x1_0800, 0x10, 0x4800, Some((0x7000_0000, 0x1000, 0x4000))),
            (0x1_1000, 0x2000, 0, Some((0x7000_1000, 0x2000, 0))),
            (0x1_1000, 0x2001, 0, None), // past the end
            (0x1_0000, 0x4000, 0, None),
            (0x1_3000, 1, 0, None),
            (0xf000, 0x1000, 0, None), // before the start
            (0x1_0800, u64::MAX, 0x800, None),
            (u64::MAX, 1, u64::MAX, None),
            (0x1_0800, 0x10, 0x7ff, None), // not the same place of a page
            (0x1_1000, 0, 0, None),
        ] {
            let part = SharedMappingNote {
                address,
                length,
                offset,
                device: 0,
                inode: 0,
            };
            let found = pages_of(&part, start, pages);
            assert_eq!(found, expected, "{address:#x} {length:#x} {offset:#x}");
        }
    }
}
