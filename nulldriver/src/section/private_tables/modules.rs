//! Kernels of modules, for libraries and tools.

use std::ffi::c_void;

use super::slot::{Slot, sized};
use crate::section::code::module;

/// cuFFT 12 takes the only kernel of a module that it loads through slot 7, and needs no other.
pub(super) static TABLE: [Slot; 43] =
    sized::<0x6e16_3fbe, 43>(&[(7, Slot::of(each_function as *const c_void))]);

/// What cuFFT takes for success.
const DONE: u32 = 1;

/// Calls a function of the caller for each kernel of a module. That a module has been loaded in the
/// context is assumed, and that the caller cannot stop it: cuFFT's function returns nothing.
extern "C" fn each_function(
    _context: u64,
    module: u64,
    take: Option<extern "C" fn(u64, u64)>,
    argument: u64,
) -> u32 {
    let (Ok(functions), Some(take)) = (module::functions(module, usize::MAX), take) else {
        return 0;
    };
    for function in functions {
        take(argument, function);
    }
    DONE
}
