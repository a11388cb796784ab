//! The time that a recorded program took for calls, and for itself between them.

use std::collections::HashMap;

use cutape_analyzer::decode::function_of;
use cutape_format::{Snapshots, Trace, TraceClock};
use cutape_registry::Waits;

/// Bytes of copies from which on the recorder took longer to keep them than a program usually takes
/// between two calls.
const LONG: u64 = 4096;

/// The recorder's part of the time between two calls, at most. Between calls of a loop that does
/// nothing else, where most of the time is the recorder's, 20 to 50 ns are recorded (null driver,
/// benches/results/2026-11-28-what-if.md).
const MOST_OF_RECORDER_NS: u64 = 50;

/// The time in which no call was in the driver, before each call, in nanoseconds. The recorder's own
/// part is taken off all: their median, at most [`MOST_OF_RECORDER_NS`] (assumed). What it takes to
/// write a full buffer to the file remains. Before and after a long copy whose bytes the recorder
/// kept, the time is the recorder's.
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
    without_recorder(&mut gaps);
    gaps
}

/// Takes the recorder's part off the times between calls.
fn without_recorder(gaps: &mut HashMap<u64, u64>) {
    let mut all: Vec<u64> = gaps.values().copied().collect();
    if all.is_empty() {
        return;
    }
    let middle = all.len() / 2;
    let median = *all.select_nth_unstable(middle).1;
    let of_recorder = median.min(MOST_OF_RECORDER_NS);
    gaps.retain(|_, gap| {
        *gap = gap.saturating_sub(of_recorder);
        *gap > 0
    });
}

/// Nanoseconds from the first to the end of the last of these calls, recording included; `None` if
/// the last one does not wait for work, so that its end is not that of the work.
pub(crate) fn while_recorded(trace: &Trace, (first, last): (u64, u64)) -> Option<u64> {
    let mut calls = trace.calls().skip_while(|call| call.index < first);
    let begins = calls.next().filter(|call| call.index == first)?.ticks;
    let last = calls.find(|call| call.index == last)?;
    let ends = last.leave?.ticks;
    let waits = function_of(last.signature)?.waits != Waits::No;
    TraceClock::of(trace)
        .between(begins, ends)
        .filter(|_| waits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorders_part_is_taken_off() {
        for (recorded, expected) in [
            (&[][..], 0),
            // A loop that only calls: the recorder's time varies.
            (&[20, 30, 30, 40, 30, 30], 10),
            // A program that computes between all calls keeps its time.
            (&[5000, 9000, 7000], 21_000 - 3 * 50),
            // Some of it.
            (&[30, 30, 30, 4030], 4000),
        ] {
            let mut gaps: HashMap<u64, u64> = (0..).zip(recorded.iter().copied()).collect();
            without_recorder(&mut gaps);
            assert_eq!(gaps.values().sum::<u64>(), expected, "{recorded:?}");
            assert!(gaps.values().all(|&gap| gap > 0));
        }
    }
}
