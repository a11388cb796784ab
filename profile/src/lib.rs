//! Where the time of recorded work goes on the GPU: what ran when, and which calls enqueued it.
//!
//! A [`Profile`] is what was measured: kernels, copies and memsets with the times of the device,
//! joined with the recorded calls, and the calls with the times of the host. [`Summary`] says what
//! follows from it: `work` sums it up by kernel, `timeline` says when the device had work and what it
//! waited for otherwise, `wall` what a replay as a whole took, `path` which chain bounds the time,
//! `host` where the host waited, `counters` what hardware counters say of kernels. `prediction` says
//! what it would take with other calls, `advice` which of these would be faster. `text` puts the
//! summary into words. `read` takes a profile back from its JSON.
//!
//! Invariant: the parts of a timeline add up to its wall time. Nothing but predictions is estimated:
//! what was not measured is `None` or a note. What a profile's JSON says is not trusted. No I/O but a
//! reader's, no unsafe code, no driver.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)
)]

mod advice;
mod counters;
mod host;
mod occupancy;
mod path;
mod prediction;
mod ranks;
mod read;
mod record;
mod statistics;
mod summary;
#[cfg(test)]
mod test_profile;
mod text;
mod timeline;
mod wall;
mod work;

pub use advice::Advice;
pub use counters::{Bound, Chosen, Counters, KernelCounters, Precision, Roofline, Stall};
pub use host::HostStall;
pub use occupancy::Occupancy;
pub use path::{CriticalPath, Link, RangeShare, Share};
pub use prediction::{Change, Prediction};
pub use ranks::{Arrival, Collective, Exchange, RangeRow, RankProfile, RankRow, RanksSummary};
pub use read::ReadError;
pub use record::{
    CallFacts, Clocks, Device, HostCall, Method, OtherTrace, Profile, Run, Work, WorkKind,
};
pub use statistics::{Spread, median};
pub use summary::Summary;
pub use timeline::{StreamUse, Stretch, Timeline};
pub use wall::Wall;
pub use work::WorkRow;
