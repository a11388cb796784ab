//! What the driver's error log says about a call, in the trace.
//!
//! The driver calls its callbacks on the calling thread before a failing call returns (measured,
//! driver 580). It says what it refused; why is for the reader of the trace to find.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cutape_format::layout::{DriverMessageNote, note_kind};
use cutape_registry::id;

use crate::driver;
use crate::hot::thread;
use crate::process::errno::Errno;

/// Bytes of a message that are kept. The driver's whole log has 25,600.
const LONGEST: usize = 4096;

/// The user asks for it.
static IS_WANTED: AtomicBool = AtomicBool::new(false);
/// The handle of our callback, which is never unregistered.
static HANDLE: AtomicU64 = AtomicU64::new(0);

/// Sets whether messages are recorded. To be called when the trace has been created.
pub(crate) fn configure(is_wanted: bool) {
    IS_WANTED.store(is_wanted, Ordering::Relaxed);
}

/// Registers the callback, once, when the driver has been initialised. Drivers before 12.9 have no
/// such log.
pub(crate) fn register() {
    if !IS_WANTED.swap(false, Ordering::Relaxed) {
        return;
    }
    let callback: extern "C" fn(*mut c_void, u32, *const u8, usize) = receive;
    let arguments = [callback as usize as u64, 0, HANDLE.as_ptr() as u64, 0];
    // SAFETY: a CUlogsCallback that may be called for as long as the process lives, no data of its
    // own, and room for the handle.
    let _ = unsafe { driver::call(id::cuLogsRegisterCallback, arguments) };
}

/// A `CUlogsCallback`. Must not call the driver.
extern "C" fn receive(_data: *mut c_void, level: u32, text: *const u8, length: usize) {
    let thread = thread::known();
    // SAFETY: NULL, or the state of this thread.
    let Some(thread) = (unsafe { thread.as_ref() }) else {
        return;
    };
    if !thread.is_in_driver() || text.is_null() {
        return;
    }
    let _errno = Errno::keep();
    thread.aside(|| {
        // SAFETY: the driver gives a text of that length, valid during this call.
        let text = unsafe { core::slice::from_raw_parts(text, length.min(LONGEST)) };
        let end = text.iter().position(|&byte| byte == 0);
        let text = text.get(..end.unwrap_or(text.len())).unwrap_or_default();
        thread.note(note_kind::DRIVER_MESSAGE, |draft| {
            draft.put_encoded(DriverMessageNote { level })?;
            draft.put(text)
        });
    });
}
