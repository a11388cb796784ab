//! What notes HOST_SEEN say of a range, and digests of pages in the place of a shadow.

use core::sync::atomic::{AtomicBool, Ordering};

use cutape_driver::digest::digest;
use cutape_format::layout::{HostChangedNote, field, host_skip, note_kind};

use crate::file::rows::Rows;
use crate::hot::recording::Direction;
use crate::hot::thread::Thread;
use crate::process::memory::{self, Scratch};
use crate::snapshot;
use crate::state::leads;

/// Longer ranges are not compared at each call.
pub(super) const MOST_AT_CALLS: u64 = 1 << 20;
/// What has a digest in a range without a shadow.
const PAGE: u64 = 4096;
/// Pages are read so many bytes at a time.
const AT_ONCE: u64 = 1 << 20;

static IS_ON: AtomicBool = AtomicBool::new(false);
/// Sets whether what the program sees is recorded.
pub(super) fn configure(is_on: bool) {
    IS_ON.store(is_on, Ordering::Relaxed);
    leads::configure(is_on);
}

/// Whether it is.
pub(super) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Whether a range is too long to be compared at each call.
pub(super) fn is_long(length: u64) -> bool {
    is_on() && length > MOST_AT_CALLS
}

/// What notes HOST_SEEN say of a range.
#[derive(Default)]
pub(super) struct Seen {
    /// What earlier notes say, while work may write it.
    pub(super) noted: Option<Scratch>,
    /// Digests of the pages of a range without a shadow.
    pub(super) pages: Option<Vec<u64>>,
    /// Device memory may lead to it.
    pub(super) has_lead: bool,
}

// SAFETY: the mapping belongs to the value alone and is used under the table's lock.
unsafe impl Send for Seen {}

impl Seen {
    pub(super) fn has_pages(&self) -> bool {
        self.pages.is_some()
    }

    /// Notes HOST_CHANGED have said what the shadow has in these places, from an offset on.
    pub(super) fn take_over(&mut self, shadow: &[u8], from: usize, runs: &[(usize, usize)]) {
        let Some(noted) = &mut self.noted else { return };
        for &(at, length) in runs {
            if let Some(old) = noted.bytes().get_mut(from + at..from + at + length)
                && let Some(new) = shadow.get(at..at + length)
            {
                old.copy_from_slice(new);
            }
        }
    }

    /// A range gets no shadow, for a reason of `host_skip`.
    pub(super) fn begin_pages(&mut self, start: u64, length: u64, reason: u8) {
        let is_readable = matches!(reason, host_skip::LONG | host_skip::FULL);
        if is_readable && is_on() {
            let mut pages = vec![0; length.div_ceil(PAGE) as usize];
            if find_changed(start, length, &mut pages, |_, _| {}) {
                self.pages = Some(pages);
            }
        }
    }
}

/// Digests the pages of a range, and gives those that have changed: offset and length of each run.
/// False if some cannot be read.
pub(super) fn find_changed(
    start: u64,
    length: u64,
    pages: &mut [u64],
    mut each: impl FnMut(u64, u64),
) -> bool {
    let Some(mut copy) = Scratch::new(AT_ONCE as usize) else {
        return false;
    };
    let mut run: Option<(u64, u64)> = None;
    let mut offset = 0;
    for pages in pages.chunks_mut((AT_ONCE / PAGE) as usize) {
        let count = AT_ONCE.min(length - offset);
        let Some(bytes) = copy.bytes().get_mut(..count as usize) else {
            return false;
        };
        if !memory::read_all(start.wrapping_add(offset), bytes) {
            return false;
        }
        for (known, page) in pages.iter_mut().zip(bytes.chunks(PAGE as usize)) {
            let now = digest(page);
            if core::mem::replace(known, now) != now {
                match &mut run {
                    Some((from, length)) if *from + *length == offset => {
                        *length += page.len() as u64;
                    }
                    _ => {
                        if let Some((from, length)) = run.replace((offset, page.len() as u64)) {
                            each(from, length);
                        }
                    }
                }
            }
            offset += page.len() as u64;
        }
    }
    if let Some((from, length)) = run {
        each(from, length);
    }
    true
}

/// Writes what the program can see.
pub(super) fn note(thread: &Thread, note: HostChangedNote, bytes: &Rows) {
    thread.note(note_kind::HOST_SEEN, |draft| {
        draft.put_encoded(note)?;
        snapshot::payload(draft, 0, field::POINTEE, bytes, Direction::FromDevice)
    });
}
