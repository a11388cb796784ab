//! How one call is issued again: its arguments, its handles, and what its function asks for.

pub(crate) mod frame;
pub(crate) mod handles;
pub(crate) mod player;
pub(crate) mod stream_capture;
pub(crate) mod structs;
pub(crate) mod traits;
