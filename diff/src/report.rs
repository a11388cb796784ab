//! What a comparison found.

use std::collections::BTreeMap;
use std::ops::Range;

/// What sort of difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Only one of the traces has the call.
    Call,
    /// Another kernel.
    Kernel,
    /// Grid, block, shared memory or attributes of a launch.
    Shape,
    /// A number, a name, an offset or a kernel parameter.
    Argument,
    /// Another object than the one that corresponds.
    Object,
    /// Bytes that a call was given.
    Data,
    /// The code of an image.
    Code,
    /// The result code.
    Result,
    /// What a call wrote: numbers, or bytes that were copied back.
    Output,
    /// An object that only one of the traces does not destroy.
    Leak,
    /// Threads use a stream or an event in another order, or a thread makes a call elsewhere.
    Order,
    /// A thread without a counterpart.
    Thread,
    /// What the driver says about the machine.
    Machine,
}

impl Kind {
    /// All, in the order of reports.
    pub const ALL: [Self; 13] = [
        Self::Call,
        Self::Kernel,
        Self::Shape,
        Self::Argument,
        Self::Object,
        Self::Data,
        Self::Code,
        Self::Result,
        Self::Output,
        Self::Leak,
        Self::Order,
        Self::Thread,
        Self::Machine,
    ];

    /// Its word in options and machine-readable output.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Kernel => "kernel",
            Self::Shape => "shape",
            Self::Argument => "argument",
            Self::Object => "object",
            Self::Data => "data",
            Self::Code => "code",
            Self::Result => "result",
            Self::Output => "output",
            Self::Leak => "leak",
            Self::Order => "order",
            Self::Thread => "thread",
            Self::Machine => "machine",
        }
    }

    /// What it is, for a summary.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Call => "calls in one trace only",
            Self::Kernel => "another kernel",
            Self::Shape => "another launch shape",
            Self::Argument => "other arguments",
            Self::Object => "another object",
            Self::Data => "other bytes given to the driver",
            Self::Code => "other code in an image",
            Self::Result => "another result code",
            Self::Output => "other values or bytes returned",
            Self::Leak => "objects that one trace does not destroy",
            Self::Order => "another order",
            Self::Thread => "threads in one trace only",
            Self::Machine => "other answers about driver or device",
        }
    }
}

/// A call, or the first of several in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSite {
    /// Call index.
    pub index: u64,
    /// Ordinal of the thread.
    pub thread: u32,
    /// Exported name of the function.
    pub function: String,
    /// The kernel that it launches or asks about.
    pub kernel: Option<String>,
}

/// A value that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What sort of value.
    pub kind: Kind,
    /// Where in the call.
    pub what: String,
    /// Its text in A and in B; `None` where that trace does not have it.
    pub values: [Option<String>; 2],
}

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Most important first; not empty.
    pub kinds: Vec<Kind>,
    /// The calls of A and B.
    pub sites: [Option<CallSite>; 2],
    /// How many calls in a row are in one trace only, or, in a list that is not complete, how
    /// often the same difference occurs.
    pub count: u64,
    /// One line.
    pub title: String,
    /// The values that differ, if the traces were read for them.
    pub changes: Vec<Change>,
}

/// Calls that are left out, because their number is up to time or to the runtime library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// What they are.
    pub sort: &'static str,
    /// Documented name of the function.
    pub function: String,
    /// In A and in B.
    pub counts: [u64; 2],
}

/// A trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// How many calls.
    pub calls: u64,
    /// How many threads.
    pub threads: u64,
}

/// Something about driver, devices or recorder that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// What it is.
    pub what: String,
    /// In A and in B.
    pub values: [Option<String>; 2],
}

/// Durations of the calls of one function and kernel, in nanoseconds on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    /// Documented name of the function.
    pub function: String,
    /// The kernel.
    pub kernel: Option<String>,
    /// Of A and B.
    pub sides: [Spread; 2],
    /// By how many percent B is slower, negative if it is faster; `None` within the noise.
    pub change: Option<i64>,
}

/// Durations: how many, the median, and the quarter and three-quarter points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// How many calls.
    pub calls: u64,
    /// Nanoseconds.
    pub median: u64,
    /// A quarter of the calls take less.
    pub low: u64,
    /// A quarter of the calls take more.
    pub high: u64,
}

/// Bytes of the parameters of a kernel that may be unset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsetBytes {
    /// The kernel.
    pub kernel: String,
    /// The bytes, from the start of the parameters.
    pub bytes: Vec<Range<u32>>,
    /// In how many launches they differ.
    pub launches: u64,
}

/// What a comparison found.
#[derive(Clone, Debug)]
pub struct Report {
    /// A and B.
    pub sides: [Side; 2],
    /// What differs in driver, devices and recorder; not counted as differences.
    pub settings: Vec<Setting>,
    /// The driver or a device is another one, so that what the driver says about the machine
    /// differs for that reason.
    pub is_other_machine: bool,
    /// In the order of A, as many as were asked for.
    pub differences: Vec<Difference>,
    /// The position in `differences` of what diverged first.
    pub first: Option<usize>,
    /// How many differences the list leaves out.
    pub omitted: u64,
    /// How many differences there are of each kind; each counts once for each of its kinds.
    pub counts: BTreeMap<Kind, u64>,
    /// How many differences there are.
    pub total: u64,
    /// Calls that are not compared.
    pub left_out: Vec<LeftOut>,
    /// Calls that another thread makes.
    pub moved: u64,
    /// Calls that end objects in another order, with nothing between.
    pub reordered_ends: u64,
    /// Payloads are compared by their length: one trace does not have their bytes.
    pub lengths_only: bool,
    /// With recordings that show noise: how many differences do not count because of them.
    pub noise: Option<u64>,
    /// Bytes of kernel parameters that may be unset: they differ, without an effect on what was
    /// copied back. They are no differences.
    pub unset: Vec<UnsetBytes>,
    /// If they were asked for; the longest first.
    pub times: Vec<Times>,
}

impl Report {
    /// Whether the traces differ in anything but what another machine explains.
    pub fn differs(&self) -> bool {
        let is_explained = |kind: Kind| kind == Kind::Machine && self.is_other_machine;
        self.counts.keys().any(|&kind| !is_explained(kind))
    }
}
