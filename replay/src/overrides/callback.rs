//! Host functions of the recorded program: the replay passes functions that do nothing.

use std::ffi::c_void;

use crate::player::{Job, Played, Player};

extern "C" fn nothing(_data: *mut c_void) {}

extern "C" fn nothing_of_stream(_stream: *mut c_void, _status: u32, _data: *mut c_void) {}

/// cuLaunchHostFunc: keeps its place in the stream.
pub(crate) fn host_function(job: &mut Job<'_, '_>) -> Played {
    play(job, NOTHING as usize as u64)
}

const NOTHING: extern "C" fn(*mut c_void) = nothing;

/// A function of one pointer that does nothing, for nodes and user objects of graphs.
pub(crate) fn stub(player: &mut Player<'_>) -> u64 {
    player.report.note(NOTE);
    NOTHING as usize as u64
}

const NOTE: &str = "host functions of the program do nothing at replay";

/// cuStreamAddCallback: keeps its place in the stream.
pub(crate) fn stream_callback(job: &mut Job<'_, '_>) -> Played {
    let stub = nothing_of_stream as extern "C" fn(*mut c_void, u32, *mut c_void) as usize as u64;
    play(job, stub)
}

fn play(job: &mut Job<'_, '_>, stub: u64) -> Played {
    let stub = if job.call.argument(1) == 0 { 0 } else { stub };
    if stub != 0 {
        job.report.note(NOTE);
    }
    job.reissue_with([(1, stub), (2, 0)])
}
