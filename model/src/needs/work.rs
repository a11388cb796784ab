//! What the work of calls reads and writes: at once, when a graph runs, or through a texture.

use std::ops::Range;

use cutape_format::layout::field;
use cutape_format::{Call, Snapshot};
use cutape_registry::{CopyOp, EventOp, Family, GraphOp, Kind, StreamOp};
use rustc_hash::FxHashSet;

use super::builder::{Attached, Capture, NeedsBuilder, ReadBytes};
use super::contents::{Access, Stream};
use super::last_waits::UNWAITED;
use super::operands::{Operands, Touch};
use super::table::Need;
use crate::effects::{Effect, Effects};
use crate::objects::ObjectId;
use crate::state::State;
use crate::words::words_of;

/// Longer payloads are not searched for addresses.
const SEARCHED: u64 = 1 << 20;
/// How many addresses that recorded bytes of an allocation hold are followed.
const FOLLOWED: usize = 1 << 14;

impl NeedsBuilder {
    /// The call was captured, or begins or ends the capture.
    pub(super) fn captured(
        &mut self,
        effects: &Effects,
        call: &Call<'_>,
        index: u32,
        id: u64,
        operands: &Operands,
    ) {
        match effects.function.family {
            Family::Stream(StreamOp::BeginCapture) => {
                let capture = Capture {
                    begun: index,
                    ..Capture::default()
                };
                self.captures.insert(id, capture);
            }
            Family::Stream(StreamOp::EndCapture) => {
                let Some(capture) = self.captures.remove(&id) else {
                    return;
                };
                self.need(index, capture.begun, Need::Existence);
                self.need(capture.begun, index, Need::Completion);
                for member in capture.members {
                    self.need(index, member, Need::Setting);
                    self.need(member, index, Need::Completion);
                }
                let graph = effects.at("phGraph").and_then(|at| call.out(at));
                if let Some(graph) = graph {
                    self.attach_to_made(index, (Kind::Graph, graph), capture.attached);
                }
            }
            _ => {
                let work = self.work_of(operands);
                let is_launch = matches!(
                    effects.function.family,
                    Family::Launch(_) | Family::HostFunction | Family::StreamCallback
                );
                if is_launch {
                    self.computes();
                }
                if effects.function.family == Family::Event(EventOp::Record) {
                    self.forget_record(effects, call);
                }
                if let Some(capture) = self.captures.get_mut(&id) {
                    let begun = capture.begun;
                    capture.members.push(index);
                    capture.attached.touches.extend(work.touches);
                    capture.attached.objects.extend(work.objects);
                    self.need(index, begun, Need::Existence);
                }
            }
        }
    }

    /// What the work of a call with these operands does.
    pub(super) fn work_of(&self, operands: &Operands) -> Attached {
        let mut work = Attached {
            touches: operands.touches.clone(),
            objects: Vec::new(),
        };
        for &word in &operands.words {
            if self.place_of(word).is_some() {
                work.touches.push(Touch::Any(word));
            }
            for kind in [Kind::TextureObject, Kind::SurfaceObject] {
                if self.state.objects.has_had(kind)
                    && let Some(id) = self.state.objects.live(kind, word)
                    && let Some(attached) = self.attached.get(&id)
                {
                    work.touches.extend(attached.touches.iter().cloned());
                    work.objects.extend(attached.objects.iter().copied());
                }
            }
        }
        work
    }

    /// What the work of a call reads and writes.
    pub(super) fn work(
        &mut self,
        effects: &Effects,
        call: &Call<'_>,
        index: u32,
        stream: Option<Stream>,
        operands: &Operands,
    ) {
        if let Some(stream) = stream
            && (effects.submits || effects.in_default_stream)
        {
            self.waits.submitted(index, stream);
        }
        let function = effects.function;
        match function.family {
            Family::Launch(_) | Family::HostFunction | Family::StreamCallback => {
                let mut work = self.work_of(operands);
                let function = operands.handles.iter().find_map(|&(kind, handle)| {
                    let is_code = matches!(kind, Kind::Function | Kind::Kernel);
                    is_code.then(|| self.state.objects.resolve(kind, handle).live())?
                });
                work.touches.extend(self.globals_of(function));
                self.computed(index, stream, &work);
            }
            Family::Graph(GraphOp::Launch) => {
                let exec = effects.handle_of(call, Kind::GraphExec);
                let exec = exec.and_then(|exec| self.state.objects.live(Kind::GraphExec, exec));
                let work = exec.and_then(|exec| self.attached.get(&exec).cloned());
                self.computed(index, stream, &work.unwrap_or_default());
            }
            Family::Graph(operation) => self.graph(operation, effects, (call, index), operands),
            Family::Copy(_) | Family::Memset | Family::StreamMemory(_) => {
                for touch in &operands.touches {
                    self.touch(index, stream, touch);
                }
            }
            _ => self.attach(effects, (call, index), operands),
        }
    }

    /// Variables of the module of a launched function: kernels use them without being given them.
    fn globals_of(&self, function: Option<ObjectId>) -> Vec<Touch> {
        let Some(function) = function.filter(|_| !self.globals.is_empty()) else {
            return Vec::new();
        };
        let owners = self.state.objects.ancestors(function);
        let variables = owners.filter_map(|owner| self.globals.get(&owner));
        variables
            .flatten()
            .map(|&address| Touch::Any(address))
            .collect()
    }

    /// A kernel, a graph or a function of the program runs.
    fn computed(&mut self, index: u32, stream: Option<Stream>, work: &Attached) {
        self.computes();
        if self.unwaited.len() < UNWAITED {
            self.unwaited.push(index);
        }
        for &object in &work.objects {
            self.use_object(index, object, true);
            self.changed(object, None, index);
        }
        // What the parameters lead to, and what recorded bytes there lead to.
        let mut seen: FxHashSet<ObjectId> = FxHashSet::default();
        let mut open: Vec<u64> = Vec::new();
        for touch in &work.touches {
            match touch {
                Touch::Any(address) => open.push(*address),
                Touch::Name(_) => {}
                other => self.touch(index, stream, other),
            }
        }
        while let Some(address) = open.pop() {
            let Some(place) = self.place_of(address) else {
                continue;
            };
            if !seen.insert(place) {
                continue;
            }
            self.use_object(index, place, true);
            self.touch(index, stream, &Touch::Any(address));
            let pointers = self.pointers.get(&place);
            open.extend(pointers.into_iter().flatten().copied());
        }
    }

    /// All bytes of the allocation at an address.
    pub(super) fn range_of(&self, address: u64) -> Option<Range<u64>> {
        let object = self.state.objects.get(self.place_of(address)?)?;
        let end = object.handle.saturating_add(object.size.max(1));
        Some(object.handle..end)
    }

    fn touch(&mut self, index: u32, stream: Option<Stream>, touch: &Touch) {
        let (range, reads, writes) = match touch {
            Touch::Read(range) => (Some(range.clone()), true, false),
            Touch::Write(range) => (Some(range.clone()), false, true),
            Touch::Any(address) => (self.range_of(*address), true, true),
            Touch::ReadAny(address) => (self.range_of(*address), true, false),
            Touch::Name(_) => return,
        };
        let Some(range) = range else { return };
        self.order_behind(index, &range, stream, writes);
        if reads {
            self.read_by_part(index, &range);
            for writer in self.contents.writers(&range) {
                self.need(index, writer.call, Need::Content);
            }
        }
        // Bytes of pageable memory are nobody's operands.
        if self.place_of(range.start).is_none() {
            return;
        }
        let access = Access {
            call: index,
            stream,
        };
        match writes {
            true => self.contents.write(&range, access),
            false => self.contents.read(&range, access),
        }
    }

    /// Remembers what a call of the part reads.
    fn read_by_part(&mut self, index: u32, range: &Range<u64>) {
        let Some(part) = self.part.as_ref().filter(|part| part.has(index)) else {
            return;
        };
        let start = part.start;
        let place = self.place_of(range.start);
        let object = place.and_then(|place| self.state.objects.get(place));
        // Memory of the part itself was not there.
        let Some(object) = object.filter(|object| object.created.index < u64::from(start)) else {
            return;
        };
        // Of variables the trace may not tell the size.
        let end = match object.size {
            0 => u64::MAX,
            size => object.handle.saturating_add(size),
        };
        let range = range.start..range.end.min(end);
        if let Some(part) = &mut self.part {
            part.read(index, &range, &self.contents);
        }
    }

    /// Work that a graph will do.
    fn graph(
        &mut self,
        operation: GraphOp,
        effects: &Effects,
        (call, index): (&Call<'_>, u32),
        operands: &Operands,
    ) {
        let handles = |kind| {
            let all = operands.handles.iter().filter(move |entry| entry.0 == kind);
            all.map(|entry| entry.1)
        };
        let live = |state: &State<()>, kind, handle| state.objects.live(kind, handle);
        let graphs: Vec<_> = handles(Kind::Graph)
            .filter_map(|graph| live(&self.state, Kind::Graph, graph))
            .collect();
        let exec = handles(Kind::GraphExec).next();
        let exec = exec.and_then(|exec| live(&self.state, Kind::GraphExec, exec));
        let first = graphs.first().copied();
        let of_first = || {
            let attached = first.and_then(|graph| self.attached.get(&graph));
            attached.cloned().unwrap_or_default()
        };
        let (target, work) = match operation {
            GraphOp::AddNode(_) => {
                let mut work = self.work_of(operands);
                for child in graphs.iter().skip(1) {
                    let child = self.attached.get(child).cloned().unwrap_or_default();
                    work.touches.extend(child.touches);
                    work.objects.extend(child.objects);
                }
                (first, work)
            }
            GraphOp::SetNode(_) => {
                let node = handles(Kind::GraphNode).next();
                let node = node.and_then(|node| live(&self.state, Kind::GraphNode, node));
                let graph = node.and_then(|node| self.state.objects.ancestors(node).next());
                (graph.or(first), self.work_of(operands))
            }
            GraphOp::SetExecNode(_) => (exec, self.work_of(operands)),
            GraphOp::Update => (exec, of_first()),
            GraphOp::Instantiate { .. } | GraphOp::Clone => {
                let work = of_first();
                let made = effects
                    .objects
                    .iter()
                    .find_map(|&(position, effect)| match effect {
                        Effect::Create(kind @ (Kind::Graph | Kind::GraphExec), _) => {
                            Some((kind, call.out(position)?))
                        }
                        _ => None,
                    });
                if let Some(made) = made {
                    self.attach_to_made(index, made, work);
                }
                return;
            }
            _ => return,
        };
        let Some(target) = target else { return };
        let attached = self.attached.entry(target).or_default();
        attached.touches.extend(work.touches);
        attached.objects.extend(work.objects);
        // Graphs may have thousands of nodes and few allocations.
        attached.touches.sort_unstable_by_key(Touch::address);
        attached.touches.dedup();
    }

    /// A texture or surface shows memory.
    fn attach(&mut self, effects: &Effects, (call, index): (&Call<'_>, u32), operands: &Operands) {
        for &(position, effect) in &effects.objects {
            let Effect::Create(kind @ (Kind::TextureObject | Kind::SurfaceObject), _) = effect
            else {
                continue;
            };
            let Some(made) = call.out(position) else {
                continue;
            };
            let arrays = operands.handles.iter();
            let arrays = arrays.filter_map(|&(kind, handle)| self.state.objects.live(kind, handle));
            let memory = operands.touches.iter();
            let attached = Attached {
                objects: arrays.collect(),
                touches: memory.map(|touch| Touch::Any(touch.address())).collect(),
            };
            self.attach_to_made(index, (kind, made), attached);
        }
    }

    /// The object that a call has made stands for work. It exists once the call has returned.
    fn attach_to_made(&mut self, call: u32, (kind, handle): (Kind, u64), attached: Attached) {
        let mut coming = self.state.coming();
        if coming.any(|created| created.index == u64::from(call)) {
            self.attached_by.insert(call, attached);
        } else if let Some(id) = self.state.objects.live(kind, handle) {
            self.attached.insert(id, attached);
        }
    }

    /// Remembers the addresses in bytes that are copied to a device.
    pub(super) fn keep_pointers(
        &mut self,
        effects: &Effects,
        call: &Call<'_>,
        operands: &Operands,
        read: &ReadBytes<'_>,
    ) {
        let Family::Copy(CopyOp::Linear(_) | CopyOp::Unified(_)) = effects.function.family else {
            return;
        };
        let (mut from, mut to) = (None, None);
        for touch in &operands.touches {
            match touch {
                Touch::Read(range) => from = self.place_of(range.start),
                Touch::Write(range) => to = self.place_of(range.start),
                _ => {}
            }
        }
        let Some(to) = to else { return };
        let mut found: Vec<u64> = Vec::new();
        for (position, _) in effects.function.params.iter().enumerate() {
            let snapshot = call.snapshot(position, field::POINTEE);
            let snapshot = snapshot.or_else(|| call.snapshot(position, field::HOST_BYTES));
            let length = |snapshot: &Snapshot<'_>| snapshot.bytes.length();
            let Some(snapshot) = snapshot
                .filter(|it| length(it).is_some_and(|length| (8..=SEARCHED).contains(&length)))
            else {
                continue;
            };
            let Some(bytes) = read(snapshot.bytes) else {
                continue;
            };
            let first = self.state.memory.live().iter().next();
            let last = self.state.memory.live().iter().next_back();
            let lowest = first.map_or(u64::MAX, |(range, _)| range.start);
            let highest = last.map_or(0, |(range, _)| range.end);
            let candidates = words_of(&bytes).filter(|word| (lowest..highest).contains(word));
            found.extend(candidates.filter(|&word| self.state.memory_at(word).is_some()));
        }
        let copied = from.and_then(|from| self.pointers.get(&from));
        found.extend(copied.into_iter().flatten().copied());
        if found.is_empty() {
            return;
        }
        let pointers = self.pointers.entry(to).or_default();
        let room = FOLLOWED.saturating_sub(pointers.len());
        pointers.extend(found.into_iter().take(room));
    }
}
