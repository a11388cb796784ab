//! What a trace needs of the machine that replays it, gathered call by call.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use cutape_format::layout::{BlobRef, field};
use cutape_format::{Bytes, Call, Trace};
use cutape_model::{Changes, Data, MemoryKind, ObjectId, Scope, TraceState};
use cutape_registry::{
    ContextOp, FUNCTIONS, Family, Field, Function, Kind, LinkOp, Meaning, MemoryOp, Role, Shared,
    SharedKind, SharingOp, Struct, VirtualMemoryOp, structure,
};
use serde::Serialize;

use crate::api::NOT_INITIALIZED;
use crate::api::buffer::number;

/// What a trace needs of a machine.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Needs {
    /// Devices, by recorded ordinal, on which the program made contexts, put memory, or changed
    /// something; those that it only asked about are not among them.
    pub devices: BTreeSet<i32>,
    /// Those of them that it has a context of.
    pub context_devices: BTreeSet<i32>,
    /// Most bytes that were allocated on a device at one time. A lower bound: managed memory, which
    /// the driver may evict, and what the driver itself takes are not counted.
    pub device_bytes: BTreeMap<i32, u64>,
    /// The functions that are re-issued and worked, each with the index of the first call that did.
    pub functions: BTreeMap<&'static str, u64>,
    /// The loads of device code, each content once a device.
    pub images: Vec<ImageUse>,
    /// The loads whose code is not in the trace or in the files that it names.
    pub missing_images: Vec<MissingBytes>,
    /// The copies whose bytes are in a file of the program's data that is missing or has changed.
    pub missing_payloads: Vec<MissingBytes>,
    /// Pairs of devices between which the program enabled peer access.
    pub peer_access: Vec<PeerAccess>,
    /// By call that exports or imports memory: the device that has it, or that is to use it, if it
    /// is known. Memory of pools is not among it.
    pub sharing_devices: BTreeMap<u64, i32>,
    /// Whether a call before the first successful `cuInit` answered that the driver is not
    /// initialised.
    pub starts_uninitialised: bool,
}

/// A successful load of device code that has to work here as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ImageUse {
    /// The call.
    pub call: u64,
    /// The device of the calling thread's context, by recorded ordinal, if it is known.
    pub device: Option<i32>,
}

/// A device that may access the memory of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PeerAccess {
    /// The device, by recorded ordinal.
    pub device: i32,
    /// The one with the memory.
    pub peer: i32,
    /// The first call that enabled it.
    pub call: u64,
}

/// A call whose bytes are not to be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MissingBytes {
    /// The call.
    pub call: u64,
    /// Its exported name.
    pub function: String,
    /// Why.
    pub why: String,
}

impl MissingBytes {
    fn of(call: &Call<'_>, why: String) -> Self {
        Self {
            call: call.index,
            function: call.signature.name.clone(),
            why,
        }
    }
}

/// Where memory was allocated: the context decides, and its device may be seen only later.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Device(i32),
    Context(ObjectId),
}

/// Memory that is allocated.
#[derive(Clone, Copy, Debug)]
struct Allocated {
    owner: Owner,
    size: i64,
}

/// What the calls of a function can say about needs: most say nothing, and a trace has many of
/// them.
#[derive(Clone, Copy, Debug)]
struct Interest {
    first: u64,
    contexts: bool,
    devices: bool,
    images: bool,
    sources: bool,
}

impl Interest {
    fn of(function: &'static Function, first: u64) -> Self {
        let any = |said: fn(Role) -> bool| function.params.iter().any(|param| said(param.role));
        let of_context = |role| match role {
            Role::Use(kind) | Role::Destroy(kind) | Role::Get(kind) => {
                matches!(kind, Kind::Context | Kind::Device)
            }
            Role::Make(kind, _) | Role::Find(kind, _) => kind == Kind::Context,
            _ => false,
        };
        // A call uses the devices that it names if it makes something or does nothing but act; a
        // question does not.
        let makes = any(|role| matches!(role, Role::Make(..) | Role::Find(Kind::Context, _)));
        let asks = any(|role| {
            matches!(
                role,
                Role::Out(_)
                    | Role::Text(_)
                    | Role::OutString
                    | Role::Get(_)
                    | Role::Find(..)
                    | Role::FindMany(..)
            )
        });
        let names_device = function.params.iter().any(|param| match param.role {
            Role::Use(Kind::Device) => true,
            Role::Value | Role::In(_) => device_members(param.c_type).next().is_some(),
            _ => false,
        });
        Self {
            first,
            contexts: any(of_context),
            devices: (makes || !asks) && names_device,
            images: any(|role| matches!(role, Role::Image | Role::String))
                || matches!(function.family, Family::Link(_)),
            sources: any(|role| matches!(role, Role::HostRead(_)))
                || matches!(function.family, Family::Copy(_)),
        }
    }
}

/// The members of a struct, by value or behind a pointer of that C type, that may be a device.
fn device_members(c_type: &str) -> impl Iterator<Item = (&'static Struct, &'static Field)> {
    let name = c_type.trim_end_matches(['*', ' ']);
    let name = name.strip_prefix("const ").unwrap_or(name);
    let layout = structure(name).filter(|layout| !layout.token);
    layout.into_iter().flat_map(|layout| {
        let is_device = |field: &&Field| field.meaning == Meaning::Handle(Kind::Device);
        layout
            .fields
            .iter()
            .filter(is_device)
            .map(move |field| (layout, field))
    })
}

/// Follows a trace.
#[derive(Debug)]
pub(crate) struct Observer<'t> {
    trace: &'t Trace,
    needs: Needs,
    /// By the registry's id.
    interests: Vec<Option<Interest>>,
    initialised: bool,
    /// The recorded process.
    process: TraceState,
    /// Allocations and frees in order.
    changes: Vec<(Owner, i64)>,
    /// What is allocated.
    live: HashMap<ObjectId, Allocated>,
    /// Cubins of link states that live: address, bytes.
    cubins: HashMap<u64, (u64, u64)>,
    seen: HashSet<(BlobRef, Option<i32>)>,
}

/// The snapshots of a call that are device code.
pub(crate) fn images<'c, 't>(
    call: &'c Call<'t>,
    function: &'static Function,
) -> impl Iterator<Item = cutape_format::Snapshot<'t>> + use<'c, 't> {
    call.snapshots().filter(move |snapshot| {
        let param = function.params.get(usize::from(snapshot.parameter));
        match snapshot.field {
            field::FATBIN | field::FILE => true,
            field::POINTEE => param.is_some_and(|param| {
                param.role == Role::Image || is_link_input(function, snapshot.parameter)
            }),
            _ => false,
        }
    })
}

/// True for the device code that a link takes in.
fn is_link_input(function: &Function, position: u8) -> bool {
    match function.family {
        Family::Link(LinkOp::AddData { data, .. }) => data == position,
        _ => false,
    }
}

impl<'t> Observer<'t> {
    pub(crate) fn new(trace: &'t Trace) -> Self {
        Self {
            trace,
            needs: Needs::default(),
            interests: vec![None; FUNCTIONS.len()],
            initialised: false,
            process: TraceState::new(Scope::Work),
            changes: Vec::new(),
            live: HashMap::new(),
            cubins: HashMap::new(),
            seen: HashSet::new(),
        }
    }

    /// Takes in the next call; expects every call, in order.
    pub(crate) fn observe(
        &mut self,
        call: &Call<'t>,
        function: &'static Function,
        is_reissued: bool,
    ) {
        if let Family::Sharing(op) = function.family {
            self.observe_sharing(call, op);
        }
        let freed = self.freed(call, function);
        let mut changes = self.process.observe(call).unwrap_or_default();
        changes.ended.extend(freed);
        self.follow_memory(call, function, &changes, is_reissued);
        if is_reissued {
            self.observe_reissued(call, function);
        }
    }

    /// Takes in a call that is going to be re-issued.
    fn observe_reissued(&mut self, call: &Call<'t>, function: &'static Function) {
        let Some(result) = call.result() else { return };
        self.needs.starts_uninitialised |= !self.initialised && result == NOT_INITIALIZED;
        if !call.succeeded() {
            return;
        }
        let Some(place) = self.interests.get_mut(usize::from(function.id)) else {
            return;
        };
        let interest = *place.get_or_insert_with(|| Interest::of(function, call.index));
        self.initialised |= function.family == Family::Init;
        if interest.contexts {
            self.follow_contexts(call, function);
        }
        if interest.devices {
            self.follow_devices(call, function);
        }
        if interest.images {
            self.follow_images(call, function);
        }
        if interest.sources {
            self.follow_sources(call);
        }
    }

    /// Takes in a call that exports or imports, whether it is re-issued or not.
    fn observe_sharing(&mut self, call: &Call<'t>, op: SharingOp) {
        if !call.succeeded() {
            return;
        }
        let kind_of = |shared: Shared| match shared.kind {
            SharedKind::Memory => Some(Kind::Memory),
            SharedKind::Allocation => Some(Kind::Allocation),
            SharedKind::Event | SharedKind::Pool | SharedKind::PoolMemory => None,
        };
        let device = match op {
            SharingOp::Export(shared) => {
                let object = call.argument(usize::from(shared.object));
                let objects = &self.process.state.objects;
                let id = kind_of(shared).and_then(|kind| objects.live(kind, object));
                let known = id.and_then(|id| self.live.get(&id));
                known.and_then(|known| self.device_of(known.owner))
            }
            SharingOp::Import(shared) => {
                kind_of(shared).and_then(|_| self.current_device(call.thread))
            }
            SharingOp::Close => None,
        };
        self.needs
            .sharing_devices
            .extend(device.map(|device| (call.index, device)));
    }

    /// The context that is current in a thread, also if it has ended: the handle of a primary
    /// context stays.
    fn current(&self, thread: u32) -> Option<ObjectId> {
        let state = &self.process.state;
        let current = state.contexts.current(thread);
        let ended = || state.objects.find(Kind::Context, current.handle).known();
        current.object.or_else(ended)
    }

    fn current_device(&self, thread: u32) -> Option<i32> {
        self.device_of(Owner::Context(self.current(thread)?))
    }

    fn device_of(&self, owner: Owner) -> Option<i32> {
        match owner {
            Owner::Device(device) => Some(device),
            Owner::Context(context) => match self.process.state.objects.get(context)?.data {
                Data::Context(context) => Some(context.device),
                _ => None,
            },
        }
    }

    fn follow_contexts(&mut self, call: &Call<'t>, function: &'static Function) {
        if function.family == Family::Context(ContextOp::EnablePeer) {
            let objects = &self.process.state.objects;
            let peer = objects.find(Kind::Context, call.argument(0)).known();
            let peer = peer.and_then(|peer| self.device_of(Owner::Context(peer)));
            let user = self.current_device(call.thread);
            let known = &mut self.needs.peer_access;
            if let (Some(user), Some(peer)) = (user, peer)
                && !known
                    .iter()
                    .any(|known| (known.device, known.peer) == (user, peer))
            {
                known.push(PeerAccess {
                    device: user,
                    peer,
                    call: call.index,
                });
            }
        }
        let device = function
            .params
            .iter()
            .position(|param| param.role == Role::Use(Kind::Device));
        let makes = function.params.iter().position(|param| {
            matches!(
                param.role,
                Role::Make(Kind::Context, _) | Role::Find(Kind::Context, _)
            )
        });
        if let (Some(device), Some(_)) = (device, makes.and_then(|made| call.out(made))) {
            let device = call.argument(device) as i32;
            self.needs.context_devices.insert(device);
        }
    }

    /// The devices that a call names in its arguments and in structs.
    fn follow_devices(&mut self, call: &Call<'t>, function: &'static Function) {
        for (position, param) in function.params.iter().enumerate() {
            let value = call.argument(position).to_le_bytes();
            let bytes = match param.role {
                Role::Use(Kind::Device) => {
                    self.uses(call.argument(position));
                    continue;
                }
                Role::Value => Some(&value[..]),
                Role::In(_) => call
                    .snapshot(position, field::POINTEE)
                    .and_then(|snapshot| snapshot.bytes.inline()),
                _ => None,
            };
            for (layout, member) in device_members(param.c_type) {
                let size = (layout.size as usize).max(1);
                for element in bytes.unwrap_or_default().chunks_exact(size) {
                    if let Some(device) = device_in(element, member) {
                        self.uses(device);
                    }
                }
            }
        }
    }

    fn uses(&mut self, device: u64) {
        let device = device as i32;
        if device >= 0 {
            self.needs.devices.insert(device);
        }
    }

    /// The memory of a pool that a call frees, also if a graph does so later: counted at once, this
    /// makes the sum a lower bound.
    fn freed(&self, call: &Call<'t>, function: &Function) -> Option<ObjectId> {
        if function.family != Family::Memory(MemoryOp::FreeAsync) || !call.succeeded() {
            return None;
        }
        let objects = &self.process.state.objects;
        objects.live(Kind::Memory, call.argument(0))
    }

    /// A released allocation may still be mapped: this makes the sum a lower bound, too.
    fn follow_memory(
        &mut self,
        call: &Call<'t>,
        function: &'static Function,
        changes: &Changes,
        is_reissued: bool,
    ) {
        for id in changes.ended.iter().chain(&changes.superseded) {
            if let Some(gone) = self.live.remove(id) {
                self.changes.push((gone.owner, -gone.size));
            }
        }
        for &id in changes.created.iter().filter(|_| is_reissued) {
            let state = &self.process.state;
            let Some(object) = state.objects.get(id) else {
                continue;
            };
            let owner = match MemoryKind::of(object) {
                Some(MemoryKind::Device | MemoryKind::Pool) => {
                    let owner = self.current(call.thread).map(Owner::Context);
                    owner.map(|owner| self.device_of(owner).map_or(owner, Owner::Device))
                }
                Some(MemoryKind::Physical) => physical_device(call, function).map(Owner::Device),
                Some(MemoryKind::Managed | MemoryKind::PinnedHost) | None => None,
            };
            if let Some(owner) = owner {
                let size = i64::try_from(object.size).unwrap_or(i64::MAX);
                self.live.insert(id, Allocated { owner, size });
                self.changes.push((owner, size));
            }
        }
    }

    fn follow_images(&mut self, call: &Call<'t>, function: &'static Function) {
        match function.family {
            Family::Link(LinkOp::Complete { cubin, size }) => {
                let out = |position: u8| call.out(usize::from(position));
                if let (Some(address), Some(size)) = (out(cubin), out(size)) {
                    self.cubins.insert(call.argument(0), (address, size));
                }
                return;
            }
            Family::Link(LinkOp::Destroy) => drop(self.cubins.remove(&call.argument(0))),
            _ => {}
        }
        let device = self.current_device(call.thread);
        for snapshot in images(call, function) {
            let address = call.argument(usize::from(snapshot.parameter));
            // The replay links it again, for this machine's device.
            if self
                .cubins
                .values()
                .any(|&(start, size)| address.wrapping_sub(start) < size)
            {
                continue;
            }
            let blob = match snapshot.bytes {
                Bytes::Inline(_) => None,
                Bytes::Blob(blob) => Some(blob),
                Bytes::InFile(range) => Some(range.blob()),
                Bytes::Omitted(_) | Bytes::Hashed(..) | Bytes::Unreadable => {
                    self.missing(call, "its bytes were not recorded".to_owned());
                    continue;
                }
            };
            if let Some(blob) = blob {
                if !self.seen.insert((blob, device)) {
                    continue;
                }
                if let Bytes::InFile(_) = snapshot.bytes
                    && let Err(damage) = self.trace.resolve(snapshot.bytes)
                {
                    self.missing(call, damage.what);
                    continue;
                }
            }
            let image = ImageUse {
                call: call.index,
                device,
            };
            if self.needs.images.last() != Some(&image) {
                self.needs.images.push(image);
            }
        }
    }

    /// Looks for the files that hold what a call copies. What looks as it did is read only by the
    /// copy itself.
    fn follow_sources(&mut self, call: &Call<'t>) {
        for snapshot in call.snapshots() {
            let Bytes::InFile(range) = snapshot.bytes else {
                continue;
            };
            let blob = range.blob();
            if self.trace.blob_position(blob.position).is_none()
                && self.seen.insert((blob, None))
                && range.look().is_err()
                && let Err(damage) = self.trace.resolve(snapshot.bytes)
            {
                self.needs
                    .missing_payloads
                    .push(MissingBytes::of(call, damage.what));
            }
        }
    }

    fn missing(&mut self, call: &Call<'t>, why: String) {
        self.needs.missing_images.push(MissingBytes::of(call, why));
    }

    /// What was found.
    pub(crate) fn finish(mut self) -> Needs {
        let mut needs = std::mem::take(&mut self.needs);
        needs.functions = FUNCTIONS
            .iter()
            .zip(&self.interests)
            .filter_map(|(function, interest)| Some((function.name, interest.as_ref()?.first)))
            .collect();
        let mut allocated: HashMap<i32, i64> = HashMap::new();
        for &(owner, change) in &self.changes {
            let Some(device) = self.device_of(owner) else {
                continue;
            };
            let sum = allocated.entry(device).or_default();
            *sum = sum.saturating_add(change);
            let most = needs.device_bytes.entry(device).or_default();
            *most = (*most).max(u64::try_from(*sum).unwrap_or(0));
        }
        needs
    }
}

/// The device whose memory `cuMemCreate` allocates.
fn physical_device(call: &Call<'_>, function: &Function) -> Option<i32> {
    let Family::VirtualMemory(VirtualMemoryOp::Create { properties, .. }) = function.family else {
        return None;
    };
    let snapshot = call.snapshot(usize::from(properties), field::POINTEE)?;
    let (_, member) = device_members("CUmemAllocationProp").next()?;
    device_in(snapshot.bytes.inline()?, member).map(|device| device as i32)
}

/// The device in a member of a struct, if that member counts.
fn device_in(element: &[u8], member: &Field) -> Option<u64> {
    let counts = member.when.is_none_or(|when| when.holds(element));
    let start = member.offset as usize;
    let value = element.get(start..start + member.size as usize)?;
    counts.then(|| number(value))
}
