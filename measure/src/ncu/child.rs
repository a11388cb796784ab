//! The replay under `ncu`: lets it measure while the driver has a chosen call.

use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cutape_format::Trace;
use cutape_replay::{CallTracer, Guard, Measuring, Options, Tracer};
use libloading::os::unix::{Library, RTLD_NOW};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The call by which a program has its profiler begin, if that was told to wait for it.
const START: &str = "cuProfilerStart";

/// What a replay under `ncu` has done, as its child writes it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Counted {
    /// The replaying process.
    pub(crate) process: u32,
    /// The chosen calls that the driver got.
    pub(crate) entered: BTreeSet<u64>,
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
    serde_json::from_value(child.results)
        .map_err(|error| Error(format!("the measuring process: {error}")))
}

/// The child's side of [`count()`]: replays, and has the profiler measure these calls. Returns the
/// exit status for the process.
pub fn count_as_child(trace: &Trace, calls: BTreeSet<u64>, options: Options) -> i32 {
    let starts = trace
        .calls()
        .filter(|call| call.signature.name == START)
        .map(|call| call.index)
        .collect();
    // What comes after the last of them is not needed.
    let until = calls.last().map(|last| last + 1);
    let tracer = Arc::new(GateTracer {
        driver: options.driver.clone(),
        calls,
        starts,
        gate: OnceLock::new(),
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
        let counted = Counted {
            process: std::process::id(),
            entered: tracer.entered(|entered| entered.clone()),
        };
        serde_json::to_value(counted).unwrap_or_default()
    };
    cutape_replay::trace_as_child(trace, &options, &results)
}

type Control = unsafe extern "C" fn() -> i32;

/// The driver's functions that a profiler obeys.
#[derive(Clone, Copy)]
struct Gate {
    start: Control,
    stop: Control,
}

impl Gate {
    /// Of the driver, which is loaded.
    fn of(driver: &Path) -> Result<Self, String> {
        let fail = |error: libloading::Error| format!("{}: {error}", driver.display());
        // SAFETY: the library is loaded already, so that none of its initialisers runs.
        let library = unsafe { Library::open(Some(driver), RTLD_NOW) }.map_err(fail)?;
        // The replay uses the driver until the process ends.
        let library = ManuallyDrop::new(library);
        // SAFETY: the driver's functions have these types, and stay loaded.
        unsafe {
            Ok(Self {
                start: *library.get(b"cuProfilerStart\0").map_err(fail)?,
                stop: *library.get(b"cuProfilerStop\0").map_err(fail)?,
            })
        }
    }

    /// Whether the driver agreed.
    fn open(self) -> bool {
        // SAFETY: it takes nothing.
        unsafe { (self.start)() == 0 }
    }

    fn close(self) {
        // SAFETY: as above. Without a profiler it does nothing.
        unsafe { (self.stop)() };
    }
}

/// Opens the gate around the chosen calls.
struct GateTracer {
    driver: PathBuf,
    calls: BTreeSet<u64>,
    /// Calls of the program by which it opens the gate itself.
    starts: BTreeSet<u64>,
    gate: OnceLock<Gate>,
    entered: Mutex<BTreeSet<u64>>,
}

impl GateTracer {
    fn entered<T>(&self, work: impl FnOnce(&mut BTreeSet<u64>) -> T) -> T {
        work(&mut self.entered.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl CallTracer for GateTracer {
    fn begins(&self) -> Result<(), String> {
        let gate = Gate::of(&self.driver)?;
        // A process replays once.
        let _ = self.gate.set(gate);
        Ok(())
    }

    fn takes_up(&self) {}

    fn is_done(&self) {}

    fn enters(&self, call: u64) {
        if let Some(gate) = self.gate.get().filter(|_| self.calls.contains(&call))
            && gate.open()
        {
            self.entered(|entered| entered.insert(call));
        }
    }

    fn leaves(&self, call: u64) {
        let is_open = self.calls.contains(&call) || self.starts.contains(&call);
        if let Some(gate) = self.gate.get().filter(|_| is_open) {
            gate.close();
        }
    }

    fn wants_events(&self) -> bool {
        false
    }

    fn ran(&self, _: u64, _: Instant, _: Duration) {}

    fn is_not_timed(&self, _: u64) {}

    fn ends(&self) {}
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    static IS_OPEN: AtomicBool = AtomicBool::new(false);
    static REFUSES: AtomicBool = AtomicBool::new(false);

    extern "C" fn start() -> i32 {
        let refuses = REFUSES.load(Ordering::SeqCst);
        IS_OPEN.store(!refuses, Ordering::SeqCst);
        if refuses { 201 } else { 0 }
    }

    extern "C" fn stop() -> i32 {
        IS_OPEN.store(false, Ordering::SeqCst);
        0
    }

    #[test]
    fn the_gate_is_open_for_the_chosen_calls() {
        let tracer = GateTracer {
            driver: PathBuf::new(),
            calls: [2, 4, 6].into(),
            starts: [3].into(),
            gate: Gate { start, stop }.into(),
            entered: Mutex::default(),
        };
        for (call, is_open) in [(1, false), (2, true), (3, false), (4, true), (5, false)] {
            tracer.enters(call);
            assert_eq!(IS_OPEN.load(Ordering::SeqCst), is_open, "in call {call}");
            if call == 3 {
                // The program's own.
                start();
            }
            tracer.leaves(call);
            assert!(!IS_OPEN.load(Ordering::SeqCst), "after call {call}");
        }
        REFUSES.store(true, Ordering::SeqCst);
        tracer.enters(6);
        tracer.leaves(6);
        assert_eq!(tracer.entered(|entered| entered.clone()), [2, 4].into());
    }
}
