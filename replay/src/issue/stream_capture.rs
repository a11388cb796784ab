//! Captures: work on a stream that captures becomes nodes of a graph. It is re-issued as it was; what differs is that its
//! host memory must last, that nothing arrives, and that the replayer must not wait for the device on its own.

use std::collections::{HashMap, HashSet};

use cutape_format::Call;
use cutape_registry::{Function, Kind, Role, id};

use crate::issue::frame::Skip;
use crate::issue::player::Player;
use crate::issue::traits::CaptureStep;
use crate::place::graph_memory::GraphMemory;

/// What is known of captures and of graphs.
#[derive(Debug, Default)]
pub(crate) struct StreamCaptures {
    /// The streams, by recorded handle, on which a capture began that has not ended.
    open: HashSet<u64>,
    /// The call in hand is captured.
    pub is_captured: bool,
    /// Host memory of copies in graphs.
    pub memory: GraphMemory,
    /// Live handles of conditions by recorded ones; they are numbers that kernels are given.
    pub conditions: HashMap<u64, u64>,
}

impl StreamCaptures {
    /// True while any stream captures.
    pub(crate) fn any_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// True if some condition has another handle here than in the recording.
    pub(crate) fn has_moved_conditions(&self) -> bool {
        self.conditions
            .iter()
            .any(|(recorded, live)| recorded != live)
    }

    /// Replaces handles of conditions among a kernel's parameters.
    pub(crate) fn translate_conditions(&self, packed: &mut [u8], layout: &[(u32, u32)]) {
        if !self.has_moved_conditions() {
            return;
        }
        for &(offset, size) in layout {
            let word = packed
                .get_mut(offset as usize..)
                .and_then(|rest| rest.first_chunk_mut::<8>());
            if size == 8
                && let Some(word) = word
                && let Some(live) = self.conditions.get(&u64::from_le_bytes(*word))
            {
                *word = live.to_le_bytes();
            }
        }
    }
}

impl<'t> Player<'t> {
    /// Before a call: follows which captures are open, and finds out whether the call is captured.
    pub(crate) fn watch_capture(
        &mut self,
        call: &Call<'t>,
        function: &'static Function,
        step: CaptureStep,
    ) -> Result<(), Skip> {
        self.captures.is_captured = false;
        match step {
            CaptureStep::Begins => {
                if call.succeeded() {
                    self.captures.open.insert(call.argument(0));
                }
                return Ok(());
            }
            // A capture that failed has ended, too.
            CaptureStep::Ends => {
                self.captures.open.remove(&call.argument(0));
                return Ok(());
            }
            CaptureStep::Other if self.captures.open.is_empty() => return Ok(()),
            CaptureStep::Other => {}
        }
        let stream = function
            .stream
            .map(|position| call.argument(usize::from(position)))
            .or_else(|| config_stream(call, function));
        if let Some(stream) = stream {
            let live = self.live_handle(call, Kind::Stream, stream)?;
            self.captures.is_captured = self.is_capturing(function, live);
        }
        Ok(())
    }

    /// Whether a live stream captures. Asking is allowed in every mode, and ends no capture (cuStreamIsCapturing).
    fn is_capturing(&self, function: &Function, stream: u64) -> bool {
        let mut status = 0u32;
        let ask = if function.per_thread {
            id::cuStreamIsCapturing_ptsz
        } else {
            id::cuStreamIsCapturing
        };
        // SAFETY: the stream is one of the driver's, and `status` is valid for writing an enum.
        let result = unsafe { self.api.call(ask, &[stream, &raw mut status as u64]) };
        matches!(result, Ok(0)) && status != 0
    }
}

/// The stream in a launch configuration.
fn config_stream(call: &Call, function: &Function) -> Option<u64> {
    if !function.base.starts_with("cuLaunchKernelEx") {
        return None;
    }
    let position = function
        .params
        .iter()
        .position(|param| matches!(param.role, Role::In(_)) && param.c_type.contains("Config"))?;
    let config = call
        .snapshot(position, cutape_format::layout::field::POINTEE)?
        .bytes
        .inline()?;
    config.get(32..40).map(crate::buffer::number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_replaced_among_parameters_of_their_size() {
        let mut captures = StreamCaptures::default();
        let recorded: Vec<u8> = [7u64, 7, 8]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let layout = [(0, 8), (8, 4), (16, 8), (20, 8)];
        let mut packed = recorded.clone();
        captures.conditions.insert(7, 7);
        captures.translate_conditions(&mut packed, &layout);
        assert_eq!(packed, recorded, "the same here");
        captures.conditions.insert(7, 9);
        captures.translate_conditions(&mut packed, &layout);
        assert_eq!(packed[..8], 9u64.to_le_bytes());
        assert_eq!(packed[8..], recorded[8..]);
    }
}
