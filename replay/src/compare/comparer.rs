//! What decides whether returned values can be compared, and with what.

use crate::api::Code;
use crate::compare::tokens::Tokens;
use crate::measure::timing::Measuring;
use crate::plan::Plan;

/// What is kept from one comparison to the next.
#[derive(Debug)]
pub(crate) struct Comparer {
    /// Whether bytes from the device can be what they were.
    pub bytes_comparable: bool,
    /// Bytes that the program gave to the device are not in the trace: zeros are in their place.
    pub host_bytes_missing: bool,
    /// The first call that reported an error which makes its context unusable, and the code.
    pub context_error: Option<(u64, Code)>,
    /// What the driver returned to be passed on.
    pub tokens: Tokens,
    /// Launches were given host memory of which the trace does not say what the program wrote.
    pub host_memory_given: bool,
}

impl Comparer {
    pub(crate) fn new(plan: &Plan, measuring: Measuring) -> Self {
        Self {
            bytes_comparable: measuring == Measuring::Nothing,
            context_error: plan.context_error,
            tokens: Tokens::default(),
            host_bytes_missing: false,
            host_memory_given: false,
        }
    }
}
