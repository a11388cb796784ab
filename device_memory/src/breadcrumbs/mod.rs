//! Words that show how far each stream is: `record --breadcrumbs`.
//!
//! Each stream has a word in page-locked memory of the recorder. After some of its launches, and
//! around work that may wait, the recorder lets the stream write the word: the values grow by 1, and
//! a note of the call says which it is. Whoever reads the word, in the process or from outside,
//! knows up to which call the stream's work is complete. The words stay readable when work hangs or
//! has failed.
//!
//! No lock is held while work is enqueued: a full stream blocks until it has room again, and other
//! threads may have to make that happen. [`Spacing`] keeps breadcrumbs from filling streams.

mod spacing;
mod table;

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cutape_format::layout::{BreadcrumbNote, breadcrumb, note_kind};
use cutape_registry::{STREAM_PER_THREAD, id, is_sticky};

use crate::own_memory;
use crate::recorder::{Call, RecordedCall, Recorder};
use crate::step::BreadcrumbStep;
use table::{PAGE, PAGES, StreamKey, Table, Word};

/// The breadcrumbs of a process.
#[derive(Debug)]
pub(crate) struct Breadcrumbs {
    /// Launches of a stream up to a breadcrumb.
    every: u32,
    table: Mutex<Table>,
    /// The words are in the trace, since work has failed.
    is_read: AtomicBool,
    is_exiting: AtomicBool,
}

impl Breadcrumbs {
    /// `None` if the system has no memory for the words. To be called before the first call of the
    /// driver.
    pub(crate) fn new(every: u32) -> Option<Self> {
        let start = own_memory::map(PAGE * PAGES)?;
        Some(Self {
            every,
            table: Mutex::new(Table::new(start)),
            is_read: AtomicBool::new(false),
            is_exiting: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Page-locks words for the streams of a context that is current, once.
    pub(crate) fn prepare(&self, recorder: &dyn Recorder, context: u64) {
        let page = self.lock().begin_context(context);
        let Some(page) = page else { return };
        match recorder.register(page, PAGE) {
            Ok(address) => self.lock().add_context(context, page, address),
            Err(refused) => note(
                recorder,
                (context, 0),
                0,
                refused as u32,
                breadcrumb::REFUSED,
            ),
        }
        recorder.run_at_exit();
    }

    pub(crate) fn context_ended(&self, context: u64) {
        self.lock().end_context(context);
    }

    /// Runs between the enter record and the driver.
    pub(crate) fn pre_call(&self, call: &Call<'_>, step: BreadcrumbStep) {
        match step {
            BreadcrumbStep::Surrounds | BreadcrumbStep::Precedes => {
                self.prepare(call.recorder, call.recorder.context());
                self.drop_at(call, breadcrumb::BEFORE);
            }
            BreadcrumbStep::DestroysStream => self.lock().end_stream(call.word(0)),
            BreadcrumbStep::Nothing
            | BreadcrumbStep::Prepares
            | BreadcrumbStep::Launches
            | BreadcrumbStep::Waits
            | BreadcrumbStep::Exits => {}
        }
    }

    /// Runs between the driver and the leave record, whatever the result.
    pub(crate) fn post_call(&self, call: &Call<'_>, step: BreadcrumbStep) {
        if call.result.is_some_and(is_sticky) {
            if !self.is_read.swap(true, Ordering::Relaxed) {
                self.note_words(call.recorder);
            }
            return;
        }
        match step {
            BreadcrumbStep::Exits if self.is_exiting.load(Ordering::Relaxed) => {
                self.note_words(call.recorder);
            }
            _ if !call.has_succeeded => {}
            // A primary context may come from a private table of the driver.
            BreadcrumbStep::Prepares => self.prepare(call.recorder, call.recorder.context()),
            BreadcrumbStep::Launches => {
                let Some(key) = stream_key(call) else { return };
                let is_due = self.lock().count_launch(key, self.every);
                match is_due {
                    Some(true) => self.drop_at(call, breadcrumb::AFTER),
                    Some(false) => {}
                    None => self.prepare(call.recorder, key.0),
                }
            }
            BreadcrumbStep::Surrounds => self.drop_at(call, breadcrumb::AFTER),
            _ => {}
        }
    }

    /// Lets the stream of a call write its word.
    fn drop_at(&self, call: &Call<'_>, kind: u8) {
        let recorder = call.recorder;
        let (Some(stream), Some(key)) = (call.stream(), stream_key(call)) else {
            return;
        };
        if recorder.is_capturing(stream) {
            return;
        }
        let taken = self.lock().take(key);
        let Some((word, value)) = taken else { return };
        match recorder.write_value(word.for_devices, value, stream) {
            Ok(()) => {
                self.lock().enqueued(key);
                note(recorder, (key.0, stream), word.address, value, kind);
            }
            Err(refused) => {
                self.lock().refuse(key);
                let kind = breadcrumb::REFUSED;
                note(
                    recorder,
                    (key.0, stream),
                    word.address,
                    refused as u32,
                    kind,
                );
            }
        }
    }

    /// Writes what all words hold into the trace.
    fn note_words(&self, recorder: &dyn Recorder) {
        let words: Vec<(StreamKey, Word)> = self.lock().words().collect();
        for ((context, stream), word) in words {
            let stream = (context, handle_of(stream));
            note(
                recorder,
                stream,
                word.address,
                word.read(),
                breadcrumb::READ,
            );
        }
    }

    /// When the process exits: if a stream has not written its last value, what it has written needs
    /// a place in the trace, at a call without effect.
    pub(crate) fn exit(&self, recorded: RecordedCall<'_>) {
        // A thread that still runs may have the lock.
        let is_behind = self
            .table
            .try_lock()
            .is_ok_and(|table| table.is_any_behind());
        if is_behind {
            self.is_exiting.store(true, Ordering::Relaxed);
            let mut version = 0_i32;
            recorded(id::cuDriverGetVersion, (&raw mut version) as u64);
            self.is_exiting.store(false, Ordering::Relaxed);
        }
    }
}

/// Bits of a key for the ordinal of the thread whose default stream it is.
const THREAD_SHIFT: u32 = 8;

/// What tells a call's stream from others; `None` if that cannot be read.
fn stream_key(call: &Call<'_>) -> Option<StreamKey> {
    let stream = match call.stream()? {
        STREAM_PER_THREAD => STREAM_PER_THREAD | u64::from(call.thread) << THREAD_SHIFT,
        stream => stream,
    };
    Some((call.recorder.context(), stream))
}

/// The handle of the stream of a key.
fn handle_of(stream: u64) -> u64 {
    let is_of_thread =
        stream & 0xff == STREAM_PER_THREAD && stream >> THREAD_SHIFT <= u32::MAX.into();
    if is_of_thread {
        STREAM_PER_THREAD
    } else {
        stream
    }
}

fn note(recorder: &dyn Recorder, (context, stream): StreamKey, address: u64, value: u32, kind: u8) {
    let note = BreadcrumbNote {
        context,
        stream,
        address,
        value,
        kind,
    };
    recorder.note(note_kind::BREADCRUMB, &mut |record| {
        record.put_encoded(note)
    });
}
