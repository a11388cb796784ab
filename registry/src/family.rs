//! The family of a function: what hand-written code asks about it, and which parameter is which
//! operand.
//!
//! Code matches on these enums without a wildcard, so that the compiler names every place that a
//! new variant concerns. A `u8` is the position of a parameter; `registry/semantics` names it,
//! `cargo xtask codegen` checks it. Variants are named for the function of the manual; a comment
//! says what their name does not.
#![allow(missing_docs)]

/// What a function does, as far as its roles do not say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// The roles of the parameters say everything that code asks.
    Plain,
    Init,
    /// `cuGetProcAddress`: the name asked for and where the address goes.
    ProcAddress {
        name: u8,
        address: u8,
    },
    ExportTable,
    DriverVersion,
    Device(DeviceOp),
    /// Changes or asks which context is current, or counts its uses.
    Context(ContextOp),
    Green(GreenOp),
    Checkpoint(CheckpointOp),
    /// Retains, releases or configures a device's primary context.
    PrimaryContext(PrimaryOp),
    ModuleLoad(ImageLoad),
    LibraryLoad(ImageLoad),
    ModuleUnload,
    LibraryUnload,
    LoadingMode,
    /// `cuLibraryGetModule`: the instance of a library in the current context.
    LibraryModule,
    /// Asks for the address and size of a global variable.
    Global(GlobalOwner),
    /// Finds or configures functions of a module.
    Function(FunctionOp),
    /// Finds or configures kernels of a library.
    Kernel(FunctionOp),
    Link(LinkOp),
    Launch(LaunchOp),
    Occupancy(OccupancyOp),
    /// `cuLaunchHostFunc`: the stream calls a function of the program.
    HostFunction,
    /// `cuStreamAddCallback`, the older form.
    StreamCallback,
    Copy(CopyOp),
    /// Fills memory. How much, the role of the target says.
    Memset,
    Prefetch,
    /// Allocates or frees device memory.
    Memory(MemoryOp),
    /// Allocates, frees or registers page-locked host memory.
    HostMemory(HostMemoryOp),
    /// Reserves addresses, creates physical memory, maps one to the other.
    VirtualMemory(VirtualMemoryOp),
    Multicast(MulticastOp),
    Pool(PoolOp),
    /// Gives something to other processes, or takes it from them.
    Sharing(SharingOp),
    Pointer(PointerOp),
    /// `cuExternalMemoryGetMappedBuffer`: the size is a member of the description.
    ExternalBuffer {
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
        pointer: u8,
        destructor: u8,
    },
    /// Adds or drops references to a user object.
    UserReferences(UserReferenceOp),
}

impl Family {
    /// Whether calls may make the driver reserve addresses: for memory, or for code, which it may
    /// load only when a kernel is looked up.
    pub const fn may_reserve_addresses(self) -> bool {
        matches!(
            self,
            Self::ModuleLoad(_)
                | Self::LibraryLoad(_)
                | Self::LibraryModule
                | Self::Function(FunctionOp::Find { .. })
                | Self::Kernel(FunctionOp::Find { .. } | FunctionOp::OfKernel { .. })
                | Self::Memory(
                    MemoryOp::Allocate | MemoryOp::AllocatePitch { .. } | MemoryOp::AllocateManaged
                )
                | Self::VirtualMemory(VirtualMemoryOp::Reserve)
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceOp {
    Count,
    ByBusId,
    /// Asks for what the device and the driver decide.
    Property,
    /// Asks for what the device alone decides: its bus address, its peers, what arrays take.
    Hardware,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextOp {
    Create,
    /// Destroys one, and pops it where it is current.
    Destroy,
    Push,
    Pop,
    Set,
    Current,
    Device,
    /// Takes a use away; the last one destroys it.
    Detach,
    Synchronize,
    EnablePeer,
    DisablePeer,
    SetLimit,
}

/// Calls about green contexts beside their queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GreenOp {
    Create,
    CreateStream,
}

/// `cuCheckpointProcess...`: changes the state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointOp {
    Lock,
    Checkpoint,
    Restore,
    Unlock,
}

/// Calls about multicast objects, which are allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MulticastOp {
    Create,
    AddDevice,
    Bind,
    Unbind,
}

/// Calls about pools of stream-ordered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolOp {
    SetAttribute,
    /// Makes one the current pool of a device.
    SetCurrent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharingOp {
    /// Gives out what other processes import the object by.
    Export(Shared),
    /// Makes the object from what another process gave out.
    Import(Shared),
    /// `cuIpcCloseMemHandle`.
    Close,
}

/// Operands of a call that exports or imports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    pub kind: SharedKind,
    /// What is handed on: bytes, or a file descriptor.
    pub handle: u8,
    /// The object: the handle or address at an export, where it goes at an import.
    pub object: u8,
    /// Which of the two it is, where both can be.
    pub handle_type: Option<u8>,
}

/// What processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SharedKind {
    /// Memory of `cuMemAlloc`.
    Memory,
    Event,
    /// Physical memory of `cuMemCreate`.
    Allocation,
    Pool,
    /// Memory of a pool that is shared as well.
    PoolMemory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrimaryOp {
    Retain,
    /// Takes a reference away; the last one destroys the content.
    Release,
    /// Destroys the content, whatever the references.
    Reset,
    SetFlags,
}

/// Operands of a call that loads an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageLoad {
    pub source: ImageSource,
    pub options: Option<OptionArray>,
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
    pub count: u8,
    pub options: u8,
    /// Their values: numbers, addresses of buffers, and results.
    pub values: u8,
}

/// Whose variable a call asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlobalOwner {
    Module,
    /// A library's, in the current context.
    Library,
    /// A library's managed variable, the same in all contexts.
    Managed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionOp {
    Find {
        output: u8,
        owner: u8,
        name: u8,
    },
    /// `cuKernelGetFunction`: finds the function of a kernel in the current context.
    OfKernel {
        output: u8,
        kernel: u8,
    },
    /// Lists those of a module or library.
    List {
        output: u8,
        count: u8,
        owner: u8,
    },
    Count,
    /// Asks for the name of one.
    Name {
        name: u8,
        handle: u8,
    },
    GetAttribute,
    SetAttribute,
    SetCacheConfig,
    /// Asks for offset and size of one parameter.
    ParameterInfo,
    /// Sets the block shape, shared memory or parameters of launches of CUDA 3.
    SetLaunchState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkOp {
    Create {
        /// Its options, whose logs are written until it is destroyed.
        options: OptionArray,
        output: u8,
    },
    AddData {
        data: u8,
        size: u8,
        options: OptionArray,
    },
    AddFile {
        path: u8,
        options: OptionArray,
    },
    /// Links; the cubin belongs to the link state.
    Complete {
        cubin: u8,
        size: u8,
    },
    /// Destroys one, and the cubin with it.
    Destroy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchOp {
    /// Everything is in parameters.
    Arguments(LaunchArguments),
    /// `cuLaunchKernelEx`: shape, stream and attributes are in a `CUlaunchConfig`.
    Config(LaunchConfig),
    /// `cuLaunchCooperativeKernelMultiDevice`.
    MultiDevice { list: u8, count: u8 },
    /// `cuLaunch` and its kin: the parameters come from earlier calls.
    Legacy { function: u8 },
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
    pub function: u8,
    /// `gridDimX`; the other two and the three of the block follow.
    pub grid: u8,
    pub shared: u8,
    pub stream: u8,
    pub parameters: u8,
    /// `extra`, which cooperative launches lack.
    pub extra: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    pub config: u8,
    pub function: u8,
    pub parameters: u8,
    pub extra: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OccupancyOp {
    Function,
    /// About a launch that a `CUlaunchConfig` describes.
    Config {
        config: u8,
        function: u8,
    },
}

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
    /// Arrays of addresses and sizes. `starts` says of which copy on each of `attributes` holds.
    Batch {
        targets: u8,
        sources: u8,
        sizes: u8,
        count: u8,
        attributes: u8,
        starts: u8,
        attribute_count: u8,
    },
    /// An array of `CUDA_MEMCPY3D_BATCH_OP`.
    Batch3D { operations: u8, count: u8 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    pub source: u8,
    pub target: u8,
    pub bytes: u8,
    pub from: MemoryType,
    pub to: MemoryType,
}

/// What an operand of a copy is; the numbers are those of `CUmemorytype`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MemoryType {
    Host = 1,
    Device = 2,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryOp {
    Allocate,
    /// `cuMemAllocPitch`: the driver chooses the pitch.
    AllocatePitch {
        pitch: u8,
    },
    AllocateManaged,
    /// From a pool, in the order of a stream.
    AllocateAsync,
    /// `cuMemFree`, which waits for the context.
    Free,
    FreeAsync,
    AddressRange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostMemoryOp {
    Allocate,
    Free,
    /// Page-locks memory of the program.
    Register,
    Unregister,
    DevicePointer,
    Flags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VirtualMemoryOp {
    Reserve,
    FreeReservation,
    Create {
        size: u8,
        properties: u8,
    },
    Release,
    Map {
        address: u8,
        size: u8,
        allocation: u8,
    },
    Unmap {
        address: u8,
        size: u8,
    },
    SetAccess {
        address: u8,
        size: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerOp {
    Attribute,
    /// `cuPointerGetAttributes`: the values lie apart.
    Attributes {
        count: u8,
        attributes: u8,
        data: u8,
    },
    SetAttribute,
    RangeAttribute,
    /// `cuMemRangeGetAttributes`: the values lie apart.
    RangeAttributes {
        count: u8,
        attributes: u8,
        data: u8,
        sizes: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamOp {
    Query,
    Synchronize,
    Destroy,
    WaitEvent,
    /// Begins a capture, into a new graph or a given one.
    BeginCapture,
    /// Ends a capture, also when it fails.
    EndCapture,
    SetAttribute {
        attribute: u8,
        value: u8,
    },
    /// `cuStreamAttachMemAsync`: which streams may use managed memory.
    AttachMemory,
    /// Asks about a capture; what follows the status is written only while the stream captures.
    CaptureInfo {
        status: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamMemoryOp {
    Wait,
    Write,
    Batch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventOp {
    Create,
    Record,
    Query,
    Synchronize,
    ElapsedTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphOp {
    /// Adds a node with parameters.
    AddNode(NodeParams),
    GetNode(NodeParams),
    SetNode(NodeParams),
    /// Sets the parameters of a node of an executable graph.
    SetExecNode(NodeParams),
    /// Switches a node of an executable graph on or off.
    SetEnabled,
    GetKernelAttribute {
        attribute: u8,
        value: u8,
    },
    SetKernelAttribute {
        attribute: u8,
        value: u8,
    },
    List,
    Instantiate {
        params: Option<u8>,
    },
    Update,
    DestroyExec,
    /// `cuGraphClone`: copies a graph with its nodes.
    Clone,
    /// Adds edges between nodes of a graph.
    AddEdges,
    RemoveEdges,
    /// `cuGraphKernelNodeCopyAttributes`.
    CopyAttributes,
    Upload,
    Launch,
    /// `cuGraphConditionalHandleCreate`: the handle is a number that kernels are given.
    ConditionalHandle,
    DotFile {
        path: u8,
    },
}

/// Who gains or loses references to a user object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserReferenceOp {
    Retain,
    Release,
    /// A graph gains references, its own or the caller's.
    RetainForGraph,
    ReleaseOfGraph,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeParams {
    /// The struct, or the child graph.
    pub position: u8,
    /// What the node does.
    pub kind: NodeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    Kernel,
    Copy,
    Memset,
    Host,
    ChildGraph,
    Semaphores,
    MemoryOps,
    Allocation,
    /// `CUgraphNodeParams`: its first member says which.
    Any,
}
