//! The rank of this process in a parallel program, from the variables of its launcher.

use std::ffi::CStr;

use cutape_format::rank;

use super::env;

/// The rank, as digits.
pub(crate) fn rank() -> Option<Vec<u8>> {
    rank::rank(variable)
}

/// The rank on this machine, as digits.
pub(crate) fn local_rank() -> Option<Vec<u8>> {
    rank::local_rank(variable)
}

/// The number in the name of the trace.
pub(crate) fn in_name() -> Option<Vec<u8>> {
    rank::in_name(variable)
}

fn variable(name: &CStr) -> Option<Vec<u8>> {
    Some(env::variable(name)?.into_bytes())
}
