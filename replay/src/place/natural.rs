//! The recorded process's address space around the driver's memory.
//!
//! The driver places its memory in the gaps of the process's map, from the top down. Where this
//! process has the gaps that the recorded one had, and no others, the driver's own calls return the
//! recorded addresses: of allocations, and of module globals, code, managed memory, pools and graph
//! memory, which no request can place (measured on driver 580).

use cutape_registry::Kind;

use crate::plan::HostRegion;
use crate::process::address_space::{AddressSpace, OwnSpace, Ranges};
use crate::process::lesson::{Lesson, Misplaced};
use crate::process::slots::{SLOT, gaps, slots_around, union};

/// Below this lie the executable and its heap; the kernel places mappings from the top down.
const LOWEST: u64 = 0x6000_0000_0000;
/// Shorter ranges are not in messages.
const SHORTEST: u64 = 1 << 20;
/// The unit of physical memory of devices. What is shorter is not in the way of the driver's
/// reservations for it (assumed).
const BLOCK: u64 = 2 << 20;

/// Mappings without memory behind them, in place of the recorded process's.
#[derive(Debug, Default)]
pub(crate) struct Fillers<S = OwnSpace> {
    space: S,
    ranges: Ranges,
    /// Memory of the program, in place of fillers.
    provided: Ranges,
    /// Wanted besides what was mapped in the recorded process.
    learned: Ranges,
    /// Long memory of the program that comes to be mapped later, and is not kept free for it.
    later: Ranges,
    lessons: Vec<Lesson>,
    recorded: Ranges,
    /// Arenas of threads that the recorded process makes before the next map: the driver's threads may
    /// make them while the driver reserves addresses, in either order. In their places from now on, they
    /// leave what is higher as it was.
    coming: Ranges,
    /// Index of the call after the last one whose memory lies at its recorded address.
    since: u64,
    /// The first memory that lies elsewhere.
    pub misplaced: Option<Misplaced>,
}

impl<S: AddressSpace + Default> Fillers<S> {
    /// `registered` is memory of the program that comes to be mapped later: until then, nothing of
    /// this process may take its place. For long ranges that is so only from where an attempt taught
    /// it: the driver may reserve more than it keeps, and what is in the way changes where that lies.
    pub(crate) fn new(mut lessons: Vec<Lesson>, registered: &[HostRegion]) -> Self {
        let registered = registered.iter().map(|region| (region.start, region.end));
        let (later, mut learned): (Vec<_>, Vec<_>) =
            registered.partition(|(start, end)| end - start >= BLOCK);
        let taught = lessons.extract_if(.., |lesson| lesson.call == 0);
        learned.extend(taught.flat_map(|lesson| lesson.filled));
        Self {
            lessons,
            learned,
            later,
            ..Self::default()
        }
    }

    /// Fills what is free here and is mapped in the recorded process, or lies above all that it
    /// maps; opens what it no longer maps. `recorded` was mapped before a call.
    pub(crate) fn follow(&mut self, call: u64, recorded: Ranges, coming: &[(u64, u64)]) {
        self.recorded = recorded;
        self.coming = coming.to_vec();
        let before = self.ranges.clone();
        self.fill();
        if tracing::enabled!(tracing::Level::DEBUG) {
            self.tell_changes(call, &before);
        }
    }

    /// What a recorded map has changed, for messages.
    fn tell_changes(&self, call: u64, before: &[(u64, u64)]) {
        let (mapped, _) = self.space.mapped().unwrap_or_default();
        let known = union([&self.recorded[..], &self.ranges, &[(0, LOWEST)]].concat());
        let text = |ranges: Vec<(u64, u64)>| {
            let long = ranges.iter().filter(|(start, end)| end - start >= SHORTEST);
            let long = long.map(|(start, end)| format!("{start:#x} to {end:#x}"));
            let long: Vec<_> = long.collect();
            match long.is_empty() {
                true => "nothing".to_owned(),
                false => long.join(", "),
            }
        };
        tracing::debug!(
            "mapped before call {call} in the recording: added {}; removed {}; only here: {}",
            text(subtract(&self.ranges, before)),
            text(subtract(before, &self.ranges)),
            text(subtract(&mapped, &known)),
        );
    }

    /// Before a call: applies what an earlier attempt taught about it. `later` is where the driver
    /// put memory in the recording.
    pub(crate) fn before(&mut self, call: u64, later: &[(u64, u64)]) {
        if !self.lessons.iter().any(|lesson| lesson.call == call) {
            return;
        }
        // The last one that names an address knows more than those before.
        let mut above = None;
        for lesson in self.lessons.extract_if(.., |lesson| lesson.call == call) {
            above = lesson.above.or(above);
            self.learned.extend(lesson.filled);
        }
        let highest = self.space.mapped().map(|(_, highest)| highest);
        if let Some((above, highest)) = above.zip(highest) {
            self.learned.extend(subtract(&[(above, highest)], later));
        }
        self.fill();
    }

    /// Before a call whose memory the driver placed at this address in the recording: what was
    /// mapped there when the recorded map was read was gone by then. Memory of devices lies in
    /// slots of the driver's own; memory of the host may lie beside the program's.
    pub(crate) fn open(&mut self, kind: Kind, recorded: u64, length: u64) {
        let place = match kind {
            Kind::HostMemory => recorded
                .checked_add(length)
                .and_then(|end| end.checked_next_multiple_of(BLOCK))
                .map(|end| (recorded / BLOCK * BLOCK, end)),
            _ => slots_around(recorded, length),
        };
        let Some(place) = place else { return };
        let overlaps = |range: &(u64, u64)| range.0 < place.1 && place.0 < range.1;
        if self.ranges.iter().any(overlaps) {
            self.recorded = subtract(&self.recorded, &[place]);
            self.learned = subtract(&union(std::mem::take(&mut self.learned)), &[place]);
            self.coming = subtract(&union(std::mem::take(&mut self.coming)), &[place]);
            self.fill();
        }
    }

    /// The driver placed memory of a call.
    pub(crate) fn placed(&mut self, call: u64, (recorded, here): (u64, u64)) {
        if recorded == here {
            self.since = call.saturating_add(1);
            return;
        }
        if self.misplaced.is_some() {
            return;
        }
        tracing::debug!(
            "call {call}: {here:#x} instead of {recorded:#x}; there: {}",
            self.occupants_of(recorded)
        );
        self.misplaced = Some(Misplaced {
            call,
            recorded,
            here,
            since: self.since,
            ..Misplaced::default()
        });
    }

    /// Something else is where memory of the program has to be; it lies `here`.
    pub(crate) fn is_taken(&mut self, call: u64, (start, end): (u64, u64), here: u64) {
        if self.misplaced.is_some() {
            return;
        }
        tracing::debug!(
            "call {call}: {start:#x} to {end:#x} is taken: {here:#x} instead; there: {}",
            self.occupants_of(start)
        );
        let (mapped, _) = self.space.mapped().unwrap_or_default();
        let others = subtract(&subtract(&mapped, &self.ranges), &self.provided);
        let is_taken = |range: &(u64, u64)| subtract(&[*range], &others) != [*range];
        let mut missing = vec![(start, end)];
        missing.extend(self.later.iter().filter(|range| is_taken(range)));
        self.misplaced = Some(Misplaced {
            call,
            recorded: start,
            here,
            since: self.since,
            missing,
            missing_since: self.since,
        });
    }

    /// What this process has mapped in the slot around an address, for messages.
    fn occupants_of(&self, address: u64) -> String {
        let slot = address / SLOT * SLOT;
        let slot = (slot, slot + SLOT);
        let (mapped, _) = self.space.mapped().unwrap_or_default();
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

    /// Where fillers belong in a process that has these ranges mapped, fillers included.
    fn wanted(&self, mapped: &[(u64, u64)], highest: u64) -> Ranges {
        let top = self.recorded.last().map_or(highest, |range| range.1);
        let wanted = self.recorded.iter().chain(&self.learned);
        let wanted = wanted.chain(&self.coming).copied();
        let wanted = wanted
            .chain([(top, highest)])
            .map(|(start, end)| (start.max(LOWEST), end.min(highest)))
            .filter(|(start, end)| start < end);
        let others = subtract(mapped, &self.ranges);
        subtract(&union(wanted.collect()), &others)
    }

    fn fill(&mut self) {
        let Some((mapped, highest)) = self.space.mapped() else {
            return;
        };
        let wanted = self.wanted(&mapped, highest);
        for range in subtract(&self.ranges, &wanted) {
            self.space.unmap(range);
        }
        let mut missing = subtract(&wanted, &self.ranges);
        missing.retain(|&range| !self.space.fill(range));
        self.ranges = subtract(&wanted, &missing);
    }

    /// Memory of the program at recorded addresses, in place of fillers; false if something else
    /// is there. It stays as long as the process.
    pub(crate) fn provide(&mut self, start: u64, end: u64) -> bool {
        let left = subtract(&self.ranges, &[(start, end)]);
        for range in subtract(&self.ranges, &left) {
            self.space.unmap(range);
        }
        self.ranges = left;
        let missing = subtract(&[(start, end)], &self.provided);
        let mut mapped = missing.clone();
        mapped.retain(|&range| self.space.provide(range));
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

#[cfg(test)]
mod simulated;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::mapping::map_exactly;

    const PAGE: u64 = 0x1000;

    fn unmap(start: u64, end: u64) {
        OwnSpace.unmap((start, end));
    }

    /// Whether nothing is mapped in a page.
    fn is_free(start: u64) -> bool {
        let free = map_exactly(start, start + PAGE, libc::PROT_NONE);
        if free {
            unmap(start, start + PAGE);
        }
        free
    }

    #[test]
    fn fillers_follow_the_recorded_map() {
        let (at, page) = (0x6123_4000_0000_u64, PAGE);
        // The last range is above all that this process maps: nothing else is filled.
        let end = (0x7fff_ffff_0000, 0x7fff_ffff_f000);
        let pages = |numbers: &[u64]| {
            let page = |&number| (at + number * page, at + (number + 1) * page);
            numbers.iter().map(page).chain([end]).collect::<Vec<_>>()
        };
        let mut fillers = Fillers::<OwnSpace>::default();
        fillers.follow(0, pages(&[0, 3]), &[]);
        assert!(!is_free(at) && is_free(at + page) && !is_free(at + 3 * page));
        fillers.follow(1, pages(&[1, 6]), &[]);
        assert!(is_free(at) && !is_free(at + page) && is_free(at + 3 * page));
        assert!(fillers.provide(at + page, at + 3 * page));
        assert!(fillers.provide(at + page, at + 2 * page), "provided");
        assert!(map_exactly(at + 8 * page, at + 9 * page, libc::PROT_NONE));
        assert!(!fillers.provide(at + 8 * page, at + 9 * page), "taken");
        fillers.follow(2, pages(&[0, 1, 2]), &[]);
        assert!(!is_free(at), "beside what was provided");
        fillers.follow(3, pages(&[]), &[]);
        assert!(is_free(at) && is_free(at + 6 * page));
        unmap(at + page, at + 3 * page);
        unmap(at + 8 * page, at + 9 * page);
    }

    #[test]
    fn what_the_driver_placed_is_open() {
        let (slot, page) = (0x6125_4000_0000_u64, PAGE);
        let mut fillers = Fillers::<OwnSpace>::default();
        let end = (0x7fff_ffff_0000, 0x7fff_ffff_f000);
        fillers.follow(
            0,
            vec![(slot, slot + SLOT), (slot + SLOT, slot + 2 * SLOT), end],
            &[],
        );
        fillers.open(Kind::Memory, slot + 3 * SLOT, page);
        assert!(!is_free(slot) && !is_free(slot + SLOT));
        fillers.open(Kind::HostMemory, slot + page, page);
        assert!(is_free(slot) && !is_free(slot + BLOCK) && !is_free(slot + SLOT));
        fillers.open(Kind::Memory, slot + page, page);
        assert!(is_free(slot + BLOCK) && !is_free(slot + SLOT));
        fillers.follow(1, vec![end], &[]);
    }

    #[test]
    fn memory_that_the_program_registers_later_is_kept_free_for_it() {
        let (start, page) = (0x6124_4000_0000_u64, 0x1000);
        let region = HostRegion {
            start,
            end: start + page,
        };
        let mut fillers = Fillers::<OwnSpace>::new(Vec::new(), &[region]);
        let end = (0x7fff_ffff_0000, 0x7fff_ffff_f000);
        fillers.follow(0, vec![end], &[]);
        assert!(!map_exactly(start, start + page, libc::PROT_NONE));
        assert!(fillers.provide(start, start + page));
        unmap(start, start + page);
        let long = (start, start + BLOCK);
        let region = HostRegion {
            start,
            end: start + BLOCK,
        };
        let mut fillers = Fillers::<OwnSpace>::new(Vec::new(), &[region]);
        fillers.follow(0, vec![end], &[]);
        assert!(map_exactly(start, start + page, libc::PROT_NONE), "free");
        assert!(!fillers.provide(long.0, long.1));
        fillers.placed(4, (start, start));
        fillers.is_taken(9, (start, start + page), 0x6000_0000_0000);
        unmap(start, start + page);
        let lesson = Lesson::of(&fillers.misplaced.unwrap(), &[]).unwrap();
        assert_eq!((lesson.call, lesson.filled[1]), (5, long));
        let mut fillers = Fillers::<OwnSpace>::new(vec![lesson], &[region]);
        fillers.follow(0, vec![end], &[]);
        assert!(is_free(start), "until that call");
        fillers.before(5, &[]);
        assert!(!is_free(start) && !is_free(long.1 - page));
        assert!(fillers.provide(long.0, long.1));
        unmap(long.0, long.1);
    }

    #[test]
    fn a_lesson_is_applied_before_its_call() {
        let lesson = |call, above| Lesson {
            call,
            above: Some(above),
            filled: vec![(4096, 8192)],
        };
        let highest = OwnSpace.mapped().unwrap().1;
        let lessons = vec![lesson(7, highest), lesson(7, highest - 4096)];
        let mut fillers = Fillers::<OwnSpace>::new(lessons, &[]);
        fillers.before(6, &[]);
        assert_eq!(fillers.learned, []);
        fillers.before(7, &[]);
        let filled = (4096, 8192);
        assert_eq!(fillers.learned, [filled, filled, (highest - 4096, highest)]);
        assert_eq!(fillers.lessons, []);
    }
}
