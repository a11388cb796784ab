//! Our `dlopen` and `dlmopen`, which stand before the C library's where we are preloaded: a path of libcuda leads to us.

use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::ffi::CStr;

use cutape_registry::{asks_for_libcuda, names_a_folder};

use crate::errno::Errno;

/// The next one behind each of ours: the C library's, or that of another tool.
static NEXT_DLOPEN: Next = Next::of(c"dlopen");
static NEXT_DLMOPEN: Next = Next::of(c"dlmopen");

/// What one of ours does with a call.
#[repr(C)]
struct Chosen {
    /// Where it goes on.
    target: *const c_void,
    /// With which name.
    name: *const c_char,
}

/// `dlopen` of dlfcn.h. It jumps to the next one, so that this sees its caller's return address: libraries are searched for
/// along the RUNPATH of who calls.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[allow(unreachable_pub)]
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

/// `dlmopen` of dlfcn.h. The loader makes a copy of us in each namespace, which records into a trace of its own.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[allow(unreachable_pub)]
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
unsafe extern "C" fn choose(name: *const c_char) -> Chosen {
    // SAFETY: as the caller says.
    unsafe { NEXT_DLOPEN.choose(name) }
}

/// # Safety
/// The name is one for `dlmopen`.
unsafe extern "C" fn choose_for_namespace(name: *const c_char) -> Chosen {
    // SAFETY: as the caller says.
    unsafe { NEXT_DLMOPEN.choose(name) }
}

/// A function of that name behind ours.
pub(super) struct Next {
    name: &'static CStr,
    /// NULL before it is needed.
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(super) const fn of(name: &'static CStr) -> Self {
        Self {
            name,
            found: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// NULL if there is none.
    pub(super) fn get(&self) -> *const c_void {
        let known = self.found.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: asks the loader for what comes behind this library; the name ends in NUL.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(found, Ordering::Relaxed);
        found
    }

    /// # Safety
    /// The name is NULL or ends in NUL.
    unsafe fn choose(&self, name: *const c_char) -> Chosen {
        let _errno = Errno::keep();
        let next = self.get();
        let target = if next.is_null() {
            unavailable as *const c_void
        } else {
            next
        };
        // SAFETY: as the caller says.
        let name = unsafe { led_to_us(name) }.unwrap_or(name);
        Chosen { target, name }
    }
}

/// Our own path, if the name asks for libcuda.
///
/// # Safety
/// The name is NULL or ends in NUL.
unsafe fn led_to_us(name: *const c_char) -> Option<*const c_char> {
    if name.is_null() {
        return None;
    }
    // SAFETY: as the caller says, not NULL here.
    let text = unsafe { CStr::from_ptr(name) }.to_bytes();
    if !asks_for_libcuda(text) {
        return None;
    }
    // A path where nothing is fails as ever: programs try several.
    // SAFETY: the name ends in NUL.
    if names_a_folder(text) && unsafe { libc::access(name, libc::F_OK) } != 0 {
        return None;
    }
    own_path()
}

/// By which name the loader knows us; it stays as long as we do, which is for ever.
fn own_path() -> Option<*const c_char> {
    // SAFETY: all-zero is a valid Dl_info.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    let own = &raw const crate::cutape_interposer_marker;
    // SAFETY: `info` is valid for writing.
    let found = unsafe { libc::dladdr(own.cast(), &raw mut info) } != 0;
    (found && !info.dli_fname.is_null()).then_some(info.dli_fname)
}

/// Stands for a function that no library behind us has, which a process with a loader cannot be without.
extern "C" fn unavailable() -> *const c_void {
    core::ptr::null()
}

/// `dlopen` without our leading.
pub(super) fn real_dlopen(path: &CStr, flags: c_int) -> *mut c_void {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    #[test]
    fn only_libcuda_is_led_to_us() {
        let folder = std::env::temp_dir().join(format!("cutape-open-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("libcuda.so.1"), b"").unwrap();
        std::fs::write(folder.join("libother.so"), b"").unwrap();
        let inside = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        for (name, led) in [
            ("libcuda.so.1".to_owned(), true),
            ("libcuda.so".to_owned(), true),
            ("libm.so.6".to_owned(), false),
            (String::new(), false),
            (inside("libcuda.so.1"), true),
            // It is not there: dlopen says so.
            (inside("libcuda.so"), false),
            (inside("libother.so"), false),
        ] {
            let text = CString::new(name.clone()).unwrap();
            // SAFETY: it ends in NUL.
            let found = unsafe { led_to_us(text.as_ptr()) };
            assert_eq!(found.is_some(), led, "{name}");
        }
        // SAFETY: NULL is allowed.
        assert!(unsafe { led_to_us(core::ptr::null()) }.is_none());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_next_one_opens() {
        assert!(!real_dlopen(c"libc.so.6", libc::RTLD_NOW).is_null());
        assert!(real_dlopen(c"/no/such/library.so", libc::RTLD_NOW).is_null());
    }
}
