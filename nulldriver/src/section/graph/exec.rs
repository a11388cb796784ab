//! Graph Management: executable graphs.

use cutape_driver::types::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_HOST_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
    CUgraphExecUpdateResultInfo, CUgraphNodeParams,
};

use crate::call::answer::{
    Answer, GRAPH_EXEC_UPDATE_FAILURE, INVALID_VALUE, NOT_SUPPORTED, invalid_if, reject_if,
};
use crate::call::argument::{In, Out, OutRef, Stream};
use crate::call::entry::entries;
use crate::object::graph::{Exec, Step};
use crate::object::work::{ALLOCATE, CHILD, CONDITION, FREE, Work};
use crate::state::{Locked, State, lock};
use crate::work::host_function::{run_destructors, run_destructors_later};
use crate::work::{graph_launch, node};

entries! {
    cuGraphInstantiate: |state: Locked, exec: OutRef<u64>, graph: u64|
        instantiate(state, exec, graph, 0);
    cuGraphInstantiateWithFlags: instantiate;
    cuGraphInstantiateWithParams: instantiate_with;
    cuGraphExecDestroy: destroy;
    cuGraphExecGetFlags: get_flags;
    cuGraphUpload: upload;
    cuGraphLaunch: launch;
    [symbol] cuGraphExecUpdate: |exec: u64, graph: u64, node: Out<u64>, result: Out<u32>|
        update(exec, graph, |failure| {
            result.set(failure.0)?;
            node.set(failure.1)
        });
    [symbol] cuGraphExecUpdate_v2: update_with_info;
    [symbol] cuGraphExecKernelNodeSetParams:
        |exec: u64, node: u64, p: In<CUDA_KERNEL_NODE_PARAMS_v1>|
        change(exec, node, |state| node::kernel(state, node::widen_kernel(p.get()?)));
    [symbol] cuGraphExecKernelNodeSetParams_v2:
        |exec: u64, node: u64, p: In<CUDA_KERNEL_NODE_PARAMS>|
        change(exec, node, |state| node::kernel(state, p.get()?));
    cuGraphExecMemcpyNodeSetParams: |exec: u64, node: u64, p: In<CUDA_MEMCPY3D>, context: u64|
        change(exec, node, |state| node::copy(state, p.get()?, context));
    cuGraphExecMemsetNodeSetParams:
        |exec: u64, node: u64, p: In<CUDA_MEMSET_NODE_PARAMS>, context: u64|
        change(exec, node, |state| node::memset(state, node::widen_memset(p.get()?, context)));
    cuGraphExecHostNodeSetParams: |exec: u64, node: u64, p: In<CUDA_HOST_NODE_PARAMS>|
        change(exec, node, |_| node::host(p.get()?));
    cuGraphExecChildGraphNodeSetParams: change_child;
    cuGraphExecEventRecordNodeSetEvent: |exec: u64, node: u64, event: u64|
        change(exec, node, |state| node::record(state, event));
    cuGraphExecEventWaitNodeSetEvent: |exec: u64, node: u64, event: u64|
        change(exec, node, |state| node::wait(state, event));
    cuGraphExecBatchMemOpNodeSetParams:
        |exec: u64, node: u64, p: In<CUDA_BATCH_MEM_OP_NODE_PARAMS>|
        change(exec, node, |state| node::batch(state, p.get()?));
    cuGraphExecNodeSetParams: |exec: u64, node: u64, p: In<CUgraphNodeParams>| {
        let mut params = p.get()?;
        change(exec, node, |state| node::from_params(state, 0, &mut params))
    };
    cuGraphNodeSetEnabled: set_enabled;
    cuGraphNodeGetEnabled: get_enabled;
}

// CUgraphInstantiate_flags.
const AUTO_FREE: u64 = 1;
const UPLOAD: u64 = 2;
const DEVICE_LAUNCH: u64 = 4;
const ALL_FLAGS: u64 = 15;

fn update_with_info(exec: u64, graph: u64, info: Out<CUgraphExecUpdateResultInfo>) -> Answer {
    update(exec, graph, |failure| {
        // SAFETY: the struct consists of a number and handles, for which all-zero bytes are valid.
        let mut result: CUgraphExecUpdateResultInfo = unsafe { std::mem::zeroed() };
        result.result.0 = failure.0;
        result.errorNode = failure.1 as *mut _;
        info.set(result)
    })
}

fn step_in(steps: &mut [Step], node: u64) -> Option<&mut Step> {
    for step in steps {
        if step.node == node {
            return Some(step);
        }
        for inner in &mut step.inner {
            if let Some(found) = step_in(inner, node) {
                return Some(found);
            }
        }
    }
    None
}

fn steps_of(state: &State, graph: u64) -> Answer<Vec<Step>> {
    let mut steps = Vec::new();
    for handle in state.in_order(graph)? {
        let node = state.nodes.find(handle)?;
        let inner = node.work.inner_graphs().into_iter();
        let inner = inner.map(|graph| steps_of(state, graph));
        steps.push(Step {
            node: handle,
            work: node.work.clone(),
            is_enabled: true,
            after: node.after.iter().map(|(before, _)| *before).collect(),
            inner: inner.collect::<Answer<_>>()?,
        });
    }
    Ok(steps)
}

/// The step of a node, which may be in an inner graph. The node must still exist (measured).
fn find_step(state: &mut State, exec: u64, node: u64) -> Answer<&mut Step> {
    state.nodes.find(node)?;
    step_in(&mut state.execs.find_mut(exec)?.steps, node).ok_or(INVALID_VALUE)
}

fn instantiate(mut state: Locked, exec: OutRef<u64>, graph: u64, flags: u64) -> Answer {
    state.graphs.find(graph)?;
    invalid_if(flags & !ALL_FLAGS != 0)?;
    reject_if(flags & DEVICE_LAUNCH != 0, NOT_SUPPORTED)?;
    invalid_if(state.graphs.find(graph)?.owner.is_some())?;
    let steps = steps_of(&state, graph)?;
    let has_memory = state.has_memory_nodes(graph)?;
    // One at a time (measured).
    reject_if(
        has_memory && state.graphs.find(graph)?.instances > 0,
        NOT_SUPPORTED,
    )?;
    let objects = state.graphs.find(graph)?.objects.clone();
    state.add_references(&objects);
    state.graphs.find_mut(graph)?.instances += u32::from(has_memory);
    let handle = state.execs.add(Exec {
        flags: flags & !UPLOAD,
        steps,
        graph,
        has_memory,
        objects,
        last: 0,
    })?;
    exec.set(handle)
}

fn instantiate_with(
    state: Locked,
    exec: OutRef<u64>,
    graph: u64,
    params: Out<CUDA_GRAPH_INSTANTIATE_PARAMS>,
) -> Answer {
    // CUDA_GRAPH_INSTANTIATE_SUCCESS, _ERROR.
    const SUCCESS: u32 = 0;
    const ERROR: u32 = 1;
    let mut given = params.get()?;
    let answer = instantiate(state, exec, graph, given.flags);
    given.hErrNode_out = std::ptr::null_mut();
    given.result_out.0 = if answer.is_ok() { SUCCESS } else { ERROR };
    params.set(given)?;
    answer
}

fn destroy(mut state: Locked, exec: u64) -> Answer {
    let removed = state.execs.remove(exec).ok_or(INVALID_VALUE)?;
    if removed.has_memory
        && let Ok(graph) = state.graphs.find_mut(removed.graph)
    {
        graph.instances = graph.instances.saturating_sub(1);
    }
    state.drop_references(&removed.objects);
    match removed.last {
        0 => run_destructors(state),
        _ => run_destructors_later(state),
    }
}

fn get_flags(exec: u64, flags: OutRef<u64>) -> Answer {
    flags.set(lock().execs.find(exec)?.flags)
}

fn upload(state: Locked, exec: u64, stream: Stream) -> Answer {
    state.check_uncaptured(stream)?;
    state.execs.find(exec).map(|_| ())
}

fn launch(mut state: Locked, exec: u64, stream: Stream) -> Answer {
    state.check_stream(stream)?;
    let object = state.execs.find_mut(exec)?;
    let (steps, flags, last) = (object.steps.clone(), object.flags, object.last);
    // A graph is not launched into a capture (measured: driver 580.159.04).
    state.refuse_capture(stream)?;
    let mut allocated = Vec::new();
    addresses(&steps, &mut allocated);
    for address in allocated {
        if !state.allocations.contains_key(&address) {
            continue;
        }
        // What an earlier launch allocated is still allocated (measured).
        invalid_if(flags & AUTO_FREE == 0)?;
        state.deactivate(address);
    }
    let end = graph_launch::enqueue(&mut state, &steps, stream, last)?;
    state.execs.find_mut(exec)?.last = end;
    Ok(())
}

/// The memory that steps allocate.
fn addresses(steps: &[Step], found: &mut Vec<u64>) {
    for step in steps {
        if let Work::Allocate(params) = &step.work {
            found.push(params.dptr);
        }
        for inner in &step.inner {
            addresses(inner, found);
        }
    }
}

/// Replaces the work of a step by other work of the same kind.
fn change(exec: u64, node: u64, work: impl FnOnce(&mut State) -> Answer<Work>) -> Answer {
    let mut state = lock();
    state.execs.find(exec)?;
    let kind = state.nodes.find(node)?.work.kind();
    let work = work(&mut state)?;
    let is_fixed = matches!(kind, ALLOCATE | FREE | CONDITION | CHILD);
    invalid_if(work.kind() != kind || is_fixed)?;
    find_step(&mut state, exec, node)?.work = work;
    Ok(())
}

fn change_child(mut state: Locked, exec: u64, node: u64, graph: u64) -> Answer {
    state.execs.find(exec)?;
    state.nodes.find(node)?;
    let new = steps_of(&state, graph)?;
    let step = find_step(&mut state, exec, node)?;
    invalid_if(!matches!(step.work, Work::Child(_)))?;
    let old = step.inner.first_mut().ok_or(INVALID_VALUE)?;
    update_steps(old, new).map_err(|_| INVALID_VALUE)
}

/// What makes two lists of steps differ: CUgraphExecUpdateResult, and the node.
type Failure = (u32, u64);
const TOPOLOGY_CHANGED: u32 = 2;
const TYPE_CHANGED: u32 = 3;

fn check_topology(old: &[Step], new: &[Step]) -> Result<(), Failure> {
    if old.len() != new.len() {
        return Err((TOPOLOGY_CHANGED, 0));
    }
    for (old, new) in old.iter().zip(new) {
        if old.work.kind() != new.work.kind() {
            return Err((TYPE_CHANGED, new.node));
        }
        if old.inner.len() != new.inner.len() {
            return Err((TOPOLOGY_CHANGED, new.node));
        }
        for (old, new) in old.inner.iter().zip(&new.inner) {
            check_topology(old, new)?;
        }
    }
    Ok(())
}

/// Replaces the work of all steps; they still belong to the nodes that they were instantiated from.
fn update_steps(old: &mut [Step], new: Vec<Step>) -> Result<(), Failure> {
    check_topology(old, &new)?;
    for (old, new) in old.iter_mut().zip(new) {
        old.work = new.work;
        for (old, new) in old.inner.iter_mut().zip(new.inner) {
            update_steps(old, new)?;
        }
    }
    Ok(())
}

fn update(exec: u64, graph: u64, report: impl FnOnce(Failure) -> Answer) -> Answer {
    let mut state = lock();
    state.execs.find(exec)?;
    let new = steps_of(&state, graph)?;
    match update_steps(&mut state.execs.find_mut(exec)?.steps, new) {
        Ok(()) => report((0, 0)),
        Err(failure) => {
            report(failure)?;
            Err(GRAPH_EXEC_UPDATE_FAILURE)
        }
    }
}

/// A step that can be disabled (cuGraphNodeSetEnabled).
fn switchable(state: &mut State, exec: u64, node: u64) -> Answer<&mut Step> {
    let step = find_step(state, exec, node)?;
    let is_switchable = matches!(step.work, Work::Kernel(_) | Work::Copy(_) | Work::Memset(_));
    invalid_if(!is_switchable)?;
    Ok(step)
}

fn set_enabled(exec: u64, node: u64, enabled: u32) -> Answer {
    switchable(&mut lock(), exec, node)?.is_enabled = enabled != 0;
    Ok(())
}

fn get_enabled(exec: u64, node: u64, enabled: OutRef<u32>) -> Answer {
    enabled.set(switchable(&mut lock(), exec, node)?.is_enabled.into())
}
