//! Reading device memory when nothing runs: what snapshots and launches that are looked at share.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use cutape_format::layout::{MemoryNote, memory_snapshot, note_kind};

use super::gate::Gate;
use super::live::Live;
use super::pieces::{Held, LONGEST, Piece};
use crate::own_memory;
use crate::recorder::Recorder;
use crate::work::Outcome;

/// Between two looks at whether work is complete.
const LOOK: Duration = Duration::from_micros(200);
/// CUDA_ERROR_NOT_READY.
const NOT_READY: i32 = 600;
/// Memory that device memory is copied to, a part at a time: a multiple of what is a piece.
const STAGING: u64 = 16 * LONGEST as u64;

/// Why memory was not read: a state of [`memory_snapshot`] and a `CUresult`.
pub(super) type Failed = (u8, i32);

/// The memory of a process.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) gate: Gate,
    live: Mutex<Live>,
    /// Where memory is copied to, of `STAGING` bytes.
    staging: OnceLock<Option<u64>>,
}

impl Memory {
    /// Which memory there is.
    pub(super) fn live(&self) -> MutexGuard<'_, Live> {
        lock(&self.live)
    }

    /// Where memory is copied to. `context` is one that exists.
    pub(super) fn staging(&self, recorder: &dyn Recorder, context: u64) -> Option<u64> {
        let staging = (*self.staging.get_or_init(|| own_memory::map(STAGING)))?;
        // Page-locked memory is copied to at full speed; without, it is still copied to. It stays so:
        // cuMemHostUnregister waits for the context, whose work may wait for this thread.
        if self.live().staging_of.is_none() {
            recorder.in_context(context, || {
                if recorder.register(staging, STAGING).is_ok() {
                    self.live().staging_of = Some(context);
                }
            });
        }
        Some(staging)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the work of these contexts is complete, but at most for so many nanoseconds.
pub(super) fn wait_for_all_work(
    recorder: &dyn Recorder,
    contexts: &[u64],
    limit: u64,
) -> Result<(), Failed> {
    let mut events = Vec::with_capacity(contexts.len());
    let mut outcome: Outcome = Ok(());
    for &context in contexts {
        recorder.in_context(context, || {
            let recorded = recorder.create_event().and_then(|event| {
                events.push((context, event));
                recorder.record_context(event, context)
            });
            outcome = outcome.and(recorded);
        });
    }
    let end = recorder.nanoseconds().saturating_add(limit);
    let mut is_running = |&(context, event): &(u64, u64)| {
        let mut answer = Err(NOT_READY);
        recorder.in_context(context, || answer = recorder.ask_event(event));
        // What is wrong with the work, its own calls say.
        answer == Err(NOT_READY)
    };
    let mut has_ended = true;
    while outcome.is_ok() {
        has_ended = !events.iter().any(&mut is_running);
        if has_ended || recorder.nanoseconds() >= end {
            break;
        }
        std::thread::sleep(LOOK);
    }
    for (context, event) in events {
        recorder.in_context(context, || recorder.destroy_event(event));
    }
    match outcome {
        Err(result) => Err((memory_snapshot::REFUSED, result)),
        Ok(()) if has_ended => Ok(()),
        Ok(()) => Err((memory_snapshot::RUNNING, 0)),
    }
}

/// Reads a range of memory through `staging`, a part at a time. Returns how many bytes could be read.
pub(super) fn read_range(
    recorder: &dyn Recorder,
    (start, length): (u64, u64),
    (staging, stream): (u64, u64),
    take: &mut dyn FnMut(u64, &[u8]),
) -> u64 {
    let mut at = 0;
    while at < length {
        let part = STAGING.min(length - at);
        let copied = recorder.copy_now(staging, start + at, part, stream);
        if copied.is_err() {
            break;
        }
        // SAFETY: the mapping has `STAGING` bytes and is never unmapped; the copy is complete, and
        // no other thread copies while the gate is closed.
        let bytes = unsafe { core::slice::from_raw_parts(staging as *const u8, part as usize) };
        take(at, bytes);
        at += part;
    }
    at.min(length)
}

/// Notes what a piece of the range that begins at `start` holds.
pub(super) fn note_piece(recorder: &dyn Recorder, start: u64, piece: &Piece<'_>) {
    let memory = MemoryNote {
        address: start + piece.at,
        length: piece.length,
        fill: match piece.held {
            Held::Word(word) => word,
            Held::Bytes(_) => 0,
        },
        ..MemoryNote::default()
    };
    match piece.held {
        Held::Word(_) => recorder.note(note_kind::MEMORY, &mut |record| record.put_encoded(memory)),
        Held::Bytes(bytes) => recorder.note_bytes(
            note_kind::MEMORY,
            &mut |record| record.put_encoded(memory),
            bytes,
        ),
    }
}
