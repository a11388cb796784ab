//! The real libcuda: found by absolute path, all its functions by name.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::ffi::{CStr, CString, c_void};

use cutape_registry::{DRIVER_FOLDERS, FUNCTIONS, id};

use crate::hook::open::open_driver;
use crate::loaded::objects::code_around;
use crate::process::log;

/// Where calls go: the real function, or `missing`.
static TARGETS: [AtomicPtr<c_void>; FUNCTIONS.len()] =
    [const { AtomicPtr::new(MISSING) }; FUNCTIONS.len()];

const MISSING: *mut c_void = missing as *mut c_void;

/// In the place of a function that the real driver does not have, and of all functions if there is
/// no driver.
pub(crate) extern "C" fn missing() -> i32 {
    const CUDA_ERROR_NOT_SUPPORTED: i32 = 801;
    CUDA_ERROR_NOT_SUPPORTED
}

/// `(address of the real function, id)`, by address: it maps an address that the driver returns to
/// our entry.
static BY_ADDRESS: AtomicPtr<Vec<(usize, u16)>> = AtomicPtr::new(core::ptr::null_mut());
/// The path it was loaded from.
static PATH: AtomicPtr<CString> = AtomicPtr::new(core::ptr::null_mut());
/// From `dlopen`.
static HANDLE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static IS_NULL_DRIVER: AtomicBool = AtomicBool::new(false);
/// Its code.
static CODE: Range = Range::new();
/// The same if it is patched to jump to our entries.
#[cfg(feature = "gum")]
static PATCHED: Range = Range::new();
/// All of the above is set.
static LOADED: AtomicBool = AtomicBool::new(false);

/// A range of addresses, empty at first.
struct Range {
    start: AtomicUsize,
    length: AtomicUsize,
}

impl Range {
    const fn new() -> Self {
        Self {
            start: AtomicUsize::new(0),
            length: AtomicUsize::new(0),
        }
    }

    fn set(&self, (start, length): (usize, usize)) {
        self.start.store(start, Ordering::Relaxed);
        self.length.store(length, Ordering::Release);
    }

    #[inline]
    fn holds(&self, address: u64) -> bool {
        let inside = (address as usize).wrapping_sub(self.start.load(Ordering::Relaxed));
        inside < self.length.load(Ordering::Relaxed)
    }
}

/// Whether the real library has been loaded.
pub(crate) fn is_loaded() -> bool {
    LOADED.load(Ordering::Acquire)
}

/// Loads the real library. False if there is none; that is logged if a path was given. Several
/// threads may do so at once.
pub(crate) fn load(given: Option<&CStr>) -> bool {
    let (handle, path) = match given {
        Some(path) => (open(path), path.to_owned()),
        None => {
            let found = DRIVER_FOLDERS
                .into_iter()
                .filter_map(|folder| CString::new(format!("{folder}/libcuda.so.1")).ok())
                .map(|path| (open(&path), path))
                .find(|found| !found.0.is_null());
            let Some(found) = found else { return false };
            found
        }
    };
    if handle.is_null() {
        // SAFETY: dlerror gives NULL or a string that lasts until the next dl call of this thread.
        let why = unsafe { libc::dlerror() };
        let why = if why.is_null() {
            &b"this is cutape's own library"[..]
        } else {
            // SAFETY: as above, not NULL here.
            unsafe { CStr::from_ptr(why) }.to_bytes()
        };
        log::line(&[b"cannot load the real driver ", path.to_bytes(), b": ", why]);
        return false;
    }
    let mut addresses = Vec::with_capacity(FUNCTIONS.len());
    let mut name = [0u8; 128];
    for (function, slot) in FUNCTIONS.iter().zip(&TARGETS) {
        let Some(place) = name.get_mut(..function.name.len()) else {
            continue;
        };
        place.copy_from_slice(function.name.as_bytes());
        if let Some(end) = name.get_mut(function.name.len()) {
            *end = 0;
        }
        // SAFETY: the handle is open and never closed; the name ends in NUL.
        let address = unsafe { libc::dlsym(handle, name.as_ptr().cast()) };
        if address.is_null() {
            slot.store(MISSING, Ordering::Relaxed);
        } else {
            slot.store(address, Ordering::Relaxed);
            addresses.push((address as usize, function.id));
        }
    }
    addresses.sort_unstable();
    if let Some(&(address, _)) = addresses.first() {
        CODE.set(code_around(address));
    }
    // Leaked on purpose: they are used until the process ends.
    BY_ADDRESS.store(Box::into_raw(Box::new(addresses)), Ordering::Release);
    PATH.store(Box::into_raw(Box::new(path)), Ordering::Release);
    // SAFETY: the handle is open and never closed.
    let marker = unsafe { libc::dlsym(handle, c"cutape_null_driver_marker".as_ptr()) };
    IS_NULL_DRIVER.store(!marker.is_null(), Ordering::Relaxed);
    HANDLE.store(handle, Ordering::Release);
    LOADED.store(true, Ordering::Release);
    true
}

/// The path that the real library was loaded from.
pub(crate) fn path() -> Option<&'static CStr> {
    // SAFETY: NULL, or leaked by `load`.
    unsafe { PATH.load(Ordering::Acquire).as_ref() }.map(CString::as_c_str)
}

fn open(path: &CStr) -> *mut c_void {
    let handle = open_driver(path);
    if handle.is_null() {
        return handle;
    }
    // SAFETY: the handle is open. Our own library would call itself without end.
    if unsafe { !libc::dlsym(handle, c"cutape_interposer_marker".as_ptr()).is_null() } {
        return core::ptr::null_mut();
    }
    handle
}

/// Every function that the driver has: its address and id, by address.
#[cfg(feature = "gum")]
pub(crate) fn addresses() -> &'static [(usize, u16)] {
    // SAFETY: NULL, or the vector that `load` leaked complete.
    unsafe { BY_ADDRESS.load(Ordering::Acquire).as_ref() }.map_or(&[], Vec::as_slice)
}

/// Sets where a patched function can be called.
#[cfg(feature = "gum")]
pub(crate) fn set_target(function: u16, original: *mut c_void) {
    if let Some(slot) = TARGETS.get(usize::from(function)) {
        slot.store(original, Ordering::Relaxed);
    }
}

/// Where a call of a function goes.
#[inline]
pub(crate) fn target(function: usize) -> *const c_void {
    TARGETS
        .get(function)
        .map_or(MISSING, |slot| slot.load(Ordering::Relaxed))
}

/// Any function of the real library by its name, NULL if there is none or the library is not
/// loaded.
pub(crate) fn find(name: &CStr) -> *mut c_void {
    let handle = HANDLE.load(Ordering::Acquire);
    if handle.is_null() {
        return handle;
    }
    // SAFETY: the handle is open and never closed; the name ends in NUL.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}

/// The function whose real entry is at that address.
pub(crate) fn by_address(address: usize) -> Option<u16> {
    // SAFETY: NULL, or the vector that `load` leaked complete.
    let addresses = unsafe { BY_ADDRESS.load(Ordering::Acquire).as_ref() }?;
    let at = addresses
        .binary_search_by_key(&address, |entry| entry.0)
        .ok()?;
    addresses.get(at).map(|entry| entry.1)
}

/// Whether the library that was loaded is cutape's null driver.
pub(crate) fn is_null_driver() -> bool {
    IS_NULL_DRIVER.load(Ordering::Relaxed)
}

/// Calls a function of the driver that takes integers and pointers only; `None` if the driver does
/// not have it.
///
/// # Safety
/// The arguments are right for the function.
pub(crate) unsafe fn call(function: u16, arguments: [u64; 4]) -> Option<i32> {
    let address = target(usize::from(function));
    if address == MISSING {
        return None;
    }
    // SAFETY: the address is a C function of at most four integer parameters, as the caller says;
    // in the System V convention further register arguments are ignored.
    let function: unsafe extern "C" fn(u64, u64, u64, u64) -> i32 =
        unsafe { core::mem::transmute(address) };
    let [a, b, c, d] = arguments;
    // SAFETY: as above.
    Some(unsafe { function(a, b, c, d) })
}

/// Calls `cuLaunchKernel`; `None` if the driver does not have it.
///
/// # Safety
/// The arguments are right for it.
pub(crate) unsafe fn launch(arguments: [u64; 11]) -> Option<i32> {
    type Launch =
        unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> i32;
    let address = target(usize::from(id::cuLaunchKernel));
    if address == MISSING {
        return None;
    }
    // SAFETY: the address of cuLaunchKernel, whose parameters are integers and pointers; the upper
    // halves of those of 32 bits are ignored.
    let launch: Launch = unsafe { core::mem::transmute(address) };
    let [a, b, c, d, e, f, g, h, i, j, k] = arguments;
    // SAFETY: as the caller says.
    Some(unsafe { launch(a, b, c, d, e, f, g, h, i, j, k) })
}

/// Calls such a function, to which `arguments` gives the address where it writes a `T`; `None` if
/// it fails.
///
/// # Safety
/// The arguments are right for the function, any bytes make a `T`, and it writes no more than that.
pub(crate) unsafe fn ask<T: Default>(
    function: u16,
    arguments: impl FnOnce(u64) -> [u64; 4],
) -> Option<T> {
    let mut answer = T::default();
    let arguments = arguments((&raw mut answer) as u64);
    // SAFETY: as the caller says; the answer is valid for writing.
    unsafe { call(function, arguments) == Some(0) }.then_some(answer)
}

/// Whether the driver's own functions are patched to jump to our entries, so that the program may
/// have their addresses.
#[inline]
pub(crate) fn is_patched() -> bool {
    #[cfg(feature = "gum")]
    {
        PATCHED.length.load(Ordering::Relaxed) != 0
    }
    #[cfg(not(feature = "gum"))]
    false
}

/// The loaded driver is patched.
#[cfg(feature = "gum")]
pub(crate) fn set_patched() {
    let (start, length) = [&CODE.start, &CODE.length]
        .map(|word| word.load(Ordering::Relaxed))
        .into();
    PATCHED.set((start, length.max(1)));
}

/// Whether a call from that address is one that the patched driver makes into itself, perhaps on a
/// thread of its own.
#[cfg(feature = "gum")]
#[inline]
pub(crate) fn is_own_code(caller: u64) -> bool {
    PATCHED.holds(caller)
}

/// Whether the driver's code is at an address.
pub(crate) fn has_code_at(address: u64) -> bool {
    CODE.holds(address)
}
