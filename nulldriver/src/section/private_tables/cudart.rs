//! The runtime's interface: modules from fatbin wrappers, the handle of the primary context.

use std::ffi::c_void;

use super::slot::{Slot, answer, sized};
use crate::call::answer::{Answer, CUresult, SUCCESS};
use crate::call::argument::Out;
use crate::object::device::check_device;
use crate::object::jit_options::Options;
use crate::state::lock;
use crate::work::compile::compile;

/// Newer drivers have more slots than older ones; 13 in drivers of CUDA 13.
pub(super) static INTERFACE: [Slot; 13] = sized::<0x6bd5_fb6c, 13>(&[
    (1, Slot::of(load as *const c_void)),
    (2, Slot::of(primary_context as *const c_void)),
    (6, Slot::of(load as *const c_void)),
    (8, Slot::of(load_container as *const c_void)),
    (12, Slot::of(load_compilers as *const c_void)),
]);

/// Slots 1 and 6; the further arguments of slot 6 are not known.
extern "C" fn load(module: Out<u64>, wrapper: u64) -> CUresult {
    answer(|| load_image(module, wrapper))
}

/// Slot 8: as slot 6, from what the wrapper points to.
extern "C" fn load_container(container: u64, module: Out<u64>) -> CUresult {
    answer(|| load_image(module, container))
}

fn load_image(module: Out<u64>, image: u64) -> Answer {
    module.check()?;
    let mut state = lock();
    state.current()?;
    let code = compile(image, &mut Options::none(), state.capability())?;
    module.set(state.load_module(code, 0)?)
}

/// Slot 2: the handle that the device's primary context has or will have. The runtime makes it
/// current before it retains it (seen in recordings of the runtime 13.0; driver 580, H200,
/// 2026-11-23).
extern "C" fn primary_context(context: Out<u64>, device: i32) -> CUresult {
    answer(|| {
        context.check()?;
        check_device(device)?;
        context.set(lock().primary_handle(device)?)
    })
}

/// Slot 12: there are no compilers to load.
extern "C" fn load_compilers() -> CUresult {
    SUCCESS
}
