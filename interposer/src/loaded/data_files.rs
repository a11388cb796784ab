//! Memory that is mapped from files of the program's data, such as weights of a model.
//!
//! A payload there is not copied into the trace if its bytes are those of the file: the record names
//! the part of the file, with a digest of the bytes, by which readers notice that the file has
//! changed. The bytes are compared with the file's, so that nothing here has to be current: neither
//! the list of mappings, which is read again only where it cannot be, nor the file of that name.

use std::ffi::{CStr, CString};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use cutape_driver::digest::digest_of_piece;
use cutape_format::file_range::FileRange;
use cutape_maps::{Mapping, mappings};

use super::pages;
use crate::process::errno::Errno;
use crate::process::memory::{self, Scratch};
use crate::process::process_lock::ProcessLock;
use crate::process::regular_file::RegularFile;

/// Shorter payloads are kept in the trace.
pub(super) const SHORTEST: u64 = 64 << 10;
/// Memory is compared in pieces of this length, which the processor's cache holds.
const PIECE: usize = 64 << 10;
/// Payloads of further files are kept in the trace.
const MOST_FILES: usize = 4096;
/// Where the kernel does not tell pages of files, the list of mappings is read again for an address
/// that it lacks when that many bytes have been looked for since.
pub(super) const BETWEEN_READINGS: u64 = 16 << 20;

static KNOWN: ProcessLock<Known> = ProcessLock::new();

#[derive(Default)]
struct Known {
    /// By address, as the list was when it was last read.
    areas: Vec<Area>,
    /// Bytes that were looked for since, where the kernel does not tell pages of files; `None` if
    /// the list was never read.
    since: Option<u64>,
    files: Vec<&'static DataFile>,
}

/// A mapping that is not private memory.
struct Area {
    start: u64,
    end: u64,
    /// The file, and where in it the mapping begins; `None` if nothing there is referred to.
    file: Option<(Arc<CStr>, u64)>,
}

/// A place in a file.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) path: Arc<CStr>,
    pub(super) offset: u64,
}

/// A file as it was when it was compared; never freed.
struct DataFile {
    path: Arc<CStr>,
    length: u64,
    modified: u64,
}

/// A part of a file that has the bytes of a payload.
#[derive(Clone, Copy)]
pub(crate) struct FilePart {
    file: &'static DataFile,
    offset: u64,
    length: u64,
    digest: u64,
}

impl FilePart {
    /// As the record names it.
    pub(crate) fn range(&self) -> FileRange<'static> {
        FileRange {
            offset: self.offset,
            length: self.length,
            file_length: self.file.length,
            modified: self.file.modified,
            path: self.file.path.to_bytes(),
            build_id: &[],
            digest: Some(self.digest),
        }
    }
}

/// In a forked child.
pub(crate) fn forget() {
    KNOWN.forget();
}

/// The part of a file that is mapped there and has the same bytes; `None` if there is none, or it
/// is not certain.
pub(crate) fn holding(address: u64, length: u64) -> Option<FilePart> {
    if length < SHORTEST {
        return None;
    }
    let end = address.checked_add(length)?;
    let _errno = Errno::keep();
    // The first page tells most memory without a file. A wrong length may name any number of pages.
    let is_told = match pages::are_the_files(address, 1) {
        Some(false) => return None,
        told => told.is_some(),
    };
    let known = KNOWN.lock().find(address, end);
    let tried = match known {
        Some(None) => return None,
        Some(Some(place)) => match place.part(address, length) {
            Some(part) => return Some(part),
            None => Some(place),
        },
        None => None,
    };
    let place = {
        let mut known = KNOWN.lock();
        if !is_told && !known.is_worth_reading(length) {
            return None;
        }
        known.read();
        known.find(address, end)??
    };
    // The file of that name is another one, or it has been changed.
    if tried.as_ref() == Some(&place) {
        return None;
    }
    place.part(address, length)
}

impl Known {
    /// The place in a file that is mapped there, `Some(None)` if nothing there is referred to, and
    /// `None` if the list does not have these addresses.
    fn find(&self, address: u64, end: u64) -> Option<Option<Place>> {
        let after = self.areas.partition_point(|area| area.start <= address);
        let area = self.areas.get(after.checked_sub(1)?)?;
        if end > area.end {
            return None;
        }
        let place = area.file.as_ref().map(|(path, offset)| Place {
            path: Arc::clone(path),
            offset: offset + (address - area.start),
        });
        Some(place)
    }

    /// Whether memory of that length, of which nothing is known, is a reason to read the list.
    fn is_worth_reading(&mut self, length: u64) -> bool {
        let Some(since) = &mut self.since else {
            return true;
        };
        *since = since.saturating_add(length);
        *since >= BETWEEN_READINGS
    }

    /// Reads the list of mappings.
    fn read(&mut self) {
        self.areas.clear();
        self.since = Some(0);
        let Ok(maps) = std::fs::read("/proc/self/maps") else {
            return;
        };
        let mut last: Option<Arc<CStr>> = None;
        for mapping in mappings(&maps) {
            if !mapping.is_shared() && !mapping.path.starts_with(b"/") {
                continue;
            }
            let path = is_of_data(&mapping).then(|| match &last {
                Some(last) if last.to_bytes() == mapping.path => Some(Arc::clone(last)),
                _ => Some(CString::new(mapping.path).ok()?.into()),
            });
            let path = path.flatten();
            if path.is_some() {
                last.clone_from(&path);
            }
            self.areas.push(Area {
                start: mapping.start,
                end: mapping.end,
                file: path.map(|path| (path, mapping.offset)),
            });
        }
    }

    /// The file, known from now on.
    fn file(&mut self, path: &Arc<CStr>, now: &RegularFile) -> Option<&'static DataFile> {
        let is_it = |file: &&&DataFile| {
            file.path == *path && (file.length, file.modified) == (now.length, now.modified)
        };
        if let Some(known) = self.files.iter().find(is_it) {
            return Some(known);
        }
        if self.files.len() >= MOST_FILES {
            return None;
        }
        let file: &'static DataFile = Box::leak(Box::new(DataFile {
            path: Arc::clone(path),
            length: now.length,
            modified: now.modified,
        }));
        self.files.push(file);
        Some(file)
    }
}

/// Whether payloads there are referred to by the file: not if another process may write there at any
/// time, nor if the file has no name by which it can be opened.
pub(super) fn is_of_data(mapping: &Mapping<'_>) -> bool {
    let is_written = mapping.is_shared() && mapping.permissions.contains(&b'w');
    let path = mapping.path;
    // The kernel escapes newlines in names.
    let has_name = path.starts_with(b"/") && !path.contains(&b'\\');
    has_name && !is_written && !path.starts_with(b"/dev/") && !path.ends_with(b" (deleted)")
}

impl Place {
    /// The part of the file from here on, if it has the bytes that the memory has.
    pub(super) fn part(&self, address: u64, length: u64) -> Option<FilePart> {
        let (file, now) = RegularFile::open(&self.path)?;
        if self.offset.checked_add(length)? > now.length {
            return None;
        }
        let mut scratch = Scratch::new(2 * PIECE)?;
        let (in_file, in_memory) = scratch.bytes().split_at_mut(PIECE);
        let mut digest = 0_u64;
        let mut done = 0;
        while done < length {
            let count = (length - done).min(PIECE as u64) as usize;
            let (in_file, in_memory) = (in_file.get_mut(..count)?, in_memory.get_mut(..count)?);
            file.read_exact_at(in_file, self.offset + done).ok()?;
            if !memory::read_all(address + done, in_memory) || in_file != in_memory {
                return None;
            }
            digest = digest.wrapping_add(digest_of_piece(in_file, done / 8));
            done += count as u64;
        }
        Some(FilePart {
            file: KNOWN.lock().file(&self.path, &now)?,
            offset: self.offset,
            length,
            digest,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsRawFd;

    use super::*;

    /// A mapping of a whole file.
    struct Mapped(*mut u8, usize);

    impl Mapped {
        fn new(file: &File, flags: i32, access: i32) -> Self {
            Self::at(core::ptr::null_mut(), file, flags, access)
        }

        fn at(place: *mut u8, file: &File, flags: i32, access: i32) -> Self {
            let length = file.metadata().unwrap().len() as usize;
            let descriptor = file.as_raw_fd();
            // SAFETY: a fresh mapping, or one in the place of another one that is used no more.
            let start = unsafe { libc::mmap(place.cast(), length, access, flags, descriptor, 0) };
            assert_ne!(start, libc::MAP_FAILED);
            Self(start.cast(), length)
        }

        fn part(&self, offset: u64, length: u64) -> Option<(u64, u64)> {
            let part = holding(self.0 as u64 + offset, length)?;
            Some((part.offset, part.length))
        }
    }

    impl Drop for Mapped {
        fn drop(&mut self) {
            // SAFETY: mapped by `new`.
            unsafe { libc::munmap(self.0.cast(), self.1) };
        }
    }

    #[test]
    fn only_bytes_that_are_the_files() {
        let path = std::env::temp_dir().join(format!("cutape-data-{}", std::process::id()));
        let content: Vec<u8> = (0..3 * SHORTEST as usize)
            .map(|at| (at % 253) as u8)
            .collect();
        fs::write(&path, &content).unwrap();
        let open = File::options().read(true).write(true).open(&path).unwrap();
        let (read, write) = (libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE);
        let private = Mapped::new(&open, libc::MAP_PRIVATE, write);
        let shared = Mapped::new(&open, libc::MAP_SHARED, read);
        let written = Mapped::new(&open, libc::MAP_SHARED, write);
        for _ in 0..2 {
            for mapped in [&private, &shared] {
                assert_eq!(mapped.part(100, SHORTEST), Some((100, SHORTEST)));
                let whole = content.len() as u64;
                assert_eq!(mapped.part(0, whole), Some((0, whole)));
                assert_eq!(mapped.part(0, SHORTEST - 1), None, "short");
                assert_eq!(mapped.part(1, whole), None, "past the end");
            }
            assert_eq!(written.part(0, SHORTEST), None, "may change at any time");
            assert!(holding(content.as_ptr() as u64, SHORTEST).is_none());
        }
        let digest = holding(shared.0 as u64 + 8, SHORTEST).unwrap().digest;
        let bytes = &content[8..8 + SHORTEST as usize];
        assert_eq!(digest, cutape_driver::digest::digest(bytes));
        // SAFETY: within the private mapping.
        unsafe { private.0.add(SHORTEST as usize + 1).write_volatile(0xff) };
        assert_eq!(private.part(0, SHORTEST), Some((0, SHORTEST)), "before it");
        assert_eq!(private.part(0, SHORTEST + 2), None, "a page was changed");
        // Another file at the same address and of the same name.
        fs::remove_file(&path).unwrap();
        fs::write(&path, [&[7], &content[1..]].concat()).unwrap();
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let again = Mapped::at(shared.0, &File::open(&path).unwrap(), flags, read);
        std::mem::forget(shared);
        assert_eq!(again.part(0, SHORTEST), Some((0, SHORTEST)));
        assert_eq!(private.part(0, SHORTEST), None, "its file has no name");
        fs::remove_file(&path).unwrap();
        assert_eq!(again.part(0, SHORTEST), None, "no name");
    }

    #[test]
    fn the_list_is_not_read_for_every_payload() {
        let mut known = Known::default();
        assert!(known.is_worth_reading(SHORTEST));
        known.read();
        let looks = (0..).take_while(|_| !known.is_worth_reading(SHORTEST));
        assert_eq!(looks.count() as u64 + 1, BETWEEN_READINGS / SHORTEST);
        assert!(!known.areas.is_empty());
        known.read();
        assert!(known.is_worth_reading(BETWEEN_READINGS));
    }

    #[test]
    fn mappings_of_data() {
        for (text, expected) in [
            ("1000-3000 r--p 00000200 08:01 42     /data/a b.gguf", true),
            ("1000-3000 rw-p 00000200 08:01 42     /data/a", true),
            ("1000-3000 r--s 00000200 08:01 42     /data/a", true),
            ("1000-3000 rw-s 00000200 08:01 42     /data/a", false),
            (
                "1000-3000 r--s 00000200 08:01 42     /data/a (deleted)",
                false,
            ),
            ("1000-3000 r--p 00000200 08:01 42     /data/a\\012", false),
            ("1000-3000 r--s 00000000 00:05 42     /dev/nvidiactl", false),
            ("1000-3000 r--p 00000000 00:00 0      [vdso]", false),
        ] {
            let mapping = Mapping::parse(text.as_bytes()).unwrap();
            assert_eq!(is_of_data(&mapping), expected, "{text}");
        }
    }
}
