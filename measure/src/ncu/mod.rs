//! Hardware counters: a replay under NVIDIA's profiler `ncu`, which runs each kernel as often as its
//! counters need, and puts memory back in between.
//!
//! `ncu` starts a process that guards the replay ([`count()`]), which starts the one that replays
//! ([`count_as_child`]), as it starts any other: what `ncu` does to processes is its own. The replay
//! has it measure (`cuProfilerStart`, `cuProfilerStop`) while the driver has a chosen call, and
//! nothing else. `find` looks for `ncu`, `output` reads what it prints, `join` makes the counters of
//! a profile: rows are in the order of launches, and their number and shapes must be those of the
//! calls.
//!
//! Ranges of NVTX, which `ncu` could print with each kernel, are not used: with `--nvtx` ncu 2025.3.1
//! crashed a program that has ranges (H200, driver 580.159.04).

mod child;
mod find;
mod join;
mod output;

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

pub use self::child::{Counted, count, count_as_child};
pub use self::find::Ncu;
pub use self::join::{Measured, counters};

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
        command.args(["--profile-from-start", "off"]);
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
