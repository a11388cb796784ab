//! The recorded process's address space around the driver's memory.
//!
//! The driver places its memory in the gaps of the process's map, from the top down. Where this
//! process has the gaps that the recorded one had, and no others, the driver's own calls return the
//! recorded addresses: of allocations, and of module globals, code, managed memory, pools and graph
//! memory, which no request can place (measured on driver 580).

use crate::place::lesson::{Lesson, Misplaced};
use crate::place::mapping::{self, map_exactly};
use crate::place::slots::{SLOT, gaps, union};

/// Below this lie the executable and its heap; the kernel places mappings from the top down.
const LOWEST: u64 = 0x6000_0000_0000;

/// Mappings without memory behind them, in place of the recorded process's.
#[derive(Debug, Default)]
pub(crate) struct Fillers {
    /// Sorted and disjoint.
    ranges: Vec<(u64, u64)>,
    /// Memory of the program, in place of fillers.
    provided: Vec<(u64, u64)>,
    /// Wanted besides what was mapped in the recorded process.
    learned: Vec<(u64, u64)>,
    lessons: Vec<Lesson>,
    recorded: Vec<(u64, u64)>,
    /// Index of the call after the last one whose memory lies at its recorded address.
    since: u64,
    /// The first memory that lies elsewhere.
    pub misplaced: Option<Misplaced>,
}

impl Fillers {
    pub(crate) fn new(lessons: Vec<Lesson>) -> Self {
        Self {
            lessons,
            ..Self::default()
        }
    }

    /// Fills what is free here and is mapped in the recorded process, or lies above all that it
    /// maps; opens what it no longer maps.
    pub(crate) fn follow(&mut self, recorded: Vec<(u64, u64)>) {
        self.recorded = recorded;
        self.fill();
    }

    /// Before a call: applies what an earlier attempt taught about it. `later` is where the driver
    /// put memory in the recording.
    pub(crate) fn before(&mut self, call: u64, later: &[(u64, u64)]) {
        let Some(at) = self.lessons.iter().rposition(|lesson| lesson.call == call) else {
            return;
        };
        let above = self.lessons.swap_remove(at).above;
        self.lessons.retain(|lesson| lesson.call != call);
        let Some((_, highest)) = mapped_ranges() else {
            return;
        };
        self.learned.extend(subtract(&[(above, highest)], later));
        self.fill();
    }

    /// The driver placed memory of a call.
    pub(crate) fn placed(&mut self, call: u64, recorded: u64, here: u64) {
        if recorded == here {
            self.since = call.saturating_add(1);
            return;
        }
        let since = self.since;
        if self.misplaced.is_none() {
            tracing::debug!(
                "call {call}: {here:#x} instead of {recorded:#x}; there: {}",
                self.occupants_of(recorded)
            );
        }
        self.misplaced.get_or_insert(Misplaced {
            call,
            recorded,
            here,
            since,
        });
    }

    /// What this process has mapped in the slot around an address, for messages.
    fn occupants_of(&self, address: u64) -> String {
        let slot = address / SLOT * SLOT;
        let slot = (slot, slot + SLOT);
        let (mapped, _) = mapped_ranges().unwrap_or_default();
        let of_others = subtract(&mapped, &self.ranges);
        let part = |ranges: &[(u64, u64)], what| {
            let parts = ranges
                .iter()
                .map(|&(start, end)| (start.max(slot.0), end.min(slot.1)));
            let parts = parts.filter(|(start, end)| start < end);
            let text = |(start, end)| format!("{what} {start:#x} to {end:#x}");
            parts.map(text).collect::<Vec<_>>()
        };
        let mut found = part(&self.ranges, "filler");
        found.extend(part(&of_others, "mapping"));
        match found.is_empty() {
            true => "nothing".to_owned(),
            false => found.join(", "),
        }
    }

    fn fill(&mut self) {
        let Some((mapped, highest)) = mapped_ranges() else {
            return;
        };
        let top = self.recorded.last().map_or(highest, |range| range.1);
        let wanted = self.recorded.iter().chain(&self.learned).copied();
        let wanted = wanted
            .chain([(top, highest)])
            .map(|(start, end)| (start.max(LOWEST), end.min(highest)))
            .filter(|(start, end)| start < end);
        let others = subtract(&mapped, &self.ranges);
        let wanted = subtract(&union(wanted.collect()), &others);
        for (start, end) in subtract(&self.ranges, &wanted) {
            unmap(start, end);
        }
        let missing = subtract(&wanted, &self.ranges);
        let refused: Vec<_> = missing
            .into_iter()
            .filter(|&(start, end)| !map_exactly(start, end, libc::PROT_NONE))
            .collect();
        self.ranges = subtract(&wanted, &refused);
    }

    /// Memory of the program at recorded addresses, in place of fillers; false if something else
    /// is there. It stays as long as the process.
    pub(crate) fn provide(&mut self, start: u64, end: u64) -> bool {
        let left = subtract(&self.ranges, &[(start, end)]);
        for (low, high) in subtract(&self.ranges, &left) {
            unmap(low, high);
        }
        self.ranges = left;
        let missing = subtract(&[(start, end)], &self.provided);
        let mapped: Vec<_> = missing
            .iter()
            .copied()
            .filter(|&(low, high)| map_exactly(low, high, libc::PROT_READ | libc::PROT_WRITE))
            .collect();
        let is_whole = mapped == missing;
        self.provided.extend(mapped);
        self.provided = union(std::mem::take(&mut self.provided));
        is_whole
    }
}

/// The parts of sorted, disjoint ranges that none of the others covers; those are sorted.
fn subtract(ranges: &[(u64, u64)], others: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let parts = |&range| gaps(range, others.iter().copied());
    ranges.iter().flat_map(parts).collect()
}

/// The ranges that this process has mapped below its stack, sorted, and where the highest ends: the
/// kernel places nothing above its first mapping, which is the loader's.
fn mapped_ranges() -> Option<(Vec<(u64, u64)>, u64)> {
    let text = std::fs::read_to_string("/proc/self/maps").ok()?;
    let below_stack = text.lines().take_while(|line| !line.ends_with("[stack]"));
    let range = |line: &str| {
        let (start, rest) = line.split_once('-')?;
        let (end, _) = rest.split_once(' ')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        Some((address(start)?, address(end)?))
    };
    let ranges = union(below_stack.map(range).collect::<Option<_>>()?);
    let highest = ranges.last()?.1;
    Some((ranges, highest))
}

/// Unmaps pages of a filler, or of a test.
fn unmap(start: u64, end: u64) {
    // SAFETY: mapped by `map_exactly`; nothing has a reference to them.
    unsafe { mapping::unmap(start, end) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fillers_follow_the_recorded_map() {
        let (at, page) = (0x6123_4000_0000_u64, 0x1000);
        let is_free = |start| {
            let free = map_exactly(start, start + page, libc::PROT_NONE);
            if free {
                unmap(start, start + page);
            }
            free
        };
        // The last range is above all that this process maps: nothing else is filled.
        let end = (0x7fff_ffff_0000, 0x7fff_ffff_f000);
        let pages = |numbers: &[u64]| {
            let page = |&number| (at + number * page, at + (number + 1) * page);
            numbers.iter().map(page).chain([end]).collect::<Vec<_>>()
        };
        let mut fillers = Fillers::default();
        fillers.follow(pages(&[0, 3]));
        assert!(!is_free(at) && is_free(at + page) && !is_free(at + 3 * page));
        fillers.follow(pages(&[1, 6]));
        assert!(is_free(at) && !is_free(at + page) && is_free(at + 3 * page));
        assert!(fillers.provide(at + page, at + 3 * page));
        assert!(fillers.provide(at + page, at + 2 * page), "provided");
        assert!(map_exactly(at + 8 * page, at + 9 * page, libc::PROT_NONE));
        assert!(!fillers.provide(at + 8 * page, at + 9 * page), "taken");
        fillers.follow(pages(&[0, 1, 2]));
        assert!(!is_free(at), "beside what was provided");
        fillers.follow(pages(&[]));
        assert!(is_free(at) && is_free(at + 6 * page));
        unmap(at + page, at + 3 * page);
        unmap(at + 8 * page, at + 9 * page);
    }

    #[test]
    fn a_lesson_is_applied_before_its_call() {
        let lesson = |call, above| Lesson { call, above };
        let highest = mapped_ranges().unwrap().1;
        let mut fillers = Fillers::new(vec![lesson(7, highest), lesson(7, highest - 4096)]);
        fillers.before(6, &[]);
        assert_eq!(fillers.learned, []);
        fillers.before(7, &[]);
        assert_eq!(fillers.learned, [(highest - 4096, highest)]);
        assert_eq!(fillers.lessons, []);
    }
}
