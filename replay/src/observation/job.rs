//! What to read around calls of a replay, and what was read.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::report::Report;

/// Which calls to observe.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Observation {
    /// What to read around each of them, by index.
    pub calls: BTreeMap<u64, Moments>,
    /// The variables of device code to read with launches of its kernels, by the index of the call
    /// that loads the code.
    pub variables: BTreeMap<u64, Vec<String>>,
    /// Where the bytes go. A file that is there is replaced. Without a path none are written.
    pub contents: PathBuf,
    /// Of longer memory that a launch can reach, that many bytes are read from each address that
    /// points into it: some programs allocate most of the device at once.
    pub longest: u64,
    /// Of each graph that is launched, at most that many kernel nodes, chosen evenly.
    pub most_nodes: Option<usize>,
    /// The most bytes that the file gets. Memory that does not fit is left out, and named.
    pub most_bytes: u64,
    /// Recorded addresses of first bytes and ends. With [`Reach::Part`]: the memory that the calls of
    /// the part may read. With [`Reach::All`]: only this memory is read; all, if there is none.
    pub reads: Vec<(u64, u64)>,
    /// Memory of which every change is wanted. Graphs run node by node then.
    #[serde(default)]
    pub watched: Vec<WatchedRange>,
    /// The changes of each watched range that are kept, the last ones.
    #[serde(default)]
    pub most_changes: usize,
    /// Instead, the first ones are kept that this call or a later one makes; that memory begins or
    /// ends is none.
    #[serde(default)]
    pub first_changes: Option<u64>,
    /// Numbers that are looked for in what calls write to device memory. Graphs run node by node
    /// then.
    #[serde(default)]
    pub search: Option<Search>,
    /// Calls whose work is made to run in an order.
    #[serde(default)]
    pub order: Option<ForcedOrder>,
    /// The replay ends before this call; `None`: behind the last of `calls`, or at the end.
    #[serde(default)]
    pub until: Option<u64>,
}

impl Observation {
    /// Whether the launches that a call makes are observed.
    pub(crate) fn is_of_launches(&self, call: u64) -> bool {
        let moments = self.calls.get(&call);
        moments.is_some_and(|moments| moments.reach == Reach::Launch)
    }
}

/// What to read around a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moments {
    /// Which memory.
    pub reach: Reach,
    /// Read it before the call.
    pub before: bool,
    /// Read it after the work of the call.
    pub after: bool,
    /// Of the launch of a graph with [`Reach::Launch`]: only this kernel node.
    pub node: Option<u32>,
}

/// Which memory is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// All memory that is live before the call, or what of it lies in `reads`.
    #[default]
    All,
    /// What a launch can reach: memory that its parameters point into, memory that 8-byte words in
    /// that memory point into, and the variables of its kernel's module. A graph runs node by node,
    /// and each of its kernels is a launch.
    Launch,
    /// What the calls of a part of the trace can reach: the memory that they read, memory that
    /// 8-byte words in it point into, and so on; variables of modules that kernels may have written.
    /// Words that point into memory at other addresses than recorded are given as recorded. Host
    /// memory that holds what notes of the trace say is left out. The call is not issued.
    Part,
}

/// A replay, and what it read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Observed {
    /// The replay.
    pub report: Report,
    /// In the order in which they were played.
    pub calls: Vec<ObservedCall>,
    /// Bytes in the file of contents.
    pub bytes: u64,
    /// The version of the driver, e.g. 13000.
    #[serde(default)]
    pub driver_version: i32,
    /// The names of its devices.
    #[serde(default)]
    pub devices: Vec<String>,
    /// What was seen of each watched range.
    #[serde(default)]
    pub watched: Vec<Seen>,
    /// What could not be looked at for `watched` and `search`, and why, one line each.
    #[serde(default)]
    pub not_watched: Vec<String>,
    /// Why the work of the calls of `order` did not run in that order.
    #[serde(default)]
    pub not_ordered: Option<String>,
    /// Where the numbers that are looked for were found, in the order of calls.
    #[serde(default)]
    pub hits: Vec<Hit>,
    /// With [`Search::writes`]: what was written, in the order of calls.
    #[serde(default)]
    pub written: Vec<Written>,
    /// The writes that were to be described.
    #[serde(default)]
    pub write_sets: Vec<WriteSet>,
}

/// An observed call.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ObservedCall {
    /// Its index.
    pub call: u64,
    /// Of the launch of a graph: which of its kernel nodes, in the order in which they ran.
    pub node: Option<u32>,
    /// The launch as the driver got it, if it is one.
    pub launch: Option<ObservedLaunch>,
    /// The memory that was read, by address.
    pub memory: Vec<ObservedMemory>,
    /// Memory that was not read: which and why, one line each.
    pub left_out: Vec<String>,
    /// With [`Reach::Part`]: how many words were changed to recorded addresses.
    #[serde(default)]
    pub replaced_words: u64,
    /// Why the call could not be observed.
    pub refused: Option<String>,
    /// With which other ranks it exchanges data, so that it was left out: `rank 1`.
    #[serde(default)]
    pub exchanges_with: Option<String>,
    /// It is captured into a graph, and does nothing by itself.
    pub is_captured: bool,
}

/// Memory that was read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ObservedMemory {
    /// Its address in the recording.
    pub recorded: u64,
    /// Its address in the replay. Pointers in contents and parameters are addresses in the replay.
    pub live: u64,
    /// Bytes.
    pub length: u64,
    /// What kind of memory it is.
    pub kind: MemoryKind,
    /// Of a variable that was read with a launch its name; otherwise the function that allocated,
    /// mapped or found it.
    pub name: String,
    /// Index of the call of that function; of a variable that was read with a launch, that loaded
    /// its module.
    pub made: u64,
    /// It is a variable that was found by its name in a module.
    #[serde(default)]
    pub is_of_module: bool,
    /// Of a variable: nothing has written it since its module was loaded, as far as calls and
    /// contents show.
    pub as_loaded: bool,
    /// Contents before the call; everything between the pieces is zero.
    pub before: Vec<Piece>,
    /// Contents after it; none if the memory ended in the call.
    pub after: Vec<Piece>,
    /// The memory ended in the call, as far as it was to be read after it.
    #[serde(default)]
    pub has_ended: bool,
    /// Of an array: its shape. Its contents are its levels one after the other, each without gaps
    /// between rows.
    pub array: Option<ArrayShape>,
    /// Words of the contents before the call that hold addresses of variables: offset, address.
    pub addresses_before: Vec<(u64, u64)>,
    /// The same after it.
    pub addresses_after: Vec<(u64, u64)>,
}

/// The kind of some memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryKind {
    /// Allocated on a device.
    #[default]
    Device,
    /// Physical memory mapped into an address reservation.
    Mapped,
    /// Managed memory.
    Managed,
    /// Page-locked host memory, allocated or registered.
    Host,
    /// A variable of a module.
    Variable,
    /// An array or a mipmapped array, which has no address: `live` is its handle.
    Array,
}

/// The shape of an array, as in `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayShape {
    /// Elements of a row.
    pub width: u64,
    /// Rows; 0 for an array of one dimension.
    pub height: u64,
    /// Planes, layers or faces; 0 for an array of one or two dimensions.
    pub depth: u64,
    /// `CUarray_format`.
    pub format: u32,
    /// Numbers of an element.
    pub channels: u32,
    /// `CUDA_ARRAY3D_...`.
    pub flags: u32,
    /// Of a mipmapped array; 0 for an array.
    pub levels: u32,
}

/// A piece of contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Offset in the memory.
    pub at: u64,
    /// Bytes.
    pub length: u64,
    /// Offset in the file of contents. Equal contents share their place.
    pub file: u64,
}

/// A launch as the driver got it in the replay.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ObservedLaunch {
    /// Name of the kernel in its image; empty if the driver does not tell.
    pub kernel: String,
    /// Index of the call that loaded its module or library, if the trace shows it.
    pub loaded: Option<u64>,
    /// Name of the device in the replay.
    pub device: String,
    /// Its compute capability.
    pub capability: [i32; 2],
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// The packed parameters, with addresses of the replay.
    pub parameters: Vec<u8>,
    /// Offset and size of each parameter; empty if not known.
    pub layout: Vec<(u32, u32)>,
    /// Launch attributes: `CUlaunchAttributeID` and the bytes of the value. Attributes that name
    /// events are left out.
    pub attributes: Vec<(u32, Vec<u8>)>,
    /// Function attributes that a program can set: `CUfunction_attribute` and value.
    pub function_attributes: Vec<(u32, i32)>,
    /// Limits of the context: `CUlimit` and value.
    pub limits: Vec<(u32, u64)>,
    /// Texture and surface objects among the parameters.
    pub textures: Vec<ObservedTexture>,
}

/// A texture or surface object whose handle a parameter equals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedTexture {
    /// Offset of the parameter, or of the word in it.
    pub offset: u32,
    /// Its handle in the replay.
    pub handle: u64,
    /// A surface object.
    pub is_surface: bool,
    /// Its `CUDA_RESOURCE_DESC`, with addresses and handles of the replay.
    pub resource: Vec<u8>,
    /// Of a texture object: its `CUDA_TEXTURE_DESC`.
    pub sampler: Vec<u8>,
    /// Its `CUDA_RESOURCE_VIEW_DESC`; empty without one.
    pub view: Vec<u8>,
    /// The handle of the array or mipmapped array that it shows; `None` for linear memory.
    pub array: Option<u64>,
}

/// Memory of which every change is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchedRange {
    /// Its address in the recording.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Changes from there on are not wanted; `None`: all are.
    pub until: Option<Moment>,
}

/// When something is changed: a call, and where in it. 0 is before the call, a node of a graph is
/// its number plus 1, the call itself the largest number.
pub type Moment = (u64, u32);

/// What has changed watched memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Writer {
    /// The call.
    #[default]
    Call,
    /// A node of the graph that the call launches: its number in the order in which they ran, and
    /// what it does.
    Node(u32, String),
    /// The program's CPU code, before the call; or what the trace keeps of memory.
    Host,
    /// The memory was allocated, mapped or found by the call. Its first contents are `after`.
    Begins,
    /// The memory was freed or unmapped by the call.
    Ends,
}

impl Writer {
    /// Its moment in a call.
    pub fn moment(&self, call: u64) -> Moment {
        let place = match self {
            Self::Host => 0,
            Self::Node(node, _) => node.saturating_add(1),
            Self::Call | Self::Begins | Self::Ends => u32::MAX,
        };
        (call, place)
    }
}

/// A change of watched memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The call.
    pub call: u64,
    /// The first call that can have changed it: earlier than `call` if the replay could not look
    /// between them, because a stream was capturing.
    pub since: u64,
    /// What has changed it.
    pub by: Writer,
    /// The changed bytes, as offset and length.
    pub parts: Vec<(u64, u64)>,
    /// In some of the parts, whole pages of 16 KiB, only some bytes have changed: of ranges of more
    /// than [`EXACT`](crate::EXACT) bytes.
    #[serde(default)]
    pub in_pages: bool,
    /// The offset of `before` and `after`, a multiple of 8.
    pub at: u64,
    /// Bytes from about the first changed one on; empty if only pages are known.
    pub before: Vec<u8>,
    /// The same bytes after the change.
    pub after: Vec<u8>,
    /// Of a kernel: the parameters that point into memory, as number and recorded address.
    pub pointers: Vec<(u32, u64)>,
}

/// What was seen of one watched range.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Seen {
    /// The range.
    pub range: WatchedRange,
    /// Changes in all.
    pub count: u64,
    /// The last of them, the oldest first.
    pub last: VecDeque<Change>,
    /// What kind of memory it lies in, when last seen.
    pub kind: Option<MemoryKind>,
    /// What the memory around it is: the function and the call that made it, its first address and
    /// its bytes.
    pub made: Option<(String, u64, u64, u64)>,
}

/// Numbers that are looked for, by their absolute values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Search {
    /// For each type, f16, bf16, f32 and f64, the first and the last bits that are hits; none if
    /// the first are greater.
    pub ranges: [(u64, u64); 4],
    /// Recorded addresses of first bytes and ends: where to look. Empty: in all device memory.
    pub within: Vec<(u64, u64)>,
    /// What earlier calls write is not looked at.
    pub from: u64,
    /// How many calls or nodes with hits of each type are kept, the first ones.
    pub most: usize,
    /// What calls and nodes write is wanted, too.
    #[serde(default)]
    pub writes: Option<Writes>,
}

/// What is wanted of the writes of calls and nodes to device memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writes {
    /// Which are described, by [`Writer::moment`], and which memory is read after them: recorded
    /// addresses of first bytes and ends.
    pub described: Vec<(Moment, Vec<(u64, u64)>)>,
    /// Calls of which all writes are described: of a graph those of each node.
    pub listed: Vec<u64>,
}

impl Writes {
    /// Whether the writes of that moment are described.
    pub(crate) fn has(&self, moment: Moment) -> bool {
        let mut described = self.described.iter();
        self.listed.contains(&moment.0) || described.any(|(wanted, _)| *wanted == moment)
    }
}

/// What a call or a node has written to device memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// The call.
    pub call: u64,
    /// The first call that can have written it; see [`Hit::since`].
    pub since: u64,
    /// What has written.
    pub by: Writer,
    /// How many pages have changed.
    pub pages: u64,
    /// A digest of these pages and their places in their memory.
    pub digest: u64,
}

/// A description of what a call or a node has written.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WriteSet {
    /// The call.
    pub call: u64,
    /// What has written.
    pub by: Writer,
    /// The pages that have changed, in the order of their recorded addresses.
    pub pages: Vec<ChangedPage>,
    /// The device memory that lives then, without contents.
    pub memory: Vec<ObservedMemory>,
    /// The memory that was to be read, in the same order, with its contents after the write.
    pub read: Vec<ObservedMemory>,
    /// What was not read, and why, one line each.
    pub left_out: Vec<String>,
}

/// A page that has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedPage {
    /// Index of the call that made its memory.
    pub made: u64,
    /// Its offset there.
    pub offset: u64,
    /// Its recorded address.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// A digest of its contents.
    pub digest: u64,
}

/// A call or a node after which numbers are there that were looked for, and were not there before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    /// The call.
    pub call: u64,
    /// The first call that can have written them: earlier than `call` if the replay could not look
    /// between them, because a stream was capturing.
    pub since: u64,
    /// What has written them.
    pub by: Writer,
    /// Their type, a position in [`Search::ranges`].
    pub kind: usize,
    /// In how many pages they are, of 16 KiB or as long as their memory.
    pub pages: u64,
    /// The recorded address of the first number.
    pub address: u64,
    /// Its bits.
    pub value: u64,
    /// How many are in its page. If some of them were there before, other ones were not.
    pub count: u64,
}

/// Calls that enqueue work in several streams, and in which order their work runs. A stream waits
/// while work that it got is not yet to run, and with it what follows in that stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForcedOrder {
    /// The calls, in the order of their work.
    pub calls: Vec<u64>,
    /// Calls that come after the first of them in the trace, and that are issued before it: those
    /// that load code, which wait for work that is kept back.
    pub loads: Vec<u64>,
    /// Their streams wait before the first of them until the last one is enqueued; nothing else is
    /// enqueued between.
    pub is_together: bool,
    /// A launch that gets no programmatic stream serialization.
    pub serialized: Option<u64>,
}
