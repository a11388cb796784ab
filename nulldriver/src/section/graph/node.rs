//! Graph Management: creating nodes, and reading and changing what they do.

use cutape_driver::types::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
    CUgraphNodeParams, CUlaunchAttributeValue,
};

use crate::call::answer::{Answer, INVALID_VALUE, NOT_SUPPORTED, invalid_if};
use crate::call::argument::{In, Out, arguments};
use crate::call::entry::entries;
use crate::object::graph::{Edge, read_dependencies};
use crate::object::work::{ALLOCATE, CONDITION, FREE, KernelNode, Work};
use crate::state::{Locked, State, lock};
use crate::work::node;

type KernelParams = CUDA_KERNEL_NODE_PARAMS;
type KernelParamsV1 = CUDA_KERNEL_NODE_PARAMS_v1;
type BatchParams = CUDA_BATCH_MEM_OP_NODE_PARAMS;

/// What a node of one kind does, of any other kind nothing.
macro_rules! only {
    ($work:pat => $value:expr) => {
        |work| match work {
            $work => Some($value),
            _ => None,
        }
    };
}

entries! {
    [symbol] cuGraphAddKernelNode: |new: NewNode, p: In<KernelParamsV1>|
        new.add(|state| node::kernel(state, node::widen_kernel(p.get()?)));
    [symbol] cuGraphAddKernelNode_v2: |new: NewNode, p: In<KernelParams>|
        new.add(|state| node::kernel(state, p.get()?));
    [symbol] cuGraphKernelNodeGetParams: |node: u64, out: Out<KernelParamsV1>| {
        out.check()?;
        out.set(node::narrow_kernel(kernel(&mut lock(), node)?.params()))
    };
    [symbol] cuGraphKernelNodeGetParams_v2: |node: u64, out: Out<KernelParams>| {
        out.check()?;
        out.set(kernel(&mut lock(), node)?.params())
    };
    [symbol] cuGraphKernelNodeSetParams: |node: u64, p: In<KernelParamsV1>|
        change(node, |state| node::kernel(state, node::widen_kernel(p.get()?)));
    [symbol] cuGraphKernelNodeSetParams_v2: |node: u64, p: In<KernelParams>|
        change(node, |state| node::kernel(state, p.get()?));
    cuGraphKernelNodeSetAttribute: set_attribute;
    cuGraphKernelNodeGetAttribute: get_attribute;
    cuGraphKernelNodeCopyAttributes: copy_attributes;

    cuGraphAddMemcpyNode: |new: NewNode, p: In<CUDA_MEMCPY3D>, context: u64|
        new.add(|state| node::copy(state, p.get()?, context));
    cuGraphMemcpyNodeGetParams: |node: u64, out: Out<CUDA_MEMCPY3D>|
        get(node, out, only!(Work::Copy(params) => *params));
    cuGraphMemcpyNodeSetParams: |node: u64, p: In<CUDA_MEMCPY3D>|
        change(node, |state| {
            let context = state.current()?;
            node::copy(state, p.get()?, context)
        });

    cuGraphAddMemsetNode: |new: NewNode, p: In<CUDA_MEMSET_NODE_PARAMS>, context: u64|
        new.add(|state| node::memset(state, node::widen_memset(p.get()?, context)));
    cuGraphMemsetNodeGetParams: |node: u64, out: Out<CUDA_MEMSET_NODE_PARAMS>|
        get(node, out, only!(Work::Memset(params) => node::narrow_memset(params)));
    cuGraphMemsetNodeSetParams: |node: u64, p: In<CUDA_MEMSET_NODE_PARAMS>|
        change(node, |state| {
            let context = state.current()?;
            node::memset(state, node::widen_memset(p.get()?, context))
        });

    cuGraphAddHostNode: |new: NewNode, p: In<CUDA_HOST_NODE_PARAMS>|
        new.add(|_| node::host(p.get()?));
    cuGraphHostNodeGetParams: |node: u64, out: Out<[u64; 2]>|
        get(node, out, only!(Work::Host { entry, data } => [*entry, *data]));
    cuGraphHostNodeSetParams: |node: u64, p: In<CUDA_HOST_NODE_PARAMS>|
        change(node, |_| node::host(p.get()?));

    cuGraphAddEmptyNode: |new: NewNode| new.add(|_| Ok(Work::Empty));

    cuGraphAddChildGraphNode: |new: NewNode, child: u64|
        new.add(|state| node::child(state, new.graph, child));
    cuGraphChildGraphNodeGetGraph: |node: u64, out: Out<u64>|
        get(node, out, only!(Work::Child(graph) => *graph));

    cuGraphAddEventRecordNode: |new: NewNode, event: u64|
        new.add(|state| node::record(state, event));
    cuGraphEventRecordNodeGetEvent: |node: u64, out: Out<u64>|
        get(node, out, only!(Work::Record(event) => *event));
    cuGraphEventRecordNodeSetEvent: |node: u64, event: u64|
        change(node, |state| node::record(state, event));

    cuGraphAddEventWaitNode: |new: NewNode, event: u64|
        new.add(|state| node::wait(state, event));
    cuGraphEventWaitNodeGetEvent: |node: u64, out: Out<u64>|
        get(node, out, only!(Work::Wait(event) => *event));
    cuGraphEventWaitNodeSetEvent: |node: u64, event: u64|
        change(node, |state| node::wait(state, event));

    cuGraphAddBatchMemOpNode: |new: NewNode, p: In<BatchParams>|
        new.add(|state| node::batch(state, p.get()?));
    cuGraphBatchMemOpNodeGetParams: |node: u64, out: Out<BatchParams>|
        get(node, out, only!(Work::Batch(batch) => batch.params()));
    cuGraphBatchMemOpNodeSetParams: |node: u64, p: In<BatchParams>|
        change(node, |state| node::batch(state, p.get()?));

    cuGraphAddMemAllocNode: |new: NewNode, p: Out<CUDA_MEM_ALLOC_NODE_PARAMS>| {
        let mut params = p.get()?;
        let after = read_dependencies(new.after, In::at(0), new.count)?;
        new.add(|state| node::allocate(state, &after, &mut params))?;
        p.set(params)
    };
    cuGraphMemAllocNodeGetParams: |node: u64, out: Out<CUDA_MEM_ALLOC_NODE_PARAMS>|
        get(node, out, only!(Work::Allocate(params) => **params));
    cuGraphAddMemFreeNode: |new: NewNode, address: u64|
        new.add(|state| node::free(state, address));
    cuGraphMemFreeNodeGetParams: |node: u64, out: Out<u64>|
        get(node, out, only!(Work::Free(address) => *address));

    cuGraphConditionalHandleCreate: create_condition;
    [symbol] cuGraphAddNode: |new: NewNode, params: Out<CUgraphNodeParams>|
        add_any(new.node, new.graph, new.after, In::at(0), new.count, params);
    [symbol] cuGraphAddNode_v2: add_any;
    cuGraphNodeSetParams: |node: u64, params: Out<CUgraphNodeParams>| {
        let mut given = params.get()?;
        change(node, |state| node::from_params(state, 0, &mut given))
    };
}

arguments! {
    /// Where a new node goes: the output for its handle, its graph, and the nodes that it comes
    /// after.
    struct NewNode {
        node: Out<u64>,
        graph: u64,
        after: In<u64>,
        count: usize,
    }
}

impl NewNode {
    fn add(self, work: impl FnOnce(&mut State) -> Answer<Work>) -> Answer {
        self.add_with(In::at(0), work)
    }

    fn add_with(self, data: In<Edge>, work: impl FnOnce(&mut State) -> Answer<Work>) -> Answer {
        self.node.check()?;
        let after = read_dependencies(self.after, data, self.count)?;
        let mut state = lock();
        state.graphs.find(self.graph)?;
        let work = work(&mut state)?;
        let inner = work.inner_graphs();
        let handle = state.add_node(self.graph, after, work)?;
        for inner in inner {
            if let Ok(inner) = state.graphs.find_mut(inner) {
                inner.owner = Some(handle);
            }
        }
        self.node.set(handle)
    }
}

fn add_any(
    node: Out<u64>,
    graph: u64,
    after: In<u64>,
    data: In<Edge>,
    count: usize,
    params: Out<CUgraphNodeParams>,
) -> Answer {
    node.check()?;
    let mut given = params.get()?;
    let new = NewNode {
        node,
        graph,
        after,
        count,
    };
    new.add_with(data, |state| node::from_params(state, graph, &mut given))?;
    params.set(given)
}

/// Replaces the parameters of a node by others of the same kind.
fn change(node: u64, work: impl FnOnce(&mut State) -> Answer<Work>) -> Answer {
    let mut state = lock();
    let kind = state.nodes.find(node)?.work.kind();
    let mut work = work(&mut state)?;
    let is_fixed = matches!(kind, ALLOCATE | FREE | CONDITION);
    invalid_if(work.kind() != kind || is_fixed)?;
    let node = state.nodes.find_mut(node)?;
    if let (Work::Kernel(old), Work::Kernel(new)) = (&mut node.work, &mut work) {
        new.attributes = std::mem::take(&mut old.attributes);
    }
    node.work = work;
    Ok(())
}

/// Returns what a node of one kind does.
fn get<T>(node: u64, out: Out<T>, value: impl FnOnce(&Work) -> Option<T>) -> Answer {
    let state = lock();
    let value = value(&state.nodes.find(node)?.work);
    out.set(value.ok_or(INVALID_VALUE)?)
}

fn kernel(state: &mut State, node: u64) -> Answer<&mut KernelNode> {
    match &mut state.nodes.find_mut(node)?.work {
        Work::Kernel(kernel) => Ok(kernel),
        _ => Err(INVALID_VALUE),
    }
}

/// COOPERATIVE, PRIORITY and the memory domains, but no device-updatable nodes.
fn check_attribute(attribute: u32) -> Answer {
    match attribute {
        1 | 2 | 4 | 5 | 8..=11 | 14 => Ok(()),
        13 => Err(NOT_SUPPORTED),
        _ => Err(INVALID_VALUE),
    }
}

fn set_attribute(node: u64, attribute: u32, value: In<CUlaunchAttributeValue>) -> Answer {
    let mut state = lock();
    let kernel = kernel(&mut state, node)?;
    check_attribute(attribute)?;
    kernel.attributes.insert(attribute, value.get()?);
    Ok(())
}

fn get_attribute(node: u64, attribute: u32, value: Out<CUlaunchAttributeValue>) -> Answer {
    let mut state = lock();
    let kernel = kernel(&mut state, node)?;
    value.check()?;
    check_attribute(attribute)?;
    // SAFETY: the union consists of integers, floats and pointers, for which all-zero bytes are
    // valid.
    let none = unsafe { std::mem::zeroed() };
    value.set(kernel.attributes.get(&attribute).copied().unwrap_or(none))
}

fn copy_attributes(mut state: Locked, to: u64, from: u64) -> Answer {
    let attributes = kernel(&mut state, from)?.attributes.clone();
    kernel(&mut state, to)?.attributes = attributes;
    Ok(())
}

fn create_condition(handle: Out<u64>, graph: u64, context: u64, value: u32, flags: u32) -> Answer {
    /// `CU_GRAPH_COND_ASSIGN_DEFAULT`.
    const ASSIGN: u32 = 1;
    handle.check()?;
    let mut state = lock();
    state.graphs.find(graph)?;
    state.check_context(context)?;
    invalid_if(flags & !ASSIGN != 0)?;
    let id = state.new_id();
    let default = (flags & ASSIGN != 0).then_some(value);
    state.conditions.insert(id, default);
    handle.set(id)
}
