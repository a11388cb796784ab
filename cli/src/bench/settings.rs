//! The settings of one measuring process.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What the measurements are compared with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Comparison {
    /// With nothing: they are kept under a name.
    Keep(String),
    /// With those that were kept under a name.
    Against(String),
    /// A replaced kernel's with the recorded one's, measured by the same process.
    AgainstRecorded,
}

/// Under which name runs are kept that the user has given none.
pub(super) const UNNAMED: &str = "last";
/// Under which the recorded kernel's and the first driver's are.
pub(super) const RECORDED: &str = "recorded-kernel";
pub(super) const FIRST_DRIVER: &str = "first-driver";

/// All that the child must know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Settings {
    pub trace: PathBuf,
    pub driver: PathBuf,
    pub calls: Option<String>,
    pub each_kernel: bool,
    pub launches: usize,
    pub replace: Vec<String>,
    pub tolerance: Option<String>,
    pub comparison: Comparison,
    pub output: PathBuf,
    pub gpu: bool,
    pub host: bool,
    pub samples: usize,
    pub measure_seconds: f64,
    pub warm_up_seconds: f64,
    pub restore: bool,
    pub force: bool,
    pub devices: Vec<(u32, u32)>,
    pub placement: bool,
    pub watchdog: u64,
    pub plots: bool,
    pub verbose: bool,
}
