//! Functions that the driver exports and the registry does not know: found at their first call,
//! named in the trace, not recorded.
//!
//! `cutape record` reads the driver's exports and writes a library beside us that exports what we
//! do not. Each of its functions jumps to its [`Forward`]'s target, at first [`cutape_forward`].

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::driver;
use crate::file::identity;
use crate::hot::recording;
use crate::hot::thread::{self, Thread};
use crate::process::errno::Errno;
use crate::start::ensure_started;

/// One function, in the data of the library that exports it; the launcher writes these four words.
#[repr(C)]
struct Forward {
    /// Where calls go: `unresolved`, or the driver's function.
    target: AtomicPtr<c_void>,
    /// Code that comes to `cutape_forward`.
    unresolved: *mut c_void,
    name: *const c_char,
    /// The next one that was resolved, NULL at first.
    next: AtomicPtr<Forward>,
}

/// All functions that were resolved in this process.
static RESOLVED: AtomicPtr<Forward> = AtomicPtr::new(core::ptr::null_mut());

/// The first call of a function that we do not know. r11 holds its `Forward`. All other registers
/// reach the driver as the program left them: nothing is known of the arguments.
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "found by name")]
pub extern "C" fn cutape_forward() {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "sub rsp, 192",
        "mov [rsp], rdi",
        "mov [rsp + 8], rsi",
        "mov [rsp + 16], rdx",
        "mov [rsp + 24], rcx",
        "mov [rsp + 32], r8",
        "mov [rsp + 40], r9",
        // rax: how many vector registers a call with `...` uses. r10: the static chain of a nested
        // function.
        "mov [rsp + 48], rax",
        "mov [rsp + 56], r10",
        "movups [rsp + 64], xmm0",
        "movups [rsp + 80], xmm1",
        "movups [rsp + 96], xmm2",
        "movups [rsp + 112], xmm3",
        "movups [rsp + 128], xmm4",
        "movups [rsp + 144], xmm5",
        "movups [rsp + 160], xmm6",
        "movups [rsp + 176], xmm7",
        "mov rdi, r11",
        "call {resolve}",
        "mov r11, rax",
        "mov rdi, [rsp]",
        "mov rsi, [rsp + 8]",
        "mov rdx, [rsp + 16]",
        "mov rcx, [rsp + 24]",
        "mov r8, [rsp + 32]",
        "mov r9, [rsp + 40]",
        "mov rax, [rsp + 48]",
        "mov r10, [rsp + 56]",
        "movups xmm0, [rsp + 64]",
        "movups xmm1, [rsp + 80]",
        "movups xmm2, [rsp + 96]",
        "movups xmm3, [rsp + 112]",
        "movups xmm4, [rsp + 128]",
        "movups xmm5, [rsp + 144]",
        "movups xmm6, [rsp + 160]",
        "movups xmm7, [rsp + 176]",
        "leave",
        ".cfi_def_cfa rsp, 8",
        ".cfi_restore rbp",
        "jmp r11",
        ".cfi_endproc",
        resolve = sym resolve,
    )
}

/// The driver's function, or one that answers that there is none.
extern "C" fn resolve(forward: &'static Forward) -> *const c_void {
    let _errno = Errno::keep();
    // SAFETY: the state lives as long as its thread, which is this one.
    let thread = unsafe { &*thread::current() };
    // A call that the driver makes into itself is not the program's.
    let place = 0u8;
    let is_inside = thread.is_inside_call((&raw const place).addr());
    if !is_inside {
        ensure_started(thread);
    }
    // SAFETY: the launcher has put a NUL-terminated name there.
    let name = unsafe { CStr::from_ptr(forward.name) };
    let address = driver::find(name);
    if address.is_null() {
        return driver::missing as *const c_void;
    }
    if !is_inside && forward.target.swap(address, Ordering::AcqRel) == forward.unresolved {
        remember(forward);
        note(thread, name);
    }
    address
}

/// Adds it to `RESOLVED`.
fn remember(forward: &'static Forward) {
    static IS_WATCHING: AtomicBool = AtomicBool::new(false);
    if !IS_WATCHING.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler touches atomics only.
        unsafe { libc::pthread_atfork(None, None, Some(forget)) };
    }
    let place = core::ptr::from_ref(forward).cast_mut();
    let mut first = RESOLVED.load(Ordering::Relaxed);
    loop {
        forward.next.store(first, Ordering::Relaxed);
        match RESOLVED.compare_exchange_weak(first, place, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(other) => first = other,
        }
    }
}

/// Names it in the trace, once in each process.
fn note(thread: &Thread, name: &CStr) {
    if !recording::is_recording() {
        return;
    }
    let by = match thread.calls.get() {
        0 => "a thread that had made no other call".to_owned(),
        1 => format!("thread {} after 1 call", thread.ordinal.get()),
        calls => format!("thread {} after {calls} calls", thread.ordinal.get()),
    };
    identity::write_forwarded(name, &by);
}

/// In a forked child: its trace does not name them yet.
extern "C" fn forget() {
    let mut at = RESOLVED.swap(core::ptr::null_mut(), Ordering::Acquire);
    // SAFETY: NULL, or in the data of a library that is not unloaded before ours, which never is.
    while let Some(forward) = unsafe { at.as_ref() } {
        forward.target.store(forward.unresolved, Ordering::Relaxed);
        at = forward.next.load(Ordering::Relaxed);
    }
}
