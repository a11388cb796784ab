//! Questions that the recorder itself asks the driver.

use cutape_driver::types::{CUmemorytype_enum, CUpointer_attribute_enum};
use cutape_registry::{Function, id};

use crate::driver;

/// CU_STREAM_LEGACY and CU_STREAM_PER_THREAD of cuda.h.
pub(crate) const STREAM_LEGACY: u64 = 1;
pub(crate) const STREAM_PER_THREAD: u64 = 2;

/// The handle of a stream, the same for all names of the default streams.
pub(crate) fn canonical_stream(function: &Function, stream: u64) -> u64 {
    match stream {
        0 if function.per_thread => STREAM_PER_THREAD,
        0 => STREAM_LEGACY,
        other => other,
    }
}

/// The calling thread's context.
pub(crate) fn current_context() -> u64 {
    let mut context = 0u64;
    // SAFETY: `context` is valid for writing a handle.
    unsafe { driver::call(id::cuCtxGetCurrent, [(&raw mut context) as u64, 0, 0, 0]) };
    context
}

/// Whether a stream is being captured: then work runs only when a graph is launched.
pub(crate) fn is_capturing(function: &Function, stream: u64) -> bool {
    let mut status = 0u32;
    let query = if function.per_thread {
        id::cuStreamIsCapturing_ptsz
    } else {
        id::cuStreamIsCapturing
    };
    // SAFETY: `status` is valid for writing an enum.
    let answer = unsafe { driver::call(query, [stream, (&raw mut status) as u64, 0, 0]) };
    answer == Some(0) && status != 0
}

/// Whether an address that may be of any kind is the host's.
pub(crate) fn is_host(address: u64) -> bool {
    if address == 0 {
        return false;
    }
    let mut kind = 0u32;
    let attribute = CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_MEMORY_TYPE.0;
    let words = [(&raw mut kind) as u64, u64::from(attribute), address, 0];
    // SAFETY: `kind` is valid for writing an unsigned int.
    let answer = unsafe { driver::call(id::cuPointerGetAttribute, words) };
    // The driver answers with an error for host memory that it does not know.
    answer != Some(0) || kind == CUmemorytype_enum::CU_MEMORYTYPE_HOST.0
}

/// Whether the host may touch managed memory while the current device works (cuMemAllocManaged,
/// concurrentManagedAccess).
pub(crate) fn has_concurrent_managed_access() -> bool {
    const CONCURRENT_MANAGED_ACCESS: u64 = 89;
    let (mut device, mut value) = (0u32, 0i32);
    // SAFETY: `device` is valid for writing an int.
    let answer = unsafe { driver::call(id::cuCtxGetDevice, [(&raw mut device) as u64, 0, 0, 0]) };
    if answer != Some(0) {
        return false;
    }
    let place = (&raw mut value) as u64;
    let words = [place, CONCURRENT_MANAGED_ACCESS, device.into(), 0];
    // SAFETY: `value` is valid for writing an int.
    let answer = unsafe { driver::call(id::cuDeviceGetAttribute, words) };
    answer == Some(0) && value != 0
}
