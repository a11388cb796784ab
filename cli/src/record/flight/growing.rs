//! A trace that is being recorded and of which the last calls are kept.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use cutape_cut::window::Window;
use cutape_format::{Call, LiveControl, Marker, Trace};
use cutape_registry::result_name;
use cutape_render::quantity;
use cutape_terminal::clock;

use super::keep_on::KeepOn;
use super::keeps::{Keeps, Reason};

/// A part of what is kept that may be there in addition before it is erased.
const SLACK: u32 = 4;
/// The shortest time between two looks at whether there are calls.
const LOOK: Duration = Duration::from_secs(1);
/// The longest time in which the same thing that happens again is not kept again.
const AGAIN: Duration = Duration::from_secs(60);

/// A trace that is being recorded.
#[derive(Debug)]
pub(super) struct GrowingTrace {
    control: LiveControl,
    /// It may have snapshots of memory.
    has_snapshots: bool,
    /// Calls before these ticks have been looked at.
    seen: u64,
    /// Where chunks begin that were written after each of the last two times that something was
    /// erased.
    reuse_from: [u64; 2],
    erased: Instant,
    /// Calls before these ticks may have been erased.
    pub(super) erased_to: u64,
    /// How long that took.
    took: Duration,
    /// The bytes of the file then.
    length: u64,
    /// How often the program made calls faster than they could be looked at, so that recording was
    /// paused for that.
    pub(super) pauses: u64,
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
    pub(super) fn open(path: &Path) -> Option<Self> {
        let trace = Trace::follow(path).ok()?;
        let control = LiveControl::open(&trace).ok()?;
        control.serve_keeps(0);
        let now = Instant::now();
        Some(Self {
            control,
            has_snapshots: trace.may_have_memory_snapshots(),
            seen: 0,
            reuse_from: [0; 2],
            erased: now,
            erased_to: 0,
            took: Duration::ZERO,
            length: 0,
            pauses: 0,
            opened: now,
            activity: (0, now),
            is_stalled: false,
            kept: BTreeMap::new(),
            has_failed: false,
        })
    }

    /// Keeps what is to be kept, and erases what is older.
    ///
    /// # Errors
    /// Why nothing can be erased, once.
    pub(super) fn look(&mut self, path: &Path, keeps: &mut Keeps) -> Result<(), String> {
        let asked = self.control.keeps_asked();
        if asked > self.control.kept() {
            keeps.keep(path, &Reason::asked(), self.erased_to);
            self.control.serve_keeps(asked);
        }
        let length = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let grown = length.saturating_sub(self.length);
        let (time, bytes) = (keeps.limits.time, keeps.limits.bytes);
        let is_due = self.erased.elapsed() >= time / SLACK || grown >= bytes / u64::from(SLACK);
        let may_stall =
            stall(keeps).is_some_and(|(_, time)| self.opened.elapsed() >= LOOK.max(time / SLACK));
        if !is_due && !may_stall {
            return Ok(());
        }
        let began = Instant::now();
        self.opened = began;
        // A snapshot of memory may be longer than what is kept, and follows every pause.
        let has_grown = grown > bytes && !self.has_snapshots;
        let is_behind = has_grown || self.took > time / 2;
        let is_paused = is_due && is_behind && self.control.pause(clock::ticks());
        let done = self.erase(path, keeps, is_due);
        if is_paused {
            self.control.resume(clock::ticks());
            self.pauses += 1;
        }
        if is_due {
            self.reuse_from = [self.reuse_from[1], self.control.end_reuse()];
            (self.erased, self.length, self.took) = (began, length, began.elapsed());
        }
        let is_first = done.is_err() && !std::mem::replace(&mut self.has_failed, true);
        done.or_else(|why| if is_first { Err(why) } else { Ok(()) })
    }

    /// Keeps the trace if something has happened, and erases what is no longer kept if that
    /// `is_due`.
    fn erase(&mut self, path: &Path, keeps: &mut Keeps, is_due: bool) -> Result<(), String> {
        let Ok(trace) = Trace::open_damaged(path) else {
            return Ok(());
        };
        if trace.writer().is_none() || !trace.damage().is_empty() {
            return Ok(());
        }
        if let Some(reason) = self.stalled(&trace, keeps) {
            self.keep(path, keeps, &reason);
        }
        if !is_due {
            return Ok(());
        }
        let from = keeps.limits.window_start(&trace, u64::MAX, self.erased_to);
        let from = from.map_err(|error| error.to_string())?;
        let seen = self.seen;
        let mut reasons = Vec::new();
        let mut each = |call: &Call<'_>| {
            if call.ticks > seen {
                reasons.extend(error(&keeps.keep_on, call));
                self.seen = self.seen.max(call.ticks);
            }
        };
        let window = Window::of(&trace, from, &mut each).map_err(|error| error.to_string())?;
        reasons.extend(marks(&keeps.keep_on, &trace, seen, self.seen));
        for reason in &reasons {
            self.keep(path, keeps, reason);
        }
        self.erased_to = self.erased_to.max(from);
        let erased = window.erase_others(&trace, self.reuse_from[0]);
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

    /// Keeps for a reason, unless that was done a short time ago.
    fn keep(&mut self, path: &Path, keeps: &mut Keeps, reason: &Reason) {
        let again = keeps.limits.time.min(AGAIN);
        let last = reason.option.and_then(|option| self.kept.get(&option));
        if last.is_none_or(|last| last.elapsed() >= again) {
            keeps.keep(path, reason, self.erased_to);
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

/// After which time without a call something is kept, and the option's place.
fn stall(keeps: &Keeps) -> Option<(usize, Duration)> {
    let mut options = keeps.keep_on.iter().enumerate();
    options.find_map(|(option, on)| match on {
        KeepOn::Stall(time) => Some((option, *time)),
        _ => None,
    })
}

/// Why a call is a reason to keep.
fn error(keep_on: &[KeepOn], call: &Call<'_>) -> Option<Reason> {
    let result = call.result().filter(|&result| result != 0)?;
    let option = keep_on.iter().position(|on| on.is_error(result))?;
    let name = result_name(result).map_or_else(|| result.to_string(), str::to_owned);
    Some(Reason {
        option: Some(option),
        text: format!("{} returned {name}", call.signature.name),
        ticks: call.ticks,
    })
}

/// The marks between these ticks that are a reason to keep.
fn marks(keep_on: &[KeepOn], trace: &Trace, seen: u64, last: u64) -> Vec<Reason> {
    if !keep_on.iter().any(|on| matches!(on, KeepOn::Mark(_))) {
        return Vec::new();
    }
    let marks = trace.markers().into_iter();
    let new = marks.filter(|mark| mark.ticks > seen && mark.ticks <= last);
    let reason = |mark: Marker| {
        let option = keep_on.iter().position(|on| on.is_mark(&mark.text))?;
        Some(Reason {
            option: Some(option),
            text: format!("the mark {}", mark.text),
            ticks: mark.ticks,
        })
    };
    new.filter_map(reason).collect()
}
