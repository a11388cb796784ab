//! Graphs: what the structs of nodes point at, and which host memory a launch reads and writes.

use core::mem::offset_of;

use cutape_driver::types::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_CONDITIONAL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS,
    CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY_NODE_PARAMS, CUgraphNodeParams, CUgraphNodeType_enum,
    CUmemAccessDesc, CUstreamBatchMemOpParams,
};
use cutape_format::PayloadPolicy;
use cutape_format::layout::{field, note_kind};
use cutape_registry::{GraphOp, Length, NodeKind, NodeParams, Role};

use super::visitor::Visitor;
use super::{launch, origin};
use crate::file::rows::Memory;
use crate::hot::frame::Frame;
use crate::hot::recording::Direction;
use crate::hot::thread::{Draft, Thread};
use crate::process::memory;
use crate::queries::current_context;
use crate::state::followed_work;
use crate::state::graph_copies;
use crate::{async_readback, device_memory, host_memory, snapshot};

/// Where the union of `CUgraphNodeParams` begins.
const UNION: u64 = offset_of!(CUgraphNodeParams, __bindgen_anon_1) as u64;
/// Where the memcpy member of that union has its `CUDA_MEMCPY3D`.
const COPY: u64 = UNION + offset_of!(CUDA_MEMCPY_NODE_PARAMS, copyParams) as u64;
/// Operations of one node; the driver takes fewer.
const MOST_OPERATIONS: u64 = 4096;
/// Access descriptions of one allocation, one for each device.
const MOST_ACCESSES: u64 = 1024;
/// Body graphs of one conditional node.
const MOST_BODIES: u64 = 1024;
/// Dependencies of a capture that are kept.
const MOST_DEPENDENCIES: u64 = 1 << 16;
/// Bytes of sources that one record holds; a thread buffer has 1 MiB at most.
const MOST_INLINE: u64 = 256 << 10;

/// Address and size of the struct that describes a node.
fn params(frame: &Frame, node: NodeParams) -> Option<(u64, u64)> {
    let parameters = frame.description().params;
    let parameter = parameters.get(usize::from(node.position))?;
    let (Role::In(Length::Fixed(size)) | Role::InOut(Length::Fixed(size))) = parameter.role else {
        return None;
    };
    let address = frame.word(node.position);
    (address != 0).then_some((address, u64::from(size)))
}

/// What the struct really describes, and where that begins.
fn body(address: u64, kind: NodeKind) -> Option<(NodeKind, u64)> {
    if kind != NodeKind::Any {
        return Some((kind, address));
    }
    let (kind, offset) = match CUgraphNodeType_enum(memory::word(address)? as u32) {
        CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_KERNEL => (NodeKind::Kernel, UNION),
        CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_MEMCPY => (NodeKind::Copy, COPY),
        CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => (NodeKind::MemoryOps, UNION),
        CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_MEM_ALLOC => (NodeKind::Allocation, UNION),
        _ => return None,
    };
    Some((kind, address.wrapping_add(offset)))
}

/// The event that a node records, of which this is the struct.
fn recorded_by(address: u64, kind: NodeKind) -> Option<u64> {
    const RECORD: u32 = CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_EVENT_RECORD.0;
    let is_record = kind == NodeKind::Any && memory::word(address)? as u32 == RECORD;
    is_record.then(|| memory::word(address.wrapping_add(UNION)))?
}

pub(super) fn visit<V: Visitor>(visitor: V, op: GraphOp) -> V {
    match op {
        GraphOp::AddNode(node) | GraphOp::SetNode(node) => {
            let visitor = visit_pointees(visitor, node);
            match node.kind {
                NodeKind::Any => visitor
                    .post_call(move |_, frame| given_bodies(frame, node))
                    .put_post_call(move |draft, frame| put_bodies(draft, frame, node)),
                _ => visitor,
            }
        }
        GraphOp::SetExecNode(node) => {
            let visitor = visit_pointees(visitor, node);
            match node.kind {
                NodeKind::ChildGraph => visitor.post_call(|_, frame| {
                    let [exec, node, graph, ..] = frame.words;
                    graph_copies::child_changed(exec, node, graph);
                }),
                NodeKind::Any | NodeKind::Copy => {
                    visitor.post_call(move |_, frame| exec_node_changed(frame, node))
                }
                NodeKind::Kernel
                | NodeKind::MemoryOps
                | NodeKind::Allocation
                | NodeKind::Memset
                | NodeKind::Host
                | NodeKind::Semaphores => visitor,
            }
        }
        GraphOp::Instantiate { .. } => visitor.post_call(|_, frame| {
            if let Some(exec) = memory::word(frame.word(0)) {
                graph_copies::instantiated(exec, frame.word(1));
            }
        }),
        GraphOp::Update => {
            visitor.post_call(|_, frame| graph_copies::updated(frame.word(0), frame.word(1)))
        }
        GraphOp::SetEnabled => visitor.post_call(|_, frame| {
            let [exec, node, is_enabled, ..] = frame.words;
            graph_copies::set_enabled(exec, node, is_enabled as u32 != 0);
        }),
        GraphOp::DestroyExec => visitor.post_call(|_, frame| graph_copies::ended(frame.word(0))),
        GraphOp::Launch => visitor
            .put_pre_call(put_launch)
            .pre_call(|thread, frame| launching(thread, frame))
            .post_call(|thread, frame| launched(thread, frame)),
        GraphOp::GetNode(_)
        | GraphOp::GetKernelAttribute { .. }
        | GraphOp::SetKernelAttribute { .. }
        | GraphOp::List
        | GraphOp::Clone
        | GraphOp::AddEdges
        | GraphOp::RemoveEdges
        | GraphOp::CopyAttributes
        | GraphOp::Upload
        | GraphOp::ConditionalHandle
        | GraphOp::DotFile { .. } => visitor,
    }
}

fn visit_pointees<V: Visitor>(visitor: V, node: NodeParams) -> V {
    match node.kind {
        NodeKind::Any | NodeKind::Kernel | NodeKind::MemoryOps | NodeKind::Allocation => visitor
            .pre_call(move |thread, frame| {
                if let Some((address, size)) = params(frame, node)
                    && let Some((kind, address)) = body(address, node.kind)
                {
                    note_pointees(thread, node.position, address, size, kind);
                }
            }),
        NodeKind::Copy
        | NodeKind::Memset
        | NodeKind::Host
        | NodeKind::ChildGraph
        | NodeKind::Semaphores => visitor,
    }
}

pub(super) fn visit_capture<V: Visitor>(visitor: V, status: u8) -> V {
    visitor
        // What follows the status is written only while the stream is being captured.
        .owns(u16::MAX << (status + 1))
        .put_post_call(move |draft, frame| put_capture_info(draft, frame, status))
}

/// Before a call that gives a node of an executable graph another event.
pub(super) fn exec_records(frame: &Frame, event: u8) {
    graph_copies::records(frame.word(0), frame.word(event));
}

/// Writes what the members of a struct point at.
fn note_pointees(thread: &Thread, at: u8, address: u64, size: u64, kind: NodeKind) {
    let word = |offset: usize| memory::word(address.wrapping_add(offset as u64)).unwrap_or(0);
    let array = |elements: u64, length: u64| {
        if elements != 0 && length != 0 {
            thread.note(note_kind::SNAPSHOTS, |draft| {
                snapshot::bytes(draft, at, field::ELEMENTS, elements, length)
            });
        }
    };
    match kind {
        NodeKind::Kernel => {
            let mut function = word(offset_of!(CUDA_KERNEL_NODE_PARAMS, func));
            // The first version of the struct ends before the kernel.
            let kernel = offset_of!(CUDA_KERNEL_NODE_PARAMS, kern);
            if function == 0 && size > kernel as u64 {
                function = word(kernel);
            }
            let parameters = word(offset_of!(CUDA_KERNEL_NODE_PARAMS, kernelParams));
            let extra = word(offset_of!(CUDA_KERNEL_NODE_PARAMS, extra));
            origin::about_to_use(thread, function);
            launch::note_layout(thread, function);
            thread.note(note_kind::SNAPSHOTS, |draft| {
                launch::put_parameters(draft, at, function, parameters)?;
                launch::put_extra(draft, at, extra)
            });
            if let Some(state) = device_memory::get().filter(|state| state.has_digests()) {
                let words = launch::words_of_node(function, parameters, extra);
                state.kernel_node(&words.unwrap_or_default(), current_context());
            }
        }
        NodeKind::MemoryOps => {
            let count = word(offset_of!(CUDA_BATCH_MEM_OP_NODE_PARAMS, count)) & 0xffff_ffff;
            let size = size_of::<CUstreamBatchMemOpParams>() as u64;
            array(
                word(offset_of!(CUDA_BATCH_MEM_OP_NODE_PARAMS, paramArray)),
                count.min(MOST_OPERATIONS) * size,
            );
        }
        NodeKind::Allocation => {
            let count = word(offset_of!(CUDA_MEM_ALLOC_NODE_PARAMS, accessDescCount));
            array(
                word(offset_of!(CUDA_MEM_ALLOC_NODE_PARAMS, accessDescs)),
                count.min(MOST_ACCESSES) * size_of::<CUmemAccessDesc>() as u64,
            );
        }
        NodeKind::Copy
        | NodeKind::Memset
        | NodeKind::Host
        | NodeKind::ChildGraph
        | NodeKind::Semaphores
        | NodeKind::Any => {}
    }
}

/// Writes which host memory the copies of a graph read and write, and the bytes that they are about
/// to read.
fn put_launch(draft: &mut Draft<'_>, frame: &Frame) -> Option<()> {
    let mut copies = graph_copies::of(frame.word(0));
    // Whether a conditional copy writes anything is not known.
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
    snapshot::own(draft, 0, field::HOST_RANGES, &ranges)?;
    let direction = Direction::ToDevice;
    let mut inline = 0;
    for copy in copies.iter().filter(|copy| copy.is_source) {
        inline += copy.rows.length();
        if inline > MOST_INLINE && direction.policy() != PayloadPolicy::None {
            snapshot::blob(draft, 0, field::HOST_BYTES, &copy.rows)?;
        } else {
            snapshot::payload(draft, 0, field::HOST_BYTES, &copy.rows, direction)?;
        }
    }
    Some(())
}

/// Before a launch of an executable graph.
fn launching(thread: &Thread, frame: &Frame) {
    if followed_work::any() {
        followed_work::forget_events(&graph_copies::events(frame.word(0)));
    }
    // Which memory the kernels of a graph reach is not known: their parameters may change in many
    // calls.
    if host_memory::any() {
        host_memory::before_launch(thread, frame, frame.word(1), None);
    }
}

/// After a successful launch of an executable graph.
fn launched(thread: &Thread, frame: &Frame) {
    let targets: Vec<_> = graph_copies::of(frame.word(0))
        .iter()
        .filter(|copy| !copy.is_source && !copy.is_conditional)
        .map(|copy| copy.rows)
        .collect();
    async_readback::add_of_graph(thread, frame, &targets);
}

/// After a node of an executable graph was given other parameters.
fn exec_node_changed(frame: &Frame, node: NodeParams) {
    let Some((address, _)) = params(frame, node) else {
        return;
    };
    if let Some((NodeKind::Copy, address)) = body(address, node.kind) {
        graph_copies::node_changed(frame.word(0), frame.word(1), address);
    } else if let Some(event) = recorded_by(address, node.kind) {
        graph_copies::records(frame.word(0), event);
    }
}

/// After a node was added or changed, which may be a conditional one.
fn given_bodies(frame: &Frame, node: NodeParams) {
    if let Some(bodies) = bodies(frame, node)
        && let Some(node) = memory::word(frame.word(0))
    {
        graph_copies::has_bodies(node, bodies);
    }
}

/// The graphs that the driver has made for a conditional node.
fn bodies(frame: &Frame, node: NodeParams) -> Option<Vec<u64>> {
    let (address, _) = params(frame, node)?;
    let kind = CUgraphNodeType_enum(memory::word(address)? as u32);
    if kind != CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_CONDITIONAL {
        return None;
    }
    let member = |offset: usize| memory::word(address.wrapping_add(UNION + offset as u64));
    let count = member(offset_of!(CUDA_CONDITIONAL_NODE_PARAMS, size))? & 0xffff_ffff;
    let graphs = member(offset_of!(CUDA_CONDITIONAL_NODE_PARAMS, phGraph_out))?;
    let graphs = (0..count.min(MOST_BODIES))
        .map_while(|index| memory::word(graphs.wrapping_add(index * 8)))
        .collect();
    Some(graphs)
}

/// Writes the graphs that the driver has made for a conditional node.
fn put_bodies(draft: &mut Draft<'_>, frame: &Frame, node: NodeParams) -> Option<()> {
    if !frame.succeeded() {
        return Some(());
    }
    let Some(graphs) = bodies(frame, node) else {
        return Some(());
    };
    let bytes: Vec<u8> = graphs.into_iter().flat_map(u64::to_le_bytes).collect();
    snapshot::own(draft, node.position, field::ELEMENTS, &bytes)
}

/// Writes the answer of `cuStreamGetCaptureInfo`: graph, dependencies, in the third version edge
/// data, and the number of dependencies.
fn put_capture_info(draft: &mut Draft<'_>, frame: &Frame, status: u8) -> Option<()> {
    const ACTIVE: u32 = 1;
    if !frame.succeeded() {
        return Some(());
    }
    let mut active = [0; 4];
    if !memory::read_all(frame.word(status), &mut active) || u32::from_le_bytes(active) != ACTIVE {
        return Some(());
    }
    let parameters = || (0..).zip(frame.description().params);
    // The identification, then graph and arrays.
    for (at, _) in parameters().skip(usize::from(status) + 1) {
        let pointer = frame.word(at);
        if pointer != 0 {
            snapshot::bytes(draft, at, field::POINTEE, pointer, 8)?;
        }
    }
    let count = parameters().find(|(_, parameter)| parameter.name.starts_with("numDependencies"));
    let Some(count) = count.and_then(|(at, _)| memory::word(frame.word(at))) else {
        return Some(());
    };
    for (at, parameter) in parameters() {
        if !parameter.name.starts_with("dependencies") && !parameter.name.starts_with("edgeData") {
            continue;
        }
        if let Some(elements) = memory::word(frame.word(at)).filter(|&elements| elements != 0) {
            let length = count.min(MOST_DEPENDENCIES) * 8;
            snapshot::bytes(draft, at, field::ELEMENTS, elements, length)?;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_struct_of_a_node_says_what_it_is() {
        for (kind, expected, offset) in [
            (0u32, Some(NodeKind::Kernel), 16),
            (1, Some(NodeKind::Copy), 32),
            (2, None, 0),
            (10, Some(NodeKind::Allocation), 16),
            (12, Some(NodeKind::MemoryOps), 16),
            (99, None, 0),
        ] {
            let node = [u64::from(kind); 32];
            let address = node.as_ptr() as u64;
            let found = body(address, NodeKind::Any);
            assert_eq!(found.map(|found| found.0), expected, "{kind}");
            if let Some((_, at)) = found {
                assert_eq!(at - address, offset, "{kind}");
            }
        }
        assert_eq!(body(8, NodeKind::Any), None, "cannot be read");
    }
}
