//! Work that may still write host memory, and where the work of calls may write it.

use std::ops::Range;

use cutape_format::Call;
use cutape_order::Moment;
use cutape_registry::Kind;

use crate::copied::described_targets;
use crate::effects::Effects;
use crate::graphs::{Exec, Work};
use crate::needs::{Operands, Touch};
use crate::state::State;
use crate::stream_values::written_values;

/// Work that may still write host memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingWrite {
    /// Where it may write.
    pub bytes: Range<u64>,
    /// It writes all of these bytes. Otherwise, it may write some of them, or none.
    pub is_exact: bool,
    /// The call that enqueued it.
    pub call: u64,
    /// Its thread, and its number there, unless it launches a kernel.
    pub copy: Option<(u32, u64)>,
    /// When that was entered, in ticks.
    pub entered: Moment,
    /// Streams and events order it before the call that asks. Otherwise, a correct program uses
    /// the bytes only if it knows that they are written.
    pub is_before: bool,
    /// Earlier work of its stream, or of its graph, may still write some of these bytes, and what they
    /// were between is not known.
    pub hides_others: bool,
    /// The call since which the program may know that it is complete, without a call that proves
    /// it: it enqueued a host function or a value in host memory behind the work, or is a wait whose
    /// extent is not known.
    pub known_since: Option<u64>,
}

/// Work that has written host memory.
#[derive(Clone, Debug)]
pub struct CompletedWrite {
    /// What it has written.
    pub write: PendingWrite,
    /// Its stream, by a number; `None` of a call that has done it when it returns.
    pub stream: Option<u32>,
    /// What proves that it is complete.
    pub proof: CompletedBy,
}

/// What proves that work is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletedBy {
    /// That call, at that time, in ticks.
    Call(u64, Moment),
    /// That call, at that time, as well as another which had done so while this one was in progress.
    Also(u64, Moment),
    /// What proves it of the work of that later call, which writes the same bytes.
    With(u64),
    /// No call.
    None,
}

impl PendingWrite {
    /// Whether it may write some of these bytes.
    pub fn overlaps(&self, bytes: &Range<u64>) -> bool {
        self.bytes.start < bytes.end && bytes.start < self.bytes.end
    }
}

/// Host memory that work may write.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) bytes: Range<u64>,
    /// It writes all of these bytes.
    pub(super) is_exact: bool,
    /// Other parts of the work may write some of them.
    pub(super) by_several: bool,
}

/// What a launch of a graph may do.
#[derive(Debug, Default)]
pub(super) struct GraphWrites {
    pub(super) written: Vec<Written>,
    /// It may tell the program that earlier work is complete.
    pub(super) signals: bool,
    /// It may record events.
    pub(super) records_events: bool,
}

/// Where the work of a call, no launch of a graph, writes memory that host and device share.
pub(super) fn of_call(
    state: &State<()>,
    effects: &Effects,
    call: &Call<'_>,
    operands: &Operands,
) -> Vec<Written> {
    let write = |bytes, is_exact| Written {
        bytes,
        is_exact,
        by_several: false,
    };
    let mut writes = Vec::new();
    let mut described = described_targets(effects.function, call);
    let values = written_values(effects.function, call).into_iter();
    described.extend(values.map(|(bytes, _)| (bytes, true)));
    let is_described = !described.is_empty();
    for (bytes, is_exact) in described {
        if state.shared_around(bytes.start).is_some() {
            writes.push(write(bytes, is_exact));
        }
    }
    for touch in operands.touches().iter().filter(|_| !is_described) {
        match touch {
            Touch::Write(bytes) if state.shared_around(bytes.start).is_some() => {
                writes.push(write(bytes.clone(), true));
            }
            &Touch::Any(address) => {
                let around = state.shared_around(address);
                writes.extend(around.map(|bytes| write(bytes, false)));
            }
            _ => {}
        }
    }
    for &word in &operands.words {
        let around = state.shared_around(word);
        writes.extend(around.map(|bytes| write(bytes, false)));
    }
    writes
}

/// What a launch of a graph may do: anything if calls have not shown its nodes.
pub(super) fn of_graph(state: &State<()>, exec: u64) -> GraphWrites {
    const ANYWHERE: Range<u64> = 0..u64::MAX;
    if state.host.live().is_empty() && !state.objects.has_had(Kind::Memory) {
        return GraphWrites::default();
    }
    let exec = state.graphs.exec(exec);
    let Some(active) = exec.and_then(Exec::known_active) else {
        return GraphWrites {
            written: vec![Written {
                bytes: ANYWHERE,
                is_exact: false,
                by_several: false,
            }],
            signals: true,
            records_events: true,
        };
    };
    let records_events = active.iter().any(|(_, work)| matches!(work, Work::Event));
    let mut written = Vec::new();
    let mut signals = false;
    for (_, work) in active {
        signals |= work.signals_host();
        match work {
            Work::Kernel(kernel) => {
                let words = kernel.parameters.as_chunks::<8>().0.iter();
                let words = words.map(|word| u64::from_le_bytes(*word));
                let reached = words.filter_map(|word| state.shared_around(word));
                written.extend(reached.map(|bytes| (bytes, false)));
            }
            Work::Memory(operands) => {
                let targets = operands.iter().filter(|operand| {
                    operand.is_write && state.shared_around(operand.start).is_some()
                });
                written.extend(targets.map(|target| {
                    let (span, content) = (target.extent.span(), target.extent.content());
                    let end = target.start.saturating_add(span);
                    (target.start..end, span == content)
                }));
            }
            Work::MemoryOperations | Work::Conditional | Work::Unknown => {
                written.push((ANYWHERE, false));
            }
            // Functions of the program write as the program does.
            Work::Host
            | Work::Child(_)
            | Work::Event
            | Work::Semaphores
            | Work::Allocation { .. }
            | Work::Free { .. }
            | Work::Empty => {}
        }
    }
    written.sort_unstable_by_key(|(range, is_exact)| (range.start, range.end, *is_exact));
    // Nodes that may write the same bytes, together.
    let mut distinct: Vec<(Range<u64>, bool, usize)> = Vec::new();
    for (range, is_exact) in written {
        match distinct.last_mut() {
            Some(last) if last.0 == range && last.1 == is_exact => last.2 += 1,
            _ => distinct.push((range, is_exact, 1)),
        }
    }
    let several = |one: &(Range<u64>, bool, usize)| {
        let there = distinct.iter();
        let there = there.filter(|(range, ..)| range.start < one.0.end && one.0.start < range.end);
        one.2 > 1 || there.count() > 1
    };
    let written = distinct.iter().map(|one| Written {
        bytes: one.0.clone(),
        is_exact: one.1,
        by_several: several(one),
    });
    GraphWrites {
        written: written.collect(),
        signals,
        records_events,
    }
}
