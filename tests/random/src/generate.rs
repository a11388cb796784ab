//! Makes correct programs: random operations, of which those stay that [`Checker`] accepts.

use std::collections::BTreeMap;

use crate::dice::Dice;
use crate::order::Checker;
use crate::program::{
    Action, CopyForm, Id, Memory, Node, Operation, Part, Program, Site, StreamKind, Work,
};

/// How large programs become.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Operations between the creation of the objects and the end.
    pub operations: usize,
    /// Most threads.
    pub threads: u8,
    /// Devices.
    pub devices: u8,
    /// The CPU also learns without a call that work is complete.
    pub waits_silently: bool,
}

impl Size {
    /// The size that a seed stands for.
    pub fn of_seed(seed: u64, devices: u8) -> Self {
        let mut dice = Dice::new(seed ^ 0x5153_e5ed);
        Self {
            operations: 10 + dice.below(50),
            threads: [1, 1, 1, 2, 2, 3][dice.below(6)],
            devices: if dice.one_in(3) { devices } else { 1 },
            // By sixteens, so that not every batch of programs has some.
            waits_silently: seed / 16 % 4 == 1,
        }
    }
}

/// The program of a seed.
pub fn generate(seed: u64, size: Size) -> Program {
    let mut maker = Maker {
        dice: Dice::new(seed),
        checker: Checker::default(),
        program: Program::default(),
        threads: size.threads.max(1),
        waits_silently: size.waits_silently,
        contexts: Vec::new(),
        streams: BTreeMap::new(),
        events: BTreeMap::new(),
        buffers: BTreeMap::new(),
        graphs: BTreeMap::new(),
        next: [0; 4],
    };
    maker.make_objects(size);
    let mut tries = size.operations * 20;
    let end = maker.program.operations.len() + size.operations;
    while maker.program.operations.len() < end && tries > 0 {
        tries -= 1;
        maker.step();
    }
    maker.finish();
    maker.program
}

/// Most objects of a kind over the whole program; the interpreter's tables have 64.
const MOST: Id = 60;

struct Maker {
    dice: Dice,
    checker: Checker,
    program: Program,
    threads: u8,
    waits_silently: bool,
    contexts: Vec<Id>,
    /// Context, kind and thread.
    streams: BTreeMap<Id, (Id, StreamKind, u8)>,
    events: BTreeMap<Id, Id>,
    buffers: BTreeMap<Id, (Id, Memory, u32)>,
    graphs: BTreeMap<Id, Id>,
    /// The next stream, event, buffer, graph.
    next: [Id; 4],
}

impl Maker {
    /// Adds an operation if the program stays correct.
    fn try_add(&mut self, thread: u8, action: Action) -> bool {
        let operation = Operation { thread, action };
        let mut checker = self.checker.clone();
        if checker.apply(&operation).is_err() {
            return false;
        }
        self.checker = checker;
        self.program.operations.push(operation);
        true
    }

    fn new_id(&mut self, kind: usize) -> Option<Id> {
        let id = self.next[kind];
        self.next[kind] += 1;
        (id < MOST).then_some(id)
    }

    fn make_objects(&mut self, size: Size) {
        for device in 0..size.devices {
            self.make_context(device, false);
        }
        if self.dice.one_in(4) {
            let device = self.dice.below(usize::from(size.devices)) as u8;
            self.make_context(device, true);
        }
        for context in self.contexts.clone() {
            for _ in 0..1 + self.dice.below(3) {
                self.make_stream(0, context);
            }
            for _ in 0..1 + self.dice.below(2) {
                self.make_event(0, context);
            }
            for _ in 0..2 + self.dice.below(4) {
                self.make_buffer(0, context);
            }
        }
        // The per-thread streams of one context are as many streams as threads.
        let common = match self.threads > 1 && self.dice.one_in(2) {
            true => Some(self.dice.pick(&self.contexts)),
            false => None,
        };
        for thread in 0..self.threads {
            if thread > 0 {
                self.try_add(0, Action::Post { flag: thread });
                self.try_add(thread, Action::Await { flag: thread });
            }
            if let Some(context) = common {
                self.add_stream(thread, context, StreamKind::PerThread);
            } else if thread > 0 {
                let context = self.dice.pick(&self.contexts);
                self.make_stream(thread, context);
            }
        }
    }

    fn make_context(&mut self, device: u8, is_created: bool) {
        let context = self.contexts.len() as Id;
        if self.try_add(
            0,
            Action::Context {
                context,
                device,
                is_created,
            },
        ) {
            self.contexts.push(context);
        }
    }

    fn make_stream(&mut self, thread: u8, context: Id) {
        use StreamKind::{Blocking, Legacy, NonBlocking, PerThread};
        let kinds = [
            Blocking,
            Blocking,
            NonBlocking,
            NonBlocking,
            Legacy,
            PerThread,
        ];
        let kind = self.dice.pick(&kinds);
        self.add_stream(thread, context, kind);
    }

    fn add_stream(&mut self, thread: u8, context: Id, kind: StreamKind) {
        let Some(stream) = self.new_id(0) else { return };
        if self.try_add(
            thread,
            Action::Stream {
                stream,
                context,
                kind,
            },
        ) {
            self.streams.insert(stream, (context, kind, thread));
        }
    }

    fn make_event(&mut self, thread: u8, context: Id) {
        const DISABLE_TIMING: u8 = 2;
        let flags = if self.dice.one_in(2) {
            DISABLE_TIMING
        } else {
            0
        };
        let Some(event) = self.new_id(1) else { return };
        if self.try_add(
            thread,
            Action::Event {
                event,
                context,
                flags,
            },
        ) {
            self.events.insert(event, context);
        }
    }

    /// Allocates memory and writes all of it.
    fn make_buffer(&mut self, thread: u8, context: Id) {
        use Memory::{Device, Managed, Pageable, Pinned, Pool, Registered};
        let kinds = [
            Device, Device, Device, Pinned, Pinned, Pinned, Pool, Pageable, Registered, Managed,
        ];
        let memory = self.dice.pick(&kinds);
        let size = 64 << self.dice.below(5);
        let stream = match memory {
            Pool => match self.stream_of(context) {
                Some(stream) => Some(stream),
                None => return,
            },
            _ => None,
        };
        let Some(buffer) = self.new_id(2) else { return };
        let made = Action::Allocate {
            buffer,
            context,
            memory,
            size,
            stream,
        };
        if !self.try_add(thread, made) {
            return;
        }
        self.buffers.insert(buffer, (context, memory, size));
        let to = Part {
            buffer,
            offset: 0,
            length: size,
        };
        let seed = self.dice.next_number() as u32;
        let site = match stream {
            Some(stream) => Site::Stream(stream),
            None => self.site(context),
        };
        let first = match memory.is_visible() {
            true => Action::Fill { to, seed },
            false => Action::Work {
                work: Work::Memset {
                    to,
                    width: 4,
                    value: seed,
                },
                site,
            },
        };
        self.try_add(thread, first);
    }

    /// A stream of a context.
    fn stream_of(&mut self, context: Id) -> Option<Id> {
        let streams = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.0 == context);
        let streams: Vec<Id> = streams.map(|(&id, _)| id).collect();
        (!streams.is_empty()).then(|| self.dice.pick(&streams))
    }

    fn site(&mut self, context: Id) -> Site {
        match self.stream_of(context) {
            Some(stream) if !self.dice.one_in(6) => Site::Stream(stream),
            _ => Site::Context(context),
        }
    }

    fn any<T>(dice: &mut Dice, map: &BTreeMap<Id, T>) -> Option<Id> {
        let ids: Vec<Id> = map.keys().copied().collect();
        (!ids.is_empty()).then(|| dice.pick(&ids))
    }

    /// A buffer that may be used in a context.
    fn buffer_of(&mut self, context: Id, wanted: impl Fn(Memory) -> bool) -> Option<Id> {
        let fits = |buffer: &(Id, Memory, u32)| {
            wanted(buffer.1) && (buffer.0 == context || buffer.1.is_host())
        };
        let found = self.buffers.iter().filter(|(_, buffer)| fits(buffer));
        let found: Vec<Id> = found.map(|(&id, _)| id).collect();
        (!found.is_empty()).then(|| self.dice.pick(&found))
    }

    /// A part of a buffer: all, a half, or a quarter of it.
    fn part(&mut self, buffer: Id, length: Option<u32>) -> Part {
        let size = self.buffers[&buffer].2;
        let wanted = match self.dice.below(4) {
            0 | 1 => size,
            2 => size / 2,
            _ => size / 4,
        };
        let length = length.unwrap_or(wanted).min(size);
        let steps = (size - length) / 16 + 1;
        let offset = self.dice.below(steps as usize) as u32 * 16;
        Part {
            buffer,
            offset,
            length,
        }
    }

    fn work(&mut self, context: Id, is_in_graph: bool) -> Option<Work> {
        let seed = self.dice.next_number() as u32;
        Some(match self.dice.below(3) {
            0 => {
                let to = self.buffer_of(context, Memory::is_known)?;
                let width = self.dice.pick(&[1, 2, 4, 4]);
                Work::Memset {
                    to: self.part(to, None),
                    width,
                    value: seed & (u32::MAX >> (32 - 8 * u32::from(width))),
                }
            }
            1 => {
                let is_fit = |memory: Memory| memory.is_known() || !is_in_graph;
                let to = self.buffer_of(context, is_fit)?;
                let from = self.buffer_of(context, is_fit)?;
                let (to_size, from_size) = (self.buffers[&to].2, self.buffers[&from].2);
                let to = self.part(to, Some(to_size.min(from_size)));
                let from = self.part(from, Some(to.length));
                use CopyForm::{Batch, OfKinds, Rows, Unified};
                let form = match is_in_graph {
                    true => self.dice.pick(&[OfKinds, Unified, Rows]),
                    false => self
                        .dice
                        .pick(&[OfKinds, OfKinds, OfKinds, Unified, Unified, Rows, Batch]),
                };
                Work::Copy { to, from, form }
            }
            _ => {
                let out = self.buffer_of(context, Memory::is_known)?;
                let input = self.buffer_of(context, Memory::is_known)?;
                let size = self.buffers[&out].2.min(self.buffers[&input].2);
                let out = self.part(out, Some(size));
                let input = self.part(input, Some(size));
                Work::Mix { out, input, seed }
            }
        })
    }

    fn graph(&mut self, context: Id) -> Option<Action> {
        let graph = self.new_id(3)?;
        let mut nodes: Vec<Node> = Vec::new();
        for at in 0..1 + self.dice.below(4) {
            let mut after: Vec<u8> = (0..at as u8).filter(|_| self.dice.one_in(2)).collect();
            if after.is_empty() && at > 0 && self.dice.one_in(2) {
                after.push(at as u8 - 1);
            }
            let work = self.work(context, true)?;
            nodes.push(Node { after, work });
        }
        let is_captured = self.dice.one_in(2);
        Some(Action::Graph {
            graph,
            context,
            is_captured,
            nodes,
        })
    }

    /// Tries one more operation.
    fn step(&mut self) {
        let thread = self.dice.below(usize::from(self.threads)) as u8;
        let context = self.dice.pick(&self.contexts);
        if let Some(action) = self.action(thread, context) {
            self.try_add_and_note(thread, action);
        }
    }

    fn try_add_and_note(&mut self, thread: u8, action: Action) {
        if !self.try_add(thread, action.clone()) {
            return;
        }
        match action {
            Action::EndStream { stream } => drop(self.streams.remove(&stream)),
            Action::EndEvent { event } => drop(self.events.remove(&event)),
            Action::Free { buffer, .. } => drop(self.buffers.remove(&buffer)),
            Action::Graph { graph, context, .. } => drop(self.graphs.insert(graph, context)),
            Action::EndGraph { graph } => drop(self.graphs.remove(&graph)),
            _ => {}
        }
    }

    fn action(&mut self, thread: u8, context: Id) -> Option<Action> {
        let seed = self.dice.next_number() as u32;
        Some(match self.dice.below(100) {
            0..34 => self.work_at_site(context)?,
            34..42 => {
                let to = self.buffer_of(context, Memory::is_visible)?;
                Action::Fill {
                    to: self.part(to, None),
                    seed,
                }
            }
            42..48 => {
                let from = Self::any(&mut self.dice, &self.buffers)?;
                Action::Read {
                    from: self.part(from, None),
                }
            }
            48..51 => {
                // What a host function writes to memory that the device reaches before the program
                // waits is not recorded (docs/replay.md).
                let to = self.buffer_of(context, |memory| memory == Memory::Pageable)?;
                let stream = self.stream_of(context)?;
                Action::HostFill {
                    stream,
                    to: self.part(to, None),
                    seed,
                }
            }
            51..54 => self.write_value(thread, context, seed)?,
            54..60 => {
                let event = Self::any(&mut self.dice, &self.events)?;
                let stream = self.stream_of(self.events[&event])?;
                Action::Record { event, stream }
            }
            60..66 => {
                if self.dice.one_in(3) {
                    self.wait_through_another(thread, context)?;
                    return None;
                }
                let event = Self::any(&mut self.dice, &self.events)?;
                let stream = Self::any(&mut self.dice, &self.streams)?;
                Action::Wait { stream, event }
            }
            66..71 => Action::SyncStream {
                stream: Self::any(&mut self.dice, &self.streams)?,
            },
            71..75 => Action::SyncEvent {
                event: Self::any(&mut self.dice, &self.events)?,
            },
            75..77 => Action::SyncContext { context },
            77..79 => Action::QueryStream {
                stream: Self::any(&mut self.dice, &self.streams)?,
            },
            79..81 => Action::QueryEvent {
                event: Self::any(&mut self.dice, &self.events)?,
            },
            81..84 => self.graph(context)?,
            84..90 => {
                let graph = Self::any(&mut self.dice, &self.graphs)?;
                let stream = self.stream_of(self.graphs[&graph])?;
                let launch = Action::Launch { graph, stream };
                if !self.dice.one_in(3) {
                    return Some(launch);
                }
                self.launch_and_reset(thread, stream, launch)?;
                return None;
            }
            90 => Action::EndGraph {
                graph: Self::any(&mut self.dice, &self.graphs)?,
            },
            91 => {
                self.make_buffer(thread, context);
                return None;
            }
            92..94 => self.free()?,
            94 => {
                self.make_stream(thread, context);
                return None;
            }
            95 => Action::EndStream {
                stream: Self::any(&mut self.dice, &self.streams)?,
            },
            96 => {
                self.make_event(thread, context);
                return None;
            }
            97 => Action::EndEvent {
                event: Self::any(&mut self.dice, &self.events)?,
            },
            _ => {
                self.post_and_await(thread, context);
                return None;
            }
        })
    }

    fn work_at_site(&mut self, context: Id) -> Option<Action> {
        let work = self.work(context, false)?;
        let site = match work {
            Work::Mix { .. } => Site::Stream(self.stream_of(context)?),
            Work::Memset { .. } | Work::Copy { .. } => self.site(context),
        };
        Some(Action::Work { work, site })
    }

    fn free(&mut self) -> Option<Action> {
        let buffer = Self::any(&mut self.dice, &self.buffers)?;
        let (context, memory, _) = self.buffers[&buffer];
        let stream = match memory {
            Memory::Pool => Some(self.stream_of(context)?),
            _ => None,
        };
        Some(Action::Free { buffer, stream })
    }

    /// A value that a stream writes; or a wait for it, without a call.
    fn write_value(&mut self, thread: u8, context: Id, seed: u32) -> Option<Action> {
        let to = self.buffer_of(context, |memory| {
            memory.is_known() && !matches!(memory, Memory::Managed | Memory::Pool)
        })?;
        let stream = self.stream_of(context)?;
        let to = self.part(to, Some(4));
        let write = Action::WriteValue {
            stream,
            to,
            value: seed,
            is_batched: self.dice.one_in(3),
        };
        if !self.waits_silently || !self.try_add(thread, write.clone()) {
            return Some(write);
        }
        Some(Action::Poll {
            from: to,
            value: seed,
        })
    }

    /// One thread waits for another.
    fn post_and_await(&mut self, thread: u8, context: Id) -> Option<()> {
        let flag = 40 + self.next[3];
        let other = self.dice.below(usize::from(self.threads)) as u8;
        let signal = match self.waits_silently && self.dice.one_in(2) {
            true => Some(self.stream_of(context)?),
            false => None,
        };
        let post = match signal {
            Some(stream) => Action::Signal { stream, flag },
            None => Action::Post { flag },
        };
        let is_wait = other != thread || signal.is_some();
        if !is_wait || flag >= 63 {
            return None;
        }
        // Work of another stream relies on the signal.
        let filled = signal.and_then(|stream| self.fill_on_device(thread, stream, None));
        if self.try_add(thread, post) {
            self.next[3] += 1;
            self.try_add(other, Action::Await { flag });
            let stream = self.stream_of(context)?;
            if filled.is_some() && self.fill_on_device(other, stream, filled).is_some() {
                self.try_add(other, Action::SyncStream { stream });
            }
        }
        Some(())
    }

    /// Work of a stream, and of another that comes after it through a third one.
    fn wait_through_another(&mut self, thread: u8, context: Id) -> Option<()> {
        let [first, between, last] = [(); 3].map(|()| self.stream_of(context));
        let (first, between, last) = (first?, between?, last?);
        let events = self.events.iter().filter(|(_, of)| **of == context);
        let events: Vec<Id> = events.map(|(&id, _)| id).collect();
        if events.is_empty() {
            return None;
        }
        let filled = self.fill_on_device(thread, first, None)?;
        for (from, to) in [(first, between), (between, last)] {
            let event = self.dice.pick(&events);
            let (record, wait) = (
                Action::Record {
                    event,
                    stream: from,
                },
                Action::Wait { stream: to, event },
            );
            if !self.try_add(thread, record) || !self.try_add(thread, wait) {
                return None;
            }
        }
        self.fill_on_device(thread, last, Some(filled)).map(drop)
    }

    /// Launches a graph, and resets memory that it may write to what it held before, for a kernel.
    fn launch_and_reset(&mut self, thread: u8, stream: Id, launch: Action) -> Option<()> {
        let context = self.streams.get(&stream)?.0;
        let is_shared = |memory: Memory| memory.is_known() && memory.is_visible();
        let buffer = self.buffer_of(context, is_shared)?;
        let out = self.buffer_of(context, Memory::is_device)?;
        let (size, out_size) = (self.buffers[&buffer].2, self.buffers[&out].2);
        let seed = self.dice.next_number() as u32;
        let whole = Part {
            buffer,
            offset: 0,
            length: size,
        };
        let fill = Action::Fill { to: whole, seed };
        let length = Some(size.min(out_size));
        let work = Work::Mix {
            out: self.part(out, length),
            input: self.part(buffer, length),
            seed,
        };
        let site = Site::Stream(stream);
        let actions = [
            fill.clone(),
            launch,
            Action::SyncStream { stream },
            fill,
            Action::Work { work, site },
        ];
        let mut actions = actions.into_iter();
        actions
            .all(|action| self.try_add(thread, action))
            .then_some(())
    }

    /// Fills memory of the device in a stream: this part, or any. Returns the part.
    fn fill_on_device(&mut self, thread: u8, stream: Id, part: Option<Part>) -> Option<Part> {
        let context = self.streams.get(&stream)?.0;
        let to = match part {
            Some(part) => part,
            None => {
                let buffer = self.buffer_of(context, Memory::is_device)?;
                self.part(buffer, None)
            }
        };
        let work = Work::Memset {
            to,
            width: 4,
            value: self.dice.next_number() as u32,
        };
        let site = Site::Stream(stream);
        self.try_add(thread, Action::Work { work, site })
            .then_some(to)
    }

    /// Waits for everything, reads all memory, and ends what is left.
    fn finish(&mut self) {
        for thread in 1..self.threads {
            let flag = 10 + thread;
            self.try_add(thread, Action::Post { flag });
            self.try_add(0, Action::Await { flag });
        }
        for context in self.contexts.clone() {
            self.try_add(0, Action::SyncContext { context });
        }
        // Threads live until then: on a GPU, a wait for a context did not return after a thread that
        // had ended before the work of its per-thread default stream
        // (tests/gpu/results/2026-11-26-h200-580.159.04-thread-exit.txt).
        for thread in 1..self.threads {
            let flag = 20 + thread;
            self.try_add(0, Action::Post { flag });
            self.try_add(thread, Action::Await { flag });
        }
        for (buffer, (_, _, size)) in self.buffers.clone() {
            let from = Part {
                buffer,
                offset: 0,
                length: size,
            };
            self.try_add(0, Action::Read { from });
        }
        for graph in self.graphs.clone().into_keys() {
            self.try_add(0, Action::EndGraph { graph });
        }
        for (buffer, (context, memory, _)) in self.buffers.clone() {
            let stream = match memory {
                Memory::Pool => self.pool_stream(context),
                _ => None,
            };
            self.try_add(0, Action::Free { buffer, stream });
        }
        for event in self.events.clone().into_keys() {
            self.try_add(0, Action::EndEvent { event });
        }
        for (stream, (_, kind, _)) in self.streams.clone() {
            if matches!(kind, StreamKind::Blocking | StreamKind::NonBlocking) {
                self.try_add(0, Action::EndStream { stream });
            }
        }
        for context in self.contexts.clone() {
            self.try_add(0, Action::SyncContext { context });
            self.try_add(0, Action::EndContext { context });
        }
    }

    /// A stream of a context that thread 0 may use; a new one if there is none.
    fn pool_stream(&mut self, context: Id) -> Option<Id> {
        let found = self.streams.iter().find(|(_, stream)| {
            stream.0 == context && (stream.1 != StreamKind::PerThread || stream.2 == 0)
        });
        if let Some((&stream, _)) = found {
            return Some(stream);
        }
        let stream = 62;
        let kind = StreamKind::Legacy;
        self.try_add(
            0,
            Action::Stream {
                stream,
                context,
                kind,
            },
        )
        .then_some(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::expected;

    #[test]
    fn programs_are_correct_and_end_what_they_begin() {
        for seed in 0..300 {
            let program = generate(seed, Size::of_seed(seed, 2));
            let result = expected(&program).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            assert!(!result.reads.is_empty(), "seed {seed}");
            let count = |wanted: fn(&Action) -> bool| {
                let actions = program.operations.iter().map(|operation| &operation.action);
                actions.filter(|action| wanted(action)).count()
            };
            let made = count(|action| matches!(action, Action::Context { .. }));
            let ended = count(|action| matches!(action, Action::EndContext { .. }));
            assert_eq!(made, ended, "seed {seed}");
            let made = count(|action| matches!(action, Action::Allocate { .. }));
            let ended = count(|action| matches!(action, Action::Free { .. }));
            assert_eq!(made, ended, "seed {seed}");
            assert_eq!(program, generate(seed, Size::of_seed(seed, 2)));
        }
    }
}
