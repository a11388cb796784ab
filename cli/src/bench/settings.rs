//! The settings of one measuring process.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What to compare the measurements with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Comparison {
    /// Nothing: they are saved under a name.
    Save(String),
    /// Those saved under a name.
    Against(String),
    /// For a replaced kernel, the recorded one, measured by the same process.
    AgainstRecorded,
}

/// The name for runs that the user did not name.
pub(super) const UNNAMED: &str = "last";
/// The names for the recorded kernel and the first driver.
pub(super) const RECORDED: &str = "recorded-kernel";
pub(super) const FIRST_DRIVER: &str = "first-driver";

/// The settings of the child.
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
