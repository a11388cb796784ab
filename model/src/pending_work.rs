//! Which work of each stream may still run at the end of a sequence of calls, and what it comes
//! after. Doubt counts as "still running".
//!
//! Calls prove work complete, and so do breadcrumbs: a stream has written the value of its word that
//! follows the work (note BREADCRUMB). What the words hold now, the caller says.

use std::collections::VecDeque;

use cutape_format::layout::{BreadcrumbNote, breadcrumb};
use cutape_format::{Call, Note};
use cutape_order::{Clock, Moment};
use cutape_registry::{Family, GraphOp, Kind, STREAM_PER_THREAD, StreamOp, is_sticky};
use rustc_hash::FxHashMap;

use crate::copied::was_complete;
use crate::effects::Effects;
use crate::graphs::Exec;
use crate::stream_values::{AwaitedValue, WrittenValue, awaited_values, written_values};
use crate::trace_state::function_of;
use crate::work_order::{OrderEffect, WorkOrder};

/// Work that a call has enqueued, or a wait of a stream.
#[derive(Clone, Debug)]
pub struct QueuedWork {
    /// The call.
    pub call: u64,
    /// What it is.
    pub kind: PendingKind,
    /// When the call had returned.
    moment: Moment,
    /// What it comes after in other streams.
    after: Clock,
}

/// What may hold a stream up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PendingKind {
    /// A kernel, a copy, a memset.
    Work,
    /// A launch of this executable graph.
    Graph(u64),
    /// A function of the program.
    HostFunction,
    /// The stream waits for an event, which the call recorded, if a call did.
    Event(Option<u64>),
    /// The stream waits for values in memory, or writes some.
    Values(Vec<AwaitedValue>, Vec<WrittenValue>),
}

/// How work is known to be complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A stream has written its word.
    Breadcrumb,
    /// This call waited for it.
    Call(u64),
}

/// A stream with work that may still run.
#[derive(Debug)]
pub struct PendingStream<'a> {
    /// Its number, by which others wait for it.
    pub number: u32,
    /// Its handle; that of a default stream is 1 or 2.
    pub handle: u64,
    /// The context's handle; 0 if it is not known.
    pub context: u64,
    /// The thread whose default stream it is.
    pub thread: Option<u32>,
    /// Oldest first; not empty.
    pub work: &'a VecDeque<QueuedWork>,
    /// The last call whose work is known to be complete, and why.
    pub completed: Option<(u64, Proof)>,
    /// How many of the first pieces of work one of which is not complete: up to the next breadcrumb.
    /// All of them if the stream has no later breadcrumb.
    pub candidates: usize,
    /// It has a breadcrumb that it has not written.
    pub has_next_breadcrumb: bool,
}

/// A call that has not returned.
#[derive(Clone, Debug)]
pub struct HostWait {
    /// The call.
    pub call: u64,
    /// Its thread.
    pub thread: u32,
    /// When it was entered.
    pub ticks: u64,
    /// What it waits for.
    waits_for: Awaited,
}

#[derive(Clone, Debug)]
enum Awaited {
    Nothing,
    Work(Clock),
    Context(u64),
}

/// The first call that returned an error of earlier work, after which a context runs no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StickyFailure {
    /// The call.
    pub call: u64,
    /// Its result.
    pub result: i32,
}

/// A value that a stream writes to its word when the work of a clock is complete.
#[derive(Debug)]
struct Crumb {
    value: u32,
    clock: Clock,
    stream: u32,
    moment: Moment,
}

#[derive(Debug)]
struct StreamName {
    handle: u64,
    context: u64,
    thread: Option<u32>,
}

/// Follows the calls of a trace.
#[derive(Debug, Default)]
pub struct PendingWork {
    work: WorkOrder,
    /// By signature number; `None` inside: the registry does not know it.
    effects: Vec<Option<Option<Effects>>>,
    names: FxHashMap<u32, StreamName>,
    queues: FxHashMap<u32, VecDeque<QueuedWork>>,
    completed: FxHashMap<u32, (u64, Proof)>,
    /// By the word's address: values that it may not have reached.
    crumbs: FxHashMap<u64, VecDeque<Crumb>>,
    /// By the word's address: what it holds.
    words: FxHashMap<u64, u32>,
    /// By executable graph: what its last launch comes after, with the launch. No two run at once
    /// (manual, cuGraphLaunch).
    launched: FxHashMap<u64, Clock>,
    /// By event: the call that recorded it last.
    records: FxHashMap<u64, u64>,
    in_flight: Vec<HostWait>,
    failure: Option<StickyFailure>,
}

/// Whether a word with a value has reached another one.
fn has_reached(found: u32, value: u32) -> bool {
    found.wrapping_sub(value) as i32 >= 0
}

impl PendingWork {
    /// Takes every call, in order. `read` reads a word, of a process that still runs.
    pub fn observe(&mut self, call: &Call<'_>, read: &mut dyn FnMut(u64) -> Option<u32>) {
        if self.failure.is_some() {
            return;
        }
        // A call of this thread without a return was left in another way, such as longjmp.
        self.in_flight.retain(|wait| wait.thread != call.thread);
        self.work.state.settle(call.ticks, call.thread);
        let place = usize::from(call.signature.id);
        if self.effects.len() <= place {
            self.effects.resize_with(place + 1, || None);
        }
        let Some(known) = self.effects.get_mut(place).map(Option::take) else {
            return;
        };
        let effects = known.unwrap_or_else(|| function_of(call.signature).map(Effects::of));
        if let Some(effects) = &effects {
            match call.result() {
                Some(0) => self.succeeded(effects, call, read),
                Some(_) => self.work.state.apply_failed(effects, call),
                None if call.leave.is_none() => self.entered(effects, call),
                None => {}
            }
        }
        if let Some(place) = self.effects.get_mut(place) {
            *place = Some(effects);
        }
        for note in call.notes() {
            if let Note::Breadcrumb(note) = note
                && note.kind == breadcrumb::READ
            {
                self.found(note.address, note.value);
            }
        }
        self.failure = call
            .result()
            .filter(|&result| is_sticky(result))
            .map(|result| StickyFailure {
                call: call.index,
                result,
            });
    }

    /// A word holds a value.
    pub fn found(&mut self, address: u64, value: u32) {
        self.words.insert(address, value);
        let Some(crumbs) = self.crumbs.get_mut(&address) else {
            return;
        };
        let mut reached = Clock::new();
        crumbs.retain(|crumb| {
            let is_reached = has_reached(value, crumb.value);
            if is_reached {
                reached.extend_from_slice(&crumb.clock);
            }
            !is_reached
        });
        self.work.order.complete(&reached);
        self.take_completed(Proof::Breadcrumb);
    }

    /// The addresses of words that streams have not finished writing.
    pub fn unfinished_words(&self) -> Vec<u64> {
        let crumbs = self.crumbs.iter();
        let unfinished = crumbs.filter(|(_, crumbs)| !crumbs.is_empty());
        unfinished.map(|(&address, _)| address).collect()
    }

    /// A call is in progress at the end.
    fn entered(&mut self, effects: &Effects, call: &Call<'_>) {
        let effect = self.work.effect_of(effects, call);
        let waits_for = match effect {
            Some(OrderEffect::Proved(clock)) => Awaited::Work(clock),
            Some(OrderEffect::ProvedContext { context, .. }) => Awaited::Context(context),
            _ => Awaited::Nothing,
        };
        self.in_flight.push(HostWait {
            call: call.index,
            thread: call.thread,
            ticks: call.ticks,
            waits_for,
        });
    }

    fn succeeded(
        &mut self,
        effects: &Effects,
        call: &Call<'_>,
        read: &mut dyn FnMut(u64) -> Option<u32>,
    ) {
        let returned = call.leave.map_or(call.ticks, |leave| leave.ticks);
        let function = effects.function;
        let effect = self.work.effect_of(effects, call);
        let is_wait = matches!(effect, Some(OrderEffect::WaitsFor { .. }));
        let kind = self.kind_of(effects, call);
        if let PendingKind::Graph(exec) = kind
            && let Some(earlier) = self.launched.remove(&exec)
        {
            let stream = self.work.stream_of(effects, call);
            self.work
                .order
                .wait(stream, &earlier, (call.ticks, call.ticks));
        }
        self.take_crumbs(effects, call, breadcrumb::BEFORE, call.ticks, read);
        let awaited = match &effect {
            Some(OrderEffect::WaitsFor { event, .. }) => event.clone(),
            _ => Clock::new(),
        };
        if let Some(OrderEffect::Recorded { event, .. }) = &effect {
            self.records.insert(*event, call.index);
        }
        let has_completed = effect.is_some_and(|effect| self.work.apply(effect, returned));
        let is_enqueued = self.work.submit(effects, call) && !was_complete(function, call);
        if is_enqueued || is_wait {
            self.enqueue(effects, call, kind, awaited);
        }
        self.take_crumbs(effects, call, breadcrumb::AFTER, returned, read);
        self.work.state.apply(effects, call, &mut |_| None);
        let changes = self.work.state.take_changes().unwrap_or_default();
        for id in changes.ended {
            if let Some(object) = self.work.state.objects.get(id)
                && object.kind == Kind::Context
            {
                // Work ends with its context.
                self.work.order.complete_context(object.handle, returned);
            }
        }
        let ends = matches!(
            function.family,
            Family::Context(_) | Family::PrimaryContext(_)
        );
        if has_completed || ends {
            self.take_completed(Proof::Call(call.index));
        }
    }

    fn kind_of(&self, effects: &Effects, call: &Call<'_>) -> PendingKind {
        match effects.function.family {
            Family::Graph(GraphOp::Launch) => PendingKind::Graph(call.argument(0)),
            Family::HostFunction | Family::StreamCallback => PendingKind::HostFunction,
            Family::StreamMemory(_) => PendingKind::Values(
                awaited_values(effects.function, call),
                written_values(effects.function, call),
            ),
            Family::Stream(StreamOp::WaitEvent) => {
                let event = effects.handle_of(call, Kind::Event);
                let record = event.and_then(|event| self.records.get(&event));
                PendingKind::Event(record.copied())
            }
            _ => PendingKind::Work,
        }
    }

    fn enqueue(&mut self, effects: &Effects, call: &Call<'_>, kind: PendingKind, awaited: Clock) {
        let stream = self.work.stream_of(effects, call);
        self.name(stream, effects, call);
        let returned = call.leave.map_or(call.ticks, |leave| leave.ticks);
        let mut after = self.work.order.clock(stream, call.ticks);
        after.retain(|entry| entry.0 != stream);
        after.extend(awaited);
        self.work.order.submit(stream, call.ticks, returned);
        if let PendingKind::Graph(exec) = kind {
            let launched = self.work.order.clock(stream, returned);
            self.launched.insert(exec, launched);
        }
        self.queues
            .entry(stream)
            .or_default()
            .push_back(QueuedWork {
                call: call.index,
                kind,
                moment: returned,
                after,
            });
    }

    fn name(&mut self, stream: u32, effects: &Effects, call: &Call<'_>) {
        let handle = effects.stream(call).unwrap_or(0);
        let per_thread = effects.function.per_thread;
        let state = &self.work.state;
        self.names.entry(stream).or_insert_with(|| {
            let ((handle, _), context, _) = state.stream_key(call.thread, handle, per_thread);
            let is_of_thread = handle == (STREAM_PER_THREAD | u64::from(call.thread) << 8);
            StreamName {
                handle: if is_of_thread {
                    STREAM_PER_THREAD
                } else {
                    handle
                },
                context,
                thread: is_of_thread.then_some(call.thread),
            }
        });
    }

    /// The breadcrumbs of a call, before its work or after it.
    fn take_crumbs(
        &mut self,
        effects: &Effects,
        call: &Call<'_>,
        kind: u8,
        moment: Moment,
        read: &mut dyn FnMut(u64) -> Option<u32>,
    ) {
        if !call.has_notes() {
            return;
        }
        let crumbs = call.notes().filter_map(|note| match note {
            Note::Breadcrumb(note) if note.kind == kind => Some(note),
            _ => None,
        });
        for BreadcrumbNote { address, value, .. } in crumbs {
            let stream = self.work.stream_of(effects, call);
            self.name(stream, effects, call);
            let clock = self.work.order.clock(stream, moment);
            let words = &mut self.words;
            let found = words.get(&address).copied().or_else(|| read(address));
            if let Some(found) = found {
                words.insert(address, found);
            }
            if found.is_some_and(|found| has_reached(found, value)) {
                self.work.order.complete(&clock);
                self.take_completed(Proof::Breadcrumb);
                continue;
            }
            let crumbs = self.crumbs.entry(address).or_default();
            let order = &self.work.order;
            while crumbs
                .front()
                .is_some_and(|crumb| order.is_done(crumb.stream, crumb.moment))
            {
                crumbs.pop_front();
            }
            crumbs.push_back(Crumb {
                value,
                clock,
                stream,
                moment,
            });
        }
    }

    /// Takes complete work from the queues.
    fn take_completed(&mut self, proof: Proof) {
        let (order, completed) = (&self.work.order, &mut self.completed);
        self.queues.retain(|&stream, queue| {
            while let Some(work) = queue.front()
                && order.is_done(stream, work.moment)
            {
                completed.insert(stream, (work.call, proof));
                queue.pop_front();
            }
            !queue.is_empty()
        });
    }

    /// Streams with work that may still run, by the call of the oldest.
    pub fn streams(&self) -> Vec<PendingStream<'_>> {
        let mut streams: Vec<PendingStream<'_>> = self
            .queues
            .iter()
            .filter(|(_, queue)| !queue.is_empty())
            .filter_map(|(&number, work)| {
                let name = self.names.get(&number)?;
                let crumbs = self.crumbs.values().flatten();
                let crumbs = crumbs.filter(|crumb| crumb.stream == number);
                let next = crumbs.map(|crumb| crumb.moment).min();
                let before = |next| work.iter().take_while(|work| work.moment <= next).count();
                let candidates = next.map_or(work.len(), before).max(1);
                Some(PendingStream {
                    number,
                    handle: name.handle,
                    context: name.context,
                    thread: name.thread,
                    work,
                    completed: self.completed.get(&number).copied(),
                    candidates,
                    has_next_breadcrumb: next.is_some(),
                })
            })
            .collect();
        streams.sort_by_key(|stream| stream.work.front().map(|work| work.call));
        streams
    }

    /// The streams that have to go on before this work of a stream can begin.
    pub fn before(&self, stream: u32, work: &QueuedWork) -> Vec<u32> {
        self.unfinished(&work.after, Some(stream))
    }

    /// The streams that have to go on before a call returns.
    pub fn awaited_by(&self, wait: &HostWait) -> Vec<u32> {
        match &wait.waits_for {
            Awaited::Nothing => Vec::new(),
            Awaited::Work(clock) => self.unfinished(clock, None),
            Awaited::Context(context) => {
                let pending = self.pending_streams();
                let order = &self.work.order;
                pending
                    .filter(|&(stream, _)| order.context_of(stream) == *context)
                    .map(|(stream, _)| stream)
                    .collect()
            }
        }
    }

    /// Streams and the first of their work that may still run.
    fn pending_streams(&self) -> impl Iterator<Item = (u32, &QueuedWork)> {
        let queues = self.queues.iter();
        queues.filter_map(|(&stream, queue)| Some((stream, queue.front()?)))
    }

    /// The streams that have work of a clock left, but for one.
    fn unfinished(&self, clock: &Clock, but: Option<u32>) -> Vec<u32> {
        let order = &self.work.order;
        let mut streams: Vec<u32> = self
            .pending_streams()
            .filter(|&(stream, work)| Some(stream) != but && order.has(clock, stream, work.moment))
            .map(|(stream, _)| stream)
            .collect();
        streams.sort_unstable();
        streams
    }

    /// The pending writes of values to an address: stream and call.
    pub fn writes_to(&self, address: u64) -> Vec<(u32, u64)> {
        let mut found = Vec::new();
        for (&stream, queue) in &self.queues {
            for work in queue {
                if let PendingKind::Values(_, writes) = &work.kind
                    && writes.iter().any(|(bytes, _)| bytes.contains(&address))
                {
                    found.push((stream, work.call));
                }
            }
        }
        found.sort_unstable();
        found
    }

    /// Calls that have not returned.
    pub fn in_flight(&self) -> &[HostWait] {
        &self.in_flight
    }

    /// The first call that returned an error of earlier work; later calls change nothing here.
    pub fn failure(&self) -> Option<StickyFailure> {
        self.failure
    }

    /// Whether host and device share the memory at an address, so that it can be read from outside.
    pub fn is_on_host(&self, address: u64) -> bool {
        self.work.state.host.live().find(address).is_some()
    }

    /// An executable graph.
    pub fn exec(&self, handle: u64) -> Option<&Exec> {
        self.work.state.graphs.exec(handle)
    }
}

#[cfg(test)]
mod tests;
