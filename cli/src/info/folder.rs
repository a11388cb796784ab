//! `cutape info FOLDER`: lists the processes of a recording, and compares its ranks.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use cutape_format::Trace;
use serde::Serialize;

use super::ranks::{self, RankBuilder, Ranks};
use super::sharing::{SharedObjects, Sharer};
use crate::text_table::table;
use cutape_calls::CallSet;
use cutape_format::{ClockStart, TraceClock};
use cutape_model::ExchangeBuilder;
use cutape_render::quantity::{count, grouped, time_or_unknown};
use cutape_report::summary::{CallCounts, ProcessFacts};
use cutape_terminal::failure::Failure;
use cutape_terminal::input::{Completeness, say_what_is_missing};
use cutape_terminal::output;
use cutape_terminal::progress::{Progress, Unit};

/// The traces of a folder. JSON keys are only ever added; times are nanoseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Folder {
    pub(crate) path: String,
    /// By rank, then by start time.
    pub(crate) traces: Vec<Process>,
    /// The ranks side by side; `null` if there are fewer than two.
    pub(crate) ranks: Option<Ranks>,
    /// What the processes share with each other; `null` if nothing.
    pub(crate) shared: Option<SharedObjects>,
    /// Files `*.cutape` that are not readable traces.
    pub(crate) unusable: Vec<Unusable>,
}

/// One trace.
#[derive(Debug, Serialize)]
pub(crate) struct Process {
    /// The file's name.
    pub(crate) trace: String,
    pub(crate) program: Option<String>,
    #[serde(flatten)]
    pub(crate) process: ProcessFacts,
    /// Nanoseconds since 1970.
    pub(crate) started_unix_ns: u64,
    /// From the start of the recording to the last recorded event.
    pub(crate) duration_ns: Option<u64>,
    pub(crate) calls: CallCounts,
    /// The names of the process's devices.
    pub(crate) gpus: Vec<String>,
    /// Damaged parts of the file.
    pub(crate) damages: u64,
    #[serde(flatten)]
    pub(crate) state: Completeness,
}

/// A file that is not a readable trace.
#[derive(Debug, Serialize)]
pub(crate) struct Unusable {
    pub(crate) trace: String,
    pub(crate) why: String,
}

impl Folder {
    /// Reads all calls of all files `*.cutape`.
    ///
    /// # Errors
    /// If the folder cannot be read or has no such file.
    pub(crate) fn of(path: &Path, align: Option<&str>) -> Result<Self, Failure> {
        let text = align.unwrap_or(ranks::COLLECTIVES);
        let wrong = |why| Failure::unusable(format!("--align: {why}"));
        CallSet::parse(text).map_err(wrong)?;
        let files = cutape_terminal::input::traces_of(path)?;
        let mut folder = Self {
            path: path.display().to_string(),
            traces: Vec::new(),
            ranks: None,
            shared: None,
            unusable: Vec::new(),
        };
        let mut ranked = Vec::new();
        let mut sharers = Vec::new();
        let mut unmatched = format!("no call of these traces matches `{}`", text.escape_debug());
        let mut progress = Progress::new("reading", Unit::Things("calls"), None);
        for file in &files {
            let name = file.file_name().unwrap_or(file.as_os_str());
            let trace = name.to_string_lossy().into_owned();
            match Trace::open_damaged(file) {
                Ok(open) => {
                    say_what_is_missing(&open);
                    // A trace without such ranges or functions has no such calls.
                    let set = CallSet::parse(text).and_then(|set| set.resolve(&open));
                    if let Err(why) = &set {
                        unmatched = format!("{}: {why}", trace);
                    }
                    let mut builder = set.as_ref().ok().map(|set| RankBuilder::new(set, &open));
                    let mut exchanges = ExchangeBuilder::default();
                    let collectors = (builder.as_mut(), &mut exchanges);
                    let process = Process::of(trace, &open, collectors, &mut progress);
                    sharers.push(Sharer {
                        trace: process.trace.clone(),
                        rank: process.rank(),
                        clock: ClockStart::of(&open),
                        exchanges: exchanges.finish(),
                    });
                    let found = builder.map(|builder| builder.finish(&open));
                    let found = found.unwrap_or_default();
                    ranked.push((process.rank(), process.calls.total, found));
                    folder.traces.push(process);
                }
                Err(error) => folder.unusable.push(Unusable {
                    trace,
                    why: error.to_string(),
                }),
            }
        }
        if align.is_some() && ranked.iter().all(|(_, _, found)| found.is_empty()) {
            return Err(wrong(unmatched));
        }
        sharers.sort_by(|a, b| {
            let key = |sharer: &Sharer| sharer.rank.unwrap_or(u64::MAX);
            key(a).cmp(&key(b)).then_with(|| a.trace.cmp(&b.trace))
        });
        folder.shared = SharedObjects::of(sharers);
        folder.ranks = Ranks::of(&ranks::by_rank(ranked));
        folder.traces.sort_by(|a, b| {
            let key = |process: &Process| {
                let rank = process.rank().unwrap_or(u64::MAX);
                (rank, process.started_unix_ns)
            };
            key(a).cmp(&key(b)).then_with(|| a.trace.cmp(&b.trace))
        });
        Ok(folder)
    }

    /// Writes a table with a line per trace, at most `columns` wide if its texts can be cut.
    pub(crate) fn write(&self, columns: usize, out: &mut dyn Write) -> io::Result<()> {
        let known = |number: Option<u64>| number.map_or_else(String::new, |n| n.to_string());
        let rows = self.traces.iter().map(|process| {
            vec![
                process.trace.clone(),
                file_name(process.program.as_deref()),
                gpus(&process.gpus),
                super::end(&process.process),
                known(process.rank()),
                process.process.process.to_string(),
                known(process.process.parent.map(u64::from)),
                grouped(process.calls.total),
                grouped(process.calls.failed),
                time_or_unknown(process.duration_ns),
            ]
        });
        let header = [
            "trace", "program", "GPU", "ended", "rank", "process", "parent", "calls", "failed",
            "duration",
        ];
        writeln!(
            out,
            "{}: {}",
            output::printable(&self.path),
            count(self.traces.len() as u64, "trace")
        )?;
        if !self.traces.is_empty() {
            writeln!(out)?;
            for line in table(&header, rows.collect(), |place| place < 4, columns) {
                writeln!(out, " {line}")?;
            }
        }
        if let Some(ranks) = &self.ranks {
            ranks::write(ranks, columns, out)?;
        }
        if let Some(shared) = &self.shared {
            shared.write(columns, out)?;
        }
        for process in self.traces.iter().filter(|process| process.damages > 0) {
            let name = output::printable(&process.trace);
            writeln!(
                out,
                "\n{name}: damaged; `cutape repair` keeps the readable part"
            )?;
        }
        for file in &self.unusable {
            writeln!(out, "\n{}", output::printable(&file.why))?;
        }
        Ok(())
    }
}

impl Process {
    /// The rank, or the one on its machine.
    fn rank(&self) -> Option<u64> {
        self.process.rank.or(self.process.local_rank)
    }

    fn of(
        name: String,
        trace: &Trace,
        (mut builder, exchanges): (Option<&mut RankBuilder<'_>>, &mut ExchangeBuilder),
        progress: &mut Progress,
    ) -> Self {
        let mut calls = CallCounts::default();
        let mut last = trace.head().start_ticks;
        let walked = trace.walk().run(|call| {
            progress.step();
            if let Some(builder) = &mut builder {
                builder.add(call);
            }
            exchanges.observe(call);
            last = last.max(call.leave.map_or(call.ticks, |leave| leave.ticks));
            calls.total += 1;
            calls.in_flight += u64::from(call.leave.is_none());
            // Only a CUresult tells whether a call failed.
            let failed = call.signature.returns == "CUresult"
                && call.result().is_some_and(|result| result != 0);
            calls.failed += u64::from(failed);
            Ok::<_, cutape_format::Error>(())
        });
        let gpus = (0..)
            .map_while(|place: usize| trace.meta_value(&format!("device.{place}.name")))
            .map(str::to_owned)
            .collect();
        Self {
            trace: name,
            program: trace.meta_value("program").map(str::to_owned),
            process: ProcessFacts::of(trace),
            started_unix_ns: trace.head().start_unix,
            duration_ns: TraceClock::of(trace).since_start(last),
            calls,
            gpus,
            state: Completeness::of(trace),
            damages: trace.damage().len() as u64 + u64::from(walked.is_err()),
        }
    }
}

/// The program's name without its folder.
fn file_name(path: Option<&str>) -> String {
    let name = path.map(|path| path.rsplit('/').next().unwrap_or(path));
    name.unwrap_or("unknown").to_owned()
}

/// `2 x NVIDIA H200, NVIDIA T4`.
fn gpus(names: &[String]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    let words: Vec<String> = counts
        .into_iter()
        .map(|(name, count)| match count {
            1 => name.to_owned(),
            _ => format!("{count} x {name}"),
        })
        .collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_names() {
        for (path, expected) in [
            (Some("/a/b"), "b"),
            (Some("b"), "b"),
            (Some("/a/"), ""),
            (None, "unknown"),
        ] {
            assert_eq!(file_name(path), expected);
        }
    }

    #[test]
    fn names_of_gpus() {
        for (names, expected) in [(&[][..], ""), (&["A"], "A"), (&["B", "A", "B"], "A, 2 x B")] {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            assert_eq!(gpus(&names), expected);
        }
    }
}
