//! Where a window of a recording begins so that it has what memory held there.

use std::collections::BTreeMap;

/// When a window begins that has the calls from `from` to `last`: at the latest snapshot of memory
/// before, unless that would make it more than twice as long. All are ticks; `snapshots` has those of
/// [`cutape_format::Trace::memory_snapshots`].
pub fn start_at_snapshot(snapshots: &BTreeMap<u64, u64>, from: u64, last: u64) -> u64 {
    let longest = last.saturating_sub(from);
    let before = snapshots.values().copied().filter(|&taken| taken <= from);
    let latest = before.max();
    let near = latest.filter(|&taken| from - taken <= longest);
    near.unwrap_or(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_begin_at_snapshots_that_are_not_too_old() {
        let snapshots = BTreeMap::from([(1, 100), (2, 200), (4, 300)]);
        for (from, last, expected) in [
            (50, 1000, 50),
            (100, 1000, 100),
            (299, 1000, 200),
            (350, 400, 300),
            (350, 399, 350),
            (5000, 9000, 5000),
        ] {
            let start = start_at_snapshot(&snapshots, from, last);
            assert_eq!(start, expected, "{from}..{last}");
        }
        assert_eq!(start_at_snapshot(&BTreeMap::new(), 7, 9), 7);
    }
}
