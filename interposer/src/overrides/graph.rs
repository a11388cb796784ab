//! Graphs and snapshots: what the structs of nodes lead to, and which host memory a launch reads and writes.

use core::mem::offset_of;

use cutape_driver::types::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_CONDITIONAL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS,
    CUDA_MEM_ALLOC_NODE_PARAMS, CUgraphNodeType_enum, CUmemAccessDesc, CUstreamBatchMemOpParams,
};
use cutape_format::PayloadPolicy;
use cutape_format::layout::field;
use cutape_format::write::Record;
use cutape_registry::{FUNCTIONS, Length, Role};

use super::{launch, origin};
use crate::call::{Frame, payload_policy};
use crate::thread::Thread;
use crate::{graph_copies, memory, pending, snapshot};

/// Where the union of `CUgraphNodeParams` begins; its type is the first member.
const BODY: u64 = 16;
/// Where the copy is in the memcpy member of that union.
const COPY: u64 = 16;
/// Operations of one node; the driver takes fewer.
const MOST_OPERATIONS: u64 = 4096;
/// Access descriptions of one allocation, one a device.
const MOST_ACCESSES: u64 = 1024;
/// Body graphs of one conditional node.
const MOST_BODIES: u64 = 1024;
/// Dependencies of a snapshot that are kept.
const MOST_DEPENDENCIES: u64 = 1 << 16;

/// What a struct describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Kernel,
    Copy,
    Operations,
    Allocation,
    /// `CUgraphNodeParams`, which says itself.
    Any,
}

/// A function of graphs that the roles do not describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A node gets parameters; where they are.
    Node {
        at: u8,
        shape: Shape,
    },
    /// A node of an executable graph gets parameters.
    ExecNode {
        at: u8,
        shape: Shape,
    },
    ExecChild,
    Instantiate,
    Update,
    SetEnabled,
    ExecEnd,
    Launch,
    CaptureInfo,
}

impl Step {
    /// The step of a documented function.
    pub(crate) fn of(base: &str) -> Option<Self> {
        let node = |at, shape| Some(Self::Node { at, shape });
        let exec_node = |shape| Some(Self::ExecNode { at: 2, shape });
        match base {
            "cuGraphAddKernelNode" => node(4, Shape::Kernel),
            "cuGraphAddBatchMemOpNode" => node(4, Shape::Operations),
            "cuGraphAddMemAllocNode" => node(4, Shape::Allocation),
            "cuGraphKernelNodeSetParams" => node(1, Shape::Kernel),
            "cuGraphBatchMemOpNodeSetParams" => node(1, Shape::Operations),
            // The node's parameters are the last parameter of both versions of cuGraphAddNode.
            "cuGraphAddNode" => node(u8::MAX, Shape::Any),
            "cuGraphNodeSetParams" => node(1, Shape::Any),
            "cuGraphExecKernelNodeSetParams" => exec_node(Shape::Kernel),
            "cuGraphExecMemcpyNodeSetParams" => exec_node(Shape::Copy),
            "cuGraphExecBatchMemOpNodeSetParams" => exec_node(Shape::Operations),
            "cuGraphExecNodeSetParams" => exec_node(Shape::Any),
            "cuGraphExecChildGraphNodeSetParams" => Some(Self::ExecChild),
            "cuGraphInstantiate"
            | "cuGraphInstantiateWithFlags"
            | "cuGraphInstantiateWithParams" => Some(Self::Instantiate),
            "cuGraphExecUpdate" => Some(Self::Update),
            "cuGraphNodeSetEnabled" => Some(Self::SetEnabled),
            "cuGraphExecDestroy" => Some(Self::ExecEnd),
            "cuGraphLaunch" => Some(Self::Launch),
            "cuStreamGetCaptureInfo" => Some(Self::CaptureInfo),
            _ => None,
        }
    }
}

/// Whether a parameter is looked at here: what a snapshot's description says is written only while the stream snapshots.
pub(super) fn owns(step: Step, parameter: u8) -> bool {
    step == Step::CaptureInfo && parameter >= 2
}

/// The position of the struct, its address and its size.
fn params(frame: &Frame, at: u8) -> Option<(u8, u64, u64)> {
    let params = FUNCTIONS.get(frame.function as usize)?.params;
    let at = usize::from(at).min(params.len().checked_sub(1)?);
    let (Role::In(Length::Fixed(size)) | Role::InOut(Length::Fixed(size))) = params[at].role else {
        return None;
    };
    let address = frame.words[at];
    (address != 0).then_some((at as u8, address, u64::from(size)))
}

/// What the struct really describes and where that begins.
fn body(address: u64, size: u64, shape: Shape) -> Option<(Shape, u64, u64)> {
    if shape != Shape::Any {
        return Some((shape, address, size));
    }
    let kind = memory::word(address)? as u32;
    let shape = match CUgraphNodeType_enum(kind) {
        CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_KERNEL => Shape::Kernel,
        CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_MEMCPY => {
            return Some((Shape::Copy, address.wrapping_add(BODY + COPY), size));
        }
        CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => Shape::Operations,
        CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_MEM_ALLOC => Shape::Allocation,
        _ => return None,
    };
    Some((shape, address.wrapping_add(BODY), size))
}

/// Runs between the enter record and the driver.
pub(super) fn entered(state: &Thread, frame: &Frame, step: Step) {
    match step {
        Step::Node { at, shape } | Step::ExecNode { at, shape } => {
            if let Some((at, address, size)) = params(frame, at)
                && let Some((shape, address, size)) = body(address, size, shape)
            {
                pointed(state, at, address, size, shape);
            }
        }
        _ => {}
    }
}

/// Writes what the members of a struct lead to.
fn pointed(state: &Thread, at: u8, address: u64, size: u64, shape: Shape) {
    let word = |offset: usize| memory::word(address.wrapping_add(offset as u64)).unwrap_or(0);
    let array = |elements: u64, length: u64| {
        if elements != 0 && length != 0 {
            launch::note(state, |record| {
                snapshot::bytes(record, at, field::ELEMENTS, elements, length)
            });
        }
    };
    match shape {
        Shape::Kernel => {
            let mut function = word(offset_of!(CUDA_KERNEL_NODE_PARAMS, func));
            // The first version of the struct ends before the kernel.
            let kernel = offset_of!(CUDA_KERNEL_NODE_PARAMS, kern);
            if function == 0 && size > kernel as u64 {
                function = word(kernel);
            }
            let parameters = word(offset_of!(CUDA_KERNEL_NODE_PARAMS, kernelParams));
            let extra = word(offset_of!(CUDA_KERNEL_NODE_PARAMS, extra));
            origin::about_to_use(state, function);
            launch::note_layout(state, function);
            launch::note(state, |record| {
                launch::kernel_parameters(record, at, function, parameters, &mut false)?;
                launch::extra_words(record, at, extra)
            });
        }
        Shape::Operations => {
            let count = word(offset_of!(CUDA_BATCH_MEM_OP_NODE_PARAMS, count)) & 0xffff_ffff;
            let size = size_of::<CUstreamBatchMemOpParams>() as u64;
            array(
                word(offset_of!(CUDA_BATCH_MEM_OP_NODE_PARAMS, paramArray)),
                count.min(MOST_OPERATIONS) * size,
            );
        }
        Shape::Allocation => {
            let count = word(offset_of!(CUDA_MEM_ALLOC_NODE_PARAMS, accessDescCount));
            array(
                word(offset_of!(CUDA_MEM_ALLOC_NODE_PARAMS, accessDescs)),
                count.min(MOST_ACCESSES) * size_of::<CUmemAccessDesc>() as u64,
            );
        }
        Shape::Copy | Shape::Any => {}
    }
}

/// Bytes of sources that one record holds; a chunk of calls is 1 MiB at most.
const MOST_INLINE: u64 = 256 << 10;

/// Puts which host memory the copies of a graph read and write, and what they are about to read.
pub(super) fn launching(record: &mut Record<'_>, frame: &Frame) -> Option<()> {
    let mut copies = graph_copies::of(frame.words[0]);
    // Whether a conditional copy brings anything is not known.
    copies.retain(|copy| copy.is_source || !copy.is_conditional);
    if copies.is_empty() {
        return Some(());
    }
    let ranges: Vec<u8> = copies
        .iter()
        .flat_map(|copy| {
            let rows = &copy.rows;
            [
                if copy.is_source { 1 } else { 2 },
                rows.address,
                rows.row,
                rows.pitch,
                rows.rows,
                rows.slice_pitch,
                rows.slices,
                copy.node,
            ]
        })
        .flat_map(u64::to_le_bytes)
        .collect();
    snapshot::own(record, 0, field::HOST_RANGES, &ranges)?;
    let policy = payload_policy().0;
    let mut inline = 0;
    for copy in copies.iter().filter(|copy| copy.is_source) {
        inline += copy.rows.length();
        if inline > MOST_INLINE && policy != PayloadPolicy::None {
            snapshot::blob(record, 0, field::HOST_BYTES, &copy.rows)?;
        } else {
            snapshot::payload(record, 0, field::HOST_BYTES, &copy.rows, policy)?;
        }
    }
    Some(())
}

/// Runs after a call that the driver has carried out.
pub(super) fn leaving(state: &Thread, frame: &Frame, step: Step) {
    let [first, second, third, ..] = frame.words;
    match step {
        Step::Node { at, shape } => {
            if let Some((_, bodies)) = bodies(frame, at, shape)
                && let Some(node) = memory::word(first)
            {
                graph_copies::has_bodies(node, bodies);
            }
        }
        Step::ExecNode { at, shape } => {
            if let Some((_, address, size)) = params(frame, at)
                && let Some((Shape::Copy, address, _)) = body(address, size, shape)
            {
                graph_copies::node_changed(first, second, address);
            }
        }
        Step::ExecChild => graph_copies::child_changed(first, second, third),
        Step::Instantiate => {
            if let Some(exec) = memory::word(first) {
                graph_copies::instantiated(exec, second);
            }
        }
        Step::Update => graph_copies::updated(first, second),
        Step::SetEnabled => graph_copies::set_enabled(first, second, third as u32 != 0),
        Step::ExecEnd => graph_copies::ended(first),
        Step::Launch => {
            let targets: Vec<_> = graph_copies::of(first)
                .iter()
                .filter(|copy| !copy.is_source && !copy.is_conditional)
                .map(|copy| copy.rows)
                .collect();
            pending::launched(state, frame, &targets);
        }
        Step::CaptureInfo => {}
    }
}

/// The graphs that the driver has made for a conditional node, and the position of its struct.
fn bodies(frame: &Frame, at: u8, shape: Shape) -> Option<(u8, Vec<u64>)> {
    if shape != Shape::Any {
        return None;
    }
    let (at, address, _) = params(frame, at)?;
    let kind = CUgraphNodeType_enum(memory::word(address)? as u32);
    if kind != CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_CONDITIONAL {
        return None;
    }
    let member = |offset: usize| memory::word(address.wrapping_add(BODY + offset as u64));
    let count = member(offset_of!(CUDA_CONDITIONAL_NODE_PARAMS, size))? & 0xffff_ffff;
    let graphs = member(offset_of!(CUDA_CONDITIONAL_NODE_PARAMS, phGraph_out))?;
    let graphs = (0..count.min(MOST_BODIES))
        .map_while(|index| memory::word(graphs.wrapping_add(index * 8)))
        .collect();
    Some((at, graphs))
}

/// Puts what the driver has written that the roles do not describe.
pub(super) fn after(record: &mut Record<'_>, frame: &Frame, step: Step) -> Option<()> {
    if frame.result as i32 != 0 {
        return Some(());
    }
    match step {
        Step::Node { at, shape } => {
            let Some((at, graphs)) = bodies(frame, at, shape) else {
                return Some(());
            };
            let bytes: Vec<u8> = graphs.into_iter().flat_map(u64::to_le_bytes).collect();
            snapshot::own(record, at, field::ELEMENTS, &bytes)
        }
        Step::CaptureInfo => capture_info(record, frame),
        _ => Some(()),
    }
}

/// `cuStreamGetCaptureInfo`: graph, dependencies, in the third version edge data, and the number of dependencies.
fn capture_info(record: &mut Record<'_>, frame: &Frame) -> Option<()> {
    const ACTIVE: u32 = 1;
    let Some(function) = FUNCTIONS.get(frame.function as usize) else {
        return Some(());
    };
    let mut status = [0; 4];
    if !memory::read_all(frame.words[1], &mut status) || u32::from_le_bytes(status) != ACTIVE {
        return Some(());
    }
    let params = function.params;
    // The identification, and then graph and arrays.
    for at in 2..params.len() {
        let pointer = frame.words[at];
        if pointer != 0 {
            snapshot::bytes(record, at as u8, field::POINTEE, pointer, 8)?;
        }
    }
    let Some(count) = params
        .len()
        .checked_sub(1)
        .filter(|&last| last > 2)
        .and_then(|last| memory::word(frame.words[last]))
    else {
        return Some(());
    };
    for (at, param) in params.iter().enumerate().skip(4) {
        if !param.name.starts_with("dependencies") && !param.name.starts_with("edgeData") {
            continue;
        }
        if let Some(elements) = memory::word(frame.words[at]).filter(|&elements| elements != 0) {
            let length = count.min(MOST_DEPENDENCIES) * 8;
            snapshot::bytes(record, at as u8, field::ELEMENTS, elements, length)?;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_struct_is_where_the_header_has_it() {
        let structs = [
            (Shape::Kernel, "CUDA_KERNEL_NODE_PARAMS"),
            (Shape::Copy, "CUDA_MEMCPY3D"),
            (Shape::Operations, "CUDA_BATCH_MEM_OP_NODE_PARAMS"),
            (Shape::Allocation, "CUDA_MEM_ALLOC_NODE_PARAMS"),
            (Shape::Any, "CUgraphNodeParams"),
        ];
        let mut met = 0;
        for function in &FUNCTIONS {
            let (at, shape) = match Step::of(function.base) {
                Some(Step::Node { at, shape } | Step::ExecNode { at, shape }) => (at, shape),
                _ => continue,
            };
            let at = usize::from(at).min(function.params.len() - 1);
            let name = structs.iter().find(|entry| entry.0 == shape).unwrap().1;
            assert!(
                function.params[at].c_type.contains(name),
                "{}: {}",
                function.name,
                function.params[at].c_type
            );
            met += 1;
        }
        assert!(met >= 14, "{met}");
    }

    #[test]
    fn the_struct_of_a_node_says_what_it_is() {
        for (kind, shape, offset) in [
            (0u32, Some(Shape::Kernel), 16),
            (1, Some(Shape::Copy), 32),
            (2, None, 0),
            (10, Some(Shape::Allocation), 16),
            (12, Some(Shape::Operations), 16),
            (99, None, 0),
        ] {
            let node = [u64::from(kind); 32];
            let address = node.as_ptr() as u64;
            let found = body(address, 256, Shape::Any);
            assert_eq!(found.map(|found| found.0), shape, "{kind}");
            if let Some((_, at, _)) = found {
                assert_eq!(at - address, offset, "{kind}");
            }
        }
        assert_eq!(body(8, 256, Shape::Any), None, "cannot be read");
    }
}
