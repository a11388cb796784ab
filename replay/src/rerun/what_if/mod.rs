//! Tries a change of the program's calls: the repeated calls as recorded and edited, on the same
//! memory, in turns.
//!
//! Each edit has a file and changes the steps of an [`Edited`]. `hazards` says where the program
//! would need a wait that is left out, `trial` runs both, compares what they leave in memory and
//! copy to the host, and times them.

mod batch_copies;
mod drop_sync;
mod edited;
mod edits;
mod graph;
mod hazards;
mod host_side;
mod job;
mod kernels;
mod launch_shape;
mod made;
mod noted;
mod overlap;
mod pin_memory;
mod stretch;
mod trial;

pub use job::{Applied, Other, Shape, Tried, WhatIf};
pub(super) use noted::Noted;
pub(super) use trial::run;
