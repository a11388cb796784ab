//! The limit on the size of a trace, and what is left out when it is nearly as long: first the bytes
//! that go to devices, then those that come back, or first the longest payloads, so that there is room
//! for calls. The same where the disk ends.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cutape_registry::WhenFull;

use super::{free_space, trace_file};
use crate::hot::recording::Direction;
use crate::process::log;

/// No limit.
const NONE: u64 = u64::MAX;

static TO_DEVICE: Share = Share::new();
static FROM_DEVICE: Share = Share::new();

/// From then on, and for as long as that, only payloads are kept that leave most of the room to
/// others. [`NONE`] without such a limit.
static GRADUAL_FROM: AtomicU64 = AtomicU64::new(NONE);
/// A payload may take this part of the room.
const PART_OF_ROOM: u64 = 16;
/// One was too long for that.
static IS_GRADUAL: AtomicBool = AtomicBool::new(false);

/// One did not fit before the end of the disk.
static IS_AT_DISK: AtomicBool = AtomicBool::new(false);
/// All or nothing is recorded.
static STOPS: AtomicBool = AtomicBool::new(false);

/// Payloads of a direction.
struct Share {
    /// They are kept while the trace is not longer.
    most: AtomicU64,
    /// One was left out, and so are all later ones.
    is_over: AtomicBool,
}

impl Share {
    const fn new() -> Self {
        Self {
            most: AtomicU64::new(NONE),
            is_over: AtomicBool::new(false),
        }
    }

    fn begin(&self, most: u64) {
        self.most.store(most, Ordering::Relaxed);
        self.is_over.store(false, Ordering::Relaxed);
    }
}

/// Sets the limit, 0 for none.
pub(crate) fn configure(bytes: u64, when_full: WhenFull) {
    let limit = if bytes == 0 { NONE } else { bytes };
    trace_file::set_limit(limit);
    let part = |eighths: u64| match limit {
        NONE => NONE,
        limit => limit / 8 * eighths,
    };
    let (to, from, gradual) = match when_full {
        WhenFull::DropPayloads => (part(6), part(7), NONE),
        WhenFull::DropLargest => (part(7), part(7), part(4)),
        WhenFull::Stop => (NONE, NONE, NONE),
    };
    STOPS.store(when_full == WhenFull::Stop, Ordering::Relaxed);
    IS_AT_DISK.store(false, Ordering::Relaxed);
    TO_DEVICE.begin(to);
    FROM_DEVICE.begin(from);
    GRADUAL_FROM.store(gradual, Ordering::Relaxed);
    IS_GRADUAL.store(false, Ordering::Relaxed);
}

/// Whether there is room for a payload of that length. From the first one on for which there is
/// none, none is kept, unless the longest go first.
#[inline]
pub(crate) fn has_room(direction: Direction, length: u64) -> bool {
    let share = match direction {
        Direction::ToDevice => &TO_DEVICE,
        Direction::FromDevice => &FROM_DEVICE,
    };
    let most = share.most.load(Ordering::Relaxed);
    let is_plenty = most == NONE && free_space::payloads_until() == NONE;
    is_plenty || has_room_below(most, share, direction, length)
}

#[cold]
fn has_room_below(most: u64, share: &Share, direction: Direction, length: u64) -> bool {
    let end = trace_file::end();
    // Shorter ones may still fit, and somebody may make room.
    let fits_on_disk = end.saturating_add(length) <= free_space::payloads_until();
    if !fits_on_disk && !STOPS.load(Ordering::Relaxed) {
        if !IS_AT_DISK.swap(true, Ordering::Relaxed) {
            trace_file::mark_incomplete(trace_file::Lacking::PayloadsByDisk);
            log::line(&[
                b"the disk is nearly full: copied bytes for which there is no room are left \
                out from here on, calls are still recorded",
            ]);
        }
        return false;
    }
    if most == NONE {
        return true;
    }
    let gradual_from = GRADUAL_FROM.load(Ordering::Relaxed);
    if gradual_from != NONE {
        let fits = fits(length, end, gradual_from, most);
        if !fits && !IS_GRADUAL.swap(true, Ordering::Relaxed) {
            left_out("the longest copied bytes", "shorter ones and calls");
        }
        return fits;
    }
    if !share.is_over.load(Ordering::Relaxed) && end.saturating_add(length) <= most {
        return true;
    }
    if !share.is_over.swap(true, Ordering::Relaxed) {
        match direction {
            Direction::ToDevice => left_out("bytes copied to devices", "other bytes"),
            Direction::FromDevice => left_out("bytes copied from devices", "calls"),
        }
    }
    false
}

/// Whether a payload is short enough for the room that is left until `most`, where the trace ends at
/// `end`.
fn fits(length: u64, end: u64, gradual_from: u64, most: u64) -> bool {
    let room = most.saturating_sub(end);
    end.saturating_add(length) <= gradual_from || length <= room / PART_OF_ROOM
}

fn left_out(which: &str, others: &str) {
    trace_file::mark_incomplete(trace_file::Lacking::PayloadsByLimit);
    let size = trace_file::limit() >> 20;
    let line = format!(
        "the trace is nearly as long as --max-size allows ({size} MiB): {which} are left out from \
         here on, {others} are still recorded"
    );
    log::line(&[line.as_bytes()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_payloads_go_first() {
        for (length, end, expected) in [
            (4000, 0, true),
            (4001, 0, false),
            (400, 3600, true),
            (201, 3800, false),
            (200, 3800, true),
            (62, 6000, true),
            (63, 6000, false),
            (1, 6984, true),
            (1, 6985, false),
            (1, u64::MAX, false),
            (0, 9000, true),
        ] {
            assert_eq!(fits(length, end, 4000, 7000), expected, "{length} {end}");
        }
    }
}
