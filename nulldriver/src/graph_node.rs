//! Graph Management: making nodes, and asking for and changing what they do.

use cutape_driver::types::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
    CUgraphNodeParams, CUlaunchAttributeValue,
};

use crate::answer::{Answer, INVALID_VALUE, NOT_SUPPORTED};
use crate::argument::{In, Out};
use crate::dispatch::{Entry, bind};
use crate::graph::{Edge, dependencies};
use crate::graph_work::{
    ALLOCATE, CONDITION, FREE, Work, allocation, any, child_of, copying, create_condition, freeing,
    host, kernel, operations, setting, widen, with_context,
};
use crate::state::{State, lock};

pub(crate) const ENTRIES: &[Entry] = &[
    (
        "=cuGraphAddKernelNode",
        bind(
            |n: Out<u64>, g: u64, d: In<u64>, c: usize, p: In<CUDA_KERNEL_NODE_PARAMS_v1>| {
                add(n, g, d, c, |state| kernel(state, widen(p.get()?)))
            },
        ),
    ),
    (
        "=cuGraphAddKernelNode_v2",
        bind(
            |n: Out<u64>, g: u64, d: In<u64>, c: usize, p: In<CUDA_KERNEL_NODE_PARAMS>| {
                add(n, g, d, c, |state| kernel(state, p.get()?))
            },
        ),
    ),
    (
        "=cuGraphKernelNodeGetParams",
        bind(|node: u64, out: Out<CUDA_KERNEL_NODE_PARAMS_v1>| {
            out.check()?;
            let params = lock().kernel_params(node)?;
            out.set(CUDA_KERNEL_NODE_PARAMS_v1 {
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
            })
        }),
    ),
    (
        "=cuGraphKernelNodeGetParams_v2",
        bind(|node: u64, out: Out<CUDA_KERNEL_NODE_PARAMS>| {
            out.check()?;
            out.set(lock().kernel_params(node)?)
        }),
    ),
    (
        "=cuGraphKernelNodeSetParams",
        bind(|node: u64, p: In<CUDA_KERNEL_NODE_PARAMS_v1>| {
            change(node, |state| kernel(state, widen(p.get()?)))
        }),
    ),
    (
        "=cuGraphKernelNodeSetParams_v2",
        bind(|node: u64, p: In<CUDA_KERNEL_NODE_PARAMS>| {
            change(node, |state| kernel(state, p.get()?))
        }),
    ),
    ("cuGraphKernelNodeSetAttribute", bind(set_attribute)),
    ("cuGraphKernelNodeGetAttribute", bind(get_attribute)),
    ("cuGraphKernelNodeCopyAttributes", bind(copy_attributes)),
    (
        "cuGraphAddMemcpyNode",
        bind(
            |n: Out<u64>, g: u64, d: In<u64>, c: usize, p: In<CUDA_MEMCPY3D>, context: u64| {
                add(n, g, d, c, |state| copying(state, p.get()?, context))
            },
        ),
    ),
    (
        "cuGraphMemcpyNodeGetParams",
        bind(
            |node: u64, out: Out<CUDA_MEMCPY3D>| match lock().node(node)?.work {
                Work::Copy(params, _) => out.set(params),
                _ => Err(INVALID_VALUE),
            },
        ),
    ),
    (
        "cuGraphMemcpyNodeSetParams",
        bind(|node: u64, p: In<CUDA_MEMCPY3D>| {
            change(node, |state| {
                let context = state.current()?;
                copying(state, p.get()?, context)
            })
        }),
    ),
    (
        "cuGraphAddMemsetNode",
        bind(
            |n: Out<u64>,
             g: u64,
             d: In<u64>,
             c: usize,
             p: In<CUDA_MEMSET_NODE_PARAMS>,
             context: u64| {
                add(n, g, d, c, |state| {
                    setting(state, with_context(p.get()?, context))
                })
            },
        ),
    ),
    (
        "cuGraphMemsetNodeGetParams",
        bind(
            |node: u64, out: Out<CUDA_MEMSET_NODE_PARAMS>| match &lock().node(node)?.work {
                Work::Set(params) => out.set(CUDA_MEMSET_NODE_PARAMS {
                    dst: params.dst,
                    pitch: params.pitch,
                    value: params.value,
                    elementSize: params.elementSize,
                    width: params.width,
                    height: params.height,
                }),
                _ => Err(INVALID_VALUE),
            },
        ),
    ),
    (
        "cuGraphMemsetNodeSetParams",
        bind(|node: u64, p: In<CUDA_MEMSET_NODE_PARAMS>| {
            change(node, |state| {
                let context = state.current()?;
                setting(state, with_context(p.get()?, context))
            })
        }),
    ),
    (
        "cuGraphAddHostNode",
        bind(
            |n: Out<u64>, g: u64, d: In<u64>, c: usize, p: In<CUDA_HOST_NODE_PARAMS>| {
                add(n, g, d, c, |_| host(p.get()?))
            },
        ),
    ),
    (
        "cuGraphHostNodeGetParams",
        bind(
            |node: u64, out: Out<[u64; 2]>| match lock().node(node)?.work {
                Work::Host { entry, data } => out.set([entry, data]),
                _ => Err(INVALID_VALUE),
            },
        ),
    ),
    (
        "cuGraphHostNodeSetParams",
        bind(|node: u64, p: In<CUDA_HOST_NODE_PARAMS>| change(node, |_| host(p.get()?))),
    ),
    (
        "cuGraphAddEmptyNode",
        bind(|n: Out<u64>, g: u64, d: In<u64>, c: usize| add(n, g, d, c, |_| Ok(Work::Empty))),
    ),
    (
        "cuGraphAddChildGraphNode",
        bind(|n: Out<u64>, g: u64, d: In<u64>, c: usize, child: u64| {
            add(n, g, d, c, |state| child_of(state, g, child))
        }),
    ),
    (
        "cuGraphChildGraphNodeGetGraph",
        bind(|node: u64, graph: Out<u64>| match lock().node(node)?.work {
            Work::Child(child) => graph.set(child),
            _ => Err(INVALID_VALUE),
        }),
    ),
    (
        "cuGraphAddEventRecordNode",
        bind(|n: Out<u64>, g: u64, d: In<u64>, c: usize, event: u64| {
            add(n, g, d, c, |state| {
                state.event(event).map(|_| Work::Record(event))
            })
        }),
    ),
    (
        "cuGraphAddEventWaitNode",
        bind(|n: Out<u64>, g: u64, d: In<u64>, c: usize, event: u64| {
            add(n, g, d, c, |state| {
                state.event(event).map(|_| Work::Wait(event))
            })
        }),
    ),
    (
        "cuGraphEventRecordNodeGetEvent",
        bind(|node: u64, event: Out<u64>| match lock().node(node)?.work {
            Work::Record(of) => event.set(of),
            _ => Err(INVALID_VALUE),
        }),
    ),
    (
        "cuGraphEventWaitNodeGetEvent",
        bind(|node: u64, event: Out<u64>| match lock().node(node)?.work {
            Work::Wait(of) => event.set(of),
            _ => Err(INVALID_VALUE),
        }),
    ),
    (
        "cuGraphEventRecordNodeSetEvent",
        bind(|node: u64, event: u64| {
            change(node, |state| {
                state.event(event).map(|_| Work::Record(event))
            })
        }),
    ),
    (
        "cuGraphEventWaitNodeSetEvent",
        bind(|node: u64, event: u64| {
            change(node, |state| state.event(event).map(|_| Work::Wait(event)))
        }),
    ),
    (
        "cuGraphAddBatchMemOpNode",
        bind(
            |n: Out<u64>, g: u64, d: In<u64>, c: usize, p: In<CUDA_BATCH_MEM_OP_NODE_PARAMS>| {
                add(n, g, d, c, |state| operations(state, p.get()?))
            },
        ),
    ),
    (
        "cuGraphBatchMemOpNodeGetParams",
        bind(
            |node: u64, out: Out<CUDA_BATCH_MEM_OP_NODE_PARAMS>| match &lock().node(node)?.work {
                Work::Operations(batch) => out.set(batch.params()),
                _ => Err(INVALID_VALUE),
            },
        ),
    ),
    (
        "cuGraphBatchMemOpNodeSetParams",
        bind(|node: u64, p: In<CUDA_BATCH_MEM_OP_NODE_PARAMS>| {
            change(node, |state| operations(state, p.get()?))
        }),
    ),
    (
        "cuGraphAddMemAllocNode",
        bind(
            |n: Out<u64>, g: u64, d: In<u64>, c: usize, p: Out<CUDA_MEM_ALLOC_NODE_PARAMS>| {
                let mut params = p.get()?;
                add(n, g, d, c, |state| allocation(state, &mut params))?;
                p.set(params)
            },
        ),
    ),
    (
        "cuGraphMemAllocNodeGetParams",
        bind(
            |node: u64, out: Out<CUDA_MEM_ALLOC_NODE_PARAMS>| match &lock().node(node)?.work {
                Work::Allocate(params) => out.set(**params),
                _ => Err(INVALID_VALUE),
            },
        ),
    ),
    (
        "cuGraphAddMemFreeNode",
        bind(|n: Out<u64>, g: u64, d: In<u64>, c: usize, address: u64| {
            add(n, g, d, c, |state| freeing(state, address))
        }),
    ),
    (
        "cuGraphMemFreeNodeGetParams",
        bind(|node: u64, out: Out<u64>| match lock().node(node)?.work {
            Work::Free(address) => out.set(address),
            _ => Err(INVALID_VALUE),
        }),
    ),
    ("cuGraphConditionalHandleCreate", bind(create_condition)),
    (
        "=cuGraphAddNode",
        bind(
            |n: Out<u64>, g: u64, d: In<u64>, c: usize, p: Out<CUgraphNodeParams>| {
                add_any(n, g, d, In::at(0), c, p)
            },
        ),
    ),
    ("=cuGraphAddNode_v2", bind(add_any)),
    (
        "cuGraphNodeSetParams",
        bind(|node: u64, p: Out<CUgraphNodeParams>| {
            let mut params = p.get()?;
            change(node, |state| any(state, 0, &mut params))
        }),
    ),
];

/// Adds a node.
fn add(
    node: Out<u64>,
    graph: u64,
    list: In<u64>,
    count: usize,
    work: impl FnOnce(&mut State) -> Answer<Work>,
) -> Answer {
    node.check()?;
    let after = dependencies(list, In::at(0), count)?;
    let mut state = lock();
    state.graph(graph)?;
    let work = work(&mut state)?;
    add_to(&mut state, node, graph, after, work)
}

fn add_to(
    state: &mut State,
    node: Out<u64>,
    graph: u64,
    after: Vec<(u64, Edge)>,
    work: Work,
) -> Answer {
    let inner = work.inner_graphs();
    let handle = state.add_node(graph, after, work)?;
    for inner in inner {
        if let Some(inner) = state.graphs.graphs.get_mut(&inner) {
            inner.owner = Some(handle);
        }
    }
    node.set(handle)
}

/// Gives a node other parameters of the same kind.
fn change(node: u64, work: impl FnOnce(&mut State) -> Answer<Work>) -> Answer {
    let mut state = lock();
    let kind = state.node(node)?.work.kind();
    let mut work = work(&mut state)?;
    if work.kind() != kind || matches!(kind, ALLOCATE | FREE | CONDITION) {
        return Err(INVALID_VALUE);
    }
    let node = state.node_mut(node)?;
    if let (Work::Kernel(old), Work::Kernel(new)) = (&mut node.work, &mut work) {
        new.attributes = std::mem::take(&mut old.attributes);
    }
    node.work = work;
    Ok(())
}

fn add_any(
    node: Out<u64>,
    graph: u64,
    list: In<u64>,
    data: In<Edge>,
    count: usize,
    params: Out<CUgraphNodeParams>,
) -> Answer {
    node.check()?;
    let mut given = params.get()?;
    let after = dependencies(list, data, count)?;
    let mut state = lock();
    state.graph(graph)?;
    let work = any(&mut state, graph, &mut given)?;
    add_to(&mut state, node, graph, after, work)?;
    params.set(given)
}

/// COOPERATIVE, PRIORITY and the memory domains; device-updatable nodes are not there.
fn check_attribute(attribute: u32) -> Answer {
    match attribute {
        1 | 2 | 4 | 5 | 8..=11 | 14 => Ok(()),
        13 => Err(NOT_SUPPORTED),
        _ => Err(INVALID_VALUE),
    }
}

fn set_attribute(node: u64, attribute: u32, value: In<CUlaunchAttributeValue>) -> Answer {
    let mut state = lock();
    let kernel = state.kernel_node(node)?;
    check_attribute(attribute)?;
    kernel.attributes.insert(attribute, value.get()?);
    Ok(())
}

fn get_attribute(node: u64, attribute: u32, value: Out<CUlaunchAttributeValue>) -> Answer {
    let mut state = lock();
    let kernel = state.kernel_node(node)?;
    value.check()?;
    check_attribute(attribute)?;
    // SAFETY: the union consists of integers, floats and pointers, for which all-zero bytes are valid.
    let none = unsafe { std::mem::zeroed() };
    value.set(kernel.attributes.get(&attribute).copied().unwrap_or(none))
}

fn copy_attributes(to: u64, from: u64) -> Answer {
    let mut state = lock();
    let attributes = state.kernel_node(from)?.attributes.clone();
    state.kernel_node(to)?.attributes = attributes;
    Ok(())
}
