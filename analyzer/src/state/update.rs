//! What a call changes. Only calls that succeeded change the model; one in flight has changed
//! nothing yet.

use cutape_format::layout::field;
use cutape_format::{Call, Note};
use cutape_model::{Changes, ObjectId, Site};
use cutape_registry::{
    Class, ContextOp, Family, FunctionOp, GraphOp, Kind, LinkOp, MemoryOp, NodeKind, NodeParams,
};

use super::data::{Data, ImageBytes, ImageData, LinkData, MemoryOrigin, Own, Resource, TensorMap};
use super::growth::fingerprint;
use super::links::{BINARY_IS_PRESERVED, library_option};
use super::{
    ARRAYS, ArrayUse, DEAD_CUBINS, DriverName, NAMES, State, TENSOR_MAPS, image_places,
    image_snapshot, numbers64, options_of,
};
use crate::context::TraceContext;
use crate::plan::{Ordered, Plan, Step};
use crate::rules::code;

/// CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT.
const CARVEOUT: i32 = 9;

impl State {
    /// Takes in the call's notes; before its checks.
    pub(crate) fn notes(&mut self, call: &Call<'_>) {
        for note in call.notes() {
            match note {
                Note::Thread(thread) => self.thread_mut(call.thread).number = thread.number,
                Note::Layout(handle, layout) => self.layouts.note(handle, layout),
                _ => {}
            }
        }
    }

    /// Takes in what memory holds where a cut trace begins; with the objects that exist then.
    pub(crate) fn restore_memory(&mut self, call: &Call<'_>) {
        // A snapshot of the recorder says nothing about who has written.
        if call
            .notes()
            .any(|note| matches!(note, Note::MemorySnapshot(_)))
        {
            return;
        }
        for note in call.notes() {
            if let Note::Memory(note, ..) = note
                && note.owner == 0
            {
                self.note_restored(note.address, note.length);
            }
        }
    }

    /// Creates the objects whose creating calls have returned by `now`; before every call, with the
    /// time of its entry.
    #[inline]
    pub(crate) fn settle(&mut self, now: u64, thread: u32) {
        self.model.settle(now, thread);
        self.follow_changes();
    }

    /// Applies a call; `reported` if there is a finding about it.
    pub(crate) fn update(
        &mut self,
        plan: &Plan,
        call: &Call<'_>,
        context: &dyn TraceContext,
        site: Site,
        reported: bool,
    ) {
        self.note_span(plan, call, site);
        let Some(leave) = call.leave else {
            return;
        };
        if leave.result != 0 && plan.function.returns_result {
            self.note_error(plan, call, site, leave.result);
        }
        if leave.result != 0 || !plan.function.returns_result {
            // A poll is no failure.
            let reported = match leave.result {
                code::NOT_READY => reported,
                result => {
                    let reported = self.follow_undefined(plan, call, reported);
                    let reported = self.follow_refused(plan, call, site, reported);
                    self.follow_capture(call, result, reported)
                }
            };
            self.failed(plan, call, site, reported);
            self.model.apply_failed(&plan.effects, call);
            self.link_values(plan, call);
            return;
        }
        self.note_uses(plan, call);
        if plan.launched.is_some() {
            self.has_launched = true;
            self.note_host_parameters(plan, call, site);
        } else if !plan.host_operands.is_empty() {
            self.note_host_operands(plan, call, site);
        }
        // Handles are looked up before the call ends any of them.
        self.note_success(plan, call);
        self.note_initialised(plan, call);
        if plan.calls_back {
            self.note_host_function(plan, call, site);
        }
        let work = self.model.submit(&plan.effects, call);
        if let Some(work) = work {
            self.note_work(plan, call, site, work);
            self.note_recent(plan, call, site, work);
            self.note_kernel(plan, call, site);
            if !self.ordering.current.is_empty() || plan.ordered == Ordered::Pool || plan.copies {
                self.note_accesses(plan, call, work);
            }
        }
        if plan.launched.is_some() {
            self.launched(plan, call, site);
        } else if plan.written_address.is_some() {
            self.note_written(plan, call, site);
        }
        if plan.only_submits {
            if plan.meets_errata {
                self.note_errata(plan, call, site, work);
            }
            if plan.in_default_stream {
                self.note_default_accesses(plan, call);
            }
            return;
        }
        if !self.ordering.freed.is_empty() {
            self.forget_reused(plan, call);
        }
        self.forget_unmapped(plan, call);
        let mut own = |kind| own_data(plan, call, kind);
        self.model.apply(&plan.effects, call, &mut own);
        self.follow_changes();
        self.outputs(plan, call, site);
        self.special(plan, call, context, site);
        if plan.meets_errata {
            self.note_errata(plan, call, site, work);
        }
        self.link_values(plan, call);
        if plan.in_default_stream {
            self.note_default_accesses(plan, call);
        }
    }

    /// Follows up on objects that became known or ended.
    #[inline]
    fn follow_changes(&mut self) {
        if let Some(changes) = self.model.take_changes() {
            self.follow(&changes);
        }
    }

    #[cold]
    fn follow(&mut self, changes: &Changes) {
        for &id in &changes.created {
            self.created(id);
            self.ordering_created(id);
            self.grow(id);
        }
        for id in changes.ended.iter().chain(&changes.superseded) {
            self.writing_links.retain(|link| link != id);
            self.preserving.retain(|library| library != id);
            self.ordering_ended(*id);
            self.shrink(*id);
        }
        for &id in changes.ended.iter().chain(&changes.superseded) {
            self.launches.forget(id);
        }
        for &id in &changes.ended {
            self.free_cubins(id);
            self.forget_beside(id);
        }
    }

    fn created(&mut self, id: ObjectId) {
        let Some(object) = self.model.objects.get(id) else {
            return;
        };
        match &object.data {
            Data::Context(data) => {
                let device = data.device;
                if !self.devices.contains(&device) {
                    self.devices.push(device);
                }
            }
            Data::Other(Own::Image(data)) if data.preserved => self.preserving.push(id),
            Data::Other(Own::Link(data)) if data.options.has_outputs() => {
                self.writing_links.push(id);
            }
            _ if object.kind == Kind::Global && object.size == 0 => {
                if let Some(size) = self.size_in_image(id) {
                    self.model.set_size(id, size);
                }
            }
            _ => {}
        }
    }

    /// Forgets what is kept by handle of an object that has ended.
    fn forget_beside(&mut self, id: ObjectId) {
        let Some(object) = self.model.objects.get(id) else {
            return;
        };
        match object.kind {
            Kind::Context => {
                let handle = object.handle;
                self.peers
                    .retain(|&(current, peer), _| current != handle && peer != handle);
            }
            Kind::Allocation => {
                self.multicasts.remove(&object.handle);
            }
            _ => {}
        }
    }

    /// The size of a global variable, as its parsed image says.
    fn size_in_image(&self, id: ObjectId) -> Option<u64> {
        let object = self.objects.get(id)?;
        let image = self.image_data(object.parent?)?.parsed.get()?.as_ref()?;
        let name = object.name.as_deref()?;
        // The trace does not say which entry the driver chose, and code for another architecture
        // may have a variable of another size.
        let sizes = image.entries.iter().map(|entry| {
            let content = entry.content.as_ref().ok()?;
            Some(content.global(name)?.size)
        });
        let sizes: Option<Vec<u64>> = sizes.collect();
        let sizes = sizes?;
        let &size = sizes.first()?;
        sizes.iter().all(|&other| other == size).then_some(size)
    }

    /// Marks the cubins of an ended link state as freed.
    fn free_cubins(&mut self, link: ObjectId) {
        let Some(end) = self.model.objects.end_of(link) else {
            return;
        };
        let mut freed = 0;
        for cubin in &mut self.cubins {
            if cubin.link == link {
                cubin.freed = Some(end.site);
            }
            freed += usize::from(cubin.freed.is_some());
        }
        if freed > DEAD_CUBINS
            && let Some(oldest) = self.cubins.iter().position(|cubin| cubin.freed.is_some())
        {
            self.cubins.remove(oldest);
        }
    }

    /// Remembers which modules a call's work needs.
    fn note_work(&mut self, plan: &Plan, call: &Call<'_>, site: Site, work: (u32, u64)) {
        if let Some(position) = plan.launched {
            let function = self
                .objects
                .resolve(Kind::Function, call.argument(position));
            self.note_module_use(function.live(), work, site);
        }
        if plan.takes_addresses && self.objects.has_had(Kind::Global) {
            for &(position, step) in &plan.steps {
                if let Step::Device(_) = step {
                    let id = self.memory_at(call.argument(position));
                    let object = id.and_then(|id| self.objects.get(id));
                    let global = object.filter(|object| object.kind == Kind::Global);
                    self.note_module_use(global.and(id), work, site);
                }
            }
        }
    }

    /// Work needs the module or library that a function or a variable belongs to. A library's module
    /// lives as long as the library.
    fn note_module_use(&mut self, part: Option<ObjectId>, work: (u32, u64), site: Site) {
        let owners = part
            .into_iter()
            .flat_map(|part| self.objects.ancestors(part));
        let of_code = owners.filter(|&owner| {
            let object = self.objects.get(owner);
            object.is_some_and(|object| matches!(object.kind, Kind::Module | Kind::Library))
        });
        let Some(module) = of_code.last() else {
            return;
        };
        let Some(data) = self.image_data_mut(module) else {
            return;
        };
        let mut known = data.pending.iter_mut();
        if let Some(entry) = known.find(|(known, _)| known.0 == work.0) {
            *entry = (work, site);
            return;
        }
        let mut pending = std::mem::take(&mut data.pending);
        pending.retain(|&((stream, number), _)| !self.order.is_done(stream, number));
        pending.push((work, site));
        if let Some(data) = self.image_data_mut(module) {
            data.pending = pending;
        }
    }

    /// A call succeeded: what it returned is no longer undefined, and strings of the driver are
    /// known.
    fn outputs(&mut self, plan: &Plan, call: &Call<'_>, site: Site) {
        self.defined(plan, call);
        if let Some(position) = plan.name_out {
            self.driver_name(plan, call, site, position);
        }
    }

    /// A call returned a string of the driver's.
    fn driver_name(&mut self, plan: &Plan, call: &Call<'_>, site: Site, position: usize) {
        let address = call.out(position).filter(|&address| address != 0);
        let leave = call.leave;
        let text = leave.and_then(|leave| leave.snapshot(position, field::TEXT)?.bytes.inline());
        let owner = [Kind::Function, Kind::Kernel].into_iter().find_map(|kind| {
            let handle = plan.handle_of(call, kind)?;
            self.objects.live(kind, handle)
        });
        if let (Some(address), Some(text), Some(owner)) = (address, text, owner) {
            if self.names.len() >= NAMES {
                self.names.clear();
            }
            let text = crate::decode::text(text);
            self.names.insert(address, DriverName { owner, text, site });
        }
    }

    fn special(&mut self, plan: &Plan, call: &Call<'_>, context: &dyn TraceContext, site: Site) {
        self.learn_of_launches(plan, call, context, site);
        // What is not replayable about an allocation is that it goes to another process.
        if plan.function.class == Class::Unreplayable
            && let Some(handle) = plan.handle_of(call, Kind::Allocation)
            && let Some(group) = self.multicasts.get_mut(&handle)
        {
            group.is_shared = true;
        }
        match plan.function.family {
            Family::Init => self.initialized = true,
            Family::ModuleLoad(_) | Family::LibraryLoad(_) if !self.cubins.is_empty() => {
                self.note_linked(plan, call);
            }
            Family::Context(ContextOp::EnablePeer | ContextOp::DisablePeer) => {
                let current = self.contexts.current(call.thread).handle;
                let key = (current, call.argument(0));
                match plan.function.family {
                    Family::Context(ContextOp::EnablePeer) => self.peers.insert(key, site),
                    _ => self.peers.remove(&key),
                };
            }
            Family::Checkpoint(_) => {
                if let Some(at) = plan.at("pid") {
                    self.checkpoints.insert(call.argument(at) as i32, site);
                }
            }
            Family::Multicast(operation) => self.multicast(plan, call, context, operation),
            Family::Function(FunctionOp::Count) | Family::Kernel(FunctionOp::Count) => {
                let owner = self.image_owner(plan, call);
                let count = plan.at("count").and_then(|position| call.out(position));
                if let (Some(owner), Some(count)) = (owner, count)
                    && let Some(data) = self.image_data_mut(owner)
                {
                    data.count = Some((count as u32, site));
                }
            }
            Family::Function(FunctionOp::SetAttribute | FunctionOp::SetCacheConfig) => {
                if let Some(handle) = plan.handle_of(call, Kind::Function) {
                    let id = self.objects.resolve(Kind::Function, handle).live();
                    self.set_attribute(plan, call, site, id, -1);
                }
            }
            Family::Kernel(FunctionOp::SetAttribute | FunctionOp::SetCacheConfig) => {
                if let Some(handle) = plan.handle_of(call, Kind::Kernel) {
                    let id = self.objects.live(Kind::Kernel, handle);
                    let device = plan.at("dev").map_or(-1, |at| call.argument(at) as i32);
                    self.set_attribute(plan, call, site, id, device);
                }
            }
            Family::Link(LinkOp::Complete { cubin, size }) => {
                self.completed(call, site, usize::from(cubin), usize::from(size));
            }
            Family::Link(LinkOp::AddData { .. } | LinkOp::AddFile { .. }) => {
                self.input_added(plan, call, context, site);
            }
            Family::Graph(GraphOp::AddNode(NodeParams {
                position,
                kind: NodeKind::Allocation | NodeKind::Any,
            })) => self.graph_memory(plan, call, context, usize::from(position)),
            _ => {}
        }
        if plan.tensor_map.is_some() {
            self.encoded(plan, call, site);
        }
        self.has_textures |= plan.describes;
        if let Some(shape) = plan.options {
            let options = options_of(shape, call);
            let leave = call.leave;
            let left = leave.and_then(|leave| leave.snapshot(shape.values, field::OPTION_VALUES));
            if !options.values.is_empty() && options.values_address != 0 {
                if self.arrays.len() >= ARRAYS {
                    self.arrays.clear();
                }
                let used = ArrayUse {
                    numbers: options.numbers,
                    given: options.values,
                    left: numbers64(left),
                    site,
                };
                self.arrays.insert(options.values_address, used);
            }
        }
    }

    /// A call encoded a tensor map.
    fn encoded(&mut self, plan: &Plan, call: &Call<'_>, site: Site) {
        let address = plan.at("globalAddress").map(|at| call.argument(at));
        let bytes = plan
            .tensor_map
            .and_then(|position| call.out_bytes(position));
        if let (Some(address), Some(map)) = (address, bytes.and_then(<[u8]>::first_chunk)) {
            if self.tensor_maps.len() >= TENSOR_MAPS {
                self.tensor_maps.clear();
            }
            self.tensor_maps.insert(*map, TensorMap { address, site });
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
        if let (Some(id), Some(value)) = (id, value)
            && let Some(attributes) = self.attributes_mut(id)
        {
            let value = i64::from(value as i32);
            attributes.set.insert((attribute, device), (value, site));
            self.has_preferences |= matches!(attribute, -1 | CARVEOUT);
        }
    }

    /// The module or library that a call is about.
    pub(crate) fn image_owner(&self, plan: &Plan, call: &Call<'_>) -> Option<ObjectId> {
        [Kind::Module, Kind::Library].into_iter().find_map(|kind| {
            let handle = plan.handle_of(call, kind)?;
            self.objects.live(kind, handle)
        })
    }
}

/// What rules need to know of a new object.
fn own_data(plan: &Plan, call: &Call<'_>, kind: Kind) -> Option<Own> {
    match kind {
        Kind::Module | Kind::Library if plan.source.is_some() => {
            Some(Own::Image(Box::new(image_data(plan, call))))
        }
        Kind::Memory => {
            let Family::Memory(operation) = plan.function.family else {
                return None;
            };
            let origin = match operation {
                MemoryOp::Allocate | MemoryOp::AllocatePitch { .. } => MemoryOrigin::Device,
                MemoryOp::AllocateManaged => MemoryOrigin::Managed,
                MemoryOp::AllocateAsync => MemoryOrigin::Pool,
                MemoryOp::Free | MemoryOp::FreeAsync | MemoryOp::AddressRange => return None,
            };
            Some(Own::Memory(origin))
        }
        Kind::Link => {
            let options = plan.options.map(|shape| options_of(shape, call));
            Some(Own::Link(Box::new(LinkData {
                options: options.unwrap_or_default(),
                ..Default::default()
            })))
        }
        Kind::TextureObject | Kind::SurfaceObject => {
            let snapshot = call.snapshot(plan.at("pResDesc")?, field::POINTEE)?;
            Resource::of(snapshot.bytes.inline()?).map(Own::Texture)
        }
        Kind::Array => Some(Own::Array {
            flags: array_flags(plan, call).unwrap_or(0),
        }),
        _ => None,
    }
}

/// The flags of a descriptor that has any.
fn array_flags(plan: &Plan, call: &Call<'_>) -> Option<u64> {
    const FLAGS: usize = cutape_registry::layout::offset_of("CUDA_ARRAY3D_DESCRIPTOR", "Flags");
    let mut params = plan.function.params.iter();
    let position = params.position(|param| param.c_type.contains("ARRAY3D_DESCRIPTOR *"))?;
    let bytes = call.snapshot(position, field::POINTEE)?.bytes.inline()?;
    let word = bytes.get(FLAGS..)?.first_chunk()?;
    Some(u32::from_le_bytes(*word).into())
}

fn image_data(plan: &Plan, call: &Call<'_>) -> ImageData {
    let mut data = ImageData::default();
    if let Some(snapshot) = image_snapshot(plan, call) {
        data.source = ImageBytes::of(snapshot.bytes);
        data.fingerprint = fingerprint(snapshot.bytes);
    }
    data.places = image_places(plan, call);
    data.preserved = plan.image.is_some()
        && library_option(plan, call, BINARY_IS_PRESERVED).is_some_and(|value| value != 0);
    data
}
