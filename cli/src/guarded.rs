//! What `replay` and `bench` share: options, the guarded child process, the JSON report.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cutape_replay::{Guard, Options, PlacementStrategy};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::ReportFile;

/// The options that both verbs have.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GuardedOptions {
    /// Continue even if the machine does not fit the trace.
    #[arg(long)]
    force: bool,
    /// Map recorded devices to devices of this machine, by ordinal.
    ///
    /// MAP is recorded=here, e.g. 0=1,1=0. Other devices are matched by UUID,
    /// by name and compute capability, by compute capability, then in order.
    #[arg(long, value_name = "MAP", value_parser = device_map, verbatim_doc_comment)]
    devices: Option<DeviceMap>,
    /// How memory comes to lie at its recorded address.
    ///
    /// natural: the driver places it, in a process with the address space of the
    /// recorded one. granules: cutape reserves the addresses. none: it lies
    /// where the driver puts it, and addresses are translated. Without this
    /// option natural is tried, then granules.
    #[arg(long, value_name = "STRATEGY", verbatim_doc_comment)]
    placement: Option<Strategy>,
    /// Keep in FILE how memory was placed, and begin with that the next time.
    ///
    /// For traces that need several attempts.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    keep_placement: Option<PathBuf>,
    /// The same as --placement none.
    #[arg(long, hide = true, conflicts_with = "placement")]
    no_placement: bool,
    /// The longest time that one call or iteration may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    watchdog: u64,
    /// Write the results to this file as JSON; - is stdout, without the text.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// The values of `--placement`.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Strategy {
    Natural,
    Granules,
    None,
}

impl GuardedOptions {
    fn watchdog(&self) -> Duration {
        Duration::from_secs(self.watchdog.max(1))
    }

    /// Whether what is doubtful is to be done nevertheless.
    pub(crate) fn is_forced(&self) -> bool {
        self.force
    }

    /// The options of a replay on that driver.
    pub(crate) fn replay(&self, driver: PathBuf) -> Options {
        Options {
            force: self.force,
            watchdog: self.watchdog(),
            devices: self.devices.clone().map_or_else(Vec::new, |map| map.0),
            ..Options::new(driver)
        }
    }

    /// The guard of the child.
    pub(crate) fn guard(&self) -> Guard {
        let chosen = self.placement.map(|strategy| match strategy {
            Strategy::Natural => PlacementStrategy::Natural,
            Strategy::Granules => PlacementStrategy::Granules,
            Strategy::None => PlacementStrategy::None,
        });
        Guard {
            watchdog: self.watchdog(),
            placement: match self.no_placement {
                true => Some(PlacementStrategy::None),
                false => chosen,
            },
            keep_placement: self.keep_placement.clone(),
            tell: |line| eprintln!("cutape: {line}"),
            ..Guard::default()
        }
    }

    /// The option that several ranks cannot have, if there is one.
    pub(crate) fn only_for_one(&self) -> Option<&'static str> {
        let is_granules = matches!(self.placement, Some(Strategy::Granules));
        let kept = self.keep_placement.is_some();
        (is_granules.then_some("--placement granules"))
            .or_else(|| kept.then_some("--keep-placement"))
    }

    /// The options that a child needs, to be given to it again. The guard assigns the placement.
    pub(crate) fn for_child(&self) -> Vec<OsString> {
        let mut options = vec!["--watchdog".into(), self.watchdog.to_string().into()];
        options.extend(self.force.then(|| "--force".into()));
        if let Some(map) = &self.devices {
            let pairs: Vec<String> = map.0.iter().map(|(a, b)| format!("{a}={b}")).collect();
            options.extend(["--devices".into(), pairs.join(",").into()]);
        }
        options
    }

    /// The report, checked to be writable.
    pub(crate) fn report(&self) -> Result<JsonReport, Failure> {
        Ok(match self.report.as_deref() {
            None => JsonReport::None,
            Some(path) if path.as_os_str() == "-" => JsonReport::Stdout,
            Some(path) => JsonReport::File(ReportFile::prepare(path)?),
        })
    }
}

/// Where the report goes as JSON.
#[derive(Debug)]
pub(crate) enum JsonReport {
    None,
    /// In place of the text.
    Stdout,
    File(ReportFile),
}

impl JsonReport {
    /// True if the report goes to stdout.
    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self, Self::Stdout)
    }

    /// Writes the report, and the text to stdout.
    pub(crate) fn write(&self, report: &impl Serialize, text: &str) -> Result<(), Failure> {
        let json = || json(report);
        let written = match self {
            JsonReport::Stdout => write!(io::stdout(), "{}", json()),
            JsonReport::File(file) => {
                file.write(&json())?;
                write!(io::stdout(), "{text}")
            }
            JsonReport::None => write!(io::stdout(), "{text}"),
        };
        // A closed pipe does not change the outcome.
        written.or_else(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Ok(()),
            _ => Err(error.into()),
        })
    }
}

/// A report as JSON.
pub(crate) fn json(report: &impl Serialize) -> String {
    serde_json::to_string_pretty(report).unwrap_or_default() + "\n"
}

/// Writes the notes of a report for people, and how often each applies.
pub(crate) fn write_notes(out: &mut String, notes: &BTreeMap<String, u64>) {
    for (note, count) in notes {
        let times = match count {
            1 => String::new(),
            count => format!(" ({count} times)"),
        };
        *out += &format!("note: {note}{times}\n");
    }
}

/// Pairs of device ordinals: recorded, here.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DeviceMap(Vec<(u32, u32)>);

/// Parses `0=1,1=0`.
fn device_map(text: &str) -> Result<DeviceMap, String> {
    let pair = |word: &str| {
        let (recorded, here) = word.split_once('=')?;
        Some((recorded.trim().parse().ok()?, here.trim().parse().ok()?))
    };
    let pairs: Result<_, String> = text
        .split(',')
        .map(|word| {
            pair(word).ok_or_else(|| format!("{word:?} is not of the form recorded=here, e.g. 0=1"))
        })
        .collect();
    Ok(DeviceMap(pairs?))
}

/// The command of the child: this process's own arguments with the verb `child` in place of `verb`,
/// followed by `hidden` options.
pub(crate) fn child(program: &Path, verb: &str, child: &str, hidden: &[OsString]) -> Command {
    let mut command = Command::new(program);
    let mut arguments = env::args_os().skip(1);
    command.args(arguments.by_ref().take_while(|argument| argument != verb));
    command.arg(child).args(hidden).args(arguments);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_maps() {
        let map = device_map("0=1, 1=0").unwrap();
        assert_eq!(map.0, [(0, 1), (1, 0)]);
        for wrong in ["", "0", "0=1,", "0=x", "-1=0", "0:1", "0=1;1=0"] {
            assert!(device_map(wrong).is_err(), "{wrong}");
        }
    }
}
