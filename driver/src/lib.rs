//! Raw types of the CUDA driver API and the function table of a loaded libcuda.

pub mod digest;
pub mod dirty;
#[cfg(feature = "load")]
mod elf;
#[cfg(feature = "load")]
mod invoke;
#[cfg(feature = "load")]
mod load;
#[cfg(feature = "load")]
mod loader_cache;
#[cfg(feature = "load")]
mod locate;
pub mod mix;

#[cfg(feature = "load")]
pub use invoke::{CallError, PreparedCall};
#[cfg(feature = "load")]
pub use load::{Driver, LoadError};
#[cfg(feature = "load")]
pub use locate::{LocateError, MARKER, is_interposer, locate};

/// Types, enums and struct layouts of the newest headers. Enums are newtypes, because drivers
/// return values that no header has.
#[allow(
    missing_docs,
    unreachable_pub,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    dead_code,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]
#[path = "generated/types.rs"]
#[rustfmt::skip]
pub mod types;
