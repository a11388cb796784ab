//! Functions that no recorded call gave: libraries take some from the driver's private tables (seen with cuFFT on driver 580).
//! A replay finds them again by module and name.

use cutape_format::layout::{OriginNote, note_kind, record_kind};
use cutape_registry::id;

use crate::errno::Errno;
use crate::layouts::{self, Standing};
use crate::thread::Thread;
use crate::{driver, memory};

/// Longest name that is kept.
const LONGEST_NAME: usize = 16 << 10;

/// Before a launch: a handle that nobody gave is asked where it comes from. One whose owner is gone is not.
#[inline]
pub(super) fn about_to_use(state: &Thread, handle: u64) {
    if layouts::standing(handle) == Standing::Unknown && handle != 0 {
        trace_back(state, handle);
    }
}

/// After a call that succeeded with that handle: it is alive, whatever was known of it.
#[inline]
pub(super) fn used(state: &Thread, handle: u64) {
    if layouts::standing(handle) != Standing::Alive && handle != 0 {
        trace_back(state, handle);
    }
}

#[cold]
fn trace_back(state: &Thread, handle: u64) {
    let _errno = Errno::keep();
    let tables = [
        (id::cuFuncGetModule, id::cuFuncGetName, false),
        (id::cuKernelGetLibrary, id::cuKernelGetName, true),
    ];
    for (owner_of, name_of, is_kernel) in tables {
        let (Some(owner), Some(text)) = (ask(owner_of, handle), ask(name_of, handle)) else {
            continue;
        };
        let Some(length) = memory::string_length(text, LONGEST_NAME) else {
            continue;
        };
        layouts::learn(handle, is_kernel, owner);
        let note = OriginNote {
            handle,
            owner,
            is_kernel: is_kernel.into(),
        };
        // SAFETY: the driver's own string, just seen to be that long, of a function that is in use.
        let name = unsafe { core::slice::from_raw_parts(text as *const u8, length) };
        state.write(record_kind::NOTE, note_kind::ORIGIN, |record| {
            record.put_encoded(note)?;
            record.put(name)
        });
        return;
    }
}

/// Calls `function(&answer, handle)`.
fn ask(function: u16, handle: u64) -> Option<u64> {
    let mut answer = 0u64;
    let words = [(&raw mut answer) as u64, handle, 0, 0];
    // SAFETY: the output is valid for writing a pointer; the program is about to give the driver that handle, or has just
    // done so with success.
    let result = unsafe { driver::call(function, words) };
    (result == Some(0) && answer != 0).then_some(answer)
}
