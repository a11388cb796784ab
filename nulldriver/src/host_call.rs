//! Functions of the program that are enqueued on a stream. They run on a thread of the driver, as on the real one;
//! the enqueuing call returns when they have returned, because everything before them on the stream is done.

use std::cell::Cell;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

use cutape_driver::types::CUresult;

use crate::answer::{Answer, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS};
use crate::argument::Stream;
use crate::dispatch::{Entry, bind};
use crate::graph_work::Work;
use crate::state::lock;

pub(crate) const ENTRIES: &[Entry] = &[
    ("cuLaunchHostFunc", bind(launch)),
    ("cuStreamAddCallback", bind(add_callback)),
];

/// What to call, and with what.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// `CUhostFn`.
    Function { entry: u64, data: u64 },
    /// `CUstreamCallback`.
    Callback { entry: u64, stream: u64, data: u64 },
}

struct Job {
    target: Target,
    done: Sender<()>,
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is running a function that was enqueued.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

fn launch(stream: Stream, entry: u64, data: u64) -> Answer {
    let mut state = lock();
    state.stream_is_there(stream)?;
    if let Some(site) = state.capture_of(stream)? {
        if entry == 0 {
            return Err(INVALID_VALUE);
        }
        return state
            .add_captured(site, Work::Host { entry, data })
            .map(|_| ());
    }
    drop(state);
    run(Target::Function { entry, data }, entry)
}

fn add_callback(stream: Stream, entry: u64, data: u64, flags: u32) -> Answer {
    lock().check_stream(stream)?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    // The callback is given the handle as the driver knows it; the default stream is NULL.
    let given = if stream.0 <= crate::argument::PER_THREAD {
        0
    } else {
        stream.0
    };
    run(
        Target::Callback {
            entry,
            stream: given,
            data,
        },
        entry,
    )
}

/// Runs a function of one pointer on the driver's thread; the state must not be locked.
pub(crate) fn run_function(entry: u64, data: u64) -> Answer {
    run(Target::Function { entry, data }, entry)
}

/// Hands the job over and waits; the state must not be locked.
fn run(target: Target, entry: u64) -> Answer {
    static WORKER: OnceLock<Mutex<Option<Sender<Job>>>> = OnceLock::new();
    if entry == 0 {
        return Err(INVALID_VALUE);
    }
    let worker = WORKER.get_or_init(|| {
        let (sender, jobs) = channel();
        let thread = std::thread::Builder::new().name("cutape-null".to_owned());
        Mutex::new(thread.spawn(move || work(&jobs)).ok().map(|_| sender))
    });
    let sender = worker
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
        .ok_or(OUT_OF_MEMORY)?;
    let (done, finished) = channel();
    sender
        .send(Job { target, done })
        .map_err(|_| OUT_OF_MEMORY)?;
    finished.recv().map_err(|_| OUT_OF_MEMORY)
}

fn work(jobs: &Receiver<Job>) {
    INSIDE.set(true);
    for job in jobs {
        // SAFETY: by the C prototypes the program gives entry addresses of functions with exactly these signatures.
        unsafe {
            match job.target {
                Target::Function { entry, data } => {
                    let function: extern "C" fn(u64) = std::mem::transmute(entry as *const ());
                    function(data);
                }
                Target::Callback {
                    entry,
                    stream,
                    data,
                } => {
                    let function: extern "C" fn(u64, CUresult, u64) =
                        std::mem::transmute(entry as *const ());
                    function(stream, SUCCESS, data);
                }
            }
        }
        // The enqueuing thread waits; if it is gone, nobody needs to know.
        let _ = job.done.send(());
    }
}
