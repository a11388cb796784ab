//! The work of graph nodes: built from the parameter structs of the API, and checked.

use cutape_driver::types::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_CONDITIONAL_NODE_PARAMS, CUDA_HOST_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY2D,
    CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUDA_MEMSET_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS_v2,
    CUgraphNodeParams,
};

use crate::call::answer::{Answer, INVALID_VALUE, NOT_SUPPORTED, invalid_if, reject_if, valid_if};
use crate::call::argument::In;
use crate::object::graph::Dependency;
use crate::object::memory::{DEVICE, PINNED, Purpose};
use crate::object::work::{
    ALLOCATE, BATCH, Batch, CHILD, CONDITION, COPY, EMPTY, FREE, HOST, KERNEL, KernelNode, MEMSET,
    RECORD, WAIT, Work,
};
use crate::state::State;
use crate::work::launch::{Parameters, Shape};
use crate::work::memory_operation::Operation;
use crate::work::{copy as copies, memset as memsets};

/// Most memory operations of one call (cuStreamBatchMemOp).
pub(crate) const MAX_OPERATIONS: u32 = 256;

/// A struct with some fields of another one, and the rest as given.
macro_rules! from_fields {
    ($target:ident from $source:expr; $($field:ident)*; $($rest:tt)*) => {{
        let source = $source;
        $target { $($field: source.$field,)* $($rest)* }
    }};
}

/// The same with the fields that all versions of `CUDA_KERNEL_NODE_PARAMS` have.
macro_rules! kernel_params {
    ($target:ident from $source:expr; $($rest:tt)*) => {
        from_fields!($target from $source;
            func gridDimX gridDimY gridDimZ blockDimX blockDimY blockDimZ
            sharedMemBytes kernelParams extra; $($rest)*)
    };
}

pub(crate) fn widen_kernel(params: CUDA_KERNEL_NODE_PARAMS_v1) -> CUDA_KERNEL_NODE_PARAMS {
    use std::ptr::null_mut;
    kernel_params!(CUDA_KERNEL_NODE_PARAMS from params; kern: null_mut(), ctx: null_mut())
}

pub(crate) fn narrow_kernel(params: CUDA_KERNEL_NODE_PARAMS) -> CUDA_KERNEL_NODE_PARAMS_v1 {
    kernel_params!(CUDA_KERNEL_NODE_PARAMS_v1 from params;)
}

pub(crate) fn widen_memset(
    params: CUDA_MEMSET_NODE_PARAMS,
    context: u64,
) -> CUDA_MEMSET_NODE_PARAMS_v2 {
    from_fields!(CUDA_MEMSET_NODE_PARAMS_v2 from params;
        dst pitch value elementSize width height; ctx: context as *mut _)
}

pub(crate) fn narrow_memset(params: &CUDA_MEMSET_NODE_PARAMS_v2) -> CUDA_MEMSET_NODE_PARAMS {
    from_fields!(CUDA_MEMSET_NODE_PARAMS from params; dst pitch value elementSize width height;)
}

/// A copy of rows as one of a single plane.
pub(crate) fn widen_copy(copy: CUDA_MEMCPY2D) -> CUDA_MEMCPY3D {
    from_fields!(CUDA_MEMCPY3D from copy;
        srcXInBytes srcY srcMemoryType srcHost srcDevice srcArray srcPitch
        dstXInBytes dstY dstMemoryType dstHost dstDevice dstArray dstPitch WidthInBytes Height;
        srcHeight: copy.Height, dstHeight: copy.Height, Depth: 1, ..CUDA_MEMCPY3D::default())
}

/// A copy between contexts as one without them.
pub(crate) fn widen_peer(copy: CUDA_MEMCPY3D_PEER) -> CUDA_MEMCPY3D {
    from_fields!(CUDA_MEMCPY3D from copy;
        srcXInBytes srcY srcZ srcMemoryType srcHost srcDevice srcArray srcPitch srcHeight
        dstXInBytes dstY dstZ dstMemoryType dstHost dstDevice dstArray dstPitch dstHeight
        WidthInBytes Height Depth; ..CUDA_MEMCPY3D::default())
}

/// A kernel launch, checked like one.
pub(crate) fn kernel(state: &mut State, params: CUDA_KERNEL_NODE_PARAMS) -> Answer<Work> {
    state.check_context(params.ctx as u64)?;
    let function = match params.func as u64 {
        0 => params.kern as u64,
        function => function,
    };
    let target = state.launchable(function)?;
    Shape::from(&params).check(&target)?;
    let given = Parameters {
        pointers: params.kernelParams as u64,
        extra: params.extra as u64,
    };
    let values = given.values(&target.spec)?;
    state.mark_loaded(function);
    Ok(Work::Kernel(Box::new(KernelNode::new(params, values))))
}

/// A copy. Memory that only the graph allocates is not checked.
pub(crate) fn copy(state: &State, params: CUDA_MEMCPY3D, context: u64) -> Answer<Work> {
    state.check_context(context)?;
    if !state.is_inactive(params.srcDevice) && !state.is_inactive(params.dstDevice) {
        copies::volume_moves(state, &params)?;
    }
    Ok(Work::Copy(params))
}

/// A memset. Memory that only the graph allocates is not checked.
pub(crate) fn memset(state: &State, params: CUDA_MEMSET_NODE_PARAMS_v2) -> Answer<Work> {
    state.check_context(params.ctx as u64)?;
    let is_empty = params.width == 0 || params.height == 0;
    invalid_if(!matches!(params.elementSize, 1 | 2 | 4) || is_empty)?;
    if !state.is_inactive(params.dst) {
        memsets::node_rows(state, &params)?;
    }
    Ok(Work::Memset(params))
}

/// A call of a host function.
pub(crate) fn host(params: CUDA_HOST_NODE_PARAMS) -> Answer<Work> {
    let entry = params.fn_.ok_or(INVALID_VALUE)? as usize as u64;
    let data = params.userData as u64;
    Ok(Work::Host { entry, data })
}

/// A copy of another graph as one node.
pub(crate) fn child(state: &mut State, graph: u64, child: u64) -> Answer<Work> {
    valid_if(graph != child)?;
    // Child graphs cannot have memory nodes unless they are moved into the node.
    reject_if(state.has_memory_nodes(child)?, NOT_SUPPORTED)?;
    Ok(Work::Child(state.copy_graph(child, Some(0))?))
}

/// Another graph as one node, which owns it.
fn moved_child(state: &State, child: u64) -> Answer<Work> {
    valid_if(state.graphs.find(child)?.owner.is_none())?;
    Ok(Work::Child(child))
}

pub(crate) fn record(state: &State, event: u64) -> Answer<Work> {
    state.event(event)?;
    Ok(Work::Record(event))
}

pub(crate) fn wait(state: &State, event: u64) -> Answer<Work> {
    state.event(event)?;
    Ok(Work::Wait(event))
}

/// A batch of memory operations.
pub(crate) fn batch(state: &State, params: CUDA_BATCH_MEM_OP_NODE_PARAMS) -> Answer<Work> {
    state.check_context(params.ctx as u64)?;
    let is_counted = (1..=MAX_OPERATIONS).contains(&params.count);
    invalid_if(!is_counted || params.flags != 0)?;
    let operations = In::at(params.paramArray as u64).list(params.count as usize)?;
    for operation in &operations {
        Operation::read(operation)?;
    }
    Ok(Work::Batch(Box::new(Batch {
        params,
        operations: operations.into(),
    })))
}

/// An allocation after those nodes: the address is chosen now, the memory is allocated when the
/// graph runs.
pub(crate) fn allocate(
    state: &mut State,
    after: &[Dependency],
    params: &mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Answer<Work> {
    let properties = &params.poolProps;
    let is_on_device = properties.allocType.0 == PINNED && properties.location.type_.0 == DEVICE;
    invalid_if(!is_on_device || params.bytesize == 0)?;
    let size = params.bytesize as u64;
    let address = match state.freed_before(after, size) {
        Some(address) => address,
        None => state.allocate(size, Purpose::Device, 0)?,
    };
    state.graph_addresses.insert(address);
    state.deactivate(address);
    params.dptr = address;
    let stored = CUDA_MEM_ALLOC_NODE_PARAMS {
        accessDescs: std::ptr::null(),
        accessDescCount: 0,
        ..*params
    };
    Ok(Work::Allocate(Box::new(stored)))
}

/// The end of an allocation of a graph; nodes cannot free other memory.
pub(crate) fn free(state: &State, address: u64) -> Answer<Work> {
    valid_if(state.graph_addresses.contains(&address))?;
    Ok(Work::Free(address))
}

/// A conditional node with its empty body graphs. WHILE needs kernels that end it, and none run
/// here.
fn condition(state: &mut State, params: &mut CUDA_CONDITIONAL_NODE_PARAMS) -> Answer<Work> {
    const IF: u32 = 0;
    const WHILE: u32 = 1;
    const SWITCH: u32 = 2;
    let kind = params.type_.0;
    let is_known = state.conditions.contains_key(&params.handle);
    invalid_if(!is_known || params.size == 0)?;
    match kind {
        WHILE => return Err(NOT_SUPPORTED),
        SWITCH if params.size <= 64 => {}
        IF if params.size <= 2 => {}
        _ => return Err(INVALID_VALUE),
    }
    let bodies = (0..params.size).map(|_| state.create_graph(Some(0)));
    let bodies = bodies.collect::<Answer<Box<[u64]>>>()?;
    params.phGraph_out = bodies.as_ptr() as *mut _;
    Ok(Work::Condition {
        handle: params.handle,
        kind,
        bodies,
    })
}

/// What `CUgraphNodeParams` describes; outputs are written into it.
pub(crate) fn from_params(
    state: &mut State,
    graph: u64,
    params: &mut CUgraphNodeParams,
) -> Answer<Work> {
    let body = &mut params.__bindgen_anon_1;
    // SAFETY: every member of the union is made of numbers and pointers, so any bytes are a value
    // of each; the function pointer of host nodes is `None` for NULL, and otherwise the program
    // gives a function.
    unsafe {
        match params.type_.0 {
            KERNEL => {
                let own = &body.kernel;
                let params = kernel_params!(CUDA_KERNEL_NODE_PARAMS from own;
                    kern: own.kern, ctx: own.ctx);
                kernel(state, params)
            }
            COPY => copy(state, body.memcpy.copyParams, body.memcpy.copyCtx as u64),
            MEMSET => memset(state, body.memset),
            HOST => host(from_fields!(CUDA_HOST_NODE_PARAMS from &body.host; fn_ userData;)),
            // CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE.
            CHILD if body.graph.ownership.0 == 1 => moved_child(state, body.graph.graph as u64),
            CHILD => child(state, graph, body.graph.graph as u64),
            EMPTY => Ok(Work::Empty),
            WAIT => wait(state, body.eventWait.event as u64),
            RECORD => record(state, body.eventRecord.event as u64),
            ALLOCATE => {
                let mut own = from_fields!(CUDA_MEM_ALLOC_NODE_PARAMS from &body.alloc;
                    poolProps accessDescs accessDescCount bytesize dptr;);
                let work = allocate(state, &[], &mut own)?;
                body.alloc.dptr = own.dptr;
                Ok(work)
            }
            FREE => free(state, body.free.dptr),
            BATCH => {
                let params = from_fields!(CUDA_BATCH_MEM_OP_NODE_PARAMS from &body.memOp;
                    ctx count paramArray flags;);
                batch(state, params)
            }
            CONDITION => condition(state, &mut body.conditional),
            _ => Err(NOT_SUPPORTED),
        }
    }
}
