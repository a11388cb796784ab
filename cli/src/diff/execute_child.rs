//! The guarded child of `diff --execute`.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use cutape_format::Trace;
use cutape_replay::{
    CallImage, DigestedLaunches, Job, Measuring, Observation, Options, Replacement, Tolerance,
};
use serde::{Deserialize, Serialize};

use crate::guarded::GuardedOptions;
use cutape_terminal::failure::{Failure, UNUSABLE};

/// The hidden verb.
pub(crate) const CHILD: &str = "execute-child";

/// New memory is filled with this, so that what nothing has set is equal.
const FILL: u8 = 0;

/// The arguments of the child.
#[derive(clap::Args)]
pub(crate) struct ChildArguments {
    /// The resolved driver.
    #[arg(long)]
    child_driver: PathBuf,
    /// A [`Task`] as JSON.
    #[arg(long)]
    child_task: PathBuf,
    trace: PathBuf,
    #[command(flatten)]
    guarded: GuardedOptions,
}

/// What a child does.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Task {
    /// Images to load instead of recorded ones: the call, and the file.
    pub(super) images: Vec<(u64, PathBuf)>,
    pub(super) work: Work,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Work {
    /// Digests all launches.
    Launches,
    /// Reads memory.
    Observe(Box<Observation>),
    /// Runs other kernels.
    Run(Vec<KernelFile>, Tolerance),
}

/// A kernel to run in place of that of a launch.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KernelFile {
    pub(super) call: u64,
    pub(super) name: String,
    /// Its image.
    pub(super) file: PathBuf,
    /// What messages call the image.
    pub(super) path: String,
}

/// Replays, and reports through a pipe to the parent.
pub(crate) fn run_child(child: ChildArguments) -> Result<ExitCode, Failure> {
    let internal = || Failure::unusable("execute-child is internal; use `cutape diff --execute`");
    let text = fs::read_to_string(&child.child_task).map_err(|_| internal())?;
    let task: Task = serde_json::from_str(&text).map_err(|_| internal())?;
    let trace = Trace::open(&child.trace)?;
    let images = task.images.into_iter();
    let images = images.map(|(call, file)| CallImage { call, file });
    let images: Vec<CallImage> = images.collect();
    let options = Options {
        keep_going: true,
        fill: Some(FILL),
        images: CallImage::read_all(&trace, &images).map_err(Failure::unusable)?,
        ..child.guarded.replay(child.child_driver, None)
    };
    let status = match task.work {
        Work::Launches => {
            let options = Options {
                launches: DigestedLaunches::BeforeAndAfter,
                ..options
            };
            cutape_replay::run_as_child(&trace, &options)
        }
        Work::Observe(observation) => {
            let options = Options {
                until: observation
                    .until
                    .or_else(|| observation.calls.keys().last().map(|last| last + 1)),
                ..options
            };
            cutape_replay::observe_as_child(&trace, &options, *observation)
        }
        Work::Run(kernels, tolerance) => run_kernels(&trace, options, &kernels, tolerance)?,
    };
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(UNUSABLE)))
}

fn run_kernels(
    trace: &Trace,
    options: Options,
    kernels: &[KernelFile],
    tolerance: Tolerance,
) -> Result<i32, Failure> {
    let mut replacements = HashMap::new();
    for kernel in kernels {
        let image = fs::read(&kernel.file);
        let image =
            image.map_err(|error| Failure::unusable(format!("{}: {error}", kernel.path)))?;
        let replacement = Replacement {
            image: image.into(),
            name: kernel.name.clone(),
            path: kernel.path.clone(),
        };
        replacements.insert(kernel.call, replacement);
    }
    let calls: BTreeSet<u64> = replacements.keys().copied().collect();
    let options = Options {
        // Only `replay` compares returned bytes.
        timing: Measuring::Calls,
        until: calls.last().map(|last| last + 1),
        ..options
    };
    let job = Job {
        calls,
        each: true,
        restore: true,
        replacements,
        tolerance,
        recorded_too: false,
        what_if: None,
    };
    // What the kernels write has been compared before; their times are not wanted.
    let measure = Box::new(|_, _: &mut cutape_replay::Work<'_>| Ok(()));
    let results = || serde_json::Value::Null;
    Ok(cutape_replay::rerun_as_child(
        trace, &options, job, measure, &results,
    ))
}
