//! Looks at what a program sees in memory that the device writes without a copy, for programs that are
//! played (`record --cassette`). Notes HOST_SEEN have it, which a replay does not need.
//!
//! - Values that the program polls: at each call, ranges that work in flight may have written are
//!   compared with what was noted before. What the program polls and changes back between two calls
//!   is not seen.
//! - Ranges that are too long for a shadow: digests of their pages are compared after waits.
//! - Memory that a launch does not name: managed variables, and memory whose address has come into
//!   device memory (`state/leads.rs`).

use cutape_driver::types::CUpointer_attribute_enum;
use cutape_format::layout::HostChangedNote;
use cutape_registry::id;

use super::changes::changes;
use super::seen::{self, MOST_AT_CALLS, Seen, find_changed, note};
use super::table::{Range, TABLE, Table, is_touched};
use crate::driver::ask;
use crate::file::rows::Rows;
use crate::hot::frame::Frame;
use crate::hot::thread::Thread;
use crate::process::errno::Errno;
use crate::process::memory::{self, Scratch};
use crate::queries::{current_context, has_concurrent_managed_access};
use crate::state::leads;

/// Before each call: notes what work in flight may have written.
pub(crate) fn look_at_seen(thread: &Thread) {
    if is_touched() {
        TABLE.lock().look_at_seen(thread);
    }
}

impl Table {
    /// Whether a range is short enough to be compared at each call.
    pub(super) fn is_seen_at_calls(&self, start: u64) -> bool {
        let range = self.ranges.get(&start);
        seen::is_on() && range.is_some_and(|range| range.length <= MOST_AT_CALLS)
    }

    fn look_at_seen(&mut self, thread: &Thread) {
        let mut runs = Vec::new();
        let written = self.ranges.iter_mut().filter(|(_, range)| {
            let is_read = !range.is_ending && !range.is_skipped;
            is_read && !range.writers.is_empty() && range.length <= MOST_AT_CALLS
        });
        for (&start, range) in written {
            let Some(shadow) = &mut range.shadow else {
                continue;
            };
            if range.seen.noted.is_none() {
                let fresh = Scratch::new(range.length as usize);
                range.seen.noted = fresh.map(|mut noted| {
                    noted.bytes().copy_from_slice(shadow.0.bytes());
                    noted
                });
            }
            let Some(noted) = &mut range.seen.noted else {
                continue;
            };
            let noted = noted.bytes();
            runs.clear();
            changes(start, noted, memory::is_readable, &mut runs);
            for &(at, length) in &runs {
                let place = HostChangedNote {
                    address: start + at as u64,
                    is_after: 0,
                };
                let bytes = Rows::flat(noted.as_ptr() as u64 + at as u64, length as u64);
                note(thread, place, &bytes);
            }
        }
    }

    /// After a wait: compares the pages of a range without a shadow.
    pub(super) fn look_at_pages(&mut self, thread: &Thread, start: u64) {
        let Some(range) = self.ranges.get_mut(&start).filter(|range| !range.is_ending) else {
            return;
        };
        let Some(pages) = &mut range.seen.pages else {
            return;
        };
        let is_read = find_changed(start, range.length, pages, |offset, length| {
            let place = HostChangedNote {
                address: start + offset,
                is_after: 1,
            };
            note(thread, place, &Rows::flat(place.address, length));
        });
        if !is_read {
            range.seen.pages = None;
        }
    }

    /// Takes in which ranges device memory leads to.
    pub(super) fn take_leads(&mut self) {
        for address in leads::take() {
            let start = self.find(address);
            if let Some(range) = start.and_then(|start| self.ranges.get_mut(&start)) {
                range.seen.has_lead = true;
            }
        }
    }
}

/// After a call that returned the address of a variable of its third argument: a managed one is memory
/// that launches reach without being given its address.
pub(crate) fn found_variable(frame: &Frame) {
    let _errno = Errno::keep();
    let address = memory::word(frame.word(0)).unwrap_or(0);
    if address == 0 || !seen::is_on() || !is_managed(address) {
        return;
    }
    let [.., owner, name] = [0, 1, 2, 3].map(|at| frame.word(at));
    // The runtime does not ask for the length.
    // SAFETY: the call has succeeded with this owner and name, and writes a length of 4 or 8 bytes.
    let length: Option<u64> = unsafe { ask(frame.function, |place| [0, place, owner, name]) };
    let Some(length) = length.filter(|length| *length != 0) else {
        return;
    };
    if TABLE.lock().find(address).is_some() {
        return;
    }
    let range = Range {
        length,
        context: current_context(),
        is_exclusive: !has_concurrent_managed_access(),
        owner: Some(owner),
        seen: Seen {
            has_lead: true,
            ..Seen::default()
        },
        ..Range::default()
    };
    super::insert(address, range);
    leads::note();
}

fn is_managed(address: u64) -> bool {
    let attribute = CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_IS_MANAGED.0;
    let arguments = |place| [place, attribute.into(), address, 0];
    // SAFETY: it writes an unsigned int.
    let answer: Option<u32> = unsafe { ask(id::cuPointerGetAttribute, arguments) };
    answer.is_some_and(|answer| answer != 0)
}
