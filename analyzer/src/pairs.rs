//! Pairs of calls whose work uses the same memory and that nothing orders, and what replays have shown
//! of them.

use std::collections::{BTreeSet, HashSet};

use cutape_format::Call;
use cutape_model::{Access, AccessEffect, AccessKind};

use crate::plan::Plan;
use crate::state::State;

/// Two calls whose work touches the same byte, of which one writes or may write, with no order
/// between them: in two streams, or a launch that may overlap the one before it in its stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnorderedPair {
    /// The call that the program made first.
    pub first: u64,
    /// The other one.
    pub second: u64,
    /// The memory, e.g. `memory#3`.
    pub label: String,
    /// The first byte that both touch; of a programmatic launch, where the memory begins.
    pub address: u64,
    /// That both touch it is known, and not assumed of a kernel.
    pub is_certain: bool,
    /// The second call launches with programmatic stream serialization, and the first one lets the
    /// next kernel start early.
    pub is_programmatic: bool,
}

/// A pair of which replays have shown that its order changes memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenPair {
    /// The call that the program made first.
    pub first: u64,
    /// The other one.
    pub second: u64,
    /// What differs, as the end of a sentence.
    pub evidence: String,
}

/// The pairs that were found, each once.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    seen: HashSet<(u64, u64)>,
    found: Vec<UnorderedPair>,
}

impl Pairs {
    /// Adds those of a call that is about to be enqueued.
    pub(crate) fn add(&mut self, state: &State, plan: &Plan, call: &Call<'_>) {
        let ordering = &state.ordering;
        for access in &ordering.current {
            for other in ordering.accesses.of(access.object) {
                let is_unordered = other.stream.0 != access.stream.0
                    && !state.order.is_before(other.stream, access.stream.0);
                let Some(bytes) = access.overlap(other).filter(|_| is_unordered) else {
                    continue;
                };
                let is_read = |access: &Access| access.effect == AccessEffect::Read;
                if is_read(access) && is_read(other)
                    || !self.seen.insert((other.site.index, call.index))
                {
                    continue;
                }
                let is_kernel = |access: &Access| matches!(access.work, AccessKind::Kernel { .. });
                self.found.push(UnorderedPair {
                    first: other.site.index,
                    second: call.index,
                    label: state.label(access.object),
                    address: bytes.start,
                    is_certain: !is_kernel(access) && !is_kernel(other),
                    is_programmatic: false,
                });
            }
        }
        if let Some((before, shared)) = state.overlapped_kernel(plan, call)
            && self.seen.insert((before.site.index, call.index))
        {
            let object = state.objects.get(shared);
            self.found.push(UnorderedPair {
                first: before.site.index,
                second: call.index,
                label: state.label(shared),
                address: object.map_or(0, |object| object.handle),
                is_certain: false,
                is_programmatic: true,
            });
        }
    }

    pub(crate) fn into_found(self) -> Vec<UnorderedPair> {
        self.found
    }
}

/// Chosen calls, and which of them nothing orders.
#[derive(Debug, Default)]
pub(crate) struct ChosenWork {
    calls: BTreeSet<u64>,
    /// The calls so far, each with its stream and the number of its work.
    enqueued: Vec<(u64, (u32, u64))>,
    unordered: BTreeSet<(u64, u64)>,
}

impl ChosenWork {
    pub(crate) fn new(calls: BTreeSet<u64>) -> Self {
        Self {
            calls,
            ..Self::default()
        }
    }

    /// Takes a call that is about to be enqueued.
    pub(crate) fn add(&mut self, state: &State, call: &Call<'_>) {
        if !self.calls.contains(&call.index) {
            return;
        }
        let Some(access) = state.ordering.current.first() else {
            return;
        };
        let is_unordered = |work: &&(u64, (u32, u64))| {
            work.1.0 != access.stream.0 && !state.order.is_before(work.1, access.stream.0)
        };
        let earlier = self.enqueued.iter().filter(is_unordered);
        self.unordered
            .extend(earlier.map(|work| (work.0, call.index)));
        self.enqueued.push((call.index, (access.stream.0, 0)));
    }

    /// The call was enqueued: its work has a number.
    pub(crate) fn number(&mut self, state: &State, call: &Call<'_>) {
        if let Some((index, work)) = self.enqueued.last_mut()
            && *index == call.index
        {
            work.1 = state.order.last();
        }
    }

    pub(crate) fn into_unordered(self) -> BTreeSet<(u64, u64)> {
        self.unordered
    }
}
