//! Who else takes the times of calls and of their work: a tool in this process, or events.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Is told of each call that the driver gets, on the thread that makes it. The replay's own calls
/// are not among them.
pub trait CallTracer: Send + Sync {
    /// The driver is loaded and has got no call.
    ///
    /// # Errors
    /// Why nothing can be measured, which ends the replay.
    fn begins(&self) -> Result<(), String>;

    /// The replay takes up the next call of this thread: the driver may get it, or not.
    fn takes_up(&self);

    /// The replay is done with the call that it took up.
    fn is_done(&self);

    /// The driver gets the call next.
    fn enters(&self, call: u64);

    /// The driver has returned.
    fn leaves(&self, call: u64);

    /// Whether the replay is to put events around work, for [`Self::ran`]. Asked after
    /// [`Self::begins`].
    fn wants_events(&self) -> bool;

    /// The work of a call ran on the device, by events around it.
    fn ran(&self, call: u64, begin: Instant, lasted: Duration);

    /// Events could not tell when the work of a call ran.
    fn is_not_timed(&self, call: u64);

    /// The last call is over, and so is all work.
    fn ends(&self);
}

/// Who is told, in [`Options`](crate::Options).
#[derive(Clone)]
pub struct Tracer(pub Arc<dyn CallTracer>);

impl fmt::Debug for Tracer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Tracer")
    }
}
