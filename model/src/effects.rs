//! What a function does to the driver's state, resolved once from the registry's roles instead of at every call.

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_registry::{Class, Function, Kind, Param, Parent, Role, Waits, Width};

/// Offset of `hStream` in `CUlaunchConfig`.
const CONFIG_STREAM: usize = 32;

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

/// What a function does beyond the roles of its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Action {
    None,
    ContextCreate,
    ContextDestroy,
    ContextPush,
    ContextPop,
    ContextSet,
    PrimaryRetain,
    PrimaryRelease,
    PrimaryReset,
    EventRecord,
    EventElapsed,
    WaitEvent,
    HostFunction,
    HostRegister,
    SynchronousCopy,
    MemoryFree,
    CaptureBegin,
    CaptureEnd,
}

fn action(function: &Function) -> Action {
    match function.base {
        "cuStreamBeginCapture" | "cuStreamBeginCaptureToGraph" => return Action::CaptureBegin,
        "cuStreamEndCapture" => return Action::CaptureEnd,
        _ if function.class == Class::Opaque => return Action::None,
        _ => {}
    }
    match function.base {
        "cuCtxCreate" => Action::ContextCreate,
        "cuCtxDestroy" => Action::ContextDestroy,
        "cuCtxPushCurrent" => Action::ContextPush,
        "cuCtxPopCurrent" => Action::ContextPop,
        "cuCtxSetCurrent" => Action::ContextSet,
        "cuDevicePrimaryCtxRetain" => Action::PrimaryRetain,
        "cuDevicePrimaryCtxRelease" => Action::PrimaryRelease,
        "cuDevicePrimaryCtxReset" => Action::PrimaryReset,
        "cuEventRecord" | "cuEventRecordWithFlags" => Action::EventRecord,
        "cuEventElapsedTime" => Action::EventElapsed,
        "cuStreamWaitEvent" => Action::WaitEvent,
        "cuLaunchHostFunc" | "cuStreamAddCallback" => Action::HostFunction,
        "cuMemHostRegister" => Action::HostRegister,
        "cuMemcpyHtoD"
        | "cuMemcpyDtoH"
        | "cuMemcpyHtoA"
        | "cuMemcpyAtoH"
        | "cuMemcpy"
        | "cuMemcpy2D"
        | "cuMemcpy2DUnaligned"
        | "cuMemcpy3D"
        | "cuMemcpy3DPeer" => Action::SynchronousCopy,
        "cuMemFree" | "cuMemFreeHost" => Action::MemoryFree,
        _ => Action::None,
    }
}

/// What a function does to the driver's state.
#[derive(Debug)]
pub struct Effects {
    /// The function.
    pub function: &'static Function,
    /// What it does beyond the roles of its parameters.
    pub action: Action,
    /// What it does to objects, by position of the parameter.
    pub objects: Box<[(usize, Effect)]>,
    /// Kinds of which it may create objects that the trace does not show.
    pub unobserved: Box<[Kind]>,
    /// Position of the size that a newly created range of memory has.
    pub size: Option<usize>,
    /// Position of a launch's configuration.
    config: Option<usize>,
    /// A successful call does no more than put work into a stream.
    pub only_submits: bool,
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
        let action = action(function);
        let at = |name| position(function, name);
        Self {
            function,
            action,
            only_submits: objects.is_empty()
                && unobserved.is_empty()
                && function.waits == Waits::No
                && action == Action::None,
            objects: objects.into(),
            unobserved: unobserved.into(),
            size: at("bytesize")
                .or_else(|| at("Bytesize"))
                .or_else(|| at("size")),
            config: at("config").filter(|_| function.base == "cuLaunchKernelEx"),
        }
    }

    /// True if a call changes nothing in a [`crate::State`].
    pub fn is_empty(&self) -> bool {
        self.only_submits && self.function.stream.is_none() && self.config.is_none()
    }

    /// Position of a parameter by name.
    pub fn at(&self, name: &str) -> Option<usize> {
        position(self.function, name)
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

    /// The bytes that a new object takes, as the call says; 0 if it does not.
    pub fn size_of(&self, call: &Call<'_>, kind: Kind) -> u64 {
        let argument = |name| Some(call.argument(self.at(name)?));
        let out = |name| call.out(self.at(name)?);
        match kind {
            Kind::Memory | Kind::HostMemory | Kind::Reservation | Kind::Allocation => {
                let size = self.size.map(|position| call.argument(position));
                let rows = || Some(out("pPitch")?.saturating_mul(argument("Height")?));
                size.or_else(rows).unwrap_or(0)
            }
            Kind::Global => out("bytes").unwrap_or(0),
            _ => 0,
        }
    }
}

fn position(function: &Function, name: &str) -> Option<usize> {
    function.params.iter().position(|param| param.name == name)
}

/// The kind of object whose handle may be written behind a parameter that has no role.
fn unobserved_kind(param: &Param) -> Option<Kind> {
    if param.width != Width::Unsigned(8) || param.role != Role::Pointer {
        return None;
    }
    Some(match param.c_type.strip_suffix('*')?.trim() {
        "CUdeviceptr" => Kind::Memory,
        "CUstream" => Kind::Stream,
        "CUevent" => Kind::Event,
        "CUmodule" => Kind::Module,
        "CUfunction" => Kind::Function,
        "CUcontext" => Kind::Context,
        "CUlibrary" => Kind::Library,
        "CUkernel" => Kind::Kernel,
        "CUlinkState" => Kind::Link,
        _ => return None,
    })
}
