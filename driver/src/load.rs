//! A loaded libcuda: the address of every function of the registry.

use std::ffi::{CStr, CString, c_void};
use std::mem::{self, ManuallyDrop};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use cutape_registry::{FUNCTIONS, id};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::invoke::{CallError, PreparedCall, invoke, invoke_simple, is_simple};

/// Why a driver could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A relative path, which the loader would search for.
    #[error("the driver's path is relative: {}; give it as an absolute path", .0.display())]
    Relative(PathBuf),
    /// The loader's own message.
    #[error("{}: {source}; check that it is the libcuda.so.1 of this machine's driver", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The loader's error.
        source: libloading::Error,
    },
    /// A library that is no driver.
    #[error("{}: exports no cuInit, so it is not a CUDA driver", .0.display())]
    NotADriver(PathBuf),
}

/// The function table of a loaded libcuda. The library stays loaded until the process ends, because
/// libcuda has its own threads.
#[derive(Debug)]
pub struct Driver {
    path: PathBuf,
    library: ManuallyDrop<Library>,
    /// By registry id; `None` if this driver has no such symbol.
    symbols: Box<[Option<NonNull<c_void>>]>,
    /// By registry id: whether `invoke_simple` can call the function.
    simple: Box<[bool]>,
}

// SAFETY: the table is read-only, its addresses stay valid because the library is never unloaded,
// and the driver API may be called from any thread (CUDA Driver API, Context Management).
unsafe impl Send for Driver {}
// SAFETY: as above.
unsafe impl Sync for Driver {}

impl Driver {
    /// Loads the library at an absolute path, private to this table (`RTLD_NOW | RTLD_LOCAL`).
    ///
    /// # Errors
    ///
    /// [`LoadError`]: relative path, no such library, or not a driver.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        if !path.is_absolute() {
            return Err(LoadError::Relative(path.to_owned()));
        }
        // SAFETY: loading runs the library's initialisers, as drivers expect; the caller chose the
        // file.
        let library =
            unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(|source| {
                LoadError::Open {
                    path: path.to_owned(),
                    source,
                }
            })?;
        let library = ManuallyDrop::new(library);
        let symbols: Box<[_]> = FUNCTIONS
            .iter()
            .map(|function| {
                CString::new(function.name)
                    .ok()
                    .and_then(|name| find(&library, &name))
            })
            .collect();
        if symbols
            .get(usize::from(id::cuInit))
            .is_none_or(Option::is_none)
        {
            return Err(LoadError::NotADriver(path.to_owned()));
        }
        Ok(Driver {
            path: path.to_owned(),
            library,
            symbols,
            simple: FUNCTIONS.iter().map(|f| is_simple(f.params)).collect(),
        })
    }

    /// The file that was loaded.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The address of a function by registry id; `None` if this driver lacks it.
    pub fn symbol(&self, id: u16) -> Option<NonNull<c_void>> {
        self.symbols.get(usize::from(id)).copied().flatten()
    }

    /// The address of any exported symbol, in the registry or not.
    pub fn symbol_by_name(&self, name: &CStr) -> Option<NonNull<c_void>> {
        find(&self.library, name)
    }

    /// A function as a pointer of type `F`, e.g. `unsafe extern "C" fn(u32) -> CUresult` for
    /// `cuInit`.
    ///
    /// # Safety
    ///
    /// `F` is the type of a pointer to a C function with the parameters and result of that
    /// function.
    ///
    /// An `F` without the size of a pointer does not compile.
    pub unsafe fn function<F: Copy>(&self, id: u16) -> Option<F> {
        const { assert!(mem::size_of::<F>() == mem::size_of::<*const c_void>()) };
        let address = self.symbol(id)?.as_ptr();
        // SAFETY: `F` has a pointer's size, and the caller guarantees that it is this function's
        // type.
        Some(unsafe { mem::transmute_copy::<*mut c_void, F>(&address) })
    }

    /// Calls a function by id with one word a parameter: numbers, handles and pointers as they are,
    /// floats as their bits, a struct by value as the address of its bytes. Returns the function's
    /// result, mostly a `CUresult`.
    ///
    /// # Errors
    ///
    /// [`CallError`]: the call was not made.
    ///
    /// # Safety
    ///
    /// The words are valid arguments for that function.
    pub unsafe fn call(&self, id: u16, args: &[u64]) -> Result<i32, CallError> {
        let function = FUNCTIONS
            .get(usize::from(id))
            .ok_or(CallError::UnknownId(id))?;
        let address = self.symbol(id).ok_or(CallError::Missing(function.name))?;
        if self.simple[usize::from(id)] {
            // SAFETY: the symbol is that function; the caller guarantees its arguments.
            return unsafe { invoke_simple(address, function.name, function.params, args) };
        }
        // SAFETY: as above.
        unsafe { invoke(address, function.name, function.params, args) }
    }

    /// A call of a function by id, as of [`Self::call`], to be made many times.
    ///
    /// # Errors
    ///
    /// [`CallError`]: no such function, or another number of arguments.
    pub fn prepare(&self, id: u16, args: &[u64]) -> Result<PreparedCall, CallError> {
        let function = FUNCTIONS
            .get(usize::from(id))
            .ok_or(CallError::UnknownId(id))?;
        let address = self.symbol(id).ok_or(CallError::Missing(function.name))?;
        PreparedCall::new(address, function, args)
    }
}

fn find(library: &Library, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: only the symbol's address is taken.
    let symbol = unsafe { library.get::<*mut c_void>(name.to_bytes_with_nul()) }.ok()?;
    NonNull::new(symbol.into_raw())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    /// The C library that this test program itself runs on.
    fn c_library() -> PathBuf {
        let list = std::fs::read("/proc/self/maps").unwrap();
        let mut paths = cutape_maps::mappings(&list)
            .map(|mapping| PathBuf::from(OsStr::from_bytes(mapping.path)));
        let is_libc = |name: &str| name.starts_with("libc.so") || name.starts_with("libc-");
        let path = paths.find(|path| {
            let name = path.file_name().and_then(OsStr::to_str);
            name.is_some_and(is_libc)
        });
        path.unwrap()
    }

    #[test]
    fn only_drivers_are_loaded() {
        assert!(matches!(
            Driver::open(Path::new("libcuda.so.1")),
            Err(LoadError::Relative(_))
        ));
        assert!(matches!(
            Driver::open(Path::new("/nowhere/libcuda.so.1")),
            Err(LoadError::Open { .. })
        ));
        assert!(matches!(
            Driver::open(&c_library()),
            Err(LoadError::NotADriver(_))
        ));
    }
}
