//! Which functions are alive: only those may be asked for their parameters.

use cutape_registry::id;

use crate::call::Frame;
use crate::layouts::{self, Owner};
use crate::{driver, host_memory, memory};

/// A module or library has given a function.
pub(super) fn found(frame: &Frame, output: u8, owner: u8, is_kernel: bool) {
    let place = frame.words[usize::from(output)];
    if frame.result as i32 != 0 || place == 0 {
        return;
    }
    // SAFETY: the driver has just written a handle there.
    let handle = unsafe { (place as *const u64).read_unaligned() };
    // A function that is made from a kernel goes with the kernel's library.
    layouts::learn(
        handle,
        is_kernel,
        layouts::owner_of(frame.words[usize::from(owner)]),
    );
}

/// A module or library has given several functions.
pub(super) fn found_many(frame: &Frame, output: u8, count: u8, owner: u8, is_kernel: bool) {
    let place = frame.words[usize::from(output)];
    if frame.result as i32 != 0 || place == 0 {
        return;
    }
    for index in 0..u64::from(frame.words[usize::from(count)] as u32) {
        // Read with care: the driver has written as many as there are, which may be fewer. A NULL ends them.
        let Some(handle) =
            memory::word(place.wrapping_add(index * 8)).filter(|&handle| handle != 0)
        else {
            return;
        };
        layouts::learn(handle, is_kernel, frame.words[usize::from(owner)]);
    }
}

/// A module or library is about to be unloaded: its functions are not asked about from here on.
pub(super) fn ending(frame: &Frame) {
    layouts::forget(Owner::Module(frame.words[0]));
}

/// It was not unloaded after all.
pub(super) fn not_ended(frame: &Frame) {
    if frame.result as i32 != 0 {
        layouts::revive(frame.words[0]);
    }
}

/// A context has ended, and all modules in it.
pub(super) fn context_ended(frame: &Frame) {
    host_memory::context_ended(frame.words[0], frame.result as i32 == 0);
    if frame.result as i32 == 0 {
        layouts::forget(Owner::Context(frame.words[0]));
    }
}

/// A primary context was released or reset; it has ended if nobody holds it any more.
pub(super) fn primary_ended(frame: &Frame) {
    let (mut flags, mut active) = (0u32, 0i32);
    let words = [
        frame.words[0],
        (&raw mut flags) as u64,
        (&raw mut active) as u64,
        0,
    ];
    // SAFETY: both outputs are valid for writing an int.
    let answer = unsafe { driver::call(id::cuDevicePrimaryCtxGetState, words) };
    if frame.result as i32 == 0 && answer == Some(0) && active == 0 {
        layouts::forget(Owner::AnyContext);
        host_memory::forget_all();
    }
}
