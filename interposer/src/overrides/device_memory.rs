//! What the state of device memory is told of calls, and what it asks the recorder for.

use core::sync::atomic::Ordering;

use cutape_device_memory::{Call, DeviceMemory, Put, Recorder};
use cutape_format::layout::field;
use cutape_registry::Family;

use super::launch;
use crate::device_memory;
use crate::hot::frame::Frame;
use crate::hot::plan::Plan;
use crate::hot::thread::Thread;
use crate::hot::{clock, recording};
use crate::process::errno::Errno;
use crate::process::memory::{self, Scratch};
use crate::state::{captures, contexts};
use crate::{driver, host_memory, queries, snapshot};

/// Before a call is recorded or left out: waits until no snapshot of memory is being taken.
pub(crate) fn arrive(thread: &Thread, frame: &Frame, plan: &Plan) {
    if let Some(state) = device_memory::of_snapshots(plan) {
        let _errno = Errno::keep();
        state.arrive(&AtCall { thread, frame }, plan.steps);
    }
}

/// Before the driver is called.
#[cold]
pub(super) fn pre_call(thread: &Thread, frame: &Frame, plan: &Plan) {
    let result = None;
    tell(thread, frame, result, |state, call| {
        state.pre_call(call, plan.steps);
    });
}

/// After the driver has returned.
#[cold]
pub(super) fn post_call(thread: &Thread, frame: &Frame, plan: &Plan) {
    tell(thread, frame, Some(frame.result as i32), |state, call| {
        state.post_call(call, plan.steps);
    });
}

fn tell(
    thread: &Thread,
    frame: &Frame,
    result: Option<i32>,
    tell: impl FnOnce(&DeviceMemory, &Call<'_>),
) {
    if let Some(state) = device_memory::get() {
        let call = Call {
            recorder: &AtCall { thread, frame },
            function: frame.description(),
            words: &frame.words,
            start: frame.start,
            has_succeeded: result == Some(0),
            result,
            thread: thread.ordinal.get(),
            number: thread.calls.get().wrapping_sub(1),
        };
        tell(state, &call);
    }
}

/// The recorder at a call in progress.
struct AtCall<'a> {
    thread: &'a Thread,
    frame: &'a Frame,
}

impl Recorder for AtCall<'_> {
    unsafe fn call(&self, function: u16, arguments: [u64; 4]) -> Option<i32> {
        // SAFETY: as the caller says.
        unsafe { driver::call(function, arguments) }
    }

    unsafe fn launch(&self, arguments: [u64; 11]) -> Option<i32> {
        // SAFETY: as the caller says.
        unsafe { driver::launch(arguments) }
    }

    fn context(&self) -> u64 {
        queries::current_context()
    }

    fn device(&self) -> Option<u64> {
        queries::current_device()
    }

    fn primary(&self, device: u64) -> Option<u64> {
        contexts::primary(device)
    }

    fn ended_primary(&self, device: u64) -> Option<u64> {
        contexts::ended_primary(device)
    }

    fn is_capturing(&self, stream: u64) -> bool {
        queries::is_capturing(self.frame.description(), stream)
    }

    fn thread_key(&self) -> u64 {
        device_memory::key(self.thread)
    }

    fn is_any_captured(&self) -> bool {
        captures::any()
    }

    fn pauses(&self) -> Option<u32> {
        let pausing = recording::pausing();
        (!pausing.is_paused()).then(|| pausing.pauses())
    }

    fn trace_length(&self) -> u64 {
        recording::control().end.load(Ordering::Relaxed)
    }

    fn nanoseconds(&self) -> u64 {
        clock::nanoseconds(libc::CLOCK_MONOTONIC)
    }

    fn ticks(&self) -> u64 {
        clock::ticks()
    }

    fn word(&self, address: u64) -> Option<u64> {
        memory::word(address)
    }

    fn read(&self, address: u64, length: usize, take: &mut dyn FnMut(&[u8])) {
        // Not from the program's allocator.
        if let Some(mut scratch) = Scratch::new(length) {
            let bytes = scratch.bytes().get_mut(..length).unwrap_or_default();
            let read = memory::read(address, bytes);
            take(bytes.get(..read).unwrap_or_default());
        }
    }

    fn kernel_words(&self) -> Option<Vec<u64>> {
        match self.frame.description().family {
            Family::Launch(op) => launch::words_of_kernels(self.frame, op),
            _ => None,
        }
    }

    fn take_host_changes(&self) -> Vec<u64> {
        host_memory::take_news(self.thread)
    }

    fn note(&self, kind: u16, put: Put<'_>) {
        self.thread.note(kind, |draft| put(&mut draft.record));
    }

    fn note_bytes(&self, kind: u16, put: Put<'_>, bytes: &[u8]) {
        self.thread.note(kind, |draft| {
            put(&mut draft.record)?;
            snapshot::own(draft, 0, field::POINTEE, bytes)
        });
    }

    fn run_at_exit(&self) {
        device_memory::run_at_exit();
    }
}
