//! How calls of the program reach our entries.
//!
//! - *preload*: the loader finds us by name in the place of libcuda; our `dlopen` redirects paths
//!   of libcuda to us.
//! - *audit*: an auditing library redirects every search for libcuda to us, whatever name, path or
//!   namespace it is for.
//! - *gum*: as preload; in addition, the driver's own functions are patched to jump to our entries,
//!   so that every caller is recorded. A namespace of its own (`dlmopen`) is not patched.
//!
//! With each backend, programs that are started with another environment get the injected variables
//! (`exec`), and a call arrives at the same entry and is passed on to `driver::target`, so that the
//! records are the same.

mod exec;
#[cfg(feature = "gum")]
mod gum;
mod next;
pub(crate) mod open;
mod patch;
