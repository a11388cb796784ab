//! Which work gets at memory that a rank shares with others.

use std::collections::HashMap;
use std::sync::Arc;

use cutape_format::{Bytes, Call, layout::field};
use cutape_model::{Changes, IntervalMap, ObjectId, Scope, TraceState, described_side};
use cutape_reach::words;
use cutape_registry::{
    CopyOp, Family, Function, Kind, MemoryType, Role, Shared, SharedKind, SharingOp,
    StreamMemoryOp, VirtualMemoryOp,
};
use rustc_hash::FxBuildHasher;

use crate::calls::awaited::awaited_addresses;
use crate::place::address::{Found, Ranges};
use crate::ranks::origins::Alone;
use crate::unavailable::held_addresses::{HeldAddresses, Known};

/// With whom memory is shared.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Partner {
    /// What messages call the other ranks; empty for memory that was exported and that none of them
    /// imported.
    pub ranks: String,
    /// Which memory it is.
    pub memory: String,
}

impl Partner {
    fn is_there(&self) -> bool {
        !self.ranks.is_empty()
    }
}

/// The memory that a rank shares with others now.
#[derive(Debug)]
pub(crate) struct Exchanges {
    shared: IntervalMap<Arc<Partner>>,
    /// Physical memory, mapped or not.
    allocations: HashMap<ObjectId, Arc<Partner>, FxBuildHasher>,
    /// Memory to which only memory led that launches got at which were left out: what they changed
    /// there is not known.
    unknown: IntervalMap<()>,
    /// The recorded process's.
    state: TraceState,
    /// The last call that was left out, and with whom it exchanges data.
    last: Option<(u64, Arc<Partner>)>,
}

impl Default for Exchanges {
    fn default() -> Self {
        Self {
            shared: IntervalMap::default(),
            allocations: HashMap::default(),
            unknown: IntervalMap::default(),
            state: TraceState::new(Scope::Work),
            last: None,
        }
    }
}

impl Exchanges {
    /// The kernel that a call launches, if its name is known.
    pub(crate) fn kernel_of(&mut self, call: &Call<'_>) -> Option<String> {
        self.state.launched_kernel(call).map(str::to_owned)
    }

    /// True if any of these bytes are shared.
    fn overlaps(&self, start: u64, length: u64) -> bool {
        let found = self.shared.overlapping(start, length);
        found.is_some_and(|(_, partner)| partner.is_there())
    }

    /// True if a call names memory that was exported and that no other rank imported. The recorder
    /// keeps nothing of what exchanges change there.
    pub(crate) fn names_exported(
        &self,
        call: &Call<'_>,
        function: &'static Function,
        (held, known): (&HeldAddresses, &Known<'_>),
    ) -> bool {
        let is_exported = |address: u64| {
            let found = self.shared.find(address);
            found.is_some_and(|(_, partner)| !partner.is_there())
        };
        match (parameters_of(call), function.family) {
            (Some(parameters), _) => held
                .reach(known, parameters)
                .any(|reached| reached.is_direct && is_exported(reached.address)),
            (None, Family::Copy(CopyOp::Linear(of) | CopyOp::Peer(of) | CopyOp::Unified(of))) => {
                is_exported(call.argument(of.target.into()))
            }
            _ => false,
        }
    }

    /// True if these bytes may not be what they were, since others or work that was left out may
    /// have written them.
    pub(crate) fn may_have_changed(&self, start: u64, length: u64) -> bool {
        self.overlaps(start, length) || self.unknown.overlapping(start, length).is_some()
    }

    /// What messages call the ranks with which a call exchanges data, if it was the last one that
    /// was left out.
    pub(crate) fn left_out_with(&self, call: u64) -> Option<String> {
        let last = self.last.as_ref().filter(|last| last.0 == call);
        last.map(|(_, partner)| partner.ranks.clone())
    }

    /// A call is left out: notes the memory that it gets at through other memory.
    pub(crate) fn left_out(
        &mut self,
        (call, partner): (&Call<'_>, &Arc<Partner>),
        (held, known): (&HeldAddresses, &Known<'_>),
        ranges: &Ranges,
    ) {
        self.last = Some((call.index, Arc::clone(partner)));
        let Some(parameters) = parameters_of(call) else {
            return;
        };
        for reached in held.reach(known, parameters) {
            if let Found::Live(range, _) = ranges.find(reached.address)
                && !reached.is_direct
            {
                self.unknown.insert(range.start, range.length, ());
            }
        }
    }

    fn share(&mut self, start: u64, length: u64, partner: &Arc<Partner>) {
        // It may be exported again, for nobody.
        if !partner.is_there() && self.overlaps(start, length) {
            return;
        }
        self.shared.remove_overlapping(start, length);
        self.shared.insert(start, length, Arc::clone(partner));
    }

    /// A call is over: notes what is shared because of it, and the end of what was.
    pub(crate) fn note(
        &mut self,
        (call, function): (&Call<'_>, &'static Function),
        is_issued: bool,
        alone: &Alone,
        ranges: &Ranges,
    ) {
        if let Some(changes) = self.state.observe(call) {
            self.follow(&changes);
        }
        if !call.succeeded() {
            return;
        }
        let argument = |position: u8| call.argument(usize::from(position));
        match function.family {
            Family::Sharing(SharingOp::Export(shared)) => {
                let importers = alone.exports.get(&call.index);
                let partner = Arc::new(Partner {
                    ranks: importers.cloned().unwrap_or_default(),
                    memory: format!("memory exported at call {}", call.index),
                });
                self.exported(shared, argument(shared.object), &partner, ranges);
            }
            Family::Sharing(SharingOp::Import(shared)) => {
                let object = call.out(usize::from(shared.object));
                if let Some(object) = object.filter(|_| is_issued) {
                    let partner = Arc::new(partner_of_import(alone, call.index));
                    self.imported(shared.kind, object, &partner, ranges);
                }
            }
            Family::VirtualMemory(VirtualMemoryOp::Map {
                address,
                size,
                allocation,
            }) => {
                let (start, length) = (argument(address), argument(size));
                self.shared.remove_overlapping(start, length);
                let allocation = self.live_allocation(argument(allocation));
                let partner = allocation.and_then(|id| self.allocations.get(&id)).cloned();
                if let Some(partner) = partner {
                    self.share(start, length, &partner);
                }
            }
            Family::VirtualMemory(VirtualMemoryOp::Unmap { address, size }) => {
                self.shared
                    .remove_overlapping(argument(address), argument(size));
            }
            _ => {}
        }
        if let Some(parts) = alone.registered.get(&call.index) {
            for part in parts {
                let partner = Arc::new(Partner {
                    ranks: part.rank.clone(),
                    memory: format!("host memory registered at call {}", call.index),
                });
                self.share(part.start, part.length, &partner);
            }
        }
    }

    /// Memory that has ended, or where something else is now, is not shared.
    fn follow(&mut self, changes: &Changes) {
        let objects = &self.state.state.objects;
        for &id in changes.ended.iter().chain(&changes.superseded) {
            if let Some(object) = objects.get(id).filter(|object| object.kind.is_address()) {
                self.shared.remove_overlapping(object.handle, object.size);
                self.unknown.remove_overlapping(object.handle, object.size);
            }
        }
        for &id in &changes.created {
            let is_memory = |kind: Kind| kind.is_address() && kind != Kind::Reservation;
            if let Some(object) = objects.get(id).filter(|object| is_memory(object.kind)) {
                self.shared.remove_overlapping(object.handle, 1);
            }
        }
    }

    fn exported(&mut self, shared: Shared, object: u64, partner: &Arc<Partner>, ranges: &Ranges) {
        match shared.kind {
            SharedKind::Memory | SharedKind::PoolMemory => {
                if let Found::Live(range, _) = ranges.find(object) {
                    self.share(range.start, range.length, partner);
                }
            }
            SharedKind::Allocation => self.share_allocation(object, partner),
            SharedKind::Event | SharedKind::Pool => {}
        }
    }

    fn imported(&mut self, kind: SharedKind, object: u64, partner: &Arc<Partner>, ranges: &Ranges) {
        match kind {
            SharedKind::Memory | SharedKind::PoolMemory => {
                if let Some(range) = ranges.at(object) {
                    self.share(range.start, range.length, partner);
                }
            }
            SharedKind::Allocation => self.share_allocation(object, partner),
            SharedKind::Event | SharedKind::Pool => {}
        }
    }

    fn live_allocation(&self, handle: u64) -> Option<ObjectId> {
        self.state.state.objects.live(Kind::Allocation, handle)
    }

    fn share_allocation(&mut self, handle: u64, partner: &Arc<Partner>) {
        let Some(id) = self.live_allocation(handle) else {
            return;
        };
        let known = self.allocations.get(&id);
        if !partner.is_there() && known.is_some_and(|known| known.is_there()) {
            return;
        }
        self.allocations.insert(id, Arc::clone(partner));
        let mappings = self.state.state.virtual_memory.mappings.iter();
        let mapped = mappings.filter(|(_, mapping)| mapping.allocation == Some(id));
        for bytes in mapped.map(|(bytes, _)| bytes).collect::<Vec<_>>() {
            self.share(bytes.start, bytes.end - bytes.start, partner);
        }
    }

    /// With whom a call exchanges data: a launch that can get at shared memory, a copy from it, a
    /// wait for a value in it. Copies to it are not: others do not read them here.
    pub(crate) fn partner(
        &self,
        (call, function): (&Call<'_>, &'static Function),
        (held, known): (&HeldAddresses, &Known<'_>),
    ) -> Option<Arc<Partner>> {
        if self.shared.is_empty() {
            return None;
        }
        let at = |address: u64| {
            let (_, partner) = self.shared.find(address)?;
            partner.is_there().then(|| Arc::clone(partner))
        };
        if let Some(parameters) = parameters_of(call) {
            let mut reached = held.reach(known, parameters);
            return reached.find_map(|reached| at(reached.address));
        }
        let inline = |position: u8| {
            let given = call.snapshot(usize::from(position), field::POINTEE)?;
            given.bytes.inline()
        };
        // What copies read from the host is in the trace.
        let read = |address: u64| at(address).filter(|_| known.is_device(address));
        let any_word = |bytes: &[u8]| words(bytes, 8).find_map(read);
        match function.family {
            Family::Copy(CopyOp::Linear(of) | CopyOp::Peer(of) | CopyOp::Unified(of)) => {
                let [source, length] = [of.source, of.bytes].map(|at| call.argument(at.into()));
                let (range, partner) = self.shared.overlapping(source, length)?;
                let is_read = known.is_device(range.start.max(source));
                (is_read && partner.is_there()).then(|| Arc::clone(partner))
            }
            Family::Copy(CopyOp::Described(_)) => match described_side(call, "src")? {
                (MemoryType::Device | MemoryType::Unified, address) => read(address),
                (MemoryType::Host | MemoryType::Array, _) => None,
            },
            Family::Copy(CopyOp::Batch { sources, .. }) => inline(sources).and_then(any_word),
            Family::Copy(CopyOp::Batch3D { operations, .. }) => {
                inline(operations).and_then(any_word)
            }
            Family::StreamMemory(StreamMemoryOp::Wait | StreamMemoryOp::Batch) => {
                awaited_addresses(call, function).into_iter().find_map(at)
            }
            // Nodes that copy.
            Family::Graph(_) => {
                let mut params = function.params.iter().enumerate();
                params.find_map(|(position, param)| match param.role {
                    Role::In(_) => inline(u8::try_from(position).ok()?).and_then(any_word),
                    _ => None,
                })
            }
            _ => None,
        }
    }

    /// True if a call that is left out may have written device memory that is not shared.
    pub(crate) fn may_write_own(
        &self,
        (call, function): (&Call<'_>, &'static Function),
        ranges: &Ranges,
    ) -> bool {
        let is_own = |address: u64| ranges.is_device(address) && !self.overlaps(address, 1);
        match function.family {
            Family::StreamMemory(_) => false,
            Family::Copy(op) => match op {
                CopyOp::Linear(of) | CopyOp::Peer(of) | CopyOp::Unified(of) => {
                    of.to == MemoryType::Array || is_own(call.argument(of.target.into()))
                }
                CopyOp::Described(_) => match described_side(call, "dst") {
                    Some((MemoryType::Host, _)) => false,
                    Some((MemoryType::Device | MemoryType::Unified, address)) => is_own(address),
                    Some((MemoryType::Array, _)) | None => true,
                },
                CopyOp::Batch { targets, .. } => {
                    let targets = call.snapshot(targets.into(), field::POINTEE);
                    let targets = targets.and_then(|targets| targets.bytes.inline());
                    targets.is_none_or(|targets| words(targets, 8).any(is_own))
                }
                CopyOp::Batch3D { .. } => true,
            },
            _ => true,
        }
    }
}

/// The packed parameters of a launch or a node.
fn parameters_of<'a>(call: &Call<'a>) -> Option<&'a [u8]> {
    call.snapshots().find_map(|snapshot| match snapshot.bytes {
        Bytes::Inline(bytes) if snapshot.field == field::KERNEL_PARAMETERS => Some(bytes),
        _ => None,
    })
}

fn partner_of_import(alone: &Alone, call: u64) -> Partner {
    let origin = alone.imports.get(&call);
    match origin.and_then(|origin| origin.exported.clone()) {
        Some((ranks, export)) => Partner {
            memory: format!("memory exported at call {export} of {ranks}"),
            ranks,
        },
        None => Partner {
            ranks: "another process".to_owned(),
            memory: format!("memory imported at call {call}"),
        },
    }
}
