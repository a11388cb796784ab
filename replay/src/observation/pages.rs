//! The file of contents: pages, equal ones once, zeros not at all.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use rustc_hash::FxHashMap;

use crate::observation::job::Piece;
use crate::process::memory_file;

/// Unit of contents.
pub(crate) const PAGE: usize = 4096;
const ZEROS: [u8; PAGE] = [0; PAGE];

/// Writes pages to a file.
#[derive(Debug)]
pub(crate) struct Pages {
    file: BufWriter<File>,
    /// Bytes written.
    pub length: u64,
    most: u64,
    /// Places of pages by hash.
    known: FxHashMap<[u8; 32], u64>,
}

impl Pages {
    /// Creates the file, which must not exist. It gets no more bytes than `most`.
    pub(crate) fn create(path: &Path, most: u64) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        Ok(Self {
            file: BufWriter::with_capacity(1 << 20, file),
            length: 0,
            most,
            known: FxHashMap::default(),
        })
    }

    /// For an observation that writes nothing.
    pub(crate) fn in_memory() -> io::Result<Self> {
        let file = memory_file::create(c"cutape-contents")?;
        Ok(Self {
            file: BufWriter::new(File::from(file)),
            length: 0,
            most: 0,
            known: FxHashMap::default(),
        })
    }

    /// Adds bytes that begin at `offset` in their memory, a multiple of the page, to its pieces.
    pub(crate) fn add(
        &mut self,
        offset: u64,
        bytes: &[u8],
        pieces: &mut Vec<Piece>,
    ) -> io::Result<()> {
        for (number, page) in (0u64..).zip(bytes.chunks(PAGE)) {
            if ZEROS.starts_with(page) {
                continue;
            }
            let (at, length) = (offset + number * PAGE as u64, page.len() as u64);
            let hash = *blake3::hash(page).as_bytes();
            let file = match self.known.get(&hash) {
                Some(&known) => known,
                None if self.length + length > self.most => return Err(self.limit_reached()),
                None => {
                    self.file.write_all(page)?;
                    let here = self.length;
                    self.length += length;
                    self.known.insert(hash, here);
                    here
                }
            };
            match pieces.last_mut() {
                Some(last) if last.at + last.length == at && last.file + last.length == file => {
                    last.length += length;
                }
                _ => pieces.push(Piece { at, length, file }),
            }
        }
        Ok(())
    }

    fn limit_reached(&self) -> io::Error {
        let text = format!("the limit of {} bytes for contents is reached", self.most);
        io::Error::new(io::ErrorKind::FileTooLarge, text)
    }

    /// Writes what is buffered.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_pages_are_written_once_and_zeros_not() {
        let path = std::env::temp_dir().join(format!("cutape-pages-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let page = PAGE as u64;
        let mut pages = Pages::create(&path, 2 * page + 10).unwrap();
        assert!(Pages::create(&path, 9).is_err(), "nothing is overwritten");
        let (ones, twos) = ([1; PAGE], [2; PAGE]);
        let memory = [&ones[..], &twos, &ZEROS, &ones, &twos, &[0, 0, 3]].concat();
        let mut pieces = Vec::new();
        pages.add(0, &memory, &mut pieces).unwrap();
        let piece = |at, length, file| Piece { at, length, file };
        let expected = [
            piece(0, 2 * page, 0),
            // The page at the end is new, and lies behind the second of ones and twos.
            piece(3 * page, 2 * page + 3, 0),
        ];
        // The last page follows the known two in the file, too, so that it joins them.
        assert_eq!(pieces, expected);
        let mut again = Vec::new();
        pages.add(7 * page, &twos, &mut again).unwrap();
        assert_eq!(again, [piece(7 * page, page, page)]);
        let refused = pages.add(8 * page, &[4; 8], &mut again).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        pages.finish().unwrap();
        assert_eq!(pages.length, 2 * page + 3);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for Piece { at, length, file } in pieces {
            let range = |from: u64| from as usize..(from + length) as usize;
            assert_eq!(memory[range(at)], bytes[range(file)]);
        }
    }
}
