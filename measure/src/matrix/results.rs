//! The file of results: what one machine measured, as JSON. docs/matrix.md describes it.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use cutape_replay::Clock;
use serde::{Deserialize, Serialize};

use super::statistics::{self, LEAST_HOST_SPREAD, LEAST_SPREAD, Level};
use crate::error::Error;
use crate::gpu::GpuState;
use crate::measurement::{Benchmark, Estimate};

/// The version of the schema, `MAJOR.MINOR`: a minor version only adds members.
pub const SCHEMA: &str = "1.0";

/// The name of the benchmark of all calls.
pub(crate) const WHOLE_TRACE: &str = "trace";
/// How much the samples of a process deviate from each other at most, as a fraction, if the host
/// has no part in them (assumed; 0.04 % for a kernel on an H200).
const STEADY: f64 = 0.002;

/// What one machine measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`] of the version that wrote the file.
    pub schema: String,
    /// The version of cutape that measured.
    pub cutape: String,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// When it last measured.
    pub finished: u64,
    /// Whether all was measured; otherwise the same command continues.
    pub complete: bool,
    /// How it measured.
    pub settings: MatrixSettings,
    /// Where.
    pub machine: Machine,
    /// The state of each GPU before the first measurement; empty without NVML.
    pub before: Vec<GpuState>,
    /// The same after the last one.
    pub after: Vec<GpuState>,
    /// By name.
    pub traces: Vec<TraceResults>,
}

/// How it was measured. Results of other settings are not continued.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MatrixSettings {
    /// Each kernel and shape was measured, beside the whole trace.
    pub each_kernel: bool,
    /// Kernels that were replaced: KERNEL=FILE.
    pub replace: Vec<String>,
    /// The clocks.
    pub clocks: Vec<Clock>,
    /// Processes that measured each benchmark.
    pub rounds: u32,
    /// Samples of each process.
    pub samples: usize,
    /// Seconds of each process and benchmark.
    pub measure_seconds: f64,
    /// The same before it.
    pub warm_up_seconds: f64,
    /// Whether memory was restored before each iteration.
    pub restore: bool,
}

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: Option<String>,
    /// Processors that the process may use.
    pub cpus: usize,
    /// The file of the driver.
    pub driver: String,
    /// The driver's version, such as `580.159.04`.
    pub driver_version: Option<String>,
    /// The version of CUDA that the driver has, such as `13.0`.
    pub cuda: Option<String>,
    /// Names of the GPUs, by ordinal of NVML.
    pub gpus: Vec<String>,
}

/// What was measured of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceResults {
    /// Its name without `.cutape`, after that of its folder if names repeat.
    pub name: String,
    /// BLAKE3 of the file.
    pub digest: String,
    /// Its calls.
    pub calls: u64,
    /// Whether it launches kernels that can be measured separately.
    pub has_kernels: bool,
    /// Whether it replays; `None`: not tried yet.
    pub replay: Option<Replayed>,
    /// The processes that measured, in order.
    pub processes: Vec<Process>,
    /// The benchmarks, in the order of their launches.
    pub benchmarks: Vec<MatrixBenchmark>,
}

/// How a trace replays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// The outcome.
    pub outcome: ReplayOutcome,
    /// The first divergence, or why there is no outcome.
    pub reason: Option<String>,
    /// Calls given to the driver.
    pub calls_replayed: u64,
    /// Differences from the recording.
    pub divergences: u64,
    /// Calls that were not re-issued.
    pub left_out: u64,
    /// Bytes from the device that were equal.
    pub bytes_compared: u64,
}

/// The outcome of a replay; worse ones are larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplayOutcome {
    /// All that was compared is equal.
    Agrees,
    /// Something differs.
    Diverges,
    /// The replay did not end: a crash, a time-out, an unusable machine.
    #[default]
    Failed,
}

impl Replayed {
    /// Whether it has a worse outcome than an earlier one, or diverges at more calls or leaves out
    /// more. How far a replay came that did not end says nothing.
    pub(super) fn is_worse_than(&self, earlier: &Self) -> bool {
        self.outcome > earlier.outcome
            || earlier.outcome != ReplayOutcome::Failed
                && (self.divergences > earlier.divergences || self.left_out > earlier.left_out)
    }
}

impl ReplayOutcome {
    /// Its word in texts.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Diverges => "diverges",
            Self::Failed => "fails",
        }
    }
}

/// A process that measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// The round, from 1.
    pub round: u32,
    /// What it measured.
    pub subject: MatrixSubject,
    /// How long it took.
    pub seconds: f64,
    /// Why it measured nothing, if so.
    pub failure: Option<String>,
    /// Places where a replaced kernel wrote other results.
    pub mismatches: u64,
}

/// What a process measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MatrixSubject {
    /// All calls of the trace that can be repeated.
    #[default]
    Trace,
    /// Each kernel and shape.
    Kernels,
}

/// One benchmark, by process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MatrixBenchmark {
    /// The clock that measured.
    pub clock: Clock,
    /// `trace`, or the kernel with its shape.
    pub name: String,
    /// Index of the launch or of the first call.
    pub call: u64,
    /// What each process measured.
    pub rounds: Vec<Round>,
}

/// What one process measured of a benchmark. Times are nanoseconds of one iteration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The round, from 1.
    pub round: u32,
    /// The mean with its 95 % confidence interval.
    pub mean: Estimate,
    /// The median with its 95 % confidence interval.
    pub median: Estimate,
    /// The median distance of samples from their median.
    pub mad: f64,
    /// The samples, in order.
    pub samples: Vec<f64>,
}

/// What files of all versions have.
#[derive(Deserialize)]
struct Versioned {
    schema: String,
}

/// BLAKE3 of a file, as hexadecimal digits.
///
/// # Errors
/// If it cannot be read.
pub fn digest_of(path: &Path) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok(hasher.finalize().to_hex().to_string())
}

impl Results {
    /// Reads a file.
    ///
    /// # Errors
    /// If it is none, or one of a later major version.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let wrong = |why: &dyn std::fmt::Display| Error(format!("{}: {why}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| wrong(&error))?;
        let other = |error| wrong(&format!("no results of `cutape matrix`: {error}"));
        // Those of another version may have other members.
        let Versioned { schema } = serde_json::from_str(&text).map_err(other)?;
        if schema.split('.').next() != SCHEMA.split('.').next() {
            return Err(wrong(&format!(
                "schema {schema:?} is not readable here ({SCHEMA}); use the version that wrote it"
            )));
        }
        serde_json::from_str(&text).map_err(other)
    }

    /// The number of processes that could not measure.
    pub fn failures(&self) -> usize {
        let processes = self.traces.iter().flat_map(|trace| &trace.processes);
        processes.filter(|one| one.failure.is_some()).count()
    }

    /// Whether a replay diverged or failed, a process could not measure, or a replaced kernel wrote
    /// other results.
    pub fn has_findings(&self) -> bool {
        let is_wrong = |trace: &TraceResults| {
            let replay = trace.replay.as_ref();
            replay.is_some_and(|replay| replay.outcome != ReplayOutcome::Agrees)
                || trace.mismatches() > 0
        };
        self.failures() > 0 || self.traces.iter().any(is_wrong)
    }
}

impl TraceResults {
    /// Adds what a process measured. Of a replaced kernel, it is the replacement that counts.
    pub fn add(&mut self, process: Process, measured: Vec<Benchmark>) {
        let round = process.round;
        let is_replaced = measured.iter().any(|one| one.is_replaced);
        for one in measured {
            if one.is_replaced != is_replaced {
                continue;
            }
            let mut known = self.benchmarks.iter().position(|known| {
                (known.clock, &known.name, known.call) == (one.clock, &one.name, one.call)
            });
            let place = *known.get_or_insert_with(|| {
                self.benchmarks.push(MatrixBenchmark {
                    clock: one.clock,
                    name: one.name,
                    call: one.call,
                    rounds: Vec::new(),
                });
                self.benchmarks.len() - 1
            });
            if let Some(known) = self.benchmarks.get_mut(place) {
                known.rounds.push(Round {
                    round,
                    mean: one.time,
                    median: one.median,
                    mad: one.mad,
                    samples: one.samples,
                });
            }
        }
        self.processes.push(process);
    }

    /// Whether a process of that round and subject has ended.
    pub fn has(&self, round: u32, subject: MatrixSubject) -> bool {
        let mut processes = self.processes.iter();
        processes.any(|one| (one.round, one.subject) == (round, subject))
    }

    /// The most places where a replaced kernel wrote other results, in one process.
    pub fn mismatches(&self) -> u64 {
        let each = self.processes.iter().map(|one| one.mismatches);
        each.max().unwrap_or(0)
    }
}

impl MatrixBenchmark {
    /// What its processes measured; `None` without samples.
    pub(super) fn level(&self) -> Option<Level> {
        let samples = self.samples();
        // In the time of several calls there may be gaps in which the device waits for the host;
        // then its samples differ.
        let may_have_gaps = self.name == WHOLE_TRACE
            && statistics::deviation(&samples).is_none_or(|deviation| deviation > STEADY);
        let least = match self.clock == Clock::Host || may_have_gaps {
            true => LEAST_HOST_SPREAD,
            false => LEAST_SPREAD,
        };
        statistics::level(&samples, least)
    }

    /// The samples of each process.
    pub(crate) fn samples(&self) -> Vec<&[f64]> {
        let rounds = self.rounds.iter();
        rounds.map(|round| round.samples.as_slice()).collect()
    }
}
