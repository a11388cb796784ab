//! Functions by which a program stops and starts its recording: `docs/ctl.md` shows how to find them.
//! Other processes do the same through the control chunk of the trace.

use crate::hot::{clock, recording};

/// Records from now on. 1 if recording was paused, else 0.
#[unsafe(no_mangle)]
extern "C" fn cutape_start() -> i32 {
    recording::control().resume(clock::ticks()).into()
}

/// Leaves out calls that only give the device work, wait, or ask. 1 if recording goes on until now
/// and can be paused, else 0; 0 too before the first call of the driver.
#[unsafe(no_mangle)]
extern "C" fn cutape_stop() -> i32 {
    recording::control().pause(clock::ticks()).into()
}
