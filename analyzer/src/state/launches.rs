//! What rules remember of launches.

use cutape_image::Uses;
use cutape_model::{ObjectId, Site};
use rustc_hash::FxHashMap;

/// How a launch attribute records an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventTrigger {
    /// When all blocks have triggered it.
    Programmatic,
    /// When all blocks have begun.
    Begun,
}

/// The launch that recorded an event last, by an attribute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchEvent {
    pub(crate) trigger: EventTrigger,
    pub(crate) site: Site,
    pub(crate) device: Option<i32>,
    /// Of the stream; a smaller number is more urgent.
    pub(crate) priority: i32,
}

/// The last kernel of a stream.
#[derive(Clone, Debug)]
pub(crate) struct LastKernel {
    pub(crate) function: ObjectId,
    pub(crate) site: Site,
    /// Memory that its parameters point to.
    pub(crate) memory: Vec<ObjectId>,
}

/// The handle of a stream; of a default stream, also the context that was current.
pub(super) type StreamName = (u64, u64);

/// What rules remember of launches.
#[derive(Debug, Default)]
pub(crate) struct Launches {
    /// Functions and kernels whose code uses something of their launches.
    pub(crate) uses: FxHashMap<ObjectId, Uses>,
    /// Functions whose parameters were set for launches of CUDA 3, and the launch of a newer kind
    /// that has overwritten them.
    pub(crate) old_state: FxHashMap<ObjectId, Option<Site>>,
    /// Events that launches recorded last.
    pub(crate) events: FxHashMap<ObjectId, LaunchEvent>,
    /// Kernel nodes that the device may update.
    pub(crate) updatable: FxHashMap<ObjectId, Site>,
    /// Variables that copies and memsets have written.
    pub(crate) written: FxHashMap<ObjectId, Site>,
    /// By stream, while there are kernels that let others start early.
    pub(super) last_kernels: FxHashMap<StreamName, LastKernel>,
    /// Some kernel lets the next one in its stream start early.
    pub(super) has_early_triggers: bool,
}

impl Launches {
    /// Kernels may have been launched that no trace shows.
    pub(super) fn forget_work(&mut self) {
        self.events.clear();
        self.last_kernels.clear();
        for launched in self.old_state.values_mut() {
            *launched = None;
        }
    }

    /// Forgets an object that has ended.
    pub(super) fn forget(&mut self, id: ObjectId) {
        fn remove<V>(map: &mut FxHashMap<ObjectId, V>, id: ObjectId) {
            if !map.is_empty() {
                map.remove(&id);
            }
        }
        remove(&mut self.uses, id);
        remove(&mut self.old_state, id);
        remove(&mut self.events, id);
        remove(&mut self.updatable, id);
        remove(&mut self.written, id);
    }
}
