//! Places, re-issues and compares a recorded trace on a driver.
//!
//! [`plan`] reads a trace once and says what a replay needs; [`replay`] re-issues its calls in this process, compares what
//! the driver answers with what was recorded, and returns a [`Report`]; [`run_guarded`] does so in a child process without
//! address randomisation, so that a trace of a crashing program ends in a report. Nothing here prints.
//!
//! How calls are re-issued:
//! * in recorded order of enter (a call that gives out a handle or waits: of return), one at a time; each recorded thread has
//!   a thread of its own here, so that current contexts, context stacks and per-thread default streams are kept apart by the
//!   driver itself. With [`Options::threads`] they run at once: a call begins when all that had returned when it was entered in
//!   the recording is done here;
//! * arguments by the registry's roles; functions that need more have a file in `overrides`;
//! * device and pinned memory at its recorded address ([`Placement`](Options::placement)), or, where that cannot be,
//!   with its address translated by range in arguments and kernel parameters;
//! * a failed call too, and it must fail with the same code. Not re-issued: a call in flight when the recording ended,
//!   uses of destroyed objects that crash the driver, and what depends on memory that another process made; the report counts all of
//!   these by name;
//! * handles that the program had from private tables of the driver: primary contexts by their device, functions by module
//!   and name, as the recorder noted them.
//!
//! What placement changes: placed memory is mapped in granules of 2 MiB, and `cuMemAlloc`, `cuMemFree` and their like are
//! answered from the replayer's own books. An operand that lies in placed memory that was freed gets the driver's code for
//! that, `CUDA_ERROR_INVALID_VALUE`, from the books as well, because the granule may still be mapped for its neighbours.
//!
//! What a replay cannot know: what the program writes, while kernels run, into host memory that they read without a copy
//! (pinned, registered, managed: it gets the bytes that it held at launches and after waits); host functions do nothing; log
//! texts of compilations are not compared.
//!
//! [`rerun_guarded`] and [`rerun_as_child`] replay up to chosen calls and let those be issued again and again, to be measured.
//!
//! Invariant: unsafe code is only where the driver is called, where its memory is read and written, and where the processor is asked
//! for the time or for a line of memory, each place with its reason; no bytes of a trace cause a panic.

mod api;
mod buffer;
mod compare;
mod error;
mod guard;
mod issue;
mod machine;
mod measure;
mod options;
mod overrides;
mod place;
mod plan;
mod play;
mod report;
mod rerun;
mod run;
mod schedule;

pub use cutape_driver::{Driver, LocateError, is_interposer, locate};
pub use error::Error;
pub use guard::{Guard, Measurements, rerun_as_child, rerun_guarded, run_as_child, run_guarded};
pub use measure::timing::Measuring;
pub use options::{Options, Selection};
pub use plan::needs::{ImageUse, MissingImage, Needs};
pub use plan::{HostRegion, Plan, Unreplayable, plan};
pub use report::{
    CurrentCall, Died, Difference, Divergence, Placed, Report, Skipped, Span, Stale, Timing,
    Translated, What,
};
pub use rerun::{
    Clock, Differing, Element, Job, Measure, Measured, Mismatch, Outcome, Replacement, Subject,
    Tolerance, Work, compare,
};
pub use run::replay;
