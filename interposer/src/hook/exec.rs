//! Programs that start others with an environment of their own: these get the injected variables as
//! well.
//!
//! An environment that still has one of them is passed on unchanged: a program that removes another
//! one does so on purpose.

use core::ffi::{c_char, c_int, c_void};
use std::ffi::CString;

use super::next::Next;
use crate::process::env::{
    self, Environment, LIBRARY_PATH_ENTRY, LOADER_ENTRIES, TRACE_ENTRY, entries, environ,
};
use crate::process::errno;

/// A longer environment is passed on unchanged: the new one lies on the stack, since a child of
/// `vfork` must not allocate.
const MOST: usize = 1024;

static NEXT_EXECVE: Next = Next::of(c"execve");
static NEXT_EXECVPE: Next = Next::of(c"execvpe");
static NEXT_FEXECVE: Next = Next::of(c"fexecve");
static NEXT_SPAWN: Next = Next::of(c"posix_spawn");
static NEXT_SPAWNP: Next = Next::of(c"posix_spawnp");

// SAFETY: an array of function pointers is what the section holds.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

/// Run by the loader, before the program can start another.
extern "C" fn at_load() {
    if env::save_injected() {
        // Found now, since a child of `vfork` should not call the loader.
        for next in [
            &NEXT_EXECVE,
            &NEXT_EXECVPE,
            &NEXT_FEXECVE,
            &NEXT_SPAWN,
            &NEXT_SPAWNP,
        ] {
            next.get();
        }
    }
}

/// Calls `start` with the environment, or if that has no injected variables, with one that has
/// them.
///
/// # Safety
/// As [`entries`].
unsafe fn with_injected(
    environment: Environment,
    start: impl FnOnce(Environment) -> c_int,
) -> c_int {
    let injected = env::injected();
    let (mut count, mut has_path) = (0, false);
    let mut is_complete = injected.is_empty();
    // SAFETY: as the caller says.
    for entry in unsafe { entries(environment) } {
        let bytes = entry.to_bytes();
        is_complete |= bytes.starts_with(TRACE_ENTRY)
            || LOADER_ENTRIES.iter().any(|name| bytes.starts_with(name));
        has_path |= bytes.starts_with(LIBRARY_PATH_ENTRY);
        count += 1;
    }
    let mut place = [core::ptr::null::<c_char>(); MOST];
    if is_complete || count + injected.len() >= MOST {
        return start(environment);
    }
    // SAFETY: as the caller says.
    let theirs = unsafe { entries(environment) };
    let ours = injected
        .iter()
        .map(CString::as_c_str)
        .filter(|entry| !(has_path && entry.to_bytes().starts_with(LIBRARY_PATH_ENTRY)));
    for (place, entry) in place.iter_mut().zip(theirs.chain(ours)) {
        *place = entry.as_ptr();
    }
    start(place.as_ptr())
}

/// The function behind ours of that name.
macro_rules! next {
    ($next:ident as $type:ty, or $failure:expr) => {{
        let found = $next.get();
        if found.is_null() {
            errno::set(libc::ENOSYS);
            return $failure;
        }
        // SAFETY: the C library declares the function of that name so.
        unsafe { core::mem::transmute::<*const c_void, $type>(found) }
    }};
}

type Execute = unsafe extern "C" fn(*const c_char, Environment, Environment) -> c_int;
type ExecuteFile = unsafe extern "C" fn(c_int, Environment, Environment) -> c_int;
type Spawn = unsafe extern "C" fn(
    *mut libc::pid_t,
    *const c_char,
    *const c_void,
    *const c_void,
    Environment,
    Environment,
) -> c_int;

/// `execve` of unistd.h.
///
/// # Safety
/// As that requires; also for all functions below.
#[unsafe(no_mangle)]
#[allow(unreachable_pub)]
pub unsafe extern "C" fn execve(
    path: *const c_char,
    words: Environment,
    environment: Environment,
) -> c_int {
    let next = next!(NEXT_EXECVE as Execute, or - 1);
    // SAFETY: as the caller says.
    unsafe { with_injected(environment, |environment| next(path, words, environment)) }
}

/// `execv` of unistd.h.
///
/// # Safety
/// See `execve`.
#[unsafe(no_mangle)]
#[allow(unreachable_pub)]
pub unsafe extern "C" fn execv(path: *const c_char, words: Environment) -> c_int {
    // SAFETY: as the caller says; the environment is the process's own.
    unsafe { execve(path, words, environ) }
}

/// `execvpe` of unistd.h.
///
/// # Safety
/// See `execve`.
#[unsafe(no_mangle)]
#[allow(unreachable_pub)]
pub unsafe extern "C" fn execvpe(
    name: *const c_char,
    words: Environment,
    environment: Environment,
) -> c_int {
    let next = next!(NEXT_EXECVPE as Execute, or - 1);
    // SAFETY: as the caller says.
    unsafe { with_injected(environment, |environment| next(name, words, environment)) }
}

/// `execvp` of unistd.h.
///
/// # Safety
/// See `execve`.
#[unsafe(no_mangle)]
#[allow(unreachable_pub)]
pub unsafe extern "C" fn execvp(name: *const c_char, words: Environment) -> c_int {
    // SAFETY: as the caller says; the environment is the process's own.
    unsafe { execvpe(name, words, environ) }
}

/// `fexecve` of unistd.h.
///
/// # Safety
/// See `execve`.
#[unsafe(no_mangle)]
#[allow(unreachable_pub)]
pub unsafe extern "C" fn fexecve(
    file: c_int,
    words: Environment,
    environment: Environment,
) -> c_int {
    let next = next!(NEXT_FEXECVE as ExecuteFile, or - 1);
    // SAFETY: as the caller says.
    unsafe { with_injected(environment, |environment| next(file, words, environment)) }
}

/// `posix_spawn` of spawn.h.
///
/// # Safety
/// See `execve`.
#[unsafe(no_mangle)]
#[allow(unreachable_pub)]
pub unsafe extern "C" fn posix_spawn(
    process: *mut libc::pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    words: Environment,
    environment: Environment,
) -> c_int {
    let next = next!(NEXT_SPAWN as Spawn, or libc::ENOSYS);
    let start = |environment| {
        // SAFETY: as the caller says.
        unsafe { next(process, path, actions, attributes, words, environment) }
    };
    // SAFETY: as the caller says.
    unsafe { with_injected(environment, start) }
}

/// `posix_spawnp` of spawn.h.
///
/// # Safety
/// See `execve`.
#[unsafe(no_mangle)]
#[allow(unreachable_pub)]
pub unsafe extern "C" fn posix_spawnp(
    process: *mut libc::pid_t,
    name: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    words: Environment,
    environment: Environment,
) -> c_int {
    let next = next!(NEXT_SPAWNP as Spawn, or libc::ENOSYS);
    let start = |environment| {
        // SAFETY: as the caller says.
        unsafe { next(process, name, actions, attributes, words, environment) }
    };
    // SAFETY: as the caller says.
    unsafe { with_injected(environment, start) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn given(environment: &[&CStr]) -> Vec<CString> {
        let mut pointers: Vec<*const c_char> = environment.iter().map(|e| e.as_ptr()).collect();
        pointers.push(core::ptr::null());
        let mut found = Vec::new();
        let start = |environment| {
            // SAFETY: ours, or the pointers above; both end in NULL.
            found.extend(unsafe { entries(environment) }.map(CStr::to_owned));
            7
        };
        // SAFETY: the pointers end in NULL, their texts in NUL.
        assert_eq!(unsafe { with_injected(pointers.as_ptr(), start) }, 7);
        found
    }

    #[test]
    fn environments_without_injected_variables_get_them() {
        let long: Vec<CString> = (0..MOST)
            .map(|n| CString::new(format!("V{n}=")).unwrap())
            .collect();
        let long: Vec<&CStr> = long.iter().map(CString::as_c_str).collect();
        assert_eq!(
            given(&[c"A=1"]),
            [c"A=1".to_owned()],
            "not started by cutape"
        );
        let ours = [
            c"LD_PRELOAD=/l",
            c"LD_LIBRARY_PATH=/p",
            c"CUTAPE_TRACE=/t",
            c"CUTAPE_OUTPUTS=all",
        ];
        env::inject(Some(&ours));
        for (environment, expected) in [
            (&[][..], &ours[..]),
            (
                &[c"A=1"],
                &[
                    c"A=1",
                    c"LD_PRELOAD=/l",
                    c"LD_LIBRARY_PATH=/p",
                    c"CUTAPE_TRACE=/t",
                    c"CUTAPE_OUTPUTS=all",
                ],
            ),
            (
                &[c"LD_LIBRARY_PATH=/other"],
                &[
                    c"LD_LIBRARY_PATH=/other",
                    c"LD_PRELOAD=/l",
                    c"CUTAPE_TRACE=/t",
                    c"CUTAPE_OUTPUTS=all",
                ],
            ),
            // On purpose.
            (&[c"LD_PRELOAD=/l"], &[c"LD_PRELOAD=/l"]),
            (&[c"CUTAPE_TRACE=/t"], &[c"CUTAPE_TRACE=/t"]),
            (&long, &long),
        ] {
            assert_eq!(given(environment), expected, "{environment:?}");
        }
        assert_eq!(env::variable(c"CUTAPE_OUTPUTS").as_deref(), Some(c"all"));
        assert_eq!(env::variable(c"CUTAPE_OUTPUT"), None);
        env::inject(None);
    }
}
