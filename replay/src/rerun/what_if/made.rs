//! What edits make: memory, streams, events and graphs, until the measurement is over.

use crate::api::buffer::Buffer;
use crate::api::{Api, Code};
use crate::rerun::replacement::Replaced;

/// What the edited steps use beside what the program has made.
#[derive(Debug, Default)]
pub(super) struct Made {
    pub buffers: Vec<Buffer>,
    pub pinned: Vec<u64>,
    pub streams: Vec<u64>,
    pub events: Vec<u64>,
    pub graphs: Vec<u64>,
    pub executables: Vec<u64>,
    pub kernels: Vec<Replaced>,
}

impl Made {
    /// Ends all of it, after all work. The steps must not run afterwards.
    pub(super) fn release(&mut self, api: &Api) {
        type End = fn(&Api, u64) -> Result<(), Code>;
        let kinds: [(&mut Vec<u64>, End); 5] = [
            (&mut self.executables, Api::destroy_executable),
            (&mut self.graphs, Api::destroy_graph),
            (&mut self.events, Api::destroy_event),
            (&mut self.streams, Api::destroy_stream),
            (&mut self.pinned, Api::free_host),
        ];
        for (objects, end) in kinds {
            for object in objects.drain(..) {
                if let Err(code) = end(api, object) {
                    tracing::debug!("an object of an edit could not be ended: result {code}");
                }
            }
        }
        for kernel in self.kernels.drain(..) {
            kernel.release(api);
        }
        self.buffers.clear();
    }
}
