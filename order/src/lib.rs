//! Which work is ordered before which, and which the host knows to be complete: stream order, the
//! legacy default stream, events, waits.
//!
//! [`Order`] is told what calls enqueue, record and wait for, and answers. It knows no functions and
//! no driver; whoever uses it translates calls. The recorder asks it before it takes bytes that the
//! device has written, where doubt must count as "still running", and the model for its rules, where
//! doubt must count as "complete": [`Doubt`] chooses.
//!
//! Times are given by the caller: [`Moment`]s of any clock that does not go back, such as a time
//! stamp counter or the number of calls so far. Work counts from the moment when the call that
//! enqueued it had returned, a wait from the moment when it was entered, so that calls of several
//! threads that overlap prove nothing about each other.
#![forbid(unsafe_code)]

mod latest;
mod order;

pub use latest::Latest;
pub use order::{Clock, Doubt, Moment, Order, StreamKey, StreamKind};
