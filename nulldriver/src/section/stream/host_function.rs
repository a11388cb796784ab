//! Execution Control and Stream Management: functions of the program in stream order.

use crate::call::answer::{Answer, invalid_if};
use crate::call::argument::Stream;
use crate::call::entry::entries;
use crate::object::work::{HostFunction, Work};
use crate::player;
use crate::state::{Action, Locked, lock};

entries! {
    cuLaunchHostFunc: launch;
    cuStreamAddCallback: add_callback;
}

fn launch(mut state: Locked, stream: Stream, entry: u64, data: u64) -> Answer {
    state.check_stream(stream)?;
    invalid_if(entry == 0)?;
    if let Some(site) = state.capture_of(stream)? {
        return state.add_captured(site, Work::Host { entry, data });
    }
    let function = HostFunction::Function { entry, data };
    state
        .enqueue(stream, Action::Host(function, player::call()))
        .map(|_| ())
}

fn add_callback(stream: Stream, entry: u64, data: u64, flags: u32) -> Answer {
    let mut state = lock();
    state.check_uncaptured(stream)?;
    invalid_if(flags != 0 || entry == 0)?;
    let function = HostFunction::Callback {
        entry,
        // The callback gets the driver's handle; that of the default stream is NULL.
        stream: if stream.is_default() { 0 } else { stream.0 },
        data,
    };
    state
        .enqueue(stream, Action::Host(function, player::call()))
        .map(|_| ())
}
