//! When each call is issued, and on which thread.

pub(crate) mod concurrent;
pub(crate) mod dependencies;
pub(crate) mod lockstep;
pub(crate) mod order;
pub(crate) mod prefetch;
