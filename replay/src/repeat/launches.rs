//! Compares what launches write in several replays.

use std::collections::HashMap;

use cutape_format::Trace;

use crate::report::{DifferingRange, LaunchDifference, LaunchOutputs, LaunchValues, MemoryPieces};

/// Finds the launches that differ between replays, and those that differ from the recording in the
/// same way in each.
pub(crate) fn compare(trace: &Trace, replays: &[LaunchValues]) -> LaunchOutputs {
    let mut outputs = compare_values(replays);
    let firsts = [
        &mut outputs.first_differing,
        &mut outputs.first_not_reproduced,
    ];
    for first in firsts.into_iter().flatten() {
        let mut calls = trace.calls();
        if let Some(call) = calls.find(|call| call.index == first.call) {
            first.function = call.signature.name.clone();
        }
    }
    outputs
}

fn compare_values(replays: &[LaunchValues]) -> LaunchOutputs {
    let mut outputs = LaunchOutputs {
        replays: replays.len() as u32,
        ..LaunchOutputs::default()
    };
    let Some((first, others)) = replays.split_first() else {
        return outputs;
    };
    for replay in replays {
        for (reason, &count) in &replay.not_digested {
            let known = outputs.not_digested.entry(reason.clone()).or_default();
            *known = count.max(*known);
        }
    }
    let by_call = |replay: &LaunchValues| replay.values.iter().copied().collect();
    let others_by_call: Vec<HashMap<u64, u64>> = others.iter().map(by_call).collect();
    let of_recording = |replay: &LaunchValues| {
        let differing = replay.differing.iter().cloned();
        differing.collect::<HashMap<u64, Vec<DifferingRange>>>()
    };
    let from_recording: Vec<_> = replays.iter().map(of_recording).collect();
    for &(call, value) in &first.values {
        let received = others_by_call.iter().map(|replay| replay.get(&call));
        let received: Option<Vec<_>> = received.collect();
        let Some(received) = received else { continue };
        outputs.launches += 1;
        let named = |ranges| LaunchDifference::new(call, String::new(), ranges);
        if received.into_iter().any(|&other| other != value) {
            outputs.differing += 1;
            outputs
                .first_differing
                .get_or_insert_with(|| named(Vec::new()));
        } else if from_recording
            .iter()
            .all(|replay| replay.contains_key(&call))
        {
            outputs.not_reproduced += 1;
            outputs.first_not_reproduced.get_or_insert_with(|| {
                let ranges = from_recording.first().and_then(|first| first.get(&call));
                named(ranges.cloned().unwrap_or_default())
            });
        }
    }
    outputs
}

/// Adds where memory differs, from what replays found in pieces of it behind that launch.
pub(crate) fn locate(difference: &mut LaunchDifference, replays: &[Vec<MemoryPieces>]) {
    let Some((first, others)) = replays.split_first() else {
        return;
    };
    let mut ranges = Vec::new();
    for (at, memory) in first.iter().enumerate() {
        let same_memory = |other: &&MemoryPieces| {
            let place = |pieces: &MemoryPieces| (pieces.offset, pieces.length, pieces.piece);
            place(other) == place(memory) && other.memory == memory.memory
        };
        let others = others.iter().filter_map(|other| other.get(at));
        let others: Vec<_> = others.filter(same_memory).collect();
        let mut last = None;
        for (number, digest) in (0..).zip(&memory.digests) {
            let differs = |other: &&MemoryPieces| {
                let other = other.digests.get(number as usize).copied().flatten();
                digest.is_some() && other.is_some() && *digest != other
            };
            if !others.iter().copied().any(|other| differs(&other)) {
                continue;
            }
            let offset = number * memory.piece;
            let length = memory.piece.min(memory.length - offset);
            match ranges.last_mut() {
                Some(DifferingRange { length: known, .. }) if last == Some(number) => {
                    *known += length;
                }
                _ => ranges.push(DifferingRange {
                    memory: memory.memory.clone(),
                    offset: memory.offset + offset,
                    length,
                }),
            }
            last = Some(number + 1);
        }
    }
    let function = std::mem::take(&mut difference.function);
    *difference = LaunchDifference::new(difference.call, function, ranges);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(values: &[(u64, u64)], differing: &[u64]) -> LaunchValues {
        let range = |call| DifferingRange {
            memory: "memory".to_owned(),
            offset: call,
            length: 8,
        };
        LaunchValues {
            values: values.to_vec(),
            differing: differing
                .iter()
                .map(|&call| (call, vec![range(call)]))
                .collect(),
            ..LaunchValues::default()
        }
    }

    #[test]
    fn the_first_launches_that_differ_are_found() {
        // Between replays; from the recording in each.
        type Row<'a> = (&'a [LaunchValues], u64, Option<u64>, Option<u64>);
        let same = [(3, 1), (5, 2), (9, 3)];
        let table: [Row<'_>; 6] = [
            (&[], 0, None, None),
            (&[values(&same, &[]), values(&same, &[])], 3, None, None),
            (
                &[values(&same, &[]), values(&[(3, 1), (5, 7), (9, 8)], &[])],
                3,
                Some(5),
                None,
            ),
            (
                &[values(&same, &[5, 9]), values(&same, &[5, 9])],
                3,
                None,
                Some(5),
            ),
            // As recorded in one of them, and different in another.
            (
                &[
                    values(&same, &[9]),
                    values(&[(3, 7), (5, 2), (9, 3)], &[3, 9]),
                ],
                3,
                Some(3),
                Some(9),
            ),
            // Not digested in all of them.
            (&[values(&same, &[]), values(&[(5, 2)], &[])], 1, None, None),
        ];
        for (replays, launches, differing, not_reproduced) in table {
            let outputs = compare_values(replays);
            assert_eq!(outputs.launches, launches, "{replays:?}");
            let call = |found: &Option<LaunchDifference>| found.as_ref().map(|found| found.call);
            assert_eq!(call(&outputs.first_differing), differing, "{replays:?}");
            let first = &outputs.first_not_reproduced;
            assert_eq!(call(first), not_reproduced, "{replays:?}");
            if let (Some(first), Some(call)) = (first, not_reproduced) {
                assert_eq!(first.ranges[0].offset, call);
            }
        }
    }

    #[test]
    fn differing_pieces_that_touch_are_one_range() {
        let pieces = |digests: &[u64]| {
            let digests = digests
                .iter()
                .map(|&digest| Some(digest).filter(|&found| found > 0));
            vec![MemoryPieces {
                memory: "memory".to_owned(),
                offset: 256,
                length: 70,
                piece: 16,
                digests: digests.collect(),
            }]
        };
        type Row<'a> = (&'a [&'a [u64]], &'a [(u64, u64)]);
        let table: [Row<'_>; 5] = [
            (&[&[1, 1, 1, 1, 1], &[1, 1, 1, 1, 1]], &[]),
            (
                &[&[1, 1, 1, 1, 1], &[2, 2, 1, 1, 2]],
                &[(256, 32), (320, 6)],
            ),
            (
                &[&[1, 1, 1, 1, 1], &[1, 1, 1, 1, 1], &[1, 2, 1, 1, 1]],
                &[(272, 16)],
            ),
            // 0: not complete.
            (&[&[1, 0, 1, 1, 1], &[1, 2, 0, 1, 1]], &[]),
            (&[], &[]),
        ];
        for (replays, expected) in table {
            let replays: Vec<_> = replays.iter().map(|digests| pieces(digests)).collect();
            let mut difference = LaunchDifference::new(3, "cuLaunchKernel".to_owned(), vec![]);
            locate(&mut difference, &replays);
            let found = difference
                .ranges
                .iter()
                .map(|range| (range.offset, range.length));
            assert_eq!(found.collect::<Vec<_>>(), expected, "{replays:?}");
            assert_eq!(difference.function, "cuLaunchKernel");
        }
    }
}
