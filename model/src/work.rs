//! What calls do to the order of work: streams, events, captures, waits.

use cutape_format::Call;
use cutape_registry::{
    CopyOp, Family, GraphOp, ImplicitWait, Kind, MemoryType, STREAM_LEGACY, STREAM_PER_THREAD,
    StreamMemoryOp, Waits, canonical_stream, function, keeps_capturing,
};

use crate::captures::Capture;
use crate::copied::{described_host_target, waits_for_default, was_complete};
use crate::effects::{Action, Effect, Effects};
use crate::graphs::{GraphAction, GraphWait, Work, captured_work, node_arrays};
use crate::needs::Operands;
use crate::objects::{NewObject, Origin};
use crate::order::{StreamKey, StreamKind};
use crate::state::{Data, EVENT_EXTERNAL, LastStreams, State, StreamQuestion};
use crate::stream_values::may_wait;

impl<X> State<X> {
    /// The number of the stream that a call's work is ordered on.
    pub fn call_stream(&mut self, effects: &Effects, call: &Call<'_>) -> Option<u32> {
        let handle = match effects.stream(call) {
            Some(handle) => handle,
            None if effects.in_default_stream => 0,
            None => return None,
        };
        Some(self.stream(call.thread, handle, effects.function.per_thread))
    }

    /// Whether a call's work becomes part of a graph that is being captured.
    pub(crate) fn is_captured(&mut self, effects: &Effects, call: &Call<'_>) -> bool {
        if self.captures.is_empty() {
            return false;
        }
        let stream = self.call_stream(effects, call);
        stream.is_some_and(|stream| self.captures.of(stream).is_some())
    }

    /// The number of the stream that a handle means in a thread.
    pub fn stream(&mut self, thread: u32, handle: u64, per_thread: bool) -> u32 {
        let versions = [Kind::Stream, Kind::Context].map(|kind| self.objects.version(kind));
        // What `stream_key` looks at.
        let question = StreamQuestion {
            handle,
            per_thread,
            current: self.contexts.current(thread).handle,
            version: versions.iter().sum(),
        };
        let place = question.place();
        let last = self.streams.get(thread as usize).and_then(Option::as_ref);
        if let Some(&Some((known, stream))) = last.and_then(|last| last.get(place))
            && known == question
        {
            return stream;
        }
        let (key, context, kind) = self.stream_key(thread, handle, per_thread);
        let stream = self.order.stream(key, context, kind);
        if let Some(last) = self.streams.get_mut(thread as usize) {
            let last: &mut LastStreams = last.get_or_insert_default();
            if let Some(last) = last.get_mut(place) {
                *last = Some((question, stream));
            }
        }
        stream
    }

    /// The stream that a handle means in a thread; also its context's handle, and its kind.
    pub(crate) fn stream_key(
        &self,
        thread: u32,
        handle: u64,
        per_thread: bool,
    ) -> (StreamKey, u64, StreamKind) {
        let current = self.contexts.current(thread).handle;
        match canonical_stream(handle, per_thread) {
            STREAM_LEGACY => return ((STREAM_LEGACY, current), current, StreamKind::Legacy),
            STREAM_PER_THREAD => {
                let key = (STREAM_PER_THREAD | u64::from(thread) << 8, current);
                return (key, current, StreamKind::Blocking);
            }
            _ => {}
        }
        let live = self.objects.live(Kind::Stream, handle);
        let Some((id, stream)) = live.and_then(|id| Some((id, self.objects.get(id)?))) else {
            return ((handle, 0), current, StreamKind::Unknown);
        };
        let kind = match &stream.data {
            _ if stream.origin != Origin::Created => StreamKind::Unknown,
            Data::Stream(stream) if stream.non_blocking => StreamKind::NonBlocking,
            _ => StreamKind::Blocking,
        };
        let key = (handle, u64::from(stream.generation));
        (key, self.context_handle(id), kind)
    }

    /// Enqueues a successful call's work; returns the numbers of the stream and of the work. Before
    /// [`State::apply`].
    #[inline]
    pub fn submit(&mut self, effects: &Effects, call: &Call<'_>) -> Option<(u32, u64)> {
        if !self.captures.is_empty() {
            self.capture(effects, call);
        }
        if effects.submits {
            self.submit_work(effects, call)
        } else {
            None
        }
    }

    /// Adds a successful call to the capture that its stream takes part in.
    #[cold]
    fn capture(&mut self, effects: &Effects, call: &Call<'_>) {
        if !effects.submits {
            return;
        }
        let Some(stream) = self.call_stream(effects, call) else {
            return;
        };
        // Its node gets a handle that no call shows.
        self.objects.note_unobserved(Kind::GraphNode, call.index);
        if self.captures.of(stream).is_none() {
            return;
        }
        let (work, site) = (captured_work(effects, call), effects.site(call));
        if let Work::Allocation { address, size } = work {
            self.graphs.allocates(address, size, site);
        }
        self.captures.add(stream, work, site);
    }

    /// Applies what a successful call does to graphs.
    pub(crate) fn apply_to_graphs(&mut self, effects: &Effects, call: &Call<'_>) {
        let named = effects
            .stream(call)
            .or_else(|| effects.handle_of(call, Kind::Stream));
        let stream =
            named.map(|handle| self.stream(call.thread, handle, effects.function.per_thread));
        match effects.graph {
            GraphAction::EndCapture => {
                let ended = stream.and_then(|stream| self.captures.end(stream));
                let graph = effects.at("phGraph").and_then(|at| call.out(at));
                if let (Some(capture), Some(graph)) = (ended, graph.filter(|&graph| graph != 0)) {
                    self.graphs.captured(graph, capture.target, capture.graph);
                }
            }
            GraphAction::SetCaptureDependencies => {
                // The capture has edges that no call shows.
                if let Some(capture) = stream.and_then(|stream| self.captures.of_mut(stream)) {
                    capture.graph.whole = false;
                }
            }
            // What is freed in a stream that captures is a node.
            GraphAction::Free
                if stream.is_some_and(|stream| self.captures.of(stream).is_some()) => {}
            _ => {
                self.graphs.apply(effects, call);
                if effects.graph.has_unseen_nodes() || effects.at("childGraph").is_some() {
                    for kind in [Kind::Graph, Kind::GraphNode] {
                        self.objects.note_unobserved(kind, call.index);
                    }
                }
            }
        }
    }

    /// A stream waits for what a graph that is launched in it may wait for: its last launch, for no two
    /// run at once (manual, cuGraphLaunch), and what its nodes wait for.
    pub fn wait_for_graph(&mut self, exec: u64, stream: u32) {
        if let Some(graph) = self.objects.live(Kind::GraphExec, exec)
            && let Some(earlier) = self.last_launches.get(&graph)
        {
            self.order.wait(stream, earlier);
        }
        match self.graphs.exec(exec).map(|exec| exec.effects().waits_for) {
            Some(GraphWait::Nothing) => {}
            Some(GraphWait::Unknown) => self.order.wait_for_unknown(stream),
            _ => {
                let everything = self.order.everything();
                self.order.wait(stream, &everything);
            }
        }
    }

    fn submit_work(&mut self, effects: &Effects, call: &Call<'_>) -> Option<(u32, u64)> {
        let stream = self.call_stream(effects, call)?;
        if !self.captures.is_empty() && self.captures.of(stream).is_some() {
            return None;
        }
        let graph = match effects.action {
            Action::GraphLaunch => effects.handle_of(call, Kind::GraphExec),
            _ => None,
        };
        if let Some(handle) = graph {
            self.wait_for_graph(handle, stream);
        }
        let signals = self.signals_host(effects, call);
        let work = self.order.submit(stream)?;
        if let Some(graph) = graph
            && let Some(graph) = self.objects.live(Kind::GraphExec, graph)
        {
            let clock = self.order.clock(stream);
            self.last_launches.insert(graph, clock);
        }
        if signals {
            let clock = self.order.clock(stream);
            self.order.complete(&clock);
        }
        match effects.action {
            Action::HostFunction => return None,
            Action::UnknownWait if may_wait(effects.function, call) => {
                self.order.wait_for_unknown(stream);
            }
            Action::None
                if was_complete(effects.function, call) || self.writes_pageable(effects, call) =>
            {
                self.order.complete_stream(stream);
            }
            _ => {}
        }
        Some((stream, work))
    }

    /// Whether an asynchronous copy writes memory of the host that is not page-locked, as far as
    /// calls show: it is complete when the call returns (manual, API synchronization behavior).
    fn writes_pageable(&self, effects: &Effects, call: &Call<'_>) -> bool {
        let target = match effects.function.family {
            Family::Copy(CopyOp::Linear(at) | CopyOp::Unified(at))
                if matches!(at.to, MemoryType::Host | MemoryType::Unified) =>
            {
                call.argument(usize::from(at.target))
            }
            _ => match described_host_target(effects.function, call) {
                Some(target) => target,
                None => return false,
            },
        };
        self.place_at(target).is_none()
    }

    /// Whether work may tell the program that it, and all work before it, is complete: a function
    /// of the program, or a value in memory of the host, which the program may poll. Whether it did
    /// is not recorded.
    fn signals_host(&self, effects: &Effects, call: &Call<'_>) -> bool {
        match effects.function.family {
            Family::HostFunction | Family::StreamCallback => true,
            Family::StreamMemory(StreamMemoryOp::Write | StreamMemoryOp::Batch) => {
                let operands = Operands::of(effects.function, call);
                let mut touches = operands.touches().iter();
                // Memory that is not known may be of the host, under another address.
                touches.any(|touch| {
                    let address = touch.address();
                    self.shared_around(address).is_some() || self.place_at(address).is_none()
                })
            }
            Family::Graph(GraphOp::Launch) => {
                let exec = self.graphs.exec(call.argument(0));
                exec.is_none_or(|exec| exec.effects().signals_host)
            }
            _ => false,
        }
    }

    /// Enqueues what a successful call without a stream does in the default stream, and may not
    /// have done when it returns: memsets, copies on the device, and copies from pageable memory,
    /// which it may only have read (API synchronization behavior). After [`State::apply`].
    pub fn submit_in_default(&mut self, effects: &Effects, call: &Call<'_>) -> Option<(u32, u64)> {
        let stream = self.stream(call.thread, 0, effects.function.per_thread);
        if self.captures.of(stream).is_some() {
            return None;
        }
        Some((stream, self.order.submit(stream)?))
    }

    /// A call has failed.
    pub fn apply_failed(&mut self, effects: &Effects, call: &Call<'_>) {
        if effects.action == Action::EndCapture
            && !call.result().is_some_and(keeps_capturing)
            && let Some(stream) = self.call_stream(effects, call)
        {
            self.captures.end(stream);
        }
        if effects.graph != GraphAction::None {
            self.graphs.failed(effects, call);
        }
    }

    /// Records of events, waits of streams for them, and captures.
    pub(crate) fn order_events(&mut self, effects: &Effects, call: &Call<'_>) {
        match effects.action {
            Action::BeginCapture => {
                let mode = effects.at("mode").map_or(0, |at| call.argument(at)) as u32;
                let context = self.contexts.current(call.thread).handle;
                if let Some(stream) = self.call_stream(effects, call) {
                    let mut capture = Capture::new(stream, effects.site(call), mode, context);
                    capture.target = effects.handle_of(call, Kind::Graph).unwrap_or(0);
                    // It may begin behind nodes of the graph that it adds to.
                    capture.graph.whole = node_arrays(effects).all(|at| call.argument(at) == 0);
                    self.captures.begin(capture);
                }
                return;
            }
            Action::WaitEvent | Action::EventRecord => {}
            Action::OtherEvent => {
                self.records_elsewhere = true;
                let everything = self.order.everything();
                for position in 0..effects.function.params.len() {
                    if effects.kind_at(position) == Some(Kind::Event)
                        && let Some(event) = self.objects.live(Kind::Event, call.argument(position))
                        && let Some(Data::Event(event)) =
                            self.objects.get_mut(event).map(|object| &mut object.data)
                    {
                        event.unobserved = true;
                        event.before.clone_from(&everything);
                    }
                }
                if effects.position_of(Kind::Context).is_some() {
                    // A wait of a whole context; it may wait for all work.
                    let current = self.contexts.current(call.thread).handle;
                    let named = effects.handle_of(call, Kind::Context);
                    self.order.complete_context(named.unwrap_or(current));
                }
                return;
            }
            _ => return,
        }
        let Some(event) = effects.handle_of(call, Kind::Event) else {
            return;
        };
        let site = effects.site(call);
        let Some(stream) = self.call_stream(effects, call) else {
            return;
        };
        let flags = ["flags", "Flags"].iter().find_map(|name| effects.at(name));
        let is_external = flags.is_some_and(|at| call.argument(at) & EVENT_EXTERNAL != 0)
            && self.captures.of(stream).is_some();
        self.records_elsewhere |= is_external;
        let live = self.objects.live(Kind::Event, event);
        let object = live.and_then(|id| self.objects.get_mut(id));
        let Some(Data::Event(event)) = object.map(|object| &mut object.data) else {
            // An event whose creation was not seen may stand for anything.
            if effects.action == Action::WaitEvent {
                self.order.wait_for_unknown(stream);
                if let Some(capture) = self.captures.of_mut(stream) {
                    capture.graph.whole = false;
                }
            }
            return;
        };
        if is_external {
            // A node of the graph records the event, or waits for it.
            event.unobserved = true;
            self.captures.add(stream, Work::Event, site);
            return;
        }
        if effects.action == Action::EventRecord {
            event.captured = self.captures.record(stream);
            event.record = Some(site);
            if event.captured.is_none() {
                event.before = self.order.clock(stream);
                self.order.recorded(stream);
            }
            return;
        }
        match &event.captured {
            Some(captured) => self.captures.wait(stream, captured, site),
            None if event.unobserved || event.record.is_none() && self.records_elsewhere => {
                self.order.wait_for_unknown(stream);
            }
            None => self.order.wait(stream, &event.before),
        }
        if event.record.is_none() && !event.unobserved && event.early_wait.is_none() {
            event.early_wait = Some(site);
        } else if event.record.is_some() {
            event.waited = true;
        }
    }

    /// What a successful return proves complete.
    pub(crate) fn complete(&mut self, effects: &Effects, call: &Call<'_>) {
        let current = self.contexts.current(call.thread).handle;
        let per_thread = effects.function.per_thread;
        match effects.function.waits {
            Waits::No => {}
            Waits::Context => {
                let named = effects.handle_of(call, Kind::Context);
                let context = named.filter(|&handle| handle != 0).unwrap_or(current);
                self.order.complete_context(context);
            }
            Waits::Stream(position) => {
                let handle = call.argument(usize::from(position));
                let stream = self.stream(call.thread, handle, per_thread);
                self.order.complete_stream(stream);
            }
            Waits::Event(position) => self.complete_event(call.argument(usize::from(position))),
        }
        match effects.action {
            Action::EventElapsed => {
                for position in 0..effects.function.params.len() {
                    if effects.kind_at(position) == Some(Kind::Event) {
                        self.complete_event(call.argument(position));
                    }
                }
            }
            Action::SynchronousCopy => self.complete_default(effects, call),
            _ if waits_for_default(effects.function, call, self)
                || effects.function.is_memset_without_stream()
                    && self.shared_around(call.argument(0)).is_some() =>
            {
                self.complete_default(effects, call);
            }
            Action::HostRegister => {
                let size = effects.size_of(call, Kind::Registration);
                let handle = call.argument(0);
                let parent = self.contexts.current(call.thread).object;
                let site = effects.site(call);
                let new = NewObject {
                    context: parent,
                    ..NewObject::of(Kind::Registration, handle, Origin::Created, site, call)
                };
                self.create_sized(new, size);
            }
            _ => {}
        }
    }

    /// A successful call has waited for the default stream of its thread.
    pub fn complete_default(&mut self, effects: &Effects, call: &Call<'_>) {
        // Also what the default stream's next work comes after: what blocking streams have waited for.
        let stream = self.stream(call.thread, 0, effects.function.per_thread);
        self.order.complete_stream(stream);
        if !effects.function.per_thread {
            let current = self.contexts.current(call.thread).handle;
            self.order.complete_blocking(current);
        }
    }

    /// The context whose work a successful call has waited for though it is no wait; also where that
    /// is uncertain, and 0 if the context is not known. Before the call ends objects.
    pub(crate) fn waits_implicitly(&self, effects: &Effects, call: &Call<'_>) -> Option<u64> {
        let implicit = effects.function.implicit_wait;
        if implicit == ImplicitWait::No {
            return None;
        }
        let current = self.contexts.current(call.thread).handle;
        let destroyed = effects.objects.iter().find_map(|&(position, effect)| {
            let Effect::Destroy(kind) = effect else {
                return None;
            };
            Some(self.objects.live(kind, call.argument(position)))
        });
        let object = destroyed.flatten();
        let owner = match destroyed {
            Some(_) => object.map_or(0, |id| self.context_handle(id)),
            None => current,
        };
        match implicit {
            ImplicitWait::No => None,
            ImplicitWait::Context => Some(owner),
            ImplicitWait::ContextUnlessPool => {
                let memory = object.and_then(|id| self.objects.get(id));
                let created = memory.and_then(|memory| function(memory.created.function));
                created
                    .is_none_or(|created| created.stream.is_none())
                    .then_some(owner)
            }
            ImplicitWait::ContextIfLoaded => object
                .is_none_or(|id| self.objects.children(id).next().is_some())
                .then_some(current),
        }
    }

    fn complete_event(&mut self, handle: u64) {
        if let Some(id) = self.objects.live(Kind::Event, handle)
            && let Some(Data::Event(event)) =
                self.objects.get_mut(id).map(|object| &mut object.data)
            && event.captured.is_none()
        {
            event.waited |= event.record.is_some();
            // A launch of a graph may have recorded it again, or another process.
            let everything = event.unobserved.then(|| self.order.everything());
            self.order
                .complete(everything.as_ref().unwrap_or(&event.before));
        }
    }
}
