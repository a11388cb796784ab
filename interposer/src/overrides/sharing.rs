//! What processes share, by what the system says about it: file descriptors that calls export and
//! import, and shared mappings that are registered. Handles that are bytes are in the trace anyway.

use core::mem::MaybeUninit;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU32, Ordering};
use std::fs::File;

use cutape_format::layout::{DescriptorNote, SharedMappingNote, note_kind};
use cutape_maps::{Mapping, for_each_line};
use cutape_registry::{Shared, SharedKind, SharingOp};

use super::visitor::Visitor;
use crate::hot::frame::Frame;
use crate::hot::thread::{Draft, Thread};
use crate::process::errno::Errno;
use crate::process::memory::{self, Scratch};
use crate::state::followed_work;
use crate::{device_memory, snapshot};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`, `CU_MEM_HANDLE_TYPE_FABRIC`.
const FILE_DESCRIPTOR: u32 = 1;
const FABRIC: u32 = 8;
// Of <asm-generic/fcntl.h>; the libc crate has neither.
const F_SETSIG: i32 = 10;
const F_GETSIG: i32 = 11;
/// Bytes of a `CUmemFabricHandle`.
const FABRIC_LENGTH: u64 = 64;
/// Bytes of the kernel's list of mappings that are looked at at once.
const PIECE: usize = 64 << 10;
/// The highest signal number, and so the number of marks (`F_SETSIG`).
const MARKS: u32 = 64;
/// Exports of this process that were marked.
static MARKED: AtomicU32 = AtomicU32::new(0);
/// A registered range may consist of many mappings.
const MOST_NOTES: usize = 64;

pub(super) fn visit<V: Visitor>(visitor: V, op: SharingOp) -> V {
    match op {
        SharingOp::Export(shared) => {
            visitor.post_call(move |thread, frame| exported(thread, frame, shared))
        }
        SharingOp::Import(shared) => {
            let visitor = visitor
                .put_pre_call(move |draft, frame| put_import(draft, frame, shared))
                .pre_call(move |thread, frame| importing(thread, frame, shared));
            match shared.kind {
                SharedKind::Event => visitor.finish_call(move |frame| imported(frame, shared)),
                _ => visitor,
            }
        }
        SharingOp::Close => visitor,
    }
}

/// Writes the bytes of a fabric handle that the call imports.
fn put_import(draft: &mut Draft<'_>, frame: &Frame, shared: Shared) -> Option<()> {
    if handle_type(frame, shared) != Some(FABRIC) {
        return Some(());
    }
    let address = frame.word(shared.handle);
    let field = cutape_format::layout::field::POINTEE;
    snapshot::bytes(draft, shared.handle, field, address, FABRIC_LENGTH)
}

/// Notes which file the descriptor names that the call imports, also one that the driver refuses.
fn importing(thread: &Thread, frame: &Frame, shared: Shared) {
    if handle_type(frame, shared) == Some(FILE_DESCRIPTOR) {
        note(thread, frame.word(shared.handle) as u32, false);
    }
}

/// Notes which file the descriptor names that a successful call has exported.
fn exported(thread: &Thread, frame: &Frame, shared: Shared) {
    if shared.kind == SharedKind::Event {
        followed_work::shares_event(frame.word(shared.object));
    }
    let mut bytes = [0; 4];
    if handle_type(frame, shared) == Some(FILE_DESCRIPTOR)
        && memory::read_all(frame.word(shared.handle), &mut bytes)
    {
        note(thread, u32::from_le_bytes(bytes), true);
    }
}

/// After the leave record: an event that was imported, which the call made just now, is shared.
fn imported(frame: &Frame, shared: Shared) {
    if frame.succeeded()
        && let Some(event) = memory::word(frame.word(shared.object))
    {
        followed_work::shares_event(event);
    }
}

fn note(thread: &Thread, descriptor: u32, is_export: bool) {
    let _errno = Errno::keep();
    let mut status = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the struct is valid for writing; a number that is no descriptor is refused.
    let result = unsafe { libc::fstat(descriptor as i32, status.as_mut_ptr()) };
    if result != 0 {
        return;
    }
    // SAFETY: all-zero bytes are valid, and the kernel has filled them.
    let status = unsafe { status.assume_init() };
    let is_device = status.st_mode & libc::S_IFMT == libc::S_IFCHR;
    let (owner, mark) = match is_device {
        true => marks(descriptor as i32, is_export),
        false => (0, 0),
    };
    let note = DescriptorNote {
        descriptor,
        mode: status.st_mode,
        device: status.st_dev,
        inode: status.st_ino,
        size: status.st_size as u64,
        owner,
        mark,
    };
    thread.note(note_kind::DESCRIPTOR, |draft| draft.put_encoded(note));
}

/// The process and the number that an open file is marked with, zeros if it is not. An export marks
/// one that has no mark: all open files of the driver have the same inode, but the owner and the
/// signal of an open file go with it wherever it is sent. They have no effect, because the file does
/// not ask for signals (`O_ASYNC`).
fn marks(descriptor: i32, is_export: bool) -> (u32, u32) {
    // SAFETY: these commands take and return numbers; a wrong descriptor is refused.
    let control = |command, value: i32| unsafe { libc::fcntl(descriptor, command, value) };
    let known = || (control(libc::F_GETOWN, 0), control(F_GETSIG, 0));
    if is_export && known() == (0, 0) {
        let mark = MARKED.fetch_add(1, Ordering::Relaxed) % MARKS + 1;
        // SAFETY: no preconditions.
        control(libc::F_SETOWN, unsafe { libc::getpid() });
        control(F_SETSIG, mark as i32);
    }
    match known() {
        (owner @ 1.., mark @ 1..) => (owner as u32, mark as u32),
        _ => (0, 0),
    }
}

fn handle_type(frame: &Frame, shared: Shared) -> Option<u32> {
    Some(frame.word(shared.handle_type?) as u32)
}

/// Notes which parts of memory that was registered are shared mappings, and of which files.
pub(super) fn registered(thread: &Thread, frame: &Frame) {
    let (start, length) = (frame.word(0), frame.word(1));
    let _errno = Errno::keep();
    // Not from the program's allocator.
    let Some(mut scratch) = Scratch::new(PIECE) else {
        return;
    };
    let Ok(list) = File::open("/proc/self/maps") else {
        return;
    };
    let range = (start, start.saturating_add(length));
    let mut count = 0;
    // A list that cannot be read shows nothing.
    let _ = for_each_line(list, scratch.bytes(), |line| {
        let mapping = Mapping::parse(line);
        let Some((note, name)) = mapping.and_then(|mapping| shared_part(&mapping, range)) else {
            return ControlFlow::Continue(());
        };
        if let Some(state) = device_memory::get() {
            state.host_shared(start, length, (note.address, note.length));
        }
        count += 1;
        if count <= MOST_NOTES {
            thread.note(note_kind::SHARED_MAPPING, |draft| {
                draft.put_encoded(note)?;
                draft.put(name)
            });
        }
        ControlFlow::Continue(())
    });
}

/// The part of a mapping that is in the range, if other processes can map it.
fn shared_part<'a>(
    mapping: &Mapping<'a>,
    range: (u64, u64),
) -> Option<(SharedMappingNote, &'a [u8])> {
    let (start, end) = (mapping.start.max(range.0), mapping.end.min(range.1));
    if !mapping.is_shared() || start >= end {
        return None;
    }
    let (major, minor) = mapping.device;
    let note = SharedMappingNote {
        address: start,
        length: end - start,
        device: libc::makedev(major, minor),
        inode: mapping.inode,
        offset: mapping.offset + (start - mapping.start),
    };
    Some((note, mapping.path))
}

#[cfg(test)]
mod tests {
    use cutape_maps::mappings;

    use super::*;

    #[test]
    fn marks_tell_open_files_of_one_device_apart() {
        let open = || File::open("/dev/null").unwrap();
        let number = |file: &File| std::os::fd::AsRawFd::as_raw_fd(file);
        let (first, second, third) = (open(), open(), open());
        let exported = [&first, &second].map(|file| marks(number(file), true));
        assert_ne!(exported[0], exported[1]);
        let process = std::process::id();
        assert!(
            exported
                .iter()
                .all(|&(owner, mark)| owner == process && mark > 0)
        );
        // Duplicates are the same open file, as are those that another process receives.
        let duplicates = [&first, &second].map(|file| file.try_clone().unwrap());
        assert_eq!(
            duplicates.each_ref().map(|file| marks(number(file), false)),
            exported
        );
        assert_eq!(marks(number(&first), true), exported[0]);
        assert_eq!(marks(number(&third), false), (0, 0));
    }

    #[test]
    fn shared_mappings_in_a_range_are_found() {
        let list = "1000-3000 r--s 00004000 08:02 42                 /dev/shm/a b\n\
                    3000-4000 rw-p 00000000 08:02 43                 /private\n\
                    5000-9000 rw-s 00000000 00:01 1042               /dev/zero (deleted)\n\
                    9000-a000 rw-s 00000000 00:01 7\n";
        type Part<'a> = (u64, u64, u64, u64, &'a str);
        let a = |address, length, offset| (address, length, 42, offset, "/dev/shm/a b");
        let zero = |address, length, offset| (address, length, 1042, offset, "/dev/zero (deleted)");
        let cases: [((u64, u64), &[Part<'_>]); 5] = [
            ((0, 0x1000), &[]),
            (
                (0x2000, 0x6000),
                &[a(0x2000, 0x1000, 0x5000), zero(0x5000, 0x1000, 0)],
            ),
            ((0x3000, 0x4000), &[]),
            ((0x6800, 0x7000), &[zero(0x6800, 0x800, 0x1800)]),
            ((0x9000, u64::MAX), &[(0x9000, 0x1000, 7, 0, "")]),
        ];
        for (range, expected) in cases {
            let shared = mappings(list.as_bytes());
            let shared = shared.filter_map(|mapping| shared_part(&mapping, range));
            let found: Vec<Part<'_>> = shared
                .map(|(note, name)| {
                    let name = std::str::from_utf8(name).unwrap();
                    (note.address, note.length, note.inode, note.offset, name)
                })
                .collect();
            assert_eq!(found, expected, "{range:x?}");
        }
        let line = Mapping::parse(b"1000-3000 r--s 00004000 08:02 42").unwrap();
        let (note, _) = shared_part(&line, (0, u64::MAX)).unwrap();
        assert_eq!(note.device, libc::makedev(8, 2));
    }
}
