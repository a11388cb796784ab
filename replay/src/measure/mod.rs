//! How long calls take.

pub(crate) mod clock;
pub(crate) mod timing;
pub(crate) mod tracer;
