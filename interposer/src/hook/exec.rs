//! Programs that start others with an environment of their own: these get the injected variables as
//! well.
//!
//! An environment that still has one of them is passed on unchanged: a program that removes another
//! one does so on purpose.

#![allow(unreachable_pub, reason = "found by name")]

use core::ffi::{c_char, c_int, c_void};
use std::ffi::CString;

use cutape_registry::RecorderSetting;

use super::next::Next;
use crate::process::env::{
    self, Environment, LIBRARY_PATH_ENTRY, LOADER_ENTRIES, entries, environ,
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
        is_complete |= RecorderSetting::Trace.is_set_by(bytes)
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

/// Exports a function of unistd.h or spawn.h that starts a program: the next function of that name
/// gets an environment that has the injected variables.
macro_rules! export {
    ($next:ident, $name:ident($($argument:ident: $type:ty),*), or $failure:expr) => {
        #[doc = concat!("`", stringify!($name), "` of the C library.\n\n# Safety\nAs that requires.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type,)* environment: Environment) -> c_int {
            let next = $next.get();
            if next.is_null() {
                errno::set(libc::ENOSYS);
                return $failure;
            }
            type Function = unsafe extern "C" fn($($type,)* Environment) -> c_int;
            // SAFETY: the C library declares the function of that name so.
            let next = unsafe { core::mem::transmute::<*const c_void, Function>(next) };
            // SAFETY: as the caller says.
            let start = |environment| unsafe { next($($argument,)* environment) };
            // SAFETY: as the caller says.
            unsafe { with_injected(environment, start) }
        }
    };
}

type Text = *const c_char;
type Pid = *mut libc::pid_t;
type Any = *const c_void;

export!(NEXT_EXECVE, execve(path: Text, words: Environment), or -1);
export!(NEXT_EXECVPE, execvpe(name: Text, words: Environment), or -1);
export!(NEXT_FEXECVE, fexecve(file: c_int, words: Environment), or -1);
export!(
    NEXT_SPAWN,
    posix_spawn(pid: Pid, path: Text, actions: Any, attributes: Any, words: Environment),
    or libc::ENOSYS
);
export!(
    NEXT_SPAWNP,
    posix_spawnp(pid: Pid, name: Text, actions: Any, attributes: Any, words: Environment),
    or libc::ENOSYS
);

/// `execv` of the C library.
///
/// # Safety
/// As that requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: Text, words: Environment) -> c_int {
    // SAFETY: as the caller says; the environment is the process's own.
    unsafe { execve(path, words, environ) }
}

/// `execvp` of the C library.
///
/// # Safety
/// As that requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(name: Text, words: Environment) -> c_int {
    // SAFETY: as the caller says; the environment is the process's own.
    unsafe { execvpe(name, words, environ) }
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
