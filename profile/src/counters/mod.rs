//! What hardware counters say of kernels that a replay launched.
//!
//! `record` is what was measured, `derive` works out shares, rates and the position in the roofline
//! from the metrics of NVIDIA's profiler `ncu`, `choose` says which launches are worth measuring,
//! `text` puts all that into words.

mod choose;
mod derive;
pub(crate) mod record;
mod text;

pub use self::choose::Chosen;
pub use self::record::{Bound, Counters, KernelCounters, Precision, Roofline, Stall};
