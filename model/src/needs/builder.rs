//! Finds out what calls need, in one pass over them: the operands of calls and what created them.

use std::borrow::Cow;
use std::rc::Rc;

use cutape_format::{Bytes, Call, Note};
use cutape_registry::{
    ContextOp, EventOp, Family, Function, GraphOp, Kind, MemoryOp, PrimaryOp, Role,
    VirtualMemoryOp, is_default_stream, is_sticky,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::changing::changes_operands;
use super::contents::{Contents, Stream};
use super::last_changes::{Changes, set_by};
use super::last_waits::LastWaits;
use super::operands::{Operands, Touch};
use super::reads::{PartReads, StatePart};
use super::table::{CallNeeds, Need, Needs};
use crate::effects::{Effect, Effects};
use crate::memory::IntervalMap;
use crate::objects::{ObjectId, Retention};
use crate::private_functions::kinds_of_origin;
use crate::state::State;
use crate::trace_state::function_of;

/// cuda.h: CUDA_ERROR_OUT_OF_MEMORY.
const OUT_OF_MEMORY: i32 = 2;
/// Fewer calls are held without a look at which of them are needed. Tests are to notice if one was
/// forgotten that is.
const LEAST_HELD: usize = if cfg!(debug_assertions) { 1 } else { 1 << 16 };

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

/// What is known of a function.
#[derive(Debug)]
pub(super) struct Known {
    effects: Effects,
    /// The parameters whose values only the driver makes: position, type, and whether the call
    /// returns it.
    tokens: Vec<(&'static str, bool)>,
    /// Outside captures, a call changes nothing that later ones may need, but what memory holds.
    leaves_nothing: bool,
}

/// Finds out what calls need.
#[derive(Debug)]
pub struct NeedsBuilder {
    pub(super) state: State<()>,
    functions: Vec<Option<Option<Rc<Known>>>>,
    pub(super) needs: Needs,
    /// The needs of the call that is taken in.
    pub(super) found: CallNeeds,
    /// The calls whose needs are wanted; `None` for all.
    pub(super) chosen: Option<Vec<u32>>,
    /// How many calls may be held before those are forgotten that nothing needs.
    pub(super) most_held: usize,
    pub(super) initialised: Option<u32>,
    /// The calls that have changed objects.
    pub(super) changed: FxHashMap<ObjectId, Changes>,
    /// The last call that changed how a device is used.
    pub(super) devices: FxHashMap<i32, u32>,
    pub(super) retained: FxHashMap<i32, Vec<u32>>,
    pub(super) contents: Contents,
    /// Addresses in recorded bytes of an allocation.
    pub(super) pointers: FxHashMap<ObjectId, FxHashSet<u64>>,
    pub(super) attached: FxHashMap<ObjectId, Attached>,
    /// The same of objects that exist once the call has returned that made them, by that call.
    pub(super) attached_by: FxHashMap<u32, Attached>,
    /// Addresses of variables, by what they belong to.
    pub(super) globals: FxHashMap<ObjectId, Vec<u64>>,
    pub(super) captures: FxHashMap<u64, Capture>,
    pub(super) waits: LastWaits,
    /// Linked cubins, which module loads take from the link state.
    pub(super) cubins: IntervalMap<u32>,
    /// The last calls that returned a value of a type that only the driver makes.
    pub(super) tokens: FxHashMap<&'static str, u32>,
    /// The calls that returned strings of the driver.
    pub(super) strings: FxHashMap<u64, u32>,
    /// The last call of each kind that failed to make an object.
    pub(super) not_made: FxHashMap<Kind, u32>,
    pub(super) unwaited: Vec<u32>,
    pub(super) poisoned: Option<u32>,
    /// Calls that name a context before a call creates it: the runtime gets primary contexts from a
    /// private table, makes them current, and then retains them.
    pub(super) unreturned: FxHashMap<u64, Vec<u32>>,
    /// The part before which memory is restored.
    pub(super) part: Option<StatePart>,
    /// Only what later calls need of live objects is wanted, and nothing of what memory holds.
    pub(super) is_of_live: bool,
    /// A call, and addresses that it uses besides its operands.
    also_used: (u64, Vec<u64>),
    /// Work, or notes, may have given any memory other contents.
    has_computed: bool,
}

impl Default for NeedsBuilder {
    fn default() -> Self {
        Self {
            state: State::new(Retention::PerHandle),
            functions: Vec::new(),
            needs: Needs::default(),
            found: CallNeeds::default(),
            chosen: None,
            most_held: LEAST_HELD,
            initialised: None,
            changed: FxHashMap::default(),
            devices: FxHashMap::default(),
            retained: FxHashMap::default(),
            contents: Contents::default(),
            pointers: FxHashMap::default(),
            attached: FxHashMap::default(),
            attached_by: FxHashMap::default(),
            globals: FxHashMap::default(),
            captures: FxHashMap::default(),
            waits: LastWaits::default(),
            cubins: IntervalMap::default(),
            tokens: FxHashMap::default(),
            strings: FxHashMap::default(),
            not_made: FxHashMap::default(),
            unwaited: Vec::new(),
            poisoned: None,
            unreturned: FxHashMap::default(),
            part: None,
            is_of_live: false,
            also_used: Default::default(),
            has_computed: false,
        }
    }
}

impl NeedsBuilder {
    /// Finds out what these calls need, in order, and forgets what no call needs any more.
    pub fn of_chosen(chosen: &[u64]) -> Self {
        let numbers = chosen.iter().filter_map(|&call| u32::try_from(call).ok());
        Self {
            chosen: Some(numbers.collect()),
            ..Self::default()
        }
    }

    /// The same if memory is restored before the first of these calls. Without `keeps_contents`,
    /// what calls before that need of the contents of memory is left out. Memory at the addresses
    /// in `also_used` counts as used by the call there.
    pub fn of_state(chosen: &[u64], keeps_contents: bool, also_used: (u64, Vec<u64>)) -> Self {
        let first = chosen.iter().min().copied().unwrap_or(0);
        Self {
            part: Some(StatePart::new(first, keeps_contents)),
            also_used,
            ..Self::of_chosen(chosen)
        }
    }

    /// Finds out which calls later ones may need: those that created and changed what is live.
    /// What memory holds is left out, and all earlier work counts as complete.
    pub fn of_live() -> Self {
        Self {
            part: Some(StatePart::new(u64::MAX, false)),
            is_of_live: true,
            ..Self::of_chosen(&[])
        }
    }

    /// The next call does not count.
    pub fn pass(&mut self) {
        self.needs.push(&mut CallNeeds::default());
    }

    /// Takes the next call; expects every call, in order.
    pub fn push(&mut self, call: &Call<'_>, read: &ReadBytes<'_>) {
        let index = call.index as u32;
        self.state.settle(call.ticks, call.thread);
        self.follow_objects(index);
        if call.has_notes() {
            self.note(call, index);
        }
        self.begin_part(index);
        if self.also_used.0 == call.index {
            for address in std::mem::take(&mut self.also_used.1) {
                self.use_address(index, address);
            }
        }
        let is_left_out = |bytes: Bytes<'_>| matches!(bytes, Bytes::Omitted(_) | Bytes::Hashed(..));
        let mut snapshots = call.snapshots();
        self.found.lacks_bytes = snapshots.any(|snapshot| is_left_out(snapshot.bytes));
        if let Some(known) = self.function_of(call)
            && !(self.is_of_live && known.leaves_nothing && self.captures.is_empty())
        {
            self.take(&known, call, index, read);
        }
        self.needs.push(&mut self.found);
        if self.chosen.is_some() && self.needs.held() >= self.most_held {
            self.forget_unneeded(index);
            self.most_held = LEAST_HELD.max(2 * self.needs.held());
        }
    }

    fn take(&mut self, known: &Known, call: &Call<'_>, index: u32, read: &ReadBytes<'_>) {
        let effects = &known.effects;
        let operands = Operands::of(effects.function, call);
        let sets = set_by(effects, call).is_some();
        self.environment(effects, call, index, sets);
        // A call that ends an object, or records an event or sets a value anew, does not need what
        // changed it.
        let changes = !matches!(
            effects.function.family,
            Family::Event(EventOp::Record) | Family::Graph(GraphOp::DestroyExec)
        ) && !sets
            && !effects
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
        self.use_cubin(effects, call, index);
        match call.result() {
            Some(0) => self.succeeded(known, call, index, &operands, read),
            Some(result) => self.failed(effects, call, index, result),
            None => {}
        }
    }

    /// The needs of the calls.
    pub fn finish(self) -> Needs {
        self.finish_with_reads().0
    }

    /// Whether a function or kernel of that handle is live.
    pub fn has_function(&self, handle: u64) -> bool {
        let kinds = [Kind::Function, Kind::Kernel].into_iter();
        kinds
            .filter_map(|kind| self.state.objects.live(kind, handle))
            .next()
            .is_some()
    }

    /// The calls that later ones may need, in order, and their needs.
    pub fn finish_live(mut self) -> (Vec<u64>, Needs) {
        let last = self.needs.calls().saturating_sub(1) as u32;
        self.state.settle(u64::MAX, 0);
        self.follow_objects(last);
        self.forget_unneeded(last);
        (self.needs.held_calls().collect(), self.needs)
    }

    /// The needs of the calls, and what the part reads of memory that earlier calls have written.
    pub fn finish_with_reads(mut self) -> (Needs, PartReads) {
        self.needs.complete();
        (self.needs, self.part.unwrap_or_default().finish())
    }

    /// The part begins with its first chosen call, or with the first capture in progress there.
    fn begin_part(&mut self, index: u32) {
        let Some(part) = &mut self.part else { return };
        if part.may_begin(index) && self.captures.is_empty() {
            // Texture references show memory that no parameter names.
            let is_unknown = self.state.objects.has_had(Kind::TextureReference);
            part.begin(index, self.has_computed, is_unknown);
        }
    }

    fn function_of(&mut self, call: &Call<'_>) -> Option<Rc<Known>> {
        let place = usize::from(call.signature.id);
        if self.functions.len() <= place {
            self.functions.resize(place + 1, None);
        }
        let known = self.functions.get_mut(place)?;
        let resolve = || Some(Rc::new(Known::of(function_of(call.signature)?)));
        known.get_or_insert_with(resolve).clone()
    }

    pub(super) fn need(&mut self, call: u32, needed: u32, need: Need) {
        if call == needed {
            return;
        }
        if needed > call {
            return self.needs.push_later(call, needed, need);
        }
        self.found.reads |= need == Need::Content;
        let part = self.part.as_ref();
        // An ended object may be named again: what made it is forgotten where only live ones count.
        let is_forgotten = self.is_of_live && !self.needs.holds(needed);
        if !is_forgotten && part.is_none_or(|part| part.follows(call, needed, need)) {
            debug_assert!(self.needs.holds(needed), "call {call} needs {needed}");
            self.found.earlier.push((needed, need));
        }
    }

    pub(super) fn need_any(&mut self, call: u32, needed: Option<u32>, need: Need) {
        if let Some(needed) = needed {
            self.need(call, needed, need);
        }
    }

    /// The call runs kernels or functions of the program.
    pub(super) fn computes(&mut self) {
        self.found.computes = true;
        self.has_computed = true;
    }

    fn note(&mut self, call: &Call<'_>, index: u32) {
        self.state.find_noted(call);
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
                    self.has_computed = true;
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
                        self.needs.note(index, note.owner, Some(loaded));
                    }
                    continue;
                }
                Note::Origin(note, _) => {
                    let (kind, owner) = kinds_of_origin(&note);
                    for (kind, handle) in [(owner, note.owner), (kind, note.handle)] {
                        self.use_handle(index, kind, handle, false);
                    }
                    continue;
                }
                _ => continue,
            };
            let place = self.place_of(address);
            let place = place.and_then(|place| self.state.objects.get(place));
            let creator = place.map(|object| object.created.index as u32);
            self.needs.note(index, address, creator);
        }
    }

    /// What nearly every call needs: the driver initialised, and its thread's context.
    fn environment(&mut self, effects: &Effects, call: &Call<'_>, index: u32, sets: bool) {
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
            let is_set = sets && matches!(family, Family::Context(_));
            self.use_object(index, context, !is_set);
        }
    }

    /// The call uses an object, and if `changes` is true what calls have changed of it.
    pub(super) fn use_object(&mut self, call: u32, id: ObjectId, changes: bool) {
        let Some(object) = self.state.objects.get(id) else {
            return;
        };
        // What later calls need does not depend on what has ended.
        if self.is_of_live && object.end.is_some() {
            return;
        }
        let creator = object.created.index as u32;
        self.need(call, creator, Need::Existence);
        if changes && !self.changed.is_empty() {
            let owners = self.state.objects.ancestors(id);
            let changed = [id].into_iter().chain(owners);
            let changed = changed.filter_map(|id| self.changed.get(&id));
            let changed: Vec<u32> = changed.flat_map(Changes::calls).collect();
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
        known: &Known,
        call: &Call<'_>,
        index: u32,
        operands: &Operands,
        read: &ReadBytes<'_>,
    ) {
        let effects = &known.effects;
        let stream = self.stream_of(effects, call);
        let capture = |state: &State<()>| Some(state.captures.of(stream?.number)?.id);
        let captured = capture(&self.state);
        self.take_and_give(known, call, index);
        self.before(effects, call, index, stream);
        self.state.apply(effects, call, &mut |_| None);
        self.follow_contexts(effects, call, index);
        self.follow_objects(index);
        self.change(effects, call, index, operands);
        // An event of a capture makes the stream take part.
        match captured.or_else(|| capture(&self.state)) {
            Some(capture) => self.captured(effects, call, index, capture, operands),
            None => {
                self.work(effects, call, index, stream, operands);
                self.keep_pointers(effects, call, operands, read);
                self.follow_waits(effects, call, index, stream);
            }
        }
    }

    /// Values that only the driver makes, and that calls get back.
    fn take_and_give(&mut self, known: &Known, call: &Call<'_>, index: u32) {
        for (position, param) in known.effects.function.params.iter().enumerate() {
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
        }
        for &(token, is_returned) in &known.tokens {
            self.need_any(index, self.tokens.get(token).copied(), Need::Existence);
            if is_returned {
                self.tokens.insert(token, index);
            }
        }
    }

    /// What is known only before the call is applied.
    fn before(&mut self, effects: &Effects, call: &Call<'_>, index: u32, stream: Option<Stream>) {
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
                if let (Some(range), Some(_)) = (self.range_of(call.argument(0)), stream) {
                    self.order_behind(index, &range, stream, true);
                }
            }
            Family::VirtualMemory(VirtualMemoryOp::Unmap { address, size }) => {
                let [start, size] = [address, size].map(|at| call.argument(usize::from(at)));
                let unmapped = start..start.saturating_add(size);
                for (_, mapping) in self.state.virtual_memory.mappings.pieces(&unmapped) {
                    let mapped = mapping.site.index as u32;
                    self.needs.push_later(mapped, index, Need::Completion);
                }
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
                for named in self.unreturned.remove(&handle).unwrap_or_default() {
                    self.need(named, index, Need::Existence);
                }
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
            if let Some(attached) = self.attached_by.remove(&(object.created.index as u32)) {
                self.attached.insert(id, attached);
            }
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
            if matches!(
                object.kind,
                Kind::Memory | Kind::HostMemory | Kind::Registration | Kind::Global
            ) {
                let range = object.handle..object.handle.saturating_add(object.size);
                self.contents.forget(&range);
            }
            self.pointers.remove(&id);
            self.waits.ended(id);
            self.need(created, index, Need::Completion);
        }
    }
}

impl Known {
    fn of(function: &'static Function) -> Self {
        let tokens = function.params.iter().filter_map(|param| {
            let name = param.c_type.trim_start_matches("const ");
            let structure = cutape_registry::structure(name.trim_end_matches([' ', '*']))?;
            let is_returned = matches!(param.role, Role::Out(_) | Role::InOut(_));
            structure.token.then_some((structure.name, is_returned))
        });
        let effects = Effects::of(function);
        Self {
            leaves_nothing: effects.submits && effects.only_submits && !changes_operands(&effects),
            effects,
            tokens: tokens.collect(),
        }
    }
}
