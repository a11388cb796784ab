//! Bytes that a trace names by the file they are mapped from, instead of holding them.

use crate::codec;

/// A part of a file: what a snapshot with the flag `IN_FILE` holds.
///
/// Encoded as four u64 (`offset`, `length`, `file_length`, `modified`), then `path` and `build_id`, each a u64 count and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileRange<'a> {
    /// Where the bytes begin in the file.
    pub offset: u64,
    /// How many they are.
    pub length: u64,
    /// How long the whole file was.
    pub file_length: u64,
    /// When it was last changed, in nanoseconds since 1970.
    pub modified: u64,
    /// Its absolute path.
    pub path: &'a [u8],
    /// Its GNU build id; empty if it has none.
    pub build_id: &'a [u8],
}

/// Encoded length of the numbers and of one count.
const NUMBERS: usize = 4 * 8;

impl<'a> FileRange<'a> {
    /// How long it is encoded.
    pub fn encoded_length(&self) -> usize {
        NUMBERS + 8 + self.path.len() + 8 + self.build_id.len()
    }

    /// Encodes into `target`, which has [`FileRange::encoded_length`] bytes; `None` if it has another length.
    pub fn encode(&self, target: &mut [u8]) -> Option<()> {
        if target.len() != self.encoded_length() {
            return None;
        }
        let counts = [self.path.len() as u64, self.build_id.len() as u64];
        let (numbers, rest) = target.split_at_mut(NUMBERS);
        codec::encode(self.numbers(), numbers)?;
        let (path, build_id) = rest.split_at_mut(8 + self.path.len());
        for ((place, count), bytes) in [path, build_id]
            .into_iter()
            .zip(counts)
            .zip([self.path, self.build_id])
        {
            let (head, body) = place.split_at_mut(8);
            head.copy_from_slice(&count.to_le_bytes());
            body.copy_from_slice(bytes);
        }
        Some(())
    }

    /// The encoded bytes.
    #[cfg(feature = "read")]
    pub(crate) fn encoded(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.encoded_length()];
        // The target has the right length.
        let _ = self.encode(&mut bytes);
        bytes
    }

    fn numbers(&self) -> [u64; 4] {
        [self.offset, self.length, self.file_length, self.modified]
    }

    /// Reads it back; what a later version has put behind it is passed over. `None` if the bytes do not hold one.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let ([offset, length, file_length, modified], used) = codec::decode(bytes)?;
        let (path, rest) = counted(bytes.get(used..)?)?;
        let (build_id, _) = counted(rest)?;
        Some(Self {
            offset,
            length,
            file_length,
            modified,
            path,
            build_id,
        })
    }
}

/// A count and so many bytes; and what is behind.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first_chunk::<8>()?;
    rest.split_at_checked(usize::try_from(u64::from_le_bytes(*count)).ok()?)
}

/// The build id among ELF notes: name "GNU", type 3.
pub fn build_id_among(mut notes: &[u8]) -> Option<&[u8]> {
    const GNU_BUILD_ID: u32 = 3;
    let word = |bytes: &[u8], at: usize| {
        let word = bytes.get(at..)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*word) as usize)
    };
    loop {
        let (name, content) = (word(notes, 0)?, word(notes, 4)?);
        let content_at = 12 + name.next_multiple_of(4);
        if word(notes, 8)? == GNU_BUILD_ID as usize && notes.get(12..16) == Some(b"GNU\0") {
            return notes.get(content_at..content_at + content);
        }
        notes = notes.get(content_at + content.next_multiple_of(4)..)?;
    }
}

#[cfg(feature = "read")]
mod read {
    use std::ffi::OsStr;
    use std::fs::File;
    use std::io;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
    use std::path::Path;

    use super::{FileRange, build_id_among};
    use crate::layout::BlobRef;

    /// Longer program headers and notes are not looked at.
    const LONGEST_HEADERS: u64 = 1 << 20;
    /// Opening a pipe must not wait for its other end; Linux's O_NONBLOCK on x86-64.
    const O_NONBLOCK: i32 = 0o4000;

    impl FileRange<'_> {
        /// The file.
        pub fn file(&self) -> &Path {
            Path::new(OsStr::from_bytes(self.path))
        }

        /// The blob that holds the bytes in a packed trace. Its name is half of a hash, with the highest bit set, which no
        /// position in a file has.
        pub fn blob(&self) -> BlobRef {
            let mut hasher = blake3::Hasher::new();
            for number in self.numbers() {
                hasher.update(&number.to_le_bytes());
            }
            for bytes in [self.path, self.build_id] {
                hasher.update(&(bytes.len() as u64).to_le_bytes());
                hasher.update(bytes);
            }
            let start = hasher.finalize().as_bytes().first_chunk::<8>().copied();
            BlobRef {
                position: u64::from_le_bytes(start.unwrap_or_default()) | 1 << 63,
                length: self.length,
            }
        }

        /// Reads the bytes from the file, if it still is the one that was mapped: by its build id, or, if it has none, by its
        /// length and the time of its last change.
        ///
        /// # Errors
        /// Why they cannot be had, for people.
        pub fn read(&self) -> Result<Vec<u8>, String> {
            let path = self.file().display();
            let failed = |error: io::Error| format!("{path}: {error}");
            let mut options = File::options();
            let file = options.read(true).custom_flags(O_NONBLOCK);
            let file = file.open(self.file()).map_err(failed)?;
            let metadata = file.metadata().map_err(failed)?;
            if !metadata.is_file() {
                return Err(format!("{path}: not a regular file"));
            }
            let unchanged = if self.build_id.is_empty() {
                metadata.len() == self.file_length && modified(&metadata) == self.modified
            } else {
                build_id(&file).as_deref() == Some(self.build_id)
            };
            let inside = self
                .offset
                .checked_add(self.length)
                .is_some_and(|end| end <= metadata.len());
            if !unchanged || !inside {
                return Err(format!("{path}: has changed since the recording"));
            }
            // Bounded by the file's length.
            let mut bytes = vec![0; self.length as usize];
            file.read_exact_at(&mut bytes, self.offset)
                .map_err(failed)?;
            Ok(bytes)
        }
    }

    /// When a file was last changed, in nanoseconds since 1970.
    fn modified(metadata: &std::fs::Metadata) -> u64 {
        (metadata.mtime() as u64)
            .wrapping_mul(1_000_000_000)
            .wrapping_add(metadata.mtime_nsec() as u64)
    }

    /// The build id of an ELF file of 64 bits, by its program headers.
    fn build_id(file: &File) -> Option<Vec<u8>> {
        let piece = |offset: u64, length: u64| {
            let mut bytes = vec![0; usize::try_from(length.min(LONGEST_HEADERS)).ok()?];
            file.read_exact_at(&mut bytes, offset).ok()?;
            Some(bytes)
        };
        let number = |bytes: &[u8], at: usize| {
            let word = bytes.get(at..)?.first_chunk::<8>()?;
            Some(u64::from_le_bytes(*word))
        };
        let head = piece(0, 64)?;
        if !head.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        // e_phoff; e_phentsize and e_phnum are two u16.
        let sizes = number(&head, 54)?;
        let (entry, count) = (sizes & 0xffff, sizes >> 16 & 0xffff);
        let headers = piece(number(&head, 32)?, entry * count)?;
        const PT_NOTE: &[u8] = &[4, 0, 0, 0];
        headers
            .chunks_exact((entry as usize).max(1))
            .filter(|header| header.starts_with(PT_NOTE))
            .find_map(|header| {
                // p_offset and p_filesz.
                let notes = piece(number(header, 8)?, number(header, 32)?)?;
                build_id_among(&notes).map(<[u8]>::to_vec)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_as_it_was_written() {
        let range = FileRange {
            offset: 1,
            length: 2,
            file_length: 3,
            modified: 4,
            path: b"/lib/libx.so",
            build_id: &[5; 20],
        };
        for range in [
            range,
            FileRange {
                path: b"",
                build_id: b"",
                ..range
            },
        ] {
            let mut bytes = vec![0; range.encoded_length()];
            range.encode(&mut bytes).unwrap();
            assert_eq!(FileRange::decode(&bytes), Some(range));
            for length in 0..bytes.len() {
                assert_eq!(FileRange::decode(&bytes[..length]), None, "{length}");
            }
            bytes.push(9);
            assert_eq!(FileRange::decode(&bytes), Some(range), "later fields");
            assert_eq!(range.encode(&mut bytes), None);
        }
        // A count that reaches beyond everything.
        let mut bytes = vec![0; range.encoded_length()];
        range.encode(&mut bytes).unwrap();
        bytes[32..40].fill(0xff);
        assert_eq!(FileRange::decode(&bytes), None);
    }

    #[test]
    fn notes() {
        let note = |name: &[u8], kind: u32, content: &[u8]| {
            let mut bytes = Vec::new();
            for word in [name.len() as u32, content.len() as u32, kind] {
                bytes.extend(word.to_le_bytes());
            }
            for part in [name, content] {
                bytes.extend(part);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
            bytes
        };
        let id = note(b"GNU\0", 3, &[7; 5]);
        let other = note(b"NetBSD\0", 3, b"abc");
        for (notes, expected) in [
            (id.clone(), Some(&[7; 5][..])),
            ([other.clone(), id.clone()].concat(), Some(&[7; 5][..])),
            (note(b"GNU\0", 1, &[7; 4]), None),
            (other, None),
            (id[..18].to_vec(), None),
            (vec![0xff; 40], None),
            (Vec::new(), None),
        ] {
            assert_eq!(build_id_among(&notes), expected, "{notes:?}");
        }
    }
}
