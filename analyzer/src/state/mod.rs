//! A model of the driver's state, as far as calls show it. Invariant: what was not seen is unknown, never wrong.

mod birth;
pub(crate) mod data;
mod graph_memory;
pub(crate) mod links;
pub(crate) mod objects;
pub(crate) mod options;
pub(crate) mod order;
mod ranges;
mod update;
pub(crate) mod work;

use std::collections::HashMap;
use std::sync::Arc;

use cutape_format::layout::field;
use cutape_format::{Call, FileRange, Snapshot};
use cutape_image::Image;
use cutape_registry::Kind;

use crate::context::TraceContext;
use crate::plan::{OptionShape, Plan};
use data::{Cubin, Data, ImageData, ImageSource, LinkData, Options};
use objects::{HandleMap, Lookup, ObjectId, Objects, Site, kind_word};
use ranges::Ranges;
use work::{StreamKey, Work};

/// How many failed outputs a thread remembers.
const FAILURES: usize = 16;
/// How many option arrays are remembered.
const ARRAYS: usize = 1024;
/// How many names that the driver handed out are remembered.
const NAMES: usize = 16384;
/// How many cubins of destroyed link states are remembered.
const DEAD_CUBINS: usize = 256;
/// How many parameter layouts are remembered.
const LAYOUTS: usize = 65536;

/// What is current in a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) handle: u64,
    pub(crate) object: Option<ObjectId>,
}

/// A call that failed and left its output undefined.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    /// Where the handle would have been written.
    pub(crate) location: u64,
    pub(crate) site: Site,
    /// The name that was asked for.
    pub(crate) name: Option<String>,
    pub(crate) parent: Option<ObjectId>,
    /// A finding has been made of it.
    pub(crate) reported: bool,
}

/// A thread of the program.
#[derive(Debug, Default)]
pub(crate) struct ThreadState {
    /// The operating system's number; 0 if not known.
    pub(crate) number: u32,
    pub(crate) stack: Vec<Current>,
    pub(crate) failures: Vec<Failure>,
    /// The numbers of streams that it has used, with what they depend on.
    streams: [Option<(order::StreamQuestion, u32)>; order::STREAM_ANSWERS],
}

/// A device's primary context.
#[derive(Clone, Copy, Debug)]
struct Primary {
    context: ObjectId,
    retained: u32,
}

/// The last use of an array of option values.
#[derive(Clone, Debug)]
pub(crate) struct ArrayUse {
    pub(crate) numbers: Vec<u32>,
    /// As the program gave it.
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

/// The model.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) objects: Objects,
    pub(crate) work: Work,
    pub(crate) ranges: Ranges,
    pub(crate) threads: Vec<ThreadState>,
    primaries: HashMap<i32, Primary>,
    /// Made, and not yet returned from at the time that calls are looked at.
    unborn: Vec<birth::Born>,
    pub(crate) cubins: Vec<Cubin>,
    pub(crate) arrays: HandleMap<u64, ArrayUse>,
    pub(crate) names: HandleMap<u64, DriverName>,
    layouts: HandleMap<u64, Vec<(u32, u32)>>,
    /// Link states that live and whose option values the driver writes to.
    pub(crate) writing_links: Vec<ObjectId>,
    /// Libraries that live and whose image must stay where it is.
    pub(crate) preserving: Vec<ObjectId>,
    /// A context has been given access to another's memory.
    pub(crate) peers: bool,
    /// Some call did not return.
    pub(crate) in_flight: bool,
}

/// The number of special default-stream handles (`CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`).
pub(crate) const STREAM_PER_THREAD: u64 = 2;

impl State {
    /// The context that is current in a thread; handle 0 if none is.
    pub(crate) fn current(&self, thread: u32) -> Current {
        self.threads
            .get(thread as usize)
            .and_then(|state| state.stack.last().copied())
            .unwrap_or(Current {
                handle: 0,
                object: None,
            })
    }

    fn thread_mut(&mut self, thread: u32) -> &mut ThreadState {
        let thread = thread as usize;
        if self.threads.len() <= thread {
            self.threads.resize_with(thread + 1, ThreadState::default);
        }
        &mut self.threads[thread]
    }

    /// The object that a parameter of that kind means: a kernel may stand for a function.
    pub(crate) fn find(&self, kind: Kind, handle: u64) -> Lookup {
        let found = self.objects.find(kind, handle);
        if kind == Kind::Function && !matches!(found, Lookup::Live(_)) {
            match (self.objects.find(Kind::Kernel, handle), found) {
                (Lookup::Unknown, _) => {}
                (Lookup::Dead(_), Lookup::Dead(_)) => {}
                (kernel, _) => return kernel,
            }
        }
        found
    }

    /// Kind, generation, handle and name.
    pub(crate) fn label(&self, id: ObjectId) -> String {
        let Some(object) = self.objects.get(id) else {
            return "an object of long ago".to_owned();
        };
        let name = object
            .name
            .as_ref()
            .map_or(String::new(), |name| format!(" \"{name}\""));
        format!(
            "{}#{} {:#x}{name}",
            kind_word(object.kind),
            object.generation,
            object.handle
        )
    }

    /// The context's handle in which an object lives, 0 if not known.
    pub(crate) fn context_handle(&self, id: ObjectId) -> u64 {
        let object = self.objects.get(id);
        object
            .and_then(|object| self.objects.get(object.context?))
            .map_or(0, |context| context.handle)
    }

    /// Names the stream that a call's work goes to; also its context's handle, whether it is blocking, and legacy.
    pub(crate) fn stream_key(
        &self,
        thread: u32,
        handle: u64,
        per_thread: bool,
    ) -> (StreamKey, u64, bool, bool) {
        let current = self.current(thread).handle;
        if handle == STREAM_PER_THREAD || (handle == 0 && per_thread) {
            return ((2 | u64::from(thread) << 8, current), current, true, false);
        }
        if handle < STREAM_PER_THREAD {
            return ((1, current), current, true, true);
        }
        match self.objects.find(Kind::Stream, handle) {
            Lookup::Live(id) => {
                let object = self.objects.get(id);
                let generation = object.map_or(0, |object| u64::from(object.generation));
                let blocking = !matches!(
                    object.map(|object| &object.data),
                    Some(Data::Stream(stream)) if stream.non_blocking
                );
                (
                    (handle, generation),
                    self.context_handle(id),
                    blocking,
                    false,
                )
            }
            _ => ((handle, 0), current, true, false),
        }
    }

    /// A function's parameter layout: offset and size of each.
    pub(crate) fn layout(&self, handle: u64) -> Option<&[(u32, u32)]> {
        self.layouts.get(&handle).map(Vec::as_slice)
    }

    /// What is known of the image of a module or library.
    pub(crate) fn image_data(&self, id: ObjectId) -> Option<&ImageData> {
        match &self.objects.get(id)?.data {
            Data::Image(data) => Some(data),
            _ => None,
        }
    }

    fn image_data_mut(&mut self, id: ObjectId) -> Option<&mut ImageData> {
        let object = self.objects.get_mut(id)?;
        if matches!(object.data, Data::None) && matches!(object.kind, Kind::Module | Kind::Library)
        {
            object.data = Data::Image(Box::default());
        }
        match &mut object.data {
            Data::Image(data) => Some(data),
            _ => None,
        }
    }

    /// A link state's particulars.
    pub(crate) fn link_data(&self, id: ObjectId) -> Option<&LinkData> {
        match &self.objects.get(id)?.data {
            Data::Link(data) => Some(data),
            _ => None,
        }
    }

    pub(crate) fn link_data_mut(&mut self, id: ObjectId) -> Option<&mut LinkData> {
        match &mut self.objects.get_mut(id)?.data {
            Data::Link(data) => Some(data),
            _ => None,
        }
    }

    /// What the image of a module or library holds; parsed once, when a message first needs it.
    pub(crate) fn parsed(&self, id: ObjectId, context: &dyn TraceContext) -> Option<Arc<Image>> {
        let data = self.image_data(id)?;
        data.parsed
            .get_or_init(|| {
                let bytes = source_bytes(&data.source, context)?;
                cutape_image::parse(&bytes).ok().map(Arc::new)
            })
            .clone()
    }

    /// The compute capability of the device of the thread's current context, or of device 0.
    pub(crate) fn capability(&self, thread: u32, context: &dyn TraceContext) -> Option<(u16, u16)> {
        let current = self
            .current(thread)
            .object
            .and_then(|id| self.objects.get(id));
        let device = match current.map(|object| &object.data) {
            Some(Data::Context(data)) => data.device,
            _ => 0,
        };
        let text = context.meta(&format!("device.{device}.compute-capability"))?;
        let (major, minor) = text.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }

    /// True while the primary context of a device is retained, as far as was seen.
    pub(crate) fn is_retained(&self, device: i32) -> bool {
        self.primaries.contains_key(&device)
    }

    /// The primary context of a device that one more release ends.
    pub(crate) fn last_retain(&self, device: i32) -> Option<ObjectId> {
        let primary = self.primaries.get(&device)?;
        (primary.retained <= 1).then_some(primary.context)
    }

    /// The primary context of a device, as far as was seen.
    pub(crate) fn primary(&self, device: i32) -> Option<ObjectId> {
        Some(self.primaries.get(&device)?.context)
    }

    /// True if the current context of the thread is a device's primary context.
    pub(crate) fn current_is_primary(&self, thread: u32) -> bool {
        let current = self
            .current(thread)
            .object
            .and_then(|id| self.objects.get(id));
        matches!(current.map(|object| &object.data), Some(Data::Context(data)) if data.primary)
    }
}

/// An image's bytes, if they were kept.
pub(crate) fn source_bytes<'a>(
    source: &'a ImageSource,
    context: &'a dyn TraceContext,
) -> Option<std::borrow::Cow<'a, [u8]>> {
    match source {
        ImageSource::Unknown => None,
        ImageSource::Bytes(bytes) => Some(std::borrow::Cow::Borrowed(bytes)),
        ImageSource::Blob(blob) => context.blob(*blob),
        ImageSource::InFile(encoded) => context.file_range(FileRange::decode(encoded)?),
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

/// The bytes of the image that a call passes: of a file, of the container behind a wrapper, or what the pointer shows.
pub(crate) fn image_snapshot<'a>(plan: &Plan, call: &Call<'a>) -> Option<Snapshot<'a>> {
    if let Some(position) = plan.image() {
        return call
            .snapshot(position, field::FATBIN)
            .or_else(|| call.snapshot(position, field::POINTEE));
    }
    let position = plan
        .at("fname")
        .or_else(|| plan.at("fileName"))
        .or_else(|| plan.at("path"))?;
    call.snapshot(position, field::FILE)
}
