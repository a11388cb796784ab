//! The parameters of graph nodes: live handles, addresses and arrays are put into the structs that
//! a call takes, and the structs that it returns are compared.

use std::ops::Range as Bytes;

use cutape_driver::types::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_CONDITIONAL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS,
    CUDA_MEM_ALLOC_NODE_PARAMS, CUgraphNodeType_enum, CUstreamBatchMemOpParams,
};
use cutape_format::layout::field;
use cutape_registry::{
    Family, Field, Function, GraphOp, Kind, Meaning, NodeKind, Struct, layout, structure,
};
use std::mem::offset_of;

use crate::api::buffer::{Buffer, first, lend, number, set_word, word};
use crate::compare::received::read_memory;
use crate::issue::outcome::OF_GRAPH;
use crate::issue::structs::member;
use crate::objects::handles::{Belongs, Resolved};
use crate::objects::skip::{Skip, skip};
use crate::overrides::{callback, copy, launch};
use crate::player::{Job, Played, Player};

/// What a struct describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Kernel,
    Copy,
    Memset,
    Host,
    Child,
    Event,
    Allocation,
    Free,
    Operations,
    Condition,
    /// Nothing in it needs translation.
    Plain,
    /// A semaphore of another API.
    External,
    /// `CUgraphNodeParams`, which says itself.
    Any,
}

// The union of CUgraphNodeParams, and in its memcpy member the context and the copy.
const BODY: usize = layout::offset_of("CUgraphNodeParams", "kernel.func");
const COPY_CONTEXT: usize = layout::offset_of("CUDA_MEMCPY_NODE_PARAMS", "copyCtx");
const COPY: usize = layout::offset_of("CUDA_MEMCPY_NODE_PARAMS", "copyParams.srcXInBytes");

/// The numbers of an allocation that mean something by themselves when they come back.
const OF_ALLOCATION: [&str; 5] = [
    "poolProps.allocType",
    "poolProps.handleTypes",
    "poolProps.location.type",
    "poolProps.location.id",
    "bytesize",
];

impl Shape {
    /// By what the registry says of the function's parameter.
    fn of(kind: NodeKind) -> Self {
        match kind {
            NodeKind::Kernel => Self::Kernel,
            NodeKind::Copy => Self::Copy,
            NodeKind::Memset => Self::Memset,
            NodeKind::Host => Self::Host,
            NodeKind::ChildGraph => Self::Child,
            NodeKind::Semaphores => Self::External,
            NodeKind::MemoryOps => Self::Operations,
            NodeKind::Allocation => Self::Allocation,
            NodeKind::Any => Self::Any,
        }
    }

    /// Of the nodes that an observation runs one by one.
    fn kind(self) -> Option<NodeKind> {
        match self {
            Self::Kernel => Some(NodeKind::Kernel),
            Self::Copy => Some(NodeKind::Copy),
            Self::Memset => Some(NodeKind::Memset),
            Self::Host => Some(NodeKind::Host),
            _ => None,
        }
    }

    /// By CUgraphNodeType.
    fn of_type(kind: u64) -> Self {
        let Ok(kind) = u32::try_from(kind) else {
            return Self::Plain;
        };
        match CUgraphNodeType_enum(kind) {
            CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_KERNEL => Self::Kernel,
            CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_MEMCPY => Self::Copy,
            CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_MEMSET => Self::Memset,
            CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_HOST => Self::Host,
            CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_GRAPH => Self::Child,
            CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_WAIT_EVENT
            | CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_EVENT_RECORD => Self::Event,
            CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL
            | CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT => Self::External,
            CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_MEM_ALLOC => Self::Allocation,
            CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_MEM_FREE => Self::Free,
            CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => Self::Operations,
            CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_CONDITIONAL => Self::Condition,
            _ => Self::Plain,
        }
    }

    /// The newest version of the struct; a shorter one ends before the last members.
    fn layout(self) -> Option<&'static Struct> {
        structure(match self {
            Self::Kernel => "CUDA_KERNEL_NODE_PARAMS_v3",
            Self::Memset => "CUDA_MEMSET_NODE_PARAMS_v2",
            Self::Child => "CUDA_CHILD_GRAPH_NODE_PARAMS",
            Self::Event => "CUDA_EVENT_RECORD_NODE_PARAMS",
            Self::Allocation => "CUDA_MEM_ALLOC_NODE_PARAMS",
            Self::Free => "CUDA_MEM_FREE_NODE_PARAMS",
            Self::Operations => "CUDA_BATCH_MEM_OP_NODE_PARAMS",
            Self::Condition => "CUDA_CONDITIONAL_NODE_PARAMS",
            Self::Copy | Self::Host | Self::Plain | Self::External | Self::Any => return None,
        })
    }

    fn fields(self) -> impl Iterator<Item = &'static Field> {
        self.layout().into_iter().flat_map(|layout| layout.fields)
    }

    /// The bytes that can be compared when they come back.
    fn comparable(self, struct_bytes: &[u8]) -> Vec<Bytes<usize>> {
        if self == Self::Copy {
            return copy::node_numbers(struct_bytes);
        }
        let counts = |field: &&Field| match field.meaning {
            Meaning::Address | Meaning::Handle(_) => true,
            Meaning::Plain if self == Self::Allocation => OF_ALLOCATION.contains(&field.name),
            meaning => meaning == Meaning::Plain,
        };
        self.fields()
            .filter(counts)
            .map(|field| field.offset as usize..(field.offset + field.size) as usize)
            .collect()
    }
}

/// Where a struct begins and what it describes.
fn place_of(function: &Function) -> Option<(usize, Shape)> {
    let Family::Graph(
        GraphOp::AddNode(node)
        | GraphOp::GetNode(node)
        | GraphOp::SetNode(node)
        | GraphOp::SetExecNode(node),
    ) = function.family
    else {
        return None;
    };
    Some((usize::from(node.position), Shape::of(node.kind)))
}

/// Splits CUgraphNodeParams: what it describes and where that begins.
fn body(shape: Shape, bytes: &[u8]) -> (Shape, usize) {
    if shape != Shape::Any {
        return (shape, 0);
    }
    let shape = Shape::of_type(bytes.get(..4).map_or(u64::MAX, number));
    (shape, BODY + if shape == Shape::Copy { COPY } else { 0 })
}

/// Functions that are given the parameters of a node.
pub(crate) fn given(job: &mut Job<'_, '_>) -> Played {
    let Some((position, shape)) = place_of(job.function) else {
        return job.plain();
    };
    let Some(mut bytes) = job.input(position, 0)? else {
        return job.plain();
    };
    let (shape, begin) = body(shape, &bytes);
    let mut buffers = Vec::new();
    if (shape, begin) == (Shape::Copy, BODY + COPY) {
        let context = job.live_handle(Kind::Context, word(&bytes, BODY + COPY_CONTEXT))?;
        set_word(&mut bytes, BODY + COPY_CONTEXT, context);
    }
    let recorded = bytes.clone();
    let described = bytes.get_mut(begin..).unwrap_or_default();
    make_live(job, position, shape, described, &mut buffers)?;
    let buffer = Buffer::of(&bytes);
    let address = buffer.address();
    let mut frame = job.marshal(&[(position, address)])?;
    frame.buffers.extend(buffers);
    frame.buffers.push(buffer);
    let result = job.issue(&frame)?;
    if result == 0 && job.call.succeeded() {
        let returned = read_memory(address + begin as u64, recorded.len().saturating_sub(begin));
        match shape {
            Shape::Allocation => allocated(job, position, begin, &returned),
            Shape::Condition => bodies(job, position, &returned),
            _ => {}
        }
        if let Family::Graph(GraphOp::SetExecNode(_)) = job.function.family
            && let Some(kind) = shape.kind()
        {
            let params = bytes.get(begin..).unwrap_or_default();
            let node = live_node(job).unwrap_or(0);
            let (state, call) = (&mut **job.player, job.call);
            if let Some(observer) = &mut state.observer {
                observer.set_exec_node(&state.api, call, (node, kind), params);
            }
        }
    }
    // The driver has copied all of it when it returns.
    frame.buffers.retain(|buffer| {
        let lent = buffer.address();
        frame.places.iter().any(|place| place.address == lent)
    });
    job.conclude(frame, result)
}

/// Puts live values into one struct.
fn make_live(
    job: &mut Job<'_, '_>,
    position: usize,
    shape: Shape,
    bytes: &mut [u8],
    buffers: &mut Vec<Buffer>,
) -> Result<(), Skip> {
    let recorded_kernel = match word(bytes, offset_of!(CUDA_KERNEL_NODE_PARAMS, func)) {
        0 => word(bytes, offset_of!(CUDA_KERNEL_NODE_PARAMS, kern)),
        function => function,
    };
    // The address of an allocation is what the call returns.
    for field in shape.fields().filter(|_| shape != Shape::Allocation) {
        if let (Meaning::Handle(_) | Meaning::Address, Some(value)) =
            (field.meaning, member(bytes, field))
        {
            job.value_live(field.name, field.meaning, value)?;
        }
    }
    match shape {
        Shape::Kernel => {
            let params = offset_of!(CUDA_KERNEL_NODE_PARAMS, kernelParams);
            let extra = offset_of!(CUDA_KERNEL_NODE_PARAMS, extra);
            let source = launch::Source {
                handle: recorded_kernel,
                has_params: word(bytes, params) != 0,
                params: position,
                extra: (word(bytes, extra) != 0).then_some(position),
                // Without a layout only the packed form can be given.
                takes_extra: job.issuer.kernels.layout(recorded_kernel).is_empty(),
                keeps_memory: true,
            };
            let mut built = launch::Parameters::default();
            launch::rebuild(job, &source, &mut built)?;
            set_word(bytes, params, built.kernel_params);
            set_word(bytes, extra, built.extra);
            buffers.extend(built.into_buffers());
        }
        Shape::Copy => copy::node_live(job, bytes)?,
        Shape::Host => {
            if word(bytes, 0) != 0 {
                set_word(bytes, 0, callback::stub(job));
            }
            set_word(bytes, 8, 0);
        }
        Shape::Operations => {
            let array = offset_of!(CUDA_BATCH_MEM_OP_NODE_PARAMS, paramArray);
            let live = match word(bytes, array) {
                0 => 0,
                _ => lend(buffers, operations(job, position)?),
            };
            set_word(bytes, array, live);
        }
        Shape::Allocation => {
            let array = offset_of!(CUDA_MEM_ALLOC_NODE_PARAMS, accessDescs);
            let mut descriptions = match word(bytes, array) {
                0 => Vec::new(),
                _ => elements(job, position)?,
            };
            // The devices that they name; the pool's properties come first in the struct.
            for (name, described) in [
                ("CUmemPoolProps", bytes.get_mut(..array).unwrap_or_default()),
                ("CUmemAccessDesc", &mut descriptions),
            ] {
                let Some(layout) = structure(name) else {
                    continue;
                };
                for element in described.chunks_exact_mut((layout.size as usize).max(1)) {
                    job.struct_live(name, layout, element)?;
                }
            }
            let live = match word(bytes, array) {
                0 => 0,
                _ => lend(buffers, Buffer::of(&descriptions)),
            };
            set_word(bytes, array, live);
        }
        Shape::Condition => {
            let recorded = word(bytes, 0);
            let live = job.captures.conditions.get(&recorded).copied();
            set_word(bytes, 0, live.unwrap_or(recorded));
            set_word(
                bytes,
                offset_of!(CUDA_CONDITIONAL_NODE_PARAMS, phGraph_out),
                0,
            );
        }
        Shape::External => {
            return skip("needs a semaphore that another API or process exported");
        }
        _ => {}
    }
    Ok(())
}

/// The array that a member leads to.
fn elements(job: &Job<'_, '_>, position: usize) -> Result<Vec<u8>, Skip> {
    job.piece(position, field::ELEMENTS)
        .ok_or_else(|| Skip::because("an array that its parameters lead to is not in the trace"))
}

/// The operations of a batch, with live addresses.
fn operations(job: &mut Job<'_, '_>, position: usize) -> Result<Buffer, Skip> {
    let mut operations = elements(job, position)?;
    for operation in operations.chunks_exact_mut(size_of::<CUstreamBatchMemOpParams>()) {
        // Waits and writes of 32 and 64 bits; the other kinds name no memory. The driver sets the
        // alias.
        if matches!(number(first(operation, 4)), 1 | 2 | 4 | 5) {
            let live = job.live_address(word(operation, 8))?;
            set_word(operation, 8, live);
            set_word(operation, 32, 0);
        }
    }
    Ok(Buffer::of(&operations))
}

/// Adds the memory of an allocation node to the ranges.
fn allocated(job: &mut Job<'_, '_>, position: usize, begin: usize, returned: &[u8]) {
    let at = offset_of!(CUDA_MEM_ALLOC_NODE_PARAMS, dptr);
    let Some(recorded) = job.call.out_bytes(position) else {
        return;
    };
    let start = word(recorded, begin + at);
    let length = word(
        recorded,
        begin + offset_of!(CUDA_MEM_ALLOC_NODE_PARAMS, bytesize),
    );
    let live = word(returned, at);
    if start == 0 || live == 0 {
        return;
    }
    if start != live {
        job.note_translated((start, length, live), OF_GRAPH.to_owned());
    }
    let mut range = job.range(Kind::Memory, start, length, live);
    range.context = job.api.current_context().unwrap_or(0);
    job.ranges.insert(range);
}

/// Adds the body graphs of a conditional node to the handles.
fn bodies(job: &mut Job<'_, '_>, position: usize, returned: &[u8]) {
    let recorded = job.returned(position, field::ELEMENTS);
    let recorded = recorded.and_then(|snapshot| snapshot.bytes.inline());
    let Some(recorded) = recorded else { return };
    let graphs = word(
        returned,
        offset_of!(CUDA_CONDITIONAL_NODE_PARAMS, phGraph_out),
    );
    let count = word(returned, offset_of!(CUDA_CONDITIONAL_NODE_PARAMS, size) - 4) >> 32;
    let count = (recorded.len() / 8).min(count as usize);
    if graphs == 0 {
        return;
    }
    let live = read_memory(graphs, count * 8);
    let belongs = Belongs {
        parent: job.call.out(0).map(|node| (Kind::GraphNode, node)),
        context: 0,
    };
    for (recorded, live) in recorded.chunks_exact(8).zip(live.chunks_exact(8)) {
        let key = (Kind::Graph, number(recorded));
        let live = Some(number(live));
        let site = job.site();
        job.handles.insert(key, live, belongs, site);
    }
}

/// Functions that return the parameters of a node: compares numbers, and the handles and addresses
/// that the replay knows; other pointers are the driver's own.
pub(crate) fn asked(job: &mut Job<'_, '_>) -> Played {
    let Some((position, shape)) = place_of(job.function) else {
        return job.plain();
    };
    let (mut frame, result) = job.issued(&[])?;
    if let Some(place) = frame.remove_place(position)
        && result == 0
        && let Some(expected) = job.call.out_bytes(position)
    {
        let received = frame.received(&place);
        let masked = masked(job, shape, expected, &received);
        job.compare_out(position, &masked);
    }
    job.conclude(frame, result)
}

/// The recorded bytes, with the received ones where they can be compared.
fn masked(player: &Player<'_>, shape: Shape, expected: &[u8], received: &[u8]) -> Vec<u8> {
    let mut masked = expected.to_vec();
    let mut ranges = shape.comparable(expected);
    if shape == Shape::Copy {
        for (at, meaning, counts) in copy::node_memory(expected) {
            let range = at..at + 8;
            if counts {
                ranges.push(range);
            } else if let (Some(value), Some(here)) =
                (masked.get_mut(range.clone()), received.get(range))
            {
                player.value_expected(meaning, value, here);
            }
        }
    }
    for range in ranges {
        if let (Some(to), Some(from)) = (masked.get_mut(range.clone()), received.get(range)) {
            to.copy_from_slice(from);
        }
    }
    masked
}

/// The live node that a call about an executable graph names.
pub(crate) fn live_node(job: &Job<'_, '_>) -> Option<u64> {
    const NODE: usize = 1;
    match job
        .handles
        .resolve(Kind::GraphNode, job.call.argument(NODE))
    {
        Resolved::Live(node) => Some(node),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_struct_of_a_node_says_what_it_is() {
        for (kind, expected) in [
            (0u32, (Shape::Kernel, 16)),
            (1, (Shape::Copy, 32)),
            (7, (Shape::Event, 16)),
            (13, (Shape::Condition, 16)),
            (77, (Shape::Plain, 16)),
        ] {
            let mut bytes = vec![0; 256];
            bytes[..4].copy_from_slice(&kind.to_le_bytes());
            assert_eq!(body(Shape::Any, &bytes), expected, "{kind}");
        }
        assert_eq!(body(Shape::Any, &[]), (Shape::Plain, 16), "too short");
        assert_eq!(body(Shape::Memset, &[]), (Shape::Memset, 0));
    }

    #[test]
    fn members_are_where_cuda_h_has_them() {
        let handles = |shape: Shape| -> Vec<u32> {
            let fields = shape.fields();
            let named = fields.filter(|field| !matches!(field.meaning, Meaning::Plain));
            named.map(|field| field.offset).collect()
        };
        assert_eq!(handles(Shape::Kernel), [0, 40, 48, 56, 64]);
        assert_eq!(handles(Shape::Memset), [0, 40]);
        assert_eq!(Shape::Memset.comparable(&[]).len(), 7);
        let all = OF_ALLOCATION.len() + 1;
        assert_eq!(
            Shape::Allocation.comparable(&[]).len(),
            all,
            "and the address"
        );
        assert_eq!((BODY, COPY_CONTEXT, COPY), (16, 8, 16));
        assert_eq!(offset_of!(CUDA_MEM_ALLOC_NODE_PARAMS, dptr), 112);
        assert_eq!(offset_of!(CUDA_CONDITIONAL_NODE_PARAMS, phGraph_out), 16);
        assert_eq!(size_of::<CUstreamBatchMemOpParams>(), 48);
    }
}
