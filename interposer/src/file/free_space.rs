//! Says once, and in time, that the disk will be full, and keeps the last of it for calls.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::hot::clock;
use crate::process::log;

/// The next look comes when the trace has grown by that much, or by half of the space that was free.
const APART: u64 = 1 << 30;
/// Less is always little.
const LITTLE: u64 = 256 << 20;

/// How long the trace is when the space is looked at again.
static NEXT: AtomicU64 = AtomicU64::new(u64::MAX);
/// So much of the disk is left for calls, or an eighth of what a trace can have there, if that is less.
const FOR_CALLS: u64 = 64 << 20;
static PAYLOADS_UNTIL: AtomicU64 = AtomicU64::new(u64::MAX);
static STARTED: AtomicU64 = AtomicU64::new(0);
static IS_SAID: AtomicBool = AtomicBool::new(false);

/// Begins with a new trace.
pub(super) fn begin(descriptor: i32, length: u64) {
    STARTED.store(clock::nanoseconds(libc::CLOCK_MONOTONIC), Ordering::Relaxed);
    IS_SAID.store(false, Ordering::Relaxed);
    look(descriptor, length);
}

/// How long the trace may become by payloads, because the disk ends soon; `u64::MAX` while it does not.
#[inline]
pub(super) fn payloads_until() -> u64 {
    PAYLOADS_UNTIL.load(Ordering::Relaxed)
}

/// Whether the space is to be looked at.
#[inline]
pub(super) fn is_due(length: u64) -> bool {
    length >= NEXT.load(Ordering::Relaxed)
}

/// Looks at the space that is free for a trace of that length.
#[cold]
pub(super) fn look(descriptor: i32, length: u64) {
    // SAFETY: all-zero is a valid buffer, and it is ours.
    let mut status: libc::statvfs = unsafe { core::mem::zeroed() };
    // SAFETY: as above.
    if unsafe { libc::fstatvfs(descriptor, &raw mut status) } != 0 {
        NEXT.store(u64::MAX, Ordering::Relaxed);
        PAYLOADS_UNTIL.store(u64::MAX, Ordering::Relaxed);
        return;
    }
    let free = status.f_bavail.saturating_mul(status.f_frsize);
    let step = APART.min(free / 2).max(1 << 20);
    NEXT.store(length.saturating_add(step), Ordering::Relaxed);
    let taken = taken(descriptor).map_or(length, |taken| taken.min(length));
    let is_little = is_little(free, taken);
    let end = length.saturating_add(free);
    let most = if is_little {
        end - FOR_CALLS.min(end / 8)
    } else {
        u64::MAX
    };
    PAYLOADS_UNTIL.store(most, Ordering::Relaxed);
    if !is_little || IS_SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    let now = clock::nanoseconds(libc::CLOCK_MONOTONIC);
    let elapsed = now.saturating_sub(STARTED.load(Ordering::Relaxed));
    let line = format!(
        "{} MiB are free where the trace is written, and it takes {} MiB after {:.0} s{}; leave \
         bytes out with --payloads none or --outputs none, limit it with --max-size, or write it \
         elsewhere (-o)",
        free >> 20,
        taken >> 20,
        elapsed as f64 / 1e9,
        rate(taken, elapsed),
    );
    log::line(&[line.as_bytes()]);
}

/// The bytes that a trace takes on the disk: the flight recorder gives back what it does not keep, so
/// that its file is longer.
fn taken(descriptor: i32) -> Option<u64> {
    // SAFETY: all-zero is a valid buffer, and it is ours.
    let mut status: libc::stat64 = unsafe { core::mem::zeroed() };
    // SAFETY: as above.
    let is_known = unsafe { libc::fstat64(descriptor, &raw mut status) } == 0;
    // In units of 512 bytes.
    is_known.then(|| (status.st_blocks as u64).saturating_mul(512))
}

/// Whether the space is soon used up: the trace has needed four times as much so far.
fn is_little(free: u64, taken: u64) -> bool {
    free < LITTLE.max(taken / 4)
}

/// `, 120 MiB/s`; nothing as long as it says nothing.
fn rate(length: u64, nanoseconds: u64) -> String {
    const SECOND: u64 = 1_000_000_000;
    if nanoseconds < SECOND {
        return String::new();
    }
    let rate = u128::from(length >> 10) * u128::from(SECOND) / u128::from(nanoseconds);
    format!(", {:.1} MiB/s", rate as f64 / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_space() {
        const GIB: u64 = 1 << 30;
        for (free, length, expected) in [
            (LITTLE - 1, 0, true),
            (LITTLE, 0, false),
            (GIB, GIB, false),
            (GIB, 5 * GIB, true),
            (30 * GIB, 100 * GIB, false),
            (20 * GIB, 100 * GIB, true),
        ] {
            assert_eq!(is_little(free, length), expected, "{free} {length}");
        }
    }

    #[test]
    fn rates() {
        assert_eq!(rate(1 << 30, 10), "");
        assert_eq!(rate(1 << 30, 2_000_000_000), ", 512.0 MiB/s");
        assert_eq!(rate(u64::MAX, u64::MAX), ", 953.7 MiB/s");
    }
}
