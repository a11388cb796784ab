//! Dividing what memory holds into the pieces that a trace stores: bytes, or a word that repeats.

use cutape_format::layout::repeated_word;

/// Unit in which memory is looked at.
const UNIT: usize = 64 << 10;
/// Most bytes of a piece of bytes, and what its end is a multiple of, so that equal parts of memory
/// are found.
pub(super) const LONGEST: usize = 1 << 20;

/// Joins bytes of one range of memory, which come in order, to pieces.
#[derive(Debug, Default)]
pub(super) struct Divider {
    /// A run of a repeated word that may go on: where it begins, its bytes, the word.
    run: Option<(u64, u64, u64)>,
}

/// A piece: its offset in the range, its bytes, and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece<'b> {
    pub(super) at: u64,
    pub(super) length: u64,
    pub(super) held: Held<'b>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held<'b> {
    /// A word that repeats.
    Word(u64),
    Bytes(&'b [u8]),
}

impl Divider {
    /// Takes the bytes from an offset on, a multiple of `LONGEST`.
    pub(super) fn add(&mut self, mut at: u64, bytes: &[u8], put: &mut dyn FnMut(Piece<'_>)) {
        for block in bytes.chunks(LONGEST) {
            let mut plain = 0;
            let mut seen = 0;
            for unit in block.chunks(UNIT) {
                if let Some(word) = repeated_word(unit) {
                    self.put_bytes(at, block, plain..seen, put);
                    self.extend(at + seen as u64, unit.len() as u64, word, put);
                    plain = seen + unit.len();
                }
                seen += unit.len();
            }
            self.put_bytes(at, block, plain..seen, put);
            at += block.len() as u64;
        }
    }

    /// After the last bytes.
    pub(super) fn finish(&mut self, put: &mut dyn FnMut(Piece<'_>)) {
        if let Some((at, length, word)) = self.run.take() {
            let held = Held::Word(word);
            put(Piece { at, length, held });
        }
    }

    fn put_bytes(
        &mut self,
        at: u64,
        block: &[u8],
        part: core::ops::Range<usize>,
        put: &mut dyn FnMut(Piece<'_>),
    ) {
        let start = at + part.start as u64;
        let Some(bytes) = block.get(part).filter(|bytes| !bytes.is_empty()) else {
            return;
        };
        self.finish(put);
        put(Piece {
            at: start,
            length: bytes.len() as u64,
            held: Held::Bytes(bytes),
        });
    }

    fn extend(&mut self, at: u64, length: u64, word: u64, put: &mut dyn FnMut(Piece<'_>)) {
        if let Some((_, known, held)) = &mut self.run
            && *held == word
        {
            *known += length;
            return;
        }
        self.finish(put);
        self.run = Some((at, length, word));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_word_and_bytes_are_pieces() {
        let mixed = |length: usize| (0..length).map(|at| at as u8).collect::<Vec<u8>>();
        let words = |byte: u8, length: usize| vec![byte; length];
        let word = |byte: u8| Some(u64::from_le_bytes([byte; 8]));
        type Pieces<'a> = &'a [(usize, usize, Option<u64>)];
        let cases: [(Vec<u8>, Pieces<'_>); 6] = [
            (vec![], &[]),
            (words(0, 3), &[(0, 3, word(0))]),
            (mixed(100), &[(0, 100, None)]),
            (words(7, 3 * LONGEST + 9), &[(0, 3 * LONGEST + 9, word(7))]),
            (
                [mixed(UNIT), words(1, UNIT), words(2, 2 * UNIT), mixed(5)].concat(),
                &[
                    (0, UNIT, None),
                    (UNIT, UNIT, word(1)),
                    (2 * UNIT, 2 * UNIT, word(2)),
                    (4 * UNIT, 5, None),
                ],
            ),
            (
                [words(0, UNIT), mixed(LONGEST)].concat(),
                &[
                    (0, UNIT, word(0)),
                    (UNIT, LONGEST - UNIT, None),
                    (LONGEST, UNIT, None),
                ],
            ),
        ];
        for (bytes, expected) in cases {
            // As a whole, and in parts.
            for part in [4 * LONGEST, LONGEST] {
                let mut divider = Divider::default();
                let mut found = Vec::new();
                let mut put = |piece: Piece<'_>| {
                    let (at, length) = (piece.at as usize, piece.length as usize);
                    let held = match piece.held {
                        Held::Word(word) => Some(word),
                        Held::Bytes(held) => {
                            assert_eq!(held, &bytes[at..at + length]);
                            None
                        }
                    };
                    found.push((at, length, held));
                };
                for (number, bytes) in bytes.chunks(part).enumerate() {
                    divider.add((number * part) as u64, bytes, &mut put);
                }
                divider.finish(&mut put);
                assert_eq!(found, expected);
            }
        }
    }
}
