//! Parts of the trace file in memory. Another program may truncate the file meanwhile: the system
//! answers an access beyond its end with SIGBUS, which must not end the recorded program.
//!
//! A handler gives such a part memory that belongs to no file, so that the access goes on, and
//! recording stops. Nothing else can do that: the file cannot be protected against its owner, and
//! records that lie in memory of no file would be lost with a program that is killed. Of other
//! faults the handler knows nothing: they get what the program had chosen for SIGBUS. A program
//! that sets a handler after its first driver call replaces this one.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::OnceLock;

use crate::hot::recording;
use crate::process::{errno, log};

/// A part; `start` and `length` are 0 while there is none. Never freed, but used again.
struct Part {
    start: AtomicUsize,
    length: AtomicUsize,
    next: *const Part,
}

/// The newest.
static PARTS: AtomicPtr<Part> = AtomicPtr::new(core::ptr::null_mut());
/// Nobody can read what is written from now on.
static IS_LOST: AtomicBool = AtomicBool::new(false);
/// What the program had chosen for SIGBUS.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

pub(super) const TRUNCATED: &[u8] = b"truncated";
pub(super) const DELETED: &[u8] = b"deleted";

type Handler = extern "C" fn(c_int);
type HandlerWithInfo = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Maps a part of the file with that access. `errno` says why it failed.
pub(super) fn map(descriptor: i32, access: i32, position: u64, length: usize) -> Option<*mut u8> {
    // SAFETY: a fresh shared mapping of a part of our file.
    let start = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            length,
            access,
            libc::MAP_SHARED,
            descriptor,
            position as i64,
        )
    };
    if start == libc::MAP_FAILED {
        return None;
    }
    remember(start as usize, length);
    Some(start.cast())
}

/// Unmaps a part.
///
/// # Safety
/// `map` returned it for that length, and no reference to it is left.
pub(super) unsafe fn unmap(start: *const u8, length: usize) {
    let mut parts = parts();
    if let Some(part) = parts.find(|part| part.start.load(Ordering::Relaxed) == start as usize) {
        part.start.store(0, Ordering::Release);
        part.length.store(0, Ordering::Release);
    }
    // SAFETY: as the caller says.
    unsafe { libc::munmap(start.cast_mut().cast(), length) };
}

fn parts() -> impl Iterator<Item = &'static Part> {
    // SAFETY: NULL, or a part of the list, which is never freed.
    let first = unsafe { PARTS.load(Ordering::Acquire).as_ref() };
    // SAFETY: as above.
    core::iter::successors(first, |part| unsafe { part.next.as_ref() })
}

fn remember(start: usize, length: usize) {
    let take = |part: &&Part| {
        let free = part
            .length
            .compare_exchange(0, length, Ordering::AcqRel, Ordering::Relaxed);
        free.is_ok()
    };
    if let Some(part) = parts().find(take) {
        part.start.store(start, Ordering::Release);
        return;
    }
    let part = Box::into_raw(Box::new(Part {
        start: AtomicUsize::new(start),
        length: AtomicUsize::new(length),
        next: core::ptr::null(),
    }));
    let mut first = PARTS.load(Ordering::Acquire);
    loop {
        // SAFETY: the part is ours until it is in the list.
        unsafe { (*part).next = first };
        match PARTS.compare_exchange(first, part, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(newer) => first = newer,
        }
    }
}

/// Begins with a new file.
pub(super) fn begin() {
    IS_LOST.store(false, Ordering::Relaxed);
    PREVIOUS.get_or_init(|| {
        let mut previous = default_action();
        // SAFETY: the action is valid for writing; nothing is changed.
        unsafe { libc::sigaction(libc::SIGBUS, core::ptr::null(), &raw mut previous) };
        previous
    });
    static IS_INSTALLED: AtomicBool = AtomicBool::new(false);
    if IS_INSTALLED.swap(true, Ordering::Relaxed) {
        return;
    }
    let handler: HandlerWithInfo = on_bus_error;
    let mut action = default_action();
    if let Some(previous) = PREVIOUS.get().filter(|previous| is_function(previous)) {
        // A handler of the program runs as it would without this one.
        action = *previous;
    } else {
        action.sa_flags = libc::SA_ONSTACK;
    }
    action.sa_flags = action.sa_flags & !libc::SA_RESETHAND | libc::SA_SIGINFO;
    action.sa_sigaction = handler as usize;
    // SAFETY: the handler touches atomics and makes system calls only.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const action, core::ptr::null_mut()) };
}

/// SIG_DFL.
fn default_action() -> libc::sigaction {
    // SAFETY: all-zero is a value of that type, with SIG_DFL and an empty mask.
    unsafe { core::mem::zeroed() }
}

fn is_function(action: &libc::sigaction) -> bool {
    !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
}

/// Whether the file was truncated or deleted: nothing is written any more.
pub(super) fn is_lost() -> bool {
    IS_LOST.load(Ordering::Relaxed)
}

/// Ends the recording, since another program has done that to the trace.
#[cold]
pub(super) fn lose(done: &[u8]) {
    IS_LOST.store(true, Ordering::Relaxed);
    if recording::stop() {
        let what = b" the trace; recording stops, the program continues";
        log::line(&[b"another program has ", done, what]);
    }
}

extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes a valid structure.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // Others were sent by a process.
    let is_fault = code > 0;
    if !(is_fault && replace(address)) {
        forward(signal, info, context, is_fault);
    }
}

/// Gives the part at an address memory without a file; false if there is no such part.
fn replace(address: usize) -> bool {
    let errno = errno::get();
    let has_address = |part: &&Part| {
        let start = part.start.load(Ordering::Acquire);
        let offset = address.checked_sub(start);
        start != 0 && offset.is_some_and(|offset| offset < part.length.load(Ordering::Acquire))
    };
    let Some(part) = parts().find(has_address) else {
        return false;
    };
    // SAFETY: the part is a mapping of ours, in which nothing can be read or written any more.
    let start = unsafe {
        libc::mmap(
            part.start.load(Ordering::Acquire) as *mut c_void,
            part.length.load(Ordering::Acquire),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    lose(TRUNCATED);
    errno::set(errno);
    start != libc::MAP_FAILED
}

/// Does what would happen without this handler.
fn forward(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, is_fault: bool) {
    let previous = PREVIOUS.get().copied().unwrap_or_else(default_action);
    let is_function = is_function(&previous);
    if !is_function && previous.sa_sigaction == libc::SIG_IGN && !is_fault {
        return;
    }
    if !is_function || previous.sa_flags & libc::SA_RESETHAND != 0 {
        let default = default_action();
        // SAFETY: the action is valid.
        unsafe { libc::sigaction(signal, &raw const default, core::ptr::null_mut()) };
    }
    if !is_function {
        // A fault happens again as soon as this returns, and then ends the program.
        if !is_fault {
            // SAFETY: sends the signal again, which waits until this returns.
            unsafe { libc::raise(signal) };
        }
    } else if previous.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: the program has set a function of that type.
        let handler: HandlerWithInfo = unsafe { core::mem::transmute(previous.sa_sigaction) };
        handler(signal, info, context);
    } else {
        // SAFETY: as above.
        let handler: Handler = unsafe { core::mem::transmute(previous.sa_sigaction) };
        handler(signal);
    }
}
