//! What a comparison found.

use cutape_history::CallFacts;
use cutape_replay::Mismatch;
use serde::Serialize;

use crate::compared::Reasons;

/// What a comparison found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Whether a launch writes something else that is not within the tolerance, or is in one trace
    /// only.
    pub differs: bool,
    /// Launches that were compared.
    pub launches: u64,
    /// Launches that write something else, by their digests.
    pub differing: u64,
    /// Those of them with equal inputs.
    pub introduced: u64,
    /// The first launch that writes something else.
    pub first: Option<Finding>,
    /// Kernels that write something else although their inputs are equal; the first is first.
    pub kernels: Vec<IntroducedBy>,
    /// Kernels with other code whose inputs differ, and which write the same as A's kernel on A's
    /// inputs.
    pub same_on_inputs: Vec<String>,
    /// Launches that differ between two replays of A. They do not count.
    pub not_reproducible: Option<NotReproducible>,
    /// Launches that differ by their digests, but not when they were read: within the tolerance, or
    /// only in addresses.
    pub dismissed: Vec<u64>,
    /// Launches that differ by their digests and were not read, if those before them do not count.
    pub unread: u64,
    /// The launches of one trace only, of A and B.
    pub only: [u64; 2],
    /// Launches that were not compared, by reason, of A and B.
    pub not_compared: [Reasons; 2],
    /// What else was not looked at, one line each.
    pub left_out: Vec<String>,
}

/// Launches that differ between two replays of A.
#[derive(Clone, Debug, Serialize)]
pub struct NotReproducible {
    /// How many.
    pub launches: u64,
    /// The first of them.
    pub first: LaunchFacts,
}

/// A launch.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LaunchFacts {
    /// Its call index.
    pub call: u64,
    /// Which launch of its trace it is, from 0.
    pub launch: u64,
    /// Of a graph: the kernel node in the order in which they run, if it was found.
    pub node: Option<u32>,
    /// Its call. The kernel is that of the node.
    #[serde(flatten)]
    pub facts: CallFacts,
}

/// Where a difference is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Equal inputs, other outputs.
    Introduced,
    /// Other inputs.
    Inherited,
}

/// A launch that writes something else.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Where the difference is from.
    pub verdict: Verdict,
    /// The launch in A and B.
    pub launches: [LaunchFacts; 2],
    /// Parameters, shape or kernel that differ, one line each.
    pub arguments: Vec<String>,
    /// What it can read and differs before it.
    pub inputs: Vec<DifferingMemory>,
    /// What it has written and differs after it.
    pub outputs: Vec<DifferingMemory>,
    /// Of other inputs: the call that gave them, if it was found.
    pub origin: Option<Origin>,
    /// Whether B's kernel writes something else on A's inputs, if it was run.
    pub differs_on_same_inputs: Option<bool>,
    /// Why memory was not read; the verdict is that of the digests then.
    pub not_read: Option<String>,
}

/// Memory of a launch that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DifferingMemory {
    /// What memory of A it is: `memory#3`, `variable table`.
    pub memory: String,
    /// Its address as recorded in A.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// The parameters of the kernel that point into it, from 0.
    pub parameters: Vec<u32>,
    /// How it differs; `None` if only digests are known.
    pub mismatch: Option<Mismatch>,
}

/// The call that other input data come from.
#[derive(Clone, Debug, Serialize)]
pub struct Origin {
    /// Its index in A.
    pub call: u64,
    /// The call.
    #[serde(flatten)]
    pub facts: CallFacts,
    /// In what it differs from the call of B: words of `diff`.
    pub kinds: Vec<&'static str>,
}

/// A kernel that writes something else on equal inputs.
#[derive(Clone, Debug, Serialize)]
pub struct IntroducedBy {
    /// Its name in the source.
    pub kernel: String,
    /// Its launches with equal inputs and other outputs.
    pub launches: u64,
    /// The first of them; else the one on whose inputs B's kernel was run.
    pub first: u64,
    /// B's kernel was run on A's inputs, which differ from B's.
    pub was_run: bool,
    /// What differs there, if it was read.
    pub changed: Option<Changed>,
}

/// What a kernel changes.
#[derive(Clone, Debug, Serialize)]
pub struct Changed {
    /// What memory it is.
    pub memory: String,
    /// How it differs.
    pub mismatch: Mismatch,
}
