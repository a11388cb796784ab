//! What rules look at in the calls of a function, resolved once from the registry.

use std::ops::Deref;

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_model::{AccessEffect, Effect, Effects, Kinds};
use cutape_registry::{
    ContextOp, CopyOp, CopyShape, Family, Function, FunctionOp, GraphOp, ImageSource, Kind,
    LaunchOp, Length, LinkOp, MemoryOp, NodeKind, NodeParams, OptionArray, Parent, PoolOp,
    PrimaryOp, Role, StreamMemoryOp, StreamOp, VirtualMemoryOp, Waits,
};

use crate::launch::{pointee, u32_at};

/// Host functions, callbacks, host nodes, and destructors of user objects. A node of any kind, as
/// far as the family tells.
fn hands_over_function(family: Family) -> bool {
    match family {
        Family::HostFunction | Family::StreamCallback | Family::UserObject { .. } => true,
        Family::Graph(operation) => {
            node(operation).is_some_and(|node| matches!(node.kind, NodeKind::Host | NodeKind::Any))
        }
        _ => false,
    }
}

/// The node that a call adds or changes.
fn node(operation: GraphOp) -> Option<NodeParams> {
    match operation {
        GraphOp::AddNode(node) | GraphOp::SetNode(node) | GraphOp::SetExecNode(node) => Some(node),
        _ => None,
    }
}

/// True if a call only asks, and the answer can change only through other calls of the program.
fn is_question(function: &Function) -> bool {
    let is_asked = match function.family {
        Family::Device(_) | Family::DriverVersion | Family::LoadingMode | Family::Occupancy(_) => {
            true
        }
        Family::Context(operation) => matches!(operation, ContextOp::Current | ContextOp::Device),
        Family::Function(operation) | Family::Kernel(operation) => {
            matches!(operation, FunctionOp::GetAttribute | FunctionOp::Count)
        }
        Family::Plain => function.stream.is_none(),
        _ => false,
    };
    let asks = |role| matches!(role, Role::Out(_) | Role::Text(_) | Role::Get(_));
    let is_free = |role| {
        asks(role)
            || matches!(role, Role::Value | Role::In(_) | Role::OutString)
            || matches!(
                role,
                Role::Use(Kind::Device | Kind::Context | Kind::Function | Kind::Kernel)
            )
    };
    is_asked
        && function.params.iter().all(|param| is_free(param.role))
        && function.params.iter().any(|param| asks(param.role))
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

/// Positions of the parameters of an array of options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OptionShape {
    pub(crate) count: usize,
    pub(crate) numbers: usize,
    pub(crate) values: usize,
}

impl OptionShape {
    fn of(array: OptionArray) -> Self {
        Self {
            count: usize::from(array.count),
            numbers: usize::from(array.options),
            values: usize::from(array.values),
        }
    }
}

/// What rules about order ask of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ordered {
    No,
    /// Its arguments tell which memory it reads and writes.
    Transfer,
    /// It may read and write any memory.
    Launch,
    /// It allocates or frees memory in the order of a stream.
    Pool,
}

/// What rules look at in the calls of a function.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) effects: Effects,
    pub(crate) steps: Box<[(usize, Step)]>,
    /// Position of a pointer to where a string of the driver's is written.
    pub(crate) name_out: Option<usize>,
    /// Where a module or library is loaded from.
    pub(crate) source: Option<ImageSource>,
    /// Position of the image in memory.
    pub(crate) image: Option<usize>,
    /// Position of the name of a file with an image.
    pub(crate) file: Option<usize>,
    /// The JIT options of a load or a link.
    pub(crate) options: Option<OptionShape>,
    /// The options of a library load.
    pub(crate) library_options: Option<OptionShape>,
    /// Parameters behind which the driver writes before it returns.
    pub(crate) written: Box<[usize]>,
    /// It works on the calling thread's current context.
    pub(crate) needs_context: bool,
    /// Position of the function that is launched or asked about.
    pub(crate) launched: Option<usize>,
    /// Positions behind which a launch's parameters may be.
    pub(crate) launch_parameters: [Option<usize>; 2],
    /// Position of a launch's configuration.
    pub(crate) config: Option<usize>,
    /// Position of the device address that a copy or a memset writes to.
    pub(crate) written_address: Option<usize>,
    /// The kinds of objects that handles by value may mean.
    pub(crate) used: Kinds,
    /// It has handles behind pointers, or strings that may be the driver's.
    pub(crate) uses_elsewhere: bool,
    /// It takes device addresses.
    pub(crate) takes_addresses: bool,
    /// It ends objects.
    pub(crate) destroys: bool,
    /// It frees or unmaps memory of the device or the host.
    pub(crate) frees_memory: bool,
    /// Positions of host addresses that it copies from or to.
    pub(crate) host_operands: Box<[usize]>,
    /// It takes functions, and a kernel cannot stand for one.
    pub(crate) takes_functions_only: bool,
    /// It takes arrays of graph nodes.
    pub(crate) takes_nodes: bool,
    /// It creates a texture or surface object, or an array, from a descriptor.
    pub(crate) describes: bool,
    /// Position of a tensor map that it encodes or changes.
    pub(crate) tensor_map: Option<usize>,
    /// It copies between addresses of which each may be the host's.
    pub(crate) copies_unified: bool,
    pub(crate) ordered: Ordered,
    /// Memory that a transfer reads or writes: the parameter with its address.
    pub(crate) touched: Box<[(usize, Length, AccessEffect)]>,
    /// It copies.
    pub(crate) copies: bool,
    /// It copies as structs or arrays describe.
    pub(crate) describes_copies: bool,
    /// It takes flags.
    pub(crate) takes_flags: bool,
    /// It enqueues a function of the program that an error keeps from running.
    pub(crate) calls_back: bool,
    /// It may hand a function of the program to the driver: see `hands_over`.
    hands_over_function: bool,
    /// It asks for what does not change by itself, which every thread may.
    pub(crate) asks: bool,
    /// Its calls concern neither the rules nor the model.
    pub(crate) is_trivial: bool,
    /// A successful call does no more than put work into a stream.
    pub(crate) only_submits: bool,
    /// Rules about defects of the driver remember its calls.
    pub(crate) meets_errata: bool,
}

impl Deref for Plan {
    type Target = Effects;

    fn deref(&self) -> &Effects {
        &self.effects
    }
}

impl Plan {
    /// The bytes of the parameters that a launch passes, if the record holds them.
    pub(crate) fn parameters<'c>(&self, call: &Call<'c>) -> Option<&'c [u8]> {
        let mut positions = self.launch_parameters.into_iter().flatten();
        let snapshot =
            positions.find_map(|position| call.snapshot(position, field::KERNEL_PARAMETERS))?;
        snapshot.bytes.inline()
    }

    /// Whether a call hands a function of the program to the driver, which may call it in a thread
    /// of its own.
    pub(crate) fn hands_over(&self, call: &Call<'_>) -> bool {
        // cuda.h: CU_GRAPH_NODE_TYPE_HOST.
        const HOST: u32 = 3;
        let any = match self.function.family {
            Family::Graph(operation) => node(operation),
            _ => None,
        };
        let any = any.filter(|node| node.kind == NodeKind::Any);
        self.hands_over_function
            && any.is_none_or(|node| {
                let bytes = pointee(call, node.position.into());
                bytes.and_then(|bytes| u32_at(bytes, 0)) == Some(HOST)
            })
    }

    /// Whether a call asks for new work or new objects.
    pub(crate) fn asks_for_more(&self) -> bool {
        self.effects.submits() || (!self.destroys && !self.effects.objects.is_empty())
    }

    pub(crate) fn new(function: &'static Function) -> Self {
        let effects = Effects::of(function);
        let family = function.family;
        let params = || function.params.iter();
        let position = |is: fn(Role) -> bool| params().position(|param| is(param.role));
        let steps: Box<[_]> = params()
            .enumerate()
            .filter_map(|(position, param)| Some((position, step(param.role)?)))
            .collect();
        let written = params().enumerate().filter(|(_, param)| writes(param.role));
        let name_out = position(|role| role == Role::OutString);
        let (source, library_options) = match family {
            Family::ModuleLoad(load) | Family::LibraryLoad(load) => {
                (Some(load.source), load.library_options.map(OptionShape::of))
            }
            _ => (None, None),
        };
        let file = match (family, source) {
            (Family::Link(LinkOp::AddFile { path, .. }), _) => Some(path),
            (_, Some(ImageSource::File(path))) => Some(path),
            _ => None,
        };
        let options = function.options().map(OptionShape::of);
        let tensor_map = params().position(|param| param.c_type == "CUtensorMap *");
        let has = |which: fn(&Step) -> bool| steps.iter().any(|(_, step)| which(step));
        Self {
            name_out,
            source,
            image: position(|role| role == Role::Image),
            file: file.map(usize::from),
            options,
            library_options,
            written: written.map(|(position, _)| position).collect(),
            needs_context: function.waits == Waits::Context
                || position(|role| matches!(role, Role::Make(_, Parent::CurrentContext))).is_some(),
            launched: position(|role| role == Role::Use(Kind::Function)),
            launch_parameters: launch_parameters(family).map(|position| position.map(usize::from)),
            config: match family {
                Family::Launch(LaunchOp::Config(launch)) => Some(usize::from(launch.config)),
                _ => None,
            },
            written_address: match family {
                Family::Copy(_) | Family::Memset => {
                    position(|role| matches!(role, Role::DeviceWrite(_)))
                }
                _ => None,
            },
            used: used(&steps),
            uses_elsewhere: matches!(family, Family::Launch(LaunchOp::Config(_)))
                || has(|step| matches!(step, Step::UseMany(_) | Step::Name)),
            takes_addresses: has(|step| matches!(step, Step::Device(_))),
            host_operands: params()
                .enumerate()
                .filter(|(_, param)| matches!(param.role, Role::HostRead(_) | Role::HostWrite(_)))
                .map(|(position, _)| position)
                .collect(),
            destroys: has(|step| matches!(step, Step::Destroy(_))),
            frees_memory: matches!(family, Family::VirtualMemory(VirtualMemoryOp::Unmap { .. }))
                || has(|step| {
                    matches!(
                        step,
                        Step::Destroy(Kind::Memory | Kind::HostMemory | Kind::Registration)
                    )
                }),
            takes_functions_only: has(|step| matches!(step, Step::Use(Kind::Function)))
                && !matches!(family, Family::Launch(_) | Family::Occupancy(_)),
            takes_nodes: has(|step| matches!(step, Step::UseMany(Kind::GraphNode))),
            describes: effects
                .objects
                .iter()
                .any(|(_, effect)| creates_described(effect)),
            tensor_map,
            ordered: ordered(&effects),
            touched: touched(function),
            copies: matches!(family, Family::Copy(_)),
            takes_flags: params().any(|param| matches!(param.name, "flags" | "Flags")),
            calls_back: matches!(family, Family::HostFunction | Family::StreamCallback),
            hands_over_function: hands_over_function(family),
            asks: is_question(function),
            describes_copies: matches!(
                family,
                Family::Copy(CopyOp::Described(_) | CopyOp::Batch { .. } | CopyOp::Batch3D { .. })
            ),
            copies_unified: matches!(family, Family::Copy(CopyOp::Unified(_))),
            is_trivial: steps.is_empty()
                && function.deprecated.is_empty()
                && effects.is_empty()
                && name_out.is_none()
                && !matches!(family, Family::Launch(_))
                && !is_learnt_from(family),
            only_submits: effects.only_submits
                && name_out.is_none()
                && options.is_none()
                && tensor_map.is_none()
                && !is_learnt_from(family),
            meets_errata: meets_errata(function),
            effects,
            steps,
        }
    }
}

/// Whether a defect of the driver shows only in what calls of the function did before.
fn meets_errata(function: &Function) -> bool {
    let has = |name| function.params.iter().any(|param| param.name == name);
    match function.family {
        Family::Graph(operation) => matches!(
            operation,
            GraphOp::Launch | GraphOp::DestroyExec | GraphOp::AddNode(_)
        ),
        Family::Stream(operation) => operation == StreamOp::BeginCapture,
        Family::Memory(op) => matches!(op, MemoryOp::AllocateAsync | MemoryOp::FreeAsync),
        Family::Pool(operation) => operation == PoolOp::SetAttribute,
        Family::PrimaryContext(operation) => operation == PrimaryOp::Reset,
        Family::Context(operation) => operation == ContextOp::Destroy,
        // Calls that add nodes or destroy graphs, and those about pools.
        Family::Plain => {
            let role = |role: Role| {
                matches!(
                    role,
                    Role::Destroy(Kind::MemoryPool | Kind::Graph) | Role::Make(Kind::MemoryPool, _)
                )
            };
            let is_noted = function.params.iter().any(|param| role(param.role));
            is_noted || has("phGraphNode") || has("map")
        }
        _ => false,
    }
}

/// The parameters in which a launch gives those of its kernel.
fn launch_parameters(family: Family) -> [Option<u8>; 2] {
    match family {
        Family::Launch(LaunchOp::Arguments(launch)) => [Some(launch.parameters), launch.extra],
        Family::Launch(LaunchOp::Config(launch)) => [Some(launch.parameters), Some(launch.extra)],
        _ => [None; 2],
    }
}

/// Whether a struct describes what is created.
fn creates_described(effect: &Effect) -> bool {
    let described = |kind: &Kind| {
        matches!(
            kind,
            Kind::Array | Kind::MipmappedArray | Kind::TextureObject | Kind::SurfaceObject
        )
    };
    matches!(effect, Effect::Create(kind, _) if described(kind))
}

/// What rules about order ask of a function.
fn ordered(effects: &Effects) -> Ordered {
    match effects.function.family {
        // It waits for all work of both contexts, and their later work waits for it (Memory
        // Management, cuMemcpyPeer).
        Family::Copy(CopyOp::Peer(_) | CopyOp::Described(CopyShape::PeerVolume))
            if effects.function.stream.is_none() =>
        {
            Ordered::Launch
        }
        Family::Copy(_)
        | Family::Memset
        | Family::StreamMemory(StreamMemoryOp::Write | StreamMemoryOp::Batch) => Ordered::Transfer,
        Family::Memory(MemoryOp::AllocateAsync | MemoryOp::FreeAsync) => Ordered::Pool,
        Family::Prefetch | Family::HostFunction | Family::StreamCallback => Ordered::No,
        _ if effects.submits() => Ordered::Launch,
        _ => Ordered::No,
    }
}

/// The memory that a transfer reads or writes.
fn touched(function: &Function) -> Box<[(usize, Length, AccessEffect)]> {
    let params = function.params.iter().enumerate();
    let touched = params.filter_map(|(position, param)| match param.role {
        Role::DeviceRead(length) | Role::HostRead(length) => {
            Some((position, length, AccessEffect::Read))
        }
        Role::DeviceWrite(length) | Role::HostWrite(length) => {
            Some((position, length, AccessEffect::Write))
        }
        _ => None,
    });
    touched.collect()
}

/// True if a successful call tells rules something that the model does not keep.
fn is_learnt_from(family: Family) -> bool {
    match family {
        Family::Context(operation) => {
            matches!(operation, ContextOp::EnablePeer | ContextOp::DisablePeer)
        }
        Family::Init | Family::Checkpoint(_) | Family::VirtualMemory(_) | Family::Multicast(_) => {
            true
        }
        Family::Function(_) | Family::Kernel(_) | Family::Link(_) => true,
        Family::Graph(operation) => matches!(
            operation,
            GraphOp::AddNode(_) | GraphOp::SetKernelAttribute { .. }
        ),
        _ => false,
    }
}

/// What is looked at before the call in a parameter of that role.
fn step(role: Role) -> Option<Step> {
    match role {
        Role::Use(Kind::Device) => None,
        Role::Use(kind) => Some(Step::Use(kind)),
        Role::Destroy(kind) => Some(Step::Destroy(kind)),
        Role::UseMany(kind, _) => Some(Step::UseMany(kind)),
        Role::DeviceRead(length) | Role::DeviceWrite(length) => Some(Step::Device(length)),
        Role::String => Some(Step::Name),
        _ => None,
    }
}

/// True if the driver writes behind a parameter of that role before the call returns.
fn writes(role: Role) -> bool {
    matches!(
        role,
        Role::Make(..)
            | Role::Find(..)
            | Role::Get(_)
            | Role::Out(_)
            | Role::Text(_)
            | Role::HostWrite(_)
    )
}

/// The kinds of objects that handles by value may mean.
fn used(steps: &[(usize, Step)]) -> Kinds {
    let kinds = steps.iter().filter_map(|&(_, step)| match step {
        Step::Use(kind) | Step::Destroy(kind) => Some(kind),
        _ => None,
    });
    // A kernel may stand for a function.
    let also = |kind| [Some(kind), (kind == Kind::Function).then_some(Kind::Kernel)];
    kinds.flat_map(also).flatten().collect()
}
