//! `record --keep-last`: a recording of any length of which the last calls are there.
//!
//! The recorder writes as always. From outside, chunks of the file are erased that are older than
//! what is to be kept, unless they have a call that later ones may need, so that the rest replays
//! at any time. When something happens, the rest is written to a trace of its own.

mod growing;
mod keep_on;
mod keeps;
mod limit;
mod live_checks;
mod totals;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cutape_cut::window::Window;
use cutape_format::Trace;
use cutape_recording::{Outcome, Session, UserSignal};
use cutape_render::quantity::{self, parse_bytes};
use cutape_terminal::failure::Failure;
use cutape_terminal::message;
use cutape_terminal::output;

use self::growing::{GrowingTrace, identity};
use self::keep_on::KeepOn;
use self::keeps::{Keeps, Reason, meta};
use self::limit::{Limit, Limits};
use self::totals::Totals;

/// Between two looks at how long the traces are.
const POLL: Duration = Duration::from_millis(50);
/// Between two looks at which traces there are.
const LIST: Duration = Duration::from_secs(1);

/// What `record --keep-last` takes.
#[derive(Debug, clap::Args)]
pub(super) struct FlightOptions {
    /// Record for as long as the program runs, but keep only the last calls:
    /// for a time (60s, 5min), or as many bytes of the trace (1GiB), or both with
    /// a comma between: what is reached first counts.
    ///
    /// What earlier calls created is kept as long as it lives, so that the rest
    /// replays; what memory held only with --memory.
    #[arg(
        long,
        value_name = "TIME|SIZE",
        conflicts_with_all = ["max_size", "no_pack"],
        value_delimiter = ',',
        verbatim_doc_comment
    )]
    keep_last: Vec<Limit>,
    /// When to write what is kept to a trace of its own (FILE.keepN.cutape) while
    /// the program goes on: crash, error (one that all later calls return),
    /// error:NAME, finding (a warning or an error of `check`, which reads along),
    /// finding:error, finding:RULE, mark, mark:TEXT, signal:NAME (USR1, USR2, HUP,
    /// RTMIN+N to cutape, which the program does not get then; signal is USR2),
    /// stall:TIME (no call for so long). At its end, FILE has the last calls.
    #[arg(
        long,
        value_name = "WHAT",
        value_delimiter = ',',
        default_value = "crash,error",
        requires = "keep_last",
        verbatim_doc_comment
    )]
    keep_on: Vec<KeepOn>,
    /// The most bytes that such traces may take in 24 hours; what would be more
    /// is not kept, and counted.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "10GiB",
        value_parser = parse_bytes,
        requires = "keep_last",
        verbatim_doc_comment
    )]
    keep_budget: u64,
    /// Of one launch in N, keep what its parameters point into, and digests of
    /// that after the launch, which a replay compares. Calls of other threads
    /// that change memory wait meanwhile.
    #[arg(long, value_name = "1/N", value_parser = one_in, requires = "keep_last", verbatim_doc_comment)]
    deep: Option<u64>,
}

fn one_in(text: &str) -> Result<u64, String> {
    let every = text.strip_prefix("1/").and_then(|every| every.parse().ok());
    let every = every.filter(|every| (1..=1 << 40).contains(every));
    every.ok_or_else(|| format!("{text} is not a part such as 1/1000"))
}

impl FlightOptions {
    /// Whether only the last calls are wanted.
    pub(super) fn is_wanted(&self) -> bool {
        !self.keep_last.is_empty()
    }

    /// One launch in how many is looked at closely.
    pub(super) fn deep(&self) -> Option<u64> {
        self.deep
    }

    /// How often memory is to be read with `--memory`.
    pub(super) fn snapshot_interval(&self) -> Option<(Duration, u64)> {
        let limits = Limits::new(&self.keep_last);
        self.is_wanted().then(|| limits.snapshot_interval())
    }
}

/// Keeps the last calls of the traces of a program.
pub(super) struct FlightRecorder {
    files: BTreeMap<PathBuf, GrowingTrace>,
    /// Those whose process has ended.
    ended: BTreeMap<PathBuf, Totals>,
    keeps: Keeps,
}

impl FlightRecorder {
    pub(super) fn new(options: &FlightOptions) -> Self {
        Self {
            files: BTreeMap::new(),
            ended: BTreeMap::new(),
            keeps: Keeps::new(
                Limits::new(&options.keep_last),
                options.keep_on.clone(),
                options.keep_budget,
            ),
        }
    }

    /// The signals at which is kept, which the program does not get from now on: each with its option,
    /// and when one came that has had its effect.
    fn signals(&self) -> Vec<(usize, UserSignal, u64)> {
        let options = self.keeps.keep_on.iter().enumerate();
        let signals = options.filter_map(|(option, on)| match on {
            KeepOn::Signal(signal) => Some((option, *signal, 0)),
            _ => None,
        });
        signals.inspect(|(_, signal, _)| signal.take()).collect()
    }

    /// Keeps and erases until the program has ended.
    pub(super) fn follow(&mut self, session: &Session) {
        let mut paths = Vec::new();
        let mut listed: Option<Instant> = None;
        let mut signals = self.signals();
        while !session.has_ended() {
            std::thread::sleep(POLL);
            if listed.is_none_or(|listed| listed.elapsed() >= LIST) {
                paths = session.traces();
                // Before the first call there is none.
                listed = (!paths.is_empty()).then(Instant::now);
            }
            self.keeps.limits.ticks_per_second = session.ticks_per_second();
            for (option, signal, seen) in &mut signals {
                if std::mem::replace(seen, signal.last()) != *seen {
                    self.keep_all(&Reason {
                        option: Some(*option),
                        text: signal.to_string(),
                        ticks: *seen,
                    });
                }
            }
            for path in &paths {
                self.look(path);
            }
            self.keep_for_findings();
        }
        self.keeps.end_checks();
    }

    /// Keeps the traces with new findings.
    fn keep_for_findings(&mut self) {
        for found in self.keeps.new_findings() {
            let mut options = self.keeps.keep_on.iter();
            let option = options.position(|on| on.is_finding(found.rule, found.severity));
            if let (Some(_), Some(file)) = (option, self.files.get_mut(&found.path)) {
                let reason = Reason {
                    option,
                    text: found.text,
                    ticks: found.ticks,
                };
                file.keep(&found.path, &mut self.keeps, &reason);
            }
        }
    }

    /// Keeps all traces for a reason.
    fn keep_all(&mut self, reason: &Reason) {
        for (path, file) in &mut self.files {
            file.keep(path, &mut self.keeps, reason);
        }
    }

    /// Looks at a trace once.
    fn look(&mut self, path: &Path) {
        if self.ended.contains_key(path) {
            return;
        }
        if !self.files.contains_key(path)
            && let Some(file) = GrowingTrace::open(path, self.keeps.limits.bytes)
        {
            file.offer(path, &self.keeps);
            self.files.insert(path.to_owned(), file);
        }
        let Some(file) = self.files.get_mut(path) else {
            return;
        };
        match file.look(path, &mut self.keeps) {
            Ok(true) => {}
            Ok(false) => {
                self.keeps.end_check(path);
                self.ended.insert(path.to_owned(), file.totals());
                self.files.remove(path);
            }
            Err(why) => {
                let path = output::shown(path);
                message!("{path}: it cannot be kept short: {why}");
            }
        }
    }

    /// After the end of the program: leaves the last calls in each trace.
    pub(super) fn finish(&mut self, outcome: &Outcome) -> Result<(), Failure> {
        let growing = std::mem::take(&mut self.files).into_iter();
        self.ended
            .extend(growing.map(|(path, file)| (path, file.totals())));
        let totals = self.ended.values();
        for path in &outcome.traces {
            let Ok(trace) = Trace::open(path) else {
                continue;
            };
            let file = identity(path);
            let own = totals.clone().find(|totals| totals.file == file);
            let held = own.map(|own| own.held.clone()).unwrap_or_default();
            let start = self.keeps.limits.window_start(&trace, u64::MAX, held.until);
            let window = Window::of(&trace, start, &held, &|_| false);
            let meta = meta(&window, &format!("the program {}", outcome.describe()));
            window
                .write(&trace, path, &meta)
                .map_err(|error| Failure::cannot_write(path, &error))?;
        }
        let pauses: u64 = totals.clone().map(|totals| totals.pauses).sum();
        if pauses > 0 {
            message!(
                "--keep-last: the program made calls faster than they could be looked at; recording \
                 was paused {}, `info` shows what is missing",
                quantity::count(pauses, "time")
            );
        }
        let waited: u64 = totals.map(|totals| totals.waited).sum();
        if waited > 0 {
            message!(
                "--keep-last: calls of the program waited for {} in all, so that the trace stayed \
                 short",
                quantity::time(waited.saturating_mul(1_000_000))
            );
        }
        if self.keeps.not_kept > 0 {
            message!(
                "--keep-budget: {} not kept",
                quantity::count(self.keeps.not_kept, "trace")
            );
        }
        Ok(())
    }
}
