//! Walks over the loaded objects.

use core::ffi::{c_char, c_int, c_void};
use core::ops::ControlFlow;
use std::ffi::CStr;
use std::os::unix::ffi::OsStringExt;

use cutape_format::file_range::build_id_among;

use crate::process::memory;

/// Of longer note segments, the start is searched.
const LONGEST_NOTES: usize = 1024;

/// The program or a library, valid during the visit.
pub(crate) struct Object<'a> {
    /// What is added to the addresses in the headers.
    pub(crate) base: u64,
    pub(crate) headers: &'a [libc::Elf64_Phdr],
    name: *const c_char,
    /// How many objects the loader has ever added, and removed.
    pub(crate) adds: u64,
    pub(crate) subs: u64,
}

impl Object<'_> {
    /// Its path, as the loader knows it.
    pub(crate) fn path(&self) -> Vec<u8> {
        if !self.name.is_null() {
            // SAFETY: a NUL-terminated name, valid during the visit.
            let name = unsafe { CStr::from_ptr(self.name) }.to_bytes();
            if !name.is_empty() {
                return name.to_vec();
            }
        }
        // The program itself has no name.
        let path = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        path.into_os_string().into_vec()
    }

    /// Its build id; empty if it has none.
    pub(crate) fn build_id(&self) -> Vec<u8> {
        let mut notes = [0; LONGEST_NOTES];
        let notes_headers = self
            .headers
            .iter()
            .filter(|header| header.p_type == libc::PT_NOTE);
        notes_headers
            .into_iter()
            .find_map(|header| {
                // Read in a way that cannot fault: tools that rewrite programs leave notes that are
                // not loaded.
                let length = (header.p_memsz as usize).min(LONGEST_NOTES);
                let got = memory::read(self.address(header), notes.get_mut(..length)?);
                build_id_among(notes.get(..got)?).map(<[u8]>::to_vec)
            })
            .unwrap_or_default()
    }

    /// Where a segment begins.
    pub(crate) fn address(&self, header: &libc::Elf64_Phdr) -> u64 {
        self.base.wrapping_add(header.p_vaddr)
    }

    /// The first address of its segments, and behind the last.
    pub(crate) fn extent(&self) -> Option<(u64, u64)> {
        let loaded = || {
            let mut headers = self.headers.iter();
            core::iter::from_fn(move || headers.find(|header| header.p_type == libc::PT_LOAD))
        };
        let start = loaded().map(|header| self.address(header)).min()?;
        let end = loaded().map(|header| self.address(header).saturating_add(header.p_memsz));
        Some((start, end.max()?))
    }

    /// The address of its `.eh_frame_hdr`.
    pub(crate) fn unwind_header(&self) -> Option<u64> {
        let mut headers = self.headers.iter();
        let found = headers.find(|header| header.p_type == libc::PT_GNU_EH_FRAME)?;
        Some(self.address(found))
    }

    /// The segments that hold code.
    pub(crate) fn code(&self) -> impl Iterator<Item = &libc::Elf64_Phdr> {
        self.headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0)
    }
}

/// Most program headers that are read of an object.
const MOST_HEADERS: usize = 24;

/// Visits the object whose file is mapped from `start` on, as its program headers in memory
/// describe it, without the loader's lock.
pub(crate) fn visit_at(start: u64, base: u64, visit: impl FnOnce(&Object<'_>)) {
    // Offsets in `Elf64_Ehdr`.
    let (offset, count) = (memory::word(start + 32), memory::word(start + 56));
    let (Some(offset), Some(count)) = (offset, count) else {
        return;
    };
    // SAFETY: program headers are plain numbers.
    let mut headers: [libc::Elf64_Phdr; MOST_HEADERS] = unsafe { core::mem::zeroed() };
    let Some(headers) = headers.get_mut(..usize::from(count as u16)) else {
        return;
    };
    // SAFETY: the bytes of the headers, which are plain numbers.
    let bytes = unsafe {
        core::slice::from_raw_parts_mut(headers.as_mut_ptr().cast(), size_of_val(headers))
    };
    if memory::read_all(start.wrapping_add(offset), bytes) {
        visit(&Object {
            base,
            headers,
            name: core::ptr::null(),
            adds: 0,
            subs: 0,
        });
    }
}

/// How many objects the loader has ever added.
pub(crate) fn added() -> u64 {
    let mut added = 0;
    for_each(&mut |object| {
        added = object.adds;
        ControlFlow::Break(())
    });
    added
}

type Visit<'v> = &'v mut dyn FnMut(&Object<'_>) -> ControlFlow<()>;

/// Visits the loaded objects until `visit` breaks.
pub(crate) fn for_each(mut visit: Visit<'_>) {
    unsafe extern "C" fn callback(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        visit: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader gives a valid object; the pointer is the one passed below.
        let (info, visit) = unsafe { (&*info, &mut *visit.cast::<Visit<'_>>()) };
        // SAFETY: the loader gives the object's program headers and their number.
        let headers =
            unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let object = Object {
            base: info.dlpi_addr,
            headers,
            name: info.dlpi_name,
            adds: info.dlpi_adds,
            subs: info.dlpi_subs,
        };
        visit(&object).is_break().into()
    }
    // SAFETY: the callback gets the closure that is passed here, while it lives.
    unsafe { libc::dl_iterate_phdr(Some(callback), (&raw mut visit).cast()) };
}

/// The code segment that an address lies in: where it begins, and its length; zeros if there is
/// none.
pub(crate) fn code_around(address: usize) -> (usize, usize) {
    let mut found = (0, 0);
    for_each(&mut |object| {
        for header in object.code() {
            let start = object.address(header);
            if (address as u64).wrapping_sub(start) < header.p_memsz {
                found = (start as usize, header.p_memsz as usize);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    });
    found
}

/// Whether the loader has put this copy of us beside the program, not into a namespace that
/// `dlmopen` made. True if the loader does not say.
#[cfg(any(feature = "gum", test))]
pub(crate) fn is_in_base_namespace() -> bool {
    static OWN: u8 = 0;
    /// Of dlfcn.h.
    const RTLD_DL_LINKMAP: c_int = 2;
    // SAFETY: all-zero is a valid Dl_info.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    let mut object = core::ptr::null_mut();
    // SAFETY: both are valid for writing; with this flag the second gets a `struct link_map *`.
    let found = unsafe {
        libc::dladdr1(
            (&raw const OWN).cast(),
            &raw mut info,
            &raw mut object,
            RTLD_DL_LINKMAP,
        )
    };
    let mut namespace: libc::Lmid_t = libc::LM_ID_BASE;
    if found != 0 && !object.is_null() {
        // SAFETY: in glibc, a `struct link_map *` is a handle of its object, which is loaded.
        unsafe { libc::dlinfo(object, libc::RTLD_DI_LMID, (&raw mut namespace).cast()) };
    }
    namespace == libc::LM_ID_BASE
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_program_is_in_the_base_namespace() {
        assert!(super::is_in_base_namespace());
    }
}
