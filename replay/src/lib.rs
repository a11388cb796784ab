//! Replays a recorded trace on a driver and compares the results with the recording.
//!
//! [`plan`] reads a trace once and lists what a replay needs. [`replay`] re-issues the calls in
//! this process and returns a [`Report`]. [`run_guarded`] does so in a child process without
//! address randomisation, so that a trace of a crashing program ends in a report. Nothing here
//! prints.
//!
//! How calls are re-issued:
//! * In lockstep: in the order in which they were entered, one at a time. A call that returns a
//!   handle or waits is issued at the point at which it returned. With [`Options::threads`] calls
//!   overlap: a call begins when the calls are done that had returned when it was entered. Each
//!   recorded thread has a thread of its own, so that the driver itself keeps current contexts and
//!   per-thread streams apart.
//! * With arguments made from the registry's roles. Functions that need more have a file in
//!   `overrides`.
//! * With memory at its recorded address ([`PlacementStrategy`]). Where that is not possible,
//!   addresses are translated by range in arguments and kernel parameters.
//! * Failed calls too; they must fail with the same code.
//! * Not at all: calls in flight when the recording ended, uses of destroyed objects that crash the
//!   driver (both are with [`Options::reissue_fatal`]), and what depends on memory that another
//!   process made. The report counts them by name.
//!
//! Handles that the program got from private tables of the driver are found again: primary contexts
//! by their device, functions by module and name, as the recorder noted them.
//!
//! Where the driver does not place memory as recorded, it is mapped in granules of 2 MiB, so the
//! replay itself answers `cuMemAlloc`, `cuMemFree` and their like. It also answers
//! `CUDA_ERROR_INVALID_VALUE` for an operand in placed memory that was freed, because the granule
//! may still be mapped for its neighbours.
//!
//! What a replay cannot know: what the program writes, while kernels run, into host memory that
//! they read without a copy (pinned, registered, managed: it gets the bytes that it held at
//! launches and after waits). Host functions do nothing. Log texts of compilations are not
//! compared.
//!
//! With [`Options::alone`] the trace is one rank of several, without the others: what they shared
//! with it has stand-ins, and work that exchanges data with them is left out.
//!
//! [`Report::complete`] adds what the trace shows, and [`Report::text`] puts a report into words.
//! [`HostFiles`] are files that copies read and write.
//!
//! [`run_repeated`] replays several times; what differs between the replays says more about the
//! cause of a divergence.
//!
//! [`rerun_guarded`] and [`rerun_as_child`] replay up to chosen calls and repeat those for a
//! measurement. [`observe_guarded`] and [`observe_as_child`] read live memory around chosen calls.
//! A [`Session`] stops at calls one after the other and reads, writes and watches memory there.
//!
//! Layout: folders are floors, each imports only from those below it. From the ground: `process` is
//! this process, `plan` reads the trace, `place` maps memory, `machine` compares the trace with
//! this machine, `objects`, `calls`, `lent`, `unavailable` and others keep what the `player` knows.
//! `restore` puts contents of memory back, `issue` re-issues a call and compares what it returned,
//! with `overrides` for some functions. `play` has the steps of one call, `rerun` repeats calls,
//! `observe` reads memory around them. `schedule` decides when and on which thread a call is
//! issued, `guard` is the child process. ARCHITECTURE.md has all of them.
//!
//! Invariant: unsafe code is only where the driver is called, where its memory is read and written,
//! and where the processor's clock is read, each place with its reason. No bytes of a trace cause a
//! panic.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

mod alone;
mod api;
mod call_image;
mod calls;
mod compare;
mod digests;
mod error;
mod guard;
mod host_files;
mod issue;
mod lent;
mod machine;
mod measure;
mod objects;
mod observation;
mod observe;
mod options;
mod overrides;
mod place;
mod plan;
mod play;
mod player;
mod process;
mod ranks;
mod repeat;
mod report;
mod rerun;
mod restore;
mod run;
mod schedule;
mod unavailable;

pub use crate::observation::job::{
    Change, ChangedPage, ForcedOrder, Hit, Moment, Search, Seen, WatchedRange, WriteSet, Writer,
    Writes, Written,
};
pub use call_image::CallImage;
pub use cutape_driver::{LocateError, locate};
pub use cutape_sandbox::Permissions;
pub use error::Error;
pub use guard::group::{Rank, rerun_ranks, run_ranks};
pub use guard::session::{Session, SessionError};
pub use guard::{
    Guard, Measurements, observe_as_child, observe_guarded, rerun_as_child, rerun_guarded,
    run_as_child, run_guarded, serve_as_child, trace_as_child,
};
pub use host_files::{CallsOf, HostFiles};
pub use measure::timing::Measuring;
pub use measure::tracer::{CallTracer, Tracer};
pub use observation::job::{
    ArrayShape, MemoryKind, Moments, Observation, Observed, ObservedCall, ObservedLaunch,
    ObservedMemory, ObservedTexture, Piece, Reach,
};
pub use observation::session::Stop;
pub use observation::watch::EXACT;
pub use options::{
    DigestedLaunches, GivenInput, Options, Outputs, ReplacedImage, Selection, TakeOutput,
};
pub use plan::needs::{ImageUse, MissingBytes, Needs, PeerAccess};
pub use plan::{HostRegion, Plan, Unreplayable, plan};
pub use process::allocator::Allocator;
pub use process::lesson::{Lesson, Misplaced};
pub use process::strategy::PlacementStrategy;
pub use ranks::origins::Alone;
pub use ranks::peers::Peers;
pub use repeat::{OneReplay, Repeat, run_repeated};
pub use report::text::notes_text;
pub use report::{
    AssumedHandle, Consequence, CurrentCall, Died, Difference, DifferingRange, DigestCounts,
    Divergence, ErrorCause, ExchangeCounts, LaunchDifference, LaunchMemory, LaunchOutputs,
    LaunchValues, LeftOutExchange, MemoryPieces, MissingOutput, PendingCall, PendingStream, Placed,
    PutDuringWait, ReplacedInput, Report, SavedOutput, Skipped, Span, Stale, Timing, Translated,
    Verdict, What,
};
pub use rerun::{
    Applied, Clock, Differing, Element, Job, Measure, Measured, Mismatch, Other, Outcome,
    Replacement, Shape, Subject, Tolerance, Tried, WhatIf, Work, compare,
};
pub use run::replay;
