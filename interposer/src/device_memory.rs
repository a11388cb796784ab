//! The state of what work leaves in device memory: `record --digests`, `--outputs-of-exchanges`,
//! `--breadcrumbs` and `--memory`.

use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use cutape_device_memory::{DeviceMemory, SnapshotInterval};
use cutape_registry::Digests;

use crate::entry_addresses;
use crate::hot::plan::Plan;
use crate::hot::recording;
use crate::hot::thread::Thread;
use crate::process::errno::Errno;
use crate::process::log;

/// NULL before recording starts.
static STATE: AtomicPtr<DeviceMemory> = AtomicPtr::new(core::ptr::null_mut());

static TAKES_SNAPSHOTS: AtomicBool = AtomicBool::new(false);

/// Sets when memory is digested, how many bytes there are for copies of what exchanges change, after
/// how many launches a stream writes a breadcrumb, when snapshots of memory are taken, and of one launch
/// in how many inputs and outputs are noted. Before the first call of the driver.
pub(crate) fn configure(
    digests: Option<Digests>,
    bytes_for_exchanges: u64,
    breadcrumbs: u32,
    snapshots: Option<SnapshotInterval>,
    deep: u64,
) -> &'static DeviceMemory {
    let state = DeviceMemory::new(digests, bytes_for_exchanges, breadcrumbs, snapshots, deep);
    TAKES_SNAPSHOTS.store(state.takes_snapshots(), Ordering::Relaxed);
    if bytes_for_exchanges != 0 && !state.keeps_exchanges() {
        log::line(&[b"the system has no memory for --outputs-of-exchanges; none are kept"]);
    }
    if breadcrumbs != 0 && !state.has_breadcrumbs() {
        log::line(&[b"the system has no memory for --breadcrumbs; there are none"]);
    }
    // Leaked on purpose: calls use it until the process ends.
    let state = Box::leak(Box::new(state));
    STATE.store(state, Ordering::Release);
    state
}

/// The state, once recording has started.
pub(crate) fn get() -> Option<&'static DeviceMemory> {
    // SAFETY: NULL, or leaked by `configure`.
    unsafe { STATE.load(Ordering::Acquire).as_ref() }
}

/// Whether snapshots of memory are taken. Then no call takes the fast path.
#[inline]
pub(crate) fn takes_snapshots() -> bool {
    TAKES_SNAPSHOTS.load(Ordering::Relaxed)
}

/// The state, if snapshots have to know of a function's calls.
pub(crate) fn of_snapshots(plan: &Plan) -> Option<&'static DeviceMemory> {
    let concerns_them = takes_snapshots() && plan.steps.concern_snapshots();
    get().filter(|_| concerns_them)
}

/// A call that has arrived is left out of the recording.
pub(crate) fn left_out(thread: &Thread, plan: &Plan) {
    if let Some(state) = of_snapshots(plan) {
        let _errno = Errno::keep();
        state.left_out(key(thread));
    }
}

/// A call that has arrived and was left out has returned, or it is not recorded.
#[cold]
pub(crate) fn leave(thread: &Thread, plan: &Plan) {
    if let Some(state) = of_snapshots(plan) {
        let _errno = Errno::keep();
        state.leave(key(thread));
    }
}

/// A number of a thread, which may have none in the trace.
pub(crate) fn key(thread: &Thread) -> u64 {
    core::ptr::from_ref(thread).addr() as u64
}

/// In a forked child, whose driver is not initialised. The parent's state stays, since it may be
/// half changed.
pub(crate) fn forget() {
    STATE.store(core::ptr::null_mut(), Ordering::Release);
    TAKES_SNAPSHOTS.store(false, Ordering::Relaxed);
}

/// Registers the handler of the process's exit, once. One that is registered when the driver is
/// initialised runs before those that the driver has registered.
pub(crate) fn run_at_exit() {
    static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
    if !IS_REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: this library is never unloaded.
        unsafe { libc::atexit(at_exit) };
    }
}

extern "C" fn at_exit() {
    let Some(state) = get().filter(|_| recording::is_recording()) else {
        return;
    };
    let _errno = Errno::keep();
    state.exit(&|function, argument| {
        // SAFETY: an entry of ours for a function of at most one integer parameter, called as the
        // program would call the driver.
        unsafe {
            let entry = entry_addresses::of(function);
            let entry: extern "C" fn(u64) -> i32 = core::mem::transmute(entry);
            entry(argument)
        }
    });
}
