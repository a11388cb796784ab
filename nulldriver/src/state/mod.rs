//! All objects of the process behind one lock, and what more than one section does with them.

pub(crate) mod capture;
mod code;
mod context;
mod graph;
mod memory;
mod queue;
mod store;
mod stream;
mod teardown;

pub(crate) use context::{PUSHED_DESTROYED, register_teardown, with_stack};
pub(crate) use store::{
    Action, Current, Locked, State, initialise, is_forked_child, is_initialised, lock,
};
pub(crate) use teardown::has_ended;
