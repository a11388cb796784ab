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
    let distance = DISTANCE.load(Ordering::Relaxed);
    if distance == 0 {
        return None;
    }
    let word: *const Thread;
    // SAFETY: the word is this thread's and eight bytes long, see `learn`.
    unsafe {
        asm!(
            "mov {word}, fs:[{distance}]",
            word = out(reg) word,
            distance = in(reg) distance,
            options(nostack, preserves_flags, readonly)
        );
    }
    Some(word)
}

/// The same by the descriptor.
pub(crate) fn get() -> *const Thread {
    let word: *const Thread;
    // SAFETY: the word is this thread's and eight bytes long. A descriptor's function changes no other integer register; glibc
    // before 2.40 changes vector registers where it has to allocate (its bug 31372).
    unsafe {
        asm!(
            "lea rax, [rip + cutape_thread_word@TLSDESC]",
            "call qword ptr [rax + cutape_thread_word@TLSCALL]",
            "mov rax, fs:[rax]",
            out("rax") word,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
        );
    }
    word
}

/// Finds out whether the word is in the static block of threads, at one distance in all of them: an indirect call less then.
///
/// For such a word the descriptor's function gives back the descriptor's second word, and a static block lies below the thread
/// pointer. For another the second word is an address, which is above zero where a process may have memory. In a program, as
/// that of the tests, the linker puts the distance in the descriptor's place.
#[cold]
fn learn() {
    let (descriptor, distance): (isize, isize);
    // SAFETY: as in `get`.
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
    let said = if descriptor < 0 {
        descriptor
    } else {
        // SAFETY: the address of the descriptor, which has two words.
        unsafe { (descriptor as *const isize).add(1).read() }
    };
    if distance == said && distance < 0 {
        DISTANCE.store(distance, Ordering::Relaxed);
    }
}

/// Puts this thread's word.
#[cold]
pub(crate) fn set(word: *const Thread) {
    learn();
    // SAFETY: as in `get`.
    unsafe {
        asm!(
            "lea rax, [rip + cutape_thread_word@TLSDESC]",
            "call qword ptr [rax + cutape_thread_word@TLSCALL]",
            "mov fs:[rax], {word}",
            word = in(reg) word,
            out("rax") _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
        );
    }
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
