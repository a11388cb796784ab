//! Whether pages of memory are those of the file that is mapped there, as
//! `/proc/self/pagemap` says (proc_pid_pagemap(5)).

use std::fs::File;
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4096;
/// Pages whose state is read at once.
const PAGES: usize = 512;

/// Whether no page of that memory is the process's own. A page of a private mapping becomes that
/// when the program writes to it. `None` if the kernel does not tell.
pub(super) fn are_the_files(address: u64, length: u64) -> Option<bool> {
    const PRESENT_OR_SWAPPED: u64 = 3 << 62;
    const OF_A_FILE: u64 = 1 << 61;
    let pages = File::open("/proc/self/pagemap").ok()?;
    let (mut page, last) = (
        address / PAGE,
        address.checked_add(length.max(1) - 1)? / PAGE,
    );
    let mut states = [0u8; 8 * PAGES];
    // The first page alone: it tells memory without a file.
    let mut count = 1;
    while page <= last {
        let states = states.get_mut(..8 * count)?;
        pages.read_exact_at(states, page * 8).ok()?;
        let own = |state: &[u8]| {
            let state = state
                .first_chunk::<8>()
                .map_or(0, |s| u64::from_le_bytes(*s));
            state & PRESENT_OR_SWAPPED != 0 && state & OF_A_FILE == 0
        };
        if states.chunks_exact(8).any(own) {
            return Some(false);
        }
        page += count as u64;
        count = (last.wrapping_add(1) - page).min(PAGES as u64) as usize;
    }
    Some(true)
}
