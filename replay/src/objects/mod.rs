//! Live objects by recorded ones: handles, kernels and their parameters, captures; and why one is
//! missing.

pub(crate) mod handles;
pub(crate) mod kernels;
pub(crate) mod skip;
pub(crate) mod stream_capture;
