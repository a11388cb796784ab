//! The arenas of threads in a process's map: memory of the C library's allocator, not the driver's.

use cutape_format::layout::ARENA;

/// Those of recorded ranges that look like the arenas of threads, and whether each touches another
/// range: a block of the driver's can look like one only if it does not.
pub(crate) fn touching_arenas(
    recorded: &[(u64, u64)],
) -> impl Iterator<Item = ((u64, u64), bool)> {
    let ends_at = |at: usize| {
        at.checked_sub(1)
            .and_then(|at| recorded.get(at))
            .map(|range| range.1)
    };
    let starts_at = |at: usize| recorded.get(at).map(|range| range.0);
    let arenas = recorded
        .iter()
        .enumerate()
        .filter(|(_, (start, end))| start % ARENA == 0 && end - start == ARENA);
    arenas.map(move |(at, &(start, end))| {
        let touches = ends_at(at) == Some(start) || starts_at(at + 1) == Some(end);
        ((start, end), touches)
    })
}

/// Those of recorded ranges that look like the arenas of threads.
pub(crate) fn arenas_in(recorded: &[(u64, u64)]) -> impl Iterator<Item = (u64, u64)> {
    touching_arenas(recorded).map(|(arena, _)| arena)
}

/// Whether a line of a process's map is the used part of a thread's arena.
pub(crate) fn is_arena(line: &str, start: u64) -> bool {
    line.strip_prefix(&format!("{start:x}-"))
        .is_some_and(|rest| rest.contains(" rw-p 00000000 00:00 0") && !rest.contains(['/', '[']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arenas_are_ranges_of_their_own() {
        let (at, arena) = (0x7f12_0000_0000_u64, ARENA);
        let whole = (at, at + arena);
        for (ranges, expected) in [
            (&[whole][..], &[(whole, false)][..]),
            (&[(at - 1, at), whole], &[(whole, true)]),
            (&[whole, (at + arena, at + arena + 1)], &[(whole, true)]),
            (
                &[(at - 2, at - 1), whole, (at + arena + 1, at + arena + 2)],
                &[(whole, false)],
            ),
            (&[(at - 1, at), (at, at + arena / 2)], &[]),
            (
                &[(at + 4095, at + 4096), (at + 4096, at + 4096 + arena)],
                &[],
            ),
        ] {
            let found: Vec<_> = touching_arenas(ranges).collect();
            assert_eq!(found, expected, "{ranges:x?}");
        }
        let used = "7f1200000000-7f1200021000 rw-p 00000000 00:00 0 ";
        assert!(is_arena(used, at));
        for line in [
            "7f1200000000-7f1200021000 ---p 00000000 00:00 0 ",
            "7f1200000000-7f1200021000 rw-p 00000000 00:05 9 /dev/zero",
            "7f1204000000-7f1204021000 rw-p 00000000 00:00 0 ",
        ] {
            assert!(!is_arena(line, at), "{line}");
        }
    }
}
