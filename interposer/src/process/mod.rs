//! The process that we are in: its environment, memory, `errno`, standard error.

mod allocator;
pub(crate) mod env;
pub(crate) mod errno;
pub(crate) mod known_file;
pub(crate) mod log;
pub(crate) mod memory;
pub(crate) mod process_lock;
pub(crate) mod readable;
pub(crate) mod regular_file;
pub(crate) mod settings;
