//! The parent of the measuring process.

use std::process::Command;

use cutape_format::Trace;
use cutape_replay::Guard;

use crate::error::Error;
use crate::measurement::Results;
use crate::settings::Settings;

/// Measures in child processes that `command` starts and that call
/// [`measure_as_child`](crate::measure_as_child); `progress` gets how many calls and iterations are
/// done.
///
/// # Errors
/// If no child could measure.
pub fn measure(
    trace: &Trace,
    settings: &Settings,
    command: &dyn Fn() -> Command,
    guard: &Guard,
    progress: &mut dyn FnMut(u64),
) -> Result<Results, Error> {
    let command = || {
        let mut command = command();
        // Otherwise criterion looks for cargo's folders or connects to cargo-criterion.
        command.env("CRITERION_HOME", &settings.output);
        command.env_remove("CARGO_CRITERION_PORT");
        command.env_remove("CRITERION_DEBUG");
        command
    };
    let measured = cutape_replay::rerun_guarded(trace, &command, guard, progress)
        .map_err(|error| Error(error.to_string()))?;
    let benchmarks = serde_json::from_value(measured.results)
        .map_err(|error| Error(format!("the measuring process: {error}")))?;
    Ok(Results {
        outcome: measured.outcome,
        benchmarks,
    })
}
