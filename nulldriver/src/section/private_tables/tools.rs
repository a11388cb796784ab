//! What tools such as profilers hook into the runtime with. No tool does here.

use std::cell::UnsafeCell;
use std::ffi::c_void;

use super::slot::{Slot, answer, sized};
use crate::call::answer::CUresult;
use crate::call::argument::Out;
use crate::section::context::management;

pub(super) static CALLBACK_HOOKS: [Slot; 7] = sized::<0xa094_798c, 7>(&[
    (2, Slot::of(large_buffer as *const c_void)),
    (6, Slot::of(small_buffer as *const c_void)),
]);

/// Slot 2 gives the current context (measured with cuBLASLt 13, driver 580).
pub(super) static THREAD_STORAGE: [Slot; 4] =
    sized::<0x42d8_5a81, 4>(&[(2, Slot::of(current_context as *const c_void))]);

extern "C" fn current_context(context: Out<u64>) -> CUresult {
    answer(|| management::get_current(context))
}

/// Words that the runtime reads, and maybe writes; all are 0 while there is no tool.
struct Buffer<const WORDS: usize>(UnsafeCell<[u32; WORDS]>);

// SAFETY: this library only passes its address on.
unsafe impl<const WORDS: usize> Sync for Buffer<WORDS> {}

static LARGE: Buffer<1024> = Buffer(UnsafeCell::new([0; 1024]));
static SMALL: Buffer<14> = Buffer(UnsafeCell::new([0; 14]));

impl<const WORDS: usize> Buffer<WORDS> {
    /// These slots have no result.
    fn give(&'static self, address: Out<u64>, size: Out<usize>) {
        address.set_if(self.0.get() as u64);
        size.set_if(WORDS);
    }
}

extern "C" fn large_buffer(address: Out<u64>, size: Out<usize>) {
    LARGE.give(address, size);
}

extern "C" fn small_buffer(address: Out<u64>, size: Out<usize>) {
    SMALL.give(address, size);
}
