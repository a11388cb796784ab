//! What an observation does around a call: reads live memory, into a file (`observation/`).
//!
//! `act` is what happens before and after a call. `read` reads the memory that a launch can reach,
//! `part` what a part of a trace can reach. `launch` describes a launch as the driver gets it. An
//! observed graph runs node by node in place of its launch (`graph_run`). `texture` finds the
//! texture and surface objects among parameters, `variables` finds the variables of modules.
//!
//! Waiting for all work before and after an observed call makes the memory well defined: it is that
//! of the calls before it in the order of the replay, and of this call alone.

pub(crate) mod act;
mod graph_run;
pub(crate) mod launch;
mod live;
mod part;
mod read;
mod texture;
mod variables;
