//! The rows as a timeline: tracks with slices, counters, instants and flows, for viewers.
//!
//! Every time of a trace is one of the host: it does not know when the GPU ran something, so what
//! lies on the track of a stream is the call that enqueued it, and the name of the track says so. A
//! profile of a replay adds that replay as a process of its own (`replay.rs`).

mod chrome;
mod perfetto;
mod replay;
mod schema;
mod sink;
mod writer;

pub use chrome::ChromeTrace;
pub use perfetto::{LARGEST_FILE, Perfetto};
pub use sink::TimelineSink;
pub use writer::{Annotation, Slice, TimelineWriter, Track};
