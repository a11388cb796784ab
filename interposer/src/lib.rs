//! The library that poses as libcuda.so.1 and records every call.
//!
//! It lives in other people's programs. Invariants: nothing here panics, installs a signal handler, or holds a lock across a
//! call of the driver; recording a call in steady state makes no system call, allocates nothing and locks nothing; `errno` is
//! left as the driver left it; whatever goes wrong with the recording, the program's calls still reach the driver.

mod arguments;
mod call;
mod clock;
mod cost;
mod driver;
mod enter;
mod entry;
mod errno;
mod fork;
mod forward;
mod graph_copies;
mod hook;
mod host_changes;
mod host_memory;
mod host_places;
mod identity;
mod layouts;
mod leave;
mod log;
mod maps;
mod memory;
mod overrides;
mod pending;
mod plan;
mod process_lock;
mod rank;
mod segments;
mod settings;
mod snapshot;
mod stage;
mod stages;
mod thread;
mod thread_word;
mod trace_file;

/// Tells this library from a real driver: whoever looks for libcuda passes over what exports it.
#[unsafe(no_mangle)]
pub static cutape_interposer_marker: u32 = 1;

/// Run by the loader when the process exits in order: libraries that were loaded late get into the map.
extern "C" fn at_exit() {
    call::at_exit();
}

// SAFETY: an array of function pointers is what the section holds.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;
