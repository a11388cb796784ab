//! What a function does to the model, resolved once from the registry's roles instead of at every call.

use std::ops::Deref;

use cutape_model::{Effects, Kinds};
use cutape_registry::{Class, Function, Kind, Length, Parent, Role, Waits};

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
    ContextDestroy,
    ContextPop,
    PrimaryRelease,
    PrimaryReset,
    EnablePeer,
    EventElapsed,
    UnifiedCopy,
    StructCopy,
    GraphAllocation,
}

fn special(function: &Function) -> Special {
    if function.class == Class::Opaque {
        return Special::None;
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
        "cuCtxDestroy" => Special::ContextDestroy,
        "cuCtxPopCurrent" => Special::ContextPop,
        "cuDevicePrimaryCtxRelease" => Special::PrimaryRelease,
        "cuDevicePrimaryCtxReset" => Special::PrimaryReset,
        "cuCtxEnablePeerAccess" => Special::EnablePeer,
        "cuEventElapsedTime" => Special::EventElapsed,
        "cuMemcpy" | "cuMemcpyAsync" => Special::UnifiedCopy,
        "cuMemcpy2D"
        | "cuMemcpy2DUnaligned"
        | "cuMemcpy2DAsync"
        | "cuMemcpy3D"
        | "cuMemcpy3DAsync"
        | "cuMemcpy3DPeer"
        | "cuMemcpy3DPeerAsync" => Special::StructCopy,
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
    pub(crate) effects: Effects,
    pub(crate) special: Special,
    pub(crate) steps: Box<[(usize, Step)]>,
    /// Position of a pointer to where a string of the driver's is written.
    pub(crate) name_out: Option<usize>,
    pub(crate) options: Option<OptionShape>,
    /// Parameters behind which the driver writes at once: for what reuses memory that it should leave alone.
    pub(crate) written: Box<[usize]>,
    /// It works on the calling thread's current context.
    pub(crate) needs_context: bool,
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

impl Deref for Plan {
    type Target = Effects;

    fn deref(&self) -> &Effects {
        &self.effects
    }
}

impl Plan {
    pub(crate) fn new(function: &'static Function) -> Self {
        let mut steps = Vec::new();
        let mut written = Vec::new();
        let mut needs_context = function.waits == Waits::Context;
        for (position, param) in function.params.iter().enumerate() {
            match param.role {
                Role::Use(Kind::Device) => {}
                Role::Use(kind) => steps.push((position, Step::Use(kind))),
                Role::Destroy(kind) => steps.push((position, Step::Destroy(kind))),
                Role::UseMany(kind, _) => steps.push((position, Step::UseMany(kind))),
                Role::DeviceRead(length) | Role::DeviceWrite(length) => {
                    steps.push((position, Step::Device(length)));
                }
                Role::String => steps.push((position, Step::Name)),
                _ => {}
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
        let params = || function.params.iter();
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
        let effects = Effects::of(function);
        let name_out = params().position(|param| param.role == Role::OutString);
        let trivial = steps.is_empty()
            && effects.is_empty()
            && name_out.is_none()
            && special == Special::None;
        let only_submits = effects.only_submits
            && name_out.is_none()
            && options.is_none()
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
            effects,
            special,
            steps: steps.into(),
            name_out,
            options,
            written: written.into(),
            needs_context,
            trivial,
            only_submits,
        }
    }

    /// Position of the module image.
    pub(crate) fn image(&self) -> Option<usize> {
        self.function
            .params
            .iter()
            .position(|param| param.role == Role::Image)
    }
}
