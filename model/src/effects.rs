//! What a function does to the driver's state, resolved once from the registry's roles instead of
//! at every call.

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_registry::{
    Arguments, ContextOp, CopyOp, EventOp, Family, Function, GraphOp, HostMemoryOp, ImplicitWait,
    Kind, LaunchOp, MemoryType, Param, Parent, PrimaryOp, Role, Shared, SharedKind, SharingOp,
    StreamMemoryOp, StreamOp, Transfer, VirtualMemoryOp, Waits, Width,
};

use crate::graphs::GraphAction;
use crate::site::Site;

const CONFIG_STREAM: usize = cutape_registry::layout::offset_of("CUlaunchConfig", "hStream");

/// Something that a successful call does to the object of one parameter.
#[derive(Clone, Copy, Debug)]
pub enum Effect {
    /// It creates one, which the program owns.
    Create(Kind, Parent),
    /// It looks one up in its parent, which owns it.
    Find(Kind, Parent),
    /// As `Find`, for an array.
    FindMany(Kind, Parent),
    /// It returns one that existed before.
    Get(Kind),
    /// It ends one.
    Destroy(Kind),
}

/// What a function does to the state beyond the roles of its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    None,
    Context(ContextOp),
    Primary(PrimaryOp),
    EventRecord,
    EventElapsed,
    WaitEvent,
    /// The stream calls a function of the program.
    HostFunction,
    HostRegister,
    VirtualMemory,
    /// Waits for the work of the default stream.
    SynchronousCopy,
    BeginCapture,
    EndCapture,
    GraphLaunch,
    /// The stream waits for a value in memory or a semaphore of another API.
    UnknownWait,
    /// Uses an event in a way that the model does not follow.
    OtherEvent,
}

impl Action {
    fn of(function: &Function) -> Self {
        match function.family {
            Family::Context(
                operation @ (ContextOp::Create
                | ContextOp::Destroy
                | ContextOp::Push
                | ContextOp::Pop
                | ContextOp::Set
                | ContextOp::Current
                | ContextOp::Device),
            ) => Self::Context(operation),
            Family::PrimaryContext(
                operation @ (PrimaryOp::Retain | PrimaryOp::Release | PrimaryOp::Reset),
            ) => Self::Primary(operation),
            Family::Event(EventOp::Record) => Self::EventRecord,
            Family::Event(EventOp::ElapsedTime) => Self::EventElapsed,
            Family::Sharing(SharingOp::Export(Shared {
                kind: SharedKind::Event,
                ..
            })) => Self::OtherEvent,
            Family::Stream(StreamOp::WaitEvent) => Self::WaitEvent,
            Family::Stream(StreamOp::BeginCapture) => Self::BeginCapture,
            Family::Stream(StreamOp::EndCapture) => Self::EndCapture,
            Family::HostFunction | Family::StreamCallback => Self::HostFunction,
            Family::HostMemory(HostMemoryOp::Register) => Self::HostRegister,
            Family::VirtualMemory(
                VirtualMemoryOp::Reserve
                | VirtualMemoryOp::FreeReservation
                | VirtualMemoryOp::Map { .. }
                | VirtualMemoryOp::Unmap { .. }
                | VirtualMemoryOp::SetAccess { .. },
            ) => Self::VirtualMemory,
            Family::Copy(copy) if function.stream.is_none() && reaches_host(copy) => {
                Self::SynchronousCopy
            }
            Family::Graph(GraphOp::Launch) => Self::GraphLaunch,
            Family::StreamMemory(StreamMemoryOp::Wait | StreamMemoryOp::Batch) => Self::UnknownWait,
            Family::Plain
                if uses(function, Kind::ExternalSemaphore) && function.stream.is_some() =>
            {
                Self::UnknownWait
            }
            Family::Plain if uses(function, Kind::Event) => Self::OtherEvent,
            Family::Plain
            | Family::Init
            | Family::ProcAddress { .. }
            | Family::ExportTable
            | Family::DriverVersion
            | Family::Device(_)
            | Family::Context(_)
            | Family::Green(_)
            | Family::Checkpoint(_)
            | Family::PrimaryContext(_)
            | Family::ModuleLoad(_)
            | Family::LibraryLoad(_)
            | Family::ModuleUnload
            | Family::LibraryUnload
            | Family::LoadingMode
            | Family::LibraryModule
            | Family::Global(_)
            | Family::Function(_)
            | Family::Kernel(_)
            | Family::Link(_)
            | Family::Launch(_)
            | Family::Occupancy(_)
            | Family::Copy(_)
            | Family::Memset
            | Family::Prefetch
            | Family::Memory(_)
            | Family::HostMemory(_)
            | Family::VirtualMemory(_)
            | Family::Multicast(_)
            | Family::Pool(_)
            | Family::Sharing(_)
            | Family::Pointer(_)
            | Family::ExternalBuffer { .. }
            | Family::Stream(_)
            | Family::StreamMemory(_)
            | Family::Event(_)
            | Family::Graph(_)
            | Family::UserObject { .. }
            | Family::UserReferences(_) => Self::None,
        }
    }
}

/// True if the function uses handles of that kind.
fn uses(function: &Function, kind: Kind) -> bool {
    let mut roles = function.params.iter().map(|param| param.role);
    roles.any(|role| match role {
        Role::Use(used) | Role::UseMany(used, _) => used == kind,
        _ => false,
    })
}

/// True if an operand of the copy is, or may be, host memory.
fn reaches_host(copy: CopyOp) -> bool {
    match copy {
        CopyOp::Linear(Transfer { from, to, .. }) => {
            from == MemoryType::Host || to == MemoryType::Host
        }
        CopyOp::Unified(_) | CopyOp::Described(_) => true,
        CopyOp::Peer(_) | CopyOp::Batch { .. } | CopyOp::Batch3D { .. } => false,
    }
}

/// A call's arguments for the registry's evaluator of lengths; what pointers lead to is as the call
/// left it.
#[derive(Clone, Copy, Debug)]
pub struct CallArguments<'c, 't>(pub &'c Call<'t>);

impl Arguments for CallArguments<'_, '_> {
    fn word(&self, position: u8) -> u64 {
        self.0.argument(usize::from(position))
    }

    fn pointee(&self, position: u8, bytes: usize) -> Option<u64> {
        let written = self.0.out_bytes(usize::from(position))?;
        let mut word = [0; 8];
        word.get_mut(..bytes)?
            .copy_from_slice(written.get(..bytes)?);
        Some(u64::from_le_bytes(word))
    }
}

/// What a function does to the driver's state.
#[derive(Clone, Debug)]
pub struct Effects {
    /// The function.
    pub function: &'static Function,
    pub(crate) action: Action,
    /// What it does to graphs.
    pub(crate) graph: GraphAction,
    /// What it does to objects, by position of the parameter.
    pub objects: Box<[(usize, Effect)]>,
    /// Kinds of which it may create objects that the trace does not show.
    pub unobserved: Box<[Kind]>,
    /// Position of a launch's configuration.
    config: Option<usize>,
    /// A successful call puts work into a stream, which may still run when the call returns.
    pub(crate) submits: bool,
    /// A successful call does no more than put work into a stream.
    pub only_submits: bool,
    /// Without a stream of its own, its work is in the default stream.
    pub in_default_stream: bool,
}

impl Effects {
    /// As the registry describes the function.
    pub fn of(function: &'static Function) -> Self {
        let mut objects = Vec::new();
        let mut unobserved = Vec::new();
        for (position, param) in function.params.iter().enumerate() {
            let effect = match param.role {
                Role::Get(Kind::Device) | Role::Find(Kind::Device, _) => continue,
                Role::Make(kind, parent) => Effect::Create(kind, parent),
                Role::Find(kind, parent) => Effect::Find(kind, parent),
                Role::FindMany(kind, parent, _) => Effect::FindMany(kind, parent),
                Role::Get(kind) => Effect::Get(kind),
                Role::Destroy(kind) => Effect::Destroy(kind),
                _ => {
                    unobserved.extend(unobserved_kind(param));
                    continue;
                }
            };
            objects.push((position, effect));
        }
        let action = Action::of(function);
        let graph = GraphAction::of(function);
        let config = match function.family {
            Family::Launch(LaunchOp::Config(launch)) => Some(usize::from(launch.config)),
            _ => None,
        };
        let in_default_stream = function.works_in_default_stream();
        Self {
            function,
            action,
            graph,
            in_default_stream,
            submits: function.enqueues_in_stream(),
            only_submits: objects.is_empty()
                && unobserved.is_empty()
                && function.waits == Waits::No
                && function.implicit_wait == ImplicitWait::No
                // It may wait, too.
                && !in_default_stream
                && matches!(
                    action,
                    Action::None | Action::GraphLaunch | Action::UnknownWait
                )
                && graph == GraphAction::None,
            objects: objects.into(),
            unobserved: unobserved.into(),
            config,
        }
    }

    /// Whether a successful call puts work into a stream, which may still run when it returns.
    pub fn submits(&self) -> bool {
        self.submits
    }

    /// True if a call changes nothing in a [`crate::State`].
    pub fn is_empty(&self) -> bool {
        self.only_submits && !self.submits
    }

    /// Whether a call may change which contexts are current or retained.
    pub fn change_contexts(&self) -> bool {
        matches!(self.action, Action::Context(_) | Action::Primary(_))
    }

    /// The call, as history keeps it.
    pub(crate) fn site(&self, call: &Call<'_>) -> Site {
        Site::of(self.function.name, call)
    }

    /// Position of a parameter by name.
    pub fn at(&self, name: &str) -> Option<usize> {
        self.function.position(name)
    }

    /// The kind of the object whose handle a parameter has.
    pub fn kind_at(&self, position: usize) -> Option<Kind> {
        match self.function.params.get(position)?.role {
            Role::Use(kind) | Role::Destroy(kind) => Some(kind),
            _ => None,
        }
    }

    /// Position of the first parameter with a handle of that kind.
    pub fn position_of(&self, kind: Kind) -> Option<usize> {
        (0..self.function.params.len()).find(|&position| self.kind_at(position) == Some(kind))
    }

    /// The first handle of that kind that a call passes.
    pub fn handle_of(&self, call: &Call<'_>, kind: Kind) -> Option<u64> {
        Some(call.argument(self.position_of(kind)?))
    }

    /// The handle of the stream that a call's work is ordered on.
    #[inline]
    pub fn stream(&self, call: &Call<'_>) -> Option<u64> {
        match self.function.stream {
            Some(position) => Some(call.argument(usize::from(position))),
            None => self.config_stream(call),
        }
    }

    /// The stream in a launch's configuration.
    pub fn config_stream(&self, call: &Call<'_>) -> Option<u64> {
        let snapshot = call.snapshot(self.config?, field::POINTEE);
        let bytes = snapshot.and_then(|snapshot| snapshot.bytes.inline());
        let word = bytes.and_then(|bytes| bytes.get(CONFIG_STREAM..)?.first_chunk());
        Some(word.map_or(0, |word| u64::from_le_bytes(*word)))
    }

    /// The bytes of the memory that a call creates or finds; 0 if it does not say.
    pub fn size_of(&self, call: &Call<'_>, kind: Kind) -> u64 {
        let arguments = CallArguments(call);
        let size = || self.function.made_bytes(&arguments);
        let has_size = kind.is_address() || kind == Kind::Allocation;
        has_size.then(size).flatten().unwrap_or(0)
    }
}

/// The kind of object whose handle may be written behind a parameter that has no role.
fn unobserved_kind(param: &Param) -> Option<Kind> {
    if param.width != Width::Unsigned(8) || param.role != Role::Pointer {
        return None;
    }
    match param.c_type.strip_suffix('*')?.trim() {
        "CUdeviceptr" => Some(Kind::Memory),
        handle => Kind::of_handle_type(handle),
    }
}
