//! Starts and ends the recording: loads the driver, creates the trace, forgets both in a forked
//! child.

use core::sync::atomic::{AtomicBool, Ordering};

use cutape_registry::{MemoryContents, Stacks};

use crate::file::trace_file::Pauses;
use crate::file::{identity, kept_blobs, size_limit, trace_file};
use crate::hot::recording::{
    COUNTING, MEASURING, NOT_STARTED, PASSING, RECORDING, STARTING, STATE, WITH_STACKS, records,
    set_payload_policy,
};
use crate::hot::thread::{self, Thread};
use crate::hot::{clock, cost, plan, recording};
use crate::loaded::{data_files, maps, tensor_files};
use crate::process::settings::Settings;
use crate::process::{errno, log, regular_file};
use crate::state::{self, functions};
use crate::{
    async_readback, awaited_roles, conditions, device_memory, driver, driver_log, host_functions,
    host_memory, markers, overrides, stack,
};

/// Makes sure that the recording has started, if this process records; returns whether it does.
#[cold]
pub(crate) fn ensure_started(thread: &Thread) -> bool {
    loop {
        let state = STATE.load(Ordering::Acquire);
        match state {
            _ if records(state) => return true,
            PASSING => return false,
            NOT_STARTED => {
                let _errno = errno::Errno::keep();
                // Each of these threads loads the driver itself. If one waited for another, the two
                // could deadlock: the waiting thread may hold the loader's lock (as the constructor
                // of a library) that the other needs.
                let next = if thread.outside_calls(load) {
                    STARTING
                } else {
                    PASSING
                };
                let won =
                    STATE.compare_exchange(NOT_STARTED, next, Ordering::AcqRel, Ordering::Relaxed);
                if won.is_ok() && next == STARTING {
                    let state = thread.outside_calls(create_trace);
                    STATE.store(state, Ordering::Release);
                }
            }
            // Another thread creates the trace, which does not need the loader's lock for long.
            // SAFETY: no memory is involved.
            _ => unsafe {
                libc::sched_yield();
            },
        }
    }
}

/// Loads the driver before any call; returns whether there is one.
#[cfg(feature = "gum")]
pub(crate) fn load_early() -> bool {
    // SAFETY: the state lives as long as its thread, which is this one.
    unsafe { &*thread::current() }.outside_calls(load)
}

/// Loads the driver; returns whether there is one.
fn load() -> bool {
    watch_forks();
    log::begin();
    let loaded = driver::is_loaded() || driver::load(Settings::read().driver.as_deref());
    if !loaded {
        log::line(&[b"no CUDA driver found; every CUDA call returns CUDA_ERROR_NOT_SUPPORTED"]);
    }
    loaded
}

/// Creates the trace. Returns the state of the recording from now on.
fn create_trace() -> u8 {
    let settings = Settings::read();
    let Some(trace) = &settings.trace else {
        return PASSING;
    };
    let device_memory = device_memory::configure(
        settings.digests,
        settings.outputs_of_exchanges,
        settings.breadcrumbs,
        (settings.memory == MemoryContents::All).then_some(settings.memory_interval),
        settings.deep,
    );
    awaited_roles::configure(settings.checks_sources);
    plan::prepare(
        overrides::hooks::bits,
        |function| device_memory.steps_of(function),
        settings.cassette,
    );
    thread::watch_ends();
    functions::forget_notes();
    set_payload_policy(settings.payloads, settings.outputs);
    host_memory::configure(
        settings.host_memory,
        device_memory.keeps_exchanges(),
        settings.cassette,
    );
    trace_file::close();
    size_limit::configure(settings.max_size, settings.when_full);
    let clock = clock::choose();
    let pauses = Pauses {
        // Digests say what work left in memory, exchanges what it did together with other processes.
        can_pause: settings.digests.is_none() && settings.outputs_of_exchanges == 0,
        is_paused: conditions::configure(&settings),
    };
    if !trace_file::create(trace, clock, pauses) {
        return PASSING;
    }
    recording::set_control(trace_file::control());
    identity::write_program(&settings);
    maps::write();
    markers::begin(clock);
    cost::forget();
    stack::configure(settings.stacks);
    driver_log::configure(settings.driver_log);
    match clock {
        _ if settings.measures_cost => MEASURING,
        clock::PROCESSOR if settings.stacks != Stacks::Off => WITH_STACKS,
        clock::PROCESSOR => RECORDING,
        _ => COUNTING,
    }
}

/// Run by the loader when the process exits in order: the memory map gets the libraries that were
/// loaded late.
pub(crate) extern "C" fn at_exit() {
    let state = STATE.load(Ordering::Acquire);
    if records(state) {
        let _errno = errno::Errno::keep();
        if state == MEASURING {
            identity::write_cost(cost::total());
        }
        maps::write_if_changed();
        trace_file::notice_loss();
    }
}

/// Registers the fork handler, once.
fn watch_forks() {
    static IS_WATCHING: AtomicBool = AtomicBool::new(false);
    if !IS_WATCHING.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler touches atomics and the state of the forking thread only.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

/// In a forked child, whose only thread is the one that forked: trace, objects and memory are the
/// parent's.
extern "C" fn in_child() {
    identity::forget();
    recording::forget();
    conditions::forget();
    async_readback::forget();
    state::forget();
    host_functions::forget();
    host_memory::forget();
    device_memory::forget();
    kept_blobs::forget();
    data_files::forget();
    tensor_files::forget();
    regular_file::forget();
    overrides::forget();
    stack::forget();
    markers::forget();
    // SAFETY: the state lives as long as its thread, which is this one.
    unsafe { &*thread::current() }.forget();
}
