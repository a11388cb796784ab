//! Programs that start others with an environment of their own: what the launcher has put there is kept from our start on, and
//! given to those that get nothing of it.
//!
//! A new environment that still has one of our variables is left as it is: who takes out another one does so on purpose.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::ffi::{CStr, CString};

use super::open::Next;

/// Variables by which the launcher brings us into a process, and those that say what is to be done there.
const LOADER: [&[u8]; 2] = [b"LD_PRELOAD=", b"LD_AUDIT="];
const LIBRARY_PATH: &[u8] = b"LD_LIBRARY_PATH=";
const TRACE: &[u8] = b"CUTAPE_TRACE=";
const OURS: &[u8] = b"CUTAPE_";

/// A longer environment is left as it is: the new one stands on the stack, since a child of `vfork` may not allocate.
const MOST: usize = 1024;

/// The launcher's part of the environment that this process has begun with, as `NAME=VALUE`; leaked on purpose.
static KEPT: AtomicPtr<Vec<CString>> = AtomicPtr::new(core::ptr::null_mut());

static NEXT_EXECVE: Next = Next::of(c"execve");
static NEXT_EXECVPE: Next = Next::of(c"execvpe");
static NEXT_FEXECVE: Next = Next::of(c"fexecve");
static NEXT_SPAWN: Next = Next::of(c"posix_spawn");
static NEXT_SPAWNP: Next = Next::of(c"posix_spawnp");

type Environment = *const *const c_char;

unsafe extern "C" {
    static environ: Environment;
}

// SAFETY: an array of function pointers is what the section holds.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = keep;

/// At our start, before anybody starts another program.
extern "C" fn keep() {
    // SAFETY: asks the auxiliary vector; no memory is involved.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return;
    }
    // SAFETY: the process's own environment; who changes it on another thread at this moment races with every getenv.
    let now: Vec<CString> = unsafe { entries(environ) }.map(CStr::to_owned).collect();
    let mut kept = launchers_part(&now);
    if kept.is_empty() {
        // We were loaded later, and the program may have emptied its environment since.
        let start = std::fs::read("/proc/self/environ").unwrap_or_default();
        let start = start.split(|&byte| byte == 0).map(CString::new);
        kept = launchers_part(&start.filter_map(Result::ok).collect::<Vec<_>>());
    }
    if kept.is_empty() {
        return;
    }
    KEPT.store(Box::into_raw(Box::new(kept)), Ordering::Release);
    // Looked up now: a child of `vfork` had better not.
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

/// What the launcher has put into an environment; empty if that was not started by one.
fn launchers_part(environment: &[CString]) -> Vec<CString> {
    let begins = |entry: &CString, name: &[u8]| entry.to_bytes().starts_with(name);
    let is_launchers = |entry: &&CString| {
        let is_loaders = LOADER.iter().any(|name| begins(entry, name));
        is_loaders || begins(entry, LIBRARY_PATH) || begins(entry, OURS)
    };
    // Without it nobody has launched us.
    if !environment.iter().any(|entry| begins(entry, TRACE)) {
        return Vec::new();
    }
    environment.iter().filter(is_launchers).cloned().collect()
}

fn kept() -> &'static [CString] {
    // SAFETY: NULL, or leaked by `keep`.
    unsafe { KEPT.load(Ordering::Acquire).as_ref() }.map_or(&[], Vec::as_slice)
}

/// What the launcher has given a variable, also when the program has emptied its environment since.
pub(crate) fn kept_value(name: &CStr) -> Option<CString> {
    let value = |entry: &CString| {
        let rest = entry.to_bytes().strip_prefix(name.to_bytes())?;
        CString::new(rest.strip_prefix(b"=")?).ok()
    };
    kept().iter().find_map(value)
}

/// The entries of an environment.
///
/// # Safety
/// It is NULL or ends in NULL, its entries in NUL; it stays as it is while they are looked at.
unsafe fn entries<'e>(environment: Environment) -> impl Iterator<Item = &'e CStr> {
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

/// Starts a program by `start`, which gets the environment, or one with ours if there is nothing of ours in it.
///
/// # Safety
/// As [`entries`].
unsafe fn with_ours(environment: Environment, start: impl FnOnce(Environment) -> c_int) -> c_int {
    let kept = kept();
    let (mut count, mut has_path) = (0, false);
    let mut is_told = kept.is_empty();
    // SAFETY: as the caller says.
    for entry in unsafe { entries(environment) } {
        let bytes = entry.to_bytes();
        is_told |= bytes.starts_with(TRACE) || LOADER.iter().any(|name| bytes.starts_with(name));
        has_path |= bytes.starts_with(LIBRARY_PATH);
        count += 1;
    }
    let mut place = [core::ptr::null::<c_char>(); MOST];
    if is_told || count + kept.len() >= MOST {
        return start(environment);
    }
    // SAFETY: as the caller says.
    let theirs = unsafe { entries(environment) };
    let ours = kept.iter().map(CString::as_c_str);
    let ours = ours.filter(|entry| !(has_path && entry.to_bytes().starts_with(LIBRARY_PATH)));
    for (place, entry) in place.iter_mut().zip(theirs.chain(ours)) {
        *place = entry.as_ptr();
    }
    start(place.as_ptr())
}

/// What comes behind ours under that name, as a function.
macro_rules! next {
    ($next:ident as $type:ty, or $failure:expr) => {{
        let found = $next.get();
        if found.is_null() {
            crate::errno::set(libc::ENOSYS);
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
/// As that says; so all that follow.
#[unsafe(no_mangle)]
#[allow(unreachable_pub)]
pub unsafe extern "C" fn execve(
    path: *const c_char,
    words: Environment,
    environment: Environment,
) -> c_int {
    let next = next!(NEXT_EXECVE as Execute, or - 1);
    // SAFETY: as the caller says.
    unsafe { with_ours(environment, |environment| next(path, words, environment)) }
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
    unsafe { with_ours(environment, |environment| next(name, words, environment)) }
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
    unsafe { with_ours(environment, |environment| next(file, words, environment)) }
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
    unsafe { with_ours(environment, start) }
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
    unsafe { with_ours(environment, start) }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(unsafe { with_ours(pointers.as_ptr(), start) }, 7);
        found
    }

    #[test]
    fn an_environment_without_ours_gets_it() {
        let long: Vec<CString> = (0..MOST)
            .map(|n| CString::new(format!("V{n}=")).unwrap())
            .collect();
        let long: Vec<&CStr> = long.iter().map(CString::as_c_str).collect();
        assert_eq!(
            given(&[c"A=1"]),
            [c"A=1".to_owned()],
            "nobody has launched this"
        );
        let ours = [
            c"LD_PRELOAD=/l",
            c"LD_LIBRARY_PATH=/p",
            c"CUTAPE_TRACE=/t",
            c"CUTAPE_OUTPUTS=all",
        ];
        let kept = ours.iter().map(|&entry| entry.to_owned()).collect();
        KEPT.store(Box::into_raw(Box::new(kept)), Ordering::Release);
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
        assert_eq!(kept_value(c"CUTAPE_TRACE").as_deref(), Some(c"/t"));
        assert_eq!(kept_value(c"CUTAPE_TRAC"), None);
        KEPT.store(core::ptr::null_mut(), Ordering::Release);
    }
}
