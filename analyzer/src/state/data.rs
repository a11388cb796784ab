//! What rules know of an object beyond its history, by kind.

use std::sync::{Arc, OnceLock};

use cutape_format::Bytes;
use cutape_format::layout::BlobRef;
use cutape_image::Image;
use cutape_model::{ObjectId, Site};
use cutape_registry::Kind;
use cutape_registry::layout::offset_of;
use rustc_hash::FxHashMap;

/// What is known of an object by its kind.
pub(crate) type Data = cutape_model::Data<Own>;

/// What rules look at beside the model's own.
#[derive(Debug)]
pub(crate) enum Own {
    /// A module or a library.
    Image(Box<ImageData>),
    Link(Box<LinkData>),
    /// A texture or surface object.
    Texture(Resource),
    Array {
        flags: u64,
    },
    /// A function or a kernel.
    Attributes(Box<Attributes>),
    /// Device memory.
    Memory(MemoryOrigin),
}

/// How device memory was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryOrigin {
    /// By `cuMemAlloc` or `cuMemAllocPitch`.
    Device,
    Managed,
    /// In the order of a stream.
    Pool,
}

/// What a texture or surface object reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Resource {
    /// An array or a mipmapped array.
    Object(Kind, u64),
    /// Linear memory at this address.
    Memory(u64),
}

impl Resource {
    // Numbers of `CUresourcetype`.
    const ARRAY: u64 = 0;
    pub(crate) const MIPMAPPED: u64 = 1;
    pub(crate) const LINEAR: u64 = 2;
    pub(crate) const PITCHED: u64 = 3;

    /// What a `CUDA_RESOURCE_DESC` names; its union begins with the handle or address.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        const UNION: usize = offset_of("CUDA_RESOURCE_DESC", "res.array.hArray");
        let kind = u32::from_le_bytes(*bytes.first_chunk()?);
        let value = u64::from_le_bytes(*bytes.get(UNION..)?.first_chunk()?);
        match u64::from(kind) {
            Self::ARRAY => Some(Self::Object(Kind::Array, value)),
            Self::MIPMAPPED => Some(Self::Object(Kind::MipmappedArray, value)),
            Self::LINEAR | Self::PITCHED => Some(Self::Memory(value)),
            _ => None,
        }
    }
}

/// A tensor map that a call encoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TensorMap {
    /// Of the tensor.
    pub(crate) address: u64,
    pub(crate) site: Site,
}

/// Where an image's bytes are.
#[derive(Clone, Debug)]
pub(crate) enum ImageBytes {
    Unknown,
    Bytes(Arc<[u8]>),
    Blob(BlobRef),
    /// A part of a file, encoded.
    InFile(Arc<[u8]>),
}

impl ImageBytes {
    /// Where a snapshot's bytes are.
    pub(crate) fn of(bytes: Bytes<'_>) -> Self {
        match bytes {
            Bytes::Inline(bytes) => Self::Bytes(Arc::from(bytes)),
            Bytes::Blob(blob) => Self::Blob(blob),
            Bytes::InFile(range) => {
                let mut encoded = vec![0; range.encoded_length()];
                match range.encode(&mut encoded) {
                    Some(()) => Self::InFile(encoded.into()),
                    None => Self::Unknown,
                }
            }
            Bytes::Omitted(_) | Bytes::Hashed(..) | Bytes::Unreadable => Self::Unknown,
        }
    }
}

/// An input that a link state refused, and that its image therefore lacks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusedInput {
    pub(crate) site: Site,
    /// There is a finding about it.
    pub(crate) reported: bool,
}

/// A module or a library.
#[derive(Debug)]
pub(crate) struct ImageData {
    pub(crate) source: ImageBytes,
    /// Addresses and lengths in the program's memory: what the call was given, and the container
    /// behind a wrapper.
    pub(crate) places: Vec<(u64, u64)>,
    /// The same for images of the same bytes; 0 if they are not known.
    pub(crate) fingerprint: u64,
    /// Loaded with CU_LIBRARY_BINARY_IS_PRESERVED.
    pub(crate) preserved: bool,
    pub(crate) parsed: OnceLock<Option<Arc<Image>>>,
    /// Short enough to be parsed before a rule asks for its content.
    pub(crate) is_short: OnceLock<bool>,
    /// The result of a count query, and its call.
    pub(crate) count: Option<(u32, Site)>,
    /// The last work on each stream that needs it, and may still run: stream and number, call.
    pub(crate) pending: Vec<((u32, u64), Site)>,
    /// What its link refused.
    pub(crate) lacks: Option<RefusedInput>,
}

impl Default for ImageData {
    fn default() -> Self {
        Self {
            source: ImageBytes::Unknown,
            places: Vec::new(),
            fingerprint: 0,
            preserved: false,
            parsed: OnceLock::new(),
            is_short: OnceLock::new(),
            count: None,
            pending: Vec::new(),
            lacks: None,
        }
    }
}

/// Attributes of a function or a kernel that calls set or asked for.
#[derive(Debug, Default)]
pub(crate) struct Attributes {
    /// By attribute, -1 for the cache configuration, and device, -1 for none.
    pub(crate) set: FxHashMap<(i32, i32), (i64, Site)>,
    /// The values that the program asked for, in the same way.
    pub(crate) got: FxHashMap<(i32, i32), i64>,
}

/// An array of options with its values, as the program passed it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Address of the array of values.
    pub(crate) values_address: u64,
    pub(crate) numbers: Vec<u32>,
    pub(crate) values: Vec<u64>,
}

impl Options {
    /// The value of an option.
    pub(crate) fn value(&self, option: u32) -> Option<u64> {
        let position = self.numbers.iter().position(|&number| number == option)?;
        self.values.get(position).copied()
    }

    /// Address ranges that the driver writes to through these options: the array itself if it has
    /// outputs, and the logs.
    pub(crate) fn written_ranges(&self) -> Vec<(u64, u64, &'static str)> {
        use super::options::{ERROR_LOG, ERROR_LOG_SIZE, INFO_LOG, INFO_LOG_SIZE};
        let mut ranges = Vec::new();
        if self.has_outputs() && self.values_address != 0 {
            ranges.push((
                self.values_address,
                8 * self.numbers.len() as u64,
                "option values",
            ));
        }
        for (buffer, size, what) in [
            (INFO_LOG, INFO_LOG_SIZE, "information log buffer"),
            (ERROR_LOG, ERROR_LOG_SIZE, "error log buffer"),
        ] {
            if let Some(address) = self.value(buffer).filter(|&address| address != 0) {
                let length = self.value(size).map_or(0, |value| value & 0xffff_ffff);
                ranges.push((address, length.max(1), what));
            }
        }
        ranges
    }

    /// True if the driver writes into the array of values.
    pub(crate) fn has_outputs(&self) -> bool {
        self.numbers
            .iter()
            .any(|&number| super::options::is_output(number))
    }
}

/// An input of a link.
#[derive(Clone, Debug)]
pub(crate) struct LinkInput {
    pub(crate) site: Site,
    /// Kernels that it defines, whose names are external.
    pub(crate) defines: Vec<String>,
    /// Device functions and variables that it defines, external or not.
    pub(crate) provides: Vec<String>,
    /// Names that it needs.
    pub(crate) needs: Vec<String>,
    /// False if its content is not known.
    pub(crate) known: bool,
}

/// A link state.
#[derive(Debug, Default)]
pub(crate) struct LinkData {
    pub(crate) options: Options,
    pub(crate) completed: Option<Site>,
    pub(crate) inputs: Vec<LinkInput>,
    /// The first input that it refused.
    pub(crate) lacks: Option<RefusedInput>,
    /// A finding about the lifetime of its option values exists.
    pub(crate) options_reported: bool,
}

/// A cubin that a completed link returned.
#[derive(Debug)]
pub(crate) struct Cubin {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) link: ObjectId,
    pub(crate) completed: Site,
    pub(crate) source: ImageBytes,
    /// The call that destroyed its link state.
    pub(crate) freed: Option<Site>,
}

/// A multicast object that the program created.
#[derive(Debug, Default)]
pub(crate) struct Multicast {
    /// How many devices it needs.
    pub(crate) wanted: usize,
    /// Those that this process added.
    pub(crate) devices: Vec<i32>,
    /// Another process may add devices.
    pub(crate) is_shared: bool,
    /// Offset and size of each piece that is bound.
    pub(crate) bound: Vec<(u64, u64)>,
}
