//! Which work may still write host memory when a call is entered: what that memory holds then is no
//! evidence of what the program has written there.
//!
//! Calls of several threads overlap, so their effects come when they return, and what they prove or
//! record counts from when they were entered. What a wait proves comes when the recorder has looked at
//! what it found, since a replay waits then; the program may know it before. Doubt counts as "still
//! running".

mod questions;
mod writes;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

use cutape_format::{Call, Note};
use cutape_order::{Clock, Moment, StreamKind};
use cutape_registry::{Family, GraphOp, Kind, PrimaryOp, StreamMemoryOp, Waits};
use rustc_hash::FxHashMap;

use crate::effects::{Action, Effect, Effects};
use crate::gap::Gaps;
use crate::graphs::GraphAction;
use crate::needs::Operands;
use crate::objects::ObjectId;
use crate::order::StreamKey;
use crate::trace_state::function_of;
use crate::work_order::{OrderEffect, WorkOrder};
pub use questions::Answers;
use questions::{About, Question};
pub use writes::{CompletedBy, CompletedWrite, PendingWrite};
use writes::{GraphWrites, Written};

/// So many writes of a stream to the same bytes are kept, the last ones.
const MOST_ALIKE: usize = 8;

/// So many writes are kept for calls that look for long at what they found.
const MOST_RECENT: usize = 256;

/// When the bytes had been read that a call found before the driver was called, in ticks, if several
/// threads make calls (note LOOKED_BEFORE).
pub fn looked_before(call: &Call<'_>) -> Option<Moment> {
    call.notes().find_map(|note| match note {
        Note::LookedBefore(note) => Some(note.ticks),
        _ => None,
    })
}

/// When the bytes had been read that a call found after it had returned, in ticks, if several threads
/// make calls (note LOOKED).
pub fn looked(call: &Call<'_>) -> Option<Moment> {
    call.notes().find_map(|note| match note {
        Note::Looked(note) => Some(note.ticks),
        _ => None,
    })
}

/// Work that is complete: its stream, when it had been enqueued, and what it has written.
type Proved = (u32, Moment, PendingWrite);

/// The stream of the program: it waits for all that the program may have learned is complete.
const PROGRAM: StreamKey = (u64::MAX, u64::MAX);

/// What happens when a call has returned.
#[derive(Debug)]
enum Returned {
    Enqueued {
        stream: u32,
        entered: Moment,
        writes: Vec<PendingWrite>,
        /// The executable graph that was launched.
        graph: Option<u64>,
    },
    /// Work is complete that the call waited for.
    Finished(Vec<PendingWrite>),
    Ordered {
        effect: OrderEffect,
        entered: Moment,
        /// When the recorder had looked at what the call found.
        looked: Moment,
    },
    /// The program may know that work is complete, which is proved later.
    Known(Clock),
    /// The event is not what it was.
    Forgotten {
        event: u64,
    },
    /// Memory ended: nothing is written there any more.
    Ended(Range<u64>),
    Asked(Question),
}

impl Returned {
    /// What the call enqueues, or does before it returns.
    fn writes(&self) -> &[PendingWrite] {
        match self {
            Self::Enqueued { writes, .. } | Self::Finished(writes) => writes,
            _ => &[],
        }
    }
}

fn is_within(bytes: &Range<u64>, memory: &Range<u64>) -> bool {
    memory.start <= bytes.start && bytes.end <= memory.end
}

/// What a call does to the order.
fn ordered(call: &Call<'_>, effect: OrderEffect) -> Returned {
    Returned::Ordered {
        effect,
        entered: call.ticks,
        looked: looked(call).unwrap_or(call.leave.map_or(call.ticks, |leave| leave.ticks)),
    }
}

/// Follows work that writes host memory.
#[derive(Debug, Default)]
pub struct HostWrites {
    work: WorkOrder,
    /// By signature number; `None` inside: the registry does not know it.
    effects: Vec<Option<Option<Effects>>>,
    /// By time and position in `returned`.
    returns: BinaryHeap<Reverse<(Moment, u64)>>,
    /// By that position: the call, and what happens.
    returned: FxHashMap<u64, (u64, Returned)>,
    count: u64,
    pending: Vec<(u32, Moment, PendingWrite)>,
    /// By executable graph: what its launches do; empty when that may have changed.
    of_graphs: FxHashMap<u64, GraphWrites>,
    /// By executable graph: its last launch, and what is before that. The next one waits for it
    /// (manual, cuGraphLaunch).
    launched: FxHashMap<u64, Clock>,
    /// By work: the first call since which the program may know that it is complete.
    known: FxHashMap<(u32, u64), u64>,
    answers: Answers,
    /// The last writes that calls were to enqueue.
    recent: VecDeque<PendingWrite>,
    /// Work that is complete, if it is kept.
    completed: Option<Vec<CompletedWrite>>,
    /// If it is kept, the last work that calls have proved complete, and until when they had looked.
    proved: VecDeque<(Proved, Moment)>,
    gaps: Gaps,
}

impl HostWrites {
    /// A call is entered. To be called for every call, in order, before [`HostWrites::apply`].
    pub fn enter(&mut self, call: &Call<'_>) {
        self.work.state.settle(call.ticks, call.thread);
        self.return_before(call.ticks);
        if self.gaps.is_before(call) {
            self.apply_gap(call.ticks);
        }
        if self.launched.is_empty() {
            return;
        }
        let function = function_of(call.signature).filter(|function| {
            function.family == Family::Graph(GraphOp::Launch) && call.succeeded()
        });
        if let Some(function) = function
            && let Some(earlier) = self.launched.remove(&call.argument(0))
        {
            let stream = self.work.stream_of(&Effects::of(function), call);
            self.work
                .order
                .wait(stream, &earlier, (call.ticks, call.ticks));
        }
    }

    /// Keeps work that is complete, for [`HostWrites::completed`].
    pub fn keeping_completed() -> Self {
        Self {
            completed: Some(Vec::new()),
            ..Self::default()
        }
    }

    /// All work that is complete; to be called behind the last call. Work that is not, without a proof.
    pub fn completed(mut self) -> Vec<CompletedWrite> {
        self.return_before(Moment::MAX);
        let pending = self
            .pending
            .into_iter()
            .map(|(stream, _, write)| CompletedWrite {
                write,
                stream: Some(stream),
                proof: CompletedBy::None,
            });
        self.completed
            .unwrap_or_default()
            .into_iter()
            .chain(pending)
            .collect()
    }

    /// Whether that call, which was applied last, has written or enqueued work that writes.
    pub fn has_written(&self, call: &Call<'_>) -> bool {
        self.recent
            .back()
            .is_some_and(|last| last.call == call.index)
    }

    /// Calls are missing that may have waited for all work: what is found now, a replay could not
    /// compute, since it lacks their work.
    fn apply_gap(&mut self, now: Moment) {
        self.work.state.apply_gap();
        let everything = self.work.order.everything(now);
        self.work.order.complete(&everything);
        self.pending.clear();
        self.recent.clear();
        self.launched.clear();
    }

    fn return_before(&mut self, end: Moment) {
        while let Some(&Reverse((time, number))) = self.returns.peek() {
            if time >= end {
                break;
            }
            self.returns.pop();
            if let Some((call, returned)) = self.returned.remove(&number) {
                self.returned(time, call, returned);
            }
        }
    }

    fn returned(&mut self, time: Moment, call: u64, returned: Returned) {
        let until = match &returned {
            Returned::Ordered { looked, .. } => *looked,
            _ => time,
        };
        match returned {
            Returned::Enqueued {
                stream,
                entered,
                writes,
                graph,
            } => {
                self.work.order.submit(stream, entered, time);
                if let Some(graph) = graph {
                    let launched = self.work.order.clock(stream, time);
                    self.launched.insert(graph, launched);
                }
                for mut write in writes {
                    let mut same = self.pending.iter().enumerate().filter(|(_, old)| {
                        let (of, _, old) = old;
                        *of == stream && old.bytes == write.bytes && old.is_exact == write.is_exact
                    });
                    let oldest = same.next().map(|(at, _)| at);
                    // Later work of a stream is complete only if the earlier is.
                    let is_full = same.count() + 1 >= MOST_ALIKE;
                    write.hides_others |= is_full;
                    if let Some(oldest) = oldest.filter(|_| is_full) {
                        let (.., old) = self.pending.remove(oldest);
                        self.completed.iter_mut().for_each(|all| {
                            all.push(CompletedWrite {
                                write: old.clone(),
                                stream: Some(stream),
                                proof: CompletedBy::With(write.call),
                            });
                        });
                    }
                    self.pending.push((stream, time, write));
                }
                return;
            }
            Returned::Finished(writes) => {
                let completed = writes.into_iter().map(|write| CompletedWrite {
                    write,
                    stream: None,
                    proof: CompletedBy::Call(call, time),
                });
                self.completed
                    .iter_mut()
                    .for_each(|all| all.extend(completed.clone()));
                return;
            }
            Returned::Forgotten { event } => {
                self.work.events.remove(&event);
                return;
            }
            Returned::Ended(gone) => {
                self.pending
                    .retain(|(_, _, write)| !is_within(&write.bytes, &gone));
                return;
            }
            Returned::Known(clock) => return self.may_know(call, time, &clock),
            Returned::Ordered {
                effect, entered, ..
            } => {
                self.prove_again(call, (entered, time), &effect);
                if !self.work.apply(effect, time) {
                    return;
                }
            }
            Returned::Asked(question) => return self.answer(&question),
        }
        let (order, known) = (&self.work.order, &mut self.known);
        let (completed, proved) = (&mut self.completed, &mut self.proved);
        self.pending.retain(|(stream, enqueued, write)| {
            let is_done = order.is_done(*stream, *enqueued);
            if let Some(completed) = completed.as_mut().filter(|_| is_done) {
                completed.push(CompletedWrite {
                    write: write.clone(),
                    stream: Some(*stream),
                    proof: CompletedBy::Call(call, time),
                });
                if proved.len() >= MOST_RECENT {
                    proved.pop_front();
                }
                proved.push_back(((*stream, *enqueued, write.clone()), until));
            }
            if let Some(copy) = write.copy.filter(|_| is_done) {
                known.entry(copy).or_insert(call);
            }
            !is_done
        });
    }

    /// A call has returned that proves work complete which another one has proved meanwhile: the program
    /// may have learned it from either.
    fn prove_again(&mut self, call: u64, (entered, time): (Moment, Moment), effect: &OrderEffect) {
        let Some(completed) = &mut self.completed else {
            return;
        };
        let order = &self.work.order;
        let again = self.proved.iter().filter(|((stream, enqueued, _), until)| {
            let is_proved = match effect {
                OrderEffect::Proved(clock) => order.has(clock, *stream, *enqueued),
                OrderEffect::ProvedContext { context, entered } => {
                    order.context_of(*stream) == *context && enqueued <= entered
                }
                _ => false,
            };
            entered < *until && is_proved
        });
        completed.extend(again.map(|((stream, _, write), _)| CompletedWrite {
            write: write.clone(),
            stream: Some(*stream),
            proof: CompletedBy::Also(call, time),
        }));
    }

    /// Whether the work of the call that was entered last becomes part of a graph that is being captured:
    /// it reads and writes nothing then.
    pub fn is_captured(&mut self, call: &Call<'_>) -> bool {
        let effects = function_of(call.signature).map(Effects::of);
        effects.is_some_and(|effects| self.work.is_captured(&effects, call))
    }

    /// The work that may write some of these bytes, or have written them since no call could know,
    /// at the entry of that call, which was entered last.
    pub fn pending_for(&mut self, call: &Call<'_>, bytes: &Range<u64>) -> Vec<PendingWrite> {
        let mut writes = self.pending.iter().map(|(_, _, write)| write);
        let overlapping = self.in_progress().filter(|write| write.overlaps(bytes));
        let overlapping: Vec<PendingWrite> = overlapping.cloned().collect();
        if !writes.any(|write| write.overlaps(bytes)) {
            return overlapping;
        }
        let effects = function_of(call.signature).map(Effects::of);
        let stream = effects.map(|effects| self.work.stream_of(&effects, call));
        let order = &self.work.order;
        let found = self
            .pending
            .iter()
            .filter(|(_, _, write)| write.overlaps(bytes));
        let found = found.map(|&(of, at, ref write)| PendingWrite {
            is_before: stream.is_some_and(|stream| order.is_before((of, at), stream)),
            ..write.clone()
        });
        found.chain(overlapping).collect()
    }

    /// Whether work that may write host memory may be in flight, as far as calls have shown.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// What calls in progress enqueue, or do before they return.
    fn in_progress(&self) -> impl Iterator<Item = &PendingWrite> {
        let calls = self.returned.values();
        calls.flat_map(|(_, returned)| returned.writes())
    }

    /// Asks which work may still write the memory around an address when the recorder looked there
    /// behind a call: since that has returned, also what other threads have enqueued meanwhile. To
    /// be called behind [`HostWrites::apply`] of that call.
    pub fn ask_behind(&mut self, call: &Call<'_>, address: u64) {
        if let Some(bytes) = self.work.state.shared_around(address) {
            let asked =
                |since| Returned::Asked(Question::new(call, About::Bytes(bytes.clone(), since)));
            self.at_return(call, asked(Moment::MAX));
            if let (Some(looked), Some(leave)) = (looked(call), call.leave) {
                self.at(looked, call, asked(leave.ticks));
            }
        }
    }

    /// Asks which work that other threads enqueued during that call, before the recorder had looked
    /// at these bytes, may write them. To be called behind [`HostWrites::apply`] of that call.
    pub fn ask_later(&mut self, call: &Call<'_>, bytes: Range<u64>) {
        let asked = Returned::Asked(Question::new(call, About::Later(bytes, call.ticks)));
        match looked_before(call) {
            Some(looked) => self.at(looked, call, asked),
            None => self.at_return(call, asked),
        }
    }

    /// Asks since when the program may know that a copy is complete, whose bytes were recorded when a
    /// call had returned. To be called behind [`HostWrites::apply`] of that call.
    pub fn ask_since(&mut self, call: &Call<'_>, copy: (u32, u64)) {
        let question = Question::new(call, About::Copy(copy));
        self.at_return(call, Returned::Asked(question));
    }

    fn answer(&mut self, question: &Question) {
        let known = match &question.about {
            About::Copy(copy) => self.known.remove(copy),
            _ => None,
        };
        let mut answers = std::mem::take(&mut self.answers);
        let pending = self.pending.iter().map(|(_, _, write)| write);
        let pending = pending.chain(self.in_progress());
        answers.add(question, pending, &self.recent, known);
        self.answers = answers;
    }

    /// What was found, of all that has been asked; to be called behind the last call.
    pub fn answers(mut self) -> Answers {
        self.return_before(Moment::MAX);
        self.answers
    }

    /// The allocation around an address that host and device share, at the entry of the call that was
    /// entered last.
    pub fn shared_around(&self, address: u64) -> Option<Range<u64>> {
        self.work.state.shared_around(address)
    }

    /// As [`HostWrites::shared_around`], with its object.
    pub fn shared_at(&self, address: u64) -> Option<(Range<u64>, ObjectId)> {
        self.work.state.shared_at(address)
    }

    /// The memory around an address that the recorder found in memory which host and device share: as
    /// [`HostWrites::shared_at`], or a managed variable.
    pub fn noted_at(&self, address: u64) -> Option<(Range<u64>, ObjectId)> {
        let state = &self.work.state;
        state
            .shared_at(address)
            .or_else(|| state.memory_around(address))
    }

    /// The program may know from now on, by this call, that the work of a clock is complete.
    fn may_know(&mut self, call: u64, now: Moment, clock: &Clock) {
        let program = self.work.order.stream(PROGRAM, 0, StreamKind::NonBlocking);
        self.work.order.wait(program, clock, (now, now));
        for (stream, enqueued, write) in &mut self.pending {
            if write.known_since.is_none()
                && self.work.order.is_before((*stream, *enqueued), program)
            {
                write.known_since = Some(call);
                if let Some(copy) = write.copy {
                    self.known.insert(copy, call);
                }
            }
        }
    }

    /// The call that was entered last does what it does.
    pub fn apply(&mut self, call: &Call<'_>) {
        let place = usize::from(call.signature.id);
        if self.effects.len() <= place {
            self.effects.resize_with(place + 1, || None);
        }
        let Some(known) = self.effects.get_mut(place) else {
            return;
        };
        let known = known.take().unwrap_or_else(|| {
            let function = function_of(call.signature)?;
            Some(Effects::of(function))
        });
        if let Some(effects) = &known {
            match call.succeeded() {
                true => self.apply_success(effects, call),
                false => self.work.state.apply_failed(effects, call),
            }
        }
        if let Some(place) = self.effects.get_mut(place) {
            *place = Some(known);
        }
    }

    fn apply_success(&mut self, effects: &Effects, call: &Call<'_>) {
        let is_launch = effects.function.family == Family::Graph(GraphOp::Launch);
        if !is_launch && (!effects.objects.is_empty() || effects.graph != GraphAction::None) {
            self.of_graphs.clear();
        }
        let returned = self.work.effect_of(effects, call);
        let mut writes = self.writes_of(effects, call);
        let known = self.known_without_proof(effects, call, &writes);
        if known.is_some() {
            for write in &mut writes {
                write.known_since = Some(call.index);
                self.known.extend(write.copy.map(|copy| (copy, call.index)));
            }
        }
        // Captured work is not enqueued.
        let enqueued = match self.work.is_captured(effects, call) {
            true => &[],
            false => writes.as_slice(),
        };
        for write in enqueued {
            if self.recent.len() >= MOST_RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back(write.clone());
        }
        let is_enqueued = self.work.submit(effects, call);
        // Work that writes no such memory orders work that does.
        let is_followed =
            !writes.is_empty() || !self.pending.is_empty() || !self.returned.is_empty();
        if is_enqueued && is_followed {
            let stream = self.work.stream_of(effects, call);
            let graph = is_launch.then(|| call.argument(0));
            self.at_return(
                call,
                Returned::Enqueued {
                    stream,
                    entered: call.ticks,
                    writes,
                    graph,
                },
            );
        } else if !writes.is_empty() && !self.work.is_captured(effects, call) {
            self.at_return(call, Returned::Finished(writes));
        }
        if let Some(returned) = returned {
            let known = match &returned {
                OrderEffect::Proved(clock) => Some(clock.clone()),
                OrderEffect::ProvedContext { .. } => Some(self.work.order.unknown(call.ticks)),
                _ => None,
            };
            let look = looked(call);
            let ordered = ordered(call, returned);
            match (look, known) {
                (Some(look), Some(known)) => {
                    self.at_return(call, Returned::Known(known));
                    self.at(look, call, ordered);
                }
                _ => self.at_return(call, ordered),
            }
        }
        if let Some(known) = known {
            match effects.function.waits {
                // Before the call has returned: what tells of it is enqueued before that.
                Waits::No => self.may_know(call.index, call.ticks, &known),
                _ => self.at_return(call, Returned::Known(known)),
            }
        }
        if effects.action == Action::Primary(PrimaryOp::Reset)
            && let Some(id) = self.work.state.contexts.primary(call.argument(0) as i32)
        {
            self.end(call, id);
        }
        self.work.state.apply(effects, call, &mut |_| None);
        let changes = self.work.state.take_changes().unwrap_or_default();
        for id in changes.ended {
            self.end(call, id);
        }
        for &(position, effect) in &effects.objects {
            if let Effect::Create(Kind::Event, _) = effect
                && let Some(event) = call.out(position)
            {
                match effects.function.family {
                    Family::Sharing(_) => self.work.shared_events.insert(event),
                    _ => self.work.shared_events.remove(&event),
                };
                self.at_return(call, Returned::Forgotten { event });
            }
        }
    }

    /// What ends with an object, when that call has returned.
    fn end(&mut self, call: &Call<'_>, id: ObjectId) {
        let Some(object) = self.work.state.objects.get(id) else {
            return;
        };
        let (start, end) = (object.handle, object.handle.saturating_add(object.size));
        let ended = match object.kind {
            // Work ends with its context, also what was enqueued during the call.
            Kind::Context => {
                let entered = call.leave.map_or(call.ticks, |leave| leave.ticks);
                let context = start;
                ordered(call, OrderEffect::ProvedContext { context, entered })
            }
            Kind::HostMemory | Kind::Registration | Kind::Memory => {
                // A call that returns later cannot show what was written there.
                self.proved
                    .retain(|((.., write), _)| !is_within(&write.bytes, &(start..end)));
                Returned::Ended(start..end)
            }
            Kind::GraphExec => {
                self.launched.remove(&start);
                return;
            }
            _ => return,
        };
        self.at_return(call, ended);
    }

    /// What the program may learn is complete from a call, which does not prove it.
    fn known_without_proof(
        &mut self,
        effects: &Effects,
        call: &Call<'_>,
        writes: &[PendingWrite],
    ) -> Option<Clock> {
        let now = call.ticks;
        match (effects.function.waits, effects.function.family) {
            // It may be for streams whose context is not known, such as those of green contexts.
            (Waits::Context, _) => return Some(self.work.order.unknown(now)),
            (Waits::Event(at), _)
                if !self
                    .work
                    .events
                    .contains_key(&call.argument(usize::from(at))) =>
            {
                return Some(self.work.order.everything(now));
            }
            (_, Family::HostFunction | Family::StreamCallback) => {}
            (_, Family::StreamMemory(StreamMemoryOp::Write | StreamMemoryOp::Batch))
                if !writes.is_empty() => {}
            (_, Family::Graph(GraphOp::Launch))
                if self.of_graphs.get(&call.argument(0))?.signals => {}
            _ => return None,
        }
        if self.work.is_captured(effects, call) {
            return None;
        }
        let stream = self.work.stream_of(effects, call);
        Some(self.work.order.clock(stream, now))
    }

    fn at_return(&mut self, call: &Call<'_>, returned: Returned) {
        if let Some(leave) = call.leave {
            self.at(leave.ticks, call, returned);
        }
    }

    fn at(&mut self, time: Moment, call: &Call<'_>, returned: Returned) {
        self.count += 1;
        self.returns.push(Reverse((time, self.count)));
        self.returned.insert(self.count, (call.index, returned));
    }

    /// Where the work of a call writes memory that host and device share.
    fn writes_of(&mut self, effects: &Effects, call: &Call<'_>) -> Vec<PendingWrite> {
        let copy = !matches!(effects.function.family, Family::Launch(_));
        let write = |written: &Written| PendingWrite {
            bytes: written.bytes.clone(),
            is_exact: written.is_exact,
            call: call.index,
            copy: copy.then_some((call.thread, call.number)),
            entered: call.ticks,
            is_before: false,
            hides_others: written.by_several,
            known_since: None,
        };
        if effects.function.family == Family::Graph(GraphOp::Launch) {
            let (state, exec) = (&self.work.state, call.argument(0));
            let graph = self.of_graphs.entry(exec);
            let graph = graph.or_insert_with(|| writes::of_graph(state, exec));
            if graph.records_events {
                self.work.events.clear();
            }
            return graph.written.iter().map(write).collect();
        }
        let is_none = self.work.state.host.live().is_empty()
            && !self.work.state.objects.has_had(Kind::Memory);
        if is_none || !(effects.submits || effects.in_default_stream) {
            return Vec::new();
        }
        let operands = Operands::of(effects.function, call);
        if matches!(effects.function.family, Family::Launch(_)) {
            // The launch records the events that its attributes name.
            let events = operands.handles.iter();
            for (_, event) in events.filter(|(kind, _)| *kind == Kind::Event) {
                self.work.events.remove(event);
            }
        }
        let written = writes::of_call(&self.work.state, effects, call, &operands);
        written.iter().map(write).collect()
    }
}

#[cfg(test)]
mod tests;
