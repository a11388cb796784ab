//! The rank of a process in a parallel program, from the variables of its launcher. It becomes part
//! of the trace's name, and its meta entries `rank` and `rank.local`.

use core::ffi::CStr;

/// Variables with the rank among all processes, the first one wins: torchrun and others; Open MPI;
/// MPICH, Intel MPI and others with the process manager interface (PMI); PMIx; Slurm. Slurm is
/// last, because it may have started another launcher.
const RANK: [&CStr; 5] = [
    c"RANK",
    c"OMPI_COMM_WORLD_RANK",
    c"PMI_RANK",
    c"PMIX_RANK",
    c"SLURM_PROCID",
];
/// Variables with the rank among the processes of this machine.
const LOCAL_RANK: [&CStr; 4] = [
    c"LOCAL_RANK",
    c"OMPI_COMM_WORLD_LOCAL_RANK",
    c"MPI_LOCALRANKID",
    c"SLURM_LOCALID",
];
/// Number of processes that `srun` has started at once. A batch script and its children have a
/// SLURM_PROCID, too, but not this one (seen with Slurm 22.05).
const SLURM_TASKS: &CStr = c"SLURM_STEP_NUM_TASKS";
/// A number with more digits is no rank.
const MOST_DIGITS: usize = 9;

/// The rank, as digits. `variable` looks a variable up.
pub fn rank<V: AsRef<[u8]>>(variable: impl Fn(&CStr) -> Option<V>) -> Option<V> {
    first(&RANK, &variable)
}

/// The rank on this machine, as digits.
pub fn local_rank<V: AsRef<[u8]>>(variable: impl Fn(&CStr) -> Option<V>) -> Option<V> {
    first(&LOCAL_RANK, &variable)
}

/// The rank in the name of the trace, as digits: the local one if there is no other.
pub fn in_name<V: AsRef<[u8]>>(variable: impl Fn(&CStr) -> Option<V>) -> Option<V> {
    first(&RANK, &variable).or_else(|| first(&LOCAL_RANK, &variable))
}

/// Whether a text is a rank: one to nine digits.
pub fn is_rank(text: &[u8]) -> bool {
    (1..=MOST_DIGITS).contains(&text.len()) && text.iter().all(u8::is_ascii_digit)
}

fn first<V: AsRef<[u8]>>(names: &[&CStr], variable: impl Fn(&CStr) -> Option<V>) -> Option<V> {
    names.iter().find_map(|name| {
        let value = variable(name).filter(|value| is_rank(value.as_ref()))?;
        let counts = !name.to_bytes().starts_with(b"SLURM_")
            || variable(SLURM_TASKS).is_some_and(|tasks| tasks.as_ref() != b"1");
        counts.then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_short_numbers() {
        for (text, expected) in [
            ("0", true),
            ("123456789", true),
            ("1234567890", false),
            ("", false),
            ("-1", false),
            ("1a", false),
        ] {
            assert_eq!(is_rank(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn what_launchers_say() {
        type Environment<'a> = &'a [(&'a str, &'a str)];
        let torchrun: Environment<'_> = &[("RANK", "5"), ("LOCAL_RANK", "1")];
        let batch: Environment<'_> = &[("SLURM_PROCID", "0"), ("SLURM_LOCALID", "0")];
        for (what, environment, rank, local) in [
            ("nothing", &[][..], None, None),
            ("torchrun", torchrun, Some("5"), Some("1")),
            (
                "Open MPI in a batch script",
                &[
                    batch[0],
                    batch[1],
                    ("PMIX_RANK", "3"),
                    ("OMPI_COMM_WORLD_RANK", "3"),
                    ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
                ],
                Some("3"),
                Some("1"),
            ),
            (
                "MPICH in a batch script",
                &[
                    batch[0],
                    batch[1],
                    ("PMI_RANK", "2"),
                    ("MPI_LOCALRANKID", "0"),
                ],
                Some("2"),
                Some("0"),
            ),
            (
                "srun",
                &[
                    ("SLURM_PROCID", "7"),
                    ("SLURM_LOCALID", "3"),
                    ("SLURM_STEP_NUM_TASKS", "8"),
                ],
                Some("7"),
                Some("3"),
            ),
            (
                "srun with one task",
                &[batch[0], batch[1], ("SLURM_STEP_NUM_TASKS", "1")],
                None,
                None,
            ),
            ("a batch script", batch, None, None),
            ("only a local one", &[("LOCAL_RANK", "2")], None, Some("2")),
            (
                "no number",
                &[("RANK", "first"), ("OMPI_COMM_WORLD_RANK", "4")],
                Some("4"),
                None,
            ),
        ] {
            let variable = |name: &CStr| {
                let (_, value) = environment
                    .iter()
                    .find(|(known, _)| known.as_bytes() == name.to_bytes())?;
                Some(*value)
            };
            assert_eq!(super::rank(variable), rank, "{what}");
            assert_eq!(local_rank(variable), local, "{what}");
            assert_eq!(in_name(variable), rank.or(local), "{what}");
        }
    }
}
