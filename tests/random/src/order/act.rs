//! What each operation does to the order, the objects and the memory.

use super::{
    Buffer, Checker, Graph, Mistake, Moment, Object, Stream, StreamKey, Task, digest, object,
    pattern,
};
use crate::program::{Action, Id, Memory, Node, Part, StreamKind, Work};

impl Checker {
    /// Applies an operation of a thread, which makes the call at a moment.
    pub(super) fn act(
        &mut self,
        thread: u8,
        called: Moment,
        action: &Action,
    ) -> Result<(), Mistake> {
        match *action {
            Action::Context {
                context, device, ..
            } => {
                Self::new_object(&self.contexts, context)?;
                self.touch(Object::Context(context), called, true)?;
                self.contexts.insert(context, device);
            }
            Action::EndContext { context } => self.end_context(called, context)?,
            Action::Stream {
                stream,
                context,
                kind,
            } => self.make_stream((thread, called), (stream, context), kind)?,
            Action::EndStream { stream } => {
                self.touch(Object::Stream(stream), called, true)?;
                let (ended, _) = object(self.streams.remove(&stream), Object::Stream(stream))?;
                if matches!(ended.kind, StreamKind::Legacy | StreamKind::PerThread) {
                    return Err(Mistake::Nonsense);
                }
            }
            Action::Event { event, context, .. } => {
                Self::new_object(&self.events, event)?;
                object(self.contexts.get(&context), Object::Context(context))?;
                self.touch(Object::Context(context), called, false)?;
                self.touch(Object::Event(event), called, true)?;
                self.events.insert(event, (context, None));
            }
            Action::EndEvent { event } => {
                self.touch(Object::Event(event), called, true)?;
                object(self.events.remove(&event), Object::Event(event))?;
            }
            Action::Allocate {
                buffer,
                context,
                memory,
                size,
                stream,
            } => self.allocate((thread, called), (buffer, context), memory, size, stream)?,
            Action::Free { buffer, stream } => self.free((thread, called), buffer, stream)?,
            Action::Fill { to, seed } => {
                if !self.memory(to)?.is_visible() {
                    return Err(Mistake::Nonsense);
                }
                self.touch(Object::Buffer(to.buffer), called, false)?;
                self.access(to, called, true)?;
                self.store(to, (0..to.length).map(|at| pattern(seed, at)));
            }
            Action::Read { from } => self.read((thread, called), from)?,
            Action::Work { ref work, site } => self.call_work(thread, called, work, site)?,
            Action::HostFill { stream, to, seed } => {
                self.host_fill((thread, called), stream, to, seed)?
            }
            Action::WriteValue {
                stream, to, value, ..
            } => self.write_value((thread, called), stream, to, value)?,
            Action::Poll { from, value } => self.poll((thread, called), from, value)?,
            Action::Record { event, stream } => {
                self.record_event((thread, called), event, stream)?
            }
            Action::Wait { stream, event } => self.wait_event((thread, called), stream, event)?,
            Action::SyncStream { stream } | Action::QueryStream { stream } => {
                self.sync_stream((thread, called), stream)?
            }
            Action::SyncEvent { event } | Action::QueryEvent { event } => {
                self.touch(Object::Event(event), called, false)?;
                let recorded = object(self.events.get(&event), Object::Event(event))?.1;
                let recorded = recorded.ok_or(Mistake::Nonsense)?;
                self.next_of(thread, &[recorded]);
            }
            Action::SyncContext { context } => self.sync_context((thread, called), context)?,
            Action::Graph {
                graph,
                context,
                is_captured,
                ref nodes,
                ..
            } => self.make_graph(called, (graph, context), is_captured, nodes)?,
            Action::EndGraph { graph } => {
                self.touch(Object::Graph(graph), called, true)?;
                object(self.graphs.remove(&graph), Object::Graph(graph))?;
            }
            Action::Launch { graph, stream } => self.launch((thread, called), graph, stream)?,
            Action::Post { flag } => {
                Self::new_object(&self.flags, flag)?;
                self.flags.insert(flag, called);
            }
            Action::Signal { stream, flag } => self.signal((thread, called), stream, flag)?,
            Action::Await { flag } => {
                let posted = object(self.flags.get(&flag).copied(), flag)?;
                self.next_of(thread, &[posted]);
            }
        }
        Ok(())
    }

    /// Ends a context that nothing uses any more.
    fn end_context(&mut self, called: Moment, context: Id) -> Result<(), Mistake> {
        self.touch(Object::Context(context), called, true)?;
        object(self.contexts.remove(&context), Object::Context(context))?;
        let mut tasks = self.tasks.iter().filter(|task| task.context == context);
        let is_idle = tasks.all(|task| self.is_before(task.done, called));
        let is_empty = !self.streams.values().any(|(stream, _)| {
            let is_own = matches!(stream.kind, StreamKind::Blocking | StreamKind::NonBlocking);
            stream.context == context && is_own
        }) && !self.events.values().any(|event| event.0 == context)
            && !self
                .buffers
                .values()
                .any(|buffer| buffer.context == context)
            && !self.graphs.values().any(|graph| graph.context == context);
        if !is_idle || !is_empty {
            return Err(Mistake::Nonsense);
        }
        self.streams
            .retain(|_, (stream, _)| stream.context != context);
        Ok(())
    }

    fn make_stream(
        &mut self,
        (thread, called): (u8, Moment),
        (stream, context): (Id, Id),
        kind: StreamKind,
    ) -> Result<(), Mistake> {
        Self::new_object(&self.streams, stream)?;
        object(self.contexts.get(&context), Object::Context(context))?;
        self.touch(Object::Context(context), called, false)?;
        self.touch(Object::Stream(stream), called, true)?;
        let made = Stream {
            context,
            kind,
            thread,
        };
        self.streams.insert(stream, (made, called));
        Ok(())
    }

    /// Memory of its own, or of a pool.
    fn allocate(
        &mut self,
        (thread, called): (u8, Moment),
        (buffer, context): (Id, Id),
        memory: Memory,
        size: u32,
        stream: Option<Id>,
    ) -> Result<(), Mistake> {
        Self::new_object(&self.buffers, buffer)?;
        object(self.contexts.get(&context), Object::Context(context))?;
        self.touch(Object::Context(context), called, false)?;
        self.touch(Object::Buffer(buffer), called, true)?;
        let made = Buffer {
            context,
            memory,
            accesses: Vec::new(),
            bytes: vec![None; size as usize],
        };
        self.buffers.insert(buffer, made);
        if (memory == Memory::Pool) != stream.is_some() {
            return Err(Mistake::Nonsense);
        }
        if let Some(stream) = stream {
            let place = self.stream(stream, thread, called)?;
            if place.0 != context {
                return Err(Mistake::Nonsense);
            }
            let done = self.enqueue(place, called, &[]);
            self.access(
                Part {
                    buffer,
                    offset: 0,
                    length: size,
                },
                done,
                true,
            )?;
        }
        Ok(())
    }

    /// Frees memory that no graph uses.
    fn free(
        &mut self,
        (thread, called): (u8, Moment),
        buffer: Id,
        stream: Option<Id>,
    ) -> Result<(), Mistake> {
        self.touch(Object::Buffer(buffer), called, true)?;
        let found = object(self.buffers.get(&buffer), Object::Buffer(buffer))?;
        let (context, length) = (found.context, found.bytes.len() as u32);
        if (found.memory == Memory::Pool) != stream.is_some() {
            return Err(Mistake::Nonsense);
        }
        self.touch(Object::Context(context), called, false)?;
        let done = match stream {
            None => called,
            Some(stream) => {
                let place = self.stream(stream, thread, called)?;
                if place.0 != context {
                    return Err(Mistake::Nonsense);
                }
                self.enqueue(place, called, &[])
            }
        };
        self.access(
            Part {
                buffer,
                offset: 0,
                length,
            },
            done,
            true,
        )?;
        self.buffers.remove(&buffer);
        let is_in = |work: &Work| match *work {
            Work::Memset { to, .. } => to.buffer == buffer,
            Work::Copy { to, from, .. } => to.buffer == buffer || from.buffer == buffer,
            Work::Mix { out, input, .. } => out.buffer == buffer || input.buffer == buffer,
        };
        let mut nodes = self.graphs.values().flat_map(|graph| &graph.nodes);
        if nodes.any(|node| is_in(&node.work)) {
            return Err(Mistake::Nonsense);
        }
        Ok(())
    }

    /// The CPU reads memory, or copies it from the device.
    fn read(&mut self, (thread, called): (u8, Moment), from: Part) -> Result<(), Mistake> {
        self.touch(Object::Buffer(from.buffer), called, false)?;
        let context = object(self.buffers.get(&from.buffer), from)?.context;
        if self.memory(from)?.is_visible() {
            self.access(from, called, false)?;
        } else {
            self.touch(Object::Context(context), called, false)?;
            let done = self.enqueue((context, StreamKey::Legacy(context)), called, &[]);
            self.access(from, done, false)?;
            self.next_of(thread, &[done]);
        }
        let bytes = self.bytes(from)?;
        if !self.memory(from)?.is_visible() {
            self.note_copy(None, &bytes);
        }
        let found = digest(&bytes);
        self.expected.reads.push((self.position, found));
        Ok(())
    }

    /// A host function in a stream writes to memory.
    fn host_fill(
        &mut self,
        (thread, called): (u8, Moment),
        stream: Id,
        to: Part,
        seed: u32,
    ) -> Result<(), Mistake> {
        if !self.memory(to)?.is_host() {
            return Err(Mistake::Nonsense);
        }
        self.touch(Object::Buffer(to.buffer), called, false)?;
        let place = self.stream(stream, thread, called)?;
        let done = self.enqueue(place, called, &[]);
        self.access(to, done, true)?;
        self.store(to, (0..to.length).map(|at| pattern(seed, at)));
        Ok(())
    }

    /// A stream writes a value.
    fn write_value(
        &mut self,
        (thread, called): (u8, Moment),
        stream: Id,
        to: Part,
        value: u32,
    ) -> Result<(), Mistake> {
        let memory = self.memory(to)?;
        let is_wrong = to.length != 4 || !to.offset.is_multiple_of(4);
        if is_wrong || matches!(memory, Memory::Pageable | Memory::Managed) {
            return Err(Mistake::Nonsense);
        }
        self.touch(Object::Buffer(to.buffer), called, false)?;
        let place = self.stream(stream, thread, called)?;
        let work = Work::Memset {
            to,
            width: 4,
            value,
        };
        self.check_context(&work, place.0)?;
        let done = self.enqueue(place, called, &[]);
        self.access(to, done, true)?;
        self.store(to, value.to_le_bytes());
        self.values.insert(value, (to, done));
        Ok(())
    }

    /// The CPU waits for a value that a stream writes.
    fn poll(
        &mut self,
        (thread, called): (u8, Moment),
        from: Part,
        value: u32,
    ) -> Result<(), Mistake> {
        let (to, done) = object(self.values.get(&value).copied(), from)?;
        if to != from || !self.memory(from)?.is_host() {
            return Err(Mistake::Nonsense);
        }
        self.touch(Object::Buffer(from.buffer), called, false)?;
        let polled = self.next_of(thread, &[done]);
        self.access(from, polled, false)?;
        if self.bytes(from)? != value.to_le_bytes() {
            return Err(Mistake::Nonsense);
        }
        Ok(())
    }

    /// Records an event in a stream.
    fn record_event(
        &mut self,
        (thread, called): (u8, Moment),
        event: Id,
        stream: Id,
    ) -> Result<(), Mistake> {
        self.touch(Object::Event(event), called, true)?;
        let place = self.stream(stream, thread, called)?;
        let done = self.record(place, called);
        let found = object(self.events.get_mut(&event), Object::Event(event))?;
        if found.0 != place.0 {
            return Err(Mistake::Nonsense);
        }
        found.1 = Some(done);
        Ok(())
    }

    /// A stream waits for an event.
    fn wait_event(
        &mut self,
        (thread, called): (u8, Moment),
        stream: Id,
        event: Id,
    ) -> Result<(), Mistake> {
        self.touch(Object::Event(event), called, false)?;
        let place = self.stream(stream, thread, called)?;
        let recorded = object(self.events.get(&event), Object::Event(event))?.1;
        // Waiting for an event that was never recorded is advised against.
        let recorded = recorded.ok_or(Mistake::Nonsense)?;
        // Whether it counts as work that comes after the legacy stream's is open.
        let own = self
            .tasks
            .iter()
            .filter(|task| task.stream == place.1 && self.is_before(task.enqueued, called));
        let mut after: Vec<Moment> = own.map(|task| task.done).collect();
        after.extend([called, recorded]);
        let done = self.add(&after);
        self.add_task(place, called, done);
        Ok(())
    }

    /// The CPU waits for a stream.
    fn sync_stream(&mut self, (thread, called): (u8, Moment), stream: Id) -> Result<(), Mistake> {
        let (context, key) = self.stream(stream, thread, called)?;
        let own = |task: &&Task| task.stream == key && self.is_before(task.enqueued, called);
        // Whether work of other streams counts that new work would come after is open.
        let waited = match self.is_lenient {
            true => self.earlier(context, key, called),
            false => self
                .tasks
                .iter()
                .filter(own)
                .map(|task| task.done)
                .collect(),
        };
        self.next_of(thread, &waited);
        Ok(())
    }

    /// The CPU waits for a context.
    fn sync_context(&mut self, (thread, called): (u8, Moment), context: Id) -> Result<(), Mistake> {
        self.touch(Object::Context(context), called, false)?;
        object(self.contexts.get(&context), Object::Context(context))?;
        let tasks = self
            .tasks
            .iter()
            .filter(|task| task.context == context && self.is_before(task.enqueued, called));
        let waited: Vec<Moment> = tasks.map(|task| task.done).collect();
        self.next_of(thread, &waited);
        Ok(())
    }

    /// Builds or captures a graph.
    fn make_graph(
        &mut self,
        called: Moment,
        (graph, context): (Id, Id),
        is_captured: bool,
        nodes: &[Node],
    ) -> Result<(), Mistake> {
        Self::new_object(&self.graphs, graph)?;
        object(self.contexts.get(&context), Object::Context(context))?;
        self.touch(Object::Context(context), called, false)?;
        self.touch(Object::Graph(graph), called, true)?;
        // A capture forbids calls that other threads make in the context.
        self.touch(Object::Context(context), called, is_captured)?;
        for (at, node) in nodes.iter().enumerate() {
            let is_forward = node.after.iter().any(|&before| usize::from(before) >= at);
            if is_forward {
                return Err(Mistake::Nonsense);
            }
            self.check_context(&node.work, context)?;
            let (one, other) = match node.work {
                Work::Memset { to, .. } => (to, to),
                Work::Copy { to, from, .. } => (to, from),
                Work::Mix { out, input, .. } => (out, input),
            };
            for part in [one, other] {
                self.touch(Object::Buffer(part.buffer), called, false)?;
                if !self.memory(part)?.is_known() {
                    return Err(Mistake::Nonsense);
                }
            }
        }
        let made = Graph {
            context,
            nodes: nodes.to_vec(),
            launches: Vec::new(),
        };
        self.graphs.insert(graph, made);
        Ok(())
    }

    /// Launches a graph.
    fn launch(
        &mut self,
        (thread, called): (u8, Moment),
        graph: Id,
        stream: Id,
    ) -> Result<(), Mistake> {
        // An executable graph may be launched by one thread at a time.
        self.touch(Object::Graph(graph), called, true)?;
        let place = self.stream(stream, thread, called)?;
        let found = object(self.graphs.get(&graph), Object::Graph(graph))?.clone();
        if found.context != place.0 {
            return Err(Mistake::Nonsense);
        }
        let mut first = self.earlier(place.0, place.1, called);
        first.push(called);
        let launches = found.launches.iter();
        first.extend(
            launches
                .filter(|one| self.is_before(one.0, called))
                .map(|one| one.1),
        );
        let mut ends = Vec::new();
        for node in &found.nodes {
            let mut after = first.clone();
            after.extend(node.after.iter().map(|&before| ends[usize::from(before)]));
            let done = self.add(&after);
            self.work(&node.work, called, done)?;
            ends.push(done);
        }
        ends.extend(first);
        let end = self.add(&ends);
        self.add_task(place, called, end);
        if let Some(graph) = self.graphs.get_mut(&graph) {
            graph.launches.push((called, end));
        }
        Ok(())
    }

    /// A host function sets a flag.
    fn signal(
        &mut self,
        (thread, called): (u8, Moment),
        stream: Id,
        flag: u8,
    ) -> Result<(), Mistake> {
        Self::new_object(&self.flags, flag)?;
        let place = self.stream(stream, thread, called)?;
        let done = self.enqueue(place, called, &[]);
        // The function may run before the call has returned.
        let returned = self.next_of(thread, &[]);
        self.touch(Object::Stream(stream), returned, false)?;
        self.touch(Object::Context(place.0), returned, false)?;
        self.flags.insert(flag, done);
        Ok(())
    }
}
