//! The thread-local word that every call reads: the address of the thread's state.
//!
//! Rust accesses the thread-local memory of a library through `__tls_get_addr`. This module uses a
//! TLS descriptor instead (R_X86_64_TLSDESC of the psABI supplement "Thread-Local Storage
//! Descriptors"). If the loader has put the word into the static block, it is at one distance from
//! the thread pointer in all threads; then a call reads it with a single load.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicIsize, Ordering};

global_asm!(
    ".pushsection .tbss.cutape_tls_word, \"awT\", @nobits",
    ".balign 8",
    ".globl cutape_tls_word",
    ".hidden cutape_tls_word",
    ".type cutape_tls_word, @object",
    ".size cutape_tls_word, 8",
    "cutape_tls_word:",
    ".zero 8",
    ".popsection",
);

/// From the thread pointer to the word, if that distance is known to be the same in all threads;
/// else 0.
static DISTANCE: AtomicIsize = AtomicIsize::new(0);

/// This thread's word, NULL at first; `None` if the distance is not known.
#[inline(always)]
pub(crate) fn get_directly() -> Option<*const ()> {
    match DISTANCE.load(Ordering::Relaxed) {
        0 => None,
        distance => Some(load(distance)),
    }
}

/// The same through the descriptor.
pub(crate) fn get() -> *const () {
    load(ask().1)
}

/// Sets this thread's word.
#[cold]
pub(crate) fn set(word: *const ()) {
    let (descriptor, distance) = ask();
    if is_for_all(descriptor, distance) {
        DISTANCE.store(distance, Ordering::Relaxed);
    }
    // SAFETY: the word is this thread's and eight bytes long.
    unsafe {
        asm!(
            "mov fs:[{distance}], {word}",
            distance = in(reg) distance,
            word = in(reg) word,
            options(nostack, preserves_flags)
        );
    }
}

/// The word at a distance that `ask` returned for this thread, or for all.
#[inline(always)]
fn load(distance: isize) -> *const () {
    let word: *const ();
    // SAFETY: the word is this thread's and eight bytes long.
    unsafe {
        asm!(
            "mov {word}, fs:[{distance}]",
            word = out(reg) word,
            distance = in(reg) distance,
            options(nostack, preserves_flags, readonly)
        );
    }
    word
}

/// Where the descriptor is, and the distance that its function returns for this thread.
fn ask() -> (isize, isize) {
    let (descriptor, distance);
    // SAFETY: the instruction sequence that the ABI prescribes. A descriptor's function changes no
    // other integer register; glibc before 2.40 changes vector registers when it has to allocate
    // (its bug 31372).
    unsafe {
        asm!(
            "lea rcx, [rip + cutape_tls_word@TLSDESC]",
            "mov rax, rcx",
            "call qword ptr [rax + cutape_tls_word@TLSCALL]",
            out("rax") distance,
            out("rcx") descriptor,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
        );
    }
    (descriptor, distance)
}

/// Whether the word is in the static block, so at that distance in all threads.
///
/// For such a word, the descriptor's function returns the descriptor's second word, which is
/// negative: the static block lies below the thread pointer. For another, the second word is an
/// address, which is positive in user space. In an executable, as that of the tests, the linker
/// replaces the descriptor by the distance.
fn is_for_all(descriptor: isize, distance: isize) -> bool {
    let second = if descriptor < 0 {
        descriptor
    } else {
        // SAFETY: the address of the descriptor, which has two words.
        unsafe { (descriptor as *const isize).add(1).read() }
    };
    distance == second && distance < 0
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_thread_has_its_own() {
        let known = |mark: usize| {
            assert!(super::get().is_null());
            super::set(core::ptr::without_provenance(mark));
            std::thread::yield_now();
            // In an executable, the distance is always known.
            assert_eq!(super::get_directly(), Some(super::get()));
            super::get().addr()
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (1..5)
                .map(|mark| scope.spawn(move || known(mark)))
                .collect();
            for (mark, thread) in (1..5).zip(threads) {
                assert_eq!(thread.join().unwrap(), mark);
            }
        });
    }
}
