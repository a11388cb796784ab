//! Compares launches by digests of the memory that they can reach.

use cutape_diff::{Aligned, Kind};
use cutape_replay::LaunchMemory;
use rustc_hash::FxHashMap;

/// Which call of B corresponds to one of A.
pub(crate) type Counterparts = FxHashMap<u64, u64>;

/// A launch that writes something else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Launch {
    /// The calls of A and B.
    pub(crate) calls: (u64, u64),
    /// The memory of A that differs before it.
    pub(crate) inputs: Vec<LaunchMemory>,
    /// The memory of A that differs after it, and that it has written in one of the traces.
    pub(crate) outputs: Vec<LaunchMemory>,
    /// Its parameters or its shape differ.
    pub(crate) has_other_arguments: bool,
}

impl Launch {
    /// Whether it had the same inputs.
    pub(crate) fn is_introduced(&self) -> bool {
        self.inputs.is_empty() && !self.has_other_arguments
    }
}

/// What digests say about two replays.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Judged {
    /// Launches that were compared.
    pub(crate) compared: u64,
    /// Those that write something else, in the order of A.
    pub(crate) differing: Vec<Launch>,
    /// Launches of A and B that were digested and have no counterpart.
    pub(crate) only: [u64; 2],
    /// Launches of which digests were not complete.
    pub(crate) incomplete: u64,
}

/// Compares the launches of two replays.
pub(crate) fn judge(
    of_a: &[LaunchMemory],
    of_b: &[LaunchMemory],
    counterparts: &Counterparts,
    aligned: &Aligned,
) -> Judged {
    let by_call = |memory: &LaunchMemory, other: &LaunchMemory| memory.call == other.call;
    let mut in_b: FxHashMap<u64, &[LaunchMemory]> = FxHashMap::default();
    for memory in of_b.chunk_by(by_call) {
        if let Some(first) = memory.first() {
            in_b.insert(first.call, memory);
        }
    }
    let mut judged = Judged::default();
    for memory in of_a.chunk_by(by_call) {
        let Some(first) = memory.first() else {
            continue;
        };
        let other = counterparts.get(&first.call).copied();
        let Some((call_b, other)) = other.and_then(|call| Some((call, in_b.remove(&call)?))) else {
            judged.only[0] += 1;
            continue;
        };
        let is_whole = |memory: &LaunchMemory| memory.before.is_some() && memory.after.is_some();
        if !memory.iter().chain(other).all(is_whole) {
            judged.incomplete += 1;
            continue;
        }
        judged.compared += 1;
        let mut launch = one(memory, other, counterparts);
        if !launch.outputs.is_empty() {
            launch.calls = (first.call, call_b);
            launch.has_other_arguments = has_other_arguments(aligned, first.call);
            judged.differing.push(launch);
        }
    }
    judged.only[1] = in_b.len() as u64;
    judged
}

/// Whether parameters or the shape of a launch differ.
pub(crate) fn has_other_arguments(aligned: &Aligned, call: u64) -> bool {
    const ARGUMENTS: [Kind; 3] = [Kind::Shape, Kind::Argument, Kind::Object];
    let kinds = aligned.kinds.get(&call);
    kinds.is_some_and(|kinds| kinds.iter().any(|kind| ARGUMENTS.contains(kind)))
}

fn one(of_a: &[LaunchMemory], of_b: &[LaunchMemory], counterparts: &Counterparts) -> Launch {
    let mut launch = Launch::default();
    for memory in of_a {
        let made = counterparts.get(&memory.made);
        let same =
            |other: &&LaunchMemory| Some(&other.made) == made && other.offset == memory.offset;
        let Some(other) = of_b.iter().find(same) else {
            // Other memory than in B.
            launch.inputs.push(*memory);
            if memory.before != memory.after {
                launch.outputs.push(*memory);
            }
            continue;
        };
        if memory.before != other.before || memory.length != other.length {
            launch.inputs.push(*memory);
        }
        let is_written = memory.before != memory.after || other.before != other.after;
        if is_written && memory.after != other.after {
            launch.outputs.push(*memory);
        }
    }
    launch
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory that call `made` allocated, with digests before and after.
    fn memory(call: u64, made: u64, digests: (u64, u64)) -> LaunchMemory {
        LaunchMemory {
            call,
            made,
            offset: 0,
            length: 64,
            address: made << 12,
            before: Some(digests.0),
            after: Some(digests.1),
        }
    }

    fn aligned(other_arguments: &[u64]) -> Aligned {
        let arguments = other_arguments
            .iter()
            .map(|&call| (call, vec![Kind::Argument]));
        Aligned {
            // B has one call more before the launches.
            pairs: vec![(1, 1), (2, 2), (10, 11), (12, 13)],
            kinds: arguments.collect(),
        }
    }

    fn found(a: &[LaunchMemory], b: &[LaunchMemory], arguments: &[u64]) -> Judged {
        let aligned = aligned(arguments);
        let counterparts = aligned.pairs.iter().copied().collect();
        judge(a, b, &counterparts, &aligned)
    }

    #[test]
    fn equal_inputs_and_other_outputs_are_introduced() {
        let a = [memory(10, 1, (1, 2)), memory(10, 2, (5, 5))];
        type Row<'a> = (&'a [LaunchMemory], &'a [u64], Option<bool>);
        let rows: [Row<'_>; 7] = [
            (&[memory(11, 1, (1, 2)), memory(11, 2, (5, 5))], &[], None),
            (
                &[memory(11, 1, (1, 3)), memory(11, 2, (5, 5))],
                &[],
                Some(true),
            ),
            // In the other order of addresses.
            (
                &[memory(11, 2, (5, 5)), memory(11, 1, (1, 3))],
                &[],
                Some(true),
            ),
            (
                &[memory(11, 1, (1, 3)), memory(11, 2, (6, 6))],
                &[],
                Some(false),
            ),
            (
                &[memory(11, 1, (1, 3)), memory(11, 2, (5, 5))],
                &[10],
                Some(false),
            ),
            // It reads something else, and writes the same.
            (&[memory(11, 1, (1, 2)), memory(11, 2, (6, 6))], &[], None),
            // It is given other memory.
            (
                &[memory(11, 2, (1, 2)), memory(11, 2, (5, 5))],
                &[],
                Some(false),
            ),
        ];
        for (b, arguments, expected) in rows {
            let judged = found(&a, b, arguments);
            assert_eq!(judged.compared, 1);
            let introduced = judged.differing.first().map(Launch::is_introduced);
            assert_eq!(introduced, expected, "{b:?}");
        }
    }

    #[test]
    fn launches_of_one_trace_and_incomplete_ones_are_counted() {
        let unfinished = LaunchMemory {
            after: None,
            ..memory(13, 1, (1, 2))
        };
        let a = [
            memory(10, 1, (1, 2)),
            memory(12, 1, (1, 2)),
            memory(14, 1, (1, 2)),
        ];
        let b = [memory(11, 1, (1, 2)), unfinished, memory(20, 1, (1, 2))];
        let judged = found(&a, &b, &[]);
        let counts = (judged.compared, judged.incomplete, judged.only);
        assert_eq!(counts, (1, 1, [1, 1]));
    }
}
