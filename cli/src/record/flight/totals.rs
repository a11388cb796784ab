//! What is left to know of a trace when its process has ended.

use std::sync::Arc;

use cutape_cut::window::Held;

/// What is to be known of a trace at the end.
#[derive(Clone, Debug)]
pub(super) struct Totals {
    /// Device and number of the file: at the end it may have got another name.
    pub(super) file: Option<(u64, u64)>,
    /// What is left of the calls before the last window.
    pub(super) held: Arc<Held>,
    /// How often recording was paused, so that calls could be looked at.
    pub(super) pauses: u64,
    /// For how many milliseconds calls of the program have waited for that.
    pub(super) waited: u64,
}
