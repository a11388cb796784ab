//! Kernels of NCCL by name. A name only says which operation a launch belongs to; which processes
//! take part is found by the memory that it reaches.

/// What all names of NCCL's kernels have: `ncclDevKernel_AllReduce_Sum_f32_RING_LL`, and before
/// version 2.19 `ncclKernel_AllReduce_RING_LL_Sum_float`.
const PREFIXES: [&str; 2] = ["ncclDevKernel_", "ncclKernel_"];
/// Operations in which all ranks of a communicator take part (NCCL's manual, Collective
/// Operations). `SendRecv` is between two ranks, and `Generic` may be any of them.
const COLLECTIVES: [&str; 5] = [
    "AllReduce",
    "AllGather",
    "ReduceScatter",
    "Broadcast",
    "Reduce",
];

/// What a kernel of NCCL does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation<'n> {
    /// All ranks launch it; the name without what mangling adds.
    Collective(&'n str),
    /// It need not be the same in all ranks.
    Other,
}

/// What a kernel does, by its name in the image; `None` if it is not one of NCCL.
pub(super) fn operation(name: &str) -> Option<Operation<'_>> {
    let found = PREFIXES.iter();
    let (at, prefix) = found
        .filter_map(|prefix| Some((name.find(prefix)?, prefix)))
        .min()?;
    let (before, own) = name.split_at(at);
    // Mangled, the length of the name is in front of it.
    let digits = before.len() - before.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let length = before.get(before.len() - digits..)?.parse().ok();
    let own = length.and_then(|length| own.get(..length)).unwrap_or(own);
    let word = own.strip_prefix(prefix)?.split('_').next()?;
    Some(match COLLECTIVES.contains(&word) {
        true => Operation::Collective(own),
        false => Operation::Other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let reduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";
        let old = "ncclKernel_AllGather_RING_LL_Sum_int8_t";
        for (name, expected) in [
            (reduce, Some(Operation::Collective(reduce))),
            (
                "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE",
                Some(Operation::Collective(reduce)),
            ),
            (old, Some(Operation::Collective(old))),
            ("ncclDevKernel_SendRecv", Some(Operation::Other)),
            ("ncclDevKernel_Generic", Some(Operation::Other)),
            ("ncclDevKernel_", Some(Operation::Other)),
            ("my_all_reduce", None),
            ("", None),
        ] {
            assert_eq!(operation(name), expected, "{name}");
        }
    }
}
