//! How one call is issued again: its arguments, its handles, and what its function asks for.

pub(crate) mod current;
pub(crate) mod fill;
pub(crate) mod host_bytes;
pub(crate) mod marshal;
pub(crate) mod player;
pub(crate) mod stream;
pub(crate) mod structs;
