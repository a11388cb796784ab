//! What the analyzer needs of a trace beside its calls.

use std::borrow::Cow;

use cutape_format::layout::BlobRef;
use cutape_format::{Bytes, FileRange, Signatures, Trace};

use crate::finding::Frame;

/// The parts of a trace that calls refer to.
pub trait TraceContext {
    /// The last value of a metadata key.
    fn meta(&self, key: &str) -> Option<&str>;
    /// A blob's bytes; `None` if it is missing or damaged.
    fn blob(&self, blob: BlobRef) -> Option<Cow<'_, [u8]>>;
    /// The bytes of a part of a file that the trace names; `None` if they are not available.
    fn file_range(&self, range: FileRange<'_>) -> Option<Cow<'_, [u8]>>;
    /// The symbol of an address of the program, e.g. `main+0x123`.
    fn symbol(&self, address: u64) -> Option<String>;
    /// The frames of a stack, by the id that calls have; empty if they are not known.
    fn frames(&self, _stack: u64) -> Vec<Frame> {
        Vec::new()
    }
    /// Calls that the recorder has left out while it was paused.
    fn calls_left_out(&self) -> u64;
    /// The rate of the clock; 0 if it is not known.
    fn ticks_per_second(&self) -> u64;
    /// The signature table.
    fn signatures(&self) -> &Signatures;
}

impl TraceContext for Trace {
    fn meta(&self, key: &str) -> Option<&str> {
        self.meta_value(key)
    }

    fn blob(&self, blob: BlobRef) -> Option<Cow<'_, [u8]>> {
        Trace::blob(self, blob).ok()
    }

    fn file_range(&self, range: FileRange<'_>) -> Option<Cow<'_, [u8]>> {
        Trace::file_range(self, range).ok()
    }

    fn symbol(&self, address: u64) -> Option<String> {
        Trace::symbol(self, address).map(str::to_owned)
    }

    fn calls_left_out(&self) -> u64 {
        self.left_out().map_or(0, |left_out| left_out.calls)
    }

    fn ticks_per_second(&self) -> u64 {
        Trace::ticks_per_second(self)
    }

    fn signatures(&self) -> &Signatures {
        Trace::signatures(self)
    }
}

/// A device attribute of the recorded machine, by its name without CU_DEVICE_ATTRIBUTE_.
pub(crate) fn device_attribute(context: &dyn TraceContext, device: i32, name: &str) -> Option<i64> {
    let text = context.meta(&format!("device.{device}.attribute.{name}"))?;
    text.parse().ok()
}

/// The bytes of a snapshot, wherever they are; `None` if they were not kept.
pub(crate) fn bytes_of<'a>(
    context: &'a dyn TraceContext,
    bytes: Bytes<'a>,
) -> Option<Cow<'a, [u8]>> {
    match bytes {
        Bytes::Inline(bytes) => Some(Cow::Borrowed(bytes)),
        Bytes::Blob(blob) => context.blob(blob),
        Bytes::InFile(range) => context.file_range(range),
        _ => None,
    }
}
