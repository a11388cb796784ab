//! Typed driver calls that a measurement itself makes.

use std::ffi::CStr;

use cutape_registry::id;

use crate::api::{Api, Code, INVALID_VALUE};

/// CUDA_ERROR_NOT_SUPPORTED, for a function that the driver lacks.
const NOT_SUPPORTED: Code = 801;
/// Upper bound of a kernel's parameters, which take at most 32,764 bytes.
const PARAMETERS: u64 = 32 << 10;

impl Api {
    /// Calls a function whose pointer arguments point to locals of the caller, or to memory that the caller guarantees.
    fn ask(&self, id: u16, args: &[u64]) -> Result<(), Code> {
        // SAFETY: all callers are in this file. They pass numbers, live handles, addresses of live ranges, and addresses
        // of locals that outlive the call, sized as the API requires.
        match unsafe { self.call(id, args) } {
            Ok(0) => Ok(()),
            Ok(code) => Err(code),
            Err(_) => Err(NOT_SUPPORTED),
        }
    }

    pub(super) fn allocate(&self, bytes: u64) -> Result<u64, Code> {
        let mut address = 0u64;
        self.ask(id::cuMemAlloc_v2, &[&raw mut address as u64, bytes])?;
        Ok(address)
    }

    pub(super) fn free(&self, address: u64) -> Result<(), Code> {
        self.ask(id::cuMemFree_v2, &[address])
    }

    /// Copies device memory to `bytes`. All work must be done.
    pub(super) fn read_device(&self, address: u64, bytes: &mut [u8]) -> Result<(), Code> {
        let args = [bytes.as_mut_ptr() as u64, address, bytes.len() as u64];
        self.ask(id::cuMemcpyDtoH_v2, &args)
    }

    pub(super) fn write_device(&self, address: u64, bytes: &[u8]) -> Result<(), Code> {
        let args = [address, bytes.as_ptr() as u64, bytes.len() as u64];
        self.ask(id::cuMemcpyHtoD_v2, &args)
    }

    pub(super) fn copy_device(
        &self,
        to: u64,
        from: u64,
        bytes: u64,
        stream: u64,
    ) -> Result<(), Code> {
        self.ask(id::cuMemcpyDtoDAsync_v2, &[to, from, bytes, stream])
    }

    pub(super) fn fill(&self, address: u64, bytes: u64, stream: u64) -> Result<(), Code> {
        self.ask(id::cuMemsetD8Async, &[address, 0, bytes, stream])
    }

    /// An event with timing.
    pub(super) fn create_event(&self) -> Result<u64, Code> {
        let mut event = 0u64;
        self.ask(id::cuEventCreate, &[&raw mut event as u64, 0])?;
        Ok(event)
    }

    pub(super) fn destroy_event(&self, event: u64) -> Result<(), Code> {
        self.ask(id::cuEventDestroy_v2, &[event])
    }

    pub(super) fn record_event(&self, event: u64, stream: u64) -> Result<(), Code> {
        self.ask(id::cuEventRecord, &[event, stream])
    }

    pub(super) fn wait_in_stream(&self, stream: u64, event: u64) -> Result<(), Code> {
        self.ask(id::cuStreamWaitEvent, &[stream, event, 0])
    }

    pub(super) fn wait_for_event(&self, event: u64) -> Result<(), Code> {
        self.ask(id::cuEventSynchronize, &[event])
    }

    /// Nanoseconds between two completed events.
    pub(super) fn elapsed(&self, start: u64, end: u64) -> Result<f64, Code> {
        let mut milliseconds = 0f32;
        let args = [&raw mut milliseconds as u64, start, end];
        self.ask(id::cuEventElapsedTime, &args)?;
        Ok(f64::from(milliseconds) * 1e6)
    }

    /// Loads an image in memory that outlives the call and has zeros after it.
    pub(super) fn load_module(&self, image: u64) -> Result<u64, Code> {
        let mut module = 0u64;
        self.ask(id::cuModuleLoadData, &[&raw mut module as u64, image])?;
        Ok(module)
    }

    pub(super) fn unload_module(&self, module: u64) -> Result<(), Code> {
        self.ask(id::cuModuleUnload, &[module])
    }

    pub(super) fn module_function(&self, module: u64, name: &CStr) -> Result<u64, Code> {
        self.function(module, name, false)
    }

    /// A kernel's function in the current context.
    pub(super) fn kernel_function(&self, kernel: u64) -> Result<u64, Code> {
        let mut function = 0u64;
        self.ask(id::cuKernelGetFunction, &[&raw mut function as u64, kernel])?;
        Ok(function)
    }

    /// Offset and size of each parameter of a function; an error if the driver does not report them (before 12.4).
    pub(super) fn parameter_layout(&self, function: u64) -> Result<Vec<(u32, u32)>, Code> {
        let mut layout = Vec::new();
        for index in 0..PARAMETERS {
            let (mut offset, mut size) = (0u64, 0u64);
            let args = [
                function,
                index,
                &raw mut offset as u64,
                &raw mut size as u64,
            ];
            match self.ask(id::cuFuncGetParamInfo, &args) {
                Ok(()) => layout.push((offset as u32, size as u32)),
                // Past the last parameter (measured, driver 580).
                Err(INVALID_VALUE) => break,
                Err(code) => return Err(code),
            }
        }
        Ok(layout)
    }

    pub(super) fn function_attribute(&self, function: u64, attribute: u32) -> Result<i32, Code> {
        let mut value = 0i32;
        let args = [&raw mut value as u64, u64::from(attribute), function];
        self.ask(id::cuFuncGetAttribute, &args)?;
        Ok(value)
    }

    pub(super) fn set_function_attribute(
        &self,
        function: u64,
        attribute: u32,
        value: i32,
    ) -> Result<(), Code> {
        let args = [function, u64::from(attribute), value as u64];
        self.ask(id::cuFuncSetAttribute, &args)
    }
}
