//! Crashes like the real driver's.

/// Reads through a NULL pointer: SIGSEGV inside the driver, as measured for destroyed streams,
/// events and link states.
pub(crate) fn segmentation_fault() -> ! {
    // SAFETY: faulting here is the purpose; the instruction touches nothing else.
    unsafe {
        std::arch::asm!("mov rax, qword ptr [rax]", inout("rax") 0_u64 => _, options(nostack))
    };
    // Only reached where the program handles SIGSEGV by stepping over the instruction.
    std::process::abort()
}

/// Reads what an address leads to, as the driver does with some values that are no handle: SIGSEGV if
/// nothing is there.
pub(crate) fn follow(address: u64) {
    // SAFETY: faulting here is the purpose; the instruction writes nothing else.
    unsafe {
        std::arch::asm!(
            "mov {0:l}, byte ptr [{0}]",
            inout(reg_abcd) address => _,
            options(nostack, readonly)
        );
    }
}
