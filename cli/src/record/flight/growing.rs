//! A trace that is being recorded and of which the last calls are kept.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cutape_cut::window::{Held, Window};
use cutape_format::{FailedCall, LiveControl, Trace};
use cutape_registry::result_name;
use cutape_render::quantity;
use cutape_terminal::clock;

use super::keep_on::KeepOn;
use super::keeps::{Keeps, Reason, has_thread};
use super::totals::Totals;

/// What can be erased is looked for whenever such a part of what is kept has been added.
const SLACK: u32 = 4;
/// The shortest time between two looks at whether there are calls.
const LOOK: Duration = Duration::from_secs(1);
/// Calls wait for that long at most, after which nobody may be erasing any more.
const WAIT: Duration = Duration::from_secs(60);
/// The longest time in which the same thing that happens again is not kept again.
const AGAIN: Duration = Duration::from_secs(60);

/// A trace that is being recorded.
#[derive(Debug)]
pub(super) struct GrowingTrace {
    control: LiveControl,
    /// Device and number of the file, whatever its name.
    file: Option<(u64, u64)>,
    /// It may have snapshots of memory.
    has_snapshots: bool,
    /// By thread: when the last call returned that was looked at, in ticks.
    seen: HashMap<u32, u64>,
    /// When the last mark was made that was looked at, in ticks.
    seen_mark: u64,
    /// When the recorder was told to name no blobs any more that begin before a place: in ticks,
    /// and the place.
    reuse_ended: VecDeque<(u64, u64)>,
    /// What is left of the calls before the last window.
    held: Arc<Held>,
    /// When the last look at what can be erased began, how long it took, and the bytes of the file
    /// when it began.
    erased: Instant,
    took: Duration,
    length: u64,
    /// How often the program made calls faster than they could be looked at, so that recording was
    /// paused for that.
    pauses: u64,
    /// When the trace was last opened.
    opened: Instant,
    /// When the last call was entered, in ticks, and since when that is so.
    activity: (u64, Instant),
    /// It was kept for that.
    is_stalled: bool,
    /// When it was kept for each option.
    kept: BTreeMap<usize, Instant>,
    /// Why nothing can be erased, which has been told.
    has_failed: bool,
}

impl GrowingTrace {
    /// `None` if its tables are not there yet.
    pub(super) fn open(path: &Path, bytes: u64) -> Option<Self> {
        let trace = Trace::follow(path).ok()?;
        let control = LiveControl::open(&trace).ok()?;
        control.serve_keeps(0);
        let now = Instant::now();
        let file = Self {
            control,
            file: identity(path),
            has_snapshots: trace.may_have_memory_snapshots(),
            seen: HashMap::new(),
            seen_mark: 0,
            reuse_ended: VecDeque::new(),
            erased: now,
            held: Arc::default(),
            took: Duration::ZERO,
            length: 0,
            pauses: 0,
            opened: now,
            activity: (0, now),
            is_stalled: false,
            kept: BTreeMap::new(),
            has_failed: false,
        };
        file.bound(0, bytes);
        Some(file)
    }

    /// Tells the live check, if there is one, what is left of the calls before the last window.
    pub(super) fn offer(&self, path: &Path, keeps: &Keeps) {
        if let Some(checks) = &keeps.checks {
            checks.set_held(path, &self.held);
        }
    }

    /// Keeps what is to be kept, and erases what is older. False if its process has ended.
    ///
    /// # Errors
    /// Why nothing can be erased, once.
    pub(super) fn look(&mut self, path: &Path, keeps: &mut Keeps) -> Result<bool, String> {
        let asked = self.control.keeps_asked();
        if asked > self.control.kept() {
            keeps.keep(path, &Reason::asked(), &self.held);
            self.control.serve_keeps(asked);
        }
        let length = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let grown = length.saturating_sub(self.length);
        let (time, bytes) = (keeps.limits.time, keeps.limits.bytes);
        let is_due = self.erased.elapsed() >= time / SLACK || grown >= bytes / u64::from(SLACK);
        let may_stall =
            stall(keeps).is_some_and(|(_, time)| self.opened.elapsed() >= LOOK.max(time / SLACK));
        if !is_due && !may_stall {
            return Ok(true);
        }
        let began = Instant::now();
        self.opened = began;
        if is_due {
            self.bound(length, bytes);
            self.end_reuse();
        }
        let is_behind = is_due && self.took > time / 2;
        let is_paused = is_behind && self.control.pause(clock::ticks());
        let done = self.erase(path, keeps, is_due);
        let now = clock::ticks();
        let was_paused = self.control.resume_after_bound(now);
        if is_paused {
            self.control.resume(now);
        }
        self.pauses += u64::from(is_paused || was_paused);
        if is_due {
            self.end_reuse();
            (self.erased, self.length, self.took) = (began, length, began.elapsed());
        }
        let is_first = done.is_err() && !std::mem::replace(&mut self.has_failed, true);
        done.or_else(|why| if is_first { Err(why) } else { Ok(true) })
    }

    /// Keeps the trace if something has happened, and erases what is no longer kept if that
    /// `is_due`. False if its process has ended.
    fn erase(&mut self, path: &Path, keeps: &mut Keeps, is_due: bool) -> Result<bool, String> {
        let Ok(trace) = Trace::open_damaged(path) else {
            return Ok(true);
        };
        if trace.writer().is_none() {
            return Ok(false);
        }
        if !trace.damage().is_empty() {
            return Ok(true);
        }
        if let Some(reason) = self.stalled(&trace, keeps) {
            self.keep(path, keeps, &reason);
        }
        if !is_due {
            return Ok(true);
        }
        for reason in &self.reasons(&trace, &keeps.keep_on) {
            self.keep(path, keeps, reason);
        }
        let from = keeps.limits.window_start(&trace, u64::MAX, self.held.until);
        let window = Window::of(&trace, from, &self.held, &|thread| {
            has_thread(&trace, thread)
        });
        self.held = Arc::new(window.held());
        // Before anything is erased that a check may be reading.
        self.offer(path, keeps);
        let erased = window.erase_others(&trace, self.blobs_before(from));
        let erased = erased.map_err(|error| match error.kind() {
            io::ErrorKind::Unsupported => {
                "its file system cannot give back parts of a file; write the trace to another one"
                    .to_owned()
            }
            _ => error.to_string(),
        })?;
        tracing::debug!(
            "{}: {} earlier calls; erased {} bytes, {} in all",
            path.display(),
            window.earlier(),
            erased.bytes,
            erased.total
        );
        Ok(true)
    }

    /// The file may grow by a part of what is kept until this is called again: then recording is
    /// paused, and then what must be recorded waits.
    fn bound(&self, length: u64, bytes: u64) {
        // A snapshot of memory may be longer than what is kept, and follows every pause.
        if bytes != u64::MAX && !self.has_snapshots {
            let part = bytes / u64::from(SLACK);
            let [pause, wait] = [1, 2].map(|parts| length.saturating_add(parts * part));
            self.control.bound(pause, wait, WAIT);
        }
    }

    /// What is to be known of it at the end.
    pub(super) fn totals(&self) -> Totals {
        Totals {
            file: self.file,
            held: self.held.clone(),
            pauses: self.pauses,
            waited: self.control.waited(),
        }
    }

    /// Tells the recorder to name no blobs any more that are in the file now.
    fn end_reuse(&mut self) {
        let end = self.control.end_reuse();
        self.reuse_ended.push_back((clock::ticks(), end));
    }

    /// Where blobs begin that calls which were entered at these ticks or later may name.
    fn blobs_before(&mut self, from: u64) -> u64 {
        // A call may have looked for a blob just before the recorder was told, so the next time
        // that it was told counts.
        let told = |ended: &VecDeque<(u64, u64)>, place| {
            let told = ended.get(place).map(|&(told, _)| told);
            told.is_some_and(|told| told <= from)
        };
        while told(&self.reuse_ended, 2) {
            self.reuse_ended.pop_front();
        }
        let first = self.reuse_ended.front().map_or(0, |&(_, end)| end);
        if told(&self.reuse_ended, 1) { first } else { 0 }
    }

    /// Why the trace is to be kept, of what happened since the last time.
    fn reasons(&mut self, trace: &Trace, keep_on: &[KeepOn]) -> Vec<Reason> {
        let mut reasons = Vec::new();
        trace.each_failed(&mut self.seen, &mut |call| {
            reasons.extend(error(keep_on, trace, &call));
        });
        let seen = self.seen_mark;
        for mark in trace.markers().into_iter().filter(|mark| mark.ticks > seen) {
            self.seen_mark = self.seen_mark.max(mark.ticks);
            let option = keep_on.iter().position(|on| on.is_mark(&mark.text));
            reasons.extend(option.map(|option| Reason {
                option: Some(option),
                text: format!("the mark {}", mark.text),
                ticks: mark.ticks,
            }));
        }
        reasons
    }

    /// Keeps for a reason, unless that was done a short time ago.
    pub(super) fn keep(&mut self, path: &Path, keeps: &mut Keeps, reason: &Reason) {
        let again = keeps.limits.time.min(AGAIN);
        let last = reason.option.and_then(|option| self.kept.get(&option));
        if last.is_none_or(|last| last.elapsed() >= again) {
            keeps.keep(path, reason, &self.held);
            let now = reason.option.map(|option| (option, Instant::now()));
            self.kept.extend(now);
        }
    }

    /// Why a program that makes no calls is a reason to keep.
    fn stalled(&mut self, trace: &Trace, keeps: &Keeps) -> Option<Reason> {
        let activity = trace.last_entered().unwrap_or(0);
        if activity != self.activity.0 {
            self.activity = (activity, Instant::now());
            self.is_stalled = false;
        }
        let since = self.activity.1.elapsed();
        let (option, time) = stall(keeps)?;
        if since < time || std::mem::replace(&mut self.is_stalled, true) {
            return None;
        }
        let since = quantity::time(since.as_nanos() as u64);
        Some(Reason {
            option: Some(option),
            text: format!("no call for {since}"),
            ticks: clock::ticks(),
        })
    }
}

/// Device and number of a file.
pub(super) fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// After which time without a call something is kept, and the option's place.
fn stall(keeps: &Keeps) -> Option<(usize, Duration)> {
    let mut options = keeps.keep_on.iter().enumerate();
    options.find_map(|(option, on)| match on {
        KeepOn::Stall(time) => Some((option, *time)),
        _ => None,
    })
}

/// Why a call that failed is a reason to keep.
fn error(keep_on: &[KeepOn], trace: &Trace, call: &FailedCall) -> Option<Reason> {
    let option = keep_on.iter().position(|on| on.is_error(call.result))?;
    let name = result_name(call.result).map_or_else(|| call.result.to_string(), str::to_owned);
    let function = &trace.signature(call.function).name;
    Some(Reason {
        option: Some(option),
        text: format!("{function} returned {name}"),
        ticks: call.entered,
    })
}
