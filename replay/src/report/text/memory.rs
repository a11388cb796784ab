//! Where memory lay, and what was put there, as text.

use std::fmt::Write as _;

use cutape_render::quantity::count;

use super::SHOWN;
use crate::process::strategy::PlacementStrategy;
use crate::report::Report;

/// Bytes that were put while calls waited.
const PUT_SHOWN: usize = 4;

/// How much memory was at its recorded address, and what was translated.
pub(super) fn write_placement(out: &mut String, report: &Report) {
    let placed = report.placed;
    if placed.allocations > 0 {
        let _ = writeln!(
            out,
            "memory: {} of {} allocations at their recorded address{}",
            placed.at_recorded_address,
            placed.allocations,
            match placed.strategy {
                PlacementStrategy::Natural | PlacementStrategy::None => "",
                PlacementStrategy::Granules => ", in granules",
            }
        );
    }
    if placed.strategy == PlacementStrategy::Granules
        && let Some(misplaced) = report.misplaced.last()
    {
        let _ = writeln!(
            out,
            "  placed by the driver, the memory of call {} lay at {:#x}, not at {:#x} (attempts: \
             {})",
            misplaced.call,
            misplaced.here,
            misplaced.recorded,
            report.misplaced.len()
        );
    }
    for translated in &report.translated {
        let _ = writeln!(
            out,
            "  call {} {}: {:#x} is {:#x} here ({} bytes): {}",
            translated.call,
            translated.function,
            translated.recorded,
            translated.replayed,
            translated.length,
            translated.reason
        );
    }
}

/// Words that may be addresses, and words that were taken for handles.
pub(super) fn write_untranslated(out: &mut String, report: &Report) {
    for stale in report.stale.iter().take(SHOWN) {
        let _ = writeln!(
            out,
            "  call {} {}: {} words contain recorded addresses that replay does not translate, the \
             first {:#x}: {}",
            stale.call, stale.function, stale.words, stale.address, stale.memory
        );
    }
    if report.stale.len() > SHOWN {
        let _ = writeln!(
            out,
            "  and {} more such calls (--report lists them)",
            report.stale.len() - SHOWN
        );
    }
    for assumed in report.assumed_handles.iter().take(SHOWN) {
        let _ = writeln!(
            out,
            "  call {} {}: the kernel parameter at byte {} is {:#x}, taken for the handle of a \
             {}, and {:#x} here (assumed)",
            assumed.call,
            assumed.function,
            assumed.offset,
            assumed.recorded,
            assumed.object,
            assumed.replayed
        );
    }
    if report.assumed_handle_count > SHOWN as u64 {
        let _ = writeln!(
            out,
            "  and {} more such parameters (--report lists them)",
            report.assumed_handle_count - SHOWN as u64
        );
    }
}

/// What was put while calls waited for it.
pub(super) fn write_put(out: &mut String, report: &Report) {
    for put in report.put_during_waits.iter().take(PUT_SHOWN) {
        let who = match put.is_shared {
            true => "a CPU thread of some rank (assumed)",
            false => "the program",
        };
        let _ = writeln!(
            out,
            "put while call {} waited, written by {who}: {} at offset {:#x} of the memory of \
             call {} ({})",
            put.call,
            count(put.length, "byte"),
            put.offset,
            put.made,
            put.made_by
        );
    }
    let hidden = report.put_during_waits.len().saturating_sub(PUT_SHOWN);
    if hidden > 0 {
        let _ = writeln!(out, "put while calls waited: {hidden} more");
    }
}
