//! What launches write, compared between replays, as text.

use std::fmt::Write as _;

use cutape_render::quantity::ungrouped;

use super::{SHOWN, of_kernel};
use crate::report::{LaunchDifference, LaunchOutputs};

/// Ranges of one launch that the text shows.
const RANGES_SHOWN: usize = 8;

/// Writes a summary, the first launch that differs between replays, and the first that differs from
/// the recording in each of them.
pub(super) fn write(out: &mut String, outputs: &LaunchOutputs) {
    if let Some(problem) = &outputs.problem {
        let _ = writeln!(out, "launch outputs: not compared: {problem}");
        return;
    }
    let mut summary = format!(
        "{} in {}: {} between replays",
        counted_launches(outputs.launches),
        ungrouped(outputs.replays.into(), "replay"),
        differ(outputs.differing),
    );
    if outputs.not_reproduced > 0 {
        let differ = differ(outputs.not_reproduced);
        let _ = write!(summary, "; {differ} from the recording in each");
    }
    let _ = writeln!(out, "launch outputs: {summary}");
    if outputs.addresses_differ && outputs.differing > 0 {
        *out += "  memory lay at different addresses in the replays: pointers in it differ, too\n";
    }
    if let Some(first) = &outputs.first_differing {
        describe(out, first, "differs between replays");
    }
    if let Some(first) = &outputs.first_not_reproduced {
        describe(out, first, "differs from the recording in each replay");
    }
    for (reason, count) in outputs.not_digested.iter().take(SHOWN) {
        let _ = writeln!(
            out,
            "  not compared: {}: {reason}",
            counted_launches(*count)
        );
    }
}

fn counted_launches(count: u64) -> String {
    match count {
        1 => "1 launch".to_owned(),
        count => format!("{count} launches"),
    }
}

fn differ(count: u64) -> String {
    match count {
        0 => "none differs".to_owned(),
        1 => "1 differs".to_owned(),
        count => format!("{count} differ"),
    }
}

fn describe(out: &mut String, first: &LaunchDifference, how: &str) {
    let _ = writeln!(
        out,
        "first launch that {how}: call {} {}{}",
        first.call,
        first.function,
        of_kernel(first.kernel.as_deref())
    );
    for range in first.ranges.iter().take(RANGES_SHOWN) {
        let end = range.offset + range.length;
        let _ = writeln!(
            out,
            "  bytes {} to {} of memory {}",
            range.offset,
            end.saturating_sub(1),
            range.memory
        );
    }
    let more = first.range_count.saturating_sub(RANGES_SHOWN as u64);
    if more > 0 {
        let _ = writeln!(out, "  and {} more", ungrouped(more, "range"));
    }
    if first.ranges.is_empty() {
        *out +=
            "  where is not known: after this launch, memory was equal in the further replays\n";
    }
}
