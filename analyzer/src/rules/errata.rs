//! Published defects of the driver that a call meets: `registry/errata` says which drivers and
//! devices have them, the functions here whether the calls are there.

use cutape_format::Bytes;
use cutape_image::ImageKind;
use cutape_model::{MemoryKind, ObjectId, described_accesses};
use cutape_registry::{
    CopyOp, CopyShape, Erratum, Family, GraphOp, Kind, MemoryOp, NodeKind, StreamOp,
    VirtualMemoryOp, erratum, rules,
};

use super::{Check, Draft, Rule, Rules, When, at, code, tensor_map};
use crate::context::bytes_of;
use crate::launch::{pointee, u32_at, u64_at};
use crate::plan::Plan;
use crate::state::image_snapshot;

/// Bytes of an allocation from which on tensor maps are sound.
const TENSOR_MAP_SOUND: u64 = 128 << 10;
/// cuda.h: CU_MEM_LOCATION_TYPE_HOST_NUMA, and where a CUmemAllocationProp has it.
const HOST_NUMA: u32 = 3;
const LOCATION_TYPE: usize = 8;
/// cuda.h: CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD.
const DMA_BUF: u64 = 1;

/// Those about the calls of a function.
pub(super) fn rules_of(plan: &Plan) -> Rules {
    let family = plan.function.family;
    let check: fn(&Check<'_, '_>, &mut Vec<Draft>) = match family {
        Family::Memory(MemoryOp::AllocateAsync) => pool_allocation,
        Family::Copy(CopyOp::Described(CopyShape::Volume)) if plan.function.stream.is_some() => {
            volume_copy
        }
        Family::VirtualMemory(VirtualMemoryOp::Create { .. }) => host_allocation,
        Family::Graph(GraphOp::Launch) => graph_launch,
        Family::Graph(GraphOp::Instantiate { .. }) => instantiation,
        Family::Graph(GraphOp::AddNode(node)) if node.kind == NodeKind::Memset => memset_node,
        Family::Stream(StreamOp::EndCapture) => capture_end,
        Family::ModuleLoad(_) | Family::LibraryLoad(_) | Family::Link(_)
            if plan.image.is_some() =>
        {
            image
        }
        _ if plan.tensor_map.is_some() => encoded_tensor_map,
        _ if plan.at("poolProps").is_some() => pool_creation,
        _ if plan.at("handleType").is_some() && plan.at("dptr").is_some() => address_range,
        _ => return Vec::new(),
    };
    vec![(When::Always, Rule::Cause(check))]
}

impl Check<'_, '_> {
    /// The defect of a rule, if the driver that counts is known to have it.
    fn defect(&self, rule: &'static str) -> Option<&'static Erratum> {
        let driver = self.state.driver(self.context)?;
        let defect = erratum(rule).filter(|defect| defect.affects(driver))?;
        let capability = || {
            let thread = self.call.thread;
            self.state.capability_for_errata(thread, self.context)
        };
        let concerned = defect.capabilities.is_none() || defect.concerns(capability());
        concerned.then_some(defect)
    }

    /// Whether the call ended as the defect lets it end; how it did with another driver than the
    /// one that is asked about says nothing.
    fn ended(&self, how: fn(Option<i32>) -> bool) -> bool {
        self.state.errata.present.is_some() || how(self.call.result())
    }

    /// The live memory of a pool at an address.
    fn pool_memory(&self, address: u64) -> Option<ObjectId> {
        let id = self.state.memory_at(address)?;
        let kind = self.object(id).and_then(MemoryKind::of);
        (kind == Some(MemoryKind::Pool)).then_some(id)
    }
}

/// A finding: what the program does, and the defect that it meets.
fn met(check: &Check<'_, '_>, defect: &Erratum, what: String) -> Draft {
    let rule = cutape_registry::rule(defect.rule);
    let text = rule.map_or("", |rule| rule.statement);
    let text = text.split(" Reported is ").next().unwrap_or(text);
    let which = match check.state.errata.present {
        Some(_) => "this machine's",
        None => "the recorded one",
    };
    let message = format!("{what}. {text} This driver ({which}) is among those that have it.");
    Draft::new(defect.rule, defect.title, message).once_in_process()
}

pub(super) fn pool_allocation(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let errata = &check.state.errata;
    if let Some(reset) = errata.reset
        && let Some(defect) = check.defect(rules::DRIVER_POOL_AFTER_PRIMARY_RESET)
    {
        let what = format!(
            "{} allocates from a memory pool after {}",
            check.function(),
            at(reset)
        );
        drafts.push(met(check, defect, what));
    }
    if errata.freed.is_empty() || errata.forbids_reuse || check.went_wrong() {
        return;
    }
    let start = check.plan.at("dptr").and_then(|at| check.call.out(at));
    let (Some(start), Some(stream)) = (start, check.state.ordering.stream) else {
        return;
    };
    let end = start.saturating_add(check.argument("bytesize").unwrap_or(0));
    let mut freed = errata.freed.iter();
    let found = freed.find(|block| {
        block.bytes.start < end
            && start < block.bytes.end
            && block.work.0 != stream
            && !check.state.order.is_before(block.work, stream)
    });
    if let Some(block) = found
        && let Some(defect) = check.defect(rules::DRIVER_POOL_OPPORTUNISTIC_REUSE)
    {
        let what = format!(
            "{} returned memory at {start:#x} that {} freed in another stream, for which this \
             stream has not waited",
            check.function(),
            at(block.site)
        );
        drafts.push(met(check, defect, what));
    }
}

pub(super) fn volume_copy(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let Some(defect) = check.defect(rules::DRIVER_COPY_3D_POOL_MEMORY) else {
        return;
    };
    let sides = described_accesses(check.plan.function, check.call);
    let mut sides = sides.into_iter().flatten();
    let found = sides.find_map(|side| {
        let is_moved = side.start != side.base;
        check.pool_memory(side.base).filter(|_| is_moved)
    });
    if let Some(id) = found {
        let what = format!(
            "{} copies from or to a position in {}, which is memory of a pool",
            check.function(),
            check.label(id)
        );
        drafts.push(met(check, defect, what).about(id));
    }
}

pub(super) fn pool_creation(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let pool = check.plan.at("pool").and_then(|at| check.call.out(at));
    if let Some(pool) = pool
        && let Some(granted) = check.state.errata.left_granted.get(&pool)
        && let Some(defect) = check.defect(rules::DRIVER_POOL_ACCESS_INHERITED)
    {
        let what = format!(
            "{} returned the handle {pool:#x} of a destroyed pool to which {} gave a device access",
            check.function(),
            at(*granted)
        );
        drafts.push(met(check, defect, what));
    }
}

pub(super) fn address_range(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let kind = check.argument("handleType").map(|kind| kind & 0xffff_ffff);
    let address = check.argument("dptr").unwrap_or(0);
    if kind == Some(DMA_BUF)
        && check.state.errata.has_managed_pool
        && check.ended(|result| result.is_none())
        && let Some(id) = check.pool_memory(address)
        && let Some(defect) = check.defect(rules::DRIVER_DMA_BUF_MANAGED_POOL)
    {
        let what = format!(
            "{} asks for a DMA buffer of {}, which is memory of a pool, and a pool of the process \
             is managed",
            check.function(),
            check.label(id)
        );
        drafts.push(met(check, defect, what).about(id));
    }
}

pub(super) fn host_allocation(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let properties = check.plan.at("prop").and_then(|at| pointee(check.call, at));
    let location = properties.and_then(|bytes| u32_at(bytes, LOCATION_TYPE));
    if location == Some(HOST_NUMA)
        && check.ended(|result| result.is_none())
        && let Some(defect) = check.defect(rules::DRIVER_HOST_NUMA_ALLOCATION)
    {
        let what = format!(
            "{} allocates memory of a NUMA node of the host",
            check.function()
        );
        drafts.push(met(check, defect, what));
    }
}

pub(super) fn encoded_tensor_map(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if check.went_wrong() || tensor_map::is_dense(check) != Some(false) {
        return;
    }
    let Some(address) = check.argument("globalAddress") else {
        return;
    };
    let memory = check.state.memory_at(address);
    if let Some((id, object)) = memory.and_then(|id| Some((id, check.object(id)?)))
        && object.kind == Kind::Memory
        && (1..TENSOR_MAP_SOUND).contains(&object.size)
        && let Some(defect) = check.defect(rules::DRIVER_TENSOR_MAP_SMALL_ALLOCATION)
    {
        let what = format!(
            "{} describes a tensor with gaps between its rows in {}, which has {} bytes",
            check.function(),
            check.label(id),
            object.size
        );
        drafts.push(met(check, defect, what).about(id));
    }
}

pub(super) fn graph_launch(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let launches = &check.state.errata.launches;
    if let Some((work, site)) = launches.get(&check.call.argument(0))
        && !check.state.order.is_done(work.0, work.1)
        && let Some(defect) = check.defect(rules::DRIVER_GRAPH_LAUNCHED_WHILE_RUNNING)
    {
        let what = format!(
            "{} launches a graph that {} launched, and nothing has waited for that launch",
            check.function(),
            at(*site)
        );
        drafts.push(met(check, defect, what));
    }
}

pub(super) fn instantiation(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let errata = &check.state.errata;
    let graph = check.plan.handle_of(check.call, Kind::Graph).unwrap_or(0);
    if errata.bodies.is_empty() {
        return;
    }
    for body in errata.bodies_of(graph) {
        let (rule, what) = match body.empty_node {
            _ if !body.is_filled => (
                rules::DRIVER_CONDITIONAL_BODY_EMPTY,
                "to whose body nothing was added".to_owned(),
            ),
            Some(empty) => (
                rules::DRIVER_CONDITIONAL_BODY_EMPTY_NODE,
                format!("to whose body {} added an empty node", at(empty)),
            ),
            None => continue,
        };
        if let Some(defect) = check.defect(rule) {
            let what = format!(
                "{} instantiates a graph with the conditional node of {}, {what}",
                check.function(),
                at(body.site)
            );
            drafts.push(met(check, defect, what));
        }
    }
}

pub(super) fn memset_node(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let parameters = check.plan.at("memsetParams");
    let address = parameters.and_then(|at| u64_at(pointee(check.call, at)?, 0));
    if check.ended(|result| result == Some(code::INVALID_VALUE))
        && let Some(id) = address.and_then(|address| check.pool_memory(address))
        && let Some(defect) = check.defect(rules::DRIVER_GRAPH_MEMSET_POOL_MEMORY)
    {
        let what = format!(
            "{} adds a memset of {}, which is memory of a pool",
            check.function(),
            check.label(id)
        );
        drafts.push(met(check, defect, what).about(id));
    }
}

pub(super) fn capture_end(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    // What invalidates a capture is the program: another driver does not change it.
    if !matches!(check.call.result(), None | Some(code::CAPTURE_INVALIDATED)) {
        return;
    }
    let errata = &check.state.errata;
    let stream = check.state.ordering.stream;
    let capture = stream.and_then(|stream| check.state.captures.of(stream));
    if let Some(capture) = capture
        && errata
            .bodies
            .iter()
            .any(|body| body.graph == capture.target())
        && let Some(defect) = check.defect(rules::DRIVER_CONDITIONAL_CAPTURE_INVALIDATED)
    {
        let what = format!(
            "{} ends the capture to the body of a conditional node that {} began, and it was \
             invalidated or the call did not return",
            check.function(),
            at(capture.begun)
        );
        drafts.push(met(check, defect, what));
    }
}

pub(super) fn image(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let Some(defect) = check.defect(rules::DRIVER_JIT_AND_NOT) else {
        return;
    };
    let snapshot = image_snapshot(check.plan, check.call);
    let Some(snapshot) = snapshot.filter(|snapshot| snapshot.bytes != Bytes::Unreadable) else {
        return;
    };
    let bytes = bytes_of(check.context, snapshot.bytes);
    let Some(bytes) = bytes.filter(|bytes| cutape_image::kind(bytes) == ImageKind::Ptx) else {
        return;
    };
    let has = |word: &[u8]| bytes.windows(word.len()).any(|part| part == word);
    if has(b"not.b64") && has(b"and.b64") {
        let what = format!("{} gets PTX with not.b64 and and.b64", check.function());
        drafts.push(met(check, defect, what));
    }
}
