//! Module and library images, from memory or from a file.

use core::ffi::{CStr, c_void};

use cutape_format::layout::{INLINE_LIMIT, field, snapshot_flag};
use cutape_format::write::Record;
use cutape_image::{Extent, extent, wrapper_data};

use super::jit_options::{self, Places};
use crate::call::Frame;
use crate::{memory, segments, snapshot};

/// Enough for any image's first header.
const FIRST_LOOK: u64 = 4096;
/// An image that claims to be longer than this is not believed.
const LONGEST: u64 = 4 << 30;
/// Of bytes that are no image so many are kept, so that people can see what they are.
const GLIMPSE: usize = 64;

/// Puts the image that a parameter points at, and what it points at if it is a wrapper.
pub(super) fn data(record: &mut Record<'_>, frame: &Frame, parameter: u8) -> Option<()> {
    let address = frame.words[usize::from(parameter)];
    if address == 0 {
        return Some(());
    }
    image(record, parameter, field::POINTEE, address)?;
    let mut wrapper = [0u8; 24];
    if memory::read_all(address, &mut wrapper)
        && let Some(header) = wrapper_data(&wrapper)
        && header.data != 0
    {
        image(record, parameter, field::FATBIN, header.data)?;
    }
    Some(())
}

fn image(record: &mut Record<'_>, parameter: u8, field: u8, address: u64) -> Option<()> {
    match length(address) {
        Some(length) => bytes(record, parameter, field, address, length),
        None => glimpse(record, parameter, field, address),
    }
}

/// Puts an image of that length: long ones by the file that they are mapped from, if that is where they are.
pub(super) fn bytes(
    record: &mut Record<'_>,
    parameter: u8,
    field: u8,
    address: u64,
    length: u64,
) -> Option<()> {
    if length > INLINE_LIMIT as u64
        && let Some(segment) = segments::holding(address, length)
    {
        return snapshot::in_file(record, parameter, field, &segment.range(address, length));
    }
    snapshot::bytes(record, parameter, field, address, length)
}

/// How long the image at an address is; `None` for bytes that are no image, or not all there.
fn length(address: u64) -> Option<u64> {
    let mut look = FIRST_LOOK;
    while look <= LONGEST {
        let mut scratch = memory::Scratch::new(look as usize)?;
        let bytes = scratch.bytes();
        let got = memory::read(address, bytes);
        match extent(&bytes[..got]) {
            Extent::Known(length) => return (length <= LONGEST).then_some(length),
            Extent::Unbounded => {
                return memory::string_length(address, LONGEST as usize)
                    .map(|length| length as u64);
            }
            // Always more than there was, unless the memory ends here.
            Extent::NeedBytes(more) if got as u64 == look && more > look => look = more,
            _ => return None,
        }
    }
    None
}

fn glimpse(record: &mut Record<'_>, parameter: u8, field: u8, address: u64) -> Option<()> {
    let mut bytes = [0u8; GLIMPSE];
    let got = memory::read(address, &mut bytes);
    record.put_snapshot(parameter, field, got, |target| {
        target.copy_from_slice(&bytes[..got]);
        (got > 0).then_some(snapshot_flag::TRUNCATED)
    })
}

/// Puts the content of the file that a parameter names, and the directory that the name is relative to.
pub(super) fn file(record: &mut Record<'_>, frame: &Frame, parameter: u8) -> Option<()> {
    let mut path = [0u8; libc::PATH_MAX as usize];
    let address = frame.words[usize::from(parameter)];
    let length = memory::string_length(address, path.len()).unwrap_or(0);
    if length == 0 || !memory::read_all(address, &mut path[..length]) {
        return Some(());
    }
    let name = CStr::from_bytes_until_nul(&path).ok();
    if let Some(content) = name.and_then(MappedFile::open) {
        snapshot::bytes(
            record,
            parameter,
            field::FILE,
            content.start as u64,
            content.length as u64,
        )?;
    }
    // SAFETY: the buffer is valid for its length; the name of the file is not needed any more.
    let directory = unsafe { libc::getcwd(path.as_mut_ptr().cast(), path.len()) };
    match CStr::from_bytes_until_nul(&path) {
        Ok(directory_name) if !directory.is_null() => snapshot::own(
            record,
            parameter,
            field::DIRECTORY,
            directory_name.to_bytes(),
        ),
        _ => Some(()),
    }
}

/// A file's content, without the program's allocator.
struct MappedFile {
    start: *mut c_void,
    length: usize,
}

impl MappedFile {
    /// Maps a file. Nothing but plain files: reading from a pipe would take from it what the driver is to read.
    fn open(path: &CStr) -> Option<Self> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        // SAFETY: the path ends in NUL.
        let descriptor = unsafe { libc::open(path.as_ptr(), flags) };
        if descriptor < 0 {
            return None;
        }
        let file = Self::map(descriptor);
        // SAFETY: the descriptor is ours; the mapping stays without it.
        unsafe { libc::close(descriptor) };
        file
    }

    fn map(descriptor: i32) -> Option<Self> {
        // SAFETY: all-zero is a valid stat buffer.
        let mut status: libc::stat = unsafe { core::mem::zeroed() };
        // SAFETY: the buffer is ours.
        let known = unsafe { libc::fstat(descriptor, &raw mut status) } == 0;
        if !known || status.st_mode & libc::S_IFMT != libc::S_IFREG || status.st_size <= 0 {
            return None;
        }
        let length = status.st_size as usize;
        let (access, flags) = (libc::PROT_READ, libc::MAP_PRIVATE);
        // SAFETY: a fresh mapping, of which no reference is ever made: the file may change under it.
        let start =
            unsafe { libc::mmap(core::ptr::null_mut(), length, access, flags, descriptor, 0) };
        (start != libc::MAP_FAILED).then_some(Self { start, length })
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with that length.
        unsafe { libc::munmap(self.start, self.length) };
    }
}

/// Puts the option arrays of a load: (position of their count, position of the numbers) for library options.
pub(super) fn options(
    record: &mut Record<'_>,
    frame: &Frame,
    options: Option<Places>,
    library_options: Option<(u8, u8)>,
) -> Option<()> {
    if let Some(places) = options {
        jit_options::before(record, frame, places)?;
    }
    let Some((count, numbers)) = library_options else {
        return Some(());
    };
    let length = u64::from(frame.words[usize::from(count)] as u32).min(jit_options::MOST);
    for (at, field, bytes) in [
        (numbers, field::LIBRARY_OPTIONS, 4),
        (numbers + 1, field::LIBRARY_OPTION_VALUES, 8),
    ] {
        let address = frame.words[usize::from(at)];
        if address != 0 && length > 0 {
            snapshot::bytes(record, at, field, address, length * bytes)?;
        }
    }
    Some(())
}
