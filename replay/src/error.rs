//! Why a replay could not be done at all.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::process::lesson::Misplaced;

/// Why a replay could not be done at all. Differences from the recording are in the report.
///
/// A guarded child writes it into the pipe to its parent.
#[derive(Debug, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver cannot be loaded.
    #[error("{}: cannot be loaded as a CUDA driver: {why}; name another with --driver", path.display())]
    Driver {
        /// Which library.
        path: PathBuf,
        /// What the loader reported.
        why: String,
    },
    /// The machine does not fit.
    #[error("this machine does not fit the trace: {}; use --force to replay anyway", reasons.join("; "))]
    Machine {
        /// Every reason.
        reasons: Vec<String>,
    },
    /// The devices cannot be matched as requested.
    #[error("devices: {problem}; those of the trace: {recorded}; those of this machine: {here}")]
    Devices {
        /// What is wrong with the map.
        problem: String,
        /// The recorded devices.
        recorded: String,
        /// The devices of this machine.
        here: String,
    },
    /// The driver refuses a call that the replay itself needs.
    #[error("the driver returned {result} to {function}, which the replay itself needs")]
    Setup {
        /// The function.
        function: Cow<'static, str>,
        /// The result's name.
        result: String,
    },
    /// A child process or a thread cannot be started or talked to.
    #[error("the replaying process: {what}: {why}")]
    Child {
        /// What was tried.
        what: Cow<'static, str>,
        /// What the operating system reported.
        why: String,
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
    /// An image cannot be loaded instead of the recorded one.
    #[error("{why}")]
    Image {
        /// The reason, in one line.
        why: String,
    },
    /// The file for contents of memory cannot be written.
    #[error("{}: contents of memory cannot be written: {why}", path.display())]
    Contents {
        /// The file.
        path: PathBuf,
        /// What the operating system reported.
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
    /// The file of kept placements cannot be used.
    #[error("{}: the kept placement {what}: {why}; remove the file to begin anew", path.display())]
    KeptPlacement {
        /// The file.
        path: PathBuf,
        /// What cannot be done with it.
        what: Cow<'static, str>,
        /// What the operating system or the parser reported.
        why: String,
    },
    /// The driver placed memory elsewhere than in the recording.
    #[error("call {}: memory lies at {:#x} instead of {:#x}; a fresh process may fit", .0.call, .0.here, .0.recorded)]
    Misplaced(Misplaced),
    /// One of several ranks cannot be replayed.
    #[error("{label}: {error}")]
    Rank {
        /// What messages call it.
        label: String,
        /// Why.
        error: Box<Error>,
    },
}

impl Error {
    /// The system has no thread left.
    pub(crate) fn no_thread(error: &io::Error) -> Self {
        let advice = "raise the limit on threads (ulimit -u, or the pids of the container)";
        Self::child("starting a thread", format!("{error}; {advice}"))
    }

    /// Something that the operating system refused.
    pub(crate) fn child(what: &'static str, why: impl ToString) -> Self {
        Self::Child {
            what: what.into(),
            why: why.to_string(),
        }
    }
}
