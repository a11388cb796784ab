//! The arenas of threads in a process's map: memory of the C library's allocator, not the driver's.

use std::collections::BTreeMap;

use cutape_format::layout::ARENA;

use crate::process::address_space::Ranges;

/// Those of recorded ranges that look like the arenas of threads.
pub(crate) fn arenas_in(recorded: &[(u64, u64)]) -> impl Iterator<Item = (u64, u64)> {
    let is_arena = |&(start, end): &(u64, u64)| start % ARENA == 0 && end - start == ARENA;
    recorded.iter().copied().filter(is_arena)
}

/// The arenas that first appear in the next address space, by the call before which one was noted.
/// `noted` are the arenas of each, in order. What lies where the driver ever had memory of devices only
/// looks like an arena.
pub(crate) fn coming_arenas(
    noted: &[(u64, Ranges)],
    driver: &[(u64, u64)],
) -> BTreeMap<u64, Ranges> {
    let is_apart = |arena: &(u64, u64)| {
        let mut slots = driver.iter();
        slots.all(|slot| arena.1 <= slot.0 || slot.1 <= arena.0)
    };
    let pairs = noted.iter().zip(noted.iter().skip(1));
    let coming = pairs.map(|((call, before), (_, after))| {
        let coming = after.iter().filter(|arena| !before.contains(arena));
        (*call, coming.copied().filter(is_apart).collect())
    });
    coming.collect()
}
