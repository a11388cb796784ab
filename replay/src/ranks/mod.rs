//! The other ranks of a recording: with them, or alone.
//!
//! Replayed together, each rank has a child (`guard/group.rs`). `broker` is the parent's side of
//! what they hand to each other, `peers` a child's; `message` is what they send. `order` says which
//! calls of other ranks come before a call, `standstill` finds ranks that wait for each other, and
//! `shared_files` are files in place of those that recorded processes had mapped. `shared_objects`
//! matches what they export and import; `origins` says where a rank that is replayed alone has its
//! objects from.

pub(crate) mod broker;
pub(crate) mod message;
pub(crate) mod order;
pub(crate) mod origins;
pub(crate) mod peers;
pub(crate) mod shared_files;
pub(crate) mod shared_objects;
pub(crate) mod standstill;
