//! Functions of the program that run in stream order, on a thread of the driver as on the real one.

use std::cell::Cell;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

use cutape_driver::types::CUresult;

use crate::call::answer::{Answer, OUT_OF_MEMORY, SUCCESS};
use crate::object::work::HostFunction;
use crate::state::Locked;

struct Job {
    function: HostFunction,
    done: Sender<()>,
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread runs a host function or a destructor.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// Runs a function on the driver's thread and waits for it; the state must not be locked.
pub(crate) fn run(function: HostFunction) -> Answer {
    static WORKER: OnceLock<Mutex<Option<Sender<Job>>>> = OnceLock::new();
    let worker = WORKER.get_or_init(|| {
        let (sender, jobs) = channel();
        let thread = std::thread::Builder::new().name("cutape-null".to_owned());
        Mutex::new(thread.spawn(move || work(&jobs)).ok().map(|_| sender))
    });
    let worker = worker
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    let (done, finished) = channel();
    let job = Job { function, done };
    let sent = worker.ok_or(OUT_OF_MEMORY)?.send(job);
    sent.map_err(|_| OUT_OF_MEMORY)?;
    finished.recv().map_err(|_| OUT_OF_MEMORY)
}

/// Unlocks the state and runs the destructors of ended user objects, in the calling thread (measured:
/// driver 580.159.04, H200, 2026-11-26; the manual says that an internal thread does).
pub(crate) fn run_destructors(state: Locked) -> Answer {
    let is_nested = INSIDE.replace(true);
    let answer = run_destructors_by(state, |function| {
        call(function);
        Ok(())
    });
    INSIDE.set(is_nested);
    answer
}

/// The same on the driver's thread, which runs those that an executable graph held that was launched
/// (measured, as above).
pub(crate) fn run_destructors_later(state: Locked) -> Answer {
    run_destructors_by(state, run)
}

fn run_destructors_by(mut state: Locked, run: fn(HostFunction) -> Answer) -> Answer {
    let destructors = std::mem::take(&mut state.destructors);
    drop(state);
    for (entry, data) in destructors {
        // A destructor has no result.
        let _ = run(HostFunction::Function { entry, data });
    }
    Ok(())
}

fn call(function: HostFunction) {
    // SAFETY: by the C prototypes the program gives addresses of functions with exactly these
    // signatures.
    unsafe {
        match function {
            HostFunction::Function { entry, data } => {
                let function: extern "C" fn(u64) = std::mem::transmute(entry as *const ());
                function(data);
            }
            HostFunction::Callback {
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
}

fn work(jobs: &Receiver<Job>) {
    INSIDE.set(true);
    for job in jobs {
        call(job.function);
        // The enqueuing thread waits for this, unless it has ended.
        let _ = job.done.send(());
    }
}
