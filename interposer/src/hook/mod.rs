//! How a call of the program reaches our entries: which ways the launcher has laid, and what we do for them.
//!
//! - *preload*: the loader finds us in libcuda's place, by name; our `dlopen` leads paths of libcuda to us as well.
//! - *audit*: an auditing library leads every search for libcuda to us, whatever name, path or namespace it is for.
//! - *gum*: like preload, and the driver's own functions are patched to jump to our entries, whoever calls them.
//!
//! Whatever the way, programs that are started with another environment get what the launcher has put there (`exec.rs`), as far as we
//! are in the process that starts them. And whatever the way, a call arrives at the same entry and is passed on to what `driver::real` says, so that the records are the
//! same.

mod exec;
mod open;
mod patch;

#[cfg(feature = "gum")]
mod gum;

use core::ffi::c_void;
use std::ffi::{CStr, CString};

use cutape_registry::PAST_AUDIT;

use crate::settings::{self, Via};

pub(crate) use exec::kept_value;

#[cfg(feature = "gum")]
pub(crate) use gum::{is_drivers_own, is_patched};

/// Whether the driver's own functions lead to our entries, so that a program may be given their addresses. Not in this build.
#[cfg(not(feature = "gum"))]
#[inline]
pub(crate) fn is_patched() -> bool {
    false
}

/// Opens the real driver for good, past all that leads searches for libcuda to us; NULL, with the reason in `dlerror`.
pub(crate) fn open_driver(path: &CStr) -> *mut c_void {
    let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE;
    let marked = match settings::via() {
        Via::Audit if path.to_bytes().starts_with(b"/") => {
            CString::new([PAST_AUDIT.as_bytes(), path.to_bytes()].concat()).ok()
        }
        _ => None,
    };
    open::real_dlopen(marked.as_deref().unwrap_or(path), flags)
}
