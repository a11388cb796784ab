//! The library that poses as libcuda.so.1 and records every call.
//!
//! It lives in other people's programs. Invariants: nothing here panics, or holds a lock across a
//! call of the driver; the only signal handler is that of `file::mapping`; recording a call in
//! steady state makes no system call, allocates nothing and locks nothing; `errno` stays as the
//! driver left it; whatever goes wrong with the recording, the program's calls still reach the
//! driver.
//!
//! Begin with `hot`: what happens in a call.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable
    )
)]

mod async_readback;
mod awaited_roles;
mod call_order;
mod conditions;
mod described_copy;
mod device_memory;
mod driver;
mod driver_log;
mod entry_addresses;
mod file;
mod forward;
mod hook;
mod host_functions;
mod host_memory;
mod hot;
mod loaded;
mod markers;
mod overrides;
mod pauses;
mod process;
mod queries;
mod snapshot;
mod stack;
mod start;
mod state;

// SAFETY: an array of function pointers is what the section holds.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = start::at_exit;
