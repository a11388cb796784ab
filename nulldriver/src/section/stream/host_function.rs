//! Execution Control and Stream Management: functions of the program in stream order.

use crate::call::answer::{Answer, invalid_if};
use crate::call::argument::Stream;
use crate::call::entry::entries;
use crate::object::work::Work;
use crate::state::{Locked, lock};
use crate::work::host_function::{HostFunction, run};

entries! {
    cuLaunchHostFunc: launch;
    cuStreamAddCallback: add_callback;
}

fn launch(mut state: Locked, stream: Stream, entry: u64, data: u64) -> Answer {
    state.check_stream(stream)?;
    if let Some(site) = state.capture_of(stream)? {
        invalid_if(entry == 0)?;
        return state.add_captured(site, Work::Host { entry, data });
    }
    drop(state);
    run(HostFunction::Function { entry, data })
}

fn add_callback(stream: Stream, entry: u64, data: u64, flags: u32) -> Answer {
    lock().check_uncaptured(stream)?;
    invalid_if(flags != 0)?;
    // The callback gets the driver's handle; that of the default stream is NULL.
    let stream = if stream.is_default() { 0 } else { stream.0 };
    run(HostFunction::Callback {
        entry,
        stream,
        data,
    })
}
