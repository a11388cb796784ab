//! Calls that a recorder has left out while it was paused.

use crate::control::{CONTROL_LENGTH, CONTROL_POSITION, CONTROL_SINCE_MINOR, Control};
use crate::layout::chunk_kind;
use crate::read::trace::Trace;

/// Meta entries of a packed trace.
const CALLS: &str = "left-out.calls";
const PAUSES: &str = "left-out.pauses";
const AT_END: &str = "left-out.paused-at-end";

/// What a recorder has left out because it was paused. The notes GAP say where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Calls of all threads.
    pub calls: u64,
    /// How often recording was paused.
    pub pauses: u32,
    /// The recording was paused when it ended, or is now.
    pub is_paused: bool,
}

impl Trace {
    /// What the recorder has left out; `None` if it was never paused.
    pub fn left_out(&self) -> Option<LeftOut> {
        let number = |key| self.meta_value(key).and_then(|text| text.parse().ok());
        if let Some(calls) = number(CALLS) {
            return Some(LeftOut {
                calls,
                pauses: number(PAUSES)
                    .map_or(0, |pauses| u32::try_from(pauses).unwrap_or(u32::MAX)),
                is_paused: number(AT_END) == Some(1),
            });
        }
        let control = self.control()?;
        let pausing = control.pausing();
        let left_out = LeftOut {
            calls: control.left_out(),
            pauses: pausing.pauses(),
            is_paused: pausing.is_paused(),
        };
        (left_out.pauses > 0).then_some(left_out)
    }

    /// The control chunk as the recorder has it now; `None` if there is none of this version.
    fn control(&self) -> Option<&Control> {
        let place = CONTROL_POSITION as usize;
        let head = self.source.head_at(place)?;
        let is_inside = place + CONTROL_LENGTH <= self.source.length;
        let is_known = self.head().minor >= CONTROL_SINCE_MINOR
            && !self.source.is_packed()
            && head.kind == chunk_kind::CONTROL;
        if !is_known || !is_inside {
            return None;
        }
        // SAFETY: within the map and the file, and aligned, since maps begin with a page. All that
        // changes in it are atomics, also for the recorder.
        Some(unsafe { &*self.source.address(place).cast() })
    }
}

impl LeftOut {
    /// As the meta entries of a packed trace.
    pub(crate) fn meta(self) -> [(String, String); 3] {
        [
            (CALLS, self.calls.to_string()),
            (PAUSES, self.pauses.to_string()),
            (AT_END, u8::from(self.is_paused).to_string()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
    }
}
