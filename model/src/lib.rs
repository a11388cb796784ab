//! The driver's state as a sequence of calls shows it: objects, memory, and the order of work.
//!
//! [`Objects`] is a table of handles, [`IntervalMap`] and [`Memory`] map addresses, [`Order`] knows
//! which work a wait proves complete. Each serves alone. [`State`] joins them: it applies what
//! [`Effects`] reads in the registry.
//!
//! Invariant: what no call has shown is unknown, never guessed. A table forgets ended objects by
//! its [`Retention`], so memory is bounded by the live objects or by the distinct handles, not by
//! the length of the trace.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)
)]

mod accesses;
mod captures;
mod context_calls;
mod contexts;
mod copied;
mod effects;
mod gap;
mod graphs;
mod host_writes;
mod kinds;
mod launch_shape;
mod memory;
mod memory_kind;
mod needs;
mod objects;
mod order;
mod pending_work;
mod private_functions;
mod sharing;
mod site;
mod state;
mod stream_values;
mod trace_state;
mod virtual_memory;
mod words;
mod work;
mod work_order;

pub use accesses::{Access, AccessEffect, AccessKind, Accesses};
pub use captures::{Capture, CapturePoint, CapturedStream, Captures};
pub use contexts::{ContextStacks, Contexts, Current, LeftPushes};
pub use copied::{
    Copied, DescribedAccess, Side, described_accesses, described_accesses_in, described_side,
    described_sources, each_copy, filled_bytes,
};
pub use effects::{CallArguments, Effect, Effects};
pub use gap::{Gaps, MemoryGaps, gap_of};
pub use graphs::{
    AUTO_FREE_ON_LAUNCH, DEVICE_LAUNCH, Exec, Graph, GraphMemory, Graphs, KernelWork, Node,
    NodeAllocation, Operand, Rejected, UserObjectState, Work, instantiate_flags, node_array,
    node_arrays,
};
pub use host_writes::{
    Answers, CompletedBy, CompletedWrite, HostWrites, PendingWrite, looked, looked_before,
};
pub use kinds::Kinds;
pub use launch_shape::LaunchShape;
pub use memory::{IntervalMap, Memory, Place};
pub use memory_kind::MemoryKind;
pub use needs::{MemoryReads, Need, Needs, NeedsBuilder, Operands, PartReads, ReadBytes};
pub use objects::{End, Lookup, NewObject, Object, ObjectId, Objects, Origin, Retention};
pub use order::{Clock, Order, StreamKey, StreamKind};
pub use pending_work::{
    HostWait, PendingKind, PendingStream, PendingWork, Proof, QueuedWork, StickyFailure,
};
pub use private_functions::kinds_of_origin;
pub use sharing::{
    Evidence, Exchange, ExchangeBuilder, ExchangeSite, Exchanges, HostChanges, Identity, Link,
    MappedFile, RefusedImport, Sharing,
};
pub use site::Site;
pub use state::{
    Changes, ContextData, Data, EVENT_DISABLE_TIMING, EVENT_EXTERNAL, EVENT_INTERPROCESS,
    EventData, State, StreamData,
};
pub use stream_values::{
    AwaitedValue, Condition, WrittenValue, awaited_values, may_wait, written_values,
};
pub use trace_state::{Scope, TraceState, function_of};
pub use virtual_memory::{Mapping, VirtualMemory};
