//! Module and library images, from memory or from a file.

use core::ffi::{CStr, c_void};
use std::os::fd::AsRawFd;

use cutape_format::layout::{INLINE_LIMIT, field, snapshot_flag};
use cutape_image::{Extent, extent, wrapper_data};
use cutape_registry::{ImageLoad, ImageSource, OptionArray};

use super::jit_options::{self, owned};
use super::visitor::Visitor;
use crate::hot::frame::Frame;
use crate::hot::thread::Draft;
use crate::loaded::{maps, segments};
use crate::process::memory;
use crate::process::regular_file::RegularFile;
use crate::snapshot;

/// Enough for the first header of any image.
const FIRST_LOOK: u64 = 4096;
/// An image that claims to be longer is damaged.
const LONGEST: u64 = 4 << 30;
/// Bytes that are kept of something that is no image.
const GLIMPSE: usize = 64;

pub(super) fn visit<V: Visitor>(visitor: V, load: ImageLoad) -> V {
    let visitor = match load.source {
        ImageSource::Data(at) | ImageSource::FatBinary(at) => visitor
            .owns(1 << at)
            .put_pre_call(move |draft, frame| data(draft, frame, at)),
        ImageSource::File(at) => visitor.put_pre_call(move |draft, frame| file(draft, frame, at)),
    };
    let visitor = visitor.post_call(|_, _| maps::write_if_changed());
    let visitor = match load.options {
        Some(array) => jit_options::visit(visitor, array),
        None => visitor,
    };
    match load.library_options {
        Some(array) => visitor
            .owns(owned(array))
            .put_pre_call(move |draft, frame| put_library_options(draft, frame, array)),
        None => visitor,
    }
}

fn put_library_options(draft: &mut Draft<'_>, frame: &Frame, array: OptionArray) -> Option<()> {
    let (numbers, values) = (field::LIBRARY_OPTIONS, field::LIBRARY_OPTION_VALUES);
    jit_options::put_arrays(draft, frame, array, numbers, values)
}

/// Writes the image that a parameter points at; if that is a wrapper, also the image that the
/// wrapper points at.
fn data(draft: &mut Draft<'_>, frame: &Frame, parameter: u8) -> Option<()> {
    let address = frame.word(parameter);
    if address == 0 {
        return Some(());
    }
    image(draft, parameter, field::POINTEE, address)?;
    let mut wrapper = [0u8; 24];
    if memory::read_all(address, &mut wrapper)
        && let Some(header) = wrapper_data(&wrapper)
        && header.data != 0
    {
        image(draft, parameter, field::FATBIN, header.data)?;
    }
    Some(())
}

fn image(draft: &mut Draft<'_>, parameter: u8, field: u8, address: u64) -> Option<()> {
    match length(address) {
        Some(length) => bytes(draft, parameter, field, address, length),
        None => glimpse(draft, parameter, field, address),
    }
}

/// Writes an image of that length. A long one that is mapped from a file is recorded by reference.
pub(super) fn bytes(
    draft: &mut Draft<'_>,
    parameter: u8,
    field: u8,
    address: u64,
    length: u64,
) -> Option<()> {
    if length > INLINE_LIMIT as u64
        && let Some(segment) = segments::holding(address, length)
    {
        return snapshot::in_file(draft, parameter, field, &segment.range(address, length));
    }
    snapshot::bytes(draft, parameter, field, address, length)
}

/// How long the image at an address is; `None` for bytes that are no image, or not all there.
fn length(address: u64) -> Option<u64> {
    let mut look = FIRST_LOOK;
    while look <= LONGEST {
        let mut scratch = memory::Scratch::new(look as usize)?;
        let bytes = scratch.bytes();
        let got = memory::read(address, bytes);
        match extent(bytes.get(..got)?) {
            Extent::Known(length) => return (length <= LONGEST).then_some(length),
            Extent::Unbounded => {
                return memory::string_length(address, LONGEST as usize)
                    .map(|length| length as u64);
            }
            // More than was read, unless the memory ends here.
            Extent::NeedBytes(more) if got as u64 == look && more > look => look = more,
            _ => return None,
        }
    }
    None
}

fn glimpse(draft: &mut Draft<'_>, parameter: u8, field: u8, address: u64) -> Option<()> {
    let mut bytes = [0u8; GLIMPSE];
    let got = memory::read(address, &mut bytes);
    draft.put_snapshot(parameter, field, got, |target| {
        target.copy_from_slice(bytes.get(..got)?);
        (got > 0).then_some(snapshot_flag::TRUNCATED)
    })
}

/// Writes the content of the file that a parameter names, and the directory that the name is
/// relative to.
pub(super) fn file(draft: &mut Draft<'_>, frame: &Frame, parameter: u8) -> Option<()> {
    let mut path = [0u8; libc::PATH_MAX as usize];
    let address = frame.word(parameter);
    let length = memory::string_length(address, path.len()).unwrap_or(0);
    if length == 0 || !memory::read_all(address, path.get_mut(..length)?) {
        return Some(());
    }
    let name = CStr::from_bytes_until_nul(&path).ok();
    if let Some(content) = name.and_then(MappedFile::open) {
        snapshot::bytes(
            draft,
            parameter,
            field::FILE,
            content.start as u64,
            content.length as u64,
        )?;
    }
    // SAFETY: the buffer is valid for its length; the file name in it is not needed any more.
    let directory = unsafe { libc::getcwd(path.as_mut_ptr().cast(), path.len()) };
    match CStr::from_bytes_until_nul(&path) {
        Ok(directory_name) if !directory.is_null() => snapshot::own(
            draft,
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
    /// Maps a regular file that is not empty.
    fn open(path: &CStr) -> Option<Self> {
        let (file, status) = RegularFile::open(path)?;
        let length = usize::try_from(status.length).ok().filter(|&it| it != 0)?;
        let (access, flags) = (libc::PROT_READ, libc::MAP_PRIVATE);
        let descriptor = file.as_raw_fd();
        // SAFETY: a fresh mapping, of which no reference is ever made: the file may change under
        // it. It stays when the descriptor is closed.
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
