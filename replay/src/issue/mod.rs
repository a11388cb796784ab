//! How one call is issued again: its arguments, its handles, and what its function asks for.

pub(crate) mod awaited;
pub(crate) mod current;
pub(crate) mod fill;
pub(crate) mod frame;
pub(crate) mod handles;
pub(crate) mod host_bytes;
pub(crate) mod issuer;
pub(crate) mod kernels;
pub(crate) mod length;
pub(crate) mod marshal;
pub(crate) mod player;
pub(crate) mod skip;
pub(crate) mod stream;
pub(crate) mod stream_capture;
pub(crate) mod structs;
pub(crate) mod tokens;
pub(crate) mod traits;
pub(crate) mod types;
