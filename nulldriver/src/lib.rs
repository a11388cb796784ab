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
//! All work is done when it is enqueued, so streams and events are always complete; a launch is
//! checked, its parameters are read, and no code runs, but for the kernel of cutape's own digests,
//! which is known by its name, and kernels that a setting makes nondeterministic. Device memory is
//! real: copies move bytes. A device address is reserved but not accessible to the CPU, like on the
//! real driver; the bytes are elsewhere.
//!
//! NOT_SUPPORTED: fabric handles, external memory, graphics interop, multicast, sparse arrays, decompression, reading the error
//! log; of graphs, loops under a condition, waits for values that device memory does not hold, external semaphores, and launches
//! from the device. A texture or surface has a handle and is checked, but no code runs that could
//! read through it. `cuGetExportTable` knows no table, so programs of the CUDA runtime do not
//! start. The driver cannot show what only running code would (ILLEGAL_ADDRESS). A stream that waits
//! for a value in host memory waits until the program writes it.
//!
//! Invariant: it is never more forgiving than the real driver. Where misuse crashes the real
//! driver, it crashes here.
//!
//! Settings (environment): `CUTAPE_NULL_FAIL`, `CUTAPE_NULL_DELAY`, `CUTAPE_NULL_CRASH`,
//! `CUTAPE_NULL_VERSION`, `CUTAPE_NULL_DEVICES`, `CUTAPE_NULL_MEMORY`, `CUTAPE_NULL_CAPABILITY`,
//! `CUTAPE_NULL_NONDETERMINISTIC`; see `settings.rs` for their grammar.

mod call;
mod crash;
mod dispatch;
mod export;
mod object;
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
