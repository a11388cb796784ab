//! What is read around calls of a replay, and how.
//!
//! `job` says what to read and what was read, `observer` is the state between calls, `pages` the
//! file. `memory` finds memory and reads it, `read` what a launch can reach, `texture` finds
//! texture and surface objects among parameters, `array` reads the arrays that they show,
//! `variables` finds the variables of modules, `places` their addresses in memory. An observed
//! graph runs node by node in place of its launch (`nodes`, `graph_run`), or stops after each of them
//! if some can only run in it (`stops`). `driver` has the calls of
//! the driver that only an observation makes. `watch` keeps what watched memory held last. `search`
//! looks for numbers in what calls write to memory (`area`), with a table of its pages (`dirty_table`), and
//! `write_set` describes what one of them has written. `hold` keeps the work of a stream back. `session` is what a replay and the one who has it stop at calls
//! give each other.

pub(crate) mod area;
pub(crate) mod array;
pub(crate) mod dirty_table;
pub(crate) mod driver;
pub(crate) mod graph_run;
pub(crate) mod hold;
pub(crate) mod job;
pub(crate) mod memory;
pub(crate) mod memset;
pub(crate) mod nodes;
pub(crate) mod observer;
pub(crate) mod pages;
pub(crate) mod places;
pub(crate) mod read;
pub(crate) mod search;
pub(crate) mod session;
pub(crate) mod stops;
pub(crate) mod texture;
pub(crate) mod variables;
pub(crate) mod watch;
pub(crate) mod write_set;
