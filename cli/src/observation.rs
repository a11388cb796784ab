//! Reads live memory around calls of a trace, in a guarded replay.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use cutape_format::Trace;
use cutape_replay::{Observation, Observed, Options};

use crate::guarded::GuardedOptions;
use crate::one_rank::{ChildSource, Source};
use cutape_terminal::failure::{Failure, UNUSABLE};
use cutape_terminal::library;
use cutape_terminal::private_folder::{PrivateFolder, write_anew};
use cutape_terminal::progress::Progress;

/// The hidden verb of the guarded child.
pub(crate) const CHILD: &str = "observe-child";

/// The arguments of the guarded child.
#[derive(clap::Args)]
pub(crate) struct ChildArguments {
    /// The resolved driver.
    #[arg(long)]
    child_driver: PathBuf,
    /// An [`Observation`] as JSON.
    #[arg(long)]
    child_observation: PathBuf,
    #[command(flatten)]
    source: ChildSource,
    trace: PathBuf,
    #[command(flatten)]
    guarded: GuardedOptions,
}

/// What replays a trace and reads memory; its errors are messages. `progress` begins to show how far
/// a replay is.
pub(crate) fn observer<'a>(
    (trace, source): (&'a Trace, &'a Source),
    driver: &'a Path,
    guarded: &'a GuardedOptions,
    progress: impl Fn() -> Progress + 'a,
) -> impl Fn(&Observation) -> Result<Observed, String> + 'a {
    move |observation| {
        let observed = observe((trace, source), driver, guarded, observation, progress());
        observed.map_err(|failure| failure.message)
    }
}

/// The progress of a replay that is not one of several passes.
pub(crate) fn replaying(trace: &Trace) -> Progress {
    Progress::over_calls("replaying", [trace])
}

/// Replays a trace up to the last observed call and reads memory. Removes the file of contents if
/// that fails.
fn observe(
    (trace, source): (&Trace, &Source),
    driver: &Path,
    guarded: &GuardedOptions,
    observation: &Observation,
    mut progress: Progress,
) -> Result<Observed, Failure> {
    let program = library::own_path()?;
    let contents = &observation.contents;
    let description = contents.with_added_extension("observation");
    let text = serde_json::to_string(observation).unwrap_or_default();
    write_anew(&description, text.as_bytes())
        .map_err(|error| Failure::unusable(format!("{}: {error}", description.display())))?;
    let command = || {
        // The child of an earlier attempt may have changed it.
        let _ = write_anew(&description, text.as_bytes());
        let mut command = Command::new(&program);
        command.arg(CHILD).arg("--child-driver").arg(driver);
        command.arg("--child-observation").arg(&description);
        command.args(source.for_child());
        command
            .args(guarded.for_child())
            .arg("--")
            .arg(trace.path());
        command
    };
    let guard = guarded.guard();
    let reach = &mut |done| progress.reach(done);
    let observed = cutape_replay::observe_guarded(trace, &command, &guard, reach);
    let _ = fs::remove_file(&description);
    if observed.is_err() {
        let _ = fs::remove_file(contents);
    }
    observed.map_err(Failure::unusable)
}

/// As [`observe`], with contents that are not kept.
pub(crate) fn watch(
    source: (&Trace, &Source),
    driver: &Path,
    guarded: &GuardedOptions,
    observation: Observation,
) -> Result<Observed, Failure> {
    let (observed, _) = read(source, driver, guarded, observation)?;
    Ok(observed)
}

/// As [`observe`], with the contents in a file that no folder has.
pub(crate) fn read(
    source: (&Trace, &Source),
    driver: &Path,
    guarded: &GuardedOptions,
    observation: Observation,
) -> Result<(Observed, File), Failure> {
    let folder = PrivateFolder::create("watch")?;
    let observation = Observation {
        contents: folder.path("contents"),
        ..observation
    };
    let progress = replaying(source.0);
    let observed = observe(source, driver, guarded, &observation, progress)?;
    let contents = File::open(&observation.contents);
    let contents = contents.map_err(|error| {
        let path = observation.contents.display();
        Failure::unusable(format!("{path}: {error}"))
    })?;
    Ok((observed, contents))
}

/// The guarded child: replays, and reports through a pipe to its parent.
pub(crate) fn run_child(child: ChildArguments) -> Result<ExitCode, Failure> {
    let internal = |_| Failure::unusable("observe-child is internal; use `cutape extract`");
    let text = fs::read_to_string(&child.child_observation)
        .map_err(|_| ())
        .map_err(internal)?;
    let observation: Observation = serde_json::from_str(&text)
        .map_err(|_| ())
        .map_err(internal)?;
    let trace = Trace::open(child.source.path(&child.trace))?;
    let options = Options {
        keep_going: true,
        until: observation
            .until
            .or_else(|| observation.calls.keys().last().map(|last| last + 1)),
        alone: child.source.alone()?,
        ..child
            .guarded
            .replay(child.child_driver.clone(), child.source.rank())
    };
    let status = cutape_replay::observe_as_child(&trace, &options, observation);
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(UNUSABLE)))
}
