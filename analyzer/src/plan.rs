//! What a function does to the model, resolved once from the registry's roles instead of at every call.

use crate::state::objects::Kinds;
use cutape_registry::{Class, Function, Kind, Length, Param, Parent, Role, Waits, Width};

/// Functions that need more than their roles say; variants of one base share theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    None,
    ModuleLoad,
    ModuleLoadFatBinary,
    ModuleLoadFile,
    ModuleUnload,
    FunctionCount,
    Enumerate,
    LibraryLoad,
    LibraryLoadFile,
    LinkCreate,
    LinkAddData,
    LinkAddFile,
    LinkComplete,
    LinkDestroy,
    Launch,
    LaunchEx,
    FunctionSetAttribute,
    FunctionSetCache,
    KernelSetAttribute,
    KernelSetCache,
    KernelGetAttribute,
    ContextCreate,
    ContextDestroy,
    ContextPush,
    ContextPop,
    ContextSet,
    PrimaryRetain,
    PrimaryRelease,
    PrimaryReset,
    EnablePeer,
    EventRecord,
    EventElapsed,
    WaitEvent,
    HostFunction,
    HostRegister,
    SynchronousCopy,
    UnifiedCopy,
    StructCopy,
    MemoryFree,
    GraphAllocation,
    CaptureBegin,
    CaptureEnd,
}

fn special(function: &Function) -> Special {
    match function.base {
        "cuStreamBeginCapture" | "cuStreamBeginCaptureToGraph" => return Special::CaptureBegin,
        "cuStreamEndCapture" => return Special::CaptureEnd,
        _ if function.class == Class::Opaque => return Special::None,
        _ => {}
    }
    match function.base {
        "cuModuleLoadData" | "cuModuleLoadDataEx" => Special::ModuleLoad,
        "cuModuleLoadFatBinary" => Special::ModuleLoadFatBinary,
        "cuModuleLoad" => Special::ModuleLoadFile,
        "cuModuleUnload" => Special::ModuleUnload,
        "cuModuleGetFunctionCount" | "cuLibraryGetKernelCount" => Special::FunctionCount,
        "cuModuleEnumerateFunctions" | "cuLibraryEnumerateKernels" => Special::Enumerate,
        "cuLibraryLoadData" => Special::LibraryLoad,
        "cuLibraryLoadFromFile" => Special::LibraryLoadFile,
        "cuLinkCreate" => Special::LinkCreate,
        "cuLinkAddData" => Special::LinkAddData,
        "cuLinkAddFile" => Special::LinkAddFile,
        "cuLinkComplete" => Special::LinkComplete,
        "cuLinkDestroy" => Special::LinkDestroy,
        "cuLaunchKernel" | "cuLaunchCooperativeKernel" => Special::Launch,
        "cuLaunchKernelEx" => Special::LaunchEx,
        "cuFuncSetAttribute" => Special::FunctionSetAttribute,
        "cuFuncSetCacheConfig" => Special::FunctionSetCache,
        "cuKernelSetAttribute" => Special::KernelSetAttribute,
        "cuKernelSetCacheConfig" => Special::KernelSetCache,
        "cuKernelGetAttribute" => Special::KernelGetAttribute,
        "cuCtxCreate" => Special::ContextCreate,
        "cuCtxDestroy" => Special::ContextDestroy,
        "cuCtxPushCurrent" => Special::ContextPush,
        "cuCtxPopCurrent" => Special::ContextPop,
        "cuCtxSetCurrent" => Special::ContextSet,
        "cuDevicePrimaryCtxRetain" => Special::PrimaryRetain,
        "cuDevicePrimaryCtxRelease" => Special::PrimaryRelease,
        "cuDevicePrimaryCtxReset" => Special::PrimaryReset,
        "cuCtxEnablePeerAccess" => Special::EnablePeer,
        "cuEventRecord" | "cuEventRecordWithFlags" => Special::EventRecord,
        "cuEventElapsedTime" => Special::EventElapsed,
        "cuStreamWaitEvent" => Special::WaitEvent,
        "cuLaunchHostFunc" | "cuStreamAddCallback" => Special::HostFunction,
        "cuMemHostRegister" => Special::HostRegister,
        "cuMemcpyHtoD" | "cuMemcpyDtoH" | "cuMemcpyHtoA" | "cuMemcpyAtoH" => {
            Special::SynchronousCopy
        }
        "cuMemcpy" | "cuMemcpyAsync" => Special::UnifiedCopy,
        "cuMemcpy2D"
        | "cuMemcpy2DUnaligned"
        | "cuMemcpy2DAsync"
        | "cuMemcpy3D"
        | "cuMemcpy3DAsync"
        | "cuMemcpy3DPeer"
        | "cuMemcpy3DPeerAsync" => Special::StructCopy,
        "cuMemFree" | "cuMemFreeHost" => Special::MemoryFree,
        "cuGraphAddMemAllocNode" | "cuGraphAddNode" => Special::GraphAllocation,
        _ => Special::None,
    }
}

/// Something that is looked at before the call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// A handle by value.
    Use(Kind),
    /// A handle by value that the call ends.
    Destroy(Kind),
    /// An array of handles.
    UseMany(Kind),
    /// A device address by value.
    Device(Length),
    /// A string that the program passes.
    Name,
}

/// Something that a successful call leaves behind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect {
    Make(Kind, Parent),
    Find(Kind, Parent),
    FindMany(Kind, Parent),
    Get(Kind),
    /// A `const char *` of the driver's.
    Name,
    Destroy(Kind),
}

/// Positions of an option array's parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OptionShape {
    pub(crate) count: usize,
    pub(crate) numbers: usize,
    pub(crate) values: usize,
}

/// What a function does to the model.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) function: &'static Function,
    pub(crate) special: Special,
    pub(crate) steps: Box<[(usize, Step)]>,
    pub(crate) effects: Box<[(usize, Effect)]>,
    /// Kinds of which it may make objects that the trace does not show.
    pub(crate) blind: Box<[Kind]>,
    pub(crate) options: Option<OptionShape>,
    /// Parameters behind which the driver writes at once: for what reuses memory that it should leave alone.
    pub(crate) written: Box<[usize]>,
    /// It works on the calling thread's current context.
    pub(crate) needs_context: bool,
    /// Position of the size that a newly made range of memory has.
    pub(crate) size: Option<usize>,
    /// Position of the first function handle by value.
    pub(crate) launched: Option<usize>,
    /// Positions behind which a launch's parameters may stand.
    pub(crate) launch_parameters: [Option<usize>; 2],
    /// Position of a launch's configuration.
    pub(crate) config: Option<usize>,
    /// The kinds of objects that handles by value may mean.
    pub(crate) used: Kinds,
    /// There are handles elsewhere, or strings that may be the driver's.
    pub(crate) uses_elsewhere: bool,
    /// It takes device addresses.
    pub(crate) takes_addresses: bool,
    /// It ends objects.
    pub(crate) destroys: bool,
    /// It asks for a variable's address and size.
    pub(crate) asks_for_global: bool,
    /// It takes functions, and no kernel may stand for one.
    pub(crate) takes_functions_only: bool,
    /// It asks for what a library or a kernel is in the current context.
    pub(crate) asks_for_instance: bool,
    /// It copies between contexts that it names.
    pub(crate) copies_to_peer: bool,
    /// Nothing at all is to be done.
    pub(crate) trivial: bool,
    /// A successful call does no more than put work into a stream.
    pub(crate) only_submits: bool,
}

impl Plan {
    pub(crate) fn new(function: &'static Function) -> Self {
        let mut steps = Vec::new();
        let mut effects = Vec::new();
        let mut blind = Vec::new();
        let mut written = Vec::new();
        let mut needs_context = function.waits == Waits::Context;
        for (position, param) in function.params.iter().enumerate() {
            match param.role {
                Role::Use(Kind::Device) | Role::Get(Kind::Device) | Role::Find(Kind::Device, _) => {
                }
                Role::Use(kind) => steps.push((position, Step::Use(kind))),
                Role::Destroy(kind) => {
                    steps.push((position, Step::Destroy(kind)));
                    effects.push((position, Effect::Destroy(kind)));
                }
                Role::UseMany(kind, _) => steps.push((position, Step::UseMany(kind))),
                Role::Make(kind, parent) => effects.push((position, Effect::Make(kind, parent))),
                Role::Find(kind, parent) => effects.push((position, Effect::Find(kind, parent))),
                Role::FindMany(kind, parent, _) => {
                    effects.push((position, Effect::FindMany(kind, parent)));
                }
                Role::Get(kind) => effects.push((position, Effect::Get(kind))),
                Role::DeviceRead(length) | Role::DeviceWrite(length) => {
                    steps.push((position, Step::Device(length)));
                }
                Role::String => steps.push((position, Step::Name)),
                Role::OutString => effects.push((position, Effect::Name)),
                _ => blind.extend(blind_kind(param)),
            }
            if matches!(param.role, Role::Make(_, Parent::CurrentContext)) {
                needs_context = true;
            }
            if matches!(
                param.role,
                Role::Make(..)
                    | Role::Find(..)
                    | Role::Get(_)
                    | Role::Out(_)
                    | Role::Text(_)
                    | Role::HostWrite(_)
            ) {
                written.push(position);
            }
        }
        let special = special(function);
        let at = |name: &str| function.params.iter().position(|param| param.name == name);
        let either = |a: &str, b: &str| at(a).or_else(|| at(b));
        let options = match (
            either("numOptions", "numJitOptions"),
            either("options", "jitOptions"),
            either("optionValues", "jitOptionsValues"),
        ) {
            (Some(count), Some(numbers), Some(values)) => Some(OptionShape {
                count,
                numbers,
                values,
            }),
            _ => None,
        };
        let trivial = steps.is_empty()
            && effects.is_empty()
            && blind.is_empty()
            && special == Special::None
            && function.stream.is_none()
            && function.waits == Waits::No;
        let only_submits = effects.is_empty()
            && blind.is_empty()
            && options.is_none()
            && function.waits == Waits::No
            && matches!(special, Special::None | Special::Launch | Special::LaunchEx);
        let launched = function
            .params
            .iter()
            .position(|param| matches!(param.role, Role::Use(Kind::Function)));
        let mut used = Kinds::default();
        for &(_, step) in &steps {
            if let Step::Use(kind) | Step::Destroy(kind) = step {
                used.insert(kind);
                // A kernel may stand for a function.
                if kind == Kind::Function {
                    used.insert(Kind::Kernel);
                }
            }
        }
        let has = |which: fn(&Step) -> bool| steps.iter().any(|(_, step)| which(step));
        let begins = |words: &[&str]| words.iter().any(|word| function.base.starts_with(word));
        Self {
            launched,
            launch_parameters: [at("kernelParams"), at("extra")],
            config: at("config"),
            used,
            uses_elsewhere: special == Special::LaunchEx
                || has(|step| matches!(step, Step::UseMany(_) | Step::Name)),
            takes_addresses: has(|step| matches!(step, Step::Device(_))),
            destroys: has(|step| matches!(step, Step::Destroy(_))),
            asks_for_global: matches!(
                function.base,
                "cuModuleGetGlobal" | "cuLibraryGetGlobal" | "cuLibraryGetManaged"
            ),
            takes_functions_only: has(|step| matches!(step, Step::Use(Kind::Function)))
                && !begins(&["cuLaunch", "cuOccupancy"]),
            asks_for_instance: matches!(
                function.base,
                "cuLibraryGetGlobal" | "cuLibraryGetModule" | "cuKernelGetFunction"
            ),
            copies_to_peer: begins(&["cuMemcpyPeer"]),
            function,
            special,
            steps: steps.into(),
            effects: effects.into(),
            blind: blind.into(),
            options,
            written: written.into(),
            needs_context,
            size: either("bytesize", "Bytesize").or_else(|| at("size")),
            trivial,
            only_submits,
        }
    }

    /// Position of a parameter by name.
    pub(crate) fn at(&self, name: &str) -> Option<usize> {
        self.function
            .params
            .iter()
            .position(|param| param.name == name)
    }

    /// The kind of the object in a parameter.
    pub(crate) fn kind_at(&self, position: usize) -> Option<Kind> {
        match self.function.params.get(position)?.role {
            Role::Use(kind) | Role::Destroy(kind) => Some(kind),
            _ => None,
        }
    }

    /// Position of the first parameter with a handle of that kind by value.
    pub(crate) fn position_of(&self, kind: Kind) -> Option<usize> {
        (0..self.function.params.len()).find(|&position| self.kind_at(position) == Some(kind))
    }

    /// Position of the module image.
    pub(crate) fn image(&self) -> Option<usize> {
        self.function
            .params
            .iter()
            .position(|param| param.role == Role::Image)
    }
}

/// The kind of object whose handle may be written behind a parameter that has no role.
fn blind_kind(param: &Param) -> Option<Kind> {
    if !matches!(param.width, Width::Unsigned(8)) || !matches!(param.role, Role::Pointer) {
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
