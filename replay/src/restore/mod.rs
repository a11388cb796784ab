//! Puts the contents of memory as the recorded call found them, and waits for work that may still
//! write there.
//!
//! `host_memory` puts what the program wrote where the device has not: `writer` says who has
//! written what changed, `found` which of two looks was the later one, `put_parts` what is put and
//! what is doubtful, `put_shared` maps host memory that ranks share. `marked_launches` marks
//! launches that may wait for such bytes, and `awaited_host_signals` waits for work that signals
//! the program. `memory_contents` puts what a cut trace stores in place of earlier calls.

mod awaited_host_signals;
pub(crate) mod found;
pub(crate) mod host_memory;
mod marked_launches;
mod memory_contents;
mod put_parts;
mod put_shared;
pub(crate) mod writer;
