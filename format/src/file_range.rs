//! Bytes that a trace refers to by the file that they are mapped from.

use crate::codec;

/// A part of a file: the bytes of a snapshot with the flag `IN_FILE`.
///
/// Encoded as four u64 (`offset`, `length`, `file_length`, `modified`), then `path` and `build_id`,
/// each a u64 count and bytes, then the digest, a u64, if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileRange<'a> {
    /// Where the bytes begin in the file.
    pub offset: u64,
    /// How many they are.
    pub length: u64,
    /// How long the whole file was.
    pub file_length: u64,
    /// When the file was last changed, in nanoseconds since 1970.
    pub modified: u64,
    /// The file's absolute path.
    pub path: &'a [u8],
    /// The file's GNU build id; empty if it has none.
    pub build_id: &'a [u8],
    /// Of payloads: the digest of the bytes. They stay in their file when the trace is packed.
    pub digest: Option<u64>,
}

/// The part that every encoded range has.
type Located<'a> = (u64, u64, u64, u64, &'a [u8], &'a [u8]);

impl<'a> FileRange<'a> {
    /// Length of the encoded form.
    pub fn encoded_length(&self) -> usize {
        self.digest_at() + self.digest.map_or(0, |_| 8)
    }

    /// Where the digest is encoded.
    fn digest_at(&self) -> usize {
        4 * 8 + 8 + self.path.len() + 8 + self.build_id.len()
    }

    /// Encodes into `target`, which must have [`FileRange::encoded_length`] bytes.
    pub fn encode(&self, target: &mut [u8]) -> Option<()> {
        if target.len() != self.encoded_length() {
            return None;
        }
        let located: Located<'_> = (
            self.offset,
            self.length,
            self.file_length,
            self.modified,
            self.path,
            self.build_id,
        );
        let (start, end) = target.split_at_mut_checked(self.digest_at())?;
        codec::encode(located, start)?;
        if let Some(digest) = self.digest {
            codec::encode(digest, end)?;
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

    /// Reads it back, ignoring what a later version has added behind it. `None` if malformed.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (offset, length, file_length, modified, path, build_id) =
            codec::decode_borrowed::<Located<'_>>(bytes)?;
        let located = Self {
            offset,
            length,
            file_length,
            modified,
            path,
            build_id,
            digest: None,
        };
        let digest = bytes.get(located.digest_at()..)?.first_chunk();
        let digest = digest.map(|digest| u64::from_le_bytes(*digest));
        Some(Self { digest, ..located })
    }
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
    use std::fs::{File, Metadata};
    use std::io;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
    use std::path::Path;

    use cutape_driver::digest::digest;
    use object::Endianness;
    use object::elf::{ELF_NOTE_GNU, FileHeader64, NT_GNU_BUILD_ID};
    use object::read::ReadCache;
    use object::read::elf::{FileHeader, ProgramHeader};

    use super::FileRange;
    use crate::layout::BlobRef;

    /// Opening a pipe must not wait for its other end; Linux's O_NONBLOCK on x86-64.
    const O_NONBLOCK: i32 = 0o4000;

    impl FileRange<'_> {
        /// The file.
        pub fn file(&self) -> &Path {
            Path::new(OsStr::from_bytes(self.path))
        }

        /// The blob that holds the bytes in a packed trace. Its name is a part of a hash, with the
        /// highest bit set, which no position in a file has.
        pub fn blob(&self) -> BlobRef {
            let hash = blake3::hash(&self.encoded());
            let start = hash.as_bytes().first_chunk::<8>().copied();
            BlobRef {
                position: u64::from_le_bytes(start.unwrap_or_default()) | 1 << 63,
                length: self.length,
            }
        }

        /// Reads the bytes from the file, if they are those that were mapped: by their digest,
        /// else by the file's build id, else by its length and the time of its last change.
        ///
        /// # Errors
        /// Why they are unavailable, for people.
        pub fn read(&self) -> Result<Vec<u8>, String> {
            let (file, metadata) = self.open()?;
            let path = self.file().display();
            let is_known = match self.digest {
                Some(_) => true,
                None if self.build_id.is_empty() => self.has_its_times(&metadata),
                None => build_id(&file).as_deref() == Some(self.build_id),
            };
            if !is_known || !self.is_inside(&metadata) {
                return Err(self.changed(&metadata));
            }
            // A file with holes may be longer than any memory.
            let mut bytes = Vec::new();
            let length = self.length as usize;
            if bytes.try_reserve_exact(length).is_err() {
                return Err(format!("{path}: no memory for {length} bytes of it"));
            }
            bytes.resize(length, 0);
            file.read_exact_at(&mut bytes, self.offset)
                .map_err(|error| format!("{path}: {error}"))?;
            match self.digest {
                Some(then) if then != digest(&bytes) => Err(self.changed(&metadata)),
                _ => Ok(bytes),
            }
        }

        /// Whether these are the bytes, by their digest; false if it is not known.
        pub fn has_digest_of(&self, bytes: &[u8]) -> bool {
            self.length == bytes.len() as u64 && self.digest == Some(digest(bytes))
        }

        /// Whether the file is there, with the length and the time of its last change that it had.
        /// It is not read: with another time it may have the same bytes.
        ///
        /// # Errors
        /// What differs, for people.
        pub fn look(&self) -> Result<(), String> {
            let (_, metadata) = self.open()?;
            match self.has_its_times(&metadata) {
                true => Ok(()),
                false => Err(self.changed(&metadata)),
            }
        }

        fn open(&self) -> Result<(File, Metadata), String> {
            let path = self.file().display();
            let failed = |error: io::Error| format!("{path}: {error}");
            let mut options = File::options();
            let file = options.read(true).custom_flags(O_NONBLOCK);
            let file = file.open(self.file()).map_err(failed)?;
            let metadata = file.metadata().map_err(failed)?;
            if !metadata.is_file() {
                return Err(format!("{path}: not a regular file"));
            }
            Ok((file, metadata))
        }

        fn has_its_times(&self, metadata: &Metadata) -> bool {
            metadata.len() == self.file_length && modified(metadata) == self.modified
        }

        fn is_inside(&self, metadata: &Metadata) -> bool {
            let end = self.offset.checked_add(self.length);
            end.is_some_and(|end| end <= metadata.len())
        }

        /// That the file has changed.
        fn changed(&self, metadata: &Metadata) -> String {
            let path = self.file().display();
            let (then, now) = (self.file_length, metadata.len());
            let lengths = match now == then {
                true => String::new(),
                false => format!(" ({now} bytes, then {then})"),
            };
            format!("{path}: has changed since the recording{lengths}")
        }
    }

    /// When a file was last changed, in nanoseconds since 1970.
    fn modified(metadata: &Metadata) -> u64 {
        (metadata.mtime() as u64)
            .wrapping_mul(1_000_000_000)
            .wrapping_add(metadata.mtime_nsec() as u64)
    }

    /// The build id of an ELF file of 64 bits, by its program headers.
    fn build_id(file: &File) -> Option<Vec<u8>> {
        let data = &ReadCache::new(file);
        let header = FileHeader64::<Endianness>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, data).ok()?;
        segments.iter().find_map(|segment| {
            let mut notes = segment.notes(endian, data).ok()??;
            while let Ok(Some(note)) = notes.next() {
                if note.name() == ELF_NOTE_GNU && note.n_type(endian) == NT_GNU_BUILD_ID {
                    return Some(note.desc().to_vec());
                }
            }
            None
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
            digest: None,
        };
        let with_digest = FileRange {
            digest: Some(6),
            ..range
        };
        for range in [
            range,
            with_digest,
            FileRange {
                path: b"",
                build_id: b"",
                ..range
            },
        ] {
            let mut bytes = vec![0; range.encoded_length()];
            range.encode(&mut bytes).unwrap();
            assert_eq!(FileRange::decode(&bytes), Some(range));
            let located = range.digest_at();
            for length in 0..bytes.len() {
                let cut = FileRange {
                    digest: None,
                    ..range
                };
                let expected = (length >= located).then_some(cut);
                assert_eq!(FileRange::decode(&bytes[..length]), expected, "{length}");
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

    #[cfg(feature = "read")]
    #[test]
    fn bytes_are_known_by_their_digest() {
        let range = FileRange {
            offset: 1,
            length: 3,
            file_length: 9,
            modified: 4,
            path: b"/lib/libx.so",
            build_id: b"",
            digest: Some(cutape_driver::digest::digest(b"abc")),
        };
        let unknown = FileRange {
            digest: None,
            ..range
        };
        for (range, bytes, expected) in [
            (range, &b"abc"[..], true),
            (range, b"abd", false),
            (range, b"abcd", false),
            (unknown, b"abc", false),
        ] {
            assert_eq!(range.has_digest_of(bytes), expected, "{bytes:?}");
        }
    }

    #[cfg(feature = "read")]
    #[test]
    fn a_file_may_be_longer_than_memory() {
        use std::os::unix::ffi::OsStrExt;

        const LENGTH: u64 = 1 << 43;
        let path = std::env::temp_dir().join(format!("cutape-holes-{}", std::process::id()));
        let file = std::fs::File::create_new(&path).unwrap();
        file.set_len(LENGTH).unwrap();
        let range = FileRange {
            offset: 0,
            length: LENGTH,
            file_length: LENGTH,
            modified: 0,
            path: path.as_os_str().as_bytes(),
            build_id: b"",
            digest: Some(0),
        };
        let why = range.read().unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert!(why.contains("no memory for"), "{why}");
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
