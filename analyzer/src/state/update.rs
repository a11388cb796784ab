//! What a call changes in the model. Only calls that succeeded change it; one in flight has changed nothing yet.

use cutape_format::layout::field;
use cutape_format::{Call, Note};
use cutape_registry::{Kind, Parent};

use super::birth::{Born, size_of};
use super::data::{Attributes, Data};
use super::objects::{Lookup, NewObject, ObjectId, Origin, Site};
use super::{
    ARRAYS, ArrayUse, Current, DEAD_CUBINS, DriverName, FAILURES, Failure, LAYOUTS, NAMES, Primary,
    State, numbers64, options_of,
};
use crate::context::TraceContext;
use crate::plan::{Effect, Plan, Special};

impl State {
    /// Learns what the call's notes say; before its checks.
    pub(crate) fn notes(&mut self, call: &Call<'_>) {
        for note in call.notes() {
            match note {
                Note::Thread(thread) => self.thread_mut(call.thread).number = thread.number,
                Note::Layout(handle, layout) => {
                    if self.layouts.len() >= LAYOUTS {
                        self.layouts.clear();
                    }
                    self.layouts.insert(handle, layout);
                }
                _ => {}
            }
        }
    }

    /// Learns from the call; `reported` says that a finding has been made of it.
    pub(crate) fn update(
        &mut self,
        plan: &Plan,
        call: &Call<'_>,
        context: &dyn TraceContext,
        site: Site,
        reported: bool,
    ) {
        let Some(leave) = call.leave else {
            return;
        };
        if leave.result != 0 || !plan.function.returns_result {
            self.failed(plan, call, site, reported);
            if plan.special == Special::CaptureEnd {
                self.work.capture_ended();
            }
            self.link_values(plan, call);
            return;
        }
        if plan.only_submits {
            return self.submit(plan, call, site);
        }
        for &kind in &plan.blind {
            self.objects.note_blind(kind, call.index);
        }
        // Handles are looked up before the call ends any of them.
        self.submit(plan, call, site);
        self.special_before(plan, call, site);
        for &(position, effect) in &plan.effects {
            self.effect(plan, call, site, position, effect);
        }
        self.special_after(plan, call, context, site);
        if matches!(plan.special, Special::LinkAddData | Special::LinkAddFile) {
            self.input_added(plan, call, context, site);
        }
        self.link_values(plan, call);
        self.wait(plan, call);
    }

    /// A call failed: what it would have written is undefined.
    fn failed(&mut self, plan: &Plan, call: &Call<'_>, site: Site, reported: bool) {
        let output = plan
            .effects
            .iter()
            .find_map(|&(position, effect)| match effect {
                Effect::Make(kind, parent) | Effect::Find(kind, parent) => {
                    Some((position, kind, parent))
                }
                _ => None,
            });
        let Some((position, kind, parent)) = output else {
            return;
        };
        if !matches!(
            kind,
            Kind::Module | Kind::Library | Kind::Function | Kind::Kernel | Kind::Global
        ) {
            return;
        }
        let failure = Failure {
            kind,
            location: call.argument(position),
            site,
            name: plan.at("name").and_then(|position| call.string(position)),
            parent: self.parent(plan, call, parent),
            reported,
        };
        let failures = &mut self.thread_mut(call.thread).failures;
        failures.retain(|old| old.location != failure.location || old.kind != kind);
        if failures.len() >= FAILURES {
            failures.remove(0);
        }
        failures.push(failure);
    }

    fn parent(&self, plan: &Plan, call: &Call<'_>, parent: Parent) -> Option<ObjectId> {
        match parent {
            Parent::None => None,
            Parent::CurrentContext => self.current(call.thread).object,
            Parent::Param(position) => {
                let position = usize::from(position);
                self.objects
                    .live(plan.kind_at(position)?, call.argument(position))
            }
        }
    }

    fn effect(
        &mut self,
        plan: &Plan,
        call: &Call<'_>,
        site: Site,
        position: usize,
        effect: Effect,
    ) {
        match effect {
            Effect::Make(kind, parent) => {
                let Some(handle) = call.out(position).filter(|&handle| handle != 0) else {
                    return;
                };
                self.clear_failure(call, position);
                // Memory of a stream-ordered pool outlives the context that it was allocated in (Stream Ordered Memory
                // Allocator).
                let of_pool = kind == Kind::Memory && plan.function.stream.is_some();
                let parent = if of_pool {
                    None
                } else {
                    self.parent(plan, call, parent)
                };
                let born = Born {
                    new: NewObject {
                        kind,
                        handle,
                        origin: Origin::Made,
                        made: site,
                        made_ticks: call.leave.map_or(0, |leave| leave.ticks),
                        parent,
                        context: self.context_of(call.thread, parent),
                    },
                    data: self.data_of(plan, call, kind),
                    size: size_of(plan, call, kind),
                };
                // With several threads the handle may still be another object's when this call is entered; a context becomes
                // current in this thread at once.
                if kind == Kind::Context || self.threads.len() <= 1 {
                    self.bear(born);
                } else {
                    self.unborn.push(born);
                }
            }
            Effect::Find(kind, parent) => {
                let Some(handle) = call.out(position).filter(|&handle| handle != 0) else {
                    return;
                };
                self.clear_failure(call, position);
                self.found(plan, call, site, kind, parent, handle);
            }
            Effect::FindMany(kind, parent) => {
                let Some(bytes) = call.out_bytes(position) else {
                    return;
                };
                for word in bytes
                    .as_chunks::<8>()
                    .0
                    .iter()
                    .filter(|word| **word != [0; 8])
                {
                    self.found(plan, call, site, kind, parent, u64::from_le_bytes(*word));
                }
            }
            Effect::Get(kind) => {
                let Some(handle) = call.out(position).filter(|&handle| handle != 0) else {
                    return;
                };
                let known = self.objects.find(kind, handle);
                // A destroyed context stays current in other threads, so asking for it proves nothing.
                if matches!(known, Lookup::Live(_))
                    || (kind == Kind::Context && known != Lookup::Unknown)
                    || (kind == Kind::Stream && handle <= super::STREAM_PER_THREAD)
                {
                    return;
                }
                let current = self.current(call.thread).object;
                let source = plan.position_of(Kind::Function).and_then(|function| {
                    self.objects.live(Kind::Function, call.argument(function))
                });
                // A function of a library's kernel: its module is the library's.
                let parent = source
                    .and_then(|function| self.objects.get(function)?.parent)
                    .filter(|&kernel| {
                        self.objects
                            .get(kernel)
                            .is_some_and(|o| o.kind == Kind::Kernel)
                    })
                    .and_then(|kernel| self.objects.get(kernel)?.parent);
                self.objects.make(NewObject {
                    kind,
                    handle,
                    origin: if parent.is_some() {
                        Origin::Found
                    } else {
                        Origin::Got
                    },
                    made: site,
                    made_ticks: call.leave.map_or(0, |leave| leave.ticks),
                    parent,
                    context: if kind == Kind::Context { None } else { current },
                });
            }
            Effect::Name => {
                let address = call.out(position).filter(|&address| address != 0);
                let text = call
                    .leave
                    .and_then(|leave| leave.snapshot(position, field::TEXT))
                    .and_then(|snapshot| snapshot.bytes.inline());
                let owner = [Kind::Function, Kind::Kernel].into_iter().find_map(|kind| {
                    self.objects
                        .live(kind, call.argument(plan.position_of(kind)?))
                });
                if let (Some(address), Some(text), Some(owner)) = (address, text, owner) {
                    if self.names.len() >= NAMES {
                        self.names.clear();
                    }
                    let end = text
                        .iter()
                        .position(|&byte| byte == 0)
                        .unwrap_or(text.len());
                    let text = String::from_utf8_lossy(&text[..end]).into_owned();
                    self.names.insert(address, DriverName { owner, text, site });
                }
            }
            Effect::Destroy(kind) => {
                let handle = call.argument(position);
                let Some(id) = self.objects.live(kind, handle) else {
                    return;
                };
                if let Some(id) = self.objects.meant_by_destroy(id, call.ticks) {
                    let ended = self.objects.end(id, site);
                    self.ended(&ended, site);
                }
            }
        }
    }

    /// The context that a child of `parent` lives in.
    fn context_of(&self, thread: u32, parent: Option<ObjectId>) -> Option<ObjectId> {
        let current = self.current(thread).object;
        let parent = parent?;
        let object = self.objects.get(parent)?;
        match object.kind {
            Kind::Context => Some(parent),
            // Instances of a library's code and variables belong to the context that is current.
            Kind::Library | Kind::Kernel => current,
            _ => object.context,
        }
    }

    fn clear_failure(&mut self, call: &Call<'_>, position: usize) {
        let location = call.argument(position);
        let failures = &mut self.thread_mut(call.thread).failures;
        if !failures.is_empty() {
            failures.retain(|failure| failure.location != location);
        }
    }

    fn found(
        &mut self,
        plan: &Plan,
        call: &Call<'_>,
        site: Site,
        kind: Kind,
        parent: Parent,
        handle: u64,
    ) {
        let parent = self.parent(plan, call, parent);
        if let Lookup::Live(id) = self.objects.find(kind, handle) {
            let known = self.objects.get(id).and_then(|object| object.parent);
            let parent_is_module_of_library = kind == Kind::Module;
            if known == parent
                || parent.is_none()
                || (parent_is_module_of_library && known.is_none())
            {
                return;
            }
        }
        let mut context = self.context_of(call.thread, parent);
        if kind == Kind::Kernel || plan.function.base == "cuLibraryGetManaged" {
            context = None;
        }
        let id = self.objects.make(NewObject {
            kind,
            handle,
            origin: Origin::Found,
            made: site,
            made_ticks: call.leave.map_or(0, |leave| leave.ticks),
            parent,
            context,
        });
        if let Some(object) = self.objects.get_mut(id)
            && matches!(kind, Kind::Function | Kind::Kernel | Kind::Global)
        {
            object.name = plan
                .at("name")
                .and_then(|position| call.string(position))
                .map(String::into_boxed_str);
        }
        if let Some(object) = self.objects.get(id)
            && object.name.is_none()
            && kind == Kind::Function
        {
            // A kernel's function has its name.
            let name = parent.and_then(|parent| self.objects.get(parent)?.name.clone());
            if let Some(object) = self.objects.get_mut(id) {
                object.name = name;
            }
        }
        let mut size = size_of(plan, call, kind);
        if kind == Kind::Global && size == 0 {
            size = self.known_size(id).unwrap_or(0);
        }
        let data = self.data_of(plan, call, kind);
        self.fill(id, data, size);
    }

    /// Follows up on objects that have ended.
    fn ended(&mut self, ended: &[ObjectId], site: Site) {
        for &id in ended {
            let Some(object) = self.objects.get(id) else {
                continue;
            };
            let (kind, handle, generation) = (object.kind, object.handle, object.generation);
            match kind {
                Kind::Memory | Kind::Global => self.ranges.end(handle, id),
                Kind::Stream => self.work.destroyed((handle, u64::from(generation))),
                Kind::Link => {
                    self.writing_links.retain(|&link| link != id);
                    for cubin in self.cubins.iter_mut().filter(|cubin| cubin.link == id) {
                        cubin.freed = Some(site);
                    }
                    let dead = self
                        .cubins
                        .iter()
                        .filter(|cubin| cubin.freed.is_some())
                        .count();
                    if dead > DEAD_CUBINS
                        && let Some(oldest) =
                            self.cubins.iter().position(|cubin| cubin.freed.is_some())
                    {
                        self.cubins.remove(oldest);
                    }
                }
                Kind::Library => self.preserving.retain(|&library| library != id),
                _ => {}
            }
        }
    }

    fn special_before(&mut self, plan: &Plan, call: &Call<'_>, site: Site) {
        match plan.special {
            Special::WaitEvent => {
                let event = plan
                    .position_of(Kind::Event)
                    .map(|position| call.argument(position));
                let stream = self.call_stream(plan, call);
                if let (Some(event), Some(stream)) = (event, stream)
                    && let Some(id) = self.objects.live(Kind::Event, event)
                    && let Some(Data::Event(event)) =
                        self.objects.get(id).map(|object| &object.data)
                {
                    let clock = event.before.clone();
                    self.work.wait(stream, &clock);
                }
            }
            Special::EventRecord => {
                let event = plan
                    .position_of(Kind::Event)
                    .map(|position| call.argument(position));
                if let (Some(event), Some(stream)) = (event, self.call_stream(plan, call)) {
                    let clock = self.work.clock(stream);
                    if let Some(id) = self.objects.live(Kind::Event, event)
                        && let Some(object) = self.objects.get_mut(id)
                        && let Data::Event(event) = &mut object.data
                    {
                        event.before = clock;
                        event.record = Some(site);
                    }
                }
            }
            Special::CaptureBegin => self.work.capture_began(),
            Special::CaptureEnd => self.work.capture_ended(),
            _ => {}
        }
    }

    fn special_after(
        &mut self,
        plan: &Plan,
        call: &Call<'_>,
        context: &dyn TraceContext,
        site: Site,
    ) {
        let current = self.current(call.thread);
        match plan.special {
            Special::ContextCreate => {
                let handle = plan.at("pctx").and_then(|position| call.out(position));
                if let Some(handle) = handle {
                    let object = self.objects.live(Kind::Context, handle);
                    self.thread_mut(call.thread)
                        .stack
                        .push(Current { handle, object });
                }
            }
            Special::ContextPush => {
                let handle = call.argument(0);
                let object = self.objects.live(Kind::Context, handle);
                self.thread_mut(call.thread)
                    .stack
                    .push(Current { handle, object });
            }
            Special::ContextPop => {
                self.thread_mut(call.thread).stack.pop();
            }
            Special::ContextSet => {
                let handle = call.argument(0);
                let object = self.objects.live(Kind::Context, handle);
                let stack = &mut self.thread_mut(call.thread).stack;
                stack.pop();
                if handle != 0 {
                    stack.push(Current { handle, object });
                }
            }
            Special::ContextDestroy if current.handle == call.argument(0) => {
                self.thread_mut(call.thread).stack.pop();
            }
            Special::PrimaryRetain => {
                let handle = plan.at("pctx").and_then(|position| call.out(position));
                let device = plan.at("dev").map_or(0, |position| call.argument(position)) as i32;
                if let Some(context) = handle.and_then(|h| self.objects.live(Kind::Context, h)) {
                    let entry = self.primaries.entry(device).or_insert(Primary {
                        context,
                        retained: 0,
                    });
                    if entry.context != context {
                        *entry = Primary {
                            context,
                            retained: 0,
                        };
                    }
                    entry.retained += 1;
                }
            }
            Special::PrimaryRelease => {
                let device = call.argument(0) as i32;
                if let Some(primary) = self.primaries.get_mut(&device) {
                    primary.retained = primary.retained.saturating_sub(1);
                    if primary.retained == 0 {
                        let context = primary.context;
                        self.primaries.remove(&device);
                        let ended = self.objects.end(context, site);
                        self.ended(&ended, site);
                    }
                }
            }
            Special::PrimaryReset => {
                let device = call.argument(0) as i32;
                if let Some(context) = self.primaries.get(&device).map(|primary| primary.context) {
                    let ended = self.objects.end_children(context, site);
                    self.ended(&ended, site);
                }
            }
            Special::EnablePeer => self.peers = true,
            Special::HostRegister => {
                let address = call.argument(0);
                let size = plan.size.map_or(1, |position| call.argument(position));
                self.ranges.clear_dead(address, size);
            }
            Special::FunctionCount => {
                let owner = self.image_owner(plan, call);
                let count = plan.at("count").and_then(|position| call.out(position));
                if let (Some(owner), Some(count)) = (owner, count)
                    && let Some(data) = self.image_data_mut(owner)
                {
                    data.count = Some((count as u32, site));
                }
            }
            Special::FunctionSetAttribute | Special::FunctionSetCache => {
                if let Some(position) = plan.position_of(Kind::Function) {
                    let id = match self.find(Kind::Function, call.argument(position)) {
                        Lookup::Live(id) => Some(id),
                        _ => None,
                    };
                    self.set_attribute(plan, call, site, id, -1);
                }
            }
            Special::KernelSetAttribute | Special::KernelSetCache => {
                if let Some(position) = plan.position_of(Kind::Kernel) {
                    let id = self.objects.live(Kind::Kernel, call.argument(position));
                    let device = plan
                        .at("dev")
                        .map_or(-1, |position| call.argument(position) as i32);
                    self.set_attribute(plan, call, site, id, device);
                }
            }
            Special::LinkComplete => self.completed(plan, call, site),
            Special::GraphAllocation => self.graph_memory(plan, call, context),
            _ => {}
        }
        if let Some(shape) = plan.options {
            let options = options_of(shape, call);
            let left = numbers64(
                call.leave
                    .and_then(|leave| leave.snapshot(shape.values, field::OPTION_VALUES)),
            );
            if !options.values.is_empty() && options.values_address != 0 {
                if self.arrays.len() >= ARRAYS {
                    self.arrays.clear();
                }
                self.arrays.insert(
                    options.values_address,
                    ArrayUse {
                        numbers: options.numbers,
                        given: options.values,
                        left,
                        site,
                    },
                );
            }
        }
    }

    fn set_attribute(
        &mut self,
        plan: &Plan,
        call: &Call<'_>,
        site: Site,
        id: Option<ObjectId>,
        device: i32,
    ) {
        let argument = |name: &str| plan.at(name).map(|position| call.argument(position));
        let attribute = argument("attrib").map_or(-1, |attribute| attribute as i32);
        let value = argument("value")
            .or_else(|| argument("val"))
            .or_else(|| argument("config"));
        let (Some(object), Some(value)) = (id.and_then(|id| self.objects.get_mut(id)), value)
        else {
            return;
        };
        if !matches!(object.data, Data::Attributes(_)) {
            object.data = Data::Attributes(Box::<Attributes>::default());
        }
        if let Data::Attributes(attributes) = &mut object.data {
            attributes
                .set
                .insert((attribute, device), (value as i32 as i64, site));
        }
    }

    /// The module or library whose image a call asks about.
    pub(crate) fn image_owner(&self, plan: &Plan, call: &Call<'_>) -> Option<ObjectId> {
        [Kind::Module, Kind::Library].into_iter().find_map(|kind| {
            self.objects
                .live(kind, call.argument(plan.position_of(kind)?))
        })
    }
}
