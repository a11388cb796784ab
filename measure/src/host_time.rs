//! The time that a recorded program took for itself between its calls.

use std::collections::HashMap;

use cutape_format::{Snapshots, Trace, TraceClock};

/// Bytes of copies from which on the recorder took longer to keep them than a program usually takes
/// between two calls.
const LONG: u64 = 4096;

/// The time in which no call was in the driver, before each call, in nanoseconds. The least of these
/// times counts as the recorder's own (assumed), and is taken off all. Before and after a long copy
/// whose bytes the recorder kept, the time is the recorder's.
pub(crate) fn between_calls(trace: &Trace) -> HashMap<u64, u64> {
    let clock = TraceClock::of(trace);
    let is_long = |mut snapshots: Snapshots<'_>| {
        snapshots.any(|one| one.bytes.length().is_some_and(|length| length > LONG))
    };
    let mut left = None;
    let mut was_long = false;
    let mut gaps: HashMap<u64, u64> = HashMap::new();
    for call in trace.calls() {
        let entered = clock.since_start(call.ticks);
        if let (Some(left), Some(entered)) = (left, entered)
            && entered > left
            && !was_long
            && !is_long(call.snapshots())
        {
            gaps.insert(call.index, entered - left);
        }
        let leaves = call.leave.and_then(|leave| clock.since_start(leave.ticks));
        left = left.max(leaves.or(entered));
        was_long = call.leave.is_some_and(|leave| is_long(leave.snapshots()));
    }
    let least = gaps.values().min().copied().unwrap_or(0);
    gaps.retain(|_, gap| {
        *gap -= least;
        *gap > 0
    });
    gaps
}
