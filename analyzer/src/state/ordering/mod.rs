//! Follows the accesses of calls, those that may still run, and memory that nothing has written.

mod accesses;
mod names;
mod sources;

pub(crate) use accesses::FIRST_ADDRESS;

use cutape_format::Call;
use cutape_model::{
    Access, AccessEffect, AccessKind, Object, ObjectId, Side, Site, described_accesses, each_copy,
};
use cutape_registry::{
    Extent, Family, GraphOp, Kind, MemoryOp, VirtualMemoryOp, is_default_stream,
};
use rustc_hash::FxHashMap;

use super::State;
use super::data::{Data, MemoryOrigin, Own};
use super::pending::FreedAccess;
use crate::plan::{Ordered, Plan};

/// How many accesses to freed memory are remembered.
const FREED: usize = 256;
/// How many written ranges of fresh memory are told apart.
const WRITTEN: usize = 16;
/// How many accesses of a graph to one object are remembered: half of all that are, so that those of
/// other work stay.
const OF_GRAPH: usize = 8;
/// How many allocations are followed until something may have written them.
const FRESH: usize = 4096;

impl State {
    /// Works out what a call accesses, for its checks.
    #[inline]
    pub(crate) fn observe(&mut self, plan: &Plan, call: &Call<'_>) {
        self.ordering.current.clear();
        self.ordering.stream = None;
        let succeeded = call.succeeded();
        if !succeeded || !self.captures.is_empty() {
            self.ordering.stream = self.stream_of_capture(plan, call);
        }
        if plan.ordered == Ordered::No || !succeeded {
            return;
        }
        if plan.ordered == Ordered::Launch {
            if !self.ordering.fresh.is_empty() {
                self.ordering.fresh.clear();
            }
            let is_needed = self.has_several_streams()
                || !self.ordering.sources.is_empty()
                || self.ordering.live_of_pools > 0
                || !self.virtual_memory.mappings.is_empty()
                || self.gets_host_memory(plan, call);
            if !is_needed {
                self.ordering.uses_default |= uses_default(plan, call);
                return;
            }
        }
        self.observe_accesses(plan, call);
    }

    /// Whether a launch gets an address in page-locked memory.
    fn gets_host_memory(&self, plan: &Plan, call: &Call<'_>) -> bool {
        let Some(host) = self.model.page_locked_span() else {
            return false;
        };
        let words = plan.parameters(call).unwrap_or_default().as_chunks().0;
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        words.any(|word| host.contains(&word) && self.model.host.live().find(word).is_some())
    }

    fn observe_accesses(&mut self, plan: &Plan, call: &Call<'_>) {
        let stream = self.model.call_stream(&plan.effects, call);
        self.ordering.stream = stream;
        let Some(stream) = stream else { return };
        if !self.captures.is_empty() && self.captures.of(stream).is_some() {
            return;
        }
        self.ordering.uses_default |= plan.in_default_stream || uses_default(plan, call);
        let site = Site::of(plan.function.name, call);
        self.collect(plan, call, (stream, 0), site);
    }

    /// The stream that a call names, for the rules about captures.
    #[cold]
    fn stream_of_capture(&mut self, plan: &Plan, call: &Call<'_>) -> Option<u32> {
        if let Some(handle) = plan.handle_of(call, Kind::Stream) {
            return Some(
                self.model
                    .stream(call.thread, handle, plan.function.per_thread),
            );
        }
        self.model.call_stream(&plan.effects, call)
    }

    /// Whether work can be in more than one stream.
    fn has_several_streams(&self) -> bool {
        self.ordering.live_streams + u32::from(self.ordering.uses_default) > 1
    }

    /// The call's work was enqueued: its accesses may run from now on.
    pub(crate) fn note_accesses(&mut self, plan: &Plan, call: &Call<'_>, work: (u32, u64)) {
        if plan.copies {
            self.note_source(plan, call, work);
        }
        if !self.ordering.sources.is_empty() {
            let current = std::mem::take(&mut self.ordering.current);
            let written = current
                .iter()
                .filter(|access| access.effect != AccessEffect::Read);
            for access in written {
                // The CPU may poll what a kernel writes, and know then that earlier work is complete.
                let is_polled = matches!(access.work, AccessKind::Kernel { .. })
                    && self.is_visible_to_host(access.object);
                self.forget_sources((!is_polled).then_some(access.object));
            }
            self.ordering.current = current;
        }
        let ordering = &mut self.ordering;
        let mut of_object: FxHashMap<ObjectId, usize> = FxHashMap::default();
        for mut access in ordering.current.drain(..) {
            if plan.function.family == Family::Graph(GraphOp::Launch) {
                let count = of_object.entry(access.object).or_default();
                *count += 1;
                if *count > OF_GRAPH {
                    continue;
                }
            }
            access.stream = work;
            ordering.accesses.add(access, &self.model.order);
        }
        if let Family::Memory(MemoryOp::AllocateAsync) = plan.function.family
            && let Some(address) = plan.at("dptr").and_then(|position| call.out(position))
        {
            let site = Site::of(plan.function.name, call);
            self.ordering.allocating.push((address, work, site));
        }
    }

    /// Page-locked or managed memory.
    fn is_visible_to_host(&self, id: ObjectId) -> bool {
        let object = self.model.objects.get(id);
        object.is_some_and(|object| {
            matches!(object.kind, Kind::HostMemory | Kind::Registration)
                || memory_origin(object) == Some(MemoryOrigin::Managed)
        })
    }

    /// The accesses of a call without a stream that has returned: those that may not be complete.
    pub(crate) fn note_default_accesses(&mut self, plan: &Plan, call: &Call<'_>) {
        if self.ordering.current.is_empty() {
            return;
        }
        let mut current = self.ordering.current.iter();
        let host = current.any(|access| self.is_visible_to_host(access.object));
        // A copy to host memory, or with page-locked or managed memory, is complete.
        if host {
            self.model.complete_default(&plan.effects, call);
            return;
        }
        let reads_only = |access: &Access| access.effect == AccessEffect::Read;
        if self.ordering.current.iter().all(reads_only) {
            return;
        }
        let Some(work) = self.model.submit_in_default(&plan.effects, call) else {
            return;
        };
        let mut is_upload = false;
        each_copy(plan.function, call, &self.model, &mut |copied| {
            is_upload |= copied.is_some_and(|copied| copied.from == Side::Host);
        });
        for access in &mut self.ordering.current {
            access.synchronous = true;
            if is_upload {
                access.work = AccessKind::Upload;
            }
        }
        self.note_accesses(plan, call, work);
    }

    /// A call has succeeded: what it tells of memory that was not written yet.
    pub(crate) fn note_initialised(&mut self, plan: &Plan, call: &Call<'_>) {
        let ordering = &mut self.ordering;
        if ordering.fresh.is_empty() {
            return;
        }
        match plan.ordered {
            Ordered::Transfer if writes_unknown_memory(plan, call) => ordering.fresh.clear(),
            Ordered::Transfer => {
                for access in &ordering.current {
                    if access.effect == AccessEffect::Read {
                        continue;
                    }
                    if let Some(written) = ordering.fresh.get_mut(&access.object) {
                        written.push(access.span());
                        if written.len() > WRITTEN {
                            ordering.fresh.remove(&access.object);
                        }
                    }
                }
            }
            _ if plan.takes_addresses => {
                for &(position, step) in &plan.steps {
                    if let crate::plan::Step::Device(_) = step
                        && let Some(id) = self.model.memory_at(call.argument(position))
                    {
                        self.ordering.fresh.remove(&id);
                    }
                }
            }
            _ => {}
        }
    }

    /// A note of a cut trace says what memory held: calls that were left out have written it.
    pub(super) fn note_restored(&mut self, address: u64, length: u64) {
        if self.ordering.fresh.is_empty() {
            return;
        }
        if let Some(id) = self.model.memory_at(address)
            && let Some(written) = self.ordering.fresh.get_mut(&id)
        {
            let end = address.saturating_add(length);
            match written.last_mut() {
                Some(last) if last.end == address => last.end = end,
                _ => written.push(address..end),
            }
            if written.len() > WRITTEN {
                self.ordering.fresh.remove(&id);
            }
        }
    }

    /// An object became known.
    pub(super) fn ordering_created(&mut self, id: ObjectId) {
        let Some(object) = self.model.objects.get(id) else {
            return;
        };
        let (kind, handle, size) = (object.kind, object.handle, object.size);
        let is_plain = object.size > 0
            && matches!(
                memory_origin(object),
                Some(MemoryOrigin::Device | MemoryOrigin::Pool)
            );
        let is_of_pool = memory_origin(object) == Some(MemoryOrigin::Pool);
        self.ordering.live_of_pools += u32::from(is_of_pool);
        match kind {
            Kind::Stream => self.ordering.live_streams += 1,
            Kind::Context => self.forget_error(handle),
            Kind::Memory => {
                let ordering = &mut self.ordering;
                if is_plain && ordering.fresh.len() < FRESH {
                    ordering.fresh.insert(id, Vec::new());
                }
                let found = ordering.allocating.iter();
                let mut found = found.enumerate().filter(|(_, entry)| entry.0 == handle);
                if let Some((index, &(address, stream, site))) = found.next() {
                    ordering.allocating.remove(index);
                    let access = Access {
                        object: id,
                        address,
                        extent: Extent::flat(size),
                        effect: AccessEffect::Write,
                        work: AccessKind::Allocation,
                        synchronous: false,
                        stream,
                        site,
                    };
                    ordering.accesses.add(access, &self.model.order);
                }
            }
            _ => {}
        }
    }

    /// An object ended, or its handle was given out again.
    pub(super) fn ordering_ended(&mut self, id: ObjectId) {
        let Some(object) = self.model.objects.get(id) else {
            return;
        };
        let (kind, start, size) = (object.kind, object.handle, object.size);
        let is_of_pool = memory_origin(object) == Some(MemoryOrigin::Pool);
        let live = self.ordering.live_of_pools;
        self.ordering.live_of_pools = live.saturating_sub(u32::from(is_of_pool));
        match kind {
            Kind::Stream => {
                self.ordering.live_streams = self.ordering.live_streams.saturating_sub(1);
            }
            Kind::Memory | Kind::HostMemory | Kind::Registration | Kind::Global => {
                self.ordering.fresh.remove(&id);
                let accesses = self.ordering.accesses.remove(id);
                let Some(end) = self.model.objects.end_of(id) else {
                    return;
                };
                if kind != Kind::Memory || accesses.is_empty() {
                    return;
                }
                let order = &self.model.order;
                let stream = self.ordering.stream;
                for access in accesses {
                    // What was not ordered before the free had its finding, if it was certain.
                    let AccessKind::Kernel { .. } = access.work else {
                        continue;
                    };
                    if stream.is_none_or(|stream| order.is_before(access.stream, stream)) {
                        continue;
                    }
                    if self.ordering.freed.len() >= FREED {
                        self.ordering.freed.remove(0);
                    }
                    self.ordering.freed.push(FreedAccess {
                        access,
                        start,
                        size,
                        freed: end.site,
                    });
                }
            }
            _ => {}
        }
    }

    /// Forgets accesses to memory that a call unmaps.
    pub(crate) fn forget_unmapped(&mut self, plan: &Plan, call: &Call<'_>) {
        let Family::VirtualMemory(VirtualMemoryOp::Unmap { address, size }) = plan.function.family
        else {
            return;
        };
        let [start, size] = [address, size].map(|at| call.argument(usize::from(at)));
        let unmapped = start..start.saturating_add(size);
        for (_, mapping) in self.model.virtual_memory.mappings.pieces(&unmapped) {
            if let Some(allocation) = mapping.allocation {
                self.ordering.accesses.remove(allocation);
            }
        }
    }

    /// Forgets accesses to freed memory that a call allocates again.
    pub(super) fn forget_reused(&mut self, plan: &Plan, call: &Call<'_>) {
        let Family::Memory(_) = plan.function.family else {
            return;
        };
        let Some(start) = plan.at("dptr").and_then(|position| call.out(position)) else {
            return;
        };
        let size = plan.effects.size_of(call, Kind::Memory);
        let apart = |freed: &FreedAccess| {
            freed.start >= start.saturating_add(size)
                || start >= freed.start.saturating_add(freed.size)
        };
        self.ordering.freed.retain(apart);
    }
}

/// Whether the trace lacks which memory a transfer writes.
fn writes_unknown_memory(plan: &Plan, call: &Call<'_>) -> bool {
    match plan.describes_copies {
        true => described_accesses(plan.function, call).is_none(),
        false => plan.touched.is_empty(),
    }
}

/// True if the call names a default stream.
fn uses_default(plan: &Plan, call: &Call<'_>) -> bool {
    let stream = plan.effects.stream(call);
    stream.is_some_and(is_default_stream)
}

/// How memory was allocated, if its call is known.
pub(crate) fn memory_origin(object: &Object<Data>) -> Option<MemoryOrigin> {
    match object.data {
        Data::Other(Own::Memory(origin)) => Some(origin),
        _ => None,
    }
}
