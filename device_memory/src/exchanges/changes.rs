//! Which bytes differ between two copies of memory.

use core::ops::Range;

/// Bytes that are compared at once while they are equal.
const BLOCK: usize = 4096;
const WORD: usize = 8;
/// Equal bytes between two changes that are joined to them: as long as the head of a note.
const GAP: usize = 64;

/// The changed pieces, in order, in words of eight bytes; those with a small gap between them are
/// one.
pub(super) fn pieces<'a>(
    before: &'a [u8],
    after: &'a [u8],
) -> impl Iterator<Item = Range<usize>> + 'a {
    let mut at = 0;
    core::iter::from_fn(move || {
        let start = next_change(before, after, at)?;
        at = end_of_piece(before, after, start);
        Some(start..at)
    })
}

/// Where the next word begins, from there on, that differs.
fn next_change(before: &[u8], after: &[u8], from: usize) -> Option<usize> {
    let (before, after) = (before.get(from..)?, after.get(from..)?);
    let mut blocks = before.chunks(BLOCK).zip(after.chunks(BLOCK)).enumerate();
    let (block, (old, new)) = blocks.find(|(_, (old, new))| old != new)?;
    let mut words = old.chunks(WORD).zip(new.chunks(WORD));
    let word = words.position(|(old, new)| old != new)?;
    Some(from + block * BLOCK + word * WORD)
}

/// Behind the last word of a piece that begins there. Word by word, because memory that changes at
/// all mostly changes as a whole.
fn end_of_piece(before: &[u8], after: &[u8], start: usize) -> usize {
    let old = before.get(start..).unwrap_or_default();
    let new = after.get(start..).unwrap_or_default();
    let mut end = 0;
    let ((old, old_rest), (new, new_rest)) = (old.as_chunks::<WORD>(), new.as_chunks::<WORD>());
    for (at, (old, new)) in old.iter().zip(new).enumerate() {
        if u64::from_ne_bytes(*old) != u64::from_ne_bytes(*new) {
            end = (at + 1) * WORD;
        } else if (at + 1) * WORD - end > GAP {
            return start + end;
        }
    }
    let whole = old.len().min(new.len()) * WORD;
    if old_rest != new_rest {
        end = whole + old_rest.len();
    }
    start + end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_words_are_found() {
        let before = vec![7; 3 * BLOCK + 3];
        let last = before.len();
        for (changed, expected) in [
            (vec![], vec![]),
            (vec![0], vec![(0, 8)]),
            (vec![9, 15], vec![(8, 16)]),
            // Gaps of 64 bytes, and of one word more.
            (vec![8, 80], vec![(8, 88)]),
            (vec![8, 88], vec![(8, 16), (88, 96)]),
            (vec![BLOCK - 1, BLOCK], vec![(BLOCK - 8, BLOCK + 8)]),
            (vec![last - 1], vec![(last - 3, last)]),
            ((0..last).collect(), vec![(0, last)]),
        ] {
            let mut after = before.clone();
            for &at in &changed {
                after[at] = 8;
            }
            let pieces = pieces(&before, &after);
            let found: Vec<_> = pieces.map(|piece| (piece.start, piece.end)).collect();
            assert_eq!(found, expected, "{} bytes changed", changed.len());
        }
        assert_eq!(pieces(&[], &[]).count(), 0);
    }
}
