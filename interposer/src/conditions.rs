//! Conditions that start a recording which begins paused, and that pause it after some work:
//! `record --start-at` and `--for`. Calls are looked at only as long as such a condition waits: those
//! of a paused recording, and those of one that is to be paused, which then take the slow path.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::ffi::CString;

use cutape_registry::{Family, GraphOp, RecordedLength, StartCondition, glob, id};

use crate::driver;
use crate::hot::frame::Frame;
use crate::hot::plan::Plan;
use crate::hot::{clock, recording};
use crate::process::memory;
use crate::process::settings::Settings;

/// A longer name of a kernel is not compared.
const LONGEST_NAME: usize = 1 << 16;

/// The condition to start, which waits while `STARTS` is set. NULL if there is none.
static START: AtomicPtr<StartCondition<'static>> = AtomicPtr::new(core::ptr::null_mut());
static STARTS: AtomicBool = AtomicBool::new(false);
/// Calls so far of the function that the condition names.
static SEEN: AtomicU64 = AtomicU64::new(0);

/// How much is recorded; it counts while `ENDS` is set. NULL if there is no limit.
static LENGTH: AtomicPtr<RecordedLength> = AtomicPtr::new(core::ptr::null_mut());
static ENDS: AtomicBool = AtomicBool::new(false);
/// What was recorded so far; of a time, the moment at which it ends, in nanoseconds, or 0.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Takes the conditions over, before the first call. True if recording begins paused.
pub(crate) fn configure(settings: &Settings) -> bool {
    // Leaked on purpose: calls read it until the process ends.
    let text = settings.start_at.clone();
    let text: Option<&'static CString> = text.map(|text| &*Box::leak(Box::new(text)));
    let start = text.and_then(|text| StartCondition::parse(text.to_str().ok()?));
    if let Some(start) = start {
        START.store(Box::into_raw(Box::new(start)), Ordering::Release);
    }
    SEEN.store(0, Ordering::Relaxed);
    STARTS.store(start.is_some(), Ordering::Release);
    if let Some(length) = settings.record_for {
        LENGTH.store(Box::into_raw(Box::new(length)), Ordering::Release);
    }
    COUNT.store(0, Ordering::Relaxed);
    ENDS.store(settings.record_for.is_some(), Ordering::Release);
    // A condition that cannot be read starts nothing.
    settings.starts_paused || settings.start_at.is_some()
}

/// In a forked child.
pub(crate) fn forget() {
    STARTS.store(false, Ordering::Relaxed);
    ENDS.store(false, Ordering::Relaxed);
}

/// Whether calls must be looked at while recording is paused.
pub(crate) fn wait_for_start() -> bool {
    STARTS.load(Ordering::Relaxed)
}

/// Whether calls must be counted while they are recorded.
pub(crate) fn count_calls() -> bool {
    ENDS.load(Ordering::Relaxed)
}

/// Before a call that does not take the fast path: starts or pauses recording if a condition holds.
pub(crate) fn before(frame: &Frame, plan: &Plan) {
    if STARTS.load(Ordering::Acquire) && recording::pausing().is_paused() && starts(frame, plan) {
        start();
    }
    if ENDS.load(Ordering::Acquire) && !recording::pausing().is_paused() && ends(plan) {
        end();
    }
}

/// The program has put a mark there or begun a range.
pub(crate) fn marked(text: &[u8]) {
    if STARTS.load(Ordering::Acquire)
        && let Some(StartCondition::Mark(expected)) = condition()
        && expected.as_bytes() == text
    {
        start();
    }
}

fn condition() -> Option<&'static StartCondition<'static>> {
    // SAFETY: NULL, or leaked by `configure`.
    unsafe { START.load(Ordering::Acquire).as_ref() }
}

#[cold]
fn start() {
    if STARTS.swap(false, Ordering::AcqRel) {
        recording::control().resume(clock::ticks());
    }
}

#[cold]
fn end() {
    if ENDS.swap(false, Ordering::AcqRel) {
        recording::control().pause(clock::ticks());
    }
}

/// Whether the condition to start holds before a call.
fn starts(frame: &Frame, plan: &Plan) -> bool {
    let Some(condition) = condition() else {
        return false;
    };
    match *condition {
        StartCondition::Mark(_) => false,
        StartCondition::Call { function, number } => {
            let called = frame.description();
            let is_meant = called.name == function || called.base == function;
            is_meant && SEEN.fetch_add(1, Ordering::Relaxed) + 1 >= number
        }
        StartCondition::Kernel(pattern) => {
            let Family::Launch(op) = plan.family else {
                return false;
            };
            // The function is in a register, which the entry has put in its place.
            let handle = op.function().map_or(0, |at| frame.word(at));
            handle != 0 && has_name(handle, pattern)
        }
    }
}

/// Whether the name of a function or kernel matches. Drivers before 12.3 do not say.
fn has_name(handle: u64, pattern: &str) -> bool {
    let names = [id::cuFuncGetName, id::cuKernelGetName].into_iter();
    let mut texts = names.filter_map(|query| {
        // SAFETY: it writes a pointer. The program is about to give the driver that handle.
        let text = unsafe { driver::ask::<u64>(query, |place| [place, handle, 0, 0]) };
        text.filter(|&text| text != 0)
    });
    let Some(text) = texts.next() else {
        return false;
    };
    let Some(length) = memory::string_length(text, LONGEST_NAME) else {
        return false;
    };
    // SAFETY: the driver's own string, of that length as was just checked.
    let name = unsafe { core::slice::from_raw_parts(text as *const u8, length) };
    let name = name.strip_suffix(&[0]).unwrap_or(name);
    core::str::from_utf8(name).is_ok_and(|name| glob::matches(pattern, name))
}

/// Counts a call that is to be recorded; whether what is recorded ends before it.
fn ends(plan: &Plan) -> bool {
    // SAFETY: NULL, or leaked by `configure`.
    let Some(length) = (unsafe { LENGTH.load(Ordering::Acquire).as_ref() }) else {
        return false;
    };
    match *length {
        RecordedLength::Calls(most) => COUNT.fetch_add(1, Ordering::Relaxed) >= most,
        RecordedLength::Launches(most) => {
            let is_launch = matches!(
                plan.family,
                Family::Launch(_) | Family::Graph(GraphOp::Launch)
            );
            is_launch && COUNT.fetch_add(1, Ordering::Relaxed) >= most
        }
        RecordedLength::Milliseconds(time) => {
            let now = clock::nanoseconds(libc::CLOCK_MONOTONIC);
            let end = now.saturating_add(time.saturating_mul(1_000_000));
            let known = COUNT.compare_exchange(0, end, Ordering::AcqRel, Ordering::Acquire);
            known.is_err_and(|end| now >= end)
        }
    }
}
