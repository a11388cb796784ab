//! The family of a function: what hand-written code asks about it, and which parameter is which operand.
//!
//! Code matches on these enums without a wildcard, so that the compiler names every place that a new variant concerns.
//! A `u8` is the position of a parameter; `registry/semantics` names it, `cargo xtask codegen` checks it.

/// What a function does, as far as its roles do not say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// The roles of the parameters say everything that code asks.
    Plain,
    /// `cuInit`.
    Init,
    /// `cuGetProcAddress`: the name asked for and where the address goes.
    ProcAddress {
        /// The symbol.
        name: u8,
        /// `void **`.
        address: u8,
    },
    /// `cuGetExportTable`.
    ExportTable,
    /// Asks about devices.
    Device(DeviceOp),
    /// Changes or asks which context is current, or counts its uses.
    Context(ContextOp),
    /// Retains, releases or configures a device's primary context.
    PrimaryContext(PrimaryOp),
    /// Loads a module from an image.
    ModuleLoad(ImageLoad),
    /// Loads a library from an image.
    LibraryLoad(ImageLoad),
    /// `cuModuleUnload`.
    ModuleUnload,
    /// `cuLibraryUnload`.
    LibraryUnload,
    /// `cuModuleGetLoadingMode`.
    LoadingMode,
    /// `cuLibraryGetModule`: the instance of a library in the current context.
    LibraryModule,
    /// Asks for the address and size of a global variable.
    Global(GlobalOwner),
    /// Finds or configures functions of a module.
    Function(FunctionOp),
    /// Finds or configures kernels of a library.
    Kernel(FunctionOp),
    /// Links images.
    Link(LinkOp),
    /// Launches a kernel.
    Launch(LaunchOp),
    /// Asks how many blocks or clusters fit.
    Occupancy(OccupancyOp),
    /// `cuLaunchHostFunc`: the stream calls a function of the program.
    HostFunction,
    /// `cuStreamAddCallback`, the older form.
    StreamCallback,
    /// Copies memory.
    Copy(CopyOp),
    /// Fills memory. How much, the role of the target says.
    Memset,
    /// `cuMemPrefetchAsync`.
    Prefetch,
    /// Allocates or frees device memory.
    Memory(MemoryOp),
    /// Allocates, frees or registers page-locked host memory.
    HostMemory(HostMemoryOp),
    /// Reserves addresses, creates physical memory, maps one to the other.
    VirtualMemory(VirtualMemoryOp),
    /// Asks for or sets attributes of addresses.
    Pointer(PointerOp),
    /// `cuExternalMemoryGetMappedBuffer`: the size is a member of the description.
    ExternalBuffer {
        /// `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`.
        description: u8,
    },
    /// Waits for streams, asks about them, or captures them.
    Stream(StreamOp),
    /// Lets a stream wait for or write a value in memory.
    StreamMemory(StreamMemoryOp),
    /// Records events, waits for them, asks about them.
    Event(EventOp),
    /// Builds, instantiates, changes and launches graphs.
    Graph(GraphOp),
    /// `cuUserObjectCreate`: the driver will call a destructor of the program.
    UserObject {
        /// What the destructor is given.
        pointer: u8,
        /// The destructor.
        destructor: u8,
    },
}

/// Operations on devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceOp {
    /// `cuDeviceGetCount`.
    Count,
    /// `cuDeviceGetByPCIBusId`.
    ByBusId,
}

/// Operations on the contexts of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextOp {
    /// Creates one and pushes it.
    Create,
    /// Destroys one, and pops it where it is current.
    Destroy,
    /// Pushes one.
    Push,
    /// Pops the current one.
    Pop,
    /// Replaces the current one.
    Set,
    /// Asks for the current one.
    Current,
    /// Asks for the device of one.
    Device,
    /// Takes a use away; the last one destroys it.
    Detach,
    /// Waits for all its work.
    Synchronize,
    /// `cuCtxEnablePeerAccess`.
    EnablePeer,
}

/// Operations on primary contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrimaryOp {
    /// Adds a reference and returns the context.
    Retain,
    /// Takes a reference away; the last one destroys the content.
    Release,
    /// Destroys the content, whatever the references.
    Reset,
    /// Sets the flags that it is created with.
    SetFlags,
}

/// Operands of a call that loads an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageLoad {
    /// Where the image comes from.
    pub source: ImageSource,
    /// The options of the JIT compiler.
    pub options: Option<OptionArray>,
    /// The options of the library.
    pub library_options: Option<OptionArray>,
}

/// The parameter that an image is loaded from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageSource {
    /// A cubin, fatbin or PTX in memory.
    Data(u8),
    /// A fatbin in memory, and nothing else.
    FatBinary(u8),
    /// The name of a file.
    File(u8),
}

impl ImageSource {
    /// The position of the parameter.
    pub const fn position(self) -> u8 {
        match self {
            Self::Data(at) | Self::FatBinary(at) | Self::File(at) => at,
        }
    }
}

/// Parameters that hold an array of options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionArray {
    /// How many.
    pub count: u8,
    /// Their numbers.
    pub options: u8,
    /// Their values: numbers, addresses of buffers, and results.
    pub values: u8,
}

/// Whose variable a call asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlobalOwner {
    /// A module's.
    Module,
    /// A library's, in the current context.
    Library,
    /// A library's managed variable, the same in all contexts.
    Managed,
}

/// Operations on functions and kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionOp {
    /// Finds one by its name.
    Find {
        /// Where the handle goes.
        output: u8,
        /// The module or library.
        owner: u8,
        /// The name.
        name: u8,
    },
    /// `cuKernelGetFunction`: finds the function of a kernel in the current context.
    OfKernel {
        /// Where the handle goes.
        output: u8,
        /// The kernel.
        kernel: u8,
    },
    /// Lists those of a module or library.
    List {
        /// Where the handles go.
        output: u8,
        /// How many are wanted.
        count: u8,
        /// The module or library.
        owner: u8,
    },
    /// Asks how many a module or library has.
    Count,
    /// Asks for the name of one.
    Name {
        /// Where the address of the name goes.
        name: u8,
        /// The function or kernel.
        handle: u8,
    },
    /// Asks for an attribute.
    GetAttribute,
    /// Sets an attribute.
    SetAttribute,
    /// Sets the cache configuration.
    SetCacheConfig,
}

/// Operations on link states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkOp {
    /// Creates one.
    Create {
        /// Its options, whose logs are written until it is destroyed.
        options: OptionArray,
        /// Where the handle goes.
        output: u8,
    },
    /// Adds an image in memory.
    AddData {
        /// The image.
        data: u8,
        /// Its size.
        size: u8,
        /// The options of this input.
        options: OptionArray,
    },
    /// Adds an image in a file.
    AddFile {
        /// The name of the file.
        path: u8,
        /// The options of this input.
        options: OptionArray,
    },
    /// Links; the cubin belongs to the link state.
    Complete {
        /// Where the address of the cubin goes.
        cubin: u8,
        /// Where its size goes.
        size: u8,
    },
    /// Destroys one, and the cubin with it.
    Destroy,
}

/// Operands of a kernel launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchOp {
    /// Everything is in parameters.
    Arguments(LaunchArguments),
    /// `cuLaunchKernelEx`: shape, stream and attributes are in a `CUlaunchConfig`.
    Config(LaunchConfig),
    /// `cuLaunchCooperativeKernelMultiDevice`.
    MultiDevice {
        /// An array of `CUDA_LAUNCH_PARAMS`.
        list: u8,
        /// How many.
        count: u8,
    },
    /// `cuLaunch` and its kin: the parameters come from earlier calls.
    Legacy {
        /// What is launched.
        function: u8,
    },
}

impl LaunchOp {
    /// The function or kernel that is launched, where it is a parameter.
    pub const fn function(self) -> Option<u8> {
        match self {
            Self::Arguments(LaunchArguments { function, .. })
            | Self::Config(LaunchConfig { function, .. })
            | Self::Legacy { function } => Some(function),
            Self::MultiDevice { .. } => None,
        }
    }
}

/// Positions of `cuLaunchKernel` and `cuLaunchCooperativeKernel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchArguments {
    /// The function or kernel.
    pub function: u8,
    /// `gridDimX`; the other two and the three of the block follow.
    pub grid: u8,
    /// Bytes of dynamic shared memory.
    pub shared: u8,
    /// The stream.
    pub stream: u8,
    /// `kernelParams`.
    pub parameters: u8,
    /// `extra`, which cooperative launches lack.
    pub extra: Option<u8>,
}

/// Positions of `cuLaunchKernelEx`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// `CUlaunchConfig`.
    pub config: u8,
    /// The function or kernel.
    pub function: u8,
    /// `kernelParams`.
    pub parameters: u8,
    /// `extra`.
    pub extra: u8,
}

/// Questions about occupancy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OccupancyOp {
    /// About a function alone.
    Function,
    /// About a launch that a `CUlaunchConfig` describes.
    Config {
        /// `CUlaunchConfig`.
        config: u8,
        /// The function or kernel.
        function: u8,
    },
}

/// Copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyOp {
    /// A number of bytes from one operand to another.
    Linear(Transfer),
    /// The same between two contexts.
    Peer(Transfer),
    /// The same where the driver tells host from device by the address.
    Unified(Transfer),
    /// As a struct describes, the first parameter.
    Described(CopyShape),
    /// Arrays of addresses and sizes.
    Batch {
        /// Where to.
        targets: u8,
        /// Where from.
        sources: u8,
        /// How many bytes.
        sizes: u8,
        /// How many copies.
        count: u8,
    },
    /// An array of `CUDA_MEMCPY3D_BATCH_OP`.
    Batch3D {
        /// The array.
        operations: u8,
        /// How many copies.
        count: u8,
    },
}

/// Operands of a copy of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Where from.
    pub source: u8,
    /// Where to.
    pub target: u8,
    /// How many bytes.
    pub bytes: u8,
    /// What the source is.
    pub from: MemoryType,
    /// What the target is.
    pub to: MemoryType,
}

/// What an operand of a copy is; the numbers are those of `CUmemorytype`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MemoryType {
    /// An address of the host.
    Host = 1,
    /// An address of the device.
    Device = 2,
    /// A CUDA array.
    Array = 3,
    /// An address of either; its value decides.
    Unified = 4,
}

impl MemoryType {
    /// The memory type of a number of `CUmemorytype`.
    pub const fn of(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::Host,
            2 => Self::Device,
            3 => Self::Array,
            4 => Self::Unified,
            _ => return None,
        })
    }
}

/// The struct that describes a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyShape {
    /// `CUDA_MEMCPY2D`.
    Plane,
    /// `CUDA_MEMCPY3D`.
    Volume,
    /// `CUDA_MEMCPY3D_PEER`.
    PeerVolume,
}

/// Operations on device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryOp {
    /// `cuMemAlloc`.
    Allocate,
    /// `cuMemAllocPitch`: the driver chooses the pitch.
    AllocatePitch {
        /// Where the pitch goes.
        pitch: u8,
    },
    /// `cuMemAllocManaged`.
    AllocateManaged,
    /// From a pool, in the order of a stream.
    AllocateAsync,
    /// `cuMemFree`, which waits for the context.
    Free,
    /// In the order of a stream.
    FreeAsync,
    /// `cuMemGetAddressRange`.
    AddressRange,
}

/// Operations on page-locked host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostMemoryOp {
    /// Allocates it.
    Allocate,
    /// Frees it.
    Free,
    /// Page-locks memory of the program.
    Register,
    /// Undoes that.
    Unregister,
    /// `cuMemHostGetDevicePointer`.
    DevicePointer,
    /// `cuMemHostGetFlags`.
    Flags,
}

/// Operations on address ranges and physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VirtualMemoryOp {
    /// `cuMemAddressReserve`.
    Reserve,
    /// `cuMemAddressFree`.
    FreeReservation,
    /// `cuMemCreate`.
    Create {
        /// Bytes.
        size: u8,
        /// `CUmemAllocationProp`.
        properties: u8,
    },
    /// `cuMemRelease`.
    Release,
    /// `cuMemMap`.
    Map {
        /// The range.
        address: u8,
        /// Its bytes.
        size: u8,
        /// What is mapped there.
        allocation: u8,
    },
    /// `cuMemUnmap`.
    Unmap {
        /// The range.
        address: u8,
        /// Its bytes.
        size: u8,
    },
    /// `cuMemSetAccess`.
    SetAccess {
        /// The range.
        address: u8,
        /// Its bytes.
        size: u8,
    },
}

/// Operations on attributes of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerOp {
    /// `cuPointerGetAttribute`.
    Attribute,
    /// `cuPointerGetAttributes`: the values lie apart.
    Attributes {
        /// How many.
        count: u8,
        /// Which.
        attributes: u8,
        /// Where each value goes.
        data: u8,
    },
    /// `cuPointerSetAttribute`.
    SetAttribute,
    /// `cuMemRangeGetAttribute`.
    RangeAttribute,
    /// `cuMemRangeGetAttributes`: the values lie apart.
    RangeAttributes {
        /// How many.
        count: u8,
        /// Which.
        attributes: u8,
        /// Where each value goes.
        data: u8,
        /// How many bytes each has.
        sizes: u8,
    },
}

/// Operations on streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamOp {
    /// Asks whether its work is done.
    Query,
    /// Waits for its work.
    Synchronize,
    /// Destroys it.
    Destroy,
    /// Lets it wait for an event.
    WaitEvent,
    /// Begins a capture, into a new graph or a given one.
    BeginCapture,
    /// Ends a capture, also when it fails.
    EndCapture,
    /// Asks about a capture; what follows the status is written only while the stream captures.
    CaptureInfo {
        /// The status.
        status: u8,
    },
}

/// Operations of a stream on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamMemoryOp {
    /// Waits for a value.
    Wait,
    /// Writes a value.
    Write,
    /// Several of both.
    Batch,
}

/// Operations on events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventOp {
    /// Records it.
    Record,
    /// Asks whether it is done.
    Query,
    /// Waits for it.
    Synchronize,
    /// Asks for the time between two.
    ElapsedTime,
}

/// Operations on graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphOp {
    /// Adds a node with parameters.
    AddNode(NodeParams),
    /// Asks for the parameters of a node.
    GetNode(NodeParams),
    /// Sets the parameters of a node.
    SetNode(NodeParams),
    /// Sets the parameters of a node of an executable graph.
    SetExecNode(NodeParams),
    /// Switches a node of an executable graph on or off.
    SetEnabled,
    /// `cuGraphKernelNodeGetAttribute`.
    GetKernelAttribute {
        /// Which.
        attribute: u8,
        /// `CUlaunchAttributeValue`.
        value: u8,
    },
    /// `cuGraphKernelNodeSetAttribute`.
    SetKernelAttribute {
        /// Which.
        attribute: u8,
        /// `CUlaunchAttributeValue`.
        value: u8,
    },
    /// Lists nodes or edges.
    List,
    /// Makes an executable graph.
    Instantiate {
        /// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
        params: Option<u8>,
    },
    /// `cuGraphExecUpdate`.
    Update,
    /// `cuGraphExecDestroy`.
    DestroyExec,
    /// `cuGraphUpload`.
    Upload,
    /// `cuGraphLaunch`.
    Launch,
    /// `cuGraphConditionalHandleCreate`: the handle is a number that kernels are given.
    ConditionalHandle,
    /// `cuGraphDebugDotPrint`.
    DotFile {
        /// The name of the file.
        path: u8,
    },
}

/// The parameters of a graph node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeParams {
    /// The struct, or the child graph.
    pub position: u8,
    /// What the node does.
    pub kind: NodeKind,
}

/// What a graph node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// Launches a kernel.
    Kernel,
    /// Copies.
    Copy,
    /// Fills memory.
    Memset,
    /// Calls a function of the program.
    Host,
    /// Runs another graph.
    ChildGraph,
    /// Signals or waits for external semaphores.
    Semaphores,
    /// Waits for values in memory or writes them.
    MemoryOps,
    /// Allocates memory.
    Allocation,
    /// `CUgraphNodeParams`: its first member says which.
    Any,
}
