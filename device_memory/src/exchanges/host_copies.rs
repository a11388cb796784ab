//! The memory that copies go to: mapped before the program's first call, so that the driver finds
//! it where a replay can keep the place free, and page-locked when a context comes to life.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::own_memory;
use crate::recorder::Recorder;

/// Memory of the host that is never unmapped. Places in it are offsets.
#[derive(Debug)]
pub(super) struct HostCopies {
    /// Where it begins, its bytes.
    start: u64,
    length: u64,
    /// The address by which devices write there.
    for_devices: AtomicU64,
}

impl HostCopies {
    /// Maps that many bytes; `None` if the system refuses.
    pub(super) fn map(length: u64) -> Option<Self> {
        Some(Self {
            start: own_memory::map(length)?,
            length,
            for_devices: AtomicU64::new(0),
        })
    }

    /// Its bytes.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Page-locks it for all contexts, on behalf of the current one.
    pub(super) fn register(&self, recorder: &dyn Recorder) -> bool {
        let address = recorder.register(self.start, self.length);
        if let Ok(address) = address {
            self.for_devices.store(address, Ordering::Relaxed);
        }
        address.is_ok()
    }

    /// Ends that, in the same context.
    pub(super) fn unregister(&self, recorder: &dyn Recorder) {
        recorder.unregister(self.start);
    }

    /// The bytes in a place that no device writes to any more.
    pub(super) fn bytes(&self, place: u64, length: u64) -> &[u8] {
        if place.saturating_add(length) > self.length {
            return &[];
        }
        // SAFETY: inside the mapping, which is never unmapped and was zeroed by the system; the
        // callers hold the place, and the device has finished with it.
        unsafe { core::slice::from_raw_parts((self.start + place) as *const u8, length as usize) }
    }

    /// Copies device memory to a place, in the order of a stream.
    pub(super) fn copy(
        &self,
        recorder: &dyn Recorder,
        place: u64,
        (source, length): (u64, u64),
        stream: u64,
    ) -> bool {
        let target = self.start + place;
        recorder.copy(target, source, length, stream).is_ok()
    }

    /// Has a stream write a mark after the copies.
    pub(super) fn mark(&self, recorder: &dyn Recorder, place: u64, mark: u32, stream: u64) -> bool {
        let target = self.for_devices.load(Ordering::Relaxed) + place;
        recorder.write_value(target, mark, stream).is_ok()
    }

    /// Takes away a mark, before a device may write one.
    pub(super) fn clear_mark(&self, place: u64) {
        // SAFETY: the place is ours, and no device writes there.
        unsafe { ((self.start + place) as *mut u32).write_volatile(0) };
    }

    /// Whether a device has written that mark.
    pub(super) fn has_mark(&self, place: u64, mark: u32) -> bool {
        // SAFETY: the place is ours.
        let found = unsafe { ((self.start + place) as *const u32).read_volatile() };
        core::sync::atomic::fence(Ordering::Acquire);
        found == mark
    }
}
