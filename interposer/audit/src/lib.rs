//! The auditing library: it leads every search of the loader for libcuda to the interposer (rtld-audit(7)).
//!
//! The loader brings it into a namespace of its own before anything of the program, and asks it for every library that is
//! looked for, by whatever way: linked, `dlopen` by any name or path, `dlmopen`. Invariant: it has these two functions and
//! nothing else; it answers from the environment as the program was started with, needs nothing of the C library but
//! `getenv` and `access`, keeps no state but two pointers, and what is not libcuda it passes on untouched.
#![no_std]

// Nothing here panics. Where panics unwind (builds for development), the language asks for the standard library all the same;
// as it is shipped, in the profile `shim`, this library has none of it.
#[cfg(panic = "unwind")]
extern crate std;

#[cfg(panic = "abort")]
#[panic_handler]
fn never(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

use core::ffi::{CStr, c_char, c_uint};
use core::sync::atomic::{AtomicPtr, Ordering};

use cutape_registry::{asks_for_libcuda, names_a_folder, past_audit};

/// LA_SER_ORIG of link.h: the name as the program or a library gave it. What follows are the places where it is tried.
const AS_GIVEN: c_uint = 1;

/// The interposer's path, from `CUTAPE_AUDIT_LEADS_TO`. The name is long because a launcher's environment is full of short ones.
static INTERPOSER: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());

/// Asked once by the loader, with its version of the interface; what is used here is the same in all of them. With 0 the
/// loader drops us.
#[unsafe(no_mangle)]
pub extern "C" fn la_version(version: c_uint) -> c_uint {
    // SAFETY: the name ends in NUL; the value stays where it is, since nothing in this namespace changes the environment.
    let interposer = unsafe { libc::getenv(c"CUTAPE_AUDIT_LEADS_TO".as_ptr()) };
    INTERPOSER.store(interposer, Ordering::Relaxed);
    if interposer.is_null() { 0 } else { version }
}

/// Asked by the loader for every name that it looks for; it goes on with the answer.
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
    // A path where nothing is fails as ever: programs try several.
    // SAFETY: the name ends in NUL.
    if names_a_folder(text) && unsafe { libc::access(name, libc::F_OK) } != 0 {
        return name;
    }
    let interposer = INTERPOSER.load(Ordering::Relaxed);
    // A process may outlive the launcher and what it laid out; then it gets what it asked for.
    // SAFETY: `la_version` took it from the environment, where it ends in NUL; without it the loader has dropped us.
    if interposer.is_null() || unsafe { libc::access(interposer, libc::F_OK) } != 0 {
        return name;
    }
    interposer
}
