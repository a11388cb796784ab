//! Questions that the recorder itself asks the driver.

use cutape_driver::types::{CUmemorytype_enum, CUpointer_attribute_enum};
use cutape_registry::{Function, id};

use crate::driver::{self, ask};

/// The calling thread's context.
pub(crate) fn current_context() -> u64 {
    // SAFETY: it writes a handle.
    unsafe { ask(id::cuCtxGetCurrent, |place| [place, 0, 0, 0]) }.unwrap_or(0)
}

/// The device of the calling thread's context.
pub(crate) fn current_device() -> Option<u64> {
    // SAFETY: it writes an int.
    let device = unsafe { ask::<u32>(id::cuCtxGetDevice, |place| [place, 0, 0, 0]) };
    device.map(u64::from)
}

/// Whether a stream is being captured, or may be: then work runs only when a graph is launched, and
/// the recorder must enqueue nothing. The driver refuses to say of the legacy stream while another
/// one captures, and after an error of earlier work.
pub(crate) fn is_capturing(function: &Function, stream: u64) -> bool {
    let query = if function.per_thread {
        id::cuStreamIsCapturing_ptsz
    } else {
        id::cuStreamIsCapturing
    };
    let mut status = 0_u32;
    let arguments = [stream, (&raw mut status) as u64, 0, 0];
    // SAFETY: it writes an enum.
    match unsafe { driver::call(query, arguments) } {
        // A driver without the function captures nothing.
        None => false,
        Some(result) => result != 0 || status != 0,
    }
}

/// Whether an address that may be of any kind is the host's.
pub(crate) fn is_host(address: u64) -> bool {
    if address == 0 {
        return false;
    }
    let attribute = CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_MEMORY_TYPE.0;
    let arguments = |place| [place, attribute.into(), address, 0];
    // SAFETY: it writes an unsigned int.
    let kind = unsafe { ask(id::cuPointerGetAttribute, arguments) };
    // The driver answers with an error for host memory that it does not know.
    kind.is_none_or(|kind: u32| kind == CUmemorytype_enum::CU_MEMORYTYPE_HOST.0)
}

/// Whether an address is in memory that the driver does not know as pinned, registered, managed or
/// the device's.
pub(crate) fn is_pageable(address: u64) -> bool {
    let attribute = CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    let mut kind = u32::MAX;
    let target = (&raw mut kind) as u64;
    let [attributes, targets] = [(&raw const attribute) as u64, (&raw const target) as u64];
    let arguments = [1, attributes, targets, address];
    // SAFETY: one attribute, and one address where it writes an unsigned int.
    let result = unsafe { driver::call(id::cuPointerGetAttributes, arguments) };
    // Unlike cuPointerGetAttribute, it gives 0 instead of an error for memory that it does not
    // know, so that the program's log of the driver's errors has no line of ours.
    result == Some(0) && kind == 0
}

/// Whether an address is in memory of the device alone.
pub(crate) fn is_of_device(address: u64) -> bool {
    !is_pageable(address) && !is_shared_with_host(address)
}

/// Whether an address is in page-locked, registered or managed memory.
pub(crate) fn is_shared_with_host(address: u64) -> bool {
    let attributes = [
        CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_IS_MANAGED,
    ];
    let (mut kind, mut is_managed) = (0_u32, 0_u32);
    let targets = [(&raw mut kind) as u64, (&raw mut is_managed) as u64];
    let arguments = [
        2,
        attributes.as_ptr() as u64,
        targets.as_ptr() as u64,
        address,
    ];
    // SAFETY: two attributes, and two addresses where it writes an unsigned int and a bool.
    let result = unsafe { driver::call(id::cuPointerGetAttributes, arguments) };
    // As in `is_pageable`.
    result == Some(0) && (kind == CUmemorytype_enum::CU_MEMORYTYPE_HOST.0 || is_managed != 0)
}

/// Memory that a call is about to free or unregister.
#[derive(Clone, Copy, Default)]
pub(crate) struct Freed {
    /// The context that it is of; 0 if that is not known, or it is of a stream-ordered pool.
    pub(crate) context: u64,
    /// 0 if it is not known.
    pub(crate) length: u64,
}

/// The memory that an address is in.
pub(crate) fn freed_at(address: u64) -> Freed {
    let attributes = [
        CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_CONTEXT,
        CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
        CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    ];
    let (mut context, mut pool, mut length) = (0_u64, u64::MAX, 0_u64);
    let targets = [&raw mut context, &raw mut pool, &raw mut length].map(|target| target as u64);
    let arguments = [
        3,
        attributes.as_ptr() as u64,
        targets.as_ptr() as u64,
        address,
    ];
    // SAFETY: three attributes, and three addresses where it writes two handles and a size_t.
    let result = unsafe { driver::call(id::cuPointerGetAttributes, arguments) };
    // As in `is_pageable`.
    match result {
        Some(0) if pool == 0 => Freed { context, length },
        Some(0) => Freed { context: 0, length },
        _ => Freed::default(),
    }
}

/// Whether the host may touch managed memory while the current device works (cuMemAllocManaged,
/// concurrentManagedAccess). Without a current context, as when the runtime finds variables, whether
/// that holds of all devices.
pub(crate) fn has_concurrent_managed_access() -> bool {
    const CONCURRENT_MANAGED_ACCESS: u64 = 89;
    let of_device = |device: u64| {
        let arguments = |place| [place, CONCURRENT_MANAGED_ACCESS, device, 0];
        // SAFETY: it writes an int.
        let value: Option<i32> = unsafe { ask(id::cuDeviceGetAttribute, arguments) };
        value.is_some_and(|value| value != 0)
    };
    if let Some(device) = current_device() {
        return of_device(device);
    }
    // SAFETY: it writes an int.
    let count: Option<i32> = unsafe { ask(id::cuDeviceGetCount, |place| [place, 0, 0, 0]) };
    count.is_some_and(|count| count > 0 && (0..count as u64).all(of_device))
}
