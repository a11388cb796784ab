//! Which driver's defects count, and what calls that meet one did before.

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_model::Site;
use cutape_registry::{
    ContextOp, DriverVersion, Family, GraphOp, Kind, MemoryOp, NodeKind, PoolOp, PrimaryOp,
    StreamOp, id,
};

use super::errata::{Body, FreedBlock};
use super::{State, numbers64};
use crate::context::TraceContext;
use crate::launch::{pointee, u32_at};
use crate::plan::{Plan, Step};

/// How many freed blocks of pools, and bodies of conditional nodes, are remembered.
const FREED: usize = 256;
const BODIES: usize = 4096;
/// cuda.h: CU_MEM_ALLOCATION_TYPE_MANAGED.
const MANAGED: u32 = 2;
/// cuda.h: CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC.
const REUSE_OPPORTUNISTIC: u32 = 2;
/// cuda.h: CU_GRAPH_NODE_TYPE_EMPTY and CU_GRAPH_NODE_TYPE_CONDITIONAL.
const EMPTY: u32 = 5;
const CONDITIONAL: u32 = 13;
/// Bytes of a CUmemAccessDesc, and where its flags are.
const ACCESS: usize = 12;
const ACCESS_FLAGS: usize = 8;

impl State {
    /// The driver whose defects count, if it is known and NVIDIA's.
    pub(crate) fn driver(&self, context: &dyn TraceContext) -> Option<DriverVersion> {
        if let Some(present) = &self.errata.present {
            return Some(present.version);
        }
        if let Some(known) = self.errata.recorded.get() {
            return Some(known);
        }
        if context.meta("driver.kind") == Some("null") {
            return None;
        }
        let version = context.meta("driver.version")?.parse().ok()?;
        let library = context.meta("driver.path").unwrap_or_default();
        let version = DriverVersion::of(version, library);
        self.errata.recorded.set(Some(version));
        Some(version)
    }

    /// The compute capability of the thread's device, of the driver whose defects count.
    pub(crate) fn capability_for_errata(
        &self,
        thread: u32,
        context: &dyn TraceContext,
    ) -> Option<(u16, u16)> {
        let Some(present) = &self.errata.present else {
            return self.capability(thread, context);
        };
        // The recorded device's ordinal says nothing of the present ones: all must agree.
        let (first, others) = present.capabilities.split_first()?;
        others
            .iter()
            .all(|other| other == first)
            .then_some(*first)?
    }

    /// Notes a successful call; `work` is the stream and the number of what it has enqueued.
    pub(crate) fn note_errata(
        &mut self,
        plan: &Plan,
        call: &Call<'_>,
        site: Site,
        work: Option<(u32, u64)>,
    ) {
        let errata = &mut self.errata;
        match plan.function.family {
            Family::Graph(GraphOp::Launch) => {
                if let Some(work) = work {
                    let exec = call.argument(0);
                    errata.launches.insert(exec, (work, site));
                }
            }
            Family::Graph(GraphOp::DestroyExec) => {
                errata.launches.remove(&call.argument(0));
            }
            Family::Graph(GraphOp::AddNode(node)) => {
                let any = match node.kind {
                    NodeKind::Any => pointee(call, usize::from(node.position)),
                    _ => None,
                };
                let kind = any.and_then(|bytes| u32_at(bytes, 0));
                errata.add_node(call, (kind == Some(EMPTY)).then_some(site));
                if kind == Some(CONDITIONAL)
                    && let Some(leave) = &call.leave
                {
                    let bodies = leave.snapshot(usize::from(node.position), field::ELEMENTS);
                    let bodies = numbers64(bodies).into_iter();
                    if errata.bodies.len() >= BODIES {
                        errata.bodies.clear();
                    }
                    errata.bodies.extend(bodies.map(|graph| Body {
                        graph,
                        parent: call.argument_named("hGraph").unwrap_or(0),
                        site,
                        is_filled: false,
                        empty_node: None,
                    }));
                }
            }
            Family::Stream(StreamOp::BeginCapture) => errata.add_node(call, None),
            Family::Memory(MemoryOp::AllocateAsync) => {
                errata.has_pool_memory = true;
                let start = plan.at("dptr").and_then(|at| call.out(at)).unwrap_or(0);
                let size = call.argument_named("bytesize").unwrap_or(0);
                let end = start.saturating_add(size);
                errata
                    .freed
                    .retain(|block| block.bytes.end <= start || end <= block.bytes.start);
            }
            Family::Memory(MemoryOp::FreeAsync) => {
                let block = self.model.freed_at(call.argument(0));
                let object = block.and_then(|id| self.model.objects.get(id));
                if let (Some(object), Some(work)) = (object, work) {
                    if errata.freed.len() >= FREED {
                        errata.freed.remove(0);
                    }
                    errata.freed.push(FreedBlock {
                        bytes: object.handle..object.handle.saturating_add(object.size),
                        work,
                        site,
                    });
                }
            }
            Family::Pool(PoolOp::SetAttribute) => {
                let value = plan.at("value").and_then(|at| pointee(call, at));
                let attribute = call.argument_named("attr").unwrap_or(0) as u32;
                errata.forbids_reuse |= attribute == REUSE_OPPORTUNISTIC
                    && value.and_then(|value| u32_at(value, 0)) == Some(0);
            }
            Family::PrimaryContext(PrimaryOp::Reset) if errata.has_pool_memory => {
                errata.reset.get_or_insert(site);
            }
            Family::Context(ContextOp::Destroy) => errata.launches.clear(),
            _ => self.note_plain(plan, call, site),
        }
    }

    /// Notes a call about pools, one that adds a node, or one that destroys a graph.
    fn note_plain(&mut self, plan: &Plan, call: &Call<'_>, site: Site) {
        let errata = &mut self.errata;
        if plan.at("phGraphNode").is_some() {
            let is_empty = plan.function.id == id::cuGraphAddEmptyNode;
            errata.add_node(call, is_empty.then_some(site));
            return;
        }
        let destroyed = |kind: Kind| {
            let mut steps = plan.steps.iter();
            let found = steps.find(|(_, step)| matches!(step, Step::Destroy(of) if *of == kind));
            found.map(|&(at, _)| call.argument(at))
        };
        if let Some(graph) = destroyed(Kind::Graph) {
            errata.bodies.retain(|body| body.parent != graph);
        } else if let Some(pool) = destroyed(Kind::MemoryPool) {
            if let Some(granted) = errata.granted.remove(&pool) {
                errata.left_granted.insert(pool, granted);
            }
        } else if let Some(at) = plan.at("poolProps") {
            let kind = pointee(call, at).and_then(|bytes| u32_at(bytes, 0));
            errata.has_managed_pool |= kind == Some(MANAGED);
            if let Some(pool) = plan.at("pool").and_then(|at| call.out(at)) {
                errata.left_granted.remove(&pool);
            }
        } else if let Some(at) = plan.at("map") {
            let pool = call.argument(0);
            let descriptors = pointee(call, at).unwrap_or_default().chunks_exact(ACCESS);
            for flags in descriptors.filter_map(|one| u32_at(one, ACCESS_FLAGS)) {
                match flags {
                    0 => drop(errata.granted.remove(&pool)),
                    _ => drop(errata.granted.insert(pool, site)),
                }
            }
        }
    }
}
