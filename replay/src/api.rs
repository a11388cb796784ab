//! The calls that the replay makes for itself, typed.

pub(crate) mod buffer;
mod resources;

use std::ffi::CStr;
use std::path::Path;

use cutape_driver::{CallError, Driver, PreparedCall};
use cutape_registry::id;

use crate::error::Error;

/// A result code other than success.
pub(crate) type Code = i32;

pub(crate) const INVALID_VALUE: Code = 1;
pub(crate) const NOT_INITIALIZED: Code = 3;
pub(crate) const DEINITIALIZED: Code = 4;
pub(crate) const INVALID_CONTEXT: Code = 201;
pub(crate) const NOT_FOUND: Code = 500;
pub(crate) const NOT_READY: Code = 600;
pub(crate) const HOST_MEMORY_ALREADY_REGISTERED: Code = 712;
pub(crate) const HOST_MEMORY_NOT_REGISTERED: Code = 713;
pub(crate) const NOT_SUPPORTED: Code = 801;

/// `CU_MEM_LOCATION_TYPE_DEVICE` and `CU_MEM_LOCATION_TYPE_HOST_NUMA`.
const LOCATION_DEVICE: u32 = 1;
const LOCATION_HOST_NUMA: u32 = 3;

/// Where physical memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// A device's ordinal.
    Device(i32),
    /// A NUMA node of the host.
    Host(i32),
}

/// Names a result code.
pub(crate) fn result_name(code: Code) -> String {
    match cutape_registry::result_name(code) {
        Some(name) => name.to_owned(),
        None => format!("result {code}"),
    }
}

/// The error of a call that the replay itself needs.
pub(crate) fn refused(function: &'static str, code: Code) -> Error {
    Error::Setup {
        function: function.into(),
        result: result_name(code),
    }
}

/// Most parameters of a kernel, and bytes of all of them (CUDA C++ Programming Guide: 32,764
/// bytes).
const LONGEST_PARAMETERS: u32 = 32 << 10;

/// The loaded driver.
#[derive(Debug)]
pub(crate) struct Api {
    driver: Driver,
}

impl Api {
    /// Loads a driver by absolute path.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let path = path.canonicalize().map_err(|error| Error::Driver {
            path: path.into(),
            why: error.to_string(),
        })?;
        let driver = Driver::open(&path).map_err(|error| Error::Driver {
            path,
            why: error.to_string(),
        })?;
        Ok(Self { driver })
    }

    /// True for cutape's own software driver.
    pub(crate) fn is_null_driver(&self) -> bool {
        self.driver
            .symbol_by_name(c"cutape_null_driver_marker")
            .is_some()
    }

    /// The driver's file.
    pub(crate) fn path(&self) -> &Path {
        self.driver.path()
    }

    /// Whether the driver has a function, by the registry's id.
    pub(crate) fn exports(&self, id: u16) -> bool {
        self.driver.symbol(id).is_some()
    }

    /// Calls a function.
    ///
    /// # Safety
    ///
    /// The arguments are sound to give to that function: every pointer the driver follows is valid
    /// as the role says.
    pub(crate) unsafe fn call(&self, id: u16, args: &[u64]) -> Result<Code, CallError> {
        // SAFETY: the caller vouches for the arguments.
        unsafe { self.driver.call(id, args) }
    }

    /// A call that is made many times.
    pub(crate) fn prepare(&self, id: u16, args: &[u64]) -> Result<PreparedCall, CallError> {
        self.driver.prepare(id, args)
    }

    /// Offset and size of each parameter of a live function, or kernel; `None` if the driver does
    /// not say (before 12.4).
    pub(crate) fn parameters_of(&self, handle: u64, is_kernel: bool) -> Option<Vec<(u32, u32)>> {
        let id = if is_kernel {
            id::cuKernelGetParamInfo
        } else {
            id::cuFuncGetParamInfo
        };
        let mut layout = Vec::new();
        for index in 0..u64::from(LONGEST_PARAMETERS) {
            let (mut offset, mut size) = (0u64, 0u64);
            let outputs = [&raw mut offset as u64, &raw mut size as u64];
            match self.own(id, &[handle, index, outputs[0], outputs[1]]) {
                Ok(()) => {}
                // There is none of that number (CUDA Driver API, cuFuncGetParamInfo).
                Err(INVALID_VALUE) => return Some(layout),
                Err(_) => return None,
            }
            let end = offset.checked_add(size)?;
            if end > u64::from(LONGEST_PARAMETERS) {
                return None;
            }
            layout.push((offset as u32, size as u32));
        }
        None
    }

    /// Calls a function that the replay or a measurement itself needs.
    pub(crate) fn own(&self, id: u16, args: &[u64]) -> Result<(), Code> {
        // SAFETY: all callers are in this file, `compare/digest_kernel.rs`, `api/resources.rs`,
        // `restore/memory_contents.rs`, and `driver.rs`, `array.rs` and `texture.rs` of
        // `observation/`. They pass numbers, live handles, addresses of live ranges, and addresses of locals that
        // outlive the call, sized as the API says.
        match unsafe { self.driver.call(id, args) } {
            Ok(0) => Ok(()),
            Ok(code) => Err(code),
            Err(_) => Err(NOT_SUPPORTED),
        }
    }

    /// As [`Self::own`], for a function that writes a value of the size of `T` behind its first
    /// parameter.
    pub(crate) fn get<T: Default>(&self, id: u16, rest: &[u64]) -> Result<T, Code> {
        let mut value = T::default();
        self.own(id, &[&[&raw mut value as u64], rest].concat())?;
        Ok(value)
    }

    pub(crate) fn init(&self) -> Result<(), Code> {
        self.own(id::cuInit, &[0])
    }

    pub(crate) fn driver_version(&self) -> Result<i32, Code> {
        self.get(id::cuDriverGetVersion, &[])
    }

    pub(crate) fn device_count(&self) -> Result<i32, Code> {
        self.get(id::cuDeviceGetCount, &[])
    }

    pub(crate) fn device_attribute(&self, attribute: u32, device: i32) -> Result<i32, Code> {
        let rest = [u64::from(attribute), device as u64];
        self.get(id::cuDeviceGetAttribute, &rest)
    }

    /// Whether a device can access the memory of another one.
    pub(crate) fn can_access_peer(&self, device: i32, peer: i32) -> Result<bool, Code> {
        let rest = [device as u64, peer as u64];
        let answer: i32 = self.get(id::cuDeviceCanAccessPeer, &rest)?;
        Ok(answer != 0)
    }

    pub(crate) fn device_name(&self, device: i32) -> Result<String, Code> {
        let mut name = [0u8; 256];
        self.own(
            id::cuDeviceGetName,
            &[name.as_mut_ptr() as u64, 255, device as u64],
        )?;
        Ok(crate::api::buffer::text(&name))
    }

    pub(crate) fn device_memory(&self, device: i32) -> Result<u64, Code> {
        self.get(id::cuDeviceTotalMem_v2, &[device as u64])
    }

    /// 32 hexadecimal digits, as the recorder writes them.
    pub(crate) fn device_uuid(&self, device: i32) -> Result<String, Code> {
        let uuid: [u8; 16] = self.get(id::cuDeviceGetUuid_v2, &[device as u64])?;
        Ok(uuid.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Of the form `0000:1B:00.0`, ended by NUL.
    pub(crate) fn bus_id(&self, device: i32) -> Result<[u8; 64], Code> {
        let mut text = [0u8; 64];
        self.own(
            id::cuDeviceGetPCIBusId,
            &[text.as_mut_ptr() as u64, 63, device as u64],
        )?;
        Ok(text)
    }

    /// Bytes that are free on the current context's device.
    pub(crate) fn free_memory(&self) -> Result<u64, Code> {
        let (mut free, mut total) = (0u64, 0u64);
        self.own(
            id::cuMemGetInfo_v2,
            &[&raw mut free as u64, &raw mut total as u64],
        )?;
        Ok(free)
    }

    pub(crate) fn retain_primary(&self, device: i32) -> Result<u64, Code> {
        self.get(id::cuDevicePrimaryCtxRetain, &[device as u64])
    }

    pub(crate) fn release_primary(&self, device: i32) -> Result<(), Code> {
        self.own(id::cuDevicePrimaryCtxRelease_v2, &[device as u64])
    }

    pub(crate) fn primary_is_active(&self, device: i32) -> Result<bool, Code> {
        let (mut flags, mut active) = (0u32, 0i32);
        let args = [device as u64, &raw mut flags as u64, &raw mut active as u64];
        self.own(id::cuDevicePrimaryCtxGetState, &args)?;
        Ok(active != 0)
    }

    /// 0 if there is none.
    pub(crate) fn current_context(&self) -> Result<u64, Code> {
        self.get(id::cuCtxGetCurrent, &[])
    }

    pub(crate) fn set_current(&self, context: u64) -> Result<(), Code> {
        self.own(id::cuCtxSetCurrent, &[context])
    }

    pub(crate) fn current_device(&self) -> Result<i32, Code> {
        self.get(id::cuCtxGetDevice, &[])
    }

    pub(crate) fn synchronize(&self) -> Result<(), Code> {
        self.own(id::cuCtxSynchronize, &[])
    }

    /// Waits for a live stream; `per_thread` says which default stream 0 is.
    pub(crate) fn synchronize_stream(&self, stream: u64, per_thread: bool) -> Result<(), Code> {
        let id = match per_thread {
            true => id::cuStreamSynchronize_ptsz,
            false => id::cuStreamSynchronize,
        };
        self.own(id, &[stream])
    }

    /// Does work that the captures of other threads, and of this one, would forbid or be invalidated
    /// by: waits for streams and queries of events (CUDA manual, cuThreadExchangeStreamCaptureMode;
    /// tests/gpu/captures.c).
    pub(crate) fn while_relaxed<T>(&self, work: impl FnOnce(&Self) -> T) -> T {
        const RELAXED: u32 = 2;
        let mut mode = RELAXED;
        let before = self.own(
            id::cuThreadExchangeStreamCaptureMode,
            &[&raw mut mode as u64],
        );
        let result = work(self);
        if before.is_ok() {
            // It was this thread's mode.
            let _ = self.own(
                id::cuThreadExchangeStreamCaptureMode,
                &[&raw mut mode as u64],
            );
        }
        result
    }

    /// An event that marks a place in a stream.
    pub(crate) fn create_mark(&self) -> Result<u64, Code> {
        const DISABLE_TIMING: u64 = 2;
        self.get(id::cuEventCreate, &[DISABLE_TIMING])
    }

    /// Puts a mark into a live stream; `per_thread` says which default stream 0 is.
    pub(crate) fn record_mark(
        &self,
        event: u64,
        stream: u64,
        per_thread: bool,
    ) -> Result<(), Code> {
        let id = match per_thread {
            true => id::cuEventRecord_ptsz,
            false => id::cuEventRecord,
        };
        self.own(id, &[event, stream])
    }

    /// Whether the work before a mark is complete, or has failed.
    pub(crate) fn is_mark_passed(&self, event: u64) -> bool {
        self.own(id::cuEventQuery, &[event]) != Err(NOT_READY)
    }

    /// Whether the driver says that a live stream does not capture. Asking is allowed in every
    /// mode, and ends no capture (cuStreamIsCapturing).
    pub(crate) fn is_not_captured(&self, stream: u64, per_thread: bool) -> bool {
        let id = match per_thread {
            true => id::cuStreamIsCapturing_ptsz,
            false => id::cuStreamIsCapturing,
        };
        let mut status = 0u32;
        self.own(id, &[stream, &raw mut status as u64]) == Ok(()) && status == 0
    }

    /// Whether device memory lies on the device of the current context.
    pub(crate) fn is_of_current_device(&self, address: u64) -> bool {
        const DEVICE_ORDINAL: u64 = 9;
        let there = self.get(id::cuPointerGetAttribute, &[DEVICE_ORDINAL, address]);
        self.current_device().is_ok_and(|here| there == Ok(here))
    }

    /// Fills device memory, ordered on a live stream.
    pub(crate) fn fill_memory(
        &self,
        (address, length): (u64, u64),
        byte: u8,
        (stream, per_thread): (u64, bool),
    ) -> Result<(), Code> {
        let id = match per_thread {
            true => id::cuMemsetD8Async_ptsz,
            false => id::cuMemsetD8Async,
        };
        self.own(id, &[address, u64::from(byte), length, stream])
    }

    pub(crate) fn reserve(&self, length: u64, hint: u64) -> Result<u64, Code> {
        self.get(id::cuMemAddressReserve, &[length, 0, hint, 0])
    }

    pub(crate) fn free_reservation(&self, address: u64, length: u64) -> Result<(), Code> {
        self.own(id::cuMemAddressFree, &[address, length])
    }

    /// Physical memory; `length` is a multiple of 2 MiB.
    pub(crate) fn create_memory(&self, length: u64, location: Location) -> Result<u64, Code> {
        let (kind, number) = match location {
            Location::Device(ordinal) => (LOCATION_DEVICE, ordinal),
            Location::Host(node) => (LOCATION_HOST_NUMA, node),
        };
        // CUmemAllocationProp: type pinned, no shareable handle, location, no metadata, no flags.
        let properties = [1u32, 0, kind, number as u32, 0, 0, 0, 0];
        let rest = [length, properties.as_ptr() as u64, 0];
        self.get(id::cuMemCreate, &rest)
    }

    pub(crate) fn release_memory(&self, handle: u64) -> Result<(), Code> {
        self.own(id::cuMemRelease, &[handle])
    }

    pub(crate) fn map(&self, address: u64, length: u64, handle: u64) -> Result<(), Code> {
        self.own(id::cuMemMap, &[address, length, 0, handle, 0])
    }

    pub(crate) fn unmap(&self, address: u64, length: u64) -> Result<(), Code> {
        self.own(id::cuMemUnmap, &[address, length])
    }

    /// Reading and writing from all these places.
    pub(crate) fn set_access(
        &self,
        address: u64,
        length: u64,
        from: &[Location],
    ) -> Result<(), Code> {
        let descriptions: Vec<[u32; 3]> = from
            .iter()
            .map(|location| match *location {
                Location::Device(ordinal) => [LOCATION_DEVICE, ordinal as u32, 3],
                Location::Host(node) => [LOCATION_HOST_NUMA, node as u32, 3],
            })
            .collect();
        let args = [
            address,
            length,
            descriptions.as_ptr() as u64,
            descriptions.len() as u64,
        ];
        self.own(id::cuMemSetAccess, &args)
    }

    /// A module's function, or a library's kernel, by name.
    pub(crate) fn function(&self, owner: u64, name: &CStr, is_kernel: bool) -> Result<u64, Code> {
        let id = if is_kernel {
            id::cuLibraryGetKernel
        } else {
            id::cuModuleGetFunction
        };
        self.get(id, &[owner, name.as_ptr() as u64])
    }

    /// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`.
    pub(crate) fn register_host(&self, address: u64, length: u64) -> Result<(), Code> {
        self.own(id::cuMemHostRegister_v2, &[address, length, 3])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_named() {
        assert_eq!(result_name(INVALID_VALUE), "CUDA_ERROR_INVALID_VALUE");
        assert_eq!(result_name(12345), "result 12345");
    }

    #[test]
    fn what_is_no_driver_is_refused_with_its_path() {
        let error = Api::open(Path::new("/nowhere/libcuda.so.1")).unwrap_err();
        assert!(
            error.to_string().contains("/nowhere/libcuda.so.1"),
            "{error}"
        );
    }
}
