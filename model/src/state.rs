//! The state as a whole: applies what calls do to objects, current contexts, memory and order.

use std::collections::HashMap;
use std::ops::Range;

use cutape_format::Call;
use cutape_registry::{Family, GlobalOwner, Kind, Parent, PrimaryOp, Waits, is_default_stream};
use rustc_hash::FxBuildHasher;

use crate::captures::{CapturePoint, Captures};
use crate::contexts::Contexts;
use crate::effects::{Action, Effect, Effects};
use crate::graphs::{GraphAction, Graphs};
use crate::memory::Memory;
use crate::memory_kind::MemoryKind;
use crate::objects::{Lookup, NewObject, Object, ObjectId, Objects, Origin, Retention};
use crate::order::{Clock, Order};
use crate::site::Site;
use crate::virtual_memory::VirtualMemory;

/// How many freed ranges of memory are remembered.
const FREED_RANGES: usize = 8192;
/// How many streams a thread remembers the numbers of; most loops use few.
const STREAMS: usize = 4;
/// Flag of `cuStreamCreate` (cuda.h: CU_STREAM_NON_BLOCKING).
const NON_BLOCKING: u64 = 1;
/// Flag of `cuEventCreate` (cuda.h: CU_EVENT_DISABLE_TIMING).
pub const EVENT_DISABLE_TIMING: u64 = 2;
/// Flag of `cuEventCreate` (cuda.h: CU_EVENT_INTERPROCESS).
pub const EVENT_INTERPROCESS: u64 = 4;
/// Flag of a record of an event, or of a wait of a stream for one (cuda.h: CU_EVENT_RECORD_EXTERNAL
/// and CU_EVENT_WAIT_EXTERNAL).
pub const EVENT_EXTERNAL: u64 = 1;

/// What is known of an object by its kind; `X` is what the user of the state keeps with others.
#[derive(Clone, Debug, Default)]
pub enum Data<X> {
    /// Nothing.
    #[default]
    None,
    /// A context.
    Context(ContextData),
    /// An event.
    Event(EventData),
    /// A stream.
    Stream(StreamData),
    /// The user's own.
    Other(X),
}

/// A context.
#[derive(Clone, Copy, Debug)]
pub struct ContextData {
    /// The device's ordinal.
    pub device: i32,
    /// It is the device's primary context.
    pub primary: bool,
}

/// An event.
#[derive(Clone, Debug)]
pub struct EventData {
    /// Created without CU_EVENT_DISABLE_TIMING.
    pub timing: bool,
    /// Created for several processes, or opened from another one's handle.
    pub interprocess: bool,
    /// The flags that it was created with, if this process created it.
    pub flags: Option<u64>,
    /// The call that recorded it last.
    pub record: Option<Site>,
    /// What was ordered before that.
    pub before: Clock,
    /// If it was recorded last in a capture: where.
    pub captured: Option<CapturePoint>,
    /// It may have been recorded in a way that the model does not follow: by a graph, for a whole
    /// context, or in another process.
    pub unobserved: bool,
    /// The first wait of a stream for it, if that was before its first record.
    pub early_wait: Option<Site>,
    /// A stream or the host has waited for it since it was recorded.
    pub waited: bool,
}

impl EventData {
    /// The call that recorded it last, if that was in a capture.
    pub fn captured_by(&self) -> Option<Site> {
        self.captured.as_ref().and(self.record)
    }
}

/// A stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamData {
    /// It does not wait for the legacy default stream.
    pub non_blocking: bool,
    /// A smaller number is more urgent; 0 unless the stream was created with another.
    pub priority: i32,
}

/// An object to be created when the call that creates it has returned.
#[derive(Clone, Debug)]
pub(crate) struct PendingObject<X> {
    pub(crate) new: NewObject,
    pub(crate) data: Data<X>,
    pub(crate) size: u64,
}

/// What calls have changed since this was last taken.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Objects that became known.
    pub created: Vec<ObjectId>,
    /// Objects that calls ended.
    pub ended: Vec<ObjectId>,
    /// Objects whose end was not seen: the driver gave their handle out again.
    pub superseded: Vec<ObjectId>,
}

/// The numbers of the streams that a thread used last.
pub(crate) type LastStreams = [Option<(StreamQuestion, u32)>; STREAMS];

/// Everything that the meaning of a stream's handle in a thread depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamQuestion {
    pub(crate) handle: u64,
    pub(crate) per_thread: bool,
    /// The thread's current context.
    pub(crate) current: u64,
    /// Of streams and contexts.
    pub(crate) version: u64,
}

impl StreamQuestion {
    /// The index of its answer.
    pub(crate) fn place(self) -> usize {
        let mixed = self.handle.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 32) as usize % STREAMS
    }
}

/// The driver's state.
#[derive(Clone, Debug)]
pub struct State<X> {
    /// All objects.
    pub objects: Objects<Data<X>>,
    /// Device memory and global variables.
    pub memory: Memory<ObjectId>,
    /// Which work is complete.
    pub order: Order,
    /// Which contexts are current.
    pub contexts: Contexts,
    /// Graphs with their nodes.
    pub graphs: Graphs,
    /// The stream captures in progress.
    pub captures: Captures,
    /// Page-locked and registered host memory.
    pub host: Memory<ObjectId>,
    /// Reserved addresses, and what is mapped there.
    pub virtual_memory: VirtualMemory,
    /// An event may have been recorded by a graph, a launch, or for a whole context.
    pub records_elsewhere: bool,
    /// The last launch of each executable graph.
    pub(crate) last_launches: HashMap<ObjectId, Clock, FxBuildHasher>,
    /// By thread; a damaged trace can name many that have no calls.
    pub(crate) streams: Vec<Option<Box<LastStreams>>>,
    pending: Vec<PendingObject<X>>,
    changes: Changes,
    has_changed: bool,
}

impl<X> State<X> {
    /// Before the first call.
    pub fn new(retention: Retention) -> Self {
        Self {
            objects: Objects::new(retention),
            memory: Memory::new(FREED_RANGES),
            order: Order::default(),
            contexts: Contexts::default(),
            graphs: Graphs::default(),
            captures: Captures::default(),
            host: Memory::new(FREED_RANGES),
            virtual_memory: VirtualMemory::default(),
            records_elsewhere: false,
            last_launches: HashMap::default(),
            streams: Vec::new(),
            pending: Vec::new(),
            changes: Changes::default(),
            has_changed: false,
        }
    }

    /// What has changed since the last time; `None` for nothing.
    #[inline]
    pub fn take_changes(&mut self) -> Option<Changes> {
        let changed = std::mem::take(&mut self.has_changed);
        changed.then(|| std::mem::take(&mut self.changes))
    }

    /// Creates the objects whose creating calls have returned by `now`, in the order of their
    /// return. To be called before each call with the time of its entry, and at the end with the
    /// last time there is. A user that never calls it has objects from the entry of their creating
    /// calls on.
    #[inline]
    pub fn settle(&mut self, now: u64, thread: u32) {
        if self.streams.len() <= thread as usize || !self.pending.is_empty() {
            self.settle_pending(now, thread);
        }
    }

    /// The calls whose objects are to be created when they have returned.
    pub(crate) fn coming(&self) -> impl Iterator<Item = Site> {
        self.pending.iter().map(|pending| pending.new.created)
    }

    #[cold]
    fn settle_pending(&mut self, now: u64, thread: u32) {
        if self.streams.len() <= thread as usize {
            let threads = thread as usize + 1;
            self.streams.resize_with(threads, || None);
        }
        self.pending
            .sort_by_key(|pending| pending.new.created_ticks);
        // A thread knows what it created itself, whatever the clocks say.
        let due = |pending: &mut PendingObject<X>| {
            pending.new.created_ticks <= now || pending.new.created.thread == thread
        };
        let due: Vec<_> = self.pending.extract_if(.., due).collect();
        for pending in due {
            // Another thread may have found it meanwhile.
            if !(pending.new.origin == Origin::Found && self.is_known(&pending.new)) {
                self.create(pending);
            }
        }
    }

    /// Whether the object that a call has found in its parent is known.
    pub(crate) fn is_known(&self, found: &NewObject) -> bool {
        let live = self.objects.live(found.kind, found.handle);
        let known = live.and_then(|id| self.objects.get(id));
        known.is_some_and(|known| known.parent == found.parent)
    }

    /// Creates an object when its call has returned: with several threads, the handle may still be
    /// another object's when the call is entered.
    pub(crate) fn create_on_return(&mut self, pending: PendingObject<X>) {
        if self.streams.len() <= 1 {
            self.create(pending);
        } else {
            self.pending.push(pending);
        }
    }

    pub(crate) fn create(&mut self, pending: PendingObject<X>) -> ObjectId {
        let PendingObject { new, data, size } = pending;
        if new.kind == Kind::Reservation {
            self.virtual_memory.reserve(new.handle, size, new.created);
        }
        let (kind, handle) = (new.kind, new.handle);
        let (id, superseded) = self.objects.create(new, data);
        self.changes.superseded.extend(superseded);
        if let Some(object) = self.objects.get_mut(id) {
            object.size = size;
        }
        self.occupy(kind, handle, size, id);
        self.changes.created.push(id);
        self.has_changed = true;
        id
    }

    /// An object whose handle was seen before becomes what a call says of it.
    fn adopt(&mut self, id: ObjectId, pending: PendingObject<X>) -> ObjectId {
        self.objects.adopt(id, pending.new, pending.data);
        self.changes.created.push(id);
        self.has_changed = true;
        id
    }

    /// Creates an object of which no more than its size is known.
    pub(crate) fn create_sized(&mut self, new: NewObject, size: u64) {
        let data = Data::None;
        self.create(PendingObject { new, data, size });
    }

    /// An object takes an address range.
    fn occupy(&mut self, kind: Kind, start: u64, size: u64, id: ObjectId) {
        match kind {
            Kind::Memory | Kind::Global => {
                self.memory.insert(start, size, id);
                self.host.forget_freed(start, size.max(1));
            }
            Kind::HostMemory | Kind::Registration => {
                self.memory.forget_freed(start, size.max(1));
                self.host.insert(start, size, id);
            }
            Kind::Reservation => self.memory.forget_freed(start, size.max(1)),
            _ => {}
        }
    }

    /// Says how many bytes an object has whose creating call did not.
    pub fn set_size(&mut self, id: ObjectId, size: u64) {
        let Some(object) = self.objects.get_mut(id) else {
            return;
        };
        object.size = size;
        let (kind, handle) = (object.kind, object.handle);
        self.occupy(kind, handle, size, id);
    }

    /// What is known of an event.
    pub fn event(&self, id: ObjectId) -> Option<&EventData> {
        match &self.objects.get(id)?.data {
            Data::Event(event) => Some(event),
            _ => None,
        }
    }

    /// The live object that an address lies in.
    pub fn memory_at(&self, address: u64) -> Option<ObjectId> {
        Some(*self.memory.live().find(address)?.1)
    }

    /// As [`State::memory_at`], with its addresses.
    pub fn memory_around(&self, address: u64) -> Option<(Range<u64>, ObjectId)> {
        let (range, &id) = self.memory.live().find(address)?;
        Some((range, id))
    }

    /// The ended object that an address lies in, if no live one does.
    pub fn freed_at(&self, address: u64) -> Option<ObjectId> {
        Some(*self.memory.find_freed(address)?.1)
    }

    /// The page-locked memory that an address lay in and that was freed. The program may have other
    /// memory there since, which calls do not show.
    pub fn freed_host_at(&self, address: u64) -> Option<ObjectId> {
        let (_, &id) = self.host.find_freed(address)?;
        self.memory_at(address).is_none().then_some(id)
    }

    /// The live object that an address lies in: device memory, or page-locked host memory.
    pub fn place_at(&self, address: u64) -> Option<ObjectId> {
        let host = || Some(*self.host.live().find(address)?.1);
        self.memory_at(address).or_else(host)
    }

    /// As [`Self::place_at`], else the ended object that the address lies in.
    pub fn last_place_at(&self, address: u64) -> Option<ObjectId> {
        self.place_at(address).or_else(|| self.freed_at(address))
    }

    /// The addresses from the first page-locked or registered memory to the last.
    pub fn page_locked_span(&self) -> Option<Range<u64>> {
        let mut ranges = self.host.live().iter();
        let first = ranges.next()?.0;
        let last = ranges.next_back().map_or(first.end, |(range, _)| range.end);
        Some(first.start..last)
    }

    /// The memory that host and device share around an address: page-locked, registered or managed.
    pub fn shared_around(&self, address: u64) -> Option<Range<u64>> {
        Some(self.shared_at(address)?.0)
    }

    /// As [`State::shared_around`], with its object.
    pub fn shared_at(&self, address: u64) -> Option<(Range<u64>, ObjectId)> {
        if let Some((range, &id)) = self.host.live().find(address) {
            return Some((range, id));
        }
        let (range, &id) = self.memory.live().find(address)?;
        self.is_managed(id).then_some((range, id))
    }

    /// All memory that host and device share.
    pub fn shared_memory(&self) -> impl Iterator<Item = (Range<u64>, ObjectId)> {
        let memory = self.memory.live().iter();
        let managed = memory.filter(|&(_, &id)| self.is_managed(id));
        let all = self.host.live().iter().chain(managed);
        all.map(|(range, &id)| (range, id))
    }

    fn is_managed(&self, id: ObjectId) -> bool {
        let kind =
            |object: &Object<_>| MemoryKind::allocated_by(object.kind, object.created.function);
        self.objects.get(id).and_then(kind) == Some(MemoryKind::Managed)
    }

    /// The context's handle in which an object lives, 0 if not known.
    pub fn context_handle(&self, id: ObjectId) -> u64 {
        let context = self.objects.get(id).and_then(|object| object.context);
        let context = context.and_then(|context| self.objects.get(context));
        context.map_or(0, |context| context.handle)
    }

    /// Applies a call that has succeeded; `data` makes the user's own part of a new object.
    pub fn apply(
        &mut self,
        effects: &Effects,
        call: &Call<'_>,
        data: &mut dyn FnMut(Kind) -> Option<X>,
    ) {
        for &kind in &effects.unobserved {
            self.objects.note_unobserved(kind, call.index);
        }
        let waited = self.waits_implicitly(effects, call);
        if effects.action != Action::None || !effects.objects.is_empty() {
            self.order_events(effects, call);
            for &(position, effect) in &effects.objects {
                self.apply_effect(effects, call, (position, effect), data);
            }
            self.follow_contexts(effects, call);
        }
        if effects.action == Action::VirtualMemory {
            let handle = effects.handle_of(call, Kind::Allocation);
            let allocation = handle.and_then(|handle| self.objects.live(Kind::Allocation, handle));
            self.virtual_memory
                .apply(effects.function, call, allocation);
        }
        if effects.action != Action::None
            || effects.function.waits != Waits::No
            || effects.in_default_stream
        {
            self.complete(effects, call);
        }
        if let Some(context) = waited {
            self.order.complete_context(context);
        }
        if effects.graph != GraphAction::None {
            self.apply_to_graphs(effects, call);
        }
    }

    fn apply_effect(
        &mut self,
        effects: &Effects,
        call: &Call<'_>,
        (position, effect): (usize, Effect),
        data: &mut dyn FnMut(Kind) -> Option<X>,
    ) {
        let returned = || call.out(position).filter(|&handle| handle != 0);
        match effect {
            Effect::Create(kind, parent) => {
                let Some(handle) = returned() else { return };
                // Memory of a stream-ordered pool outlives the context that it was allocated in
                // (Stream Ordered Memory Allocator).
                let of_pool = kind == Kind::Memory && effects.function.stream.is_some();
                let parent = if of_pool {
                    None
                } else {
                    self.parent(effects, call, parent)
                };
                let context = self.context_of(call.thread, parent);
                let new = NewObject {
                    parent,
                    context,
                    ..NewObject::of(kind, handle, Origin::Created, effects.site(call), call)
                };
                let pending = PendingObject::of(new, effects, call, data);
                if of_pool && self.is_captured(effects, call) {
                    self.memory.belongs_to_graph(handle, pending.size);
                }
                // A context becomes current in this thread at once.
                if kind == Kind::Context {
                    self.create(pending);
                } else {
                    self.create_on_return(pending);
                }
            }
            Effect::Find(kind, parent) => {
                if let Some(handle) = returned() {
                    self.found(effects, call, (kind, handle), parent, data);
                }
            }
            Effect::FindMany(kind, parent) => {
                let bytes = call.out_bytes(position).unwrap_or_default();
                let handles = bytes.as_chunks::<8>().0.iter();
                for handle in handles.map(|word| u64::from_le_bytes(*word)) {
                    if handle != 0 {
                        self.found(effects, call, (kind, handle), parent, data);
                    }
                }
            }
            Effect::Get(kind) => {
                if let Some(handle) = returned() {
                    self.got(effects, call, (kind, handle));
                }
            }
            // A node of the graph that is being captured, or memory that lives again after the next
            // launch of its graph.
            Effect::Destroy(Kind::Memory)
                if self.memory.is_of_graph(call.argument(position))
                    || self.is_captured(effects, call) => {}
            Effect::Destroy(kind) => {
                let live = self.objects.live(kind, call.argument(position));
                let meant = live.and_then(|id| self.objects.meant_by_destroy(id, call.ticks));
                // Memory of another process may be opened several times.
                let is_shared =
                    kind == Kind::Memory && matches!(effects.function.family, Family::Sharing(_));
                if let Some(id) = meant
                    && !(is_shared && self.objects.close_last_opening(id))
                {
                    let ended = self.objects.end(id, effects.site(call));
                    self.ended(ended);
                }
            }
        }
    }

    /// The object that a new one belongs to.
    pub fn parent(&self, effects: &Effects, call: &Call<'_>, parent: Parent) -> Option<ObjectId> {
        match parent {
            Parent::None => None,
            Parent::CurrentContext => self.current_owner(call.thread),
            Parent::Param(position) => {
                let position = usize::from(position);
                let kind = effects.kind_at(position)?;
                self.objects.live(kind, call.argument(position))
            }
        }
    }

    /// The thread's current context, unless it is a green one: what is created there belongs to
    /// the primary context and outlives it.
    fn current_owner(&self, thread: u32) -> Option<ObjectId> {
        let context = self.contexts.current(thread).object?;
        let is_green = self.objects.get(context)?.parent.is_some();
        (!is_green).then_some(context)
    }

    /// The context that a child of `parent` lives in.
    pub(crate) fn context_of(&self, thread: u32, parent: Option<ObjectId>) -> Option<ObjectId> {
        let parent = parent?;
        let object = self.objects.get(parent)?;
        match object.kind {
            Kind::Context => Some(parent),
            // Instances of a library's code and variables belong to the context that is current.
            Kind::Library | Kind::Kernel => self.current_owner(thread),
            _ => object.context,
        }
    }

    /// A call looked an object up in its parent.
    fn found(
        &mut self,
        effects: &Effects,
        call: &Call<'_>,
        (kind, handle): (Kind, u64),
        parent: Parent,
        data: &mut dyn FnMut(Kind) -> Option<X>,
    ) {
        let parent = self.parent(effects, call, parent);
        let live = self.objects.live(kind, handle);
        // A context may have been current before a call of the program returned its handle.
        let first_seen = live.filter(|&id| {
            let object = self.objects.get(id);
            kind == Kind::Context && object.is_some_and(|object| object.origin == Origin::FirstSeen)
        });
        if let Some(id) = live.filter(|_| first_seen.is_none()) {
            let known = self.objects.get(id).and_then(|object| object.parent);
            // The module of a library may have been seen before as one of a kernel's function.
            let of_library = kind == Kind::Module && known.is_none();
            if known == parent || parent.is_none() || of_library {
                return;
            }
        }
        // Kernels and managed variables are the same in all contexts.
        let in_all =
            kind == Kind::Kernel || effects.function.family == Family::Global(GlobalOwner::Managed);
        let context = self.context_of(call.thread, parent).filter(|_| !in_all);
        let name = match kind {
            Kind::Function | Kind::Kernel | Kind::Global => {
                let name = effects.at("name").and_then(|at| call.string(at));
                name.map(String::into_boxed_str)
            }
            _ => None,
        };
        // A kernel's function has the kernel's name.
        let inherited = || {
            let parent = parent.filter(|_| kind == Kind::Function)?;
            self.objects.get(parent)?.name.clone()
        };
        let new = NewObject {
            parent,
            context,
            name: name.or_else(inherited),
            ..NewObject::of(kind, handle, Origin::Found, effects.site(call), call)
        };
        let pending = PendingObject::of(new, effects, call, data);
        if kind != Kind::Context {
            return self.create_on_return(pending);
        }
        let id = match first_seen {
            Some(id) => self.adopt(id, pending),
            None => self.create(pending),
        };
        let objects = &self.objects;
        let has_ended = |id| objects.end_of(id).is_some();
        self.contexts.stacks.attach(handle, id, has_ended);
    }

    /// A call returned a handle that may not be known.
    fn got(&mut self, effects: &Effects, call: &Call<'_>, (kind, handle): (Kind, u64)) {
        let known = self.objects.find(kind, handle);
        // A destroyed context stays current in other threads, so a query that returns it proves
        // nothing.
        if matches!(known, Lookup::Live(_))
            || (kind == Kind::Context && known != Lookup::Unknown)
            || (kind == Kind::Stream && is_default_stream(handle))
        {
            return;
        }
        let current = self.contexts.current(call.thread).object;
        let parent = self.library_of_function(effects, call);
        let origin = match parent {
            Some(_) => Origin::Found,
            None => Origin::FirstSeen,
        };
        let new = NewObject {
            parent,
            context: current.filter(|_| kind != Kind::Context),
            ..NewObject::of(kind, handle, origin, effects.site(call), call)
        };
        self.objects.create(new, Data::None);
    }

    /// The library of the kernel whose function a call is given: the function's module belongs to
    /// it.
    fn library_of_function(&self, effects: &Effects, call: &Call<'_>) -> Option<ObjectId> {
        let handle = effects.handle_of(call, Kind::Function)?;
        let function = self.objects.live(Kind::Function, handle)?;
        let kernel = self.objects.get(self.objects.get(function)?.parent?)?;
        kernel.parent.filter(|_| kernel.kind == Kind::Kernel)
    }

    /// Follows up on objects that have ended.
    pub(crate) fn ended(&mut self, ended: Vec<ObjectId>) {
        for &id in &ended {
            let Some(object) = self.objects.get(id) else {
                continue;
            };
            let (handle, generation) = (object.handle, object.generation);
            match object.kind {
                Kind::Memory | Kind::Global if self.memory.live().get(handle) == Some(&id) => {
                    self.memory.free(handle);
                }
                Kind::HostMemory | Kind::Registration
                    if self.host.live().get(handle) == Some(&id) =>
                {
                    self.host.free(handle);
                    // The program has that memory still.
                    if object.kind == Kind::Registration {
                        self.host.forget_freed(handle, 1);
                    }
                }
                Kind::Stream => self.order.destroyed((handle, u64::from(generation))),
                Kind::Context => {
                    self.order.complete_context(handle);
                    self.captures.end_context(handle);
                }
                _ => {}
            }
        }
        for &id in &ended {
            let later = self.objects.give_handle_back(id);
            if let Some((id, object)) = later.and_then(|id| Some((id, self.objects.get(id)?))) {
                let (kind, handle, size) = (object.kind, object.handle, object.size);
                self.occupy(kind, handle, size, id);
            }
        }
        self.has_changed |= !ended.is_empty();
        self.changes.ended.extend(ended);
    }
}

impl<X> PendingObject<X> {
    /// With what the call says of it; `own` makes the user's own part.
    fn of(
        new: NewObject,
        effects: &Effects,
        call: &Call<'_>,
        own: &mut dyn FnMut(Kind) -> Option<X>,
    ) -> Self {
        let argument = |name| effects.at(name).map(|position| call.argument(position));
        let flags = || argument("Flags").or_else(|| argument("flags")).unwrap_or(0);
        let data = match new.kind {
            Kind::Context => argument("dev").map_or(Data::None, |device| {
                Data::Context(ContextData {
                    device: device as i32,
                    primary: effects.action == Action::Primary(PrimaryOp::Retain),
                })
            }),
            Kind::Event => Data::Event(EventData {
                flags: argument("Flags"),
                timing: flags() & EVENT_DISABLE_TIMING == 0,
                // What opens an event of another process takes no flags.
                interprocess: flags() & EVENT_INTERPROCESS != 0
                    || effects
                        .at("Flags")
                        .or_else(|| effects.at("flags"))
                        .is_none(),
                record: None,
                before: Clock::new(),
                captured: None,
                // Other functions open events of other processes.
                unobserved: argument("Flags").is_none(),
                early_wait: None,
                waited: false,
            }),
            Kind::Stream => Data::Stream(StreamData {
                non_blocking: flags() & NON_BLOCKING != 0,
                priority: argument("priority").map_or(0, |priority| priority as i32),
            }),
            kind => own(kind).map_or(Data::None, Data::Other),
        };
        let size = effects.size_of(call, new.kind);
        Self { new, data, size }
    }
}
