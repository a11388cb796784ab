//! Functions of the program that a stream calls, in a recording for `play` (`record --cassette`).
//!
//! When the driver calls one, the work before it is complete, and the program learns that without a
//! call: it may use what a copy has brought, and have the memory written again. So the driver gets a
//! function of ours, which notes what copies have brought and when the program's function ran, and
//! calls that. The threads of the driver make no calls: the next call of the program takes the notes.
//!
//! What is captured stays as it is, because the program can ask a graph for it.

use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};

use cutape_format::layout::{HostFunctionNote, note_kind};
use cutape_order::{Moment, StreamKey};

use crate::async_readback::{self, Held};
use crate::host_memory;
use crate::hot::clock;
use crate::hot::frame::Frame;
use crate::hot::recording;
use crate::hot::thread::{self, Thread};
use crate::process::errno::Errno;
use crate::process::process_lock::ProcessLock;
use crate::queries::is_capturing;
use crate::state::followed_work;

/// A function that the driver is to call.
struct Enqueued {
    /// The program's function, and the last argument that it gets.
    function: u64,
    data: u64,
    /// The call that has enqueued it.
    thread: u32,
    number: u64,
    stream: StreamKey,
    entered: Moment,
}

/// What the next call notes.
enum News {
    Held(Held),
    Ran(HostFunctionNote),
}

static NEWS: ProcessLock<Vec<News>> = ProcessLock::new();
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// In a forked child: the parent's functions do not run here.
pub(crate) fn forget() {
    COUNT.store(0, Ordering::Relaxed);
    NEWS.forget();
}

/// How the driver calls the program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// With the data.
    Function,
    /// With the stream, its status and the data.
    Callback,
}

/// Before a call of `cuLaunchHostFunc` or `cuStreamAddCallback`.
pub(crate) fn enqueue(thread: &Thread, frame: &mut Frame, form: Form) {
    let _errno = Errno::keep();
    let of_driver = frame.description();
    let [stream, function, data, ..] = frame.words;
    // The driver refuses NULL.
    if function == 0 || !host_memory::records_for_play() || is_capturing(of_driver, stream) {
        return;
    }
    let enqueued = Enqueued {
        function,
        data,
        thread: thread.ordinal.get(),
        number: thread.calls.get().wrapping_sub(1),
        stream: followed_work::key(thread, of_driver, stream).0,
        entered: frame.start,
    };
    let ours = match form {
        Form::Function => run_function as *const c_void,
        Form::Callback => run_callback as *const c_void,
    };
    // Freed when it runs. It leaks if it never does: a call that reports an earlier error may have
    // enqueued it nevertheless.
    let enqueued = Box::into_raw(Box::new(enqueued));
    let [_, function, data, ..] = &mut frame.words;
    (*function, *data) = (ours as u64, enqueued as u64);
}

/// In the place of a function of `cuLaunchHostFunc`.
extern "C" fn run_function(enqueued: *mut Enqueued) {
    // SAFETY: made by `enqueue`, and the driver calls this once for each.
    let enqueued = unsafe { Box::from_raw(enqueued) };
    // SAFETY: by the prototype of `cuLaunchHostFunc`, the program has given such a function.
    let function: extern "C" fn(u64) = unsafe { core::mem::transmute(enqueued.function) };
    run(&enqueued, || function(enqueued.data));
}

/// In the place of a function of `cuStreamAddCallback`.
extern "C" fn run_callback(stream: u64, status: u32, enqueued: *mut Enqueued) {
    // SAFETY: as in `run_function`.
    let enqueued = unsafe { Box::from_raw(enqueued) };
    // SAFETY: by the prototype of `cuStreamAddCallback`, the program has given such a function.
    let function: extern "C" fn(u64, u32, u64) = unsafe { core::mem::transmute(enqueued.function) };
    run(&enqueued, || function(stream, status, enqueued.data));
}

fn run(enqueued: &Enqueued, function: impl FnOnce()) {
    let begun = clock::ticks();
    add(|news| {
        let held = async_readback::hold(enqueued.stream, enqueued.entered);
        news.extend(held.into_iter().map(News::Held));
    });
    function();
    let note = HostFunctionNote {
        thread: enqueued.thread,
        number: enqueued.number,
        begun,
        ended: clock::ticks(),
    };
    add(|news| news.push(News::Ran(note)));
}

/// Adds news on a thread of the driver, or inside a call of the program.
fn add(to: impl FnOnce(&mut Vec<News>)) {
    if !recording::is_recording() {
        return;
    }
    // SAFETY: the state lives as long as its thread, which is this one.
    unsafe { &*thread::current() }.aside(|| {
        let _errno = Errno::keep();
        let mut news = NEWS.lock();
        to(&mut news);
        COUNT.store(news.len(), Ordering::Release);
    });
}

/// Before each call: notes what has run since the last one of any thread.
pub(crate) fn note_news(thread: &Thread) {
    if COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    // Until the notes are written, as `async_readback::complete` does.
    let mut news = NEWS.lock();
    for one in news.drain(..) {
        match one {
            News::Held(held) => held.note(thread),
            News::Ran(note) => {
                thread.note(note_kind::HOST_FUNCTION, |draft| draft.put_encoded(note));
            }
        }
    }
    COUNT.store(0, Ordering::Release);
}
