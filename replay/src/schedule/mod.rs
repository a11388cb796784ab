//! When each call is issued, and on which thread.

mod order;
mod overlap;
mod running;
pub(crate) mod threads;
