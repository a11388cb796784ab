//! What parent and child give each other: variables with descriptors and an assignment, and a
//! message through the pipe.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::observation::job::Observed;
use crate::report::Report;
use crate::rerun::Outcome;

/// Names the descriptors for the child: `page,pipe`.
pub(crate) const VARIABLE: &str = "CUTAPE_REPLAY_CHILD";
/// Names the descriptor of a child's end of a session.
pub(crate) const SESSION: &str = "CUTAPE_REPLAY_SESSION";
/// An [`Assignment`] for the child, as JSON.
pub(crate) const ASSIGNMENT: &str = "CUTAPE_REPLAY_PLACEMENT";
/// Exit status of a child that could write its message.
pub(crate) const EXIT_REPORTED: i32 = 0;

/// What a child has measured.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measurements {
    /// The replay around the measurements.
    pub outcome: Outcome,
    /// The measurements, as the child has put them.
    pub results: serde_json::Value,
}

/// What a child writes into the pipe before it exits.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    Report(Box<Report>),
    Measurements(Box<Measurements>),
    Observed(Box<Observed>),
    Failed(Error),
}

impl Message {
    pub(crate) fn report_mut(&mut self) -> Option<&mut Report> {
        match self {
            Self::Report(report) => Some(report),
            Self::Measurements(measurements) => Some(&mut measurements.outcome.report),
            Self::Observed(observed) => Some(&mut observed.report),
            Self::Failed(_) => None,
        }
    }
}

/// The message is not what the child was to write.
pub(crate) fn unexpected() -> Error {
    Error::NoReport {
        how: "it reported something else".into(),
    }
}
