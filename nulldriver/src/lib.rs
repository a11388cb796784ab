//! A software libcuda.so.1 for machines without a GPU.
//!
//! Every function name of the registry is exported. What is implemented stands in one file a section of the CUDA
//! driver API manual (`context`, `module`, `memory` ...), as a table `ENTRIES` of names and Rust functions; what is not
//! answers `CUDA_ERROR_NOT_SUPPORTED`. One implementation serves all ABI variants whose parameters are the same.
//!
//! Everything that is enqueued is done at once, so streams and events are always complete; a launch is checked, its
//! parameters are read, and no code runs. Device memory is real: copies move bytes. A device address is reserved but
//! not accessible to the CPU, like on the real driver; the bytes lie elsewhere.
//!
//! Not there (NOT_SUPPORTED): IPC, graphics interop, multicast, sparse arrays, decompression, log callbacks; of graphs,
//! loops under a condition, waits for values, external semaphores, and launches from the device. A texture or surface has a
//! handle and is checked, but no code runs that could look through it. `cuGetExportTable` knows no table, so programs of the
//! CUDA runtime do not start. What only running code would show (ILLEGAL_ADDRESS, NOT_READY, a wait for a value that comes
//! later) cannot be shown.
//!
//! Invariant: it is never more forgiving than the real driver. Where misuse crashes the real driver, it crashes here.
//!
//! Settings (environment): `CUTAPE_NULL_FAIL`, `CUTAPE_NULL_DELAY`, `CUTAPE_NULL_CRASH`, `CUTAPE_NULL_VERSION`,
//! `CUTAPE_NULL_DEVICES`, `CUTAPE_NULL_MEMORY`; their grammar stands in `settings.rs`.

mod address;
mod answer;
mod argument;
mod array;
mod batch;
mod capture;
mod context;
mod copy;
mod crash;
mod device;
mod dispatch;
mod entry_point;
mod error;
mod event;
mod export;
mod function;
mod graph;
mod graph_exec;
mod graph_node;
mod graph_work;
mod green;
mod handle;
mod hint;
mod host_call;
mod image;
mod jit;
mod launch;
mod launch_attribute;
mod legacy_launch;
mod library;
mod link;
mod memory;
mod memset;
mod module;
mod occupancy;
mod physical;
mod pointer;
mod pool;
mod primary;
mod settings;
mod state;
mod stream;
mod tensor_map;
mod texture;
mod texture_reference;
mod user_object;
mod virtual_memory;

pub use export::address_of;

/// By this symbol a recorder and a replayer tell that the driver is this one. Its value means nothing.
#[unsafe(no_mangle)]
#[allow(
    non_upper_case_globals,
    reason = "named like the functions beside which it is exported"
)]
pub static cutape_null_driver_marker: u32 = 1;
