//! Markers: ranges and moments that the program names, through NVTX or our own functions.
//!
//! All threads write them to the same chunks, so that a marker may come from a thread that never
//! calls the driver, or from within a call. Recording a call has nothing to do with them. What
//! comes before the first call, when there is no trace yet, is kept in memory; a process that never
//! calls the driver leaves no trace.

mod exports;
mod names;
mod nvtx;
mod text;

use core::sync::atomic::{AtomicBool, Ordering};

use cutape_format::layout::{MarkerNote, RECORD_HEAD_LENGTH, chunk_kind, marker_action, note_kind};
use cutape_registry::RecorderSetting;

use crate::conditions;
use crate::file::identity;
use crate::file::shared_chunk::SharedChunk;
use crate::hot::recording::{self, NOT_STARTED, STARTING, STATE};
use crate::hot::{clock, thread};
use crate::process::env;
use crate::process::errno::Errno;
use crate::process::process_lock::ProcessLock;

/// Markers that are kept until there is a trace.
const MOST_EARLY: usize = 10_000;

static CHUNK: SharedChunk = SharedChunk::new(chunk_kind::MARKERS, 64 << 10);
/// The trace exists, and has the early markers.
static IS_OPEN: AtomicBool = AtomicBool::new(false);
static EARLY: ProcessLock<Early> = ProcessLock::new();

/// Markers from before the trace.
#[derive(Default)]
struct Early {
    markers: Vec<(MarkerNote, Vec<u8>)>,
    lost: u64,
    /// Whether this process is to be recorded; `None` before it is asked.
    is_wanted: Option<bool>,
}

/// Writes a marker of the calling thread; of `note` the clock, the thread and the lengths are set
/// here.
fn put(note: MarkerNote, domain: &[u8], text: &[u8]) {
    let state = STATE.load(Ordering::Relaxed);
    if !recording::records(state) && state != NOT_STARTED && state != STARTING {
        return;
    }
    let ticks = clock::ticks();
    // SAFETY: the state lives as long as its thread, which is this one.
    let thread = unsafe { &*thread::current() };
    thread.aside(|| {
        let domain = domain.get(..u16::MAX.into()).unwrap_or(domain);
        let note = MarkerNote {
            ticks,
            thread: thread.ordinal.get(),
            number: thread.number(),
            domain_length: domain.len() as u16,
            text_length: text.len() as u32,
            ..note
        };
        if IS_OPEN.load(Ordering::Acquire) {
            write(note, domain, text);
        } else {
            keep(note, domain, text);
        }
    });
}

/// Writes a marker to the trace. If the trace cannot grow, the next call says so. The marker may be
/// what the recording waits for.
fn write(note: MarkerNote, domain: &[u8], text: &[u8]) {
    if matches!(
        note.action,
        marker_action::MARK | marker_action::PUSH | marker_action::START
    ) {
        conditions::marked(text);
    }
    let length = RECORD_HEAD_LENGTH + MarkerNote::LENGTH + domain.len() + text.len();
    CHUNK.put(note_kind::MARKER, length, |record| {
        record.put_encoded(note)?;
        record.put(domain)?;
        record.put(text)
    });
}

/// Keeps a marker until there is a trace.
#[cold]
fn keep(note: MarkerNote, domain: &[u8], text: &[u8]) {
    let _errno = Errno::keep();
    let mut early = EARLY.lock();
    if IS_OPEN.load(Ordering::Acquire) {
        drop(early);
        return write(note, domain, text);
    }
    let is_wanted =
        || env::variable(RecorderSetting::Trace.c_name()).is_some() && !env::is_privileged();
    if !*early.is_wanted.get_or_insert_with(is_wanted) {
        return;
    }
    let is_kept = early.markers.len() < MOST_EARLY;
    match is_kept || early.make_room() {
        true => early.markers.push((note, [domain, text].concat())),
        false => early.lost += 1,
    }
}

impl Early {
    /// Forgets the marks and the ranges that have ended, which no call can be in. False if there
    /// are none.
    fn make_room(&mut self) -> bool {
        let before = self.markers.len();
        let mut open: Vec<usize> = Vec::new();
        for (at, (note, names)) in self.markers.iter().enumerate() {
            let domain = |names: &[u8], note: &MarkerNote| {
                names.get(..note.domain_length.into()).map(<[u8]>::to_vec)
            };
            let begins = |begin: &usize| {
                self.markers.get(*begin).is_some_and(|(other, theirs)| {
                    let same_stack = (other.number, other.source) == (note.number, note.source)
                        && domain(theirs, other) == domain(names, note);
                    match note.action {
                        marker_action::POP => other.action == marker_action::PUSH && same_stack,
                        _ => other.action == marker_action::START && other.id == note.id,
                    }
                })
            };
            match note.action {
                marker_action::PUSH | marker_action::START => open.push(at),
                marker_action::POP | marker_action::END => {
                    if let Some(place) = open.iter().rposition(begins) {
                        open.remove(place);
                    }
                }
                _ => {}
            }
        }
        let mut at = 0;
        self.markers.retain(|_| {
            at += 1;
            open.binary_search(&(at - 1)).is_ok()
        });
        self.lost += (before - self.markers.len()) as u64;
        self.markers.len() < MOST_EARLY
    }
}

/// The trace exists: writes what was kept.
pub(crate) fn begin(clock: u32) {
    let mut early = EARLY.lock();
    for (note, names) in core::mem::take(&mut early.markers) {
        let (domain, text) = names
            .split_at_checked(note.domain_length.into())
            .unwrap_or_default();
        // The clock was not chosen yet: a shared counter begins with the trace.
        let ticks = match clock {
            clock::PROCESSOR => note.ticks,
            _ => 0,
        };
        write(MarkerNote { ticks, ..note }, domain, text);
    }
    if early.lost > 0 {
        identity::write_lost_markers(core::mem::take(&mut early.lost));
    }
    IS_OPEN.store(true, Ordering::Release);
}

/// In a forked child: its ranges begin anew.
pub(crate) fn forget() {
    IS_OPEN.store(false, Ordering::Relaxed);
    CHUNK.forget();
    EARLY.forget();
    names::forget();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_ranges_are_kept() {
        let note = |action, number, id, domain: &[u8]| MarkerNote {
            action,
            number,
            id,
            domain_length: domain.len() as u16,
            ..MarkerNote::default()
        };
        use marker_action::{END, MARK, POP, PUSH, START};
        let markers = [
            (note(PUSH, 1, 0, b""), &b"train"[..]),
            (note(MARK, 1, 0, b""), b"begin"),
            (note(PUSH, 1, 0, b""), b"over"),
            (note(PUSH, 2, 0, b""), b"open"),
            (note(PUSH, 1, 0, b"d"), b"dopen"),
            (note(START, 1, 7, b""), b"over"),
            (note(START, 1, 8, b""), b"open"),
            (note(POP, 1, 0, b""), b""),
            (note(END, 2, 7, b""), b""),
            (note(POP, 3, 0, b""), b""),
        ];
        let mut early = Early {
            markers: markers.map(|(note, names)| (note, names.to_vec())).into(),
            ..Early::default()
        };
        assert!(early.make_room());
        let kept: Vec<_> = early.markers.iter().map(|(_, names)| &**names).collect();
        assert_eq!(kept, [&b"train"[..], b"open", b"dopen", b"open"]);
        assert_eq!(early.lost, 6);
    }
}
