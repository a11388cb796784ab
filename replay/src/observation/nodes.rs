//! The nodes of a live graph, as the driver tells them, in an order in which they can run one after
//! the other.

use std::mem::offset_of;

use cutape_driver::types::{CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS};
use cutape_registry::NodeKind;

use crate::api::buffer::{Buffer, set_word, word};
use crate::api::{Api, Code, result_name};
use crate::compare::received::read_memory;
use crate::observation::job::ObservedLaunch;
use crate::observation::memset::Memset;

/// How deep child graphs are followed.
const DEEPEST: usize = 16;
/// CU_LAUNCH_ATTRIBUTE_COOPERATIVE, _CLUSTER_DIMENSION, _CLUSTER_SCHEDULING_POLICY_PREFERENCE,
/// _PREFERRED_CLUSTER_DIMENSION, _PREFERRED_SHARED_MEMORY_CARVEOUT: what decides whether and how a
/// kernel runs.
const ATTRIBUTES: [u32; 5] = [2, 4, 5, 11, 14];
const ATTRIBUTE_VALUE_BYTES: usize = 64;

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

/// What the nodes of a live graph do, each after those that it depends on.
///
/// # Errors
/// Which node cannot run by itself.
pub(crate) fn steps_of(api: &Api, graph: u64) -> Result<Vec<NodeStep>, String> {
    let mut steps = Vec::new();
    add_steps(api, graph, DEEPEST, &mut steps)?;
    Ok(steps)
}

fn refused(function: &'static str) -> impl Fn(Code) -> String {
    move |code| format!("{function} returned {}", result_name(code))
}

fn add_steps(api: &Api, graph: u64, depth: usize, steps: &mut Vec<NodeStep>) -> Result<(), String> {
    let nodes = api.nodes_of(graph).map_err(refused("cuGraphGetNodes"))?;
    let edges = api.edges_of(graph).map_err(refused("cuGraphGetEdges"))?;
    for node in in_order(&nodes, &edges) {
        let kind = api.type_of(node).map_err(refused("cuGraphNodeGetType"))?;
        let step = match kind {
            0 => Step::Kernel(Box::new(kernel_node(api, node)?)),
            1 => {
                let params = api.copy_params(node, size_of::<CUDA_MEMCPY3D>());
                Step::Copy(params.map_err(refused("cuGraphMemcpyNodeGetParams"))?)
            }
            2 => {
                let params = api.memset_params(node, size_of::<CUDA_MEMSET_NODE_PARAMS>());
                Step::Memset(memset_of(
                    &params.map_err(refused("cuGraphMemsetNodeGetParams"))?,
                ))
            }
            4 if depth > 0 => {
                let child = api.child_of(node);
                let child = child.map_err(refused("cuGraphChildGraphNodeGetGraph"))?;
                add_steps(api, child, depth - 1, steps)?;
                continue;
            }
            // Host functions do nothing at replay; nothing else runs that events order.
            3 | 5 | 6 | 7 => continue,
            8 | 9 => return Err("the graph has a node of an external semaphore".into()),
            10 | 11 => return Err("the graph allocates or frees memory".into()),
            12 => return Err("the graph has a node of operations in memory".into()),
            13 => return Err("the graph has a conditional node".into()),
            other => return Err(format!("the graph has a node of type {other}")),
        };
        steps.push(NodeStep {
            node,
            is_enabled: true,
            step,
        });
    }
    Ok(())
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
        _ => return Err("a node of the graph was changed into one of another kind".into()),
    }
    Ok(())
}

/// Nodes after those that they depend on, otherwise as they come.
fn in_order(nodes: &[u64], edges: &[(u64, u64)]) -> Vec<u64> {
    let mut ordered = Vec::new();
    let mut left = nodes.to_vec();
    let mut is_done = std::collections::HashSet::new();
    let mut before: std::collections::HashMap<u64, Vec<u64>> = Default::default();
    for &(from, to) in edges {
        before.entry(to).or_default().push(from);
    }
    while !left.is_empty() {
        let count = left.len();
        left.retain(|node| {
            let waits = before.get(node).into_iter().flatten();
            let is_ready = waits.into_iter().all(|earlier| is_done.contains(earlier));
            if is_ready {
                is_done.insert(*node);
                ordered.push(*node);
            }
            !is_ready
        });
        if left.len() == count {
            break;
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
        }
    }

    /// Does what the node does, and waits for it.
    pub(crate) fn run(&self, api: &Api) -> Result<(), Code> {
        match self {
            Self::Kernel(node) => node.run(api)?,
            Self::Copy(params) => api.copy_described(params)?,
            Self::Memset(memset) => api.set_described(memset)?,
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
            assert_eq!(in_order(&[1, 2, 3, 4], edges), expected, "{edges:?}");
        }
    }
}
