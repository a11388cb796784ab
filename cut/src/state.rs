//! What memory holds where a part begins, as pieces that a trace stores: bytes, or one word that
//! repeats.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use cutape_format::MemoryPiece;
use cutape_format::layout::{MemoryNote, repeated_word};
use cutape_replay::Piece;

/// Unit in which memory is looked at.
const PAGE: u64 = 4096;
/// Shorter runs of one word stay among the bytes around them.
const SHORTEST_FILL: u64 = 16 * PAGE;
/// Most bytes of a piece, so that equal parts of memory are found and few bytes are in memory.
const LONGEST_PIECE: u64 = 1 << 20;

/// Some memory and what it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Its recorded address; of a variable that no call names 0.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Of a variable that no call names: the recorded handle of its module or library, whether it is
    /// a library, and its name.
    pub variable: Option<(u64, bool, String)>,
    /// Its bytes that are not zero, in order.
    pub runs: Vec<Piece>,
}

/// What memory holds where a part begins.
#[derive(Debug)]
pub struct MemoryState {
    /// The memory, by address.
    pub memory: Vec<Memory>,
    /// The file with the bytes.
    pub contents: File,
}

/// Pieces, and where the bytes of each are: the number of its memory, and the offset there.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    pub(crate) list: Vec<MemoryPiece>,
    places: Vec<(usize, u64)>,
}

impl MemoryState {
    /// Divides the memory into pieces.
    ///
    /// # Errors
    /// Errors of reading the file.
    pub(crate) fn pieces(&self) -> io::Result<Pieces> {
        let mut pieces = Pieces::default();
        for (number, memory) in self.memory.iter().enumerate() {
            let mut divider = Divider {
                memory,
                number,
                bytes: None,
                run: None,
                pieces: &mut pieces,
            };
            let mut page = Vec::new();
            let mut at = 0;
            while at < memory.length {
                let length = PAGE.min(memory.length - at);
                // Long ranges of zeros are not looked at.
                let next = next_run(memory, at);
                if next >= at + SHORTEST_FILL {
                    let end = next.min(memory.length) / PAGE * PAGE;
                    if end > at {
                        divider.add(at, end - at, Some(0));
                        at = end;
                        continue;
                    }
                }
                self.read(memory, at, length, &mut page)?;
                divider.add(at, length, repeated_word(&page));
                at += length;
            }
            divider.finish();
        }
        Ok(pieces)
    }

    /// The bytes of a piece.
    pub(crate) fn bytes(&self, pieces: &Pieces, position: usize) -> io::Result<Vec<u8>> {
        let missing = || io::Error::new(io::ErrorKind::InvalidInput, "no such piece of memory");
        let &(number, at) = pieces.places.get(position).ok_or_else(missing)?;
        let memory = self.memory.get(number).ok_or_else(missing)?;
        let piece = pieces.list.get(position).ok_or_else(missing)?;
        let mut bytes = Vec::new();
        self.read(memory, at, piece.note.length, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads a part of some memory: bytes in no run are zero.
    fn read(&self, memory: &Memory, at: u64, length: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
        bytes.clear();
        bytes.resize(length as usize, 0);
        let end = at + length;
        let first = memory.runs.partition_point(|run| run.at + run.length <= at);
        for run in memory.runs.iter().skip(first) {
            if run.at >= end {
                break;
            }
            let (from, to) = (run.at.max(at), (run.at + run.length).min(end));
            let target = bytes.get_mut((from - at) as usize..(to - at) as usize);
            let offset = run.file + (from - run.at);
            self.contents
                .read_exact_at(target.unwrap_or_default(), offset)?;
        }
        Ok(())
    }
}

/// Where the first run begins that has bytes from an offset on.
fn next_run(memory: &Memory, at: u64) -> u64 {
    let first = memory.runs.partition_point(|run| run.at + run.length <= at);
    memory.runs.get(first).map_or(memory.length, |run| run.at)
}

/// Joins pages of one memory to pieces.
struct Divider<'a> {
    memory: &'a Memory,
    number: usize,
    /// Bytes that are not a piece yet: where they begin, and how many they are.
    bytes: Option<(u64, u64)>,
    /// What follows them, and the word that it repeats.
    run: Option<(u64, u64, Option<u64>)>,
    pieces: &'a mut Pieces,
}

impl Divider<'_> {
    fn add(&mut self, at: u64, length: u64, fill: Option<u64>) {
        match &mut self.run {
            Some((_, known, word)) if fill.is_some() && *word == fill => *known += length,
            _ => {
                self.close_run();
                self.run = Some((at, length, fill));
            }
        }
    }

    fn finish(mut self) {
        self.close_run();
        self.close_bytes();
    }

    fn close_run(&mut self) {
        let Some((at, length, fill)) = self.run.take() else {
            return;
        };
        let is_all = length == self.memory.length;
        if fill.is_some() && (length >= SHORTEST_FILL || is_all) {
            self.close_bytes();
            return self.put(at, length, fill);
        }
        let (_, known) = self.bytes.get_or_insert((at, 0));
        *known += length;
    }

    fn close_bytes(&mut self) {
        let Some((start, length)) = self.bytes.take() else {
            return;
        };
        let (mut at, end) = (start, start + length);
        while at < end {
            // Pieces end at the same places however the memory before them is divided.
            let part = (LONGEST_PIECE - at % LONGEST_PIECE).min(end - at);
            self.put(at, part, None);
            at += part;
        }
    }

    fn put(&mut self, at: u64, length: u64, fill: Option<u64>) {
        let (owner, is_library, name) = match &self.memory.variable {
            Some((owner, is_library, name)) => (*owner, *is_library, name.clone()),
            None => (0, false, String::new()),
        };
        self.pieces.list.push(MemoryPiece {
            note: MemoryNote {
                address: self.memory.address.wrapping_add(at),
                length,
                fill: fill.unwrap_or(0),
                owner,
                is_library: u8::from(is_library),
                name_length: 0,
            },
            name,
            has_bytes: fill.is_none(),
        });
        self.pieces.places.push((self.number, at));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Memory of these pages: a number is the byte that all of the page holds, `None` a page of
    /// different bytes.
    fn state(pages: &[Option<u8>], tail: &[u8]) -> MemoryState {
        let path = std::env::temp_dir().join(format!(
            "cutape-state-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        let mut file = File::options();
        let file = file.read(true).write(true).create(true).truncate(true);
        let mut contents = file.open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (mut runs, mut written, mut at) = (Vec::new(), 0, 0);
        let mixed: Vec<u8> = (0..PAGE).map(|byte| byte as u8).collect();
        let pages = pages.iter().map(|page| match page {
            Some(byte) => vec![*byte; PAGE as usize],
            None => mixed.clone(),
        });
        for page in pages.chain([tail.to_vec()]) {
            let length = page.len() as u64;
            if page.iter().any(|&byte| byte != 0) {
                contents.write_all(&page).unwrap();
                let file = written;
                runs.push(Piece { at, length, file });
                written += length;
            }
            at += length;
        }
        let memory = Memory {
            address: 0x10000,
            length: at,
            variable: None,
            runs,
        };
        MemoryState {
            memory: vec![memory],
            contents,
        }
    }

    #[test]
    fn long_runs_of_one_word_are_pieces_of_their_own() {
        let several = |page: Option<u8>, count: usize| vec![page; count];
        let fill =
            |at: u64, length: u64, byte: u8| (at, length, Some(u64::from_le_bytes([byte; 8])));
        let bytes = |at: u64, length: u64| (at, length, None);
        for (pages, tail, expected) in [
            (several(Some(0), 40), &[][..], vec![fill(0, 40 * PAGE, 0)]),
            (several(Some(7), 1), &[], vec![fill(0, PAGE, 7)]),
            (vec![], &[0, 0, 0], vec![fill(0, 3, 0)]),
            (vec![], &[1, 2, 3], vec![bytes(0, 3)]),
            (
                [several(None, 1), several(Some(5), 16), several(Some(0), 16)].concat(),
                &[0, 0],
                vec![
                    bytes(0, PAGE),
                    fill(PAGE, 16 * PAGE, 5),
                    fill(17 * PAGE, 16 * PAGE + 2, 0),
                ],
            ),
            // Short runs stay among the bytes.
            (
                [several(None, 1), several(Some(5), 15), several(None, 1)].concat(),
                &[9],
                vec![bytes(0, 17 * PAGE + 1)],
            ),
            (
                several(None, 300),
                &[],
                vec![bytes(0, 256 * PAGE), bytes(256 * PAGE, 44 * PAGE)],
            ),
        ] {
            let state = state(&pages, tail);
            let pieces = state.pieces().unwrap();
            let found: Vec<_> = pieces
                .list
                .iter()
                .map(|piece| {
                    let note = piece.note;
                    let fill = (!piece.has_bytes).then_some(note.fill);
                    (note.address - 0x10000, note.length, fill)
                })
                .collect();
            assert_eq!(found, expected, "{pages:?} {tail:?}");
            for (position, piece) in pieces.list.iter().enumerate() {
                let held = state.bytes(&pieces, position).unwrap();
                assert_eq!(held.len() as u64, piece.note.length);
                if !piece.has_bytes {
                    let word = piece.note.fill.to_le_bytes();
                    assert!(held.iter().zip(word.iter().cycle()).all(|(a, b)| a == b));
                }
            }
        }
    }
}
