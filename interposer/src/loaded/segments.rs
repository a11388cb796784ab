//! Memory that is mapped from a file and has not been changed: read-only segments of loaded
//! libraries.
//!
//! Programs load most of their images from such memory. A record names the part of the file instead
//! of copying it, and `pack` fetches the bytes later.

use core::ops::ControlFlow;
use std::ffi::CString;
use std::sync::Mutex;

use cutape_format::file_range::FileRange;
use cutape_maps::{Mapping, mappings};

use super::objects::{self, Object};
use super::pages;
use crate::process::errno::Errno;
use crate::process::memory;
use crate::process::regular_file::RegularFile;

/// Of longer dynamic sections, that many entries are searched.
const MOST_DYNAMIC: u64 = 512;

/// A read-only segment of a loaded object, and the file that it is mapped from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Segment {
    start: u64,
    end: u64,
    /// Of `start` in the file.
    offset: u64,
    file_length: u64,
    modified: u64,
    path: Vec<u8>,
    build_id: Vec<u8>,
}

/// Segments that were looked up, while the loader has neither added nor removed anything.
struct Known {
    changes: u64,
    segments: Vec<Segment>,
}

static KNOWN: Mutex<Known> = Mutex::new(Known {
    changes: 0,
    segments: Vec::new(),
});

impl Segment {
    /// The part of the file that is mapped there.
    pub(crate) fn range(&self, address: u64, length: u64) -> FileRange<'_> {
        FileRange {
            offset: self.offset + (address - self.start),
            length,
            file_length: self.file_length,
            modified: self.modified,
            path: &self.path,
            build_id: &self.build_id,
            digest: None,
        }
    }

    fn holds(&self, address: u64, length: u64) -> bool {
        self.start <= address
            && address
                .checked_add(length)
                .is_some_and(|end| end <= self.end)
    }
}

/// The segment that holds all of these bytes as its file does; `None` if there is none, or that is
/// not certain.
pub(crate) fn holding(address: u64, length: u64) -> Option<Segment> {
    let _errno = Errno::keep();
    let segment = known(address, length)?;
    // If the kernel does not tell, the segment's flags must do.
    let is_unchanged = pages::are_the_files(address, length).unwrap_or(true);
    is_unchanged.then_some(segment)
}

fn known(address: u64, length: u64) -> Option<Segment> {
    let end = address.checked_add(length)?;
    // How often the loader has added or removed an object.
    let mut changes = 0;
    let mut found = None;
    objects::for_each(&mut |object| {
        changes = object.adds.wrapping_add(object.subs);
        match find(object, address, end) {
            None => ControlFlow::Continue(()),
            Some(segment) => {
                found = segment;
                ControlFlow::Break(())
            }
        }
    });
    // A lock that is held here may be held for ever in a child of a fork.
    let mut known = KNOWN.try_lock().ok();
    if let Some(known) = &mut known {
        if known.changes != changes {
            known.segments.clear();
            known.changes = changes;
        }
        let found = known.segments.iter().find(|s| s.holds(address, length));
        if let Some(segment) = found {
            return Some(segment.clone());
        }
    }
    let segment = in_file(found?)?;
    if let Some(known) = &mut known {
        known.segments.push(segment.clone());
    }
    Some(segment)
}

/// The read-only segment of an object that holds these addresses; `Some(None)` if it holds them,
/// but the loader has changed it. Its file is not known yet.
fn find(object: &Object<'_>, address: u64, end: u64) -> Option<Option<Segment>> {
    let header = object.headers.iter().find(|header| {
        let start = object.address(header);
        header.p_type == libc::PT_LOAD
            && header.p_flags & libc::PF_W == 0
            && start <= address
            && end <= start.saturating_add(header.p_filesz)
    })?;
    if has_text_relocations(object) {
        return Some(None);
    }
    let start = object.address(header);
    Some(Some(Segment {
        start,
        end: start + header.p_filesz,
        offset: header.p_offset,
        build_id: object.build_id(),
        ..Segment::default()
    }))
}

/// Whether the loader writes into segments that are read-only afterwards.
fn has_text_relocations(object: &Object<'_>) -> bool {
    const DT_TEXTREL: u64 = 22;
    const DT_FLAGS: u64 = 30;
    const DF_TEXTREL: u64 = 4;
    let mut headers = object.headers.iter();
    let Some(dynamic) = headers.find(|header| header.p_type == libc::PT_DYNAMIC) else {
        return false;
    };
    let start = object.address(dynamic);
    (0..(dynamic.p_memsz / 16).min(MOST_DYNAMIC)).any(|index| {
        let at = start.wrapping_add(index * 16);
        match (memory::word(at), memory::word(at.wrapping_add(8))) {
            (Some(DT_TEXTREL), _) => true,
            (Some(DT_FLAGS), Some(flags)) => flags & DF_TEXTREL != 0,
            _ => false,
        }
    })
}

/// True for private mappings of files that cannot be written.
fn is_private_file(mapping: &Mapping<'_>) -> bool {
    let access = mapping.permissions;
    let is_private = access.len() == 4 && access.starts_with(b"r-") && access.ends_with(b"p");
    // The kernel escapes newlines in names.
    is_private && mapping.path.starts_with(b"/") && !mapping.path.contains(&b'\\')
}

/// The segment with its file, if that is mapped there and still has its name.
fn in_file(found: Segment) -> Option<Segment> {
    let maps = std::fs::read("/proc/self/maps").ok()?;
    let line = mappings(&maps)
        .filter(is_private_file)
        .find(|line| line.start <= found.start && found.end <= line.end)?;
    if line.offset + (found.start - line.start) != found.offset {
        return None;
    }
    let path = CString::new(line.path).ok()?;
    let file = RegularFile::named(&path)?;
    if file.inode != line.inode || file.length < found.offset + (found.end - found.start) {
        return None;
    }
    Some(Segment {
        file_length: file.length,
        modified: file.modified,
        path: path.into_bytes(),
        ..found
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;

    const PAGE: u64 = 4096;

    /// More than a page, in the test program's read-only data.
    static CONSTANT: [u8; 3 * PAGE as usize] = {
        let mut bytes = [0; 3 * PAGE as usize];
        let mut at = 0;
        while at < bytes.len() {
            bytes[at] = (at * 7 % 251) as u8;
            at += 1;
        }
        bytes
    };

    #[test]
    fn only_what_is_as_in_the_file() {
        let length = CONSTANT.len() as u64;
        let address = CONSTANT.as_ptr() as u64;
        let heap = CONSTANT.to_vec();
        assert!(
            holding(heap.as_ptr() as u64, length).is_none(),
            "no file's memory"
        );
        assert!(
            holding(address, 1 << 40).is_none(),
            "reaches beyond the segment"
        );
        assert!(holding(u64::MAX - 4, 16).is_none(), "no such address");
        for _ in 0..2 {
            let segment = holding(address, length).expect("a constant of this program");
            let range = segment.range(address, length);
            let program = std::env::current_exe().unwrap();
            assert_eq!(
                range.path,
                std::os::unix::ffi::OsStrExt::as_bytes(program.as_os_str())
            );
            let mut bytes = vec![0; CONSTANT.len()];
            let file = File::open(program).unwrap();
            file.read_exact_at(&mut bytes, range.offset).unwrap();
            assert_eq!(bytes, CONSTANT);
        }
        // The page in the middle, made writable for a moment.
        let page = (address + PAGE).next_multiple_of(PAGE);
        let change = |access: i32, write: bool| {
            // SAFETY: a page inside our own constant; what is written there is what was there.
            unsafe {
                assert_eq!(libc::mprotect(page as *mut _, PAGE as usize, access), 0);
                if write {
                    let byte = page as *mut u8;
                    byte.write_volatile(byte.read_volatile());
                }
            }
        };
        change(libc::PROT_READ | libc::PROT_WRITE, true);
        change(libc::PROT_READ, false);
        assert!(
            holding(address, length).is_none(),
            "a page may have been changed"
        );
    }

    #[test]
    fn private_files_are_told_from_other_mappings() {
        for (text, expected) in [
            ("1000-3000 r--p 00000200 08:01 42     /lib/a b.so", true),
            ("1000-3000 rw-p 00000200 08:01 42     /lib/a.so", false),
            ("1000-3000 r--s 00000200 08:01 42     /lib/a.so", false),
            ("1000-3000 r--p 00000200 08:01 42     /lib/a\\012.so", false),
            ("1000-3000 r--p 00000000 00:00 0      [vdso]", false),
            ("1000-3000 r--p 00000000 00:00 0 ", false),
        ] {
            let mapping = Mapping::parse(text.as_bytes()).unwrap();
            assert_eq!(is_private_file(&mapping), expected, "{text}");
        }
    }
}
