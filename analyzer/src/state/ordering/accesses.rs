//! The accesses of one call.

use cutape_format::Call;
use cutape_model::{
    Access, AccessEffect, AccessKind, CallArguments, Exec, ObjectId, Site, Work, described_accesses,
};
use cutape_registry::{Extent, Family, GraphOp, Kind};
use rustc_hash::FxHashSet;

use super::names::constant_pointers;
use crate::layouts::{LONGEST_STRUCT, Pointer, pointers};
use crate::plan::{Ordered, Plan};
use crate::state::State;

/// Device addresses are larger; smaller numbers in parameters are counts.
const FIRST_ADDRESS: u64 = 1 << 20;
/// How many nodes of a graph are looked at.
const NODES: usize = 4096;
/// How many kernels' names are remembered.
const KERNELS: usize = 65536;

impl State {
    /// Collects the call's accesses to memory whose object is known.
    pub(super) fn collect(&mut self, plan: &Plan, call: &Call<'_>, stream: (u32, u64), site: Site) {
        if plan.ordered == Ordered::Launch {
            self.launch(plan, call, stream, site);
            return;
        }
        let work = match plan.copies {
            true => AccessKind::Copy,
            false => AccessKind::Memset,
        };
        let mut add = |address: u64, extent: Extent, effect: AccessEffect| {
            if extent.content() == 0 {
                return;
            }
            let mapped = || self.virtual_memory.allocation_at(address);
            let Some(object) = self.model.place_at(address).or_else(mapped) else {
                return;
            };
            self.ordering.current.push(Access {
                object,
                address,
                extent,
                effect,
                work,
                synchronous: false,
                stream,
                site,
            });
        };
        if plan.describes_copies {
            let sides = described_accesses(plan.function, call).unwrap_or_default();
            for side in sides.iter().filter(|side| side.is_in_order) {
                let effect = match side.is_write {
                    true => AccessEffect::Write,
                    false => AccessEffect::Read,
                };
                add(side.start, side.extent, effect);
            }
            return;
        }
        for &(position, length, effect) in &plan.touched {
            let extent = length.evaluate(plan.function, &CallArguments(call));
            if let Some(extent) = extent {
                add(call.argument(position), extent, effect);
            }
        }
    }

    fn launch(&mut self, plan: &Plan, call: &Call<'_>, stream: (u32, u64), site: Site) {
        if plan.function.family == Family::Graph(GraphOp::Launch) {
            self.graph_launch(call.argument(0), stream, site);
            return;
        }
        let Some(bytes) = plan.parameters(call) else {
            return;
        };
        let Some(handle) = plan.launched.map(|position| call.argument(position)) else {
            return;
        };
        let mut found = Vec::new();
        self.kernel(handle, bytes, (stream, site), &mut found);
        self.ordering.current.append(&mut found);
    }

    /// What the nodes of a graph use.
    fn graph_launch(&mut self, exec: u64, stream: (u32, u64), site: Site) {
        self.model.wait_for_graph(exec, stream.0);
        let exec = self.model.graphs.exec(exec).and_then(Exec::known_active);
        let works: Vec<Work> = exec.map_or_else(Vec::new, |nodes| {
            let works = nodes.into_iter().map(|(_, work)| work.clone());
            works.take(NODES).collect()
        });
        let mut found: Vec<Access> = Vec::new();
        for work in &works {
            match work {
                Work::Kernel(kernel) => {
                    let parameters = &kernel.parameters;
                    self.kernel(kernel.function, parameters, (stream, site), &mut found);
                }
                Work::Memory(operands) => {
                    for operand in operands.iter() {
                        let effect = match operand.is_write {
                            true => AccessEffect::Write,
                            false => AccessEffect::Read,
                        };
                        let (address, extent) = (operand.start, operand.extent);
                        if extent.content() == 0 {
                            continue;
                        }
                        let mapped = || self.virtual_memory.allocation_at(address);
                        let object = self.model.place_at(address).or_else(mapped);
                        found.extend(object.map(|object| Access {
                            object,
                            address,
                            extent,
                            effect,
                            work: AccessKind::Node,
                            synchronous: false,
                            stream,
                            site,
                        }));
                    }
                }
                _ => {}
            }
        }
        let mut seen = FxHashSet::default();
        found.retain(|access| seen.insert((access.address, access.effect as u8)));
        self.ordering.current.append(&mut found);
    }

    /// What a kernel may use through its parameters.
    fn kernel(
        &mut self,
        handle: u64,
        bytes: &[u8],
        (stream, site): ((u32, u64), Site),
        found: &mut Vec<Access>,
    ) {
        let Some(layout) = self.layouts.of(handle) else {
            return;
        };
        let first = found.len();
        // Parameters that may be, or have, pointers to what is not known.
        let mut others = layout.iter().any(|&(_, size)| size > LONGEST_STRUCT);
        let mut constants = None;
        for pointer in pointers(layout, bytes) {
            let Pointer {
                number,
                member,
                address,
            } = pointer;
            if address < FIRST_ADDRESS {
                continue;
            }
            let mapped = || self.virtual_memory.allocation_at(address);
            let Some(object) = self.model.place_at(address).or_else(mapped) else {
                others = true;
                continue;
            };
            let constants = constants.get_or_insert_with(|| {
                let found = self.model.objects.resolve(Kind::Function, handle).live();
                found.and_then(|id| known_constants(&mut self.ordering.constants, &self.model, id))
            });
            let of_name = constants.as_ref().and_then(|list| list.get(number));
            let effect = match of_name.filter(|_| member.is_none()) {
                Some(true) => AccessEffect::Read,
                Some(false) => AccessEffect::Write,
                None => AccessEffect::Unknown,
            };
            found.push(Access {
                object,
                address,
                extent: Extent::flat(1),
                effect,
                work: AccessKind::Kernel(number as u16),
                synchronous: false,
                stream,
                site,
            });
        }
        // A kernel writes something: if it gets one address and no other, at that.
        if let Some([only]) = found.get_mut(first..)
            && !others
            && only.effect == AccessEffect::Unknown
        {
            only.effect = AccessEffect::Write;
        }
    }
}

type Constants = rustc_hash::FxHashMap<ObjectId, Option<Box<[bool]>>>;

/// Which parameters of a kernel its name declares as pointers to constants.
fn known_constants<X>(
    known: &mut Constants,
    model: &cutape_model::State<X>,
    id: ObjectId,
) -> Option<Box<[bool]>> {
    if known.len() >= KERNELS {
        known.clear();
    }
    let parse = || constant_pointers(model.objects.get(id)?.name.as_deref()?);
    known.entry(id).or_insert_with(parse).clone()
}
