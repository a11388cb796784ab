//! The nodes of a live graph, as the driver tells them, in an order in which they can run one after
//! the other.

use std::collections::HashSet;
use std::mem::offset_of;

use cutape_driver::types::{
    CUDA_KERNEL_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
    CUstreamBatchMemOpParams,
};
use cutape_registry::NodeKind;
use rustc_hash::FxHashMap;

use crate::api::buffer::{Buffer, set_word, word};
use crate::api::{Api, Code, NOT_SUPPORTED, result_name};
use crate::compare::received::read_memory;
use crate::observation::job::ObservedLaunch;
use crate::observation::memset::Memset;
use crate::observation::stops::{Order, Stops, is_stop};

/// How deep child graphs are followed.
const DEEPEST: usize = 16;
/// CU_LAUNCH_ATTRIBUTE_COOPERATIVE, _CLUSTER_DIMENSION, _CLUSTER_SCHEDULING_POLICY_PREFERENCE,
/// _PREFERRED_CLUSTER_DIMENSION, _PREFERRED_SHARED_MEMORY_CARVEOUT: what decides whether and how a
/// kernel runs.
const ATTRIBUTES: [u32; 5] = [2, 4, 5, 11, 14];
const ATTRIBUTE_VALUE_BYTES: usize = 64;
/// CU_GRAPH_NODE_TYPE_GRAPH, _BATCH_MEM_OP.
const CHILD: u32 = 4;
const OPERATIONS: u32 = 12;

/// A node of a graph.
#[derive(Clone, Debug)]
pub(crate) struct NodeStep {
    /// The live node of the graph that was instantiated.
    pub(crate) node: u64,
    /// It was not switched off.
    pub(crate) is_enabled: bool,
    pub(crate) step: Step,
}

/// What one node does.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Kernel(Box<KernelNode>),
    /// A `CUDA_MEMCPY3D`.
    Copy(Vec<u8>),
    Memset(Memset),
    /// Elements of `CUstreamBatchMemOpParams` that write values.
    Writes(Vec<u8>),
    /// No call does the same.
    InGraph(InGraph),
}

/// A node that only its graph can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InGraph {
    /// Allocates memory at that live address.
    Allocation(u64),
    /// Frees it.
    Free(u64),
    /// Operations that wait for values in memory, which a parallel node may write.
    Waits,
    /// What its condition is, kernels of the graph decide, and no other graph can have its handle
    /// (CUDA Driver API, cuGraphConditionalHandleCreate: it belongs to a node of this graph or of
    /// its children).
    Condition,
}

impl InGraph {
    fn describe(self) -> &'static str {
        match self {
            Self::Allocation(_) => "an allocation",
            Self::Free(_) => "a free",
            Self::Waits => "operations that wait for values in memory",
            Self::Condition => "a conditional node",
        }
    }
}

/// The nodes of a graph, each after those that it depends on.
#[derive(Clone, Debug)]
pub(crate) struct Nodes {
    pub(crate) steps: Vec<NodeStep>,
    /// The graph itself runs, and stops after each of them.
    pub(crate) stops: Option<Stops>,
}

impl Nodes {
    /// What the nodes of a live graph do that is about to be instantiated. If some can only run in it,
    /// it stops after each of them, or is refused.
    ///
    /// # Errors
    /// Which node cannot run by itself.
    pub(crate) fn of(api: &Api, graph: u64, may_stop: bool) -> Result<Self, String> {
        let mut found = Found::default();
        found.add(api, graph, DEEPEST)?;
        let Found {
            steps,
            stops,
            order,
        } = found;
        let in_graph = steps.iter().find_map(NodeStep::only_in_graph);
        let stops = match (in_graph, stops.first()) {
            (None, None) => None,
            (Some(only), None) if may_stop => {
                if let Some(why) = obstacle(&steps) {
                    return Err(format!("the graph has {} and {why}", only.describe()));
                }
                let added = Stops::new(api).and_then(|stops| stops.add_to(api, &order));
                Some(added.map_err(|code| {
                    let why = result_name(code);
                    format!("adding nodes at which it stops returned {why}")
                })?)
            }
            (Some(only), None) => return Err(format!("the graph has {}", only.describe())),
            (_, Some(&first)) if stops.len() == steps.len() => Some(Stops::at(first)),
            _ => return Err("nodes were added to the graph after it was instantiated".into()),
        };
        Ok(Self { steps, stops })
    }
}

/// What there is in a graph.
#[derive(Debug, Default)]
struct Found {
    steps: Vec<NodeStep>,
    /// The values that stops write, in the order in which they run.
    stops: Vec<u64>,
    order: Order,
}

/// A kernel node.
#[derive(Clone, Debug)]
pub(crate) struct KernelNode {
    /// The live function or kernel.
    pub(crate) handle: u64,
    /// The live function.
    pub(crate) function: u64,
    pub(crate) launch: ObservedLaunch,
    /// Why its launch cannot be observed.
    pub(crate) refused: Option<String>,
}

impl NodeStep {
    fn only_in_graph(&self) -> Option<InGraph> {
        match self.step {
            Step::InGraph(only) => Some(only),
            _ => None,
        }
    }

    /// Whether it may copy from or to host memory.
    fn copies_host_memory(&self) -> bool {
        // CU_MEMORYTYPE_HOST, _UNIFIED, which may be host memory.
        const MAY_BE_HOST: [u32; 2] = [1, 4];
        let Step::Copy(params) = &self.step else {
            return false;
        };
        let kinds = [
            offset_of!(CUDA_MEMCPY3D, srcMemoryType),
            offset_of!(CUDA_MEMCPY3D, dstMemoryType),
        ];
        kinds
            .iter()
            .any(|&at| MAY_BE_HOST.contains(&(word(params, at) as u32)))
    }
}

/// What keeps a graph from stopping after its nodes, as seen on an H200 with driver 580.159.04. Before a
/// copy to host memory, copies of other streams wait, too, and the launch does not return if that
/// memory is pageable. With kernels among nodes that allocate the replay hung; why is not known.
fn obstacle(steps: &[NodeStep]) -> Option<&'static str> {
    let has = |of_kind: fn(&NodeStep) -> bool| steps.iter().any(of_kind);
    if has(NodeStep::copies_host_memory) {
        return Some("copies from or to host memory, behind which copies of the replay would wait");
    }
    let allocates = has(|step| matches!(step.step, Step::InGraph(InGraph::Allocation(_))));
    let has_kernels = has(|step| matches!(step.step, Step::Kernel(_)));
    (allocates && has_kernels).then_some("kernels: stopped after each node, such graphs hung")
}

fn refused(function: &'static str) -> impl Fn(Code) -> String {
    move |code| format!("{function} returned {}", result_name(code))
}

impl Found {
    fn add(&mut self, api: &Api, graph: u64, depth: usize) -> Result<(), String> {
        let nodes = api.nodes_of(graph).map_err(refused("cuGraphGetNodes"))?;
        let edges = api.edges_of(graph).map_err(refused("cuGraphGetEdges"))?;
        let mut kinds = FxHashMap::default();
        for &node in &nodes {
            let kind = api.type_of(node).map_err(refused("cuGraphNodeGetType"))?;
            kinds.insert(node, kind);
        }
        // What a node waits for may be what a parallel one writes.
        let is_late = |node: u64| kinds.get(&node) == Some(&OPERATIONS) && waits(api, node);
        let mut order = Order {
            graph,
            ..Order::default()
        };
        for node in in_order(&nodes, &edges, is_late) {
            let kind = kinds.get(&node).copied().unwrap_or_default();
            let step = match kind {
                OPERATIONS => {
                    let operations = api.operations_of(node);
                    let operations =
                        operations.map_err(refused("cuGraphBatchMemOpNodeGetParams"))?;
                    if let Some(mark) = is_stop(&operations) {
                        self.stops.push(mark);
                        continue;
                    }
                    operations_step(operations)
                }
                CHILD if depth > 0 => {
                    let child = api.child_of(node);
                    let child = child.map_err(refused("cuGraphChildGraphNodeGetGraph"))?;
                    self.add(api, child, depth - 1)?;
                    let inner = std::mem::take(&mut self.order);
                    order.nodes.push((node, Some(inner)));
                    continue;
                }
                // Host functions do nothing at replay; nothing else runs that events order.
                3 | 5 | 6 | 7 => continue,
                kind => step_of(api, node, kind)?,
            };
            order.nodes.push((node, None));
            self.steps.push(NodeStep {
                node,
                is_enabled: true,
                step,
            });
        }
        self.order = Order { edges, ..order };
        Ok(())
    }
}

fn step_of(api: &Api, node: u64, kind: u32) -> Result<Step, String> {
    Ok(match kind {
        0 => Step::Kernel(Box::new(kernel_node(api, node)?)),
        1 => {
            let params = api.copy_params(node, size_of::<CUDA_MEMCPY3D>());
            Step::Copy(params.map_err(refused("cuGraphMemcpyNodeGetParams"))?)
        }
        2 => {
            let params = api.memset_params(node, size_of::<CUDA_MEMSET_NODE_PARAMS>());
            let params = params.map_err(refused("cuGraphMemsetNodeGetParams"))?;
            Step::Memset(memset_of(&params))
        }
        8 | 9 => return Err("the graph has a node of an external semaphore".into()),
        10 => {
            let params = api.allocation_params(node, size_of::<CUDA_MEM_ALLOC_NODE_PARAMS>());
            let params = params.map_err(refused("cuGraphMemAllocNodeGetParams"))?;
            let address = word(&params, offset_of!(CUDA_MEM_ALLOC_NODE_PARAMS, dptr));
            Step::InGraph(InGraph::Allocation(address))
        }
        11 => {
            let address = api.freed_by(node);
            let address = address.map_err(refused("cuGraphMemFreeNodeGetParams"))?;
            Step::InGraph(InGraph::Free(address))
        }
        13 => Step::InGraph(InGraph::Condition),
        other => return Err(format!("the graph has a node of type {other}")),
    })
}

/// By elements of `CUstreamBatchMemOpParams`.
fn operations_step(operations: Vec<u8>) -> Step {
    match has_wait(&operations) {
        true => Step::InGraph(InGraph::Waits),
        false => Step::Writes(operations),
    }
}

fn waits(api: &Api, node: u64) -> bool {
    let operations = api.operations_of(node);
    operations.is_ok_and(|operations| has_wait(&operations) && is_stop(&operations).is_none())
}

fn has_wait(operations: &[u8]) -> bool {
    // CU_STREAM_MEM_OP_WAIT_VALUE_32, _64.
    let kind = |operation: &[u8]| word(operation, 0) as u32;
    let mut operations = operations.chunks_exact(size_of::<CUstreamBatchMemOpParams>());
    operations.any(|operation| matches!(kind(operation), 1 | 4))
}

/// Gives a node of an executable graph other parameters, with live addresses and handles.
///
/// # Errors
/// Why the graph cannot run node by node any more.
pub(crate) fn set_step(
    api: &Api,
    steps: &mut [NodeStep],
    (node, kind): (u64, NodeKind),
    params: &[u8],
) -> Result<(), String> {
    let Some(known) = steps.iter_mut().find(|step| step.node == node) else {
        return match kind {
            NodeKind::Host => Ok(()),
            _ => Err("a node that was changed after instantiation is not in its graph".into()),
        };
    };
    match (kind, &mut known.step) {
        (NodeKind::Kernel, Step::Kernel(known)) => {
            // Attributes stay those of the node.
            let attributes = std::mem::take(&mut known.launch.attributes);
            **known = kernel_of(api, params)?;
            known.launch.attributes = attributes;
        }
        (NodeKind::Copy, Step::Copy(known)) => *known = params.to_vec(),
        (NodeKind::Memset, Step::Memset(known)) => *known = memset_of(params),
        // The graph itself runs.
        (_, Step::InGraph(_)) => {}
        _ => return Err("a node of the graph was changed into one of another kind".into()),
    }
    Ok(())
}

/// Nodes after those that they depend on, otherwise as they come; those that are late after all that
/// do not depend on them.
fn in_order(nodes: &[u64], edges: &[(u64, u64)], is_late: impl Fn(u64) -> bool) -> Vec<u64> {
    let mut ordered = Vec::new();
    let mut left = nodes.to_vec();
    let mut is_done: HashSet<u64> = HashSet::new();
    let mut before: std::collections::HashMap<u64, Vec<u64>> = Default::default();
    for &(from, to) in edges {
        before.entry(to).or_default().push(from);
    }
    let mut takes_late = false;
    while !left.is_empty() {
        let count = left.len();
        left.retain(|&node| {
            let mut waits = before.get(&node).into_iter().flatten();
            let is_ready = waits.all(|earlier| is_done.contains(earlier));
            let is_next = is_ready && (takes_late || !is_late(node));
            if is_next {
                // One at a time: others may follow it.
                takes_late = false;
                is_done.insert(node);
                ordered.push(node);
            }
            !is_next
        });
        match left.len() == count {
            true if takes_late => break,
            no_progress => takes_late = no_progress,
        }
    }
    ordered
}

fn kernel_node(api: &Api, node: u64) -> Result<KernelNode, String> {
    let params = api.kernel_params(node, size_of::<CUDA_KERNEL_NODE_PARAMS>());
    let mut kernel = kernel_of(api, &params.map_err(refused("cuGraphKernelNodeGetParams"))?)?;
    for attribute in ATTRIBUTES {
        let value = api.node_attribute(node, attribute, ATTRIBUTE_VALUE_BYTES);
        // Not set: zero.
        if let Ok(value) = value
            && value.iter().take(4).any(|&byte| byte != 0)
        {
            kernel.launch.attributes.push((attribute, value));
        }
    }
    Ok(kernel)
}

/// By a `CUDA_KERNEL_NODE_PARAMS` with live handles and pointers.
fn kernel_of(api: &Api, params: &[u8]) -> Result<KernelNode, String> {
    let at = |offset| word(params, offset);
    let (function, kernel) = (
        at(offset_of!(CUDA_KERNEL_NODE_PARAMS, func)),
        at(offset_of!(CUDA_KERNEL_NODE_PARAMS, kern)),
    );
    let handle = if function == 0 { kernel } else { function };
    // A kernel may have been given as a function.
    let function = match api.name_of(handle) {
        Ok(_) if function != 0 => function,
        _ => {
            let function = api.kernel_function(handle);
            function.map_err(refused("cuKernelGetFunction"))?
        }
    };
    let number = |offset| at(offset) as u32;
    const GRID: usize = offset_of!(CUDA_KERNEL_NODE_PARAMS, gridDimX);
    const BLOCK: usize = offset_of!(CUDA_KERNEL_NODE_PARAMS, blockDimX);
    let three = |first| [number(first), number(first + 4), number(first + 8)];
    let mut launch = ObservedLaunch {
        kernel: api.name_of(function).unwrap_or_default(),
        grid: three(GRID),
        block: three(BLOCK),
        shared: number(offset_of!(CUDA_KERNEL_NODE_PARAMS, sharedMemBytes)),
        ..ObservedLaunch::default()
    };
    let layout = api.parameters_of(function, false);
    let layout = layout.ok_or("the driver does not tell how its kernel takes parameters")?;
    let pointers = at(offset_of!(CUDA_KERNEL_NODE_PARAMS, kernelParams));
    if pointers == 0 && !layout.is_empty() {
        return Err("the driver does not tell the parameters of a kernel node".into());
    }
    let ends = layout.iter().map(|&(offset, size)| offset + size);
    launch.parameters = vec![0; ends.max().unwrap_or(0) as usize];
    if !layout.is_empty() {
        let pointers = read_memory(pointers, layout.len() * 8);
        for (number, &(offset, size)) in layout.iter().enumerate() {
            let value = read_memory(word(&pointers, number * 8), size as usize);
            let (offset, size) = (offset as usize, size as usize);
            if let Some(place) = launch.parameters.get_mut(offset..offset + size) {
                place.copy_from_slice(&value);
            }
        }
    }
    launch.layout = layout;
    Ok(KernelNode {
        handle,
        function,
        launch,
        refused: None,
    })
}

/// By a `CUDA_MEMSET_NODE_PARAMS`.
fn memset_of(params: &[u8]) -> Memset {
    let at = |offset| word(params, offset);
    let number = |offset| at(offset) & u64::from(u32::MAX);
    Memset {
        target: at(offset_of!(CUDA_MEMSET_NODE_PARAMS, dst)),
        pitch: at(offset_of!(CUDA_MEMSET_NODE_PARAMS, pitch)),
        value: number(offset_of!(CUDA_MEMSET_NODE_PARAMS, value)),
        element: number(offset_of!(CUDA_MEMSET_NODE_PARAMS, elementSize)),
        width: at(offset_of!(CUDA_MEMSET_NODE_PARAMS, width)),
        height: at(offset_of!(CUDA_MEMSET_NODE_PARAMS, height)),
    }
}

impl Step {
    /// What it does, for reports.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Kernel(node) => node.launch.kernel.clone(),
            Self::Copy(_) => "a copy".into(),
            Self::Memset(_) => "a memset".into(),
            Self::Writes(_) => "operations that write values".into(),
            Self::InGraph(only) => only.describe().into(),
        }
    }

    /// Does what the node does, and waits for it.
    pub(crate) fn run(&self, api: &Api) -> Result<(), Code> {
        match self {
            Self::Kernel(node) => node.run(api)?,
            Self::Copy(params) => api.copy_described(params)?,
            Self::Memset(memset) => api.set_described(memset)?,
            Self::Writes(operations) => api.operate_on_memory(operations)?,
            // `Nodes::of` has refused a graph without stops.
            Self::InGraph(_) => return Err(NOT_SUPPORTED),
        }
        api.synchronize()
    }
}

impl KernelNode {
    fn run(&self, api: &Api) -> Result<(), Code> {
        let launch = &self.launch;
        let parameters = Buffer::of(&launch.parameters);
        let base = parameters.address();
        let offsets = launch.layout.iter().map(|known| base + u64::from(known.0));
        let pointers: Vec<u64> = offsets.chain([0]).collect();
        let pointers = Buffer::of_words(&pointers);
        let mut attributes = Vec::new();
        for (id, value) in &launch.attributes {
            let mut attribute = vec![0; 8];
            set_word(&mut attribute, 0, u64::from(*id));
            attributes.extend(attribute);
            attributes.extend(value);
        }
        api.launch(self.handle, launch, pointers.address(), &attributes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_come_after_those_that_they_depend_on() {
        for (edges, expected) in [
            (&[][..], &[1, 2, 3, 4][..]),
            (&[(4, 1), (1, 2)], &[3, 4, 1, 2]),
            (&[(2, 1), (3, 2), (4, 3)], &[4, 3, 2, 1]),
            // A circle cannot run.
            (&[(1, 2), (2, 1)], &[3, 4]),
        ] {
            let ordered = in_order(&[1, 2, 3, 4], edges, |_| false);
            assert_eq!(ordered, expected, "{edges:?}");
        }
    }

    #[test]
    fn nodes_that_wait_come_after_all_that_do_not_depend_on_them() {
        for (edges, expected) in [
            (&[][..], &[2, 3, 4, 1][..]),
            (&[(1, 2), (3, 4)], &[3, 4, 1, 2]),
            (&[(2, 1), (1, 4)], &[2, 3, 1, 4]),
        ] {
            let ordered = in_order(&[1, 2, 3, 4], edges, |node| node == 1);
            assert_eq!(ordered, expected, "{edges:?}");
        }
    }
}
