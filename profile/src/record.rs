//! What was measured.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::counters::record::Counters;

/// How the times of the device were taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "by")]
pub enum Method {
    /// CUPTI's activity records.
    Cupti {
        /// What `cuptiGetVersion` returned, e.g. 130001.
        version: u32,
        /// The library.
        path: String,
    },
    /// Events before and after each call's work: less exact, no kernels of graphs.
    Events,
}

/// What a device did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkKind {
    /// A kernel.
    Kernel,
    /// A copy.
    Copy,
    /// A memset.
    Memset,
    /// A whole graph, where its nodes were not timed.
    Graph,
}

impl WorkKind {
    /// The word for people and in data.
    pub fn word(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Copy => "copy",
            Self::Memset => "memset",
            Self::Graph => "graph",
        }
    }
}

/// A kernel, copy, memset or graph that a device ran. Times are in nanoseconds on the axis of its
/// [`Run`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// What it is.
    pub kind: WorkKind,
    /// The kernel as in the source, or what is copied: `host-to-device`.
    pub name: String,
    /// When it began to run.
    pub begin_ns: u64,
    /// When it was over.
    pub end_ns: u64,
    /// The ordinal of the device.
    pub device: u32,
    /// The stream, by [`Profile::streams`].
    pub stream: u32,
    /// Index of the recorded call that enqueued it; `None` for work of the replay itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<u64>,
    /// Which node of a launched graph it is: equal for each launch of an executable graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u64>,
    /// Bytes that are copied or set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Blocks in x, y, z.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grid: Option<[u32; 3]>,
    /// Threads of a block in x, y, z.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<[u32; 3]>,
    /// Registers of a thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registers: Option<u32>,
    /// Bytes of shared memory of a block, static and dynamic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_bytes: Option<u64>,
}

impl Work {
    /// Work of which nothing else is known.
    pub fn of(kind: WorkKind) -> Self {
        Self {
            kind,
            name: String::new(),
            begin_ns: 0,
            end_ns: 0,
            device: 0,
            stream: 0,
            call: None,
            node: None,
            bytes: None,
            grid: None,
            block: None,
            registers: None,
            shared_bytes: None,
        }
    }

    /// How long it ran.
    pub fn lasted(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }
}

/// A call that the driver got, with the times of the host on the axis of its [`Run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCall {
    /// Call index.
    pub call: u64,
    /// When the driver got it.
    pub begin_ns: u64,
    /// When the driver returned.
    pub end_ns: u64,
    /// When the replay took it up, which then brings memory and arguments into place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_ns: Option<u64>,
    /// When the replay was done with it, having looked at what it returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done_ns: Option<u64>,
}

/// The clocks of a device while a replay ran, by NVML.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks {
    /// How often the device was asked.
    pub samples: u64,
    /// The lowest, the median and the highest clock of the multiprocessors, in MHz.
    pub sm_mhz: [u32; 3],
    /// The same of the memory.
    pub memory_mhz: [u32; 3],
    /// The highest temperature, in degrees Celsius.
    pub temperature: u32,
    /// The highest power, in milliwatts.
    pub milliwatts: u32,
    /// Why clocks were lowered, and in how many samples.
    pub lowered: BTreeMap<String, u64>,
}

/// One replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What devices ran, in order of its begin.
    pub work: Vec<Work>,
    /// The calls that the driver got, in order of their begin.
    pub host: Vec<HostCall>,
    /// Records that were lost because there was no memory for them.
    pub lost: u64,
    /// Work that has no time.
    pub not_timed: u64,
    /// Time that the tool itself took on the host, in nanoseconds.
    pub overhead_ns: u64,
    /// From the start of the replaying process to the first call or work: it reads the trace, loads
    /// the driver and the tool, and places memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ns: Option<u64>,
    /// From the end of the last call or work to the end of the process: it takes over the tool's
    /// records and hands them on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_ns: Option<u64>,
    /// The clocks meanwhile; `None` without NVML.
    pub clocks: Option<Clocks>,
}

impl Run {
    /// From the first call or work to the end of the last, in nanoseconds on its axis.
    pub fn span(&self) -> (u64, u64) {
        let begins = self.work.iter().map(|work| work.begin_ns);
        let begin = begins
            .chain(self.host.iter().map(|call| call.begin_ns))
            .min();
        let ends = self.work.iter().map(|work| work.end_ns);
        let end = ends.chain(self.host.iter().map(|call| call.end_ns)).max();
        let begin = begin.unwrap_or(0);
        (begin, end.unwrap_or(0).max(begin))
    }
}

/// A device, as far as is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its ordinal.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Major and minor number of its compute capability.
    pub capability: [u32; 2],
    /// Its multiprocessors.
    pub multiprocessors: u32,
    /// What a multiprocessor has room for: warps, blocks, registers, bytes of shared memory.
    pub warps: u32,
    /// Blocks.
    pub blocks: u32,
    /// Registers.
    pub registers: u32,
    /// Bytes of shared memory.
    pub shared_bytes: u32,
    /// Bytes a second that its memory can move at most.
    pub bytes_per_second: u64,
}

/// What the trace says of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFacts {
    /// The function.
    pub function: String,
    /// The recorded thread, by ordinal.
    pub thread: u32,
    /// When the program entered it, in nanoseconds since the recording began.
    pub recorded_begin_ns: Option<u64>,
    /// When the driver had returned.
    pub recorded_end_ns: Option<u64>,
    /// The innermost range of NVTX that it was made in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<String>,
    /// The host waits in it for work.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_wait: bool,
    /// Calls whose work on other streams comes before its own: by events, and by the order of the
    /// legacy default stream.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<u64>,
    /// Of a wait of the host: the last calls of streams whose work it waits for. Empty for all work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub awaits: Vec<u64>,
    /// Of a launch: the allocations that its parameters point into, by their first bytes. Empty if
    /// that is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub areas: Vec<u64>,
    /// The time that the program took for itself before the call, as far as the recording tells.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub program_ns: u64,
    /// The call by which its stream calls a function of the host before its work, and after other
    /// work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_function: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What was measured of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The trace's file.
    pub trace: String,
    /// The driver's file.
    pub driver: String,
    /// How the device's times were taken.
    pub method: Method,
    /// The devices that have run work.
    pub devices: Vec<Device>,
    /// The streams of work, by number: as the trace names them.
    pub streams: BTreeMap<u32, String>,
    /// What the trace says of the calls that the driver got.
    pub calls: BTreeMap<u64, CallFacts>,
    /// The replays.
    pub runs: Vec<Run>,
    /// What hardware counters say of some kernels, if that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<Counters>,
    /// What is missing or limited, and how often.
    pub notes: BTreeMap<String, u64>,
}

/// The profile is not of this trace: why.
#[derive(Debug, thiserror::Error)]
#[error("the profile is of another trace: {0}")]
pub struct OtherTrace(String);

impl Profile {
    /// The number of the replay with the median time, which tables about one replay are of; 0 if
    /// there is none.
    pub fn median_run(&self) -> usize {
        let wall = |run: &Run| {
            let (begin, end) = run.span();
            end - begin
        };
        let mut order: Vec<usize> = (0..self.runs.len()).collect();
        order.sort_by_key(|&number| self.runs.get(number).map(wall));
        order.get(order.len() / 2).copied().unwrap_or(0)
    }

    /// Takes that replay out, and drops the others; an empty one if there is none.
    pub fn take_median_run(&mut self) -> Run {
        let number = self.median_run();
        let run = self.runs.get_mut(number).map(std::mem::take);
        self.runs.clear();
        run.unwrap_or_default()
    }

    /// The function of a call.
    pub fn function(&self, call: u64) -> &str {
        self.calls.get(&call).map_or("?", |facts| &facts.function)
    }

    /// Whether it can be of a trace in which this call is of this function.
    ///
    /// # Errors
    /// That it is of another trace.
    pub fn expect(&self, call: u64, function: &str) -> Result<(), OtherTrace> {
        match self.calls.get(&call) {
            Some(facts) if facts.function != function => Err(OtherTrace(format!(
                "its call {call} is {}, the trace's {function}",
                facts.function
            ))),
            _ => Ok(()),
        }
    }

    /// A stream as the trace names it.
    pub fn stream(&self, stream: u32) -> String {
        let known = self.streams.get(&stream).cloned();
        known.unwrap_or_else(|| format!("stream {stream}"))
    }
}
