//! Functions that no recorded call has returned: libraries take some from the driver's private
//! tables (seen with cuFFT on driver 580). A replay finds them by module and name.

use cutape_format::layout::{OriginNote, note_kind};
use cutape_registry::id;

use crate::driver;
use crate::hot::thread::Thread;
use crate::process::errno::Errno;
use crate::process::memory;
use crate::state::functions::{self, Liveness};

/// Longer names are cut.
const LONGEST_NAME: usize = 16 << 10;

/// Before a launch: records where an unknown handle comes from. A dead one is not asked about.
pub(super) fn about_to_use(thread: &Thread, handle: u64) {
    if functions::liveness(handle) == Liveness::Unknown && handle != 0 {
        trace_back(thread, handle);
    }
}

/// After a call that succeeded with that handle, which is alive therefore.
pub(super) fn used(thread: &Thread, handle: u64) {
    if functions::liveness(handle) != Liveness::Alive && handle != 0 {
        trace_back(thread, handle);
    }
}

#[cold]
fn trace_back(thread: &Thread, handle: u64) {
    let _errno = Errno::keep();
    let queries = [
        (id::cuFuncGetModule, id::cuFuncGetName, false),
        (id::cuKernelGetLibrary, id::cuKernelGetName, true),
    ];
    for (owner_of, name_of, is_kernel) in queries {
        let (Some(owner), Some(text)) = (ask(owner_of, handle), ask(name_of, handle)) else {
            continue;
        };
        let Some(length) = memory::string_length(text, LONGEST_NAME) else {
            continue;
        };
        functions::add(handle, is_kernel, owner);
        let note = OriginNote {
            handle,
            owner,
            is_kernel: is_kernel.into(),
        };
        // SAFETY: the driver's own string, of that length as was just checked; the function is
        // alive, so the string stays.
        let name = unsafe { core::slice::from_raw_parts(text as *const u8, length) };
        thread.note(note_kind::ORIGIN, |draft| {
            draft.put_encoded(note)?;
            draft.put(name)
        });
        return;
    }
}

/// Calls `function(&answer, handle)`.
fn ask(function: u16, handle: u64) -> Option<u64> {
    // SAFETY: it writes a pointer. The program is about to give the driver that handle, or has just
    // done so with success.
    let answer = unsafe { driver::ask(function, |place| [place, handle, 0, 0]) };
    answer.filter(|&answer| answer != 0)
}
