//! What calls need: for each call, the calls that created its operands, changed them, wrote the
//! memory that it reads, or order its work.
//!
//! [`NeedsBuilder::of_chosen`] keeps the needs only of calls that may still be needed, so that memory
//! is bounded by what lives and what is chosen. [`NeedsBuilder::of_state`] leaves out what calls need
//! of memory that is restored, and finds the memory that a part of the trace reads as the calls
//! before it left it.
//!
//! A launch may read and write all of every allocation that its parameters point into, and what
//! recorded bytes in these allocations point to. Pointers that kernels write are not followed.

mod builder;
mod changes;
mod changing;
mod contents;
mod last_changes;
mod last_waits;
mod live;
mod operands;
mod reads;
mod table;
mod waits;
mod work;

pub use builder::{NeedsBuilder, ReadBytes};
pub use operands::Operands;
pub(crate) use operands::Touch;
pub use reads::{MemoryReads, PartReads};
pub use table::{Need, Needs};
