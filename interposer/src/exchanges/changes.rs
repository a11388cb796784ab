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
    let length = before.len().min(after.len());
    let mut at = 0;
    core::iter::from_fn(move || {
        let start = next_change(before, after, at)?;
        let mut end = (start + WORD).min(length);
        while let Some(next) = next_change(before, after, end)
            && next - end <= GAP
        {
            end = (next + WORD).min(length);
        }
        at = end;
        Some(start..end)
    })
}

/// Where the next word begins, from there on, that differs.
fn next_change(before: &[u8], after: &[u8], from: usize) -> Option<usize> {
    let (before, after) = (before.get(from..)?, after.get(from..)?);
    let mut blocks = before.chunks(BLOCK).zip(after.chunks(BLOCK));
    let block = blocks.position(|(before, after)| before != after)?;
    let part = |bytes: &'_ [u8]| -> Option<Range<usize>> {
        let start = block * BLOCK;
        Some(start..(start + BLOCK).min(bytes.len()))
    };
    let (old, new) = (before.get(part(before)?)?, after.get(part(after)?)?);
    let mut words = old.chunks(WORD).zip(new.chunks(WORD));
    let word = words.position(|(old, new)| old != new)?;
    Some(from + block * BLOCK + word * WORD)
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
