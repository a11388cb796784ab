//! What an observation does around a call: reads live memory, into a file (`observation/`).
//!
//! `act` is what happens before and after a call; it waits for all work (`wait`), and follows graphs
//! that run node by node (`graph`). `live` finds the memory that is live, `part` reads what a part
//! of a trace can reach, `launch` describes a launch as the driver gets it. After every call that may
//! have changed memory (`changes`), `watch` looks at watched memory and `search` for numbers. `order` lets
//! the work of two calls run in a chosen order.
//!
//! Waiting for all work before and after an observed call makes the memory well defined: it is that
//! of the calls before it in the order of the replay, and of this call alone.

pub(crate) mod act;
mod changes;
mod graph;
pub(crate) mod launch;
mod live;
mod order;
mod part;
mod search;
mod wait;
mod watch;
