//! Pairs of calls whose work uses the same memory and that nothing orders.

use std::collections::HashSet;

use cutape_format::Call;
use cutape_model::{Access, AccessEffect, AccessKind};

use crate::state::State;

/// Two calls whose work touches the same byte in two streams, of which one writes or may write, with
/// no order between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnorderedPair {
    /// The call that the program made first.
    pub first: u64,
    /// The other one.
    pub second: u64,
    /// The memory, e.g. `memory#3`.
    pub label: String,
    /// The first byte that both touch.
    pub address: u64,
    /// That both touch it is known, and not assumed of a kernel.
    pub is_certain: bool,
}

/// The pairs that were found, each once.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    seen: HashSet<(u64, u64)>,
    found: Vec<UnorderedPair>,
}

impl Pairs {
    /// Adds those of a call that is about to be enqueued.
    pub(crate) fn add(&mut self, state: &State, call: &Call<'_>) {
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
                });
            }
        }
    }

    pub(crate) fn into_found(self) -> Vec<UnorderedPair> {
        self.found
    }
}
