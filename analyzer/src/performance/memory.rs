//! Memory: allocations that come and go with every iteration, copies of pageable memory, too much
//! pinned memory.

use cutape_format::Call;
use cutape_model::{ObjectId, Site};
use cutape_registry::{
    ContextOp, CopyOp, Family, GraphOp, HostMemoryOp, Kind, MemoryOp, MemoryType, StreamOp, rules,
};

use super::tally::{Rate, Tallies};
use crate::context::TraceContext;
use crate::plan::Plan;
use crate::rules::{Draft, at, with_article};
use crate::state::State;

/// Pairs of creation and end with work in between from which on they are churn.
const PAIRS: u64 = 64;
/// How many younger objects of its kind there may be when an object of a pair ends.
const YOUNGER: u32 = 8;
/// The least bytes of a copy of pageable memory that counts, and how many of them.
const LARGE: u64 = 64 << 10;
const COPIES: u64 = 32;
/// The share of physical memory that may be pinned: one part in so many.
const PINNED_SHARE: u64 = 2;
/// The most bytes that were pinned or registered at once, and the call after which they were.
#[derive(Debug, Default)]
struct MostPinned {
    bytes: u64,
    site: Option<Site>,
}

#[derive(Debug, Default)]
pub(super) struct MemoryUse {
    pinned: MostPinned,
    /// By kind, size and the place that creates.
    churn: Tallies<(Kind, u64, u64)>,
    /// By function and place.
    copies: Tallies<(u16, u64)>,
}

/// The kind of object that a call ends, if creating it is costly.
fn costly(family: Family) -> Option<Kind> {
    Some(match family {
        Family::Memory(MemoryOp::Free) => Kind::Memory,
        Family::HostMemory(HostMemoryOp::Free) => Kind::HostMemory,
        Family::HostMemory(HostMemoryOp::Unregister) => Kind::Registration,
        Family::Stream(StreamOp::Destroy) => Kind::Stream,
        Family::Graph(GraphOp::DestroyExec) => Kind::GraphExec,
        Family::Context(ContextOp::Destroy) => Kind::Context,
        _ => return None,
    })
}

impl MemoryUse {
    /// A call that succeeded; `work` tells whether an object saw work: how much had been submitted
    /// after a call.
    pub(super) fn observe(
        &mut self,
        (plan, call, site): (&Plan, &Call<'_>, Site),
        state: &State,
        last_work: Option<u64>,
    ) {
        let family = plan.function.family;
        let pinned = match family {
            Family::HostMemory(HostMemoryOp::Allocate) => Some(Kind::HostMemory),
            Family::HostMemory(HostMemoryOp::Register) => Some(Kind::Registration),
            _ => None,
        };
        if let Some(kind) = pinned {
            let size = plan.effects.size_of(call, kind);
            let bytes = state.host.live_bytes().saturating_add(size);
            if bytes > self.pinned.bytes {
                self.pinned = MostPinned {
                    bytes,
                    site: Some(site),
                };
            }
        }
        if let Some(kind) = costly(family) {
            let id = state.objects.live(kind, call.argument(0));
            self.ended(state, id, kind, last_work);
        }
        if let Family::Copy(CopyOp::Linear(transfer)) = family {
            let operands = [
                (transfer.from, transfer.source),
                (transfer.to, transfer.target),
            ];
            let host = operands
                .into_iter()
                .find(|(kind, _)| *kind == MemoryType::Host);
            let bytes = call.argument(usize::from(transfer.bytes));
            if let Some((_, position)) = host
                && bytes >= LARGE
            {
                let address = call.argument(usize::from(position));
                if state.place_at(address).is_none()
                    && let Some(tally) = self.copies.of((plan.function.id, call.caller), site)
                {
                    let ticks = call.leave.map_or(0, |leave| leave.ticks);
                    tally.count += 1;
                    tally.bytes = tally.bytes.saturating_add(bytes);
                    let ticks = ticks.saturating_sub(call.ticks);
                    tally.ticks = tally.ticks.saturating_add(ticks);
                }
            }
        }
    }

    /// An object ends by itself.
    fn ended(&mut self, state: &State, id: Option<ObjectId>, kind: Kind, last_work: Option<u64>) {
        let Some(object) = id.and_then(|id| state.objects.get(id)) else {
            return;
        };
        let younger = state
            .objects
            .generations(kind)
            .saturating_sub(object.generation);
        let has_worked = last_work.is_some_and(|work| work > object.created.index);
        if younger > YOUNGER || !has_worked {
            return;
        }
        let key = (kind, object.size, object.created.caller);
        if let Some(tally) = self.churn.of(key, object.created) {
            tally.count += 1;
        }
    }

    pub(super) fn finish(&self, context: &dyn TraceContext, rate: Rate) -> Vec<Draft> {
        let mut drafts = Vec::new();
        let churn = self.churn.at_least(PAIRS);
        if let Some(((kind, size, _), worst)) = churn.iter().max_by_key(|(_, t)| t.count) {
            let bytes = match *size {
                0 => String::new(),
                size => format!(" of {size} bytes"),
            };
            let message = format!(
                "At the place of {}, the program created and ended {}{bytes} {} times, each time \
                 with other work in between. Places that do so {PAIRS} times or more: {}.",
                at(worst.first),
                with_article(kind.name()),
                worst.count,
                churn.len(),
            );
            let title = "objects created and ended with every iteration";
            let draft = Draft::new(rules::PERFORMANCE_ALLOCATION_CHURN, title, message);
            drafts.push(draft.site(worst.first));
        }
        let copies = self.copies.at_least(COPIES);
        if let Some((_, worst)) = copies.iter().max_by_key(|(_, tally)| tally.bytes) {
            let message = format!(
                "{} copied {LARGE} bytes or more from or to memory that is neither pinned nor \
                 registered, {} times, {} bytes{}. Places that do so {COPIES} times or more: {}.",
                at(worst.first),
                worst.count,
                worst.bytes,
                rate.in_all(worst.ticks),
                copies.len(),
            );
            let title = "large copies of pageable memory";
            let draft = Draft::new(rules::PERFORMANCE_PAGEABLE_COPY, title, message);
            drafts.push(draft.site(worst.first));
        }
        let physical: Option<u64> = context
            .meta("host.memory")
            .and_then(|text| text.parse().ok());
        if let (Some(physical), Some(site)) = (physical, self.pinned.site)
            && self.pinned.bytes > physical / PINNED_SHARE
        {
            let message = format!(
                "After {} {} bytes were pinned or registered at once, more than half of the \
                 machine's {physical} bytes.",
                at(site),
                self.pinned.bytes,
            );
            let title = "most of the machine's memory is pinned";
            let draft = Draft::new(rules::PERFORMANCE_PINNED_EXCESS, title, message);
            drafts.push(draft.site(site));
        }
        drafts
    }
}
