//! The backend *gum*: frida-gum rewrites the beginning of each of the driver's functions to jump to
//! our entry.
//!
//! This happens before `main`, when nothing has called the driver. It is never undone, and the
//! driver stays loaded: undoing and unloading were seen to crash (frida-gum 17.9.5, 2026-11-20).
//!
//! A namespace that `dlmopen` made is not patched: a second gum takes the thread data of the first
//! for its own, because the keys of both C libraries count from 0, and crashes (frida-gum 17.9.5,
//! 2026-11-22). Calls in it reach us as with *preload*.

use core::ffi::c_void;

use cutape_registry::{Backend, FUNCTIONS};
use frida_gum::interceptor::Interceptor;
use frida_gum::{Gum, NativePointer};

use super::patch::{self, Engine};
use crate::process::settings;
use crate::process::{errno, log};
use crate::{driver, entry_addresses, loaded, start};

/// The launcher recognizes a build that can patch by this name.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "found by name")]
pub static cutape_interposer_patches: u32 = 1;

/// Run by the loader before `main`.
extern "C" fn at_start() {
    if settings::backend() == Backend::Gum && loaded::is_in_base_namespace() {
        let _errno = errno::Errno::keep();
        if start::load_early() && !driver::is_patched() {
            patch_driver();
        }
    }
}

// SAFETY: an array of function pointers is what the section holds.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

/// frida-gum's engine.
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

/// Patches the loaded driver. If that fails, calls reach us as with *preload*.
fn patch_driver() {
    // Never dropped, since undoing the patches crashes.
    let gum = core::mem::ManuallyDrop::new(Gum::obtain());
    let mut engine = core::mem::ManuallyDrop::new(Gums(Interceptor::obtain(&gum)));
    let functions = driver::addresses();
    match patch::all(&mut *engine, functions, |function| {
        entry_addresses::of(function).addr()
    }) {
        Ok(originals) => {
            for (function, original) in originals {
                driver::set_target(function, original as *mut c_void);
            }
            driver::set_patched();
        }
        Err(failed) => {
            let name = FUNCTIONS
                .get(usize::from(failed.function))
                .map_or("a function", |function| function.name);
            log::line(&[
                b"cannot patch the driver: ",
                name.as_bytes(),
                b"; calls are recorded as with --backend preload",
            ]);
        }
    }
}
