//! What graph nodes and host functions do.

use std::collections::HashMap;

use cutape_driver::types::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS,
    CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS_v2, CUgraphNodeType_enum as NodeType,
    CUlaunchAttributeValue, CUstreamBatchMemOpParams,
};

// CUgraphNodeType.
pub(crate) const KERNEL: u32 = NodeType::CU_GRAPH_NODE_TYPE_KERNEL.0;
pub(crate) const COPY: u32 = NodeType::CU_GRAPH_NODE_TYPE_MEMCPY.0;
pub(crate) const MEMSET: u32 = NodeType::CU_GRAPH_NODE_TYPE_MEMSET.0;
pub(crate) const HOST: u32 = NodeType::CU_GRAPH_NODE_TYPE_HOST.0;
pub(crate) const CHILD: u32 = NodeType::CU_GRAPH_NODE_TYPE_GRAPH.0;
pub(crate) const EMPTY: u32 = NodeType::CU_GRAPH_NODE_TYPE_EMPTY.0;
pub(crate) const WAIT: u32 = NodeType::CU_GRAPH_NODE_TYPE_WAIT_EVENT.0;
pub(crate) const RECORD: u32 = NodeType::CU_GRAPH_NODE_TYPE_EVENT_RECORD.0;
pub(crate) const ALLOCATE: u32 = NodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC.0;
pub(crate) const FREE: u32 = NodeType::CU_GRAPH_NODE_TYPE_MEM_FREE.0;
pub(crate) const BATCH: u32 = NodeType::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP.0;
pub(crate) const CONDITION: u32 = NodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL.0;

/// A function of the program and its arguments.
#[derive(Clone, Copy)]
pub(crate) enum HostFunction {
    /// `CUhostFn`.
    Function { entry: u64, data: u64 },
    /// `CUstreamCallback`.
    Callback { entry: u64, stream: u64, data: u64 },
}

/// A kernel launch with its parameter values, which the node owns.
pub(crate) struct KernelNode {
    params: CUDA_KERNEL_NODE_PARAMS,
    values: Vec<Box<[u8]>>,
    /// Addresses of the values.
    pointers: Vec<u64>,
    pub(crate) attributes: HashMap<u32, CUlaunchAttributeValue>,
}

impl KernelNode {
    pub(crate) fn new(params: CUDA_KERNEL_NODE_PARAMS, values: Vec<Box<[u8]>>) -> Self {
        let pointers = values.iter().map(|value| value.as_ptr() as u64).collect();
        KernelNode {
            params,
            values,
            pointers,
            attributes: HashMap::new(),
        }
    }

    /// The bytes of the kernel's parameters.
    pub(crate) fn values(&self) -> &[Box<[u8]>] {
        &self.values
    }

    /// The parameters with pointers to the node's own values.
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

impl Clone for KernelNode {
    fn clone(&self) -> Self {
        KernelNode {
            attributes: self.attributes.clone(),
            ..KernelNode::new(self.params, self.values.clone())
        }
    }
}

/// Memory operations, which the node owns.
#[derive(Clone)]
pub(crate) struct Batch {
    pub(crate) params: CUDA_BATCH_MEM_OP_NODE_PARAMS,
    pub(crate) operations: Box<[CUstreamBatchMemOpParams]>,
}

impl Batch {
    /// The parameters with a pointer to the node's own operations.
    pub(crate) fn params(&self) -> CUDA_BATCH_MEM_OP_NODE_PARAMS {
        CUDA_BATCH_MEM_OP_NODE_PARAMS {
            paramArray: self.operations.as_ptr().cast_mut(),
            ..self.params
        }
    }
}

/// What a node does. A clone has memory of its own; the graphs in it are still those of the
/// original.
#[derive(Clone)]
pub(crate) enum Work {
    Kernel(Box<KernelNode>),
    Copy(CUDA_MEMCPY3D),
    Memset(CUDA_MEMSET_NODE_PARAMS_v2),
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
    Batch(Box<Batch>),
    Condition {
        handle: u64,
        kind: u32,
        /// Body graphs; the program was given a pointer to this array.
        bodies: Box<[u64]>,
    },
}

impl Work {
    /// `CUgraphNodeType`.
    pub(crate) fn kind(&self) -> u32 {
        match self {
            Work::Kernel(_) => KERNEL,
            Work::Copy(_) => COPY,
            Work::Memset(_) => MEMSET,
            Work::Host { .. } => HOST,
            Work::Child(_) => CHILD,
            Work::Empty => EMPTY,
            Work::Record(_) => RECORD,
            Work::Wait(_) => WAIT,
            Work::Allocate(_) => ALLOCATE,
            Work::Free(_) => FREE,
            Work::Batch(_) => BATCH,
            Work::Condition { .. } => CONDITION,
        }
    }

    /// Whether the node allocates or frees memory.
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

    /// Replaces the graphs in the node by as many others.
    pub(crate) fn set_inner_graphs(&mut self, graphs: Vec<u64>) {
        match self {
            Work::Child(child) => *child = graphs.first().copied().unwrap_or(*child),
            Work::Condition { bodies, .. } => *bodies = graphs.into(),
            _ => {}
        }
    }
}
