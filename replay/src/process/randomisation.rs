//! Address randomisation.

/// True if this process's addresses are randomised.
pub(crate) fn is_randomised() -> bool {
    // SAFETY: asking for the personality changes nothing.
    let persona = unsafe { libc::personality(0xffff_ffff) };
    persona < 0 || persona & libc::ADDR_NO_RANDOMIZE == 0
}
