//! The kernel of random test programs: it mixes words, so that its result depends on everything
//! that it reads. Here for the null driver, and for tests that compute what a program must read.

use core::ffi::CStr;

/// Its name. Parameters: addresses of the words that change and of those that are mixed in, how
/// many there are, and a number. `mix.ptx` has the kernel as PTX text.
pub const NAME: &CStr = c"cutape_mix";

/// The word at a position after the kernel has run.
pub const fn mix(old: u32, input: u32, position: u32, seed: u32) -> u32 {
    let sum = old.wrapping_mul(0x9e37_79b1).wrapping_add(input);
    let place = seed.wrapping_add(position.wrapping_mul(0x85eb_ca6b));
    sum.rotate_left(7) ^ place
}
