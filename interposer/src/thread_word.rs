//! The one word that every call asks of its thread: by a TLS descriptor (R_X86_64_TLSDESC of the psABI supplement "Thread-Local
//! Storage Descriptors"), which takes a call of two instructions where there is room in the static block, and no more of that
//! than `__tls_get_addr` needs where there is none. Rust has no other access for libraries than that function.

use core::arch::{asm, global_asm};

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

/// What this thread has put there; NULL at first.
#[inline(always)]
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

/// Puts this thread's word.
#[cold]
pub(crate) fn set(word: *const Thread) {
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
