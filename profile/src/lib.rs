//! Where the time of recorded work goes on the GPU: what ran when, and which calls enqueued it.
//!
//! A [`Profile`] is what was measured: kernels, copies and memsets with the times of the device,
//! joined with the recorded calls, and the calls with the times of the host. [`Summary`] says what
//! follows from it: `work` sums it up by kernel, `timeline` says when the device had work and what it
//! waited for otherwise, `path` which chain bounds the time, `host` where the host waited. `text`
//! puts the summary into words.
//!
//! Invariant: the parts of a timeline add up to its wall time. Nothing is estimated: what was not
//! measured is `None` or a note. No I/O, no unsafe code, no driver.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)
)]

mod host;
mod occupancy;
mod path;
mod record;
mod statistics;
mod summary;
#[cfg(test)]
mod test_profile;
mod text;
mod timeline;
mod work;

pub use host::HostStall;
pub use occupancy::Occupancy;
pub use path::{CriticalPath, Link, Share};
pub use record::{CallFacts, Clocks, Device, HostCall, Method, Profile, Run, Work, WorkKind};
pub use statistics::Spread;
pub use summary::Summary;
pub use timeline::{StreamUse, Stretch, Timeline};
pub use work::WorkRow;
