//! What was measured of kernels with counters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What `ncu` measured in a replay of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// The version of `ncu`, e.g. `2025.3.1.0`.
    pub version: String,
    /// Its file.
    pub path: String,
    /// How often it ran kernels, all together: each of them once for every group of counters.
    pub passes: u64,
    /// From the start of `ncu` to its end, in nanoseconds.
    pub wall_ns: u64,
    /// The same of the replay without it, which has the median time.
    pub plain_ns: u64,
    /// The kernels, by call.
    pub kernels: Vec<KernelCounters>,
    /// Calls that were chosen and have no counters, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: BTreeMap<u64, String>,
}

/// The counters of one kernel. Shares and rates are from 0 to 1; what was not measured is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelCounters {
    /// The recorded call that launched it: of a kernel in a graph, the launch of the graph.
    pub call: u64,
    /// The kernel as in the source.
    pub name: String,
    /// The device's ordinal in the replay.
    #[serde(default)]
    pub device: Option<u32>,
    /// Blocks in x, y, z.
    #[serde(default)]
    pub grid: Option<[u32; 3]>,
    /// Threads of a block in x, y, z.
    #[serde(default)]
    pub block: Option<[u32; 3]>,
    /// How often it ran for its counters.
    #[serde(default)]
    pub passes: Option<u64>,
    /// How long it ran, in nanoseconds, with empty caches and nothing else on the device.
    #[serde(default)]
    pub duration_ns: Option<f64>,
    /// Of what the multiprocessors can compute.
    #[serde(default)]
    pub sm_share: Option<f64>,
    /// Of what the busiest part of the memory system can move.
    #[serde(default)]
    pub memory_share: Option<f64>,
    /// Of what the device's memory can move.
    #[serde(default)]
    pub dram_share: Option<f64>,
    /// Sectors that were in the L1 cache, of those asked for.
    #[serde(default)]
    pub l1_hit_rate: Option<f64>,
    /// The same of the L2 cache.
    #[serde(default)]
    pub l2_hit_rate: Option<f64>,
    /// Warps that were on a multiprocessor, of those that it has room for.
    #[serde(default)]
    pub occupancy: Option<f64>,
    /// The occupancy that the kernel's registers, shared memory and block size allow.
    #[serde(default)]
    pub occupancy_limit: Option<f64>,
    /// Where it is in the roofline model.
    #[serde(default)]
    pub roofline: Option<Roofline>,
    /// What warps did between two instructions, the longest first.
    #[serde(default)]
    pub stalls: Vec<Stall>,
    /// The metrics of `ncu` in base units (bytes, nanoseconds, hertz, per cent), without those of
    /// tensor operations that the kernel has none of.
    #[serde(default)]
    pub metrics: BTreeMap<String, f64>,
}

/// The kind of floating-point operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Double precision.
    Fp64,
    /// Single precision.
    Fp32,
    /// Half precision.
    Fp16,
    /// Operations of tensor cores, whatever their operands.
    Tensor,
}

impl Precision {
    /// The word for people and in data.
    pub fn word(self) -> &'static str {
        match self {
            Self::Fp64 => "fp64",
            Self::Fp32 => "fp32",
            Self::Fp16 => "fp16",
            Self::Tensor => "tensor",
        }
    }
}

/// What bounds a kernel in the roofline model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// The bandwidth of the device's memory.
    Memory,
    /// The operations of the multiprocessors.
    Compute,
}

impl Bound {
    /// The word for people and in data.
    pub fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Compute => "compute",
        }
    }
}

/// A kernel's position in the roofline model of the device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Roofline {
    /// Floating-point operations of all kinds; a fused multiply-add is two.
    pub flops: f64,
    /// Those a second.
    pub flops_per_second: f64,
    /// Bytes that the device's memory read and wrote.
    pub bytes: f64,
    /// Those a second.
    pub bytes_per_second: f64,
    /// Operations for each byte; `None` if memory moved none.
    pub intensity: Option<f64>,
    /// The kind with the most operations; `None` for a kernel without any.
    pub precision: Option<Precision>,
    /// The most operations of that kind a second.
    pub peak_flops_per_second: Option<f64>,
    /// The most bytes a second, at the clocks of that time.
    pub peak_bytes_per_second: Option<f64>,
    /// What bounds it at its intensity.
    pub bound: Option<Bound>,
    /// How close it is to that bound: operations a second, or bytes if it has none.
    pub roof_share: Option<f64>,
}

/// A state of warps between two instructions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// NVIDIA's name of it, e.g. `long scoreboard`; `selected` is no stall: the warp issued.
    pub reason: String,
    /// Its share of the warps' time.
    pub share: f64,
}

impl Stall {
    /// Whether it is the state of a warp that issues.
    pub fn is_issue(&self) -> bool {
        self.reason == "selected"
    }
}
