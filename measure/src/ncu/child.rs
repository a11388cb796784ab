//! The replay under `ncu`: names the calls that are to be measured.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cutape_format::Trace;
use cutape_replay::{CallTracer, Guard, Measuring, Options, Report, Tracer};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::ncu::nvtx::Nvtx;

/// What a replay under `ncu` has done.
#[derive(Debug, Serialize, Deserialize)]
pub struct Counted {
    /// The replaying process.
    pub(crate) process: u32,
    /// The chosen calls that the driver got.
    pub(crate) entered: BTreeSet<u64>,
    pub(crate) report: Report,
}

impl Counted {
    /// The report of the replay.
    pub fn report(&self) -> &Report {
        &self.report
    }
}

/// As a child writes it.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Done {
    process: u32,
    entered: BTreeSet<u64>,
}

/// Replays a trace in child processes that `command` starts and that call [`count_as_child`]. This
/// process and its children run under `ncu`.
///
/// # Errors
/// If no child could replay, or one hung.
pub fn count(
    trace: &Trace,
    command: &dyn Fn() -> Command,
    guard: &Guard,
) -> Result<Counted, Error> {
    let child = cutape_replay::rerun_guarded(trace, command, guard, &mut |_| {});
    let child = child.map_err(|error| Error(error.to_string()))?;
    let done: Done = serde_json::from_value(child.results)
        .map_err(|error| Error(format!("the measuring process: {error}")))?;
    Ok(Counted {
        process: done.process,
        entered: done.entered,
        report: child.outcome.report,
    })
}

/// The child's side of [`count()`]: replays, with ranges of NVTX around the calls. Returns the exit
/// status for the process.
pub fn count_as_child(trace: &Trace, calls: BTreeSet<u64>, options: Options) -> i32 {
    // What comes after the last of them is not needed.
    let until = calls.last().map(|last| last + 1);
    let tracer = Arc::new(RangeTracer {
        calls,
        nvtx: OnceLock::new(),
        entered: Mutex::default(),
    });
    let told: Arc<dyn CallTracer> = Arc::clone(&tracer) as _;
    let options = Options {
        keep_going: true,
        timing: Measuring::Span,
        tracer: Some(Tracer(told)),
        until,
        ..options
    };
    let results = || {
        let entered = tracer
            .entered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let done = Done {
            process: std::process::id(),
            entered: entered.clone(),
        };
        serde_json::to_value(done).unwrap_or_default()
    };
    cutape_replay::trace_as_child(trace, &options, &results)
}

/// Puts ranges around calls.
struct RangeTracer {
    calls: BTreeSet<u64>,
    nvtx: OnceLock<Nvtx>,
    entered: Mutex<BTreeSet<u64>>,
}

impl RangeTracer {
    /// The tool, for a call that is to be measured.
    fn tool_for(&self, call: u64) -> Option<Nvtx> {
        let nvtx = self.nvtx.get().copied()?;
        self.calls.contains(&call).then_some(nvtx)
    }
}

impl CallTracer for RangeTracer {
    fn begins(&self) -> Result<(), String> {
        let nvtx = Nvtx::attach()?;
        // An attempt begins once in its process.
        let _ = self.nvtx.set(nvtx);
        Ok(())
    }

    fn takes_up(&self) {}

    fn is_done(&self) {}

    fn enters(&self, call: u64) {
        if let Some(nvtx) = self.tool_for(call) {
            let mut entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
            entered.insert(call);
            drop(entered);
            nvtx.enter(call);
        }
    }

    fn leaves(&self, call: u64) {
        if let Some(nvtx) = self.tool_for(call) {
            nvtx.leave();
        }
    }

    fn wants_events(&self) -> bool {
        false
    }

    fn ran(&self, _: u64, _: Instant, _: Duration) {}

    fn is_not_timed(&self, _: u64) {}

    fn ends(&self) {}
}
