//! Which work of a program may still run, and what waits for what: after a hang or a fault.
//!
//! [`examine`] reads a trace to its end, with the memory of the process if that still runs, and says
//! for each stream what is complete, what may run and what it waits for, and for each thread which
//! call it is in. [`CoreDump`] is what a core dump of the GPU says. [`text`] puts that into words; the
//! [`Report`] is also the JSON.
//!
//! Invariant: what is not known to be complete counts as running. No bytes of a trace or of the
//! process cause a panic.
#![forbid(unsafe_code)]

mod core_dump;
mod cycle;
mod examine;
mod lines;
mod report;
#[cfg(any(test, feature = "test"))]
pub mod test_dump;
mod text;

pub use core_dump::{CoreDump, Fault, Grid};
pub use examine::{ProcessMemory, examine};
pub use report::{
    Completed, Failure, Line, Memory, Node, Report, Stream, Thread, VERSION, Wait, Writer,
};
pub use text::text;
