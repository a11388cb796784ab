//! Where libraries lie in this process, with their build ids, so that callers' addresses can be named later.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};
use std::ffi::CStr;

use cutape_format::file_range::build_id_among;
use cutape_format::layout::chunk_kind;

use crate::{memory, trace_file};

/// Of longer note segments the start is looked at.
const LONGEST_NOTES: usize = 1024;

/// How many objects the loader had ever added when the map was last written.
static SEEN: AtomicU64 = AtomicU64::new(0);

/// The mappings in their encoded form: a count, then each one's fields.
#[derive(Default)]
struct Maps {
    count: u64,
    bytes: Vec<u8>,
    added: u64,
}

/// Writes the map of the code that is loaded now.
pub(crate) fn write() {
    let mut maps = Maps {
        count: 0,
        bytes: vec![0; 8],
        added: 0,
    };
    // SAFETY: the callback gets the pointer that is passed here, while `maps` lives.
    unsafe { libc::dl_iterate_phdr(Some(object), (&raw mut maps).cast()) };
    SEEN.store(maps.added, Ordering::Relaxed);
    maps.bytes[..8].copy_from_slice(&maps.count.to_le_bytes());
    trace_file::document(chunk_kind::MAPS, &maps.bytes);
}

/// Writes the map again if the loader has added something since.
pub(crate) fn write_if_changed() {
    let mut added = 0u64;
    // SAFETY: the callback gets the pointer that is passed here.
    unsafe { libc::dl_iterate_phdr(Some(count), (&raw mut added).cast()) };
    if added != SEEN.load(Ordering::Relaxed) {
        write();
    }
}

/// The code of the object in which an address lies: where it begins, and how long it is; nothing if there is none.
#[cfg(feature = "gum")]
pub(crate) fn code_around(address: usize) -> (usize, usize) {
    struct Search {
        address: u64,
        found: (usize, usize),
    }
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        search: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader gives a valid object; the pointer is the one below.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
        // SAFETY: the loader gives the object's program headers and their number.
        let headers =
            unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        for header in headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0)
        {
            let start = info.dlpi_addr + header.p_vaddr;
            if search.address.wrapping_sub(start) < header.p_memsz {
                search.found = (start as usize, header.p_memsz as usize);
                return 1;
            }
        }
        0
    }
    let mut search = Search {
        address: address as u64,
        found: (0, 0),
    };
    // SAFETY: the callback gets the pointer that is passed here, while `search` lives.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

unsafe extern "C" fn count(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    added: *mut c_void,
) -> c_int {
    // SAFETY: the loader gives a valid object; the pointer is `write_if_changed`'s.
    unsafe { *added.cast::<u64>() = (*info).dlpi_adds };
    1
}

unsafe extern "C" fn object(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    maps: *mut c_void,
) -> c_int {
    // SAFETY: the loader gives a valid object; the pointer is `write`'s.
    let (info, maps) = unsafe { (&*info, &mut *maps.cast::<Maps>()) };
    maps.added = info.dlpi_adds;
    // SAFETY: the loader gives the object's program headers and their number.
    let headers =
        unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let mut path = Vec::new();
    if !info.dlpi_name.is_null() {
        // SAFETY: a NUL-terminated name, valid during the callback.
        path.extend_from_slice(unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes());
    }
    if path.is_empty() {
        path.resize(4096, 0);
        // SAFETY: the buffer is valid for its length.
        let length = unsafe {
            libc::readlink(
                c"/proc/self/exe".as_ptr(),
                path.as_mut_ptr().cast(),
                path.len(),
            )
        };
        path.truncate(length.max(0) as usize);
    }
    let mut notes = [0; LONGEST_NOTES];
    let build_id = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_NOTE)
        .find_map(|header| {
            // Read with care: tools that rewrite programs leave notes that are not loaded.
            let length = (header.p_memsz as usize).min(notes.len());
            let got = memory::read(info.dlpi_addr + header.p_vaddr, &mut notes[..length]);
            build_id_among(&notes[..got]).map(<[u8]>::to_vec)
        })
        .unwrap_or_default();
    for header in headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0)
    {
        let start = info.dlpi_addr + header.p_vaddr;
        for number in [
            start,
            start + header.p_memsz,
            header.p_offset,
            path.len() as u64,
        ] {
            maps.bytes.extend_from_slice(&number.to_le_bytes());
        }
        maps.bytes.extend_from_slice(&path);
        maps.bytes
            .extend_from_slice(&(build_id.len() as u64).to_le_bytes());
        maps.bytes.extend_from_slice(&build_id);
        maps.count += 1;
    }
    0
}
