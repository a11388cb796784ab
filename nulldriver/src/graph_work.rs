//! Graph Management: what nodes do, made from the structs that say it, and checked.

use std::collections::HashMap;

use cutape_driver::types::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_CONDITIONAL_NODE_PARAMS, CUDA_HOST_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D,
    CUDA_MEMSET_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS_v2, CUgraphNodeParams, CUgraphNodeType_enum,
    CUlaunchAttributeValue, CUstreamBatchMemOpParams,
};

use crate::answer::{Answer, INVALID_CONTEXT, INVALID_VALUE, NOT_SUPPORTED};
use crate::argument::{In, Out};
use crate::copy;
use crate::launch::{Shape, check_shape, parameter_values};
use crate::memory::Purpose;
use crate::memset;
use crate::state::{State, lock};

// Numbers of CUgraphNodeType.
pub(crate) const KERNEL: u32 = CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_KERNEL.0;
pub(crate) const COPY: u32 = CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_MEMCPY.0;
pub(crate) const SET: u32 = CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_MEMSET.0;
pub(crate) const HOST: u32 = CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_HOST.0;
pub(crate) const CHILD: u32 = CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_GRAPH.0;
pub(crate) const EMPTY: u32 = CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_EMPTY.0;
pub(crate) const WAIT: u32 = CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_WAIT_EVENT.0;
pub(crate) const RECORD: u32 = CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_EVENT_RECORD.0;
pub(crate) const ALLOCATE: u32 = CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_MEM_ALLOC.0;
pub(crate) const FREE: u32 = CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_MEM_FREE.0;
pub(crate) const OPERATIONS: u32 = CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP.0;
pub(crate) const CONDITION: u32 = CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_CONDITIONAL.0;

/// A kernel with its parameters, which the node owns.
pub(crate) struct Kernel {
    params: CUDA_KERNEL_NODE_PARAMS,
    values: Vec<Box<[u8]>>,
    /// Addresses of the values.
    pointers: Vec<u64>,
    pub(crate) attributes: HashMap<u32, CUlaunchAttributeValue>,
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel")
            .field("params", &self.params)
            .finish_non_exhaustive()
    }
}

impl Kernel {
    pub(crate) fn new(params: CUDA_KERNEL_NODE_PARAMS, values: Vec<Box<[u8]>>) -> Self {
        let pointers = values.iter().map(|value| value.as_ptr() as u64).collect();
        Kernel {
            params,
            values,
            pointers,
            attributes: HashMap::new(),
        }
    }

    pub(crate) fn params(&self) -> CUDA_KERNEL_NODE_PARAMS {
        CUDA_KERNEL_NODE_PARAMS {
            kernelParams: match self.pointers.is_empty() {
                true => std::ptr::null_mut(),
                false => self.pointers.as_ptr() as *mut _,
            },
            extra: std::ptr::null_mut(),
            ..self.params
        }
    }
}

/// Operations of a batch, which the node owns.
pub(crate) struct Batch {
    params: CUDA_BATCH_MEM_OP_NODE_PARAMS,
    pub(crate) operations: Box<[CUstreamBatchMemOpParams]>,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch")
            .field("params", &self.params)
            .finish_non_exhaustive()
    }
}

impl Batch {
    pub(crate) fn params(&self) -> CUDA_BATCH_MEM_OP_NODE_PARAMS {
        CUDA_BATCH_MEM_OP_NODE_PARAMS {
            paramArray: self.operations.as_ptr().cast_mut(),
            ..self.params
        }
    }
}

/// What a node does.
#[derive(Debug)]
pub(crate) enum Work {
    Kernel(Box<Kernel>),
    Copy(CUDA_MEMCPY3D, u64),
    Set(CUDA_MEMSET_NODE_PARAMS_v2),
    Host {
        entry: u64,
        data: u64,
    },
    Child(u64),
    Empty,
    Record(u64),
    Wait(u64),
    Allocate(Box<CUDA_MEM_ALLOC_NODE_PARAMS>),
    Free(u64),
    Operations(Box<Batch>),
    /// Handle, kind, and body graphs in memory that the program was given a pointer to.
    Condition {
        handle: u64,
        kind: u32,
        bodies: Box<[u64]>,
    },
}

impl Work {
    /// CUgraphNodeType.
    pub(crate) fn kind(&self) -> u32 {
        match self {
            Work::Kernel(_) => KERNEL,
            Work::Copy(..) => COPY,
            Work::Set(_) => SET,
            Work::Host { .. } => HOST,
            Work::Child(_) => CHILD,
            Work::Empty => EMPTY,
            Work::Record(_) => RECORD,
            Work::Wait(_) => WAIT,
            Work::Allocate(_) => ALLOCATE,
            Work::Free(_) => FREE,
            Work::Operations(_) => OPERATIONS,
            Work::Condition { .. } => CONDITION,
        }
    }

    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, Work::Allocate(_) | Work::Free(_))
    }

    /// The graphs in the node.
    pub(crate) fn inner_graphs(&self) -> Vec<u64> {
        match self {
            Work::Child(child) => vec![*child],
            Work::Condition { bodies, .. } => bodies.to_vec(),
            _ => Vec::new(),
        }
    }

    /// Exchanges the graphs in the node for as many others.
    pub(crate) fn set_inner_graphs(&mut self, graphs: Vec<u64>) {
        match self {
            Work::Child(child) => *child = graphs.first().copied().unwrap_or(*child),
            Work::Condition { bodies, .. } => *bodies = graphs.into(),
            _ => {}
        }
    }

    /// The same work in memory of its own; the graphs in it are still those of the original.
    pub(crate) fn duplicate(&self) -> Work {
        match self {
            Work::Kernel(kernel) => {
                let mut copy = Kernel::new(kernel.params, kernel.values.clone());
                copy.attributes = kernel.attributes.clone();
                Work::Kernel(Box::new(copy))
            }
            Work::Copy(params, context) => Work::Copy(*params, *context),
            Work::Set(params) => Work::Set(*params),
            Work::Host { entry, data } => Work::Host {
                entry: *entry,
                data: *data,
            },
            Work::Child(child) => Work::Child(*child),
            Work::Empty => Work::Empty,
            Work::Record(event) => Work::Record(*event),
            Work::Wait(event) => Work::Wait(*event),
            Work::Allocate(params) => Work::Allocate(params.clone()),
            Work::Free(address) => Work::Free(*address),
            Work::Operations(batch) => Work::Operations(Box::new(Batch {
                params: batch.params,
                operations: batch.operations.clone(),
            })),
            Work::Condition {
                handle,
                kind,
                bodies,
            } => Work::Condition {
                handle: *handle,
                kind: *kind,
                bodies: bodies.clone(),
            },
        }
    }
}

impl State {
    pub(crate) fn kernel_params(&self, node: u64) -> Answer<CUDA_KERNEL_NODE_PARAMS> {
        match &self.node(node)?.work {
            Work::Kernel(kernel) => Ok(kernel.params()),
            _ => Err(INVALID_VALUE),
        }
    }

    pub(crate) fn kernel_node(&mut self, node: u64) -> Answer<&mut Kernel> {
        match &mut self.node_mut(node)?.work {
            Work::Kernel(kernel) => Ok(kernel),
            _ => Err(INVALID_VALUE),
        }
    }

    /// Whether a graph has nodes that allocate or free, those within it included.
    pub(crate) fn has_memory_nodes(&self, graph: u64) -> Answer<bool> {
        for node in &self.graph(graph)?.nodes {
            let work = &self.node(*node)?.work;
            if work.is_memory() {
                return Ok(true);
            }
            for inner in work.inner_graphs() {
                if self.has_memory_nodes(inner)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Whether an address lies in memory of graphs that is not allocated at the moment.
    fn is_parked(&self, address: u64) -> bool {
        let before = self.graphs.parked.range(..=address).next_back();
        before.is_some_and(|(base, allocation)| address - base < allocation.size)
    }

    /// Takes memory of graphs out of use, its address being kept; whether it is such memory.
    pub(crate) fn park(&mut self, address: u64) -> bool {
        if !self.graphs.addresses.contains(&address) {
            return false;
        }
        if let Some(allocation) = self.allocations.remove(&address) {
            self.graphs.parked.insert(address, allocation);
        }
        true
    }
}

pub(crate) fn widen(params: CUDA_KERNEL_NODE_PARAMS_v1) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: params.func,
        gridDimX: params.gridDimX,
        gridDimY: params.gridDimY,
        gridDimZ: params.gridDimZ,
        blockDimX: params.blockDimX,
        blockDimY: params.blockDimY,
        blockDimZ: params.blockDimZ,
        sharedMemBytes: params.sharedMemBytes,
        kernelParams: params.kernelParams,
        extra: params.extra,
        kern: std::ptr::null_mut(),
        ctx: std::ptr::null_mut(),
    }
}

pub(crate) fn check_context(state: &State, context: u64) -> Answer {
    if context == 0 {
        state.current().map(|_| ())
    } else if state.contexts.contains_key(&context) {
        Ok(())
    } else {
        Err(INVALID_CONTEXT)
    }
}

/// A kernel node; everything is checked as for a launch.
pub(crate) fn kernel(state: &mut State, params: CUDA_KERNEL_NODE_PARAMS) -> Answer<Work> {
    check_context(state, params.ctx as u64)?;
    let function = match params.func as u64 {
        0 => params.kern as u64,
        function => function,
    };
    let target = state.launchable(function)?;
    let shape = Shape {
        grid: [params.gridDimX, params.gridDimY, params.gridDimZ],
        block: [params.blockDimX, params.blockDimY, params.blockDimZ],
        shared: params.sharedMemBytes,
    };
    check_shape(&target, &shape)?;
    let values = parameter_values(
        &target.spec,
        params.kernelParams as u64,
        params.extra as u64,
    )?;
    state.mark_loaded(function);
    Ok(Work::Kernel(Box::new(Kernel::new(params, values))))
}

/// A copy; memory that only the graph allocates is not looked at before.
pub(crate) fn copying(state: &State, params: CUDA_MEMCPY3D, context: u64) -> Answer<Work> {
    check_context(state, context)?;
    if !state.is_parked(params.srcDevice) && !state.is_parked(params.dstDevice) {
        copy::volume_moves(state, &params)?;
    }
    Ok(Work::Copy(params, context))
}

pub(crate) fn with_context(
    params: CUDA_MEMSET_NODE_PARAMS,
    context: u64,
) -> CUDA_MEMSET_NODE_PARAMS_v2 {
    CUDA_MEMSET_NODE_PARAMS_v2 {
        dst: params.dst,
        pitch: params.pitch,
        value: params.value,
        elementSize: params.elementSize,
        width: params.width,
        height: params.height,
        ctx: context as *mut _,
    }
}

/// A memset.
pub(crate) fn setting(state: &State, params: CUDA_MEMSET_NODE_PARAMS_v2) -> Answer<Work> {
    check_context(state, params.ctx as u64)?;
    if !matches!(params.elementSize, 1 | 2 | 4) || params.width == 0 || params.height == 0 {
        return Err(INVALID_VALUE);
    }
    if !state.is_parked(params.dst) {
        memset::node_rows(state, &params)?;
    }
    Ok(Work::Set(params))
}

pub(crate) fn host(params: CUDA_HOST_NODE_PARAMS) -> Answer<Work> {
    let entry = params.fn_.map_or(0, |function| function as usize as u64);
    if entry == 0 {
        return Err(INVALID_VALUE);
    }
    let data = params.userData as u64;
    Ok(Work::Host { entry, data })
}

pub(crate) fn child_of(state: &mut State, graph: u64, child: u64) -> Answer<Work> {
    if graph == child {
        return Err(INVALID_VALUE);
    }
    if state.has_memory_nodes(child)? {
        // Child graphs cannot have memory nodes unless they are moved into the node.
        return Err(NOT_SUPPORTED);
    }
    Ok(Work::Child(state.copy_graph(child, Some(0))?))
}

pub(crate) fn operations(state: &State, params: CUDA_BATCH_MEM_OP_NODE_PARAMS) -> Answer<Work> {
    check_context(state, params.ctx as u64)?;
    if params.count == 0 || params.count > 256 || params.flags != 0 {
        return Err(INVALID_VALUE);
    }
    let list = In::at(params.paramArray as u64).list(params.count as usize)?;
    batch(params, list)
}

fn batch(
    params: CUDA_BATCH_MEM_OP_NODE_PARAMS,
    list: Vec<CUstreamBatchMemOpParams>,
) -> Answer<Work> {
    for operation in &list {
        // SAFETY: the first member of all variants is the operation's number.
        let kind = unsafe { operation.operation.0 };
        // A wait cannot be carried out unless it is fulfilled when it is met.
        if !matches!(kind, 2 | 3 | 5 | 6) {
            return Err(if matches!(kind, 1 | 4) {
                NOT_SUPPORTED
            } else {
                INVALID_VALUE
            });
        }
    }
    Ok(Work::Operations(Box::new(Batch {
        params,
        operations: list.into(),
    })))
}

/// An allocation: the address is chosen now, the memory is there while the graph says so.
pub(crate) fn allocation(
    state: &mut State,
    params: &mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Answer<Work> {
    let properties = &params.poolProps;
    if properties.allocType.0 != 1 || properties.location.type_.0 != 1 || params.bytesize == 0 {
        return Err(INVALID_VALUE);
    }
    let address = state.allocate(params.bytesize as u64, Purpose::Device, 0)?;
    state.graphs.addresses.insert(address);
    state.park(address);
    params.dptr = address;
    let stored = CUDA_MEM_ALLOC_NODE_PARAMS {
        accessDescs: std::ptr::null(),
        accessDescCount: 0,
        ..*params
    };
    Ok(Work::Allocate(Box::new(stored)))
}

/// The end of an allocation of a graph; other memory cannot be freed by nodes.
pub(crate) fn freeing(state: &State, address: u64) -> Answer<Work> {
    if state.graphs.addresses.contains(&address) {
        Ok(Work::Free(address))
    } else {
        Err(INVALID_VALUE)
    }
}

pub(crate) fn create_condition(
    handle: Out<u64>,
    graph: u64,
    context: u64,
    value: u32,
    flags: u32,
) -> Answer {
    // CU_GRAPH_COND_ASSIGN_DEFAULT
    const ASSIGN: u32 = 1;
    handle.check()?;
    let mut state = lock();
    state.graph(graph)?;
    check_context(&state, context)?;
    if flags & !ASSIGN != 0 {
        return Err(INVALID_VALUE);
    }
    let id = state.new_id();
    let default = (flags & ASSIGN != 0).then_some(value);
    state.graphs.conditions.insert(id, default);
    handle.set(id)
}

/// A conditional node with its empty body graphs. WHILE asks for kernels that end it, and none run here.
fn condition(state: &mut State, params: &mut CUDA_CONDITIONAL_NODE_PARAMS) -> Answer<Work> {
    const WHILE: u32 = 1;
    const SWITCH: u32 = 2;
    let kind = params.type_.0;
    if !state.graphs.conditions.contains_key(&params.handle) || params.size == 0 {
        return Err(INVALID_VALUE);
    }
    match kind {
        WHILE => return Err(NOT_SUPPORTED),
        SWITCH if params.size <= 64 => {}
        0 if params.size <= 2 => {}
        _ => return Err(INVALID_VALUE),
    }
    let bodies: Answer<Box<[u64]>> = (0..params.size)
        .map(|_| state.make_graph(Some(0)))
        .collect();
    let bodies = bodies?;
    params.phGraph_out = bodies.as_ptr() as *mut _;
    Ok(Work::Condition {
        handle: params.handle,
        kind,
        bodies,
    })
}

/// What `CUgraphNodeParams` describes; outputs are put into it.
pub(crate) fn any(state: &mut State, graph: u64, params: &mut CUgraphNodeParams) -> Answer<Work> {
    let body = &mut params.__bindgen_anon_1;
    // SAFETY: every member of the union is made of numbers and pointers, so any bytes are a value of each, but for the
    // function pointer of host nodes, for which NULL is `None` and anything else the program's word for a function.
    unsafe {
        match params.type_.0 {
            KERNEL => {
                let params = widen_any(&body.kernel);
                kernel(state, params)
            }
            COPY => copying(state, body.memcpy.copyParams, body.memcpy.copyCtx as u64),
            SET => setting(state, body.memset),
            HOST => host(CUDA_HOST_NODE_PARAMS {
                fn_: body.host.fn_,
                userData: body.host.userData,
            }),
            CHILD => child_of(state, graph, body.graph.graph as u64),
            EMPTY => Ok(Work::Empty),
            WAIT => {
                let event = body.eventWait.event as u64;
                state.event(event).map(|_| Work::Wait(event))
            }
            RECORD => {
                let event = body.eventRecord.event as u64;
                state.event(event).map(|_| Work::Record(event))
            }
            ALLOCATE => {
                let mut own = as_first(&body.alloc);
                let work = allocation(state, &mut own)?;
                body.alloc.dptr = own.dptr;
                Ok(work)
            }
            FREE => freeing(state, body.free.dptr),
            OPERATIONS => {
                let own = &body.memOp;
                let params = CUDA_BATCH_MEM_OP_NODE_PARAMS {
                    ctx: own.ctx,
                    count: own.count,
                    paramArray: own.paramArray,
                    flags: own.flags,
                };
                operations(state, params)
            }
            CONDITION => condition(state, &mut body.conditional),
            _ => Err(NOT_SUPPORTED),
        }
    }
}

fn widen_any(params: &cutape_driver::types::CUDA_KERNEL_NODE_PARAMS_v3) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: params.func,
        gridDimX: params.gridDimX,
        gridDimY: params.gridDimY,
        gridDimZ: params.gridDimZ,
        blockDimX: params.blockDimX,
        blockDimY: params.blockDimY,
        blockDimZ: params.blockDimZ,
        sharedMemBytes: params.sharedMemBytes,
        kernelParams: params.kernelParams,
        extra: params.extra,
        kern: params.kern,
        ctx: params.ctx,
    }
}

fn as_first(
    params: &cutape_driver::types::CUDA_MEM_ALLOC_NODE_PARAMS_v2,
) -> CUDA_MEM_ALLOC_NODE_PARAMS {
    CUDA_MEM_ALLOC_NODE_PARAMS {
        poolProps: params.poolProps,
        accessDescs: params.accessDescs,
        accessDescCount: params.accessDescCount,
        bytesize: params.bytesize,
        dptr: params.dptr,
    }
}
