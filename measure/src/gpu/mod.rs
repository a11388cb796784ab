//! When a replay's work ran on the GPU, joined with the recorded calls.
//!
//! A guarded child ([`profile_as_child`]) replays the trace and is told of each call (`tracer`).
//! `cupti` has NVIDIA's profiling library, which `find` finds and the replaying process loads;
//! `record` reads what it writes. Without it, the replay puts events around work. The parent
//! ([`profile()`]) asks NVML for the clocks meanwhile (`nvml`), and joins what the children measured
//! with the trace (`join`, `order`).

mod areas;
mod cupti;
mod find;
mod join;
mod nvml;
mod order;
mod profile;
mod record;
mod tracer;

pub use find::{NotFound, find_cupti};
pub(crate) use find::{entries, toolkits};
pub use nvml::{GpuState, GpuStates};
pub use profile::{ProfileSettings, ProfiledRank, profile, profile_as_child, profile_ranks};
