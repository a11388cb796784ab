//! Typed driver calls that only an observation makes.

use std::ffi::{CStr, CString};
use std::mem::offset_of;
use std::time::{Duration, Instant};

use cutape_driver::types::{CUDA_BATCH_MEM_OP_NODE_PARAMS, CUstreamBatchMemOpParams};
use cutape_registry::id;

use crate::api::buffer::{Buffer, set_word, word};
use crate::api::{Api, Code, INVALID_VALUE, NOT_READY};
use crate::compare::received::read_memory;
use crate::observation::job::ObservedLaunch;
use crate::observation::memset::Memset;

/// Longest name of a kernel that is read.
const LONGEST_NAME: usize = 1 << 16;
/// How long work is waited for without a sleep.
const SHORT: Duration = Duration::from_micros(500);
/// Between two queries afterwards.
const PAUSE: Duration = Duration::from_micros(100);
/// CU_EVENT_DISABLE_TIMING.
const EVENT_WITHOUT_TIME: u64 = 2;

impl Api {
    /// The module of a live function.
    pub(crate) fn module_of(&self, function: u64) -> Result<u64, Code> {
        self.get(id::cuFuncGetModule, &[function])
    }

    /// The module of a live library in the current context.
    pub(crate) fn module_of_library(&self, library: u64) -> Result<u64, Code> {
        self.get(id::cuLibraryGetModule, &[library])
    }

    /// The name of a live function in its image.
    pub(crate) fn name_of(&self, function: u64) -> Result<String, Code> {
        let address: u64 = self.get(id::cuFuncGetName, &[function])?;
        if address == 0 {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the driver returned a string that lives as long as the function
        // (cuFuncGetName).
        let name = unsafe { CStr::from_ptr(address as *const libc::c_char) };
        let name = name.to_string_lossy();
        Ok(name.chars().take(LONGEST_NAME).collect())
    }

    /// Address and bytes of a variable of a live module.
    pub(crate) fn variable(&self, module: u64, name: &str) -> Result<(u64, u64), Code> {
        let name = CString::new(name).map_err(|_| INVALID_VALUE)?;
        let (mut address, mut bytes) = (0u64, 0u64);
        let outputs = [&raw mut address as u64, &raw mut bytes as u64];
        let args = [outputs[0], outputs[1], module, name.as_ptr() as u64];
        self.own(id::cuModuleGetGlobal_v2, &args)?;
        Ok((address, bytes))
    }

    /// Whether the work of all streams of a live context ends soon. True as well where the driver
    /// cannot tell (before CUDA 12.5) or the work has failed.
    pub(crate) fn ends_soon(&self, context: u64, patience: Duration) -> bool {
        let recorded = |api: &Self| {
            let event: u64 = api.get(id::cuEventCreate, &[EVENT_WITHOUT_TIME])?;
            match api.own(id::cuCtxRecordEvent, &[context, event]) {
                Ok(()) => Ok(event),
                Err(code) => api.own(id::cuEventDestroy_v2, &[event]).and(Err(code)),
            }
        };
        let Ok(event) = self.in_context(context, recorded) else {
            return true;
        };
        self.completes_soon(event, patience)
    }

    /// Records an event of the replay in a live stream of the current context.
    pub(crate) fn event_after(&self, (stream, per_thread): (u64, bool)) -> Result<u64, Code> {
        let event: u64 = self.get(id::cuEventCreate, &[EVENT_WITHOUT_TIME])?;
        let id = match per_thread {
            true => id::cuEventRecord_ptsz,
            false => id::cuEventRecord,
        };
        match self.own(id, &[event, stream]) {
            Ok(()) => Ok(event),
            Err(code) => self.own(id::cuEventDestroy_v2, &[event]).and(Err(code)),
        }
    }

    /// Whether the work before an event ends soon, or has failed; the event ends here.
    pub(crate) fn completes_soon(&self, event: u64, patience: Duration) -> bool {
        let ends = self.poll(patience, |api| api.own(id::cuEventQuery, &[event]));
        // Its memory is released when it is complete (cuEventDestroy).
        let _ = self.own(id::cuEventDestroy_v2, &[event]);
        ends != Err(NOT_READY)
    }

    /// Repeats a query until work is complete, or for so long.
    pub(crate) fn poll(
        &self,
        patience: Duration,
        query: impl Fn(&Self) -> Result<(), Code>,
    ) -> Result<(), Code> {
        let since = Instant::now();
        loop {
            match query(self) {
                Err(NOT_READY) if since.elapsed() < patience => {}
                answer => return answer,
            }
            // Most work is short, and a sleep takes longer.
            if since.elapsed() > SHORT {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// A limit of the current context.
    pub(crate) fn limit(&self, limit: u32) -> Result<u64, Code> {
        self.get(id::cuCtxGetLimit, &[u64::from(limit)])
    }
}

/// Graphs that stop.
impl Api {
    /// Adds a node of memory operations to a live graph, after other nodes.
    pub(crate) fn add_operations(
        &self,
        graph: u64,
        after: &[u64],
        operations: &[u8],
    ) -> Result<u64, Code> {
        use CUDA_BATCH_MEM_OP_NODE_PARAMS as Params;
        let count = operations.len() / size_of::<CUstreamBatchMemOpParams>();
        let operations = Buffer::of(operations);
        let mut params = vec![0; size_of::<Params>()];
        set_word(
            &mut params,
            offset_of!(Params, ctx),
            self.current_context()?,
        );
        set_word(&mut params, offset_of!(Params, count), count as u64);
        set_word(
            &mut params,
            offset_of!(Params, paramArray),
            operations.address(),
        );
        let params = Buffer::of(&params);
        let count = after.len() as u64;
        let after = Buffer::of_words(after);
        let rest = [graph, after.address(), count, params.address()];
        self.get(id::cuGraphAddBatchMemOpNode, &rest)
    }

    /// Adds an edge to a live graph.
    pub(crate) fn add_edge(&self, graph: u64, (from, to): (u64, u64)) -> Result<(), Code> {
        let [from, to] = [from, to].map(|node| Buffer::of_words(&[node]));
        let args = [graph, from.address(), to.address()];
        match self.exports(id::cuGraphAddDependencies_v2) {
            true => {
                let [graph, from, to] = args;
                self.own(id::cuGraphAddDependencies_v2, &[graph, from, to, 0, 1])
            }
            false => {
                let [graph, from, to] = args;
                self.own(id::cuGraphAddDependencies, &[graph, from, to, 1])
            }
        }
    }

    /// Page-locked memory that all contexts can use, at the same address on the host.
    pub(crate) fn allocate_portable(&self, bytes: u64) -> Result<u64, Code> {
        /// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`.
        const PORTABLE_MAPPED: u64 = 3;
        self.get(id::cuMemHostAlloc, &[bytes, PORTABLE_MAPPED])
    }

    /// A stream that the default stream does not wait for.
    pub(crate) fn create_stream(&self) -> Result<u64, Code> {
        const NON_BLOCKING: u64 = 1;
        self.get(id::cuStreamCreate, &[NON_BLOCKING])
    }

    /// Its resources are released when its work is complete (cuStreamDestroy).
    pub(crate) fn destroy_stream(&self, stream: u64) -> Result<(), Code> {
        self.own(id::cuStreamDestroy_v2, &[stream])
    }

    pub(crate) fn launch_graph(&self, exec: u64, stream: u64) -> Result<(), Code> {
        self.own(id::cuGraphLaunch, &[exec, stream])
    }

    /// Whether the work of a live stream is complete.
    pub(crate) fn query_stream(&self, (stream, per_thread): (u64, bool)) -> Result<(), Code> {
        let id = match per_thread {
            true => id::cuStreamQuery_ptsz,
            false => id::cuStreamQuery,
        };
        self.own(id, &[stream])
    }

    /// Lets a live stream wait for the work of another one until now.
    pub(crate) fn wait_in(
        &self,
        (stream, per_thread): (u64, bool),
        other: u64,
    ) -> Result<(), Code> {
        let id = match per_thread {
            true => id::cuStreamWaitEvent_ptsz,
            false => id::cuStreamWaitEvent,
        };
        let event = self.create_mark()?;
        let waits = self.record_mark(event, other, false);
        let waits = waits.and_then(|()| self.own(id, &[stream, event, 0]));
        // Its memory is released when it is complete (cuEventDestroy).
        self.own(id::cuEventDestroy_v2, &[event]).and(waits)
    }
}

/// Nodes and edges of graphs.
impl Api {
    /// The nodes of a live graph.
    pub(crate) fn nodes_of(&self, graph: u64) -> Result<Vec<u64>, Code> {
        let mut count = 0u64;
        let place = &raw mut count as u64;
        self.own(id::cuGraphGetNodes, &[graph, 0, place])?;
        let mut nodes = vec![0u64; count as usize];
        if count > 0 {
            let list = nodes.as_mut_ptr() as u64;
            self.own(id::cuGraphGetNodes, &[graph, list, place])?;
        }
        Ok(nodes)
    }

    /// The edges of a live graph: from, to.
    pub(crate) fn edges_of(&self, graph: u64) -> Result<Vec<(u64, u64)>, Code> {
        let mut count = 0u64;
        let place = &raw mut count as u64;
        // Since 12.3 edges have data, which the older function refuses to leave out.
        let has_data = self.exports(id::cuGraphGetEdges_v2);
        let ask = |from: u64, to: u64, data: u64| match has_data {
            true => self.own(id::cuGraphGetEdges_v2, &[graph, from, to, data, place]),
            false => self.own(id::cuGraphGetEdges, &[graph, from, to, place]),
        };
        ask(0, 0, 0)?;
        // The driver has written the count through the address.
        // SAFETY: a local of this function.
        let length = unsafe { std::ptr::read_volatile(&raw const count) } as usize;
        let [mut from, mut to, mut data] = [(); 3].map(|()| vec![0u64; length]);
        if length > 0 {
            let lists = [&mut from, &mut to, &mut data].map(|list| list.as_mut_ptr() as u64);
            let [from, to, data] = lists;
            ask(from, to, data)?;
        }
        Ok(from.into_iter().zip(to).collect())
    }

    /// `CUgraphNodeType` of a live node.
    pub(crate) fn type_of(&self, node: u64) -> Result<u32, Code> {
        let mut kind = 0u32;
        self.own(id::cuGraphNodeGetType, &[node, &raw mut kind as u64])?;
        Ok(kind)
    }

    /// The graph of a live child graph node.
    pub(crate) fn child_of(&self, node: u64) -> Result<u64, Code> {
        let mut graph = 0u64;
        let place = &raw mut graph as u64;
        self.own(id::cuGraphChildGraphNodeGetGraph, &[node, place])?;
        Ok(graph)
    }

    fn node_params(&self, function: u16, node: u64, length: usize) -> Result<Vec<u8>, Code> {
        // Longer than the struct, for drivers with a longer one.
        let mut words = vec![0u64; length.div_ceil(8) + 32];
        self.own(function, &[node, words.as_mut_ptr() as u64])?;
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(length);
        Ok(bytes)
    }

    pub(crate) fn kernel_params(&self, node: u64, length: usize) -> Result<Vec<u8>, Code> {
        self.node_params(id::cuGraphKernelNodeGetParams_v2, node, length)
    }

    pub(crate) fn copy_params(&self, node: u64, length: usize) -> Result<Vec<u8>, Code> {
        self.node_params(id::cuGraphMemcpyNodeGetParams, node, length)
    }

    pub(crate) fn allocation_params(&self, node: u64, length: usize) -> Result<Vec<u8>, Code> {
        self.node_params(id::cuGraphMemAllocNodeGetParams, node, length)
    }

    /// The live address that a free node frees.
    pub(crate) fn freed_by(&self, node: u64) -> Result<u64, Code> {
        let mut address = 0u64;
        let place = &raw mut address as u64;
        self.own(id::cuGraphMemFreeNodeGetParams, &[node, place])?;
        Ok(address)
    }

    /// The elements of `CUstreamBatchMemOpParams` of a node of memory operations.
    pub(crate) fn operations_of(&self, node: u64) -> Result<Vec<u8>, Code> {
        use CUDA_BATCH_MEM_OP_NODE_PARAMS as Params;
        let params = self.node_params(
            id::cuGraphBatchMemOpNodeGetParams,
            node,
            size_of::<Params>(),
        )?;
        let count = word(&params, offset_of!(Params, count)) as u32 as usize;
        let array = word(&params, offset_of!(Params, paramArray));
        Ok(read_memory(
            array,
            count * size_of::<CUstreamBatchMemOpParams>(),
        ))
    }

    pub(crate) fn memset_params(&self, node: u64, length: usize) -> Result<Vec<u8>, Code> {
        self.node_params(id::cuGraphMemsetNodeGetParams, node, length)
    }

    /// The value of an attribute of a live kernel node.
    pub(crate) fn node_attribute(
        &self,
        node: u64,
        attribute: u32,
        length: usize,
    ) -> Result<Vec<u8>, Code> {
        let mut words = vec![0u64; length.div_ceil(8)];
        let args = [node, u64::from(attribute), words.as_mut_ptr() as u64];
        self.own(id::cuGraphKernelNodeGetAttribute, &args)?;
        Ok(words.iter().flat_map(|word| word.to_le_bytes()).collect())
    }

    /// Copies as a `CUDA_MEMCPY3D` describes.
    pub(crate) fn copy_described(&self, params: &[u8]) -> Result<(), Code> {
        let params = Buffer::of(params);
        self.own(id::cuMemcpy3D_v2, &[params.address()])
    }

    /// Sets memory.
    pub(crate) fn set_described(&self, memset: &Memset) -> Result<(), Code> {
        let &Memset {
            target,
            pitch,
            value,
            element,
            width,
            height,
        } = memset;
        let (line, plane) = match element {
            1 => (id::cuMemsetD8_v2, id::cuMemsetD2D8_v2),
            2 => (id::cuMemsetD16_v2, id::cuMemsetD2D16_v2),
            _ => (id::cuMemsetD32_v2, id::cuMemsetD2D32_v2),
        };
        match height {
            0 | 1 => self.own(line, &[target, value, width]),
            _ => self.own(plane, &[target, pitch, value, width, height]),
        }
    }

    /// Does memory operations in the default stream, by elements of `CUstreamBatchMemOpParams`.
    pub(crate) fn operate_on_memory(&self, operations: &[u8]) -> Result<(), Code> {
        let count = operations.len() / size_of::<CUstreamBatchMemOpParams>();
        let operations = Buffer::of(operations);
        let args = [0, count as u64, operations.address(), 0];
        self.own(id::cuStreamBatchMemOp_v2, &args)
    }

    /// Launches a live function or kernel in the default stream. `pointers` is an array of
    /// pointers to the parameters, `attributes` an array of `CUlaunchAttribute`.
    pub(crate) fn launch(
        &self,
        handle: u64,
        launch: &ObservedLaunch,
        pointers: u64,
        attributes: &[u8],
    ) -> Result<(), Code> {
        let attributes = Buffer::of(attributes);
        let count = launch.attributes.len() as u64;
        let numbers = [&launch.grid[..], &launch.block[..], &[launch.shared]].concat();
        if count == 0 {
            let mut args = vec![handle];
            args.extend(numbers.iter().map(|&number| u64::from(number)));
            args.extend([0, pointers, 0]);
            return self.own(id::cuLaunchKernel, &args);
        }
        // CUlaunchConfig: seven numbers and padding, the stream, the attributes and their count.
        let mut config: Vec<u8> = numbers.iter().flat_map(|word| word.to_le_bytes()).collect();
        config.resize(32, 0);
        for word in [0, attributes.address(), count] {
            config.extend(word.to_le_bytes());
        }
        let config = Buffer::of(&config);
        self.own(
            id::cuLaunchKernelEx,
            &[config.address(), handle, pointers, 0],
        )
    }
}
