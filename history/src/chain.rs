//! From the last write of some bytes back to what was written before it.

use std::collections::BTreeSet;

use cutape_analyzer::decode::function_of;
use cutape_format::Trace;
use cutape_model::Operands;
use cutape_render::quantity;
use cutape_replay::{Change, Moment, Observation, Observed, Report, Seen, WatchedRange, Writer};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::calls::{CallFacts, facts};
use crate::exact::{BUDGET, exact_observation, set_exact};
use crate::target::Bytes;

/// Of memory that a kernel's parameter points at, that many bytes are watched: which ones the kernel
/// reads is not known.
const WINDOW: u64 = 4096;
/// The most memory that a kernel's parameter leads to, if the written byte lies far from the start.
const LONGEST: u64 = 64 << 10;
/// The most inputs of one write.
const MOST_INPUTS: usize = 16;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The bytes.
    pub bytes: Bytes,
    /// The last changes before this call are wanted; `None`: before the end.
    pub before: Option<u64>,
    /// How many writes back: 1 is the last writer alone, 2 those of its inputs too.
    pub depth: u32,
    /// How many changes of the bytes are listed.
    pub most: usize,
}

/// A change of some bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Write {
    /// The change, as a replay saw it.
    #[serde(flatten)]
    pub change: Change,
    /// Its call.
    pub by_call: CallFacts,
}

/// What is known of some bytes at a moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The first byte, as recorded.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// The memory that they lie in, e.g. `memory#3+0x40`.
    pub label: Option<String>,
    /// Before which call; `None`: at the end.
    pub before: Option<u64>,
    /// How often they changed, the beginning and the end of their memory included.
    pub changes: u64,
    /// The last changes, the last one first.
    pub writes: Vec<Write>,
    /// What the last writer read.
    pub inputs: Vec<Input>,
}

impl Answer {
    /// The last changes, as far back as the beginning of the memory that had the bytes last.
    pub fn of_last_memory(&self) -> &[Write] {
        let is_begin = |write: &Write| write.change.by == Writer::Begins;
        let begin = self.writes.iter().position(is_begin);
        let end = begin.map_or(self.writes.len(), |begin| begin + 1);
        self.writes.get(..end).unwrap_or_default()
    }
}

/// Something that the last writer read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Input {
    /// The parameter of the kernel that points there; `None` for what a copy reads.
    pub parameter: Option<u32>,
    /// Who wrote it.
    #[serde(flatten)]
    pub answer: Answer,
}

/// Bytes to be found, and where the answer belongs.
struct Wanted {
    bytes: Bytes,
    until: Option<Moment>,
    /// The place of the answer whose input it is, in the level before.
    of: usize,
    parameter: Option<u32>,
}

/// Asks; `observe` replays the trace with what it is given. Also returns what was not looked at.
///
/// # Errors
/// Those of the replay.
pub fn ask<E>(
    trace: &Trace,
    question: &Question,
    observe: &mut dyn FnMut(Observation) -> Result<Observed, E>,
) -> Result<(Answer, Vec<String>), E> {
    let mut levels: Vec<Vec<(Wanted, Seen)>> = Vec::new();
    let mut left_out = Vec::new();
    let mut wanted = vec![Wanted {
        bytes: question.bytes,
        until: question.before.map(|call| (call, 0)),
        of: 0,
        parameter: None,
    }];
    for depth in 0..question.depth.max(1) {
        let observed = observe(observation(question, &wanted))?;
        left_out.extend(observed.not_watched);
        left_out.extend(divergence(&observed.report));
        let mut level: Vec<_> = wanted.into_iter().zip(observed.watched).collect();
        for (wanted, seen) in &mut level {
            let address = wanted.bytes.address;
            let changes: Vec<_> = seen.last.iter().map(|change| (address, change)).collect();
            if let Some(asked) = exact_observation(&changes, BUDGET) {
                let exact = observe(asked)?;
                left_out.extend(exact.not_watched.iter().cloned());
                for change in &mut seen.last {
                    set_exact(address, change, &exact);
                }
            }
        }
        wanted = match depth + 1 < question.depth {
            true => inputs(trace, &level),
            false => Vec::new(),
        };
        levels.push(level);
        if wanted.is_empty() {
            break;
        }
    }
    left_out.sort();
    left_out.dedup();
    Ok((joined(trace, levels), left_out))
}

/// Says that a replay was not as the recording.
pub(crate) fn divergence(report: &Report) -> Option<String> {
    let count = quantity::count(report.divergence_count, "divergence");
    (report.divergence_count > 0).then(|| {
        format!("the replay differs from the recording ({count}): `cutape replay` shows it")
    })
}

fn observation(question: &Question, wanted: &[Wanted]) -> Observation {
    let watched = wanted.iter().map(|wanted| WatchedRange {
        address: wanted.bytes.address,
        length: wanted.bytes.length,
        until: wanted.until,
    });
    let ends = wanted.iter().map(|wanted| {
        let (call, place) = wanted.until?;
        Some(call + u64::from(place > 0))
    });
    let until = ends.collect::<Option<Vec<u64>>>();
    Observation {
        watched: watched.collect(),
        most_changes: question.most.max(2),
        until: until.and_then(|ends| ends.into_iter().max()),
        ..Observation::default()
    }
}

/// The last change that wrote the bytes.
fn last_write(seen: &Seen) -> Option<&Change> {
    let mut changes = seen.last.iter().rev();
    changes.find(|change| change.by != Writer::Ends)
}

/// What the last writers of a level have read.
fn inputs(trace: &Trace, level: &[(Wanted, Seen)]) -> Vec<Wanted> {
    let is_copy = |change: &Change| change.by == Writer::Call && change.pointers.is_empty();
    let copies: BTreeSet<u64> = level
        .iter()
        .filter_map(|(_, seen)| last_write(seen))
        .filter(|change| is_copy(change))
        .map(|change| change.call)
        .collect();
    let mut reads: FxHashMap<u64, Vec<Bytes>> = FxHashMap::default();
    if let Some(&last) = copies.last() {
        for call in trace.calls().take_while(|call| call.index <= last) {
            if copies.contains(&call.index)
                && let Some(function) = function_of(call.signature)
            {
                let read = Operands::of(function, &call);
                let read = read.reads().filter(|read| !read.is_empty());
                let read = read.map(|read| Bytes {
                    address: read.start,
                    length: read.end - read.start,
                });
                reads.insert(call.index, read.collect());
            }
        }
    }
    let mut wanted = Vec::new();
    for (of, (target, seen)) in level.iter().enumerate() {
        let Some(change) = last_write(seen) else {
            continue;
        };
        let until = Some(change.by.moment(change.call));
        let mut add = |bytes, parameter| {
            wanted.push(Wanted {
                bytes,
                until,
                of,
                parameter,
            });
        };
        // A call of others in the level may be a copy: what it reads says nothing of a change by
        // CPU code before it.
        let read = reads.get(&change.call).filter(|_| is_copy(change));
        for &bytes in read.into_iter().flatten() {
            add(bytes, None);
        }
        for (parameter, bytes) in pointees(change, target.bytes) {
            add(bytes, Some(parameter));
        }
    }
    wanted
}

/// What the parameters of a kernel point at that has written some bytes: of each from its start to
/// as far as the bytes lie from the start of the memory that the kernel wrote.
fn pointees(change: &Change, written: Bytes) -> Vec<(u32, Bytes)> {
    let starts = change.pointers.iter().map(|&(_, address)| address);
    let nearest = starts.filter(|&start| start <= written.address).max();
    let offset = nearest.map_or(0, |start| written.address - start);
    let length = (offset.saturating_add(written.length)).clamp(WINDOW, LONGEST);
    let mut seen = BTreeSet::new();
    let pointers = change.pointers.iter();
    let pointers = pointers.filter(|&&(_, address)| seen.insert(address));
    let pointees = pointers.map(|&(parameter, address)| (parameter, Bytes { address, length }));
    pointees.take(MOST_INPUTS).collect()
}

/// Joins the levels to one answer.
fn joined(trace: &Trace, mut levels: Vec<Vec<(Wanted, Seen)>>) -> Answer {
    let all = levels.iter().flatten();
    let calls = all.clone().flat_map(|(_, seen)| &seen.last);
    let of_calls = facts(trace, calls.map(|change| change.call).collect());
    let addresses =
        all.map(|(wanted, _)| (wanted.until.map(|until| until.0), wanted.bytes.address));
    let labels = of_calls.label(trace, addresses.collect());
    let mut below: Vec<(usize, Input)> = Vec::new();
    while let Some(level) = levels.pop() {
        let mut inputs = std::mem::take(&mut below).into_iter().peekable();
        for (place, (wanted, seen)) in level.into_iter().enumerate() {
            let mut own = Vec::new();
            while let Some((_, input)) = inputs.next_if(|(of, _)| *of == place) {
                own.push(input);
            }
            let before = wanted.until.map(|until| until.0);
            let answer = Answer {
                address: wanted.bytes.address,
                length: wanted.bytes.length,
                label: labels.get(&(before, wanted.bytes.address)).cloned(),
                before,
                changes: seen.count,
                writes: seen
                    .last
                    .into_iter()
                    .rev()
                    .map(|change| Write {
                        by_call: of_calls.of(change.call),
                        change,
                    })
                    .collect(),
                inputs: own,
            };
            let parameter = wanted.parameter;
            below.push((wanted.of, Input { parameter, answer }));
        }
    }
    let root = below.pop().map(|(_, input)| input.answer);
    root.unwrap_or_else(|| Answer {
        address: 0,
        length: 0,
        label: None,
        before: None,
        changes: 0,
        writes: Vec::new(),
        inputs: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use cutape_format::{NewCall, TraceBuilder};
    use cutape_render::test_trace;

    use super::*;

    #[test]
    fn parameters_lead_as_far_as_the_written_bytes_lie() {
        let change = |pointers: &[(u32, u64)]| Change {
            pointers: pointers.to_vec(),
            ..Change::default()
        };
        let written = |address| Bytes { address, length: 4 };
        let bytes = |address, length| Bytes { address, length };
        for (pointers, address, expected) in [
            (&[][..], 0x1000, vec![]),
            (
                &[(1, 0x1000), (2, 0x9000), (3, 0x1000)],
                0x1010,
                vec![(1, bytes(0x1000, WINDOW)), (2, bytes(0x9000, WINDOW))],
            ),
            (&[(0, 0x1000)], 0x4000, vec![(0, bytes(0x1000, 0x3004))]),
            (&[(0, 0x9000)], 0x1000, vec![(0, bytes(0x9000, WINDOW))]),
            (&[(0, 0)], 1 << 40, vec![(0, bytes(0, LONGEST))]),
        ] {
            assert_eq!(pointees(&change(pointers), written(address)), expected);
        }
    }

    #[test]
    fn only_what_a_copy_wrote_comes_from_what_it_reads() {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        builder
            .call(NewCall {
                name: "cuMemcpyDtoD_v2",
                arguments: &[0x1000, 0x5000, 8],
                ..NewCall::default()
            })
            .leave(0, 0, &[]);
        let trace = test_trace::open(&builder, "history-inputs");
        let level: Vec<_> = [Writer::Call, Writer::Host, Writer::Begins]
            .into_iter()
            .map(|by| {
                let bytes = Bytes {
                    address: 0x1000,
                    length: 8,
                };
                let wanted = Wanted {
                    bytes,
                    until: None,
                    of: 0,
                    parameter: None,
                };
                let seen = Seen {
                    last: [Change {
                        by,
                        ..Change::default()
                    }]
                    .into(),
                    ..Seen::default()
                };
                (wanted, seen)
            })
            .collect();
        let found = inputs(&trace, &level);
        let found: Vec<_> = found.iter().map(|one| (one.of, one.bytes)).collect();
        let read = Bytes {
            address: 0x5000,
            length: 8,
        };
        assert_eq!(found, [(0, read)]);
    }
}
