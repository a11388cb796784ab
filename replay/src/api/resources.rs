//! Memory, events and modules of the replay itself: calls that a measurement or an observation
//! makes.

use cutape_registry::id;

use crate::api::{Api, Code};

impl Api {
    pub(crate) fn allocate(&self, bytes: u64) -> Result<u64, Code> {
        self.get(id::cuMemAlloc_v2, &[bytes])
    }

    pub(crate) fn free(&self, address: u64) -> Result<(), Code> {
        self.own(id::cuMemFree_v2, &[address])
    }

    /// Copies device memory to `bytes`. All work must be done.
    pub(crate) fn read_device(&self, address: u64, bytes: &mut [u8]) -> Result<(), Code> {
        let args = [bytes.as_mut_ptr() as u64, address, bytes.len() as u64];
        self.own(id::cuMemcpyDtoH_v2, &args)
    }

    pub(crate) fn write_device(&self, address: u64, bytes: &[u8]) -> Result<(), Code> {
        let args = [address, bytes.as_ptr() as u64, bytes.len() as u64];
        self.own(id::cuMemcpyHtoD_v2, &args)
    }

    pub(crate) fn copy_device(
        &self,
        to: u64,
        from: u64,
        bytes: u64,
        stream: u64,
    ) -> Result<(), Code> {
        self.own(id::cuMemcpyDtoDAsync_v2, &[to, from, bytes, stream])
    }

    pub(crate) fn fill(&self, address: u64, bytes: u64, stream: u64) -> Result<(), Code> {
        self.own(id::cuMemsetD8Async, &[address, 0, bytes, stream])
    }

    /// An event with timing.
    pub(crate) fn create_event(&self) -> Result<u64, Code> {
        self.get(id::cuEventCreate, &[0])
    }

    pub(crate) fn destroy_event(&self, event: u64) -> Result<(), Code> {
        self.own(id::cuEventDestroy_v2, &[event])
    }

    pub(crate) fn record_event(&self, event: u64, stream: u64) -> Result<(), Code> {
        self.own(id::cuEventRecord, &[event, stream])
    }

    pub(crate) fn wait_in_stream(&self, stream: u64, event: u64) -> Result<(), Code> {
        self.own(id::cuStreamWaitEvent, &[stream, event, 0])
    }

    pub(crate) fn wait_for_event(&self, event: u64) -> Result<(), Code> {
        self.own(id::cuEventSynchronize, &[event])
    }

    /// Whether a stream of the current context does not wait for the legacy default stream.
    pub(crate) fn is_non_blocking(&self, stream: u64) -> Result<bool, Code> {
        const NON_BLOCKING: u32 = 1;
        let mut flags = 0u32;
        self.own(id::cuStreamGetFlags, &[stream, &raw mut flags as u64])?;
        Ok(flags & NON_BLOCKING != 0)
    }

    /// Lets a stream capture what it gets, whatever other threads do.
    pub(crate) fn begin_capture(&self, stream: u64) -> Result<(), Code> {
        const RELAXED: u64 = 2;
        self.own(id::cuStreamBeginCapture_v2, &[stream, RELAXED])
    }

    /// The captured graph.
    pub(crate) fn end_capture(&self, stream: u64) -> Result<u64, Code> {
        let mut graph = 0u64;
        let args = [stream, &raw mut graph as u64];
        self.own(id::cuStreamEndCapture, &args)?;
        Ok(graph)
    }

    /// An executable graph.
    pub(crate) fn instantiate(&self, graph: u64) -> Result<u64, Code> {
        self.get(id::cuGraphInstantiateWithFlags, &[graph, 0])
    }

    pub(crate) fn destroy_graph(&self, graph: u64) -> Result<(), Code> {
        self.own(id::cuGraphDestroy, &[graph])
    }

    pub(crate) fn destroy_executable(&self, executable: u64) -> Result<(), Code> {
        self.own(id::cuGraphExecDestroy, &[executable])
    }

    pub(crate) fn free_host(&self, address: u64) -> Result<(), Code> {
        self.own(id::cuMemFreeHost, &[address])
    }

    /// Nanoseconds between two completed events.
    pub(crate) fn elapsed(&self, start: u64, end: u64) -> Result<f64, Code> {
        let milliseconds: f32 = self.get(id::cuEventElapsedTime, &[start, end])?;
        Ok(f64::from(milliseconds) * 1e6)
    }

    /// Loads an image in memory that outlives the call and has zeros after it.
    pub(crate) fn load_module(&self, image: u64) -> Result<u64, Code> {
        self.get(id::cuModuleLoadData, &[image])
    }

    pub(crate) fn unload_module(&self, module: u64) -> Result<(), Code> {
        self.own(id::cuModuleUnload, &[module])
    }

    /// A kernel's function in the current context.
    pub(crate) fn kernel_function(&self, kernel: u64) -> Result<u64, Code> {
        self.get(id::cuKernelGetFunction, &[kernel])
    }

    pub(crate) fn function_attribute(&self, function: u64, attribute: u32) -> Result<i32, Code> {
        self.get(id::cuFuncGetAttribute, &[u64::from(attribute), function])
    }

    pub(crate) fn set_function_attribute(
        &self,
        function: u64,
        attribute: u32,
        value: i32,
    ) -> Result<(), Code> {
        let args = [function, u64::from(attribute), value as u64];
        self.own(id::cuFuncSetAttribute, &args)
    }
}
