//! The environment: the values of our variables that `cutape record` has injected.
//!
//! A program may empty its environment, or start others with one of its own. The injected variables
//! are therefore saved when this library is loaded.

use core::ffi::c_char;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::ffi::{CStr, CString};

use cutape_registry::RecorderSetting;

/// The variables that load us into a process, as entries begin.
pub(crate) const LOADER_ENTRIES: [&[u8]; 2] = [b"LD_PRELOAD=", b"LD_AUDIT="];
pub(crate) const LIBRARY_PATH_ENTRY: &[u8] = b"LD_LIBRARY_PATH=";
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
    if !environment
        .iter()
        .any(|entry| RecorderSetting::Trace.is_set_by(entry.to_bytes()))
    {
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
