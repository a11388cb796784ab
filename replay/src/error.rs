//! Why a replay could not be done at all.

use std::io;
use std::path::PathBuf;

/// Why a replay could not be done at all; what was done and differed is in the report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver cannot be loaded.
    #[error("{}: cannot be loaded as a CUDA driver: {why}; name another with --driver", path.display())]
    Driver {
        /// Which library.
        path: PathBuf,
        /// What the loader said.
        why: String,
    },
    /// The machine does not fit.
    #[error("this machine does not fit the trace: {}; --force goes on all the same", reasons.join("; "))]
    Machine {
        /// Every reason.
        reasons: Vec<String>,
    },
    /// The devices cannot be matched as was asked for.
    #[error("devices: {problem}; those of the trace: {recorded}; those of this machine: {here}")]
    Devices {
        /// What is wrong with the map.
        problem: String,
        /// The recorded devices.
        recorded: String,
        /// The devices that are here.
        here: String,
    },
    /// The driver refuses something that the replayer itself needs.
    #[error("the driver answers {result} to {function}, which the replay itself needs")]
    Setup {
        /// The function.
        function: &'static str,
        /// The result's name.
        result: String,
    },
    /// A child process cannot be started or talked to.
    #[error("the replaying process: {what}: {source}")]
    Child {
        /// What was tried.
        what: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// A child process ended without a report.
    #[error("the replaying process ended without a report ({how})")]
    NoReport {
        /// Its exit status.
        how: String,
    },
    /// The calls that were to be measured cannot be.
    #[error("{why}")]
    Measure {
        /// The reason, in one line.
        why: String,
    },
    /// Memory of the recorded process lies where this process has something else.
    #[error("{} of {total} address ranges are taken in this process; a fresh process may fit", taken.len())]
    Conflict {
        /// First addresses of the ranges.
        taken: Vec<u64>,
        /// How many ranges are needed.
        total: usize,
    },
}
