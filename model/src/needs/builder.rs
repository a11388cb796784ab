//! Finds out what calls need, in one pass over them: the operands of calls and what created them.

use std::borrow::Cow;
use std::rc::Rc;

use cutape_format::{Bytes, Call, Note};
use cutape_registry::{
    ContextOp, EventOp, Family, GraphOp, Kind, MemoryOp, PrimaryOp, Role, VirtualMemoryOp,
    is_default_stream, is_sticky,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::contents::Contents;
use super::operands::{Operands, Touch};
use super::reads::{MemoryReads, PartCalls};
use super::table::{Need, Needs};
use crate::effects::{Effect, Effects};
use crate::memory::IntervalMap;
use crate::objects::{Lookup, ObjectId, Retention};
use crate::state::State;
use crate::trace_state::function_of;

/// cuda.h: CUDA_ERROR_OUT_OF_MEMORY.
const OUT_OF_MEMORY: i32 = 2;
/// How many launches are remembered that no wait has followed yet.
pub(super) const UNWAITED: usize = 1 << 12;

/// Reads the bytes of a snapshot, wherever they are.
pub type ReadBytes<'a> = dyn Fn(Bytes<'_>) -> Option<Cow<'a, [u8]>> + 'a;

/// Work that an object stands for: nodes of a graph, or the memory that a texture shows.
#[derive(Clone, Debug, Default)]
pub(super) struct Attached {
    pub(super) touches: Vec<Touch>,
    pub(super) objects: Vec<ObjectId>,
}

/// A capture in progress.
#[derive(Debug, Default)]
pub(super) struct Capture {
    pub(super) begun: u32,
    pub(super) members: Vec<u32>,
    pub(super) attached: Attached,
}

/// Work of a stream that may not be complete.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// The stream waits for the default stream, and that for it.
    pub(super) is_blocking: bool,
    pub(super) calls: Vec<u32>,
}

/// Which calls were the last to wait, in order to name those that order work.
#[derive(Debug, Default)]
pub(super) struct LastWaits {
    pub(super) context: Option<u32>,
    pub(super) event: Option<u32>,
    /// By stream: host waits for it, and its own waits for events.
    pub(super) host: FxHashMap<u32, u32>,
    pub(super) streams: FxHashMap<u32, u32>,
    /// The last call whose work was in a default stream.
    pub(super) default: Option<u32>,
}

/// Finds out what calls need.
#[derive(Debug)]
pub struct NeedsBuilder {
    pub(super) state: State<()>,
    pub(super) effects: Vec<Option<Option<Rc<Effects>>>>,
    pub(super) found: Vec<(u32, u32, Need)>,
    pub(super) computes: Vec<bool>,
    pub(super) host: FxHashMap<(u32, u64), u32>,
    /// By call, the stream of its work; `u32::MAX` for none.
    pub(super) streams: Vec<u32>,
    pub(super) initialised: Option<u32>,
    /// The last call that changed an object.
    pub(super) changed: FxHashMap<ObjectId, u32>,
    /// The last call that changed how a device is used.
    pub(super) devices: FxHashMap<i32, u32>,
    pub(super) retained: FxHashMap<i32, Vec<u32>>,
    pub(super) contents: Contents,
    /// Addresses in recorded bytes of an allocation.
    pub(super) pointers: FxHashMap<ObjectId, FxHashSet<u64>>,
    pub(super) attached: FxHashMap<ObjectId, Attached>,
    /// Addresses of variables, by what they belong to.
    pub(super) globals: FxHashMap<ObjectId, Vec<u64>>,
    pub(super) captures: FxHashMap<u64, Capture>,
    pub(super) waits: LastWaits,
    /// Linked cubins, which module loads take from the link state.
    pub(super) cubins: IntervalMap<u32>,
    /// Owners of functions that no recorded call returned.
    pub(super) origins: FxHashMap<u64, (Kind, u64)>,
    /// The last calls that returned a value of a type that only the driver makes.
    pub(super) tokens: FxHashMap<&'static str, u32>,
    /// The calls that returned strings of the driver.
    pub(super) strings: FxHashMap<u64, u32>,
    /// The last call of each kind that failed to make an object.
    pub(super) not_made: FxHashMap<Kind, u32>,
    /// By stream: calls whose work no wait has proved complete yet.
    pub(super) pending: FxHashMap<u32, Pending>,
    pub(super) unwaited: Vec<u32>,
    pub(super) poisoned: Option<u32>,
    /// Calls that name a context before a call creates it: the runtime gets primary contexts from a
    /// private table, makes them current, and then retains them.
    unreturned: FxHashMap<u64, Vec<u32>>,
    /// Calls that began and ended captures.
    pub(super) captured: Vec<(u32, u32)>,
    /// The part whose reads are wanted.
    pub(super) part: Option<PartCalls>,
    /// A call, and addresses that it uses besides its operands.
    also_used: (u64, Vec<u64>),
    /// Notes have said what memory holds.
    has_noted_memory: bool,
}

impl Default for NeedsBuilder {
    fn default() -> Self {
        Self {
            state: State::new(Retention::PerHandle),
            effects: Vec::new(),
            found: Vec::new(),
            computes: Vec::new(),
            host: FxHashMap::default(),
            streams: Vec::new(),
            initialised: None,
            changed: FxHashMap::default(),
            devices: FxHashMap::default(),
            retained: FxHashMap::default(),
            contents: Contents::default(),
            pointers: FxHashMap::default(),
            attached: FxHashMap::default(),
            globals: FxHashMap::default(),
            captures: FxHashMap::default(),
            waits: LastWaits::default(),
            cubins: IntervalMap::default(),
            origins: FxHashMap::default(),
            tokens: FxHashMap::default(),
            strings: FxHashMap::default(),
            not_made: FxHashMap::default(),
            pending: FxHashMap::default(),
            unwaited: Vec::new(),
            poisoned: None,
            unreturned: FxHashMap::default(),
            captured: Vec::new(),
            part: None,
            also_used: Default::default(),
            has_noted_memory: false,
        }
    }
}

impl NeedsBuilder {
    /// Finds out, too, what the part that begins with the call `start` reads of memory that earlier
    /// calls have written. `kept` says by index which calls are in the part. Memory at the addresses
    /// in `also_used` counts as used by the call there.
    pub fn of_part(start: u64, kept: &[bool], also_used: (u64, Vec<u64>)) -> Self {
        Self {
            part: Some(PartCalls::new(start, kept)),
            also_used,
            ..Self::default()
        }
    }

    /// Takes the next call; expects every call, in order.
    pub fn push(&mut self, call: &Call<'_>, read: &ReadBytes<'_>) {
        self.computes.push(false);
        self.streams.push(u32::MAX);
        let index = call.index as u32;
        if call.has_notes() {
            self.note(call, index);
        }
        if self.part.as_ref().is_some_and(|part| part.start == index) {
            self.begin_part();
        }
        if self.also_used.0 == call.index {
            for address in std::mem::take(&mut self.also_used.1) {
                self.use_address(index, address);
            }
        }
        let Some(effects) = self.effects_of(call) else {
            return;
        };
        let operands = Operands::of(effects.function, call);
        self.environment(&effects, call, index);
        // A call that ends an object, or records an event anew, does not need what changed it.
        let changes = !matches!(
            effects.function.family,
            Family::Event(EventOp::Record) | Family::Graph(GraphOp::DestroyExec)
        ) && !effects
            .objects
            .iter()
            .any(|(_, effect)| matches!(effect, Effect::Destroy(_)));
        for &(kind, handle) in &operands.handles {
            self.use_handle(index, kind, handle, changes);
        }
        for touch in &operands.touches {
            self.use_address(index, touch.address());
        }
        for &word in &operands.words {
            self.use_word(index, word);
        }
        self.use_cubin(&effects, call, index);
        match call.result() {
            Some(0) => self.succeeded(&effects, call, index, &operands, read),
            Some(result) => self.failed(&effects, call, index, result),
            None => {}
        }
    }

    /// The needs of all calls.
    pub fn finish(self) -> Needs {
        self.finish_with_reads().0
    }

    /// The needs of all calls, and what the part reads of memory that earlier calls have written.
    pub fn finish_with_reads(mut self) -> (Needs, MemoryReads) {
        let open = self
            .captures
            .values()
            .map(|capture| (capture.begun, u32::MAX));
        self.captured.extend(open);
        self.captured.sort_unstable();
        let count = self.computes.len();
        let needs = Needs::new(count, self.found, self.computes, self.host, self.captured);
        (needs, self.part.unwrap_or_default().finish())
    }

    fn begin_part(&mut self) {
        // Texture references show memory that no parameter names.
        let is_unknown = self.state.objects.has_had(Kind::TextureReference);
        let has_computed = self.has_noted_memory || self.computes.contains(&true);
        if let Some(part) = &mut self.part {
            part.has_computed = has_computed;
            part.is_unknown = is_unknown;
        }
    }

    fn effects_of(&mut self, call: &Call<'_>) -> Option<Rc<Effects>> {
        let place = usize::from(call.signature.id);
        if self.effects.len() <= place {
            self.effects.resize(place + 1, None);
        }
        let known = self.effects.get_mut(place)?;
        let resolve = || Some(Rc::new(Effects::of(function_of(call.signature)?)));
        known.get_or_insert_with(resolve).clone()
    }

    pub(super) fn need(&mut self, call: u32, needed: u32, need: Need) {
        if call != needed {
            self.found.push((call, needed, need));
        }
    }

    pub(super) fn need_any(&mut self, call: u32, needed: Option<u32>, need: Need) {
        if let Some(needed) = needed {
            self.need(call, needed, need);
        }
    }

    fn note(&mut self, call: &Call<'_>, index: u32) {
        for note in call.notes() {
            let address = match note {
                Note::HostChanged(note, snapshot) => {
                    // What the note says need not be computed again.
                    let length = snapshot.bytes.length().unwrap_or(0);
                    let end = note.address.saturating_add(length);
                    self.contents.forget(&(note.address..end));
                    note.address
                }
                Note::HostSkipped(note) => note.address,
                Note::Memory(note, ..) if note.owner == 0 => {
                    let end = note.address.saturating_add(note.length);
                    self.contents.forget(&(note.address..end));
                    self.has_noted_memory = true;
                    note.address
                }
                Note::Memory(note, ..) => {
                    let kind = match note.is_library {
                        0 => Kind::Module,
                        _ => Kind::Library,
                    };
                    let owner = self.state.objects.live(kind, note.owner);
                    if let Some(owner) = owner.and_then(|owner| self.state.objects.get(owner)) {
                        let loaded = owner.created.index as u32;
                        self.host.insert((index, note.owner), loaded);
                    }
                    continue;
                }
                Note::Origin(note, _) => {
                    let kind = match note.is_kernel {
                        0 => Kind::Module,
                        _ => Kind::Library,
                    };
                    self.origins.insert(note.handle, (kind, note.owner));
                    continue;
                }
                _ => continue,
            };
            let place = self.place_of(address);
            let place = place.and_then(|place| self.state.objects.get(place));
            if let Some(object) = place {
                let creator = object.created.index as u32;
                self.host.insert((index, address), creator);
            }
        }
    }

    /// What nearly every call needs: the driver initialised, and its thread's context.
    fn environment(&mut self, effects: &Effects, call: &Call<'_>, index: u32) {
        match effects.function.family {
            Family::Init | Family::ProcAddress { .. } | Family::DriverVersion => return,
            _ => self.need_any(index, self.initialised, Need::Existence),
        }
        for (position, param) in effects.function.params.iter().enumerate() {
            if param.role == Role::Use(Kind::Device) {
                let device = call.argument(position) as i32;
                self.need_any(index, self.devices.get(&device).copied(), Need::Setting);
            }
        }
        let family = effects.function.family;
        if matches!(
            family,
            Family::Device(_)
                | Family::PrimaryContext(_)
                | Family::ExportTable
                | Family::Context(ContextOp::Create | ContextOp::Push | ContextOp::Set)
        ) {
            return;
        }
        let set_by = self.state.contexts.stacks.set_by(call.thread);
        self.need_any(index, set_by.map(|call| call as u32), Need::Existence);
        if let Some(context) = self.state.contexts.current(call.thread).object {
            self.use_object(index, context, true);
        }
    }

    /// The call uses an object, and if `changes` is true what calls have changed of it.
    pub(super) fn use_object(&mut self, call: u32, id: ObjectId, changes: bool) {
        let Some(object) = self.state.objects.get(id) else {
            return;
        };
        let creator = object.created.index as u32;
        self.need(call, creator, Need::Existence);
        if changes && !self.changed.is_empty() {
            let own = self.changed.get(&id).copied();
            let owners = self.state.objects.ancestors(id);
            let of_owners = owners.filter_map(|owner| self.changed.get(&owner).copied());
            let changed: Vec<u32> = own.into_iter().chain(of_owners).collect();
            for changed in changed {
                self.need(call, changed, Need::Setting);
            }
        }
        if let Some(end) = self.state.objects.end_of(id) {
            self.need(call, end.site.index as u32, Need::Setting);
        }
    }

    fn use_handle(&mut self, call: u32, kind: Kind, handle: u64, changes: bool) {
        if kind == Kind::Stream && is_default_stream(handle) {
            return;
        }
        if let Some(id) = self.state.objects.resolve(kind, handle).known() {
            return self.use_object(call, id, changes);
        }
        if let Some(&(kind, owner)) = self.origins.get(&handle)
            && let Lookup::Live(owner) = self.state.objects.find(kind, owner)
        {
            return self.use_object(call, owner, changes);
        }
        if kind == Kind::Context && handle != 0 {
            self.unreturned.entry(handle).or_default().push(call);
        }
        // What a failed call left in its output, or an address of another kind of memory.
        self.need_any(call, self.not_made.get(&kind).copied(), Need::Setting);
        if kind.is_address() {
            self.use_address(call, handle);
        }
    }

    pub(super) fn place_of(&self, address: u64) -> Option<ObjectId> {
        let reserved = || {
            let (range, _) = self.state.virtual_memory.reservations.find(address)?;
            self.state.objects.live(Kind::Reservation, range.start)
        };
        self.state.place_at(address).or_else(reserved)
    }

    fn use_address(&mut self, call: u32, address: u64) {
        let place = self.place_of(address);
        if let Some(id) = place.or_else(|| self.state.freed_at(address)) {
            self.use_object(call, id, true);
        }
    }

    /// A word in kernel parameters may be an address, a texture, or neither.
    fn use_word(&mut self, call: u32, word: u64) {
        self.use_address(call, word);
        for kind in [Kind::TextureObject, Kind::SurfaceObject] {
            if self.state.objects.has_had(kind)
                && let Some(id) = self.state.objects.find(kind, word).known()
            {
                self.use_object(call, id, true);
                let attached = self.attached.get(&id).cloned().unwrap_or_default();
                for object in attached.objects {
                    self.use_object(call, object, true);
                }
            }
        }
    }

    /// A module may be loaded from memory of a link state.
    fn use_cubin(&mut self, effects: &Effects, call: &Call<'_>, index: u32) {
        let (Family::ModuleLoad(load) | Family::LibraryLoad(load)) = effects.function.family else {
            return;
        };
        let address = call.argument(usize::from(load.source.position()));
        let linked = self.cubins.find(address).map(|(_, &linked)| linked);
        self.need_any(index, linked, Need::Setting);
    }

    fn failed(&mut self, effects: &Effects, call: &Call<'_>, index: u32, result: i32) {
        for &(_, effect) in &effects.objects {
            if let Effect::Create(kind, _) | Effect::Find(kind, _) = effect {
                self.not_made.insert(kind, index);
            }
        }
        if result == OUT_OF_MEMORY {
            let live = self.state.objects.all_live(Kind::Memory);
            for id in live {
                self.use_object(index, id, false);
            }
        }
        if is_sticky(result) {
            match self.poisoned {
                Some(first) => self.need(index, first, Need::Setting),
                None => {
                    for launch in std::mem::take(&mut self.unwaited) {
                        self.need(index, launch, Need::Setting);
                    }
                    self.poisoned = Some(call.index as u32);
                }
            }
        }
    }

    fn succeeded(
        &mut self,
        effects: &Effects,
        call: &Call<'_>,
        index: u32,
        operands: &Operands,
        read: &ReadBytes<'_>,
    ) {
        let stream = self.state.call_stream(effects, call);
        let capture = stream.and_then(|stream| Some(self.state.captures.of(stream)?.id));
        self.take_and_give(effects, call, index);
        self.before(effects, call, index);
        self.state.apply(effects, call, &mut |_| None);
        self.follow_contexts(effects, call, index);
        self.follow_objects(index);
        self.change(effects, call, index, operands);
        let capture = capture.or_else(|| {
            // An event of a capture makes the stream take part.
            Some(self.state.captures.of(stream?)?.id)
        });
        match capture {
            Some(capture) => self.captured(effects, call, index, capture, operands),
            None => {
                self.work(effects, call, index, stream, operands);
                self.keep_pointers(effects, call, operands, read);
            }
        }
        self.follow_waits(effects, call, index, stream);
    }

    /// Values that only the driver makes, and that calls get back.
    fn take_and_give(&mut self, effects: &Effects, call: &Call<'_>, index: u32) {
        for (position, param) in effects.function.params.iter().enumerate() {
            match param.role {
                Role::OutString => {
                    let text = call.out(position);
                    text.and_then(|text| self.strings.insert(text, index));
                }
                Role::String => {
                    let from = self.strings.get(&call.argument(position));
                    self.need_any(index, from.copied(), Need::Setting);
                }
                _ => {}
            }
            let name = param.c_type.trim_start_matches("const ");
            let name = name.trim_end_matches([' ', '*']);
            let is_token = |entry: &&cutape_registry::Struct| entry.token;
            let Some(token) = cutape_registry::structure(name).filter(is_token) else {
                continue;
            };
            self.need_any(index, self.tokens.get(token.name).copied(), Need::Existence);
            if matches!(param.role, Role::Out(_) | Role::InOut(_)) {
                self.tokens.insert(token.name, call.index as u32);
            }
        }
    }

    /// What is known only before the call is applied.
    fn before(&mut self, effects: &Effects, call: &Call<'_>, index: u32) {
        match effects.function.family {
            Family::Init => _ = self.initialised.get_or_insert(index),
            Family::Context(operation @ (ContextOp::Pop | ContextOp::Set)) => {
                let stacks = &self.state.contexts.stacks;
                let is_replaced = stacks.current(call.thread).handle != call.argument(0);
                let pushed = stacks.pushed_by(call.thread).map(|call| call as u32);
                match pushed {
                    Some(pushed) if operation == ContextOp::Pop => {
                        self.need(index, pushed, Need::Existence);
                        self.need(pushed, index, Need::Completion);
                    }
                    Some(pushed) if is_replaced => self.need(index, pushed, Need::Existence),
                    _ => {}
                }
            }
            Family::PrimaryContext(PrimaryOp::Retain) => {
                let device = effects.at("dev").map_or(0, |at| call.argument(at)) as i32;
                self.need_any(index, self.devices.get(&device).copied(), Need::Setting);
                self.retained.entry(device).or_default().push(index);
            }
            Family::PrimaryContext(PrimaryOp::Release) => {
                let device = call.argument(0) as i32;
                let retained = self.retained.get_mut(&device).and_then(Vec::pop);
                if let Some(retained) = retained {
                    self.need(index, retained, Need::Existence);
                    self.need(retained, index, Need::Completion);
                }
            }
            Family::Memory(MemoryOp::FreeAsync) => {
                let range = self.range_of(call.argument(0));
                if let (Some(range), Some(stream)) = (range, self.state.call_stream(effects, call))
                {
                    self.order_behind(index, &range, Some(stream));
                }
            }
            Family::VirtualMemory(VirtualMemoryOp::Unmap { address, size }) => {
                let [start, size] = [address, size].map(|at| call.argument(usize::from(at)));
                let unmapped = start..start.saturating_add(size);
                let mappings = self.state.virtual_memory.mappings.pieces(&unmapped);
                let mapped = mappings.map(|(_, mapping)| mapping.site.index as u32);
                self.found
                    .extend(mapped.map(|call| (call, index, Need::Completion)));
            }
            _ => {}
        }
    }

    /// Calls that name a context before another one creates it need that one.
    fn follow_contexts(&mut self, effects: &Effects, call: &Call<'_>, index: u32) {
        let creates = matches!(
            effects.function.family,
            Family::PrimaryContext(PrimaryOp::Retain) | Family::Context(ContextOp::Create)
        );
        for &(position, effect) in &effects.objects {
            let (Effect::Find(Kind::Context, _) | Effect::Create(Kind::Context, _)) = effect else {
                continue;
            };
            let Some(handle) = call.out(position) else {
                continue;
            };
            let context = self.state.objects.live(Kind::Context, handle);
            let context = context.and_then(|context| self.state.objects.get(context));
            if creates {
                let named = self.unreturned.remove(&handle);
                let named = named.unwrap_or_default().into_iter();
                self.found
                    .extend(named.map(|call| (call, index, Need::Existence)));
            } else if context.is_some_and(|context| context.created.index == call.index) {
                self.unreturned.entry(handle).or_default().push(index);
            }
        }
    }

    /// Takes in which objects were created and ended.
    fn follow_objects(&mut self, index: u32) {
        let Some(changes) = self.state.take_changes() else {
            return;
        };
        for id in changes.created {
            let Some(object) = self.state.objects.get(id) else {
                continue;
            };
            let range = object.handle..object.handle.saturating_add(object.size);
            match object.kind {
                Kind::Memory | Kind::HostMemory | Kind::Registration => {
                    self.contents.forget(&range);
                }
                Kind::Global => {
                    self.contents.forget(&range);
                    if let Some(owner) = object.parent {
                        self.globals.entry(owner).or_default().push(range.start);
                    }
                }
                _ => {}
            }
        }
        for id in changes.ended {
            let Some(object) = self.state.objects.get(id) else {
                continue;
            };
            let created = object.created.index as u32;
            self.pointers.remove(&id);
            self.need(created, index, Need::Completion);
        }
    }
}
