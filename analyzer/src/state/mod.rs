//! The model of the driver's state with what rules look at beside it.

mod creations;
pub(crate) mod data;
pub(crate) mod errata;
mod errata_calls;
mod executed;
pub(crate) mod execution;
pub(crate) mod failures;
mod gap;
mod graph_memory;
pub(crate) mod growth;
mod host_addresses;
mod host_operands;
mod image_facts;
mod launched;
pub(crate) mod launches;
pub(crate) mod links;
mod multicast;
pub(crate) mod options;
pub(crate) mod ordering;
pub(crate) mod pending;
mod undefined;
mod update;

use std::ops::Deref;
use std::sync::Arc;

use cutape_format::layout::field;
use cutape_format::{Call, FileRange, Snapshot};
use cutape_image::Image;
use cutape_model::{ObjectId, Retention, Site};
use cutape_registry::Kind;
use rustc_hash::FxHashMap;

use crate::context::TraceContext;
use crate::layouts::Layouts;
use crate::plan::{OptionShape, Plan};
use data::{Cubin, Data, ImageBytes, ImageData, LinkData, Multicast, Options, Own, TensorMap};
use errata::Errata;
use execution::Execution;
use failures::Failure;
use growth::Growth;
use host_addresses::HostAddresses;
use launches::Launches;
use pending::Ordering;

/// How many ended objects of each kind are remembered.
const ENDED: usize = 4096;
/// How many option arrays are remembered.
const ARRAYS: usize = 1024;
/// How many names that the driver returned are remembered.
const NAMES: usize = 16384;
/// How many cubins of destroyed link states are remembered.
const DEAD_CUBINS: usize = 256;
/// Bytes of a `CUtensorMap`.
pub(crate) const TENSOR_MAP_BYTES: usize = 128;
/// How many tensor maps are remembered.
const TENSOR_MAPS: usize = 4096;

/// A thread of the program.
#[derive(Debug, Default)]
pub(crate) struct ThreadState {
    /// The operating system's number; 0 if not known.
    pub(crate) number: u32,
    pub(crate) failures: Vec<Failure>,
    /// The last question for a parameter that the driver answered: handle and index.
    pub(crate) parameter_asked: Option<(u64, u64)>,
}

/// The last use of an array of option values.
#[derive(Clone, Debug)]
pub(crate) struct ArrayUse {
    pub(crate) numbers: Vec<u32>,
    /// As the program passed it.
    pub(crate) given: Vec<u64>,
    /// As the driver left it.
    pub(crate) left: Vec<u64>,
    pub(crate) site: Site,
}

/// A string of the driver's that a call returned.
#[derive(Clone, Debug)]
pub(crate) struct DriverName {
    pub(crate) owner: ObjectId,
    pub(crate) text: String,
    pub(crate) site: Site,
}

/// The model, and what rules look at beside it.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) model: cutape_model::State<Own>,
    pub(crate) threads: Vec<ThreadState>,
    pub(crate) cubins: Vec<Cubin>,
    pub(crate) arrays: FxHashMap<u64, ArrayUse>,
    pub(crate) names: FxHashMap<u64, DriverName>,
    layouts: Layouts,
    pub(crate) launches: Launches,
    /// Live link states whose option values the driver writes to.
    pub(crate) writing_links: Vec<ObjectId>,
    /// Live libraries whose image must stay where it is.
    pub(crate) preserving: Vec<ObjectId>,
    /// Tensor maps by content.
    pub(crate) tensor_maps: FxHashMap<[u8; TENSOR_MAP_BYTES], TensorMap>,
    /// A function or kernel has a cache configuration or a carveout.
    pub(crate) has_preferences: bool,
    /// There has been a texture or surface object.
    pub(crate) has_textures: bool,
    pub(crate) ordering: Ordering,
    /// What replays have shown of two calls: see [`crate::ProvenPair`].
    pub(crate) proven: FxHashMap<(u64, u64), String>,
    /// The calls by which a context got access to another's memory: handles of both.
    pub(crate) peers: FxHashMap<(u64, u64), Site>,
    pub(crate) growth: Growth,
    pub(crate) host_addresses: HostAddresses,
    /// The devices that have had contexts.
    pub(crate) devices: Vec<i32>,
    /// By handle.
    pub(crate) multicasts: FxHashMap<u64, Multicast>,
    /// The last call that changed the checkpointing state of a process.
    pub(crate) checkpoints: FxHashMap<i32, Site>,
    /// cuInit has succeeded.
    pub(crate) initialized: bool,
    /// There is a finding about the driver's initialization.
    pub(crate) init_reported: bool,
    /// A call failed to return memory or the address of a variable.
    pub(crate) allocation_failed: bool,
    /// A kernel was launched.
    pub(crate) has_launched: bool,
    pub(crate) execution: Execution,
    /// Some call did not return.
    pub(crate) in_flight: bool,
    /// Calls that failed because of one that a finding is about.
    pub(crate) consequences: u64,
    /// The beginnings of captures that a call has broken which a finding is about.
    pub(crate) broken_captures: Vec<u64>,
    /// What rules about defects of the driver remember.
    pub(crate) errata: Errata,
}

impl Default for State {
    fn default() -> Self {
        Self {
            model: cutape_model::State::new(Retention::Recent(ENDED)),
            threads: Vec::new(),
            cubins: Vec::new(),
            arrays: FxHashMap::default(),
            names: FxHashMap::default(),
            layouts: Layouts::default(),
            launches: Launches::default(),
            writing_links: Vec::new(),
            preserving: Vec::new(),
            tensor_maps: FxHashMap::default(),
            has_preferences: false,
            has_textures: false,
            ordering: Ordering::default(),
            proven: FxHashMap::default(),
            peers: FxHashMap::default(),
            growth: Growth::default(),
            host_addresses: HostAddresses::default(),
            devices: Vec::new(),
            multicasts: FxHashMap::default(),
            checkpoints: FxHashMap::default(),
            initialized: false,
            init_reported: false,
            allocation_failed: false,
            has_launched: false,
            execution: Execution::default(),
            in_flight: false,
            consequences: 0,
            broken_captures: Vec::new(),
            errata: Errata::default(),
        }
    }
}

impl Deref for State {
    type Target = cutape_model::State<Own>;

    fn deref(&self) -> &Self::Target {
        &self.model
    }
}

impl State {
    fn thread_mut(&mut self, thread: u32) -> &mut ThreadState {
        let thread = thread as usize;
        if self.threads.len() <= thread {
            self.threads.resize_with(thread + 1, ThreadState::default);
        }
        &mut self.threads[thread]
    }

    /// Kind, generation, handle and name.
    pub(crate) fn label(&self, id: ObjectId) -> String {
        crate::call_site::label(&self.objects, id)
    }

    /// A function's parameter layout: offset and size of each.
    pub(crate) fn layout(&self, handle: u64) -> Option<&[(u32, u32)]> {
        self.layouts.of(handle)
    }

    /// What is known of the image of a module or library.
    pub(crate) fn image_data(&self, id: ObjectId) -> Option<&ImageData> {
        match &self.objects.get(id)?.data {
            Data::Other(Own::Image(data)) => Some(data),
            _ => None,
        }
    }

    fn image_data_mut(&mut self, id: ObjectId) -> Option<&mut ImageData> {
        let object = self.model.objects.get_mut(id)?;
        if matches!(object.data, Data::None) && matches!(object.kind, Kind::Module | Kind::Library)
        {
            object.data = Data::Other(Own::Image(Box::default()));
        }
        match &mut object.data {
            Data::Other(Own::Image(data)) => Some(data),
            _ => None,
        }
    }

    /// What is known of a link state.
    pub(crate) fn link_data(&self, id: ObjectId) -> Option<&LinkData> {
        match &self.objects.get(id)?.data {
            Data::Other(Own::Link(data)) => Some(data),
            _ => None,
        }
    }

    pub(crate) fn link_data_mut(&mut self, id: ObjectId) -> Option<&mut LinkData> {
        match &mut self.model.objects.get_mut(id)?.data {
            Data::Other(Own::Link(data)) => Some(data),
            _ => None,
        }
    }

    /// The content of the image of a module or library; parsed when a rule first needs it.
    pub(crate) fn parsed(&self, id: ObjectId, context: &dyn TraceContext) -> Option<Arc<Image>> {
        let data = self.image_data(id)?;
        data.parsed
            .get_or_init(|| {
                let bytes = source_bytes(&data.source, context)?;
                cutape_image::parse(&bytes).ok().map(Arc::new)
            })
            .clone()
    }

    /// The compute capability of the device of the thread's current context, or of the only device.
    pub(crate) fn capability(&self, thread: u32, context: &dyn TraceContext) -> Option<(u16, u16)> {
        let current = self
            .contexts
            .current(thread)
            .object
            .and_then(|id| self.objects.get(id));
        let device = match current.map(|object| &object.data) {
            Some(Data::Context(data)) => data.device,
            _ if context.meta("device.1.compute-capability").is_some() => return None,
            _ => 0,
        };
        let text = context.meta(&format!("device.{device}.compute-capability"))?;
        let (major, minor) = text.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }

    /// True if the current context of the thread is a device's primary context.
    pub(crate) fn current_is_primary(&self, thread: u32) -> bool {
        let current = self
            .contexts
            .current(thread)
            .object
            .and_then(|id| self.objects.get(id));
        matches!(current.map(|object| &object.data), Some(Data::Context(data)) if data.primary)
    }
}

/// An image's bytes, if they were kept.
pub(crate) fn source_bytes<'a>(
    source: &'a ImageBytes,
    context: &'a dyn TraceContext,
) -> Option<std::borrow::Cow<'a, [u8]>> {
    match source {
        ImageBytes::Unknown => None,
        ImageBytes::Bytes(bytes) => Some(std::borrow::Cow::Borrowed(bytes)),
        ImageBytes::Blob(blob) => context.blob(*blob),
        ImageBytes::InFile(encoded) => context.file_range(FileRange::decode(encoded)?),
    }
}

/// The option array that a call passes, with its values before the call.
pub(crate) fn options_of(shape: OptionShape, call: &Call<'_>) -> Options {
    Options {
        values_address: call.argument(shape.values),
        numbers: numbers32(call.snapshot(shape.numbers, field::OPTIONS)),
        values: numbers64(call.snapshot(shape.values, field::OPTION_VALUES)),
    }
}

/// A snapshot as numbers of four bytes; none if the bytes are not in the record.
pub(crate) fn numbers32(snapshot: Option<Snapshot<'_>>) -> Vec<u32> {
    let bytes = snapshot
        .and_then(|snapshot| snapshot.bytes.inline())
        .unwrap_or(&[]);
    let words = bytes.chunks_exact(4);
    words
        .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
        .collect()
}

/// A snapshot as numbers of eight bytes; none if the bytes are not in the record.
pub(crate) fn numbers64(snapshot: Option<Snapshot<'_>>) -> Vec<u64> {
    let bytes = snapshot
        .and_then(|snapshot| snapshot.bytes.inline())
        .unwrap_or(&[]);
    bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word))
        .collect()
}

/// The image that a call passes: a file, the container behind a wrapper, or what the pointer leads
/// to.
pub(crate) fn image_snapshot<'a>(plan: &Plan, call: &Call<'a>) -> Option<Snapshot<'a>> {
    if let Some(position) = plan.image {
        return call
            .snapshot(position, field::FATBIN)
            .or_else(|| call.snapshot(position, field::POINTEE));
    }
    call.snapshot(plan.file?, field::FILE)
}

/// Where the image that a call passes lies in the program's memory: address and length of what the
/// pointer leads to, and of the container, if that is a wrapper.
pub(crate) fn image_places(plan: &Plan, call: &Call<'_>) -> Vec<(u64, u64)> {
    let Some(position) = plan.image else {
        return Vec::new();
    };
    let mut places = Vec::new();
    let length = |snapshot: Snapshot<'_>| snapshot.bytes.length().filter(|&length| length > 0);
    let direct = call.snapshot(position, field::POINTEE);
    if let Some(length) = direct.and_then(length) {
        places.push((call.argument(position), length));
    }
    let header = direct.and_then(|direct| cutape_image::wrapper_data(direct.bytes.inline()?));
    let container = call.snapshot(position, field::FATBIN).and_then(length);
    places.extend(header.map(|header| header.data).zip(container));
    places.retain(|place| place.0 != 0);
    places
}
