//! The accesses of one call.

use std::sync::Arc;

use cutape_format::Call;
use cutape_model::{
    Access, AccessEffect, AccessKind, CallArguments, ObjectId, Site, Work, described_accesses,
    may_wait, written_values,
};
use cutape_registry::{Extent, Family, GraphOp, Kind, StreamMemoryOp};
use rustc_hash::FxHashSet;

use super::names::constant_pointers;
use crate::layouts::{LONGEST_STRUCT, Pointer, pointers};
use crate::plan::{Ordered, Plan};
use crate::state::State;

/// Device addresses are larger; smaller numbers in parameters are counts.
pub(crate) const FIRST_ADDRESS: u64 = 1 << 20;
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
        let is_batch = plan.function.family == Family::StreamMemory(StreamMemoryOp::Batch);
        // What is written after a wait for a value is in an order that is not known.
        if is_batch && !may_wait(plan.function, call) {
            for (bytes, _) in written_values(plan.function, call) {
                let extent = Extent::flat(bytes.end - bytes.start);
                add(bytes.start, extent, AccessEffect::Write);
            }
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
        let mut found = std::mem::take(&mut self.ordering.current);
        self.kernel(handle, bytes, (stream, site), &mut found);
        self.ordering.current = found;
    }

    /// What the nodes of a graph use. They seldom change, so it is worked out once for each state of
    /// them and of the memory.
    fn graph_launch(&mut self, handle: u64, stream: (u32, u64), site: Site) {
        self.model.wait_for_graph(handle, stream.0);
        let version = self.version_of_memory();
        let Some(exec) = self.model.graphs.exec(handle) else {
            return;
        };
        let known = exec.accesses.borrow().clone();
        let accesses = match known.filter(|(at, _)| *at == version) {
            Some((_, accesses)) => accesses,
            None => {
                let works: Vec<Work> = exec.known_active().map_or_else(Vec::new, |nodes| {
                    nodes.into_iter().map(|(_, work)| work.clone()).collect()
                });
                let accesses: Arc<[Access]> = self.of_nodes(&works, stream, site).into();
                if let Some(exec) = self.model.graphs.exec(handle) {
                    exec.accesses.replace(Some((version, accesses.clone())));
                }
                accesses
            }
        };
        let now = accesses.iter().map(|&access| Access {
            stream,
            site,
            ..access
        });
        self.ordering.current.extend(now);
    }

    /// A number that changes whenever an address may mean another object.
    fn version_of_memory(&self) -> u64 {
        let kinds = [
            Kind::Memory,
            Kind::HostMemory,
            Kind::Registration,
            Kind::Global,
            Kind::Allocation,
            Kind::Function,
            Kind::Kernel,
        ];
        let versions = kinds.into_iter().map(|kind| self.objects.version(kind));
        versions.sum::<u64>() + self.virtual_memory.changes
    }

    /// The accesses of nodes, each once; of an object, those that write come first.
    fn of_nodes(&mut self, works: &[Work], stream: (u32, u64), site: Site) -> Vec<Access> {
        let mut found: Vec<Access> = Vec::new();
        for work in works {
            match work {
                Work::Kernel(kernel) => {
                    let parameters = &kernel.parameters;
                    self.kernel(kernel.function, parameters, (stream, site), &mut found);
                }
                Work::Memory(operands) => {
                    let operands = operands.iter().filter(|at| at.extent.content() > 0);
                    found.extend(operands.filter_map(|operand| {
                        let address = operand.start;
                        let mapped = || self.virtual_memory.allocation_at(address);
                        let object = self.model.place_at(address).or_else(mapped)?;
                        Some(Access {
                            object,
                            address,
                            extent: operand.extent,
                            effect: match operand.is_write {
                                true => AccessEffect::Write,
                                false => AccessEffect::Read,
                            },
                            work: AccessKind::Node,
                            synchronous: false,
                            stream,
                            site,
                        })
                    }));
                }
                _ => {}
            }
        }
        let mut seen = FxHashSet::default();
        found.retain(|access| {
            let extent = access.extent;
            let bytes = (access.address, extent.row, extent.pitch, extent.rows);
            seen.insert((bytes, access.effect as u8))
        });
        found.sort_by_key(|access| access.effect != AccessEffect::Write);
        found
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
        let mut function = None;
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
            let function = *function.get_or_insert_with(|| {
                let found = self.model.objects.resolve(Kind::Function, handle).live()?;
                learn_constants(&mut self.ordering.constants, &self.model, found);
                Some(found)
            });
            let known = function.and_then(|id| self.ordering.constants.get(&id)?.as_ref());
            let of_name = known.and_then(|list| list.get(number));
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
                work: AccessKind::Kernel {
                    number: number as u16,
                    member: member.map(|byte| byte as u16),
                },
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

/// Finds out which parameters of a kernel its name declares as pointers to constants.
fn learn_constants<X>(known: &mut Constants, model: &cutape_model::State<X>, id: ObjectId) {
    if known.len() >= KERNELS {
        known.clear();
    }
    let parse = || constant_pointers(model.objects.get(id)?.name.as_deref()?);
    known.entry(id).or_insert_with(parse);
}
