//! What is read around calls of a replay, and how.
//!
//! `job` says what to read and what was read, `observer` is the state between calls, `pages` the
//! file. `memory` finds and reads memory, `array` the arrays that texture and surface objects show,
//! `places` where the variables of modules lie. `nodes` are the steps of a graph. `driver` has the
//! calls of the driver that only an observation makes.

pub(crate) mod array;
pub(crate) mod driver;
pub(crate) mod job;
pub(crate) mod memory;
pub(crate) mod memset;
pub(crate) mod nodes;
pub(crate) mod observer;
pub(crate) mod pages;
pub(crate) mod places;
