//! The replays of `diff --execute` and `first --differs`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;

use cutape_execution_diff::{Replays, Side};
use cutape_format::Trace;
use cutape_replay::{Guard, Observation, Observed, Outcome, Replacement, Report, Tolerance};
use cutape_terminal::failure::Failure;
use cutape_terminal::library;
use cutape_terminal::progress::Progress;

use super::execute_child::{CHILD, KernelFile, Task, Work};
use crate::guarded::GuardedOptions;
use cutape_terminal::private_folder::{PrivateFolder, write_anew};

/// Replays in guarded children.
pub(crate) struct Children<'a> {
    traces: [&'a Trace; 2],
    driver: PathBuf,
    program: PathBuf,
    guarded: &'a GuardedOptions,
    /// Of B: calls, and the images that they load instead of recorded ones.
    pub(super) images: Vec<(u64, PathBuf)>,
    folder: &'a PrivateFolder,
}

impl<'a> Children<'a> {
    /// Nothing is replayed yet.
    pub(crate) fn new(
        traces: [&'a Trace; 2],
        driver: PathBuf,
        guarded: &'a GuardedOptions,
        folder: &'a PrivateFolder,
    ) -> Result<Self, Failure> {
        Ok(Self {
            traces,
            driver,
            program: library::own_path()?,
            guarded,
            images: Vec::new(),
            folder,
        })
    }

    /// Has `replay` start a child for a task.
    fn child<T>(
        &self,
        side: Side,
        work: Work,
        replay: impl FnOnce(
            &Trace,
            &dyn Fn() -> Command,
            &Guard,
            &mut dyn FnMut(u64),
        ) -> Result<T, cutape_replay::Error>,
    ) -> Result<T, String> {
        let [a, b] = self.traces;
        let (trace, images, what) = match side {
            Side::A => (a, Vec::new(), "replaying A"),
            Side::B => (b, self.images.clone(), "replaying B"),
        };
        let task = Task { images, work };
        let path = self.folder.path("task.json");
        let text = serde_json::to_string(&task).unwrap_or_default();
        let cannot = |error| format!("{}: {error}", path.display());
        write_anew(&path, text.as_bytes()).map_err(cannot)?;
        let command = || {
            // The child of an earlier attempt may have changed it.
            let _ = write_anew(&path, text.as_bytes());
            let mut command = Command::new(&self.program);
            command.arg(CHILD).arg("--child-driver").arg(&self.driver);
            command.arg("--child-task").arg(&path);
            command
                .args(self.guarded.for_child())
                .arg("--")
                .arg(trace.path());
            command
        };
        // Digests and other kernels move memory: what follows from that is not kept.
        let guard = Guard {
            keep_placement: None,
            ..self.guarded.guard()
        };
        let mut progress = Progress::over_calls(what, [trace]);
        replay(trace, &command, &guard, &mut |done| progress.reach(done))
            .map_err(|error| error.to_string())
    }
}

impl Replays for Children<'_> {
    fn launches(&mut self, side: Side) -> Result<Report, String> {
        self.child(side, Work::Launches, cutape_replay::run_guarded)
    }

    fn observe(&mut self, side: Side, observation: &Observation) -> Result<Observed, String> {
        let work = Work::Observe(Box::new(observation.clone()));
        self.child(side, work, cutape_replay::observe_guarded)
    }

    fn run(
        &mut self,
        kernels: HashMap<u64, Replacement>,
        tolerance: &Tolerance,
    ) -> Result<Outcome, String> {
        let mut files = Vec::new();
        for (call, kernel) in kernels {
            let file = self.folder.path(format!("kernel-{call}"));
            write_anew(&file, &kernel.image)
                .map_err(|error| format!("{}: {error}", file.display()))?;
            files.push(KernelFile {
                call,
                name: kernel.name,
                file,
                path: kernel.path,
            });
        }
        let work = Work::Run(files, tolerance.clone());
        let measured = self.child(Side::A, work, cutape_replay::rerun_guarded)?;
        Ok(measured.outcome)
    }
}
