//! The rows: a struct for each kind, with its columns.

use cutape_analyzer::Finding;
use cutape_analyzer::decode::{Decoded, Value};
use cutape_format::{Call, Enumeration, Payload, Thread, TraceClock};
use cutape_model::{LaunchShape, MemoryKind, Origin, Side};
use cutape_registry::Function;

use super::arguments::{DecodeArguments, KernelLayouts};
use super::reference::{CallRef, ObjectRef, StreamRef};

/// The trace: its process, program and machine. Comes first.
#[derive(Clone, Debug)]
pub struct TraceRow {
    /// The file's name without its folder.
    pub trace: String,
    /// The number of the process.
    pub process: u32,
    /// Its parent's.
    pub parent: Option<u32>,
    /// In a parallel program: the number among all processes.
    pub rank: Option<u64>,
    /// The number among those of the machine.
    pub local_rank: Option<u64>,
    /// The path of the program.
    pub program: Option<String>,
    /// Its arguments, with its own name.
    pub arguments: Vec<String>,
    /// Nanoseconds since 1970 when the recording started.
    pub started_unix_ns: u64,
    /// The recorder's version.
    pub recorder_version: Option<String>,
    /// As `cuDriverGetVersion` returns it, e.g. 13000.
    pub driver_version: Option<u64>,
    /// `null` for the null driver.
    pub driver_kind: Option<String>,
    /// The names of the devices.
    pub devices: Vec<String>,
    /// The program's exit status.
    pub exit_status: Option<i64>,
    /// The signal that ended it.
    pub exit_signal: Option<i64>,
    /// The program was still running when the trace was read.
    pub still_recording: bool,
    /// The recording ended early, so that calls are missing: why.
    pub ended_early: Option<String>,
    /// The threads that made calls, by ordinal.
    pub threads: Vec<Thread>,
}

impl TraceRow {
    /// The rank, or the one on its machine.
    pub fn any_rank(&self) -> Option<u64> {
        self.rank.or(self.local_rank)
    }
}

/// A call.
#[derive(Clone, Copy)]
pub struct CallRow<'a> {
    /// Index, thread, times, result.
    pub call: CallRef,
    /// The exported name.
    pub function: &'a str,
    /// The same in the registry; `None` if it does not know the function.
    pub known: Option<&'static Function>,
    /// It returned a `CUresult` other than `CUDA_SUCCESS`.
    pub failed: bool,
    /// Rows about its launches, copies or waits follow.
    pub has_work: bool,
    /// For everything else.
    pub record: &'a Call<'a>,
    /// The names of results, if the function returns a `CUresult`.
    pub(super) results: Option<&'a Enumeration>,
    pub(super) decoder: &'a dyn DecodeArguments,
}

impl<'a> CallRow<'a> {
    /// The section of the CUDA driver API manual; `None` for a function that the registry does not
    /// know.
    pub fn section(&self) -> Option<&'static str> {
        Some(self.known?.section)
    }

    /// The name of the result, if the function returns a `CUresult`.
    pub fn result_name(&self) -> Option<&'a str> {
        self.results?.name_of(i64::from(self.call.result?))
    }

    /// The name in its image of the first kernel that the call launches.
    pub fn kernel(&self) -> Option<&'a str> {
        let shape = LaunchShape::of(self.known?, self.record);
        self.decoder.kernel_name(shape.kernel?)
    }

    /// Decodes the arguments, and what the call wrote behind pointers: of arrays and blocks at most
    /// that many elements. Handles have labels such as `module#2`.
    pub fn arguments(&self, elements: usize) -> Decoded<'a> {
        self.decoder.decode(self.record, elements)
    }

    /// The parameters of the kernel that the call launches, decoded by their sizes and values;
    /// `None` for other calls, and if the trace does not have them or their layout.
    pub fn kernel_parameters(&self, layouts: &KernelLayouts) -> Option<Vec<Value>> {
        if !self.has_work {
            return None;
        }
        self.decoder.kernel_parameters(self.record, layouts)
    }
}

/// A device code image that a call loads or links; comes before the first row that refers to
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRow {
    /// The first 16 bytes of the blake3 hash of its bytes, in hexadecimal: equal in every trace.
    pub hash: String,
    /// `cubin`, `fatbin`, `PTX`, ..., `unknown`.
    pub kind: &'static str,
    /// Its length.
    pub bytes: u64,
    /// The first call that uses it.
    pub call: CallRef,
}

/// A use of an image by a call that loads, links or makes it; comes after the row of an image that
/// the call loads or links.
#[derive(Clone, Copy, Debug)]
pub struct ImageUseRow<'a> {
    /// The call.
    pub call: CallRef,
    /// Its function.
    pub function: &'a str,
    /// The image; `None` if the trace has neither its bytes nor their hash.
    pub image: Option<&'a ImageRow>,
    /// The trace has the bytes.
    pub is_kept: bool,
    /// The bytes, at least in the first row of the image that has them.
    pub content: Option<&'a [u8]>,
}

/// A kernel that a call launches.
#[derive(Clone, Copy, Debug)]
pub struct LaunchRow<'a> {
    /// The call.
    pub call: CallRef,
    /// The driver's value for the function or kernel; `None` if the trace lacks it.
    pub handle: Option<u64>,
    /// The name in the image; `None` if no call shows it.
    pub kernel: Option<&'a str>,
    /// The name as in the source.
    pub demangled: Option<&'a str>,
    /// The function or kernel; `None` if no call shows where its handle comes from.
    pub function: Option<ObjectRef>,
    /// The module or library that it is in.
    pub module: Option<ObjectRef>,
    /// The hash of the image that the module was loaded from, as in [`ImageRow::hash`].
    pub image: Option<&'a str>,
    /// Blocks in x, y, z.
    pub grid: Option<[u64; 3]>,
    /// Threads of a block in x, y, z.
    pub block: Option<[u64; 3]>,
    /// Bytes of dynamic shared memory of a block.
    pub shared_bytes: Option<u64>,
    /// The stream.
    pub stream: Option<StreamRef>,
    /// The stream captured: the launch became a node of a graph and did not run.
    pub is_captured: bool,
}

impl LaunchRow<'_> {
    /// Threads of the whole grid.
    pub fn threads(&self) -> Option<u64> {
        let sizes = self.grid?.into_iter().chain(self.block?);
        Some(sizes.fold(1, u64::saturating_mul))
    }
}

/// A launch of an executable graph.
#[derive(Clone, Copy, Debug)]
pub struct GraphLaunchRow {
    /// The call.
    pub call: CallRef,
    /// The executable graph.
    pub graph: Option<ObjectRef>,
    /// Its nodes that are switched on, in child graphs too; `None` if not all are known.
    pub nodes: Option<u64>,
    /// Those that are kernels; a row for each follows.
    pub kernels: Option<u64>,
    /// The stream.
    pub stream: Option<StreamRef>,
    /// The stream captured: the graph became a node of another one and did not run.
    pub is_captured: bool,
}

/// A kernel that a launch of an executable graph runs. If not all nodes of the graph are known,
/// there are no such rows.
#[derive(Clone, Copy, Debug)]
pub struct GraphKernelRow<'a> {
    /// The executable graph.
    pub graph: Option<ObjectRef>,
    /// The number of the node among those of the launch that are switched on, from 0: in the order
    /// in which they were added, with those of child graphs before their own node. The order of the
    /// kernels on the GPU is that of the graph's edges.
    pub node: u64,
    /// The kernel, its shape, and the call and stream of the graph's launch.
    pub launch: LaunchRow<'a>,
}

/// A copy or a memset.
#[derive(Clone, Copy, Debug)]
pub struct CopyRow {
    /// The call. One that copies a batch has several rows.
    pub call: CallRef,
    /// What is read; `None` for a memset, and if the trace lacks it.
    pub from: Option<Side>,
    /// What is written; `None` if the trace lacks it.
    pub to: Option<Side>,
    /// It fills memory with a value.
    pub is_memset: bool,
    /// `None` if the trace lacks the size.
    pub bytes: Option<u64>,
    /// The call names the contexts of both operands.
    pub is_peer: bool,
    /// The call has a stream: it may return before the copy is done.
    pub is_async: bool,
    /// The stream; that of a call without one is the default stream.
    pub stream: Option<StreamRef>,
    /// The stream captured: the copy became a node of a graph and did not run.
    pub is_captured: bool,
}

impl CopyRow {
    /// `host-to-device`, `device-to-host`, `device-to-device`, `host-to-host`, `memset`, or
    /// `unknown`. Arrays are memory of the device, managed memory counts as the host's.
    pub fn kind(&self) -> &'static str {
        match (self.is_memset, self.from, self.to) {
            (true, ..) => "memset",
            (false, Some(from), Some(to)) => match (from.is_device(), to.is_device()) {
                (false, true) => "host-to-device",
                (true, false) => "device-to-host",
                (true, true) => "device-to-device",
                (false, false) => "host-to-host",
            },
            _ => "unknown",
        }
    }
}

/// What a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The host waits for all work of a context.
    Context,
    /// The host waits for the work of a stream.
    Stream,
    /// The host waits for an event.
    Event,
    /// A stream waits for an event; the host does not.
    EventInStream,
}

impl Awaited {
    /// The word in data.
    pub fn key(self) -> &'static str {
        match self {
            Self::Context => "context",
            Self::Stream => "stream",
            Self::Event => "event",
            Self::EventInStream => "event-in-stream",
        }
    }
}

/// A wait. Copies that wait for themselves are only copies.
#[derive(Clone, Copy, Debug)]
pub struct WaitRow {
    /// The call; its duration is what the host waited.
    pub call: CallRef,
    /// What for.
    pub awaited: Awaited,
    /// The stream that is waited for, or that waits.
    pub stream: Option<StreamRef>,
    /// The event.
    pub event: Option<ObjectRef>,
}

/// An event is recorded in a stream, outside of captures.
#[derive(Clone, Copy, Debug)]
pub struct EventRecordRow {
    /// The call.
    pub call: CallRef,
    /// The stream.
    pub stream: Option<StreamRef>,
    /// The event.
    pub event: Option<ObjectRef>,
}

/// A stream calls a function of the program, outside of captures.
#[derive(Clone, Copy, Debug)]
pub struct HostFunctionRow {
    /// The call.
    pub call: CallRef,
    /// The stream.
    pub stream: Option<StreamRef>,
}

/// How an object's life ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A call destroyed it.
    Destroyed,
    /// It ended with what it belongs to.
    WithOwner,
    /// Nothing showed its end, but the driver gave its handle out again.
    HandleReused,
    /// It lived when the trace ended.
    Alive,
}

impl Ending {
    /// The word in data.
    pub fn key(self) -> &'static str {
        match self {
            Self::Destroyed => "destroyed",
            Self::WithOwner => "with-owner",
            Self::HandleReused => "handle-reused",
            Self::Alive => "alive",
        }
    }
}

/// An object; comes when its life has ended, or at the end of the trace.
#[derive(Clone, Copy, Debug)]
pub struct ObjectRow<'a> {
    /// Kind and number.
    pub object: ObjectRef,
    /// The driver's value for it; of memory its address.
    pub handle: u64,
    /// How the handle became known.
    pub origin: Origin,
    /// Index of the call that created it or first returned its handle.
    pub created_call: u64,
    /// Its function; empty if only a name of the object was seen.
    pub created_by: &'static str,
    /// When that call had returned, in ticks of the trace's clock.
    pub created_ticks: u64,
    /// Index of the call that ended it.
    pub ended_call: Option<u64>,
    /// When that call was entered, in ticks.
    pub ended_ticks: Option<u64>,
    /// How.
    pub ending: Ending,
    /// What it belongs to.
    pub parent: Option<ObjectRef>,
    /// The context that it lives in.
    pub context: Option<ObjectRef>,
    /// Bytes, for what occupies addresses; `None` if not known.
    pub bytes: Option<u64>,
    /// The kind of memory, if it is memory that the program allocated.
    pub memory: Option<MemoryKind>,
    /// Its name in the image.
    pub name: Option<&'a str>,
    /// Of a module or library: the hash of its image.
    pub image: Option<&'a str>,
    pub(super) clock: TraceClock,
}

impl ObjectRow<'_> {
    /// When the call that created it had returned.
    pub fn created_ns(&self) -> Option<u64> {
        self.clock.since_start(self.created_ticks)
    }

    /// When the call that ended it was entered.
    pub fn ended_ns(&self) -> Option<u64> {
        self.clock.since_start(self.ended_ticks?)
    }

    /// Whether the program created it and never destroyed it.
    pub fn is_leaked(&self) -> bool {
        self.origin == Origin::Created && self.ending == Ending::Alive
    }
}

/// The word for an origin in data.
pub fn origin_key(origin: Origin) -> &'static str {
    match origin {
        Origin::Created => "created",
        Origin::Found => "found",
        Origin::FirstSeen => "first-seen",
    }
}

/// A change of the memory that the program has allocated.
#[derive(Clone, Copy, Debug)]
pub struct MemoryRow {
    /// The call that caused it.
    pub call: CallRef,
    /// The kind of memory.
    pub kind: MemoryKind,
    /// The block.
    pub object: ObjectRef,
    /// The block's bytes.
    pub bytes: u64,
    /// The block is freed, not new.
    pub is_free: bool,
    /// The bytes of this kind that are allocated after it.
    pub live_bytes: u64,
    /// The number of blocks.
    pub live_blocks: u64,
}

impl MemoryRow {
    /// When it counts: a new block from the return of its call, a freed one until the entry.
    pub fn ns(&self) -> Option<u64> {
        match self.is_free {
            true => self.call.enter_ns(),
            false => self.call.end_ns(),
        }
    }

    /// The change in bytes; negative for a free.
    pub fn change(&self) -> i64 {
        // What no account could hold is no size of a block.
        let size = i64::try_from(self.bytes).unwrap_or(i64::MAX);
        if self.is_free { -size } else { size }
    }
}

/// A range of the program, or a mark, which is a moment. All come before the calls.
#[derive(Clone, Copy, Debug)]
pub struct RangeRow<'a> {
    /// Its text.
    pub name: &'a str,
    /// The names of the ranges around it and its own: `train/step`.
    pub path: &'a str,
    /// NVTX's domain; `None` for the default one.
    pub domain: Option<&'a str>,
    /// The ordinal of the thread that began it; `None` if it never called the driver, or for
    /// another process.
    pub thread: Option<u32>,
    /// It is a moment.
    pub is_mark: bool,
    /// It is a range that did not end.
    pub is_open: bool,
    /// It lies inside the pushed range around it on its thread and in its domain. Other ranges may
    /// overlap.
    pub is_pushed: bool,
    /// When it began, in ticks of the trace's clock.
    pub begin_ticks: u64,
    /// When it ended, in ticks; `None` for a mark and for a range that did not end.
    pub end_ticks: Option<u64>,
    /// The number that the program gave it.
    pub payload: Option<Payload>,
    pub(super) clock: TraceClock,
}

impl RangeRow<'_> {
    /// When it began.
    pub fn begin_ns(&self) -> Option<u64> {
        self.clock.since_start(self.begin_ticks)
    }

    /// When it ended; `None` for a mark and for a range that did not end.
    pub fn end_ns(&self) -> Option<u64> {
        self.clock.since_start(self.end_ticks?)
    }
}

/// A finding of the analyzer, of every class.
#[derive(Clone, Copy, Debug)]
pub struct FindingRow<'a> {
    /// The finding.
    pub finding: &'a Finding,
    /// The call; `None` for what is missing at the trace's end.
    pub call: Option<CallRef>,
}

impl FindingRow<'_> {
    /// Indices of other calls that it is about: those that created and ended its objects.
    pub fn related_calls(&self) -> Vec<u64> {
        let objects = self.finding.objects.iter();
        let calls = objects.flat_map(|object| [Some(object.created_call), object.destroyed_call]);
        let own = self.finding.call.as_ref().map(|call| call.index);
        let mut calls: Vec<u64> = calls.flatten().filter(|call| Some(*call) != own).collect();
        calls.sort_unstable();
        calls.dedup();
        calls
    }
}
