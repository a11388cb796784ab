//! When each call is issued, and on which thread.

mod order;
mod overlap;
pub(crate) mod running;
pub(crate) mod threads;
