//! The driver's error log: callbacks that are told what is wrong with a call, before it returns.
//! The log itself is not kept.

use std::ffi::{c_char, c_void};
use std::mem::transmute;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cutape_registry::Function;

use crate::call::answer::{CUresult, SUCCESS};
use crate::settings;

/// A `CUlogsCallback`: its data, the level, the text with its length.
type Entry = unsafe extern "C" fn(*mut c_void, u32, *const c_char, usize);

#[derive(Clone, Copy)]
struct Callback {
    handle: u64,
    entry: Entry,
    data: u64,
}

static CALLBACKS: Mutex<Vec<Callback>> = Mutex::new(Vec::new());
/// How many there are, so that calls need no lock while there are none.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The first handle.
const FIRST: u64 = 0x10c0;
/// Level of an error (cuda.h: CU_LOG_LEVEL_ERROR).
const ERROR: u32 = 0;
const NOT_READY: CUresult = CUresult::CUDA_ERROR_NOT_READY;

fn callbacks() -> MutexGuard<'static, Vec<Callback>> {
    CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds the callback at that address, which is not 0; its handle.
pub(crate) fn register(entry: u64, data: u64) -> u64 {
    let mut callbacks = callbacks();
    let handle = callbacks.last().map_or(FIRST, |last| last.handle + 1);
    // SAFETY: the program passes it as a CUlogsCallback.
    let entry = unsafe { transmute::<usize, Entry>(entry as usize) };
    callbacks.push(Callback {
        handle,
        entry,
        data,
    });
    COUNT.store(callbacks.len(), Ordering::Relaxed);
    handle
}

/// Removes a callback. False if there is none of that handle.
pub(crate) fn unregister(handle: u64) -> bool {
    let mut callbacks = callbacks();
    let before = callbacks.len();
    callbacks.retain(|callback| callback.handle != handle);
    COUNT.store(callbacks.len(), Ordering::Relaxed);
    callbacks.len() < before
}

/// Tells the callbacks what a call is going to return, if that is an error, in the words of the
/// real driver (measured, driver 580). That polls are not told is assumed.
pub(crate) fn report(function: &Function, code: CUresult) {
    if code == SUCCESS || code == NOT_READY {
        return;
    }
    say(|| {
        let name = cutape_registry::result_name(code.0 as i32).unwrap_or("unknown");
        format!("Returning {} ({name}) from {}", code.0, function.base)
    });
}

/// Tells the callbacks what is wrong. They must not call the driver.
pub(crate) fn say(text: impl FnOnce() -> String) {
    let is_printed = settings::get().log;
    if COUNT.load(Ordering::Relaxed) == 0 && !is_printed {
        return;
    }
    let text = text() + "\0";
    if is_printed {
        settings::print_line(text.trim_end_matches('\0'));
    }
    let all = callbacks().clone();
    for Callback { entry, data, .. } in all {
        let place = text.as_ptr().cast();
        // SAFETY: the program has registered it; the text ends in NUL and lives until it returns.
        unsafe { entry(data as *mut c_void, ERROR, place, text.len() - 1) };
    }
}
