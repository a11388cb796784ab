//! The address ranges that the process has mapped, in the trace: the driver places its memory in
//! the gaps, so a replay that has the same gaps gets the same addresses (measured on driver 580).

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::fs::File;
use std::io::Read;

use cutape_format::layout::{ARENA, note_kind};
use cutape_maps::{Mapping, for_each_line};
use cutape_registry::{ContextOp, Family, PrimaryOp};

use super::objects;
use crate::hot::clock;
use crate::hot::frame::Frame;
use crate::hot::thread::Thread;
use crate::process::errno::Errno;
use crate::process::memory::Scratch;

/// A program may create contexts or threads without end.
const MOST_NOTES: u32 = 128;
/// Nanoseconds after which a map is taken for an old one.
const OLD: u64 = 50_000_000;
/// After so many notes, a map may be twice as old.
const NOTES_UNTIL_DOUBLE: u32 = 16;
/// Bytes of the kernel's list that are read at once.
const PIECE: usize = 64 << 10;
/// Most ranges in a note; with this many, a note has 1 MiB.
const MOST_RANGES: usize = 64 << 10;

static NOTES: AtomicU32 = AtomicU32::new(0);
/// A bit for each device whose primary context was retained.
static RETAINED: AtomicU64 = AtomicU64::new(0);
/// How many objects the loader had ever added at the last note before a load.
static ADDED: AtomicU64 = AtomicU64::new(0);
/// When the last note was made, in nanoseconds of CLOCK_MONOTONIC.
static NOTED: AtomicU64 = AtomicU64::new(0);

/// In a forked child, whose driver is not initialised.
pub(crate) fn forget() {
    NOTES.store(0, Ordering::Relaxed);
    RETAINED.store(0, Ordering::Relaxed);
    ADDED.store(0, Ordering::Relaxed);
}

/// Whether `before` has something to do at the calls of a family.
pub(crate) fn is_noted_before(family: Family) -> bool {
    let begins = matches!(
        family,
        Family::Init
            | Family::Context(ContextOp::Create)
            | Family::PrimaryContext(PrimaryOp::Retain)
    );
    begins || family.may_reserve_addresses()
}

/// Notes the map before calls that initialise the driver or create a context, before loads of
/// images if libraries were loaded since the last, and before calls that may reserve addresses if
/// the last note is old: other threads of the program may have mapped memory meanwhile.
pub(crate) fn before(thread: &Thread, frame: &Frame, family: Family) {
    let is_wanted = match family {
        Family::PrimaryContext(PrimaryOp::Retain) => {
            let device = 1 << (frame.word(1) % 64);
            RETAINED.fetch_or(device, Ordering::Relaxed) & device == 0
        }
        Family::Init | Family::Context(ContextOp::Create) => true,
        Family::ModuleLoad(_) | Family::LibraryLoad(_) => {
            let added = objects::added();
            ADDED.swap(added, Ordering::Relaxed) != added || is_old()
        }
        _ => is_old(),
    };
    if is_wanted {
        note(thread);
    }
}

/// Notes the map before the first call of a thread, whose stack and arena are new in it; not before
/// the driver is initialised.
pub(crate) fn before_first(thread: &Thread) {
    if NOTES.load(Ordering::Relaxed) > 0 {
        note(thread);
    }
}

/// Whether the last note is old; false while there is none.
fn is_old() -> bool {
    let notes = NOTES.load(Ordering::Relaxed);
    if notes == 0 || notes >= MOST_NOTES {
        return false;
    }
    let now = clock::nanoseconds(libc::CLOCK_MONOTONIC);
    let age = now.saturating_sub(NOTED.load(Ordering::Relaxed));
    age > OLD << (notes / NOTES_UNTIL_DOUBLE)
}

fn note(thread: &Thread) {
    if NOTES.fetch_add(1, Ordering::Relaxed) >= MOST_NOTES {
        return;
    }
    let now = clock::nanoseconds(libc::CLOCK_MONOTONIC);
    NOTED.store(now, Ordering::Relaxed);
    let _errno = Errno::keep();
    // Not from the program's allocator, which would change the map.
    let Some(mut scratch) = Scratch::new(16 * MOST_RANGES + PIECE) else {
        return;
    };
    let (ranges, piece) = scratch.bytes().split_at_mut(16 * MOST_RANGES);
    let own = ranges.as_ptr() as u64;
    let own = (own, own + (16 * MOST_RANGES + PIECE) as u64);
    let Some(length) = File::open("/proc/self/maps")
        .ok()
        .and_then(|list| read_ranges(list, piece, ranges, own))
    else {
        return;
    };
    let ranges = ranges.get(..length).unwrap_or_default();
    thread.note(note_kind::ADDRESS_SPACE, |draft| draft.put(ranges));
}

/// Reads the kernel's list into pairs of start and end, without the range `own`, up to the stack.
/// Adjacent ranges are joined, but not what may be a thread's arena with others: a replay can see
/// which memory is not the driver's. Returns their bytes.
fn read_ranges(
    list: impl Read,
    piece: &mut [u8],
    ranges: &mut [u8],
    own: (u64, u64),
) -> Option<usize> {
    let mut used = 0;
    let mut last = (0, 0);
    // Where the arena that was read last ends.
    let mut arena_end = 0;
    let mut put = |range: (u64, u64)| {
        if range.0 != range.1 {
            let place = ranges.get_mut(used..used + 16)?;
            let (start, end) = place.split_at_mut(8);
            start.copy_from_slice(&range.0.to_le_bytes());
            end.copy_from_slice(&range.1.to_le_bytes());
            used += 16;
        }
        Some(())
    };
    let mut take = |mapping: Mapping<'_>| {
        let range = (mapping.start, mapping.end);
        let is_arena = range.0.is_multiple_of(ARENA)
            && range.1.wrapping_sub(range.0) <= ARENA
            && (mapping.permissions == b"rw-p" && mapping.path.is_empty());
        let parts = [(range.0, range.1.min(own.0)), (range.0.max(own.1), range.1)];
        for (start, end) in parts.into_iter().filter(|(start, end)| start < end) {
            let is_whole = last.1 == arena_end;
            if last.1 == start && !is_whole && !is_arena {
                last.1 = end;
            } else {
                put(last)?;
                last = (start, end);
            }
        }
        if is_arena {
            arena_end = range.0.wrapping_add(ARENA);
        }
        Some(())
    };
    let mut is_read = true;
    let read = for_each_line(list, piece, |line| {
        let mapping = Mapping::parse(line);
        if mapping.is_some_and(|mapping| mapping.is_stack()) {
            return ControlFlow::Break(());
        }
        is_read = mapping.and_then(&mut take).is_some();
        match is_read {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    read.ok().filter(|()| is_read)?;
    put(last)?;
    Some(used)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges_of(text: &str, own: (u64, u64)) -> Option<Vec<u64>> {
        let mut ranges = [0; 64];
        let length = read_ranges(text.as_bytes(), &mut [0; 64], &mut ranges, own)?;
        let words = ranges[..length].chunks_exact(8);
        Some(
            words
                .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
                .collect(),
        )
    }

    #[test]
    fn ranges_are_joined_and_without_the_readers_own() {
        let text = "1000-2000 r--p 00000200 08:01 42  /lib/1234-5678\n\
                    2000-5000 rw-p 00000000 00:00 0\n\
                    7ffff7fc1000-7ffff7fc5000 r--p 00000000 00:00 0 [vvar]\n";
        let top = [0x7fff_f7fc_1000, 0x7fff_f7fc_5000];
        let cases: [((u64, u64), &[u64]); 4] = [
            ((0, 0), &[0x1000, 0x5000]),
            ((0x2000, 0x3000), &[0x1000, 0x2000, 0x3000, 0x5000]),
            ((0x1000, 0x5000), &[]),
            ((0x4000, 0x6000), &[0x1000, 0x4000]),
        ];
        for (own, expected) in cases {
            let expected = [expected, &top].concat();
            assert_eq!(ranges_of(text, own), Some(expected), "{own:x?}");
        }
        let stack = "1000-2000 rw-p 00000000 00:00 0 [sta\n\
                     3000-4000 rw-p 00000000 00:00 0    [stack]\n\
                     5000-6000 rw-p 00000000 00:00 0\n";
        assert_eq!(ranges_of(stack, (0, 0)), Some(vec![0x1000, 0x2000]));
        let arenas = "7ffff0000000-7ffff0021000 rw-p 00000000 00:00 0 \n\
                      7ffff0021000-7ffff4000000 ---p 00000000 00:00 0 \n\
                      7ffff4000000-7ffff6000000 ---p 00000000 00:00 0 \n\
                      7ffff6000000-7ffff8000000 rw-p 00000000 00:00 0 \n\
                      7ffff8000000-7ffffc000000 rw-p 00000000 00:00 0 \n\
                      7ffffc000000-7ffffc001000 rw-p 00000000 08:01 42 /f\n\
                      7ffffc001000-7ffffc002000 r--p 00000000 00:00 0 \n";
        let starts = [0x7fff_f000_0000, 0x7fff_f400_0000, 0x7fff_f800_0000];
        let last = 0x7fff_fc00_0000;
        let expected = [starts[0], starts[1], starts[1], starts[2], starts[2], last];
        let expected = [&expected[..], &[last, last + 0x2000]].concat();
        assert_eq!(ranges_of(arenas, (0, 0)), Some(expected), "arenas");
        assert_eq!(ranges_of("x\n", (0, 0)), None);
        let line = |at| format!("{at}000-{at}001 rw-p 00000000 00:00 0\n");
        let many: String = (1..9).map(line).collect();
        assert_eq!(ranges_of(&many, (0, 0)), None, "no room");
    }
}
