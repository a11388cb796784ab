//! Module and library images, from memory or from a file.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;

use cutape_format::layout::{capture_flag, field};
use cutape_format::write::Record;
use cutape_image::{Extent, extent, wrapper_data};

use super::jit_options::{self, Places};
use crate::call::Frame;
use crate::{capture, memory};

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
        Some(length) => capture::bytes(record, parameter, field, address, length),
        None => glimpse(record, parameter, field, address),
    }
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
    record.put_capture(parameter, field, got, |target| {
        target.copy_from_slice(&bytes[..got]);
        (got > 0).then_some(capture_flag::TRUNCATED)
    })
}

/// Puts the content of the file that a parameter names, and the directory that the name is relative to.
pub(super) fn file(record: &mut Record<'_>, frame: &Frame, parameter: u8) -> Option<()> {
    let Some(path) = path(frame.words[usize::from(parameter)]) else {
        return Some(());
    };
    if let Ok(content) = std::fs::read(OsStr::from_bytes(path.as_bytes())) {
        capture::own(record, parameter, field::FILE, &content)?;
    }
    if let Ok(directory) = std::env::current_dir() {
        capture::own(
            record,
            parameter,
            field::DIRECTORY,
            directory.as_os_str().as_bytes(),
        )?;
    }
    Some(())
}

fn path(address: u64) -> Option<CString> {
    let length = memory::string_length(address, libc::PATH_MAX as usize)?;
    let mut bytes = vec![0; length];
    if !memory::read_all(address, &mut bytes) {
        return None;
    }
    CString::from_vec_with_nul(bytes).ok()
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
            capture::bytes(record, at, field, address, length * bytes)?;
        }
    }
    Some(())
}
