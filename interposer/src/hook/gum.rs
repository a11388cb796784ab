//! The back end *gum*: frida-gum rewrites the beginning of each of the driver's functions to jump to our entry.
//!
//! It is done when the process starts, before `main` and before anything has called the driver; it is never undone, and the
//! driver stays loaded for good: both were seen to crash (frida-gum 17.9.5, 2026-11-20).

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cutape_registry::FUNCTIONS;
use frida_gum::interceptor::Interceptor;
use frida_gum::{Gum, NativePointer};

use super::patch::{self, Engine};
use crate::settings::{self, Via};
use crate::{call, driver, entry, errno, log};

/// By this name the launcher knows that this build can patch.
#[unsafe(no_mangle)]
#[allow(unreachable_pub)]
pub static cutape_interposer_patches: u32 = 1;

static PATCHED: AtomicBool = AtomicBool::new(false);
/// Where the driver's code begins, and how long it is; 0 unless it is patched.
static CODE_START: AtomicUsize = AtomicUsize::new(0);
static CODE_LENGTH: AtomicUsize = AtomicUsize::new(0);

/// Run by the loader before `main`.
extern "C" fn at_start() {
    if settings::via() == Via::Gum {
        let _errno = errno::Errno::keep();
        if call::load_early() && !PATCHED.load(Ordering::Relaxed) {
            patch_driver();
        }
    }
}

// SAFETY: an array of function pointers is what the section holds.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

/// Whether the driver's own functions lead to our entries.
#[inline]
pub(crate) fn is_patched() -> bool {
    PATCHED.load(Ordering::Relaxed)
}

/// Whether a call from that address is one that the patched driver makes into itself, perhaps on a thread of its own.
#[inline]
pub(crate) fn is_drivers_own(caller: u64) -> bool {
    let inside = (caller as usize).wrapping_sub(CODE_START.load(Ordering::Relaxed));
    inside < CODE_LENGTH.load(Ordering::Relaxed)
}

/// The engine, as frida-gum has it.
struct Gums(Interceptor);

fn pointer(address: usize) -> NativePointer {
    NativePointer(address as *mut c_void)
}

impl Engine for Gums {
    fn begin(&mut self) {
        self.0.begin_transaction();
    }

    fn replace_fast(&mut self, function: usize, replacement: usize) -> Option<usize> {
        let original = self.0.replace_fast(pointer(function), pointer(replacement));
        original.ok().map(|original| original.0.addr())
    }

    fn replace(&mut self, function: usize, replacement: usize) -> Option<usize> {
        let nothing = NativePointer(core::ptr::null_mut());
        let original = self
            .0
            .replace(pointer(function), pointer(replacement), nothing);
        original.ok().map(|original| original.0.addr())
    }

    fn revert(&mut self, function: usize) {
        self.0.revert(pointer(function));
    }

    fn end(&mut self) {
        self.0.end_transaction();
    }
}

/// Patches the loaded driver; if that fails, calls reach us as with *preload*.
fn patch_driver() {
    // It is in the way of whoever would unload it, so it stays.
    let gum = core::mem::ManuallyDrop::new(Gum::obtain());
    let mut engine = core::mem::ManuallyDrop::new(Gums(Interceptor::obtain(&gum)));
    let functions = driver::addresses();
    match patch::all(&mut *engine, functions, |function| {
        entry::address(function).addr()
    }) {
        Ok(originals) => {
            for (function, original) in originals {
                driver::set_real(function, original as *mut c_void);
            }
            if let Some(&(address, _)) = functions.first() {
                let (start, length) = crate::maps::code_around(address);
                CODE_START.store(start, Ordering::Relaxed);
                CODE_LENGTH.store(length, Ordering::Relaxed);
            }
            PATCHED.store(true, Ordering::Release);
        }
        Err(failed) => {
            let name = FUNCTIONS
                .get(usize::from(failed.function))
                .map_or("a function", |function| function.name);
            log::line(&[
                b"the driver cannot be patched, because of ",
                name.as_bytes(),
                b": calls are recorded as with --via preload",
            ]);
        }
    }
}
