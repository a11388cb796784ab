//! Hardware counters: a replay under NVIDIA's profiler `ncu`, which runs each kernel as often as its
//! counters need, and puts memory back in between.
//!
//! `ncu` starts a process that guards the replay ([`count()`]), which starts the one that replays
//! ([`count_as_child`]), as it starts any other: what `ncu` does to processes is its own. The replay
//! names the calls that are to be measured with ranges of NVTX (`nvtx`); `ncu` measures nothing
//! outside them, and prints the ranges with each kernel, so that a kernel is joined with its call
//! whatever else ran. `find` looks for it, `output` reads what it prints, `join` makes the counters
//! of a profile.

mod child;
mod find;
mod join;
mod nvtx;
mod output;

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

pub use self::child::{Counted, count, count_as_child};
pub use self::find::Ncu;
pub use self::join::{Measured, counters};
use self::nvtx::RANGE;

/// Sections of metrics. Sections name the metrics that each architecture has; a metric that is named
/// by itself and that the device lacks is an error.
const SECTIONS: [&str; 7] = [
    "SpeedOfLight",
    "SpeedOfLight_RooflineChart",
    "SpeedOfLight_HierarchicalHalfRooflineChart",
    "SpeedOfLight_HierarchicalTensorRooflineChart",
    "MemoryWorkloadAnalysis",
    "Occupancy",
    "WarpStateStats",
];

impl Ncu {
    /// The command that runs a program under it; it prints to the file `log`.
    pub fn command(
        &self,
        log: &Path,
        program: &Path,
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Command {
        let mut command = Command::new(&self.path);
        command.args(["--target-processes", "all"]);
        let range = format!("{}/", RANGE.to_string_lossy());
        command.args(["--nvtx", "--nvtx-include", &range]);
        // The clocks of the replay without it; the device's settings stay as they are.
        command.args(["--clock-control", "none"]);
        command.args(["--csv", "--page", "raw", "--print-units", "base"]);
        command.args(["--apply-rules", "no"]);
        for section in SECTIONS {
            command.args(["--section", section]);
        }
        command.arg("--log-file").arg(log);
        command.arg(program).args(arguments);
        command
    }
}
