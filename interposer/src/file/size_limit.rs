//! The limit on the size of a trace, and what is left out when it is nearly as long: first the bytes
//! that go to devices, then those that come back, so that there is room for calls.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cutape_registry::WhenFull;

use super::trace_file;
use crate::hot::recording::Direction;
use crate::process::log;

/// No limit.
const NONE: u64 = u64::MAX;

static TO_DEVICE: Share = Share::new();
static FROM_DEVICE: Share = Share::new();

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
    let part = |eighths: u64| match when_full {
        WhenFull::DropPayloads if limit != NONE => limit / 8 * eighths,
        _ => NONE,
    };
    TO_DEVICE.begin(part(6));
    FROM_DEVICE.begin(part(7));
}

/// Whether there is room for a payload of that length. From the first one on for which there is
/// none, none is kept.
#[inline]
pub(crate) fn has_room(direction: Direction, length: u64) -> bool {
    let share = match direction {
        Direction::ToDevice => &TO_DEVICE,
        Direction::FromDevice => &FROM_DEVICE,
    };
    let most = share.most.load(Ordering::Relaxed);
    most == NONE || has_room_below(most, share, direction, length)
}

#[cold]
fn has_room_below(most: u64, share: &Share, direction: Direction, length: u64) -> bool {
    if !share.is_over.load(Ordering::Relaxed) && trace_file::end().saturating_add(length) <= most {
        return true;
    }
    if !share.is_over.swap(true, Ordering::Relaxed) {
        trace_file::mark_incomplete(trace_file::Lacking::PayloadsByLimit);
        let (bytes, others) = match direction {
            Direction::ToDevice => ("to", "other bytes"),
            Direction::FromDevice => ("from", "calls"),
        };
        let size = trace_file::limit() >> 20;
        let line = format!(
            "the trace is nearly as long as --max-size allows ({size} MiB): bytes copied {bytes} \
             devices are left out from here on, {others} are still recorded"
        );
        log::line(&[line.as_bytes()]);
    }
    false
}
