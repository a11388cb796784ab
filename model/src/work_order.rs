//! The order of work, followed entry by entry and return by return: what calls record, wait for and
//! prove. Doubt counts as "still running".

use cutape_format::Call;
use cutape_order::{Clock, Doubt, Moment, Order};
use cutape_registry::{CopyOp, EventOp, Family, Kind, MemoryType, SharingOp, StreamOp, Waits};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use crate::copied::{described_host_target, waits_for_default, was_complete};
use crate::effects::{Action, Effects};
use crate::objects::Retention;
use crate::state::State;

/// What a call does to the order, when it has returned.
#[derive(Debug)]
pub(crate) enum OrderEffect {
    Recorded {
        stream: u32,
        event: u64,
        before: Clock,
        entered: Moment,
    },
    WaitsFor {
        stream: u32,
        event: Clock,
        entered: Moment,
    },
    Proved(Clock),
    ProvedContext {
        context: u64,
        entered: Moment,
    },
}

/// The driver's state, and the order of work in it. Calls are applied to the state by the user.
#[derive(Debug)]
pub(crate) struct WorkOrder {
    pub(crate) state: State<()>,
    pub(crate) order: Order<FxBuildHasher>,
    /// What was before the last record of each event, and when that had returned.
    pub(crate) events: FxHashMap<u64, (Clock, Moment)>,
    /// Events that other processes may record.
    pub(crate) shared_events: FxHashSet<u64>,
}

impl Default for WorkOrder {
    fn default() -> Self {
        Self {
            state: State::new(Retention::PerHandle),
            order: Order::new(Doubt::Running),
            events: FxHashMap::default(),
            shared_events: FxHashSet::default(),
        }
    }
}

impl WorkOrder {
    /// A call has returned at that time. Returns whether work may be complete since.
    pub(crate) fn apply(&mut self, effect: OrderEffect, time: Moment) -> bool {
        match effect {
            OrderEffect::Recorded {
                stream,
                event,
                before,
                entered,
            } => {
                // Which of two records that overlap is the last is not known.
                let old = self.events.get(&event);
                let overlaps = old.is_some_and(|&(_, returned)| returned > entered);
                let before = if overlaps { Clock::new() } else { before };
                self.order.marked(stream, entered, time);
                self.events.insert(event, (before, time));
                false
            }
            OrderEffect::WaitsFor {
                stream,
                event,
                entered,
            } => {
                self.order.wait(stream, &event, (entered, time));
                false
            }
            OrderEffect::Proved(clock) => {
                self.order.complete(&clock);
                true
            }
            OrderEffect::ProvedContext { context, entered } => {
                self.order.complete_context(context, entered);
                true
            }
        }
    }

    /// Whether a call is captured instead of enqueueing work.
    pub(crate) fn is_captured(&mut self, effects: &Effects, call: &Call<'_>) -> bool {
        let stream = self.state.call_stream(effects, call);
        stream.is_some_and(|stream| self.state.captures.of(stream).is_some())
    }

    /// The stream of a call, in this order.
    pub(crate) fn stream_of(&mut self, effects: &Effects, call: &Call<'_>) -> u32 {
        let handle = effects.stream(call).unwrap_or(0);
        self.stream(call, handle, effects.function.per_thread)
    }

    pub(crate) fn stream(&mut self, call: &Call<'_>, handle: u64, per_thread: bool) -> u32 {
        let (key, context, kind) = self.state.stream_key(call.thread, handle, per_thread);
        self.order.stream(key, context, kind)
    }

    /// Whether a call without a stream is complete when it returns, and with it the earlier work of
    /// the default stream.
    pub(crate) fn is_complete(&self, effects: &Effects, call: &Call<'_>) -> bool {
        let function = effects.function;
        // What is copied to memory of the host is there, wherever it comes from.
        let is_to_host = |[target, _]: [u8; 2]| {
            let target = call.argument(usize::from(target));
            self.state.host.live().find(target).is_some()
        };
        // From pageable memory, a copy may only have read it; from page-locked memory it is complete
        // (CUDA manual, API synchronization behavior; also to managed memory: tests/gpu/waits.c, H200,
        // driver 580.159.04, 2026-11-26).
        let source = match function.family {
            Family::Copy(CopyOp::Linear(at)) if at.from == MemoryType::Host => Some(at.source),
            Family::Copy(CopyOp::Unified(at)) => Some(at.source),
            _ => None,
        };
        let is_from_page_locked = function.stream.is_none()
            && source.is_some_and(|at| {
                let source = call.argument(usize::from(at));
                self.state.host.live().find(source).is_some()
            });
        function.is_synchronous_readback()
            || is_from_page_locked
            || function.unified_without_stream().is_some_and(is_to_host)
            || (function.stream.is_none() && described_host_target(function, call).is_some())
            || (function.is_memset_without_stream()
                && self.state.shared_around(call.argument(0)).is_some())
    }

    /// What a call records, waits for or proves.
    pub(crate) fn effect_of(&mut self, effects: &Effects, call: &Call<'_>) -> Option<OrderEffect> {
        let function = effects.function;
        let now = call.ticks;
        let current = self.state.contexts.current(call.thread).handle;
        match function.waits {
            Waits::No => {}
            Waits::Context => {
                let named = effects.handle_of(call, Kind::Context);
                let context = named.filter(|&handle| handle != 0).unwrap_or(current);
                return Some(OrderEffect::ProvedContext {
                    context,
                    entered: now,
                });
            }
            Waits::Stream(at) => {
                let handle = call.argument(usize::from(at));
                let stream = self.stream(call, handle, function.per_thread);
                return Some(OrderEffect::Proved(self.order.waited(stream, now)));
            }
            Waits::Event(at) => {
                let before = self.recorded_before(call.argument(usize::from(at)), now)?;
                return Some(OrderEffect::Proved(before.clone()));
            }
        }
        if waits_for_default(function, call, &self.state) || self.is_complete(effects, call) {
            let stream = self.stream(call, 0, function.per_thread);
            return Some(OrderEffect::Proved(self.order.clock(stream, now)));
        }
        if was_complete(function, call) {
            let stream = self.stream_of(effects, call);
            return Some(OrderEffect::Proved(self.order.clock(stream, now)));
        }
        if let Some(context) = self.state.waits_implicitly(effects, call) {
            return Some(OrderEffect::ProvedContext {
                context,
                entered: now,
            });
        }
        let event = effects.handle_of(call, Kind::Event)?;
        let captured = self.is_captured(effects, call);
        match function.family {
            Family::Event(EventOp::Record) if function.stream.is_some() => {
                let stream = self.stream_of(effects, call);
                // A call in progress may have recorded it.
                self.events.remove(&event);
                let is_last = !captured && !self.shared_events.contains(&event);
                is_last.then(|| OrderEffect::Recorded {
                    stream,
                    event,
                    before: self.order.clock(stream, now),
                    entered: now,
                })
            }
            Family::Stream(StreamOp::WaitEvent) if !captured => {
                let stream = self.stream_of(effects, call);
                let event = self.recorded_before(event, now)?.clone();
                Some(OrderEffect::WaitsFor {
                    stream,
                    event,
                    entered: now,
                })
            }
            Family::Event(EventOp::ElapsedTime) | Family::Stream(_) => None,
            Family::Sharing(SharingOp::Export(_)) => {
                self.events.remove(&event);
                self.shared_events.insert(event);
                None
            }
            _ => {
                self.events.remove(&event);
                None
            }
        }
    }

    /// What was before the last record of an event, if a call that was entered then waits for that
    /// record and not for an earlier one.
    fn recorded_before(&self, event: u64, now: Moment) -> Option<&Clock> {
        let (before, returned) = self.events.get(&event)?;
        (*returned <= now).then_some(before)
    }

    /// Takes a successful call's work into the state; returns whether it is enqueued and may still
    /// run when the call has returned. Before the state applies the call.
    pub(crate) fn submit(&mut self, effects: &Effects, call: &Call<'_>) -> bool {
        let is_submitted = self.state.submit(effects, call).is_some()
            || (effects.action == Action::HostFunction && !self.is_captured(effects, call));
        is_submitted || (effects.in_default_stream && !self.is_complete(effects, call))
    }
}
