//! Functions that the driver exports and the registry does not know: found at their first call, named in the trace, unrecorded.
//!
//! `cutape record` reads the driver's exports and writes a library beside us that exports what we do not. Each of its functions
//! jumps where its [`Forward`] says, at first to [`cutape_forward`].

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::errno::Errno;
use crate::thread::{self, Thread};
use crate::{call, driver, identity};

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

/// All that were resolved in this process.
static RESOLVED: AtomicPtr<Forward> = AtomicPtr::new(core::ptr::null_mut());

/// The first call of a function that we do not know. r11 holds its `Forward`, everything else is as the program left it, and
/// reaches the driver like that: nothing is known of the arguments.
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[allow(unreachable_pub)]
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
        // How many vector registers a call with `...` uses; what a nested function finds its variables by.
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
    let state = unsafe { &*thread::current() };
    // A call that the driver makes into itself is not the program's, and names nothing.
    let place = 0u8;
    let inside = state.is_inside((&raw const place).addr());
    if !inside {
        call::begin(state);
    }
    // SAFETY: the launcher has put a NUL-terminated name there.
    let name = unsafe { CStr::from_ptr(forward.name) };
    let address = driver::find(name);
    if address.is_null() {
        return driver::missing as *const c_void;
    }
    if !inside && forward.target.swap(address, Ordering::AcqRel) == forward.unresolved {
        remember(forward);
        note(state, name);
    }
    address
}

/// Puts it into the list of those that were resolved.
fn remember(forward: &'static Forward) {
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
fn note(state: &Thread, name: &CStr) {
    if !call::is_recording() {
        return;
    }
    let by = match state.calls.get() {
        0 => "a thread that had made no other call".to_owned(),
        1 => format!("thread {} after 1 call", state.ordinal.get()),
        calls => format!("thread {} after {calls} calls", state.ordinal.get()),
    };
    identity::write_forwarded(name, &by);
}

/// In a forked child: its trace has yet to name what it calls.
pub(crate) fn forget() {
    let mut at = RESOLVED.swap(core::ptr::null_mut(), Ordering::Acquire);
    // SAFETY: NULL, or in the data of a library that cannot go before ours, which is never unloaded.
    while let Some(forward) = unsafe { at.as_ref() } {
        forward.target.store(forward.unresolved, Ordering::Relaxed);
        at = forward.next.load(Ordering::Relaxed);
    }
}
