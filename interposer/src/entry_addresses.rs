//! The addresses of our entries, for programs that ask `cuGetProcAddress` and for the patches of
//! the backend *gum*.
//!
//! The entries are declared here by name, so that overrides need not depend on `entry`, which
//! depends on them.

use core::ffi::c_void;

use cutape_registry::{FUNCTIONS, for_each_function};

macro_rules! table {
    ($(($id:literal, $name:ident))*) => {
        #[allow(non_snake_case, reason = "the names of the CUDA driver API")]
        mod entries {
            unsafe extern "C" {
                $(pub(super) safe fn $name();)*
            }
        }

        /// By function id.
        static ADDRESSES: [extern "C" fn(); FUNCTIONS.len()] = [$(entries::$name),*];
    };
}

for_each_function!(table);

/// The address of our entry for a function; NULL for an unknown id.
pub(crate) fn of(function: u16) -> *mut c_void {
    ADDRESSES
        .get(usize::from(function))
        .map_or(core::ptr::null_mut(), |entry| *entry as *mut c_void)
}
