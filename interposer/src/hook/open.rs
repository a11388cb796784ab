//! Our `dlopen` and `dlmopen`, which replace the C library's if we are preloaded: a path of libcuda
//! loads us.

use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_void};
use std::ffi::{CStr, CString};

use cutape_registry::{Backend, PAST_AUDIT, asks_for_libcuda, names_a_folder};

use super::next::Next;
use crate::process::errno::Errno;
use crate::process::settings;

/// Tells this library from a real driver: a search for libcuda passes over a library that exports
/// it.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "found by name")]
pub static cutape_interposer_marker: u32 = 1;

static NEXT_DLOPEN: Next = Next::of(c"dlopen");
static NEXT_DLMOPEN: Next = Next::of(c"dlmopen");

/// Where a call goes.
#[repr(C)]
struct Redirected {
    /// The next function.
    target: *const c_void,
    /// The name that it gets.
    name: *const c_char,
}

/// `dlopen` of dlfcn.h. It jumps to the next one, so that this sees the caller's return address:
/// the loader searches along the caller's RUNPATH.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[allow(unreachable_pub, reason = "found by name")]
pub extern "C" fn dlopen() {
    naked_asm!(
        ".cfi_startproc",
        // The flags; and the stack is aligned for a call.
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "call {choose}",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "mov rdi, rdx",
        "jmp rax",
        ".cfi_endproc",
        choose = sym choose,
    )
}

/// `dlmopen` of dlfcn.h. The loader makes a copy of us in each namespace, which writes a trace of
/// its own.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[allow(unreachable_pub, reason = "found by name")]
pub extern "C" fn dlmopen() {
    naked_asm!(
        ".cfi_startproc",
        // The namespace, the flags; and the stack is aligned for a call.
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov rdi, rsi",
        "call {choose}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "mov rsi, rdx",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        choose = sym choose_for_namespace,
    )
}

/// # Safety
/// The name is one for `dlopen`.
unsafe extern "C" fn choose(name: *const c_char) -> Redirected {
    // SAFETY: as the caller says.
    unsafe { redirect(&NEXT_DLOPEN, name) }
}

/// # Safety
/// The name is one for `dlmopen`.
unsafe extern "C" fn choose_for_namespace(name: *const c_char) -> Redirected {
    // SAFETY: as the caller says.
    unsafe { redirect(&NEXT_DLMOPEN, name) }
}

/// Where a call of `dlopen` or `dlmopen` goes.
///
/// # Safety
/// The name is NULL or ends in NUL.
unsafe fn redirect(next: &Next, name: *const c_char) -> Redirected {
    let _errno = Errno::keep();
    let next = next.get();
    let target = if next.is_null() {
        unavailable as *const c_void
    } else {
        next
    };
    // SAFETY: as the caller says.
    let name = unsafe { redirected(name) }.unwrap_or(name);
    Redirected { target, name }
}

/// Our own path, if the name asks for libcuda.
///
/// # Safety
/// The name is NULL or ends in NUL.
unsafe fn redirected(name: *const c_char) -> Option<*const c_char> {
    if name.is_null() {
        return None;
    }
    // SAFETY: as the caller says, not NULL here.
    let text = unsafe { CStr::from_ptr(name) }.to_bytes();
    if !asks_for_libcuda(text) {
        return None;
    }
    // A path that does not exist fails as without us: programs try several.
    // SAFETY: the name ends in NUL.
    if names_a_folder(text) && unsafe { libc::access(name, libc::F_OK) } != 0 {
        return None;
    }
    own_path()
}

/// The path from which the loader has loaded us. It stays valid, since we are never unloaded.
fn own_path() -> Option<*const c_char> {
    // SAFETY: all-zero is a valid Dl_info.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    let own = &raw const cutape_interposer_marker;
    // SAFETY: `info` is valid for writing.
    let found = unsafe { libc::dladdr(own.cast(), &raw mut info) } != 0;
    (found && !info.dli_fname.is_null()).then_some(info.dli_fname)
}

/// In the place of a next function that does not exist, which does not happen in a process with a
/// loader.
extern "C" fn unavailable() -> *const c_void {
    core::ptr::null()
}

/// `dlopen` without redirection.
fn real_dlopen(path: &CStr, flags: c_int) -> *mut c_void {
    let next = NEXT_DLOPEN.get();
    if next.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: that is what dlopen is declared as in dlfcn.h.
    let dlopen: unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void =
        unsafe { core::mem::transmute(next) };
    // SAFETY: the path ends in NUL.
    unsafe { dlopen(path.as_ptr(), flags) }
}

/// Opens the real driver for good, past everything that redirects searches for libcuda to us. NULL,
/// with the reason in `dlerror`.
pub(crate) fn open_driver(path: &CStr) -> *mut c_void {
    let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE;
    let marked = match settings::backend() {
        Backend::Audit if path.to_bytes().starts_with(b"/") => {
            CString::new([PAST_AUDIT.as_bytes(), path.to_bytes()].concat()).ok()
        }
        _ => None,
    };
    real_dlopen(marked.as_deref().unwrap_or(path), flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_libcuda_is_redirected() {
        let folder = std::env::temp_dir().join(format!("cutape-open-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("libcuda.so.1"), b"").unwrap();
        std::fs::write(folder.join("libother.so"), b"").unwrap();
        let inside = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        for (name, expected) in [
            ("libcuda.so.1".to_owned(), true),
            ("libcuda.so".to_owned(), true),
            ("libm.so.6".to_owned(), false),
            (String::new(), false),
            (inside("libcuda.so.1"), true),
            // It does not exist: dlopen says so.
            (inside("libcuda.so"), false),
            (inside("libother.so"), false),
        ] {
            let text = CString::new(name.clone()).unwrap();
            // SAFETY: it ends in NUL.
            let found = unsafe { redirected(text.as_ptr()) };
            assert_eq!(found.is_some(), expected, "{name}");
        }
        // SAFETY: NULL is allowed.
        assert!(unsafe { redirected(core::ptr::null()) }.is_none());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_next_one_opens() {
        assert!(!real_dlopen(c"libc.so.6", libc::RTLD_NOW).is_null());
        assert!(real_dlopen(c"/no/such/library.so", libc::RTLD_NOW).is_null());
    }
}
