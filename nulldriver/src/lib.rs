//! A software libcuda.so.1 for machines without a GPU.
//!
//! The library exports every function name of the registry. Each layer uses only those above it:
//!
//! | folder | what it holds |
//! |---|---|
//! | `call` | arguments, result codes, and the tables of implementations |
//! | `object` | the types of contexts, modules, memory and so on |
//! | `state` | all objects behind one lock |
//! | `work` | what a stream or a graph does: checked first, then done |
//! | `section` | one file a section of the CUDA driver API manual, with a table `ENTRIES` |
//!
//! `dispatch` gets from an exported symbol (`export`) to its implementation. Without one a function
//! answers `CUDA_ERROR_NOT_SUPPORTED`. One implementation serves all ABI variants with the same
//! parameters.
//!
//! Enqueued work is a queue of tasks with the order that the manual gives them (`object::queue`).
//! `CUTAPE_NULL_SCHEDULE` decides when they run; by default in the call that enqueues them, so that
//! streams and events are complete unless they wait for a value. A launch is checked, its
//! parameters are read, and no code runs, but for some kernels that are known by their names
//! (`work::kernel`). Device memory is real: copies move bytes. A device address is reserved but not
//! accessible to the CPU, like on the real driver; the bytes are elsewhere.
//!
//! NOT_SUPPORTED: fabric handles, external memory, graphics interop, multicast, sparse arrays, decompression, reading the error
//! log; of graphs, loops under a condition, waits for values that device memory does not hold, external semaphores, and launches
//! from the device. A texture or surface has a handle and is checked, but no code runs that could
//! read through it. Of the private tables, the slots of which nothing is known. The driver cannot
//! show what only running code would (ILLEGAL_ADDRESS).
//!
//! Invariant: it is never more forgiving than the real driver. Where misuse crashes the real
//! driver, it crashes here.
//!
//! With `CUTAPE_NULL_PLAY`, `player` answers from a recording (`cutape play`): results, values and what
//! the device computed are recorded ones, handles and addresses this driver's own.
//!
//! Settings (environment): `CUTAPE_NULL_FAIL`, `CUTAPE_NULL_DELAY`, `CUTAPE_NULL_CRASH`,
//! `CUTAPE_NULL_VERSION`, `CUTAPE_NULL_DEVICES`, `CUTAPE_NULL_MEMORY`, `CUTAPE_NULL_CAPABILITY`,
//! `CUTAPE_NULL_NONDETERMINISTIC`, `CUTAPE_NULL_LOG`, `CUTAPE_NULL_SCHEDULE`; see `settings.rs` for
//! their grammar.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod call;
mod crash;
mod dispatch;
mod export;
mod object;
mod player;
mod section;
mod settings;
mod state;
mod work;

pub use export::address_of;

/// By this symbol a recorder and a replayer recognise this driver. Its value means nothing.
#[unsafe(no_mangle)]
#[allow(
    non_upper_case_globals,
    reason = "named like the functions beside which it is exported"
)]
pub static cutape_null_driver_marker: u32 = 1;
