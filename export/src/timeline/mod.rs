//! The rows as a timeline: tracks with slices, counters, instants and flows, for viewers.
//!
//! Every time is one of the host. A trace does not know when the GPU ran something, so what lies on
//! the track of a stream is the call that enqueued it, and the name of the track says so.

mod chrome;
mod perfetto;
mod schema;
mod sink;

pub use chrome::ChromeTrace;
pub use perfetto::{LARGEST_FILE, Perfetto};
pub use sink::{Annotation, Slice, TimelineSink, TimelineWriter, Track};
