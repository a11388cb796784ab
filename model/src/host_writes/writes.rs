//! Where the work of calls may write host memory.

use std::ops::Range;

use cutape_format::Call;
use cutape_registry::{Family, GraphOp, Kind};

use super::{HostWrites, PendingWrite};
use crate::copied::described_targets;
use crate::effects::Effects;
use crate::graphs::{Exec, Work};
use crate::needs::{Operands, Touch};
use crate::stream_values::written_values;

/// What a launch of a graph may do.
#[derive(Debug, Default)]
pub(super) struct GraphWrites {
    /// Where it may write host memory, whether it writes all of these bytes, and whether several nodes
    /// do.
    pub(super) bytes: Vec<(Range<u64>, bool, bool)>,
    /// It may tell the program that earlier work is complete.
    pub(super) signals: bool,
    /// It may record events.
    pub(super) records_events: bool,
}

impl HostWrites {
    /// Where the work of a call writes memory that host and device share.
    pub(super) fn writes_of(&mut self, effects: &Effects, call: &Call<'_>) -> Vec<PendingWrite> {
        let copy = !matches!(effects.function.family, Family::Launch(_));
        let write = |bytes, is_exact| PendingWrite {
            bytes,
            is_exact,
            call: call.index,
            copy: copy.then_some((call.thread, call.number)),
            entered: call.ticks,
            is_before: false,
            hides_others: false,
            known_since: None,
        };
        if effects.function.family == Family::Graph(GraphOp::Launch) {
            let exec = call.argument(0);
            if !self.of_graphs.contains_key(&exec) {
                let written = self.written_by_graph(exec);
                self.of_graphs.insert(exec, written);
            }
            let graph = self.of_graphs.get(&exec);
            if graph.is_some_and(|graph| graph.records_events) {
                self.events.clear();
            }
            let written = graph.into_iter().flat_map(|graph| &graph.bytes);
            let written = written.map(|(bytes, is_exact, hides_others)| PendingWrite {
                hides_others: *hides_others,
                ..write(bytes.clone(), *is_exact)
            });
            return written.collect();
        }
        let is_none =
            self.state.host.live().is_empty() && !self.state.objects.has_had(Kind::Memory);
        if is_none || !(effects.submits || effects.in_default_stream) {
            return Vec::new();
        }
        let operands = Operands::of(effects.function, call);
        if matches!(effects.function.family, Family::Launch(_)) {
            // The launch records the events that its attributes name.
            let events = operands.handles.iter();
            for (_, event) in events.filter(|(kind, _)| *kind == Kind::Event) {
                self.events.remove(event);
            }
        }
        let mut writes = Vec::new();
        let mut described = described_targets(effects.function, call);
        let values = written_values(effects.function, call).into_iter();
        described.extend(values.map(|(bytes, _)| (bytes, true)));
        let is_described = !described.is_empty();
        for (bytes, is_exact) in described {
            if self.state.shared_around(bytes.start).is_some() {
                writes.push(write(bytes, is_exact));
            }
        }
        for touch in operands.touches().iter().filter(|_| !is_described) {
            match touch {
                Touch::Write(bytes) if self.state.shared_around(bytes.start).is_some() => {
                    writes.push(write(bytes.clone(), true));
                }
                &Touch::Any(address) => {
                    let around = self.state.shared_around(address);
                    writes.extend(around.map(|bytes| write(bytes, false)));
                }
                _ => {}
            }
        }
        for word in operands.words {
            let around = self.state.shared_around(word);
            writes.extend(around.map(|bytes| write(bytes, false)));
        }
        writes
    }

    /// What a launch of a graph may do: anything if calls have not shown its nodes.
    fn written_by_graph(&self, exec: u64) -> GraphWrites {
        const ANYWHERE: Range<u64> = 0..u64::MAX;
        if self.state.host.live().is_empty() && !self.state.objects.has_had(Kind::Memory) {
            return GraphWrites::default();
        }
        let exec = self.state.graphs.exec(exec);
        let Some(active) = exec.and_then(Exec::known_active) else {
            return GraphWrites {
                bytes: vec![(ANYWHERE, false, false)],
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
                    let reached = words.filter_map(|word| self.state.shared_around(word));
                    written.extend(reached.map(|bytes| (bytes, false)));
                }
                Work::Memory(operands) => {
                    let targets = operands.iter().filter(|operand| operand.is_write);
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
            let there =
                there.filter(|(range, ..)| range.start < one.0.end && one.0.start < range.end);
            one.2 > 1 || there.count() > 1
        };
        let bytes = distinct.iter();
        let bytes = bytes
            .map(|one| (one.0.clone(), one.1, several(one)))
            .collect();
        GraphWrites {
            bytes,
            signals,
            records_events,
        }
    }
}
