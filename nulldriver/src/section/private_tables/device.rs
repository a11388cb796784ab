//! Tables of devices and contexts of which little is known.

use std::ffi::c_void;

use super::slot::{Slot, answer, sized};
use crate::call::answer::CUresult;
use crate::call::argument::{Out, OutRef};
use crate::object::device::check_device;
use crate::section::context::management;
use crate::state::lock;

/// Checks of bits that nobody has seen set.
pub(super) static CONTEXT_CHECKS: [Slot; 4] = sized::<0x263e_8860, 4>(&[
    (2, Slot::of(check_context as *const c_void)),
    (3, Slot::of(check as *const c_void)),
]);

/// `cuCtxCreate` for libraries.
pub(super) static CONTEXT_CREATION: [Slot; 2] =
    sized::<0x0ca5_0b8c, 2>(&[(1, Slot::of(create_context as *const c_void))]);

/// Slots 1 and 2 allocate and free records of an unknown layout.
pub(super) static HEAP: [Slot; 3] = sized::<0x195b_cbf4, 3>(&[]);

/// Slot 5 is an attribute of a device of unknown numbers.
pub(super) static EXTENDED: [Slot; 26] =
    sized::<0xb105_41e1, 26>(&[(13, Slot::of(some_flag as *const c_void))]);

/// Runtimes of CUDA 13.4 do not start without it. Slot 4 gives the number of a context, 1 of the first,
/// as `cuCtxGetId` does (measured with cuBLASLt 13, driver 580).
pub(super) static LARGE: [Slot; 95] =
    sized::<0x2131_8c60, 95>(&[(4, Slot::of(context_id as *const c_void))]);

extern "C" fn context_id(context: u64, id: Out<u64>) -> CUresult {
    answer(|| management::get_id(context, id))
}

/// The context need not exist: the runtime asks for the primary context that it retains next. What
/// the third parameter points to stays as it is: it was never seen written.
extern "C" fn check_context(_context: u64, bits: Out<u32>) -> CUresult {
    answer(|| bits.set(0))
}

extern "C" fn check() -> u32 {
    0
}

extern "C" fn create_context(context: Out<u64>, flags: u32, device: i32) -> CUresult {
    answer(|| management::create(lock(), OutRef::of(context)?, flags, device))
}

extern "C" fn some_flag(flag: Out<u8>, device: i32) -> CUresult {
    answer(|| {
        check_device(device)?;
        flag.set(0)
    })
}
