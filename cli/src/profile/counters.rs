//! `--counters`: hardware counters of kernels, from a replay under NVIDIA's profiler `ncu`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use cutape_calls::CallSet;
use cutape_format::Trace;
use cutape_measure::{Counted, Measured, Ncu, count, counters};
use cutape_profile::{Chosen, Profile};
use cutape_render::quantity;
use cutape_replay::Report;
use cutape_terminal::ending::Group;
use cutape_terminal::failure::Failure;
use cutape_terminal::library;
use cutape_terminal::message;
use cutape_terminal::private_folder::{PrivateFolder, write_anew};

use crate::command_line::CommandLine;
use crate::guarded::{self, GuardedOptions};
use crate::profile::child::CHILD;

/// The hidden verb of the process under `ncu`, which guards the child.
pub(crate) const GUARD: &str = "profile-count";

/// What chooses the kernels, and finds `ncu`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CounterOptions {
    /// Also measure kernels with hardware counters: cache hit rates, occupancy,
    /// stalls, the place in the roofline.
    ///
    /// That takes a second replay, in which NVIDIA's ncu runs the chosen kernels
    /// several times. Without SET they are the first launches of the ten kernels, by
    /// shape, that take the most time; with SET all launches in it.
    #[arg(
        long,
        value_name = "SET",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        verbatim_doc_comment
    )]
    counters: Option<String>,
    /// NVIDIA's ncu. Default: that in PATH, the CUDA toolkit or
    /// /opt/nvidia/nsight-compute.
    #[arg(long, value_name = "PATH", requires = "counters", verbatim_doc_comment)]
    ncu: Option<PathBuf>,
}

/// What the processes under `ncu` are given.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CountingArguments {
    /// The file with the calls to measure, as JSON.
    #[arg(long)]
    child_calls: Option<PathBuf>,
    /// The file for what the guard says.
    #[arg(long)]
    child_result: Option<PathBuf>,
}

/// The error of a set that is not given with `--calls`.
fn of_counters(error: cutape_calls::Error) -> Failure {
    Failure::unusable(error.to_string().replacen("--calls", "--counters", 1))
}

/// What is to be measured, and with what.
#[derive(Debug)]
pub(super) struct Counting {
    ncu: Ncu,
    /// The calls of the set; `None`: those with the most time.
    calls: Option<Vec<u64>>,
}

impl CounterOptions {
    pub(super) fn is_given(&self) -> bool {
        self.counters.is_some()
    }

    /// Looks for what counters need, before anything is measured.
    pub(super) fn prepare(&self, trace: &Trace) -> Result<Option<Counting>, Failure> {
        let Some(text) = &self.counters else {
            return Ok(None);
        };
        let calls = match text.as_str() {
            "" => None,
            text => {
                let set = CallSet::for_trace(text, trace);
                let calls = set.and_then(|set| set.some_calls(text, trace));
                Some(calls.map_err(of_counters)?)
            }
        };
        let ncu = Ncu::find(self.ncu.as_deref()).map_err(Failure::unusable)?;
        Ok(Some(Counting { ncu, calls }))
    }
}

impl Counting {
    /// Replays under `ncu`, and adds the counters to the profile. `hidden` are the options of the
    /// guarded child.
    pub(super) fn run(
        self,
        profile: &mut Profile,
        reports: &[Report],
        hidden: &[OsString],
    ) -> Result<(), Failure> {
        let waiting = reports.iter().flat_map(|report| &report.waiting_launches);
        let waiting: Vec<u64> = waiting.copied().collect();
        let chosen = match &self.calls {
            Some(calls) => Chosen::of_calls(profile, calls, &waiting),
            None => Chosen::by_time(profile, &waiting),
        };
        if chosen.calls.is_empty() {
            return Err(Failure::unusable(match chosen.left_out.first_key_value() {
                Some((call, why)) => format!("--counters: no kernel to measure: call {call}: {why}"),
                None if chosen.graphs_matter => {
                    "--counters: all kernels are in graphs; name launches of graphs to measure their \
                     kernels, e.g. --counters='cuGraphLaunch* and ..2000'"
                        .to_owned()
                }
                None => "--counters: no kernel to measure: the replay ran none of these calls".to_owned(),
            }));
        }
        let launches = quantity::count(chosen.calls.len() as u64, "call");
        message!("ncu measures the kernels of {launches}: each of them runs several times");
        if chosen.graphs_matter {
            let note = "a kernel of graphs takes more time than one with counters; --counters=CALL \
                        measures the kernels of a graph that CALL launches";
            profile.notes.insert(note.to_owned(), 1);
        }
        let folder = PrivateFolder::create("counters")?;
        let [calls, result, log, printed, messages] =
            ["calls", "result", "log", "printed", "messages"].map(|name| folder.path(name));
        let cannot = |error| Failure::cannot_write(&calls, &error);
        let listed = serde_json::to_vec(&chosen.calls).unwrap_or_default();
        write_anew(&calls, &listed).map_err(cannot)?;
        let given = |option: &str, path: &Path| [option.into(), path.as_os_str().to_owned()];
        let hidden = [
            hidden,
            &given("--child-calls", &calls),
            &given("--child-result", &result),
        ]
        .concat();
        let program = library::own_path()?;
        let words = CommandLine::of_child(GUARD, &hidden);
        let mut command = self.ncu.command(&log, &program, words);
        command.stdin(Stdio::null());
        command.stdout(File::create_new(&printed).map_err(cannot)?);
        command.stderr(File::create_new(&messages).map_err(cannot)?);
        let begin = Instant::now();
        let started = Group::start(&mut command).and_then(Group::wait);
        let status = started.map_err(|error| {
            Failure::unusable(format!("cannot run {}: {error}", self.ncu.path.display()))
        })?;
        let wall_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let text = |path: &Path| {
            let bytes = fs::read(path).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        // Where `ncu` itself fails, it may say so on stdout.
        let messages = text(&printed) + &text(&messages);
        let counted: Option<Counted> = serde_json::from_str(&text(&result)).ok();
        let measured = Measured {
            ncu: &self.ncu,
            log: &text(&log),
            counted,
            messages: &messages,
            wall_ns,
        };
        tracing::debug!("ncu ended: {status}");
        let counters = counters(chosen, measured, profile).map_err(Failure::unusable)?;
        profile.counters = Some(counters);
        Ok(())
    }
}

impl CountingArguments {
    /// The calls that the child is to name; `None`: it measures times.
    pub(super) fn calls(&self) -> Result<Option<BTreeSet<u64>>, Failure> {
        let Some(path) = &self.child_calls else {
            return Ok(None);
        };
        let bytes = fs::read(path);
        let calls = bytes
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let calls = calls
            .ok_or_else(|| Failure::unusable(format!("{}: not a list of calls", path.display())))?;
        Ok(Some(calls))
    }

    /// The guard under `ncu`: has the child replay, and writes what it has found.
    pub(super) fn guard(&self, trace: &Trace, options: &GuardedOptions) -> Result<(), Failure> {
        let program = library::own_path()?;
        let command = || guarded::child(&program, CHILD, &[]);
        let counted = count(trace, &command, &options.guard()).map_err(Failure::unusable)?;
        let Some(result) = &self.child_result else {
            return Ok(());
        };
        let written = write_anew(result, guarded::json(&counted).as_bytes());
        written.map_err(|error| Failure::cannot_write(result, &error))
    }
}
