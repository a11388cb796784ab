//! The one word that every call asks of its thread: by a TLS descriptor (R_X86_64_TLSDESC of the psABI supplement "Thread-Local
//! Storage Descriptors"), which takes a call of two instructions where there is room in the static block, and no more of that
//! than `__tls_get_addr` needs where there is none. Rust has no other access for libraries than that function.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicIsize, Ordering};

use crate::thread::Thread;

global_asm!(
    ".pushsection .tbss.cutape_thread_word, \"awT\", @nobits",
    ".balign 8",
    ".globl cutape_thread_word",
    ".hidden cutape_thread_word",
    ".type cutape_thread_word, @object",
    ".size cutape_thread_word, 8",
    "cutape_thread_word:",
    ".zero 8",
    ".popsection",
);

/// From a thread's pointer to its word, where that is one distance for all threads; 0 while this is not known to be so.
static DISTANCE: AtomicIsize = AtomicIsize::new(0);

/// What this thread has put there, NULL at first; `None` if its distance is not known.
#[inline(always)]
pub(crate) fn get_directly() -> Option<*const Thread> {
    match DISTANCE.load(Ordering::Relaxed) {
        0 => None,
        distance => Some(load(distance)),
    }
}

/// The same by the descriptor.
pub(crate) fn get() -> *const Thread {
    load(ask().1)
}

/// Puts this thread's word.
#[cold]
pub(crate) fn set(word: *const Thread) {
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

/// The word at a distance that `ask` gave for this thread, or for all of them.
#[inline(always)]
fn load(distance: isize) -> *const Thread {
    let word: *const Thread;
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

/// Where the descriptor is, and the distance that its function gives for this thread.
fn ask() -> (isize, isize) {
    let (descriptor, distance);
    // SAFETY: the sequence that the linker and the loader know. A descriptor's function changes no other integer register; glibc
    // before 2.40 changes vector registers where it has to allocate (its bug 31372).
    unsafe {
        asm!(
            "lea rcx, [rip + cutape_thread_word@TLSDESC]",
            "mov rax, rcx",
            "call qword ptr [rax + cutape_thread_word@TLSCALL]",
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

/// Whether the word is in the static block of threads, at that distance in all of them; then an indirect call can be spared.
///
/// For such a word the descriptor's function gives back the descriptor's second word, and a static block lies below the thread
/// pointer. For another the second word is an address, which is above zero where a process may have memory. In a program, as
/// that of the tests, the linker puts the distance in the descriptor's place.
fn is_for_all(descriptor: isize, distance: isize) -> bool {
    let said = if descriptor < 0 {
        descriptor
    } else {
        // SAFETY: the address of the descriptor, which has two words.
        unsafe { (descriptor as *const isize).add(1).read() }
    };
    distance == said && distance < 0
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_thread_has_its_own() {
        let known = |mark: usize| {
            assert!(super::get().is_null());
            super::set(core::ptr::without_provenance(mark));
            std::thread::yield_now();
            // A program's own words are at one distance.
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
