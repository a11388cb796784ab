//! `record --keep-last`: a recording of any length of which the last calls are there.
//!
//! The recorder writes as always. From outside, chunks of the file are erased that are older than
//! what is to be kept, unless they have a call that later ones may need, so that the rest replays
//! at any time. When something happens, the rest is written to a trace of its own.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cutape_cut::window::Window;
use cutape_format::{Call, LiveControl, Trace};
use cutape_recording::{Outcome, Session, TICKS_PER_SECOND, pack_in_place};
use cutape_registry::result_name;
use cutape_render::quantity::{self, parse_bytes};
use cutape_terminal::clock;
use cutape_terminal::failure::Failure;
use cutape_terminal::message;
use cutape_terminal::output;

use super::keep_on::{KeepOn, Limit};

/// Between two looks at whether the program has ended.
const POLL: Duration = Duration::from_millis(50);
/// Between two looks at what has happened.
const LOOK: Duration = Duration::from_secs(1);
/// A part of what is kept that may be there in addition before it is erased.
const SLACK: u32 = 4;
/// The longest time in which the same thing that happens again is not kept again.
const AGAIN: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What `record --keep-last` takes.
#[derive(Debug, clap::Args)]
pub(super) struct FlightOptions {
    /// Record for as long as the program runs, but keep only the last calls:
    /// for a time (60s, 5min), or as many bytes of the trace (1GiB), or both with
    /// a comma between: what is reached first counts.
    ///
    /// What earlier calls created is kept as long as it lives, so that the rest
    /// replays; not what memory held.
    #[arg(
        long,
        value_name = "TIME|SIZE",
        value_delimiter = ',',
        verbatim_doc_comment
    )]
    keep_last: Vec<Limit>,
    /// When to write what is kept to a trace of its own (FILE.keepN.cutape) while
    /// the program goes on: crash, error (one that all later calls return),
    /// error:NAME, mark, mark:TEXT, stall:TIME (no call for so long). At its end,
    /// FILE has the last calls.
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
}

impl FlightOptions {
    /// Whether only the last calls are wanted.
    pub(super) fn is_wanted(&self) -> bool {
        !self.keep_last.is_empty()
    }
}

/// Keeps the last calls of the traces of a program.
pub(super) struct FlightRecorder<'o> {
    options: &'o FlightOptions,
    files: BTreeMap<PathBuf, GrowingTrace>,
    /// When traces were written, and their bytes.
    kept: VecDeque<(Instant, u64)>,
    /// How often something happened and the budget was spent.
    not_kept: u64,
}

/// A trace that is being recorded.
#[derive(Debug)]
struct GrowingTrace {
    control: Option<LiveControl>,
    /// How long erasing took last.
    took: Duration,
    /// How often the program made calls faster than they could be looked at, so that recording was
    /// paused for that.
    pauses: u64,
    /// Calls before these ticks have been looked at.
    seen: u64,
    /// Where chunks begin that were written after each of the last two times that something was
    /// erased.
    reuse_from: [u64; 2],
    erased: Instant,
    /// The bytes of the file then.
    length: u64,
    /// When it was last opened.
    asked: Instant,
    /// When the last call was entered, in ticks, and since when that is so.
    activity: (u64, Instant),
    /// It was kept for that.
    is_stalled: bool,
    /// When it was kept for each reason.
    kept: BTreeMap<usize, Instant>,
    /// Why nothing can be erased, which has been told.
    failed: bool,
}

impl GrowingTrace {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            control: None,
            took: Duration::ZERO,
            pauses: 0,
            seen: 0,
            reuse_from: [0; 2],
            erased: now,
            length: 0,
            asked: now,
            activity: (0, now),
            is_stalled: false,
            kept: BTreeMap::new(),
            failed: false,
        }
    }
}

/// Why something is kept: the place of the option, and in words.
#[derive(Clone, Debug)]
struct Reason {
    option: Option<usize>,
    text: String,
    /// When it happened, in ticks.
    ticks: u64,
}

impl Reason {
    /// `cutape ctl keep`.
    fn asked() -> Self {
        Self {
            option: None,
            text: "asked for".to_owned(),
            ticks: clock::ticks(),
        }
    }
}

impl<'o> FlightRecorder<'o> {
    pub(super) fn new(options: &'o FlightOptions) -> Self {
        Self {
            options,
            files: BTreeMap::new(),
            kept: VecDeque::new(),
            not_kept: 0,
        }
    }

    /// Keeps and erases until the program has ended.
    pub(super) fn follow(&mut self, session: &Session) {
        let mut paths = Vec::new();
        let mut listed: Option<Instant> = None;
        while !session.has_ended() {
            std::thread::sleep(POLL);
            if listed.is_none_or(|listed| listed.elapsed() >= LOOK) {
                paths = session.traces();
                // Before the first call there is none.
                listed = (!paths.is_empty()).then(Instant::now);
            }
            for path in &paths {
                self.look(path, session.ticks_per_second());
            }
        }
    }

    fn shortest_time(&self) -> Duration {
        let times = self
            .options
            .keep_last
            .iter()
            .filter_map(|limit| match limit {
                Limit::Time(time) => Some(*time),
                Limit::Bytes(_) => None,
            });
        times.min().unwrap_or(Duration::MAX)
    }

    /// Looks at a trace once.
    fn look(&mut self, path: &Path, rate: Option<u64>) {
        let file = self.files.remove(path);
        let mut file = file.unwrap_or_else(GrowingTrace::new);
        if let Err(error) = self.look_at(path, &mut file, rate)
            && !std::mem::replace(&mut file.failed, true)
        {
            let path = output::shown(path);
            message!("{path}: it cannot be kept short: {error}");
        }
        self.files.insert(path.to_owned(), file);
    }

    fn look_at(
        &mut self,
        path: &Path,
        file: &mut GrowingTrace,
        rate: Option<u64>,
    ) -> Result<(), String> {
        if file.control.is_none() {
            // The file or its tables may not be there yet.
            let Ok(trace) = Trace::follow(path) else {
                return Ok(());
            };
            let control = LiveControl::open(&trace).map_err(|error| error.to_string())?;
            control.serve_keeps(0);
            file.control = Some(control);
        }
        let Some(control) = file.control.take() else {
            return Ok(());
        };
        let done = self.follow_one(path, file, &control, rate);
        file.control = Some(control);
        done
    }

    fn follow_one(
        &mut self,
        path: &Path,
        file: &mut GrowingTrace,
        control: &LiveControl,
        rate: Option<u64>,
    ) -> Result<(), String> {
        let asked = control.keeps_asked();
        if asked > control.kept() {
            self.keep(path, &Reason::asked(), rate);
            control.serve_keeps(asked);
        }
        let length = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let grown = length.saturating_sub(file.length);
        let is_due = file.erased.elapsed() >= self.shortest_time() / SLACK
            || grown >= self.fewest_bytes() / u64::from(SLACK);
        let may_stall = self
            .stall()
            .is_some_and(|(_, time)| file.asked.elapsed() >= LOOK.max(time / SLACK));
        if !is_due && !may_stall {
            return Ok(());
        }
        let began = Instant::now();
        file.asked = began;
        let is_behind = grown > self.fewest_bytes() || file.took > self.shortest_time() / 2;
        let is_paused = is_behind && control.pause(clock::ticks());
        let done = self.erase(path, file, is_due, rate);
        if is_paused {
            control.resume(clock::ticks());
            file.pauses += 1;
        }
        if is_due {
            file.reuse_from = [file.reuse_from[1], control.end_reuse()];
            (file.erased, file.length, file.took) = (began, length, began.elapsed());
        }
        done
    }

    /// Keeps a trace if something has happened, and erases what is no longer kept if that `is_due`.
    fn erase(
        &mut self,
        path: &Path,
        file: &mut GrowingTrace,
        is_due: bool,
        rate: Option<u64>,
    ) -> Result<(), String> {
        let Ok(trace) = Trace::open_damaged(path) else {
            return Ok(());
        };
        if trace.writer().is_none() || !trace.damage().is_empty() {
            return Ok(());
        }
        if let Some(reason) = self.stalled(&trace, file) {
            self.keep_once(path, file, &reason, rate);
        }
        if !is_due {
            return Ok(());
        }
        let from = self.start_in(&trace, rate);
        let mut reasons = Vec::new();
        let seen = file.seen;
        let mut last = seen;
        let mut each = |call: &Call<'_>| {
            if call.ticks > seen {
                reasons.extend(self.error(call));
                last = last.max(call.ticks);
            }
        };
        let window = Window::of(&trace, from, &mut each).map_err(|error| error.to_string())?;
        file.seen = last;
        reasons.extend(self.marks(&trace, seen, last));
        for reason in &reasons {
            self.keep_once(path, file, reason, rate);
        }
        let erased = window.erase_others(&trace, file.reuse_from[0]);
        let erased = erased.map_err(|error| match error.kind() {
            io::ErrorKind::Unsupported => {
                "its file system cannot give back parts of a file; write the trace to another one"
                    .to_owned()
            }
            _ => error.to_string(),
        })?;
        tracing::debug!(
            "{}: {} calls, {} earlier ones; erased {} bytes, {} in all",
            path.display(),
            window.chosen(),
            window.earlier(),
            erased.bytes,
            erased.total
        );
        Ok(())
    }

    fn fewest_bytes(&self) -> u64 {
        let sizes = self
            .options
            .keep_last
            .iter()
            .filter_map(|limit| match limit {
                Limit::Bytes(bytes) => Some(*bytes),
                Limit::Time(_) => None,
            });
        sizes.min().unwrap_or(u64::MAX)
    }

    /// Where what is kept begins.
    fn start_in(&self, trace: &Trace, rate: Option<u64>) -> u64 {
        let starts = self.options.keep_last.iter().map(|limit| match *limit {
            Limit::Bytes(bytes) => trace.ticks_of_last_bytes(bytes).unwrap_or(0),
            Limit::Time(time) => {
                let ticks = time.as_nanos() * u128::from(rate.unwrap_or(0)) / 1_000_000_000;
                let is_known = rate.is_some() && trace.head().clock == 0;
                let start = clock::ticks().saturating_sub(ticks as u64);
                if is_known { start } else { 0 }
            }
        });
        starts.max().unwrap_or(0)
    }

    /// Why a call is a reason to keep.
    fn error(&self, call: &Call<'_>) -> Option<Reason> {
        let result = call.result().filter(|&result| result != 0)?;
        let option = self
            .options
            .keep_on
            .iter()
            .position(|on| on.is_error(result))?;
        let name = result_name(result).map_or_else(|| result.to_string(), str::to_owned);
        Some(Reason {
            option: Some(option),
            text: format!("{} returned {name}", call.signature.name),
            ticks: call.ticks,
        })
    }

    /// The marks after some ticks that are a reason to keep.
    fn marks(&self, trace: &Trace, seen: u64, last: u64) -> Vec<Reason> {
        let wanted = self.options.keep_on.iter();
        if !wanted.clone().any(|on| matches!(on, KeepOn::Mark(_))) {
            return Vec::new();
        }
        let marks = trace.markers().into_iter();
        let new = marks.filter(|mark| mark.ticks > seen && mark.ticks <= last);
        let reason = |mark: cutape_format::Marker| {
            let option = wanted.clone().position(|on| on.is_mark(&mark.text))?;
            Some(Reason {
                option: Some(option),
                text: format!("the mark {}", mark.text),
                ticks: mark.ticks,
            })
        };
        new.filter_map(reason).collect()
    }

    /// After which time without a call something is kept.
    fn stall(&self) -> Option<(usize, Duration)> {
        let options = self.options.keep_on.iter().enumerate();
        let mut times = options.filter_map(|(option, on)| match on {
            KeepOn::Stall(time) => Some((option, *time)),
            _ => None,
        });
        times.next()
    }

    /// Why a program that makes no calls is a reason to keep.
    fn stalled(&self, trace: &Trace, file: &mut GrowingTrace) -> Option<Reason> {
        let activity = trace.moment().unwrap_or(0);
        if activity != file.activity.0 {
            file.activity = (activity, Instant::now());
            file.is_stalled = false;
        }
        let since = file.activity.1.elapsed();
        let (option, time) = self.stall()?;
        if since < time || std::mem::replace(&mut file.is_stalled, true) {
            return None;
        }
        Some(Reason {
            option: Some(option),
            text: format!("no call for {}", quantity::time(since.as_nanos() as u64)),
            ticks: clock::ticks(),
        })
    }

    /// Keeps for a reason, unless that was done while what is kept now was there.
    fn keep_once(
        &mut self,
        path: &Path,
        file: &mut GrowingTrace,
        reason: &Reason,
        rate: Option<u64>,
    ) {
        let again = self.shortest_time().min(AGAIN);
        let last = reason.option.and_then(|option| file.kept.get(&option));
        if last.is_none_or(|last| last.elapsed() >= again) {
            self.keep(path, reason, rate);
            file.kept
                .extend(reason.option.map(|option| (option, Instant::now())));
        }
    }

    /// Writes the last calls to a trace of their own.
    fn keep(&mut self, path: &Path, reason: &Reason, rate: Option<u64>) {
        while self
            .kept
            .front()
            .is_some_and(|(when, _)| when.elapsed() > DAY)
        {
            self.kept.pop_front();
        }
        let spent: u64 = self.kept.iter().map(|(_, bytes)| bytes).sum();
        if spent >= self.options.keep_budget {
            self.not_kept += 1;
            if self.not_kept == 1 {
                message!(
                    "{}: {}; nothing is kept any more: --keep-budget {} is spent",
                    output::shown(path),
                    reason.text,
                    quantity::bytes(self.options.keep_budget)
                );
            }
            return;
        }
        match self.write(path, reason, rate) {
            Ok((target, calls)) => {
                let bytes = std::fs::metadata(&target).map_or(0, |metadata| metadata.len());
                self.kept.push_back((Instant::now(), bytes));
                message!(
                    "{}: {}; kept the last {} in {}",
                    output::shown(path),
                    reason.text,
                    quantity::count(calls, "call"),
                    output::shown(&target)
                );
            }
            Err(why) => message!("{}: {}; {why}", output::shown(path), reason.text),
        }
    }

    fn write(
        &self,
        path: &Path,
        reason: &Reason,
        rate: Option<u64>,
    ) -> Result<(PathBuf, u64), String> {
        let trace = Trace::open_damaged(path).map_err(|error| error.to_string())?;
        let from = self.start_in(&trace, rate).min(reason.ticks);
        let window = Window::of(&trace, from, &mut |_| {}).map_err(|error| error.to_string())?;
        let target = free_name(path);
        let mut meta = self.meta(&window, &reason.text);
        window
            .write(&trace, &target, &meta)
            .map_err(|error| format!("{}: {error}", target.display()))?;
        meta.clear();
        meta.extend(rate.map(|rate| (TICKS_PER_SECOND.to_owned(), rate.to_string())));
        let written = Trace::open(&target).map_err(|error| error.to_string())?;
        pack_in_place(written, meta).map_err(|failure| failure.message)?;
        Ok((target, window.chosen()))
    }

    fn meta(&self, window: &Window, reason: &str) -> Vec<(String, String)> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        [
            ("kept.reason", reason.to_owned()),
            ("kept.time", now.as_secs().to_string()),
            ("kept.earlier-calls", window.earlier().to_string()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .to_vec()
    }

    /// After the end of the program: leaves the last calls in each trace.
    pub(super) fn finish(&mut self, outcome: &Outcome, rate: Option<u64>) -> Result<(), Failure> {
        for path in &outcome.traces {
            let Ok(trace) = Trace::open(path) else {
                continue;
            };
            let from = self.start_in(&trace, rate);
            let window = Window::of(&trace, from, &mut |_| {})?;
            let meta = self.meta(&window, &format!("the program {}", outcome.describe()));
            window
                .write(&trace, path, &meta)
                .map_err(|error| Failure::cannot_write(path, &error))?;
        }
        let pauses: u64 = self.files.values().map(|file| file.pauses).sum();
        if pauses > 0 {
            message!(
                "--keep-last: the program made calls faster than they could be looked at; recording \
                 was paused {}, `info` shows what is missing",
                quantity::count(pauses, "time")
            );
        }
        if self.not_kept > 0 {
            message!(
                "--keep-budget: {} not kept",
                quantity::count(self.not_kept, "trace")
            );
        }
        Ok(())
    }
}

/// `run.keep1.cutape`, or the next number that is free.
fn free_name(path: &Path) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_os_string();
    let named = |number: u64| {
        let mut name = stem.clone();
        name.push(format!(".keep{number}.cutape"));
        path.with_file_name(name)
    };
    let mut names = (1..).map(named);
    names
        .find(|path| std::fs::symlink_metadata(path).is_err())
        .unwrap_or_default()
}
