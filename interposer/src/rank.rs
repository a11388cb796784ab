//! Which of the processes of a parallel program this is, as its launcher has put it into the environment.

use std::ffi::CStr;

use crate::settings;

/// The number among all processes: torchrun, Open MPI, Slurm.
const RANK: [&CStr; 3] = [c"RANK", c"OMPI_COMM_WORLD_RANK", c"SLURM_PROCID"];
/// The number among those of this machine.
const LOCAL_RANK: [&CStr; 3] = [
    c"LOCAL_RANK",
    c"OMPI_COMM_WORLD_LOCAL_RANK",
    c"SLURM_LOCALID",
];
/// More digits are no rank.
const MOST_DIGITS: usize = 9;

/// The rank, as digits.
pub(crate) fn rank() -> Option<Vec<u8>> {
    first(&RANK)
}

/// The rank on this machine, as digits.
pub(crate) fn local_rank() -> Option<Vec<u8>> {
    first(&LOCAL_RANK)
}

/// The number by which the trace is named: the local one if there is no other.
pub(crate) fn in_name() -> Option<Vec<u8>> {
    rank().or_else(local_rank)
}

fn first(names: &[&CStr]) -> Option<Vec<u8>> {
    names.iter().find_map(|name| {
        let value = settings::variable(name)?.into_bytes();
        (value.len() <= MOST_DIGITS && value.iter().all(u8::is_ascii_digit)).then_some(value)
    })
}
