//! The environment: the names of our variables, and the values that `cutape record` has injected.
//!
//! A program may empty its environment, or start others with one of its own. The injected variables
//! are therefore saved when this library is loaded.

use core::ffi::c_char;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::ffi::{CStr, CString};

/// The file to write. Without it, nothing is recorded.
pub(crate) const TRACE: &CStr = c"CUTAPE_TRACE";
/// The real library.
pub(crate) const DRIVER: &CStr = c"CUTAPE_DRIVER";
/// What is kept of the bytes that go to devices: `all`, `hash` (which `pack` makes of them),
/// `none`.
pub(crate) const PAYLOADS: &CStr = c"CUTAPE_PAYLOADS";
/// The same of the bytes that come back.
pub(crate) const OUTPUTS: &CStr = c"CUTAPE_OUTPUTS";
/// Whether the sources of asynchronous copies are read again when the copies are complete: `on`.
pub(crate) const CHECK_SOURCES: &CStr = c"CUTAPE_CHECK_SOURCES";
/// What is recorded of host memory that the device reads: `reachable`, `all`, `off`.
pub(crate) const HOST_MEMORY: &CStr = c"CUTAPE_HOST_MEMORY";
/// Which calls have call stacks: `off`, `some`, `all`.
pub(crate) const STACKS: &CStr = c"CUTAPE_STACKS";
/// When device memory is digested: `end`, `sync`, `launch`. Without it, never.
pub(crate) const DIGESTS: &CStr = c"CUTAPE_DIGESTS";
/// Bytes of memory for copies of what exchanges with other processes change. Without it, none are
/// made.
pub(crate) const OUTPUTS_OF_EXCHANGES: &CStr = c"CUTAPE_OUTPUTS_OF_EXCHANGES";
/// Whether the driver's error log is recorded: `on`, `off`.
pub(crate) const DRIVER_LOG: &CStr = c"CUTAPE_DRIVER_LOG";
/// Set if the cost of recording is to be measured.
pub(crate) const COST: &CStr = c"CUTAPE_COST";
/// The backend: `preload`, `audit`, `gum`.
pub(crate) const BACKEND: &CStr = c"CUTAPE_BACKEND";
/// The older name of that.
pub(crate) const VIA: &CStr = c"CUTAPE_VIA";

/// The variables that load us into a process, as entries begin.
pub(crate) const LOADER_ENTRIES: [&[u8]; 2] = [b"LD_PRELOAD=", b"LD_AUDIT="];
pub(crate) const LIBRARY_PATH_ENTRY: &[u8] = b"LD_LIBRARY_PATH=";
pub(crate) const TRACE_ENTRY: &[u8] = b"CUTAPE_TRACE=";
/// The library that NVTX loads: `cutape record` names us, unless the user has named another.
const NVTX_ENTRY: &[u8] = b"NVTX_INJECTION64_PATH=";
const OUR_ENTRIES: &[u8] = b"CUTAPE_";

/// `NAME=VALUE` entries, ended by NULL.
pub(crate) type Environment = *const *const c_char;

unsafe extern "C" {
    pub(crate) static environ: Environment;
}

/// The injected variables as `NAME=VALUE`; leaked on purpose.
static INJECTED: AtomicPtr<Vec<CString>> = AtomicPtr::new(core::ptr::null_mut());

/// Whether the process runs with raised privileges. Then the environment is not trusted.
pub(crate) fn is_privileged() -> bool {
    // SAFETY: asks the auxiliary vector; no memory is involved.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Saves the injected variables. To be called when this library is loaded. Returns whether there
/// are any.
pub(crate) fn save_injected() -> bool {
    if is_privileged() {
        return false;
    }
    // SAFETY: the process's own environment. A program that changes it on another thread at this
    // moment races with every getenv.
    let now: Vec<CString> = unsafe { entries(environ) }.map(CStr::to_owned).collect();
    let mut injected = injected_among(&now);
    if injected.is_empty() {
        // We were loaded late, and the program may have emptied its environment before.
        let start = std::fs::read("/proc/self/environ").unwrap_or_default();
        let start = start.split(|&byte| byte == 0).map(CString::new);
        injected = injected_among(&start.filter_map(Result::ok).collect::<Vec<_>>());
    }
    if injected.is_empty() {
        return false;
    }
    set_injected(injected);
    true
}

fn set_injected(injected: Vec<CString>) {
    INJECTED.store(Box::into_raw(Box::new(injected)), Ordering::Release);
}

/// The variables among these that `cutape record` has set; none if it has not started the process.
fn injected_among(environment: &[CString]) -> Vec<CString> {
    let begins = |entry: &CString, name: &[u8]| entry.to_bytes().starts_with(name);
    let is_injected = |entry: &&CString| {
        LOADER_ENTRIES.iter().any(|name| begins(entry, name))
            || begins(entry, LIBRARY_PATH_ENTRY)
            || begins(entry, NVTX_ENTRY)
            || begins(entry, OUR_ENTRIES)
    };
    if !environment.iter().any(|entry| begins(entry, TRACE_ENTRY)) {
        return Vec::new();
    }
    environment.iter().filter(is_injected).cloned().collect()
}

/// The injected variables, as `NAME=VALUE`.
pub(crate) fn injected() -> &'static [CString] {
    // SAFETY: NULL, or leaked by `set_injected`.
    unsafe { INJECTED.load(Ordering::Acquire).as_ref() }.map_or(&[], Vec::as_slice)
}

/// The value of a variable that is not empty: now, or as it was injected.
pub(crate) fn variable(name: &CStr) -> Option<CString> {
    // SAFETY: the name is NUL-terminated. The value is copied at once; a program that changes it on
    // another thread at this very moment races with every getenv.
    let now = unsafe {
        let value: *const c_char = libc::getenv(name.as_ptr());
        (!value.is_null() && *value != 0).then(|| CStr::from_ptr(value).to_owned())
    };
    now.or_else(|| injected_value(name))
}

/// The same as bytes.
pub(crate) fn bytes(name: &CStr) -> Option<Vec<u8>> {
    variable(name).map(CString::into_bytes)
}

fn injected_value(name: &CStr) -> Option<CString> {
    let value = |entry: &CString| {
        let rest = entry.to_bytes().strip_prefix(name.to_bytes())?;
        CString::new(rest.strip_prefix(b"=")?).ok()
    };
    injected().iter().find_map(value)
}

/// The entries of an environment.
///
/// # Safety
/// It is NULL or ends in NULL, its entries end in NUL, and nothing changes while they are read.
pub(crate) unsafe fn entries<'e>(environment: Environment) -> impl Iterator<Item = &'e CStr> {
    let mut at = environment;
    core::iter::from_fn(move || {
        if at.is_null() {
            return None;
        }
        // SAFETY: as the caller says; the end was not passed yet.
        let entry = unsafe { *at };
        if entry.is_null() {
            return None;
        }
        // SAFETY: as above.
        at = unsafe { at.add(1) };
        // SAFETY: as the caller says.
        Some(unsafe { CStr::from_ptr(entry) })
    })
}

/// For tests: sets the injected variables, or removes them.
#[cfg(test)]
pub(crate) fn inject(injected: Option<&[&CStr]>) {
    match injected {
        Some(entries) => set_injected(entries.iter().map(|&entry| entry.to_owned()).collect()),
        None => INJECTED.store(core::ptr::null_mut(), Ordering::Release),
    }
}
