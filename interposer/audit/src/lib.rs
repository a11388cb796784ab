//! The auditing library: it redirects every search of the loader for libcuda to the interposer
//! (rtld-audit(7)).
//!
//! The loader loads it into a namespace of its own, before the program, and asks it about every
//! library that is linked or opened with `dlopen` or `dlmopen`, by any name or path. Invariant: it
//! has these two functions and nothing else; it uses the environment that the program was started
//! with; it needs only `getenv` and `access` of the C library; it keeps no state but one pointer;
//! it passes on other names unchanged.
#![no_std]

// Nothing here panics. Builds for development, where panics unwind, need the standard library all
// the same; in the profile `shim`, as it is shipped, this library does not.
#[cfg(panic = "unwind")]
extern crate std;

#[cfg(panic = "abort")]
#[panic_handler]
fn never(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

use core::ffi::{CStr, c_char, c_uint};
use core::sync::atomic::{AtomicPtr, Ordering};

use cutape_registry::{RecorderSetting, asks_for_libcuda, names_a_folder, past_audit};

// The crate libc leaves this to the standard library if another package of the same build uses it
// with `std`. Without it the loader finds no symbol of ours, and nothing is recorded.
#[link(name = "c")]
unsafe extern "C" {}

/// LA_SER_ORIG of link.h: the name as the program or a library gave it. Other flags are for the
/// places where the loader tries it.
const AS_GIVEN: c_uint = 1;

/// The variable with the interposer's path.
const LEADS_TO: &CStr = RecorderSetting::AuditLeadsTo.c_name();

/// The interposer's path.
static INTERPOSER: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());

/// Called once by the loader, with its version of the interface; this library works with all of
/// them. If it returns 0, the loader unloads us.
#[unsafe(no_mangle)]
pub extern "C" fn la_version(version: c_uint) -> c_uint {
    // SAFETY: the name ends in NUL. The value stays valid, since nothing in this namespace changes
    // the environment.
    let interposer = unsafe { libc::getenv(LEADS_TO.as_ptr()) };
    INTERPOSER.store(interposer, Ordering::Relaxed);
    if interposer.is_null() { 0 } else { version }
}

/// Called by the loader for every name that it searches; the loader uses the returned name.
///
/// # Safety
/// `name` is NULL or ends in NUL, as rtld-audit(7) says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objsearch(
    name: *const c_char,
    _cookie: *mut usize,
    flag: c_uint,
) -> *const c_char {
    if name.is_null() || flag != AS_GIVEN {
        return name;
    }
    // SAFETY: as the caller says.
    let text = unsafe { CStr::from_ptr(name) }.to_bytes();
    if let Some(meant) = past_audit(text) {
        // The end of the same string.
        return meant.as_ptr().cast();
    }
    if !asks_for_libcuda(text) {
        return name;
    }
    // A path that does not exist fails as without us: programs try several.
    // SAFETY: the name ends in NUL.
    if names_a_folder(text) && unsafe { libc::access(name, libc::F_OK) } != 0 {
        return name;
    }
    let interposer = INTERPOSER.load(Ordering::Relaxed);
    // A process may outlive the launcher and its files; then it gets the library that it asked for.
    // SAFETY: from the environment, where it ends in NUL.
    if interposer.is_null() || unsafe { libc::access(interposer, libc::F_OK) } != 0 {
        return name;
    }
    interposer
}
