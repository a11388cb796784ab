//! The whole loop of placement without a GPU: a simulated process is recorded and replayed, where the
//! kernel maps from the top down into the highest gap that is large enough, the driver reserves whole
//! slots there, and threads of the driver make their arenas at random moments in the recording.

use cutape_format::layout::ARENA;

use super::*;
use crate::process::arenas::{arenas_in, coming_arenas};

const PAGE: u64 = 0x1000;
/// Where the mappings of a process end whose addresses are not random.
const TOP: u64 = 0x7fff_f7ff_f000;

#[derive(Debug, Default)]
struct Process {
    mapped: Ranges,
    top: u64,
}

impl AddressSpace for Process {
    fn mapped(&self) -> Option<(Ranges, u64)> {
        Some((union(self.mapped.clone()), self.top))
    }

    fn fill(&mut self, range: (u64, u64)) -> bool {
        let is_free = subtract(&[range], &union(self.mapped.clone())) == [range];
        if is_free {
            self.mapped.push(range);
        }
        is_free
    }

    fn provide(&mut self, range: (u64, u64)) -> bool {
        self.fill(range)
    }

    fn unmap(&mut self, range: (u64, u64)) {
        let mapped = std::mem::take(&mut self.mapped);
        let left = mapped.iter().flat_map(|&one| subtract(&[one], &[range]));
        self.mapped = left.collect();
    }
}

/// How the driver gets whole slots (assumed: which way it goes is not known).
#[derive(Clone, Copy, Debug)]
enum Alignment {
    /// It asks for the highest place that fits.
    Exact,
    /// It asks for a slot more and gives back what is below and above.
    Trimmed,
}

impl Process {
    /// The highest gap for these bytes at a multiple of an alignment.
    fn place(&self, length: u64, alignment: u64) -> u64 {
        let mapped = union(self.mapped.clone());
        let free = gaps((LOWEST, self.top), mapped.into_iter());
        let start = |&(start, end): &(u64, u64)| {
            let at = end.checked_sub(length)? / alignment * alignment;
            (at >= start).then_some(at)
        };
        free.iter().rev().find_map(start).expect("there is room")
    }

    fn map(&mut self, length: u64) -> u64 {
        let at = self.place(length, PAGE);
        self.mapped.push((at, at + length));
        at
    }

    /// As the C library does: maps twice the length, and unmaps what is too much.
    fn aligned(&mut self, length: u64, asked: u64, alignment: u64) -> u64 {
        let at = self.map(asked);
        let start = at.next_multiple_of(alignment);
        self.unmap((at, start));
        self.unmap((start + length, at + asked));
        start
    }

    fn arena(&mut self) {
        self.aligned(ARENA, 2 * ARENA, ARENA);
    }

    fn reserve(&mut self, length: u64, alignment: Alignment) -> u64 {
        match alignment {
            Alignment::Exact => {
                let at = self.place(length, SLOT);
                self.mapped.push((at, at + length));
                at
            }
            Alignment::Trimmed => self.aligned(length, length + SLOT, SLOT),
        }
    }

    /// Arenas are told apart, as the recorder does.
    fn noted(&self) -> Ranges {
        let (arenas, others): (Ranges, Ranges) = self
            .mapped
            .iter()
            .partition(|range| arenas_in(&[**range]).count() == 1);
        let mut noted = union(others);
        noted.extend(arenas);
        noted.sort_unstable();
        noted
    }
}

/// Random numbers by a linear congruence.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % end
    }

    /// Libraries with gaps among them, of which some hold a slot.
    fn libraries(&mut self, process: &mut Process) {
        for _ in 0..30 {
            let length = PAGE * (1 + self.below(4000));
            process.map(length);
            let gap = process.map(PAGE * (1 + self.below(500) * self.below(80)));
            if self.below(3) == 0 {
                process.mapped.retain(|range| range.0 != gap);
            }
        }
    }
}

/// One driver call: slots that it reserves, and after how many of them a thread of the driver makes its
/// arena; what the program maps before it.
struct Step {
    reserved: Vec<u64>,
    arena: Option<usize>,
    program: Option<u64>,
}

/// Whether a replay of a random recording gets all recorded addresses. With `is_blind`, fillers do not
/// stand for arenas before they are noted.
fn is_natural(seed: u64, alignment: Alignment, with_arenas: bool, is_blind: bool) -> bool {
    let mut random = Random(seed);
    let steps: Vec<Step> = (0..6)
        .map(|_| {
            let reserved: Vec<u64> = (0..1 + random.below(4))
                .map(|_| SLOT * [1, 1, 2, 16][random.below(4) as usize])
                .collect();
            let arena = (random.below(2) == 0).then(|| random.below(reserved.len() as u64 + 1));
            let program = (random.below(2) == 0).then(|| PAGE * (1 + random.below(30_000)));
            Step {
                reserved,
                arena: arena.map(|at| at as usize).filter(|_| with_arenas),
                program,
            }
        })
        .collect();
    let mut recorded = Process {
        top: 0x7f5a_0000_0000 + PAGE * random.below(1 << 20),
        ..Process::default()
    };
    random.libraries(&mut recorded);
    let mut noted = Vec::new();
    let mut addresses = Vec::new();
    for step in &steps {
        if let Some(length) = step.program {
            recorded.map(length);
        }
        noted.push(recorded.noted());
        for at in 0..=step.reserved.len() {
            if step.arena == Some(at) {
                recorded.arena();
            }
            if let Some(&length) = step.reserved.get(at) {
                addresses.push((recorded.reserve(length, alignment), length));
            }
        }
    }
    noted.push(recorded.noted());
    let driver = union(
        addresses
            .iter()
            .map(|&(at, length)| (at, at + length))
            .collect(),
    );
    let arenas = (0..)
        .zip(&noted)
        .map(|(call, map)| (call, arenas_in(map).collect()));
    let coming = coming_arenas(&arenas.collect::<Vec<_>>(), &driver);
    let mut fillers = Fillers::<Process>::default();
    fillers.space.top = TOP;
    random.libraries(&mut fillers.space);
    let mut expected = addresses.into_iter();
    steps
        .iter()
        .zip((0..).zip(noted))
        .all(|(step, (call, map))| {
            let coming = coming.get(&call).filter(|_| !is_blind);
            let coming = coming.map_or(&[][..], Vec::as_slice);
            fillers.follow(call, map, coming);
            step.reserved.iter().all(|&length| {
                let recorded = expected.next();
                recorded == Some((fillers.space.reserve(length, alignment), length))
            })
        })
}

#[test]
fn the_driver_places_memory_where_it_did_whenever_its_threads_make_arenas() {
    const SEEDS: std::ops::Range<u64> = 0..300;
    for alignment in [Alignment::Exact, Alignment::Trimmed] {
        let elsewhere = |with_arenas, is_blind| {
            SEEDS
                .filter(|&seed| !is_natural(seed, alignment, with_arenas, is_blind))
                .collect::<Vec<_>>()
        };
        assert_eq!(elsewhere(false, false), Vec::<u64>::new(), "{alignment:?}");
        assert_eq!(
            elsewhere(true, false),
            Vec::<u64>::new(),
            "{alignment:?}, with arenas"
        );
        assert!(elsewhere(true, true).len() > 30, "{alignment:?}");
    }
}
