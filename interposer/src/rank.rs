//! Which of the processes of a parallel program this is, as its launcher has put it into the environment.

use std::ffi::CStr;

use cutape_format::rank;

use crate::settings;

/// The rank, as digits.
pub(crate) fn rank() -> Option<Vec<u8>> {
    rank::rank(variable)
}

/// The rank on this machine, as digits.
pub(crate) fn local_rank() -> Option<Vec<u8>> {
    rank::local_rank(variable)
}

/// The number by which the trace is named.
pub(crate) fn in_name() -> Option<Vec<u8>> {
    rank::in_name(variable)
}

fn variable(name: &CStr) -> Option<Vec<u8>> {
    Some(settings::variable(name)?.into_bytes())
}
