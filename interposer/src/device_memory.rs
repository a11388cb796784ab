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

/// Calls that are left out of the recording are followed, too: snapshots of memory are taken.
static FOLLOWS_LEFT_OUT: AtomicBool = AtomicBool::new(false);

/// Sets when memory is digested, how many bytes there are for copies of what exchanges change, after
/// how many launches a stream writes a breadcrumb, and when snapshots of memory are taken. Before the
/// first call of the driver.
pub(crate) fn configure(
    digests: Option<Digests>,
    bytes_for_exchanges: u64,
    breadcrumbs: u32,
    snapshots: Option<SnapshotInterval>,
) -> &'static DeviceMemory {
    let state = DeviceMemory::new(digests, bytes_for_exchanges, breadcrumbs, snapshots);
    FOLLOWS_LEFT_OUT.store(snapshots.is_some(), Ordering::Relaxed);
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

/// Whether calls that are left out of the recording are followed.
#[inline]
pub(crate) fn follows_left_out() -> bool {
    FOLLOWS_LEFT_OUT.load(Ordering::Relaxed)
}

/// Whether a call that can be left out while recording is paused still is, once no snapshot of memory
/// is being taken. If so, `leave_left_out` comes after it.
#[cold]
pub(crate) fn enter_left_out(thread: &Thread, plan: &Plan) -> bool {
    let Some(state) = get().filter(|_| follows_left_out() && plan.steps.concern_snapshots()) else {
        return true;
    };
    let _errno = Errno::keep();
    state.enter_left_out(key(thread));
    let is_left_out = recording::pausing().is_paused();
    if !is_left_out {
        state.leave_left_out(key(thread));
    }
    is_left_out
}

/// A call that was left out has returned.
#[cold]
pub(crate) fn leave_left_out(thread: &Thread, plan: &Plan) {
    if let Some(state) = get().filter(|_| follows_left_out() && plan.steps.concern_snapshots()) {
        let _errno = Errno::keep();
        state.leave_left_out(key(thread));
    }
}

/// A number of the thread, which may have none in the trace. Those in the trace are smaller.
fn key(thread: &Thread) -> u64 {
    core::ptr::from_ref(thread).addr() as u64
}

/// In a forked child, whose driver is not initialised. The parent's state stays, since it may be
/// half changed.
pub(crate) fn forget() {
    STATE.store(core::ptr::null_mut(), Ordering::Release);
    FOLLOWS_LEFT_OUT.store(false, Ordering::Relaxed);
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
