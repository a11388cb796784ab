//! What verbs that replay share: options, the guarded child process, the JSON report.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use cutape_replay::{Guard, Options, Permissions, PlacementStrategy};
use serde::Serialize;

use crate::command_line::CommandLine;
use cutape_terminal::failure::Failure;
use cutape_terminal::message;
use cutape_terminal::output::{self, ReportFile};

/// The options that they all have.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GuardedOptions {
    /// Continue even if the machine does not fit the trace.
    #[arg(long)]
    force: bool,
    /// Map recorded devices to devices of this machine, by ordinal.
    ///
    /// MAP is recorded=here, e.g. 0=1,1=0. For a folder of ranks it is for all of
    /// them; 2:0=1 is for rank 2 and takes precedence there. Can be given several
    /// times. Other devices are matched by UUID, by name and compute capability,
    /// by compute capability, then in order.
    #[arg(long, value_name = "MAP", value_parser = device_map, verbatim_doc_comment)]
    devices: Vec<DeviceMap>,
    /// How memory comes to lie at its recorded address.
    ///
    /// natural: the driver places it, in a process with the address space of the
    /// recorded one.
    /// granules: cutape reserves the addresses.
    /// none: the driver places it anywhere, and addresses are translated.
    /// Default: natural is tried, then granules.
    #[arg(long, value_name = "STRATEGY", verbatim_doc_comment)]
    placement: Option<Strategy>,
    /// Keep in FILE how memory was placed, and begin with that the next time.
    ///
    /// For traces, and folders of ranks, that need several attempts.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    keep_placement: Option<PathBuf>,
    /// The same as --placement none.
    #[arg(long, hide = true, conflicts_with = "placement")]
    no_placement: bool,
    #[command(flatten)]
    sandbox: SandboxOption,
    /// End a replay in which no call, or iteration of bench, begins or ends for
    /// this long.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        verbatim_doc_comment
    )]
    watchdog: u64,
}

/// Whether replays are sandboxed.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct SandboxOption {
    /// Let the replay do what you may do: write any file, use the network, start
    /// programs.
    ///
    /// Otherwise it cannot, where the system allows to take that away. Needed for
    /// tools that write files while the replay runs.
    #[arg(long, verbatim_doc_comment)]
    no_sandbox: bool,
}

impl SandboxOption {
    /// What a replay may do; `None`: anything.
    fn permissions(self) -> Option<Permissions> {
        (!self.no_sandbox).then(Permissions::default)
    }

    /// The option that a child needs, if one was given.
    pub(crate) fn for_child(self) -> Option<&'static str> {
        self.no_sandbox.then_some("--no-sandbox")
    }
}

/// Where the results go as JSON.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ReportOption {
    /// Write the results to this file as JSON; - is stdout, without the text.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl ReportOption {
    /// The report, checked to be writable.
    pub(crate) fn prepare(&self) -> Result<JsonReport, Failure> {
        Ok(match self.report.as_deref() {
            None => JsonReport::None,
            Some(path) if path.as_os_str() == "-" => JsonReport::Stdout,
            Some(path) => JsonReport::File(ReportFile::prepare(path)?),
        })
    }
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

    /// The map of a rank, or of a trace by itself: what is given for the rank, then what is given
    /// for all.
    pub(crate) fn devices_of(&self, rank: Option<u64>) -> Vec<(u32, u32)> {
        let is_own = |map: &&DeviceMap| map.rank.is_some() && map.rank == rank;
        let own = self.devices.iter().filter(is_own);
        let own: Vec<_> = own.flat_map(|map| &map.pairs).copied().collect();
        let for_all = self.devices.iter().filter(|map| map.rank.is_none());
        let for_all = for_all.flat_map(|map| &map.pairs).copied();
        let is_left = |pair: &(u32, u32)| own.iter().all(|known| known.0 != pair.0);
        let others: Vec<_> = for_all.filter(is_left).collect();
        [own, others].concat()
    }

    /// Fails if a map is for a rank that is not replayed.
    pub(crate) fn expect_ranks(&self, ranks: &[u64]) -> Result<(), Failure> {
        let other = self.devices.iter().find_map(|map| {
            let rank = map.rank.filter(|rank| !ranks.contains(rank))?;
            Some((map, rank))
        });
        let Some((map, rank)) = other else {
            return Ok(());
        };
        let replayed: Vec<String> = ranks.iter().map(u64::to_string).collect();
        Err(Failure::unusable(format!(
            "--devices {map}: rank {rank} is not replayed; {}",
            match replayed.as_slice() {
                [] => format!("for a trace by itself, give --devices {}", map.pairs()),
                [one] => format!("rank {one} is"),
                all => format!("ranks {} are", all.join(", ")),
            }
        )))
    }

    /// The options of a replay on that driver, of a rank or of a trace by itself.
    pub(crate) fn replay(&self, driver: PathBuf, rank: Option<u64>) -> Options {
        Options {
            force: self.force,
            watchdog: self.watchdog(),
            devices: self.devices_of(rank),
            sandbox: self.sandbox.permissions(),
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
            tell: |line| message!("{line}"),
            ..Guard::default()
        }
    }

    /// The option that several ranks cannot have, if there is one.
    pub(crate) fn only_for_one(&self) -> Option<&'static str> {
        let is_granules = matches!(self.placement, Some(Strategy::Granules));
        is_granules.then_some("--placement granules")
    }

    /// Whether a file for the placement of one trace was given.
    pub(crate) fn keeps_placement(&self) -> bool {
        self.keep_placement.is_some()
    }

    /// The options for a verb in a process of its own.
    pub(crate) fn for_process(&self) -> Vec<OsString> {
        let mut options = self.for_child();
        let placement = self
            .placement
            .and_then(|strategy| strategy.to_possible_value());
        if let Some(placement) = placement {
            options.extend(["--placement".into(), placement.get_name().into()]);
        }
        options.extend(self.no_placement.then(|| "--no-placement".into()));
        options
    }

    /// The options that a child needs, to be given to it again. The guard assigns the placement.
    pub(crate) fn for_child(&self) -> Vec<OsString> {
        let mut options = vec!["--watchdog".into(), self.watchdog.to_string().into()];
        options.extend(self.force.then(|| "--force".into()));
        options.extend(self.sandbox.for_child().map(Into::into));
        for map in &self.devices {
            options.extend(["--devices".into(), map.to_string().into()]);
        }
        options
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
        match self {
            JsonReport::Stdout => output::print(&json()),
            JsonReport::File(file) => {
                file.write(&json())?;
                output::print(text)
            }
            JsonReport::None => output::print(text),
        }
    }
}

/// A report as JSON.
pub(crate) fn json(report: &impl Serialize) -> String {
    serde_json::to_string_pretty(report).unwrap_or_default() + "\n"
}

/// Devices of the recording, and those of this machine for them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DeviceMap {
    /// Of this rank only.
    rank: Option<u64>,
    /// Ordinals: recorded, here.
    pairs: Vec<(u32, u32)>,
}

impl DeviceMap {
    /// `0=1,1=0`.
    fn pairs(&self) -> String {
        let pairs = self.pairs.iter().map(|(from, to)| format!("{from}={to}"));
        pairs.collect::<Vec<_>>().join(",")
    }
}

impl fmt::Display for DeviceMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rank) = self.rank {
            write!(f, "{rank}:")?;
        }
        f.write_str(&self.pairs())
    }
}

/// Parses `0=1,1=0` and `2:0=1`.
fn device_map(text: &str) -> Result<DeviceMap, String> {
    let pair = |word: &str| {
        let (recorded, here) = word.split_once('=')?;
        Some((recorded.trim().parse().ok()?, here.trim().parse().ok()?))
    };
    let (rank, map) = match text.split_once(':') {
        None => (None, text),
        Some((rank, map)) => {
            let known = rank.trim().parse();
            let known = known.map_err(|_| format!("{rank:?} is not the number of a rank"));
            (Some(known?), map)
        }
    };
    let pairs: Result<_, String> = map
        .split(',')
        .map(|word| {
            pair(word).ok_or_else(|| {
                format!("{word:?} is not of the form recorded=here, e.g. 0=1, or 2:0=1 for rank 2")
            })
        })
        .collect();
    Ok(DeviceMap {
        rank,
        pairs: pairs?,
    })
}

/// The command of the child: this process's own arguments, those of the project's file too, with
/// the verb `child`, followed by `hidden` options.
pub(crate) fn child(program: &Path, child: &str, hidden: &[OsString]) -> Command {
    let mut command = Command::new(program);
    command.args(CommandLine::of_child(child, hidden));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(maps: &[&str]) -> GuardedOptions {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            guarded: GuardedOptions,
        }
        let words = maps.iter().flat_map(|map| ["--devices", map]);
        let line = <Line as clap::Parser>::parse_from(["cutape"].into_iter().chain(words));
        line.guarded
    }

    #[test]
    fn device_maps() {
        for (text, rank, pairs) in [
            ("0=1, 1=0", None, &[(0, 1), (1, 0)][..]),
            ("2:0=1", Some(2), &[(0, 1)]),
            ("10:0=1,1=0", Some(10), &[(0, 1), (1, 0)]),
        ] {
            let map = device_map(text).unwrap();
            assert_eq!((map.rank, &map.pairs[..]), (rank, pairs), "{text}");
            assert_eq!(device_map(&map.to_string()), Ok(map));
        }
        for wrong in [
            "",
            "0",
            "0=1,",
            "0=x",
            "-1=0",
            "0:1",
            "0=1;1=0",
            "x:0=1",
            ":0=1",
            "1:",
            "0=1,1:0=1",
        ] {
            assert!(device_map(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_rank_has_its_own_map_before_that_of_all() {
        let given = options(&["0=1,1=0", "2:0=3", "2:1=2", "7:0=0"]);
        for (rank, expected) in [
            (None, &[(0, 1), (1, 0)][..]),
            (Some(0), &[(0, 1), (1, 0)]),
            (Some(2), &[(0, 3), (1, 2)]),
            (Some(7), &[(0, 0), (1, 0)]),
        ] {
            assert_eq!(given.devices_of(rank), expected, "{rank:?}");
        }
        assert!(given.expect_ranks(&[0, 2, 7]).is_ok());
        for (ranks, why) in [
            (
                &[0, 7][..],
                "--devices 2:0=3: rank 2 is not replayed; ranks 0, 7 are",
            ),
            (&[2], "--devices 7:0=0: rank 7 is not replayed; rank 2 is"),
            (
                &[],
                "--devices 2:0=3: rank 2 is not replayed; for a trace by itself, give --devices 0=3",
            ),
        ] {
            let refused = given.expect_ranks(ranks).unwrap_err();
            assert_eq!(refused.message, why);
        }
        assert!(options(&["0=1"]).expect_ranks(&[]).is_ok());
    }
}
