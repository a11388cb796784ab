//! Several traces of one recording, replayed together: a guarded child for each.
//!
//! `group` starts the children and makes the report of all. `broker` is the parent's side of what
//! they hand to each other, `peers` a child's; `message` is what they send. `order` says which
//! calls of other ranks come before a call, `standstill` finds ranks that wait for each other, and
//! `shared_files` are files in place of those that recorded processes had mapped.

pub(crate) mod broker;
pub(crate) mod group;
pub(crate) mod message;
pub(crate) mod order;
pub(crate) mod peers;
pub(crate) mod shared_files;
pub(crate) mod standstill;
