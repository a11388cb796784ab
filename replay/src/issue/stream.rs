//! The stream that a call enqueues work on.

use cutape_format::{Call, layout::field};
use cutape_registry::{Family, Function, LaunchOp, layout::offset_of};

use crate::buffer::number;

/// The recorded stream of a call: a parameter, or a member of a launch configuration.
#[inline]
pub(crate) fn stream_argument(call: &Call, function: &Function) -> Option<u64> {
    match function.stream {
        Some(at) => Some(call.argument(usize::from(at))),
        None => config_stream(call, function),
    }
}

fn config_stream(call: &Call, function: &Function) -> Option<u64> {
    const STREAM: usize = offset_of("CUlaunchConfig", "hStream");
    let Family::Launch(LaunchOp::Config(launch)) = function.family else {
        return None;
    };
    let position = usize::from(launch.config);
    let config = call.snapshot(position, field::POINTEE)?;
    config.bytes.inline()?.get(STREAM..STREAM + 8).map(number)
}
