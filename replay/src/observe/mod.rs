//! Reads live memory around chosen calls of a replay, into a file.
//!
//! `job` says what to read and what was read, `pages` is the file, `memory` finds the memory that
//! a launch can reach and `read` reads it, `part` reads what a part of a trace can reach. `launch`
//! describes a launch as the driver gets it, `act` is what happens before and after a call.
//! `observer` is the state in between. An observed graph runs node by node in place of its launch (`nodes`, `graph_run`). `texture` finds the texture and
//! surface objects among parameters, `array` reads the arrays that they show, `variables` finds the
//! variables of modules, `places` their addresses in memory.
//!
//! Waiting for all work before and after an observed call makes the memory well defined: it is that
//! of the calls before it in the order of the replay, and of this call alone.

pub(crate) mod act;
mod array;
mod driver;
mod graph_run;
pub(crate) mod job;
pub(crate) mod launch;
mod live;
mod memory;
mod memset;
mod nodes;
pub(crate) mod observer;
mod pages;
mod part;
mod places;
mod read;
mod texture;
mod variables;
