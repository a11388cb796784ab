//! Functions of the C library that we replace: the next function of the same name.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::ffi::CStr;

/// The function of that name behind ours: the C library's, or that of another tool.
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
}
