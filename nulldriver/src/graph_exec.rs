//! Graph Management: executable graphs. A launch does everything in the order of the edges before it returns, but for
//! kernels, which run no code.

use std::collections::HashMap;

use cutape_driver::types::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_HOST_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
    CUgraphExecUpdateResultInfo, CUgraphNodeParams,
};
use cutape_registry::Kind;

use crate::answer::{Answer, GRAPH_EXEC_UPDATE_FAILURE, INVALID_VALUE, NOT_SUPPORTED};
use crate::argument::{In, Out, Stream};
use crate::copy;
use crate::dispatch::{Entry, bind};
use crate::graph_work::{self as node, Work};
use crate::host_call;
use crate::memset;
use crate::state::{State, lock};
use crate::stream::write_value;

pub(crate) const ENTRIES: &[Entry] = &[
    (
        "cuGraphInstantiate",
        bind(
            |exec: Out<u64>, graph: u64, _error: u64, _log: u64, _size: u64| {
                instantiate(exec, graph, 0)
            },
        ),
    ),
    ("cuGraphInstantiateWithFlags", bind(instantiate)),
    ("cuGraphInstantiateWithParams", bind(instantiate_with)),
    ("cuGraphExecDestroy", bind(destroy)),
    ("cuGraphExecGetFlags", bind(get_flags)),
    ("cuGraphUpload", bind(upload)),
    ("cuGraphLaunch", bind(launch)),
    (
        "=cuGraphExecUpdate",
        bind(|exec: u64, graph: u64, node: Out<u64>, result: Out<u32>| {
            update(exec, graph, |failure| {
                result.set(failure.0)?;
                node.set(failure.1)
            })
        }),
    ),
    (
        "=cuGraphExecUpdate_v2",
        bind(
            |exec: u64, graph: u64, info: Out<CUgraphExecUpdateResultInfo>| {
                update(exec, graph, |failure| {
                    // SAFETY: the struct consists of a number and handles, for which all-zero bytes are valid.
                    let mut told: CUgraphExecUpdateResultInfo = unsafe { std::mem::zeroed() };
                    told.result.0 = failure.0;
                    told.errorNode = failure.1 as *mut _;
                    info.set(told)
                })
            },
        ),
    ),
    (
        "=cuGraphExecKernelNodeSetParams",
        bind(|exec: u64, of: u64, p: In<CUDA_KERNEL_NODE_PARAMS_v1>| {
            change(exec, of, |state| node::kernel(state, node::widen(p.get()?)))
        }),
    ),
    (
        "=cuGraphExecKernelNodeSetParams_v2",
        bind(|exec: u64, of: u64, p: In<CUDA_KERNEL_NODE_PARAMS>| {
            change(exec, of, |state| node::kernel(state, p.get()?))
        }),
    ),
    (
        "cuGraphExecMemcpyNodeSetParams",
        bind(|exec: u64, of: u64, p: In<CUDA_MEMCPY3D>, context: u64| {
            change(exec, of, |state| node::copying(state, p.get()?, context))
        }),
    ),
    (
        "cuGraphExecMemsetNodeSetParams",
        bind(
            |exec: u64, of: u64, p: In<CUDA_MEMSET_NODE_PARAMS>, context: u64| {
                change(exec, of, |state| {
                    node::setting(state, node::with_context(p.get()?, context))
                })
            },
        ),
    ),
    (
        "cuGraphExecHostNodeSetParams",
        bind(|exec: u64, of: u64, p: In<CUDA_HOST_NODE_PARAMS>| {
            change(exec, of, |_| node::host(p.get()?))
        }),
    ),
    ("cuGraphExecChildGraphNodeSetParams", bind(change_child)),
    (
        "cuGraphExecEventRecordNodeSetEvent",
        bind(|exec: u64, of: u64, event: u64| {
            change(exec, of, |state| {
                state.event(event).map(|_| Work::Record(event))
            })
        }),
    ),
    (
        "cuGraphExecEventWaitNodeSetEvent",
        bind(|exec: u64, of: u64, event: u64| {
            change(exec, of, |state| {
                state.event(event).map(|_| Work::Wait(event))
            })
        }),
    ),
    (
        "cuGraphExecBatchMemOpNodeSetParams",
        bind(|exec: u64, of: u64, p: In<CUDA_BATCH_MEM_OP_NODE_PARAMS>| {
            change(exec, of, |state| node::operations(state, p.get()?))
        }),
    ),
    (
        "cuGraphExecNodeSetParams",
        bind(|exec: u64, of: u64, p: In<CUgraphNodeParams>| {
            let mut params = p.get()?;
            change(exec, of, |state| node::any(state, 0, &mut params))
        }),
    ),
    ("cuGraphNodeSetEnabled", bind(set_enabled)),
    ("cuGraphNodeGetEnabled", bind(get_enabled)),
];

// CUgraphInstantiate_flags.
const AUTO_FREE: u64 = 1;
const UPLOAD: u64 = 2;
const DEVICE_LAUNCH: u64 = 4;
const ALL_FLAGS: u64 = 15;

/// A node as it is executed.
#[derive(Debug)]
pub(crate) struct Step {
    /// The node that it was made from.
    node: u64,
    work: Work,
    is_enabled: bool,
    /// The graphs in it.
    inner: Vec<Vec<Step>>,
}

/// An executable graph.
#[derive(Debug)]
pub(crate) struct Exec {
    flags: u64,
    steps: Vec<Step>,
    /// The graph that it was made from, which may be gone.
    graph: u64,
    has_memory: bool,
    objects: HashMap<u64, u32>,
}

impl Step {
    fn duplicate(&self) -> Step {
        let inner = self.inner.iter();
        Step {
            node: self.node,
            work: self.work.duplicate(),
            is_enabled: self.is_enabled,
            inner: inner.map(|steps| duplicate(steps)).collect(),
        }
    }
}

fn duplicate(steps: &[Step]) -> Vec<Step> {
    steps.iter().map(Step::duplicate).collect()
}

fn find(steps: &mut [Step], node: u64) -> Option<&mut Step> {
    for step in steps {
        if step.node == node {
            return Some(step);
        }
        for inner in &mut step.inner {
            if let Some(found) = find(inner, node) {
                return Some(found);
            }
        }
    }
    None
}

impl State {
    fn steps_of(&self, graph: u64) -> Answer<Vec<Step>> {
        let mut steps = Vec::new();
        for handle in self.in_order(graph)? {
            let node = self.node(handle)?;
            let inner = node.work.inner_graphs();
            let inner = inner.into_iter().map(|graph| self.steps_of(graph));
            steps.push(Step {
                node: handle,
                work: node.work.duplicate(),
                is_enabled: true,
                inner: inner.collect::<Answer<_>>()?,
            });
        }
        Ok(steps)
    }

    fn exec(&mut self, handle: u64) -> Answer<&mut Exec> {
        self.graphs.execs.get_mut(&handle).ok_or(INVALID_VALUE)
    }
}

fn instantiate(exec: Out<u64>, graph: u64, flags: u64) -> Answer {
    exec.check()?;
    let mut state = lock();
    state.graph(graph)?;
    if flags & !ALL_FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    if flags & DEVICE_LAUNCH != 0 {
        return Err(NOT_SUPPORTED);
    }
    if state.graph(graph)?.owner.is_some() {
        return Err(INVALID_VALUE);
    }
    let steps = state.steps_of(graph)?;
    let has_memory = state.has_memory_nodes(graph)?;
    if has_memory && state.graph(graph)?.instances > 0 {
        // One at a time (measured).
        return Err(NOT_SUPPORTED);
    }
    let objects = state.graph(graph)?.objects.clone();
    for (&object, &count) in &objects {
        state.add_references(object, count);
    }
    let handle = state.make(Kind::GraphExec)?;
    if let Some(graph) = state.graphs.graphs.get_mut(&graph) {
        graph.instances += u32::from(has_memory);
    }
    let made = Exec {
        flags: flags & !UPLOAD,
        steps,
        graph,
        has_memory,
        objects,
    };
    state.graphs.execs.insert(handle, made);
    exec.set(handle)
}

fn instantiate_with(
    exec: Out<u64>,
    graph: u64,
    params: Out<CUDA_GRAPH_INSTANTIATE_PARAMS>,
) -> Answer {
    // CUDA_GRAPH_INSTANTIATE_SUCCESS, _ERROR.
    const SUCCESS: u32 = 0;
    const ERROR: u32 = 1;
    let mut given = params.get()?;
    let answer = instantiate(exec, graph, given.flags);
    given.hErrNode_out = std::ptr::null_mut();
    given.result_out.0 = if answer.is_ok() { SUCCESS } else { ERROR };
    params.set(given)?;
    answer
}

fn destroy(exec: u64) -> Answer {
    let mut state = lock();
    let gone = state.graphs.execs.remove(&exec).ok_or(INVALID_VALUE)?;
    state.release(Kind::GraphExec, exec);
    if gone.has_memory
        && let Some(graph) = state.graphs.graphs.get_mut(&gone.graph)
    {
        graph.instances = graph.instances.saturating_sub(1);
    }
    let destructors = state.drop_objects(&gone.objects);
    drop(state);
    destructors.run();
    Ok(())
}

fn get_flags(exec: u64, flags: Out<u64>) -> Answer {
    flags.check()?;
    flags.set(lock().exec(exec)?.flags)
}

fn upload(exec: u64, stream: Stream) -> Answer {
    let mut state = lock();
    state.check_stream(stream)?;
    state.exec(exec).map(|_| ())
}

fn launch(exec: u64, stream: Stream) -> Answer {
    let mut state = lock();
    state.stream_is_there(stream)?;
    let of = state.exec(exec)?;
    let (steps, flags) = (duplicate(&of.steps), of.flags);
    // A graph is not launched into a capture (measured: driver 580.159.04).
    state.refuse_capture(stream)?;
    let mut allocated = Vec::new();
    addresses(&steps, &mut allocated);
    for address in allocated {
        if !state.allocations.contains_key(&address) {
            continue;
        }
        if flags & AUTO_FREE == 0 {
            // What an earlier launch allocated is still there (measured).
            return Err(INVALID_VALUE);
        }
        state.park(address);
    }
    drop(state);
    run(&steps)
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

/// Does everything; the state must not be locked, since host functions run. Memory and events that are gone are passed
/// over: the real driver accepts the launch (measured), and what becomes of it only running code would show.
fn run(steps: &[Step]) -> Answer {
    for step in steps.iter().filter(|step| step.is_enabled) {
        match &step.work {
            Work::Kernel(_) | Work::Empty | Work::Wait(_) => {}
            Work::Copy(params, _) => {
                let state = lock();
                for (target, source) in &copy::volume_moves(&state, params).unwrap_or_default() {
                    copy::move_bytes(target, source);
                }
            }
            Work::Set(params) => {
                let state = lock();
                let rows = memset::node_rows(&state, params).unwrap_or_default();
                memset::set_rows(&rows, params.value, params.elementSize);
            }
            Work::Host { entry, data } => host_call::run_function(*entry, *data)?,
            Work::Child(_) => {
                for inner in &step.inner {
                    run(inner)?;
                }
            }
            Work::Record(event) => lock().record(*event),
            Work::Allocate(params) => {
                let mut state = lock();
                if let Some(allocation) = state.graphs.parked.remove(&params.dptr) {
                    state.allocations.insert(params.dptr, allocation);
                }
            }
            Work::Free(address) => {
                lock().park(*address);
            }
            Work::Operations(batch) => {
                for operation in &batch.operations {
                    // SAFETY: all variants begin with the operation's number, which says which one counts; writes of both
                    // widths are laid out alike, the value being a union of both.
                    let (kind, address, value) = unsafe {
                        let write = operation.writeValue;
                        (
                            operation.operation.0,
                            write.address,
                            write.__bindgen_anon_1.value64,
                        )
                    };
                    // Writes of 32 and 64 bits; barriers and flushes have nothing to do.
                    let bytes = value.to_le_bytes();
                    let _ = match kind {
                        2 => write_value(&lock(), address, &bytes[..4]),
                        5 => write_value(&lock(), address, &bytes),
                        _ => Ok(()),
                    };
                }
            }
            Work::Condition { handle, kind, .. } => {
                const IF: u32 = 0;
                let value = lock().graphs.conditions.get(handle).copied().flatten();
                let value = value.unwrap_or(0) as usize;
                // IF runs its first graph, or else its second; SWITCH the graph of that number.
                let chosen = if *kind == IF {
                    usize::from(value == 0)
                } else {
                    value
                };
                if let Some(body) = step.inner.get(chosen) {
                    run(body)?;
                }
            }
        }
    }
    Ok(())
}

/// Exchanges the work of a step for other work of the same kind. The node must still be there (measured).
fn change(exec: u64, of: u64, work: impl FnOnce(&mut State) -> Answer<Work>) -> Answer {
    let mut state = lock();
    state.exec(exec)?;
    let kind = state.node(of)?.work.kind();
    let work = work(&mut state)?;
    let is_fixed = matches!(
        work,
        Work::Allocate(_) | Work::Free(_) | Work::Condition { .. } | Work::Child(_)
    );
    if work.kind() != kind || is_fixed {
        return Err(INVALID_VALUE);
    }
    let step = find(&mut state.exec(exec)?.steps, of).ok_or(INVALID_VALUE)?;
    step.work = work;
    Ok(())
}

fn change_child(exec: u64, of: u64, graph: u64) -> Answer {
    let mut state = lock();
    state.exec(exec)?;
    state.node(of)?;
    let new = state.steps_of(graph)?;
    let step = find(&mut state.exec(exec)?.steps, of).ok_or(INVALID_VALUE)?;
    let Some(old) = step
        .inner
        .first_mut()
        .filter(|_| matches!(step.work, Work::Child(_)))
    else {
        return Err(INVALID_VALUE);
    };
    take_over(old, new).map_err(|_| INVALID_VALUE)
}

/// What makes two lists of steps differ: CUgraphExecUpdateResult, and the node.
type Failure = (u32, u64);
const TOPOLOGY_CHANGED: u32 = 2;
const TYPE_CHANGED: u32 = 3;

fn check_alike(old: &[Step], new: &[Step]) -> Result<(), Failure> {
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
            check_alike(old, new)?;
        }
    }
    Ok(())
}

/// Takes the work over; the steps keep the names of their nodes.
fn take_over(old: &mut [Step], new: Vec<Step>) -> Result<(), Failure> {
    check_alike(old, &new)?;
    for (old, new) in old.iter_mut().zip(new) {
        old.work = new.work;
        for (old, new) in old.inner.iter_mut().zip(new.inner) {
            take_over(old, new)?;
        }
    }
    Ok(())
}

fn update(exec: u64, graph: u64, tell: impl FnOnce(Failure) -> Answer) -> Answer {
    let mut state = lock();
    state.exec(exec)?;
    let new = state.steps_of(graph)?;
    match take_over(&mut state.exec(exec)?.steps, new) {
        Ok(()) => tell((0, 0)),
        Err(failure) => {
            tell(failure)?;
            Err(GRAPH_EXEC_UPDATE_FAILURE)
        }
    }
}

fn step_of(state: &mut State, exec: u64, of: u64) -> Answer<&mut Step> {
    state.node(of)?;
    let step = find(&mut state.exec(exec)?.steps, of).ok_or(INVALID_VALUE)?;
    // Only such nodes can be switched (cuGraphNodeSetEnabled).
    match step.work {
        Work::Kernel(_) | Work::Copy(..) | Work::Set(_) => Ok(step),
        _ => Err(INVALID_VALUE),
    }
}

fn set_enabled(exec: u64, of: u64, enabled: u32) -> Answer {
    let mut state = lock();
    step_of(&mut state, exec, of)?.is_enabled = enabled != 0;
    Ok(())
}

fn get_enabled(exec: u64, of: u64, enabled: Out<u32>) -> Answer {
    enabled.check()?;
    let mut state = lock();
    enabled.set(step_of(&mut state, exec, of)?.is_enabled.into())
}
