//! `cutape play`: runs a program without a GPU, on the answers of a recording.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use cutape_diff::Masks;
use cutape_format::Trace;
use cutape_play::{Allowed, OnMismatch, Outcome, effects, read_unset, unset_text};
use cutape_recording::{exit_code, run_with_driver};
use cutape_registry::NullSetting;
use cutape_render::quantity;
use serde_json::json;

use self::update::{Differing, differing, update_lines};
use cutape_terminal::failure::{FOUND, Failure};
use cutape_terminal::input;
use cutape_terminal::library;
use cutape_terminal::message;
use cutape_terminal::output::ReportFile;
use cutape_terminal::private_folder::PrivateFolder;

mod update;

/// What `play` takes.
#[derive(clap::Args)]
#[command(override_usage = "cutape play [OPTIONS] <TRACE> -- PROGRAM [ARGUMENTS]...")]
#[command(after_help = EPILOGUE)]
pub(crate) struct Arguments {
    /// The recording of the program.
    trace: PathBuf,
    /// What follows a call that is not the recorded one.
    ///
    /// stop ends the program. warn reports the call, and goes on at the next
    /// recorded call that matches. unknown does, too, and ends the program when it
    /// would get bytes that the recording does not tell any more.
    #[arg(long, value_parser = on_mismatch(), default_value = "stop", value_name = "ACTION")]
    #[arg(verbatim_doc_comment, hide_possible_values = true)]
    on_mismatch: OnMismatch,
    /// Launches of kernels with such a name, or calls of a function, may differ, be
    /// left out or come in addition: kernel:PATTERN or call:FUNCTION. The recorded
    /// results stand for theirs. May be given several times.
    #[arg(long, value_name = "CALLS", value_parser = allowed, verbatim_doc_comment)]
    allow: Vec<String>,
    /// Go on as with --on-mismatch unknown, and list what has to be recorded anew.
    #[arg(long, conflicts_with = "on_mismatch")]
    update: bool,
    /// Bytes of kernel parameters in this file do not count.
    ///
    /// Programs pass kernels structs whose padding and unused members hold what
    /// was on the stack.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "learn_unset",
        verbatim_doc_comment
    )]
    unset: Option<PathBuf>,
    /// Write this file, or add to it: bytes of kernel parameters in which the
    /// program differs from its recording are no mismatch.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    learn_unset: Option<PathBuf>,
    /// Write calls that are not the recorded ones to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

const EPILOGUE: &str = "\
The program runs with the null driver. Its calls must be those of the recording,
in the order of each thread; calls that only ask may come in any number. Results,
and bytes that come from the device, are the recorded ones; no kernel runs.

Exit status: the program's; 1 if a call was not the recorded one, or if the
program ended before the recording; 2 unusable input.";

/// A value of `--allow`.
fn allowed(text: &str) -> Result<String, &'static str> {
    let is_one = Allowed::default().add(text);
    let wrong = "give kernel:PATTERN, or call:FUNCTION with a function of the driver";
    is_one.then(|| text.to_owned()).ok_or(wrong)
}

/// The values of `--on-mismatch`.
fn on_mismatch() -> impl TypedValueParser<Value = OnMismatch> {
    let words = PossibleValuesParser::new(OnMismatch::ALL.map(OnMismatch::word));
    words.try_map(|word| OnMismatch::of_word(&word).ok_or("none of them"))
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let mut unset = Unset::read(&arguments)?;
    let report = ReportFile::given("--report", &arguments.report)?;
    let trace = input::open(&arguments.trace)?;
    if let Some(process) = trace.writer() {
        return Err(input::still_written(&arguments.trace, process));
    }
    input::say_what_is_missing(&trace);
    let folder = PrivateFolder::create("play")?;
    let outcome_file = folder.path("outcome");
    let path = std::path::absolute(&arguments.trace)?;
    let settings = [
        (NullSetting::Play, path.into_os_string()),
        (
            NullSetting::PlayOutcome,
            outcome_file.clone().into_os_string(),
        ),
        (
            NullSetting::PlayMismatch,
            match arguments.update {
                true => OnMismatch::Unknown.word().into(),
                false => arguments.on_mismatch.word().into(),
            },
        ),
        (NullSetting::PlayAllow, arguments.allow.join("\n").into()),
    ];
    let settings = settings.into_iter().chain(unset.settings()?);
    let settings = settings.map(|(setting, value)| (setting.name().to_owned(), value));
    // The trace is that of the program, or of a process that the program started.
    let is_programs = trace.meta_value("exit.process") == Some(&trace.head().process.to_string());
    let parent = is_programs.then(|| {
        let parent = std::process::id().to_string();
        (NullSetting::PlayParent.name().to_owned(), parent.into())
    });
    let variables = settings.chain(parent).chain(machine(&trace));
    let status = run_with_driver(&arguments.program, &library::null_driver()?, variables)?;
    let outcome = Outcome::read(&outcome_file)?;
    let is_played = outcome.is_some();
    let outcome = outcome.unwrap_or_default();
    unset.learn(&outcome.unset)?;
    let recorded = effects(&trace);
    let left = recorded.saturating_sub(outcome.played);
    let ended_early = (outcome.mismatches.is_empty() && left > 0)
        .then(|| what_is_left(&trace, left, outcome.next, is_played));
    if let Some(text) = &ended_early {
        message!("{text}");
    }
    let differing = differing(&outcome.mismatches);
    if arguments.update {
        for line in update_lines(&arguments.trace, &differing) {
            message!("{line}");
        }
    }
    if let Some(report) = report {
        let program = arguments.program.iter().map(|word| word.to_string_lossy());
        let all = json!({
            "trace": arguments.trace.to_string_lossy(),
            "program": program.collect::<Vec<_>>(),
            "status": exit_code(status),
            "calls": {"recorded": recorded, "played": outcome.played},
            "mismatches": outcome.mismatches,
            "ended_early": ended_early,
            "record_anew": differing.iter().map(Differing::json).collect::<Vec<_>>(),
        });
        report.write(&format!("{all:#}\n"))?;
    }
    let is_same = outcome.mismatches.is_empty() && left == 0;
    Ok(ExitCode::from(match is_same {
        true => exit_code(status),
        false => FOUND,
    }))
}

/// Bytes of kernel parameters that do not count.
struct Unset {
    /// The file that has them, if it exists.
    path: Option<PathBuf>,
    masks: Masks,
    /// The file to write.
    file: Option<ReportFile>,
}

impl Unset {
    fn read(arguments: &Arguments) -> Result<Self, Failure> {
        let learned = arguments.learn_unset.as_ref();
        let known = learned.filter(|path| path.exists());
        let path = arguments.unset.as_ref().or(known).cloned();
        let masks = path.as_deref().map(read_unset).transpose();
        Ok(Self {
            masks: masks.map_err(Failure::unusable)?.unwrap_or_default(),
            file: ReportFile::given("--learn-unset", &arguments.learn_unset)?,
            path,
        })
    }

    fn settings(&self) -> Result<Vec<(NullSetting, OsString)>, Failure> {
        let path = self.path.as_ref().map(std::path::absolute).transpose()?;
        let path = path.map(|path| (NullSetting::PlayUnset, path.into_os_string()));
        let learns = (self.file.as_ref()).map(|_| (NullSetting::PlayLearn, "1".into()));
        Ok(path.into_iter().chain(learns).collect())
    }

    /// Writes what is known now.
    fn learn(&mut self, new: &Masks) -> Result<(), Failure> {
        let Some(file) = self.file.take() else {
            return Ok(());
        };
        self.masks.extend(new);
        file.write(&unset_text(&self.masks))
    }
}

/// How the program has ended before the recording.
fn what_is_left(trace: &Trace, left: u64, next: u64, is_played: bool) -> String {
    let calls = quantity::count(left, "call");
    if !is_played {
        return format!("the program made no driver call, and the recording has {calls}");
    }
    let first = trace.calls().find(|call| call.index == next);
    let first = first.map(|call| format!("; the first is call {next}, {}", call.signature.name));
    format!(
        "the program has ended, and the recording goes on with {calls}{}",
        first.unwrap_or_default()
    )
}

/// The settings with which the null driver is like the recorded machine; what is set here wins.
fn machine(trace: &Trace) -> Vec<(String, OsString)> {
    let value = |setting: NullSetting| {
        let recorded = trace.meta_value(&format!("environment.{}", setting.name()));
        recorded
            .map(str::to_owned)
            .or_else(|| derived(trace, setting))
    };
    let settings = NullSetting::ALL.iter().copied();
    let settings = settings.filter(|setting| {
        setting.describes_machine() && std::env::var_os(setting.name()).is_none()
    });
    settings
        .filter_map(|setting| Some((setting.name().to_owned(), value(setting)?.into())))
        .collect()
}

/// A setting from what the recorder noted about the driver and the devices.
fn derived(trace: &Trace, setting: NullSetting) -> Option<String> {
    let of_device = |name: &str| {
        let count: u32 = trace.meta_value("device.count")?.parse().ok()?;
        let values = (0..count).map(|device| trace.meta_value(&format!("device.{device}.{name}")));
        values.collect::<Option<Vec<&str>>>()
    };
    match setting {
        NullSetting::Devices => trace.meta_value("device.count").map(str::to_owned),
        NullSetting::Version => trace.meta_value("driver.version").map(str::to_owned),
        NullSetting::Capability => Some(of_device("compute-capability")?.join(",")),
        NullSetting::Memory => of_device("memory")?.first().map(|&bytes| bytes.to_owned()),
        _ => None,
    }
    .filter(|value| !value.is_empty())
}
