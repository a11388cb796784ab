//! The stream that a call enqueues work on.

use cutape_format::{Call, layout::field};
use cutape_registry::{Family, Function, Kind, LaunchOp, layout::offset_of};

use crate::api::buffer::number;
use crate::player::Job;

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

impl Job<'_, '_> {
    /// The live stream of a call that enqueues work, and which default stream 0 is; `None` if the
    /// stream may be captured.
    pub(crate) fn uncaptured_stream(&mut self) -> Option<(u64, bool)> {
        // A synchronous call uses the default stream.
        let stream = stream_argument(self.call, self.function).unwrap_or(0);
        let live = self.live_handle(Kind::Stream, stream).ok()?;
        let per_thread = self.function.per_thread;
        // Asked only then, because it is one more call.
        let is_free = !self.captures.any_open() || self.api.is_not_captured(live, per_thread);
        is_free.then_some((live, per_thread))
    }

    /// Waits for the stream that the call uses, unless it may be captured: for work that the driver
    /// has waited for in the recording, or that has taken its effect there.
    pub(crate) fn wait_for_own_stream(&mut self) {
        let Some((stream, per_thread)) = self.uncaptured_stream() else {
            return;
        };
        let waited = self.while_relaxed(|api| api.synchronize_stream(stream, per_thread));
        if let Err(code) = waited {
            tracing::debug!(
                "call {}: waiting for its stream: result {code}",
                self.call.index
            );
        }
    }
}
