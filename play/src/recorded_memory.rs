//! What a recording knows of host memory that the device can write: the bytes that copies brought,
//! what other work has written, and which call proved that.

use std::collections::BTreeMap;
use std::ops::Range;

use cutape_format::layout::field;
use cutape_format::{Call, Note, Snapshot, Trace};
use cutape_model::{CompletedBy, HostWrites, ObjectId, written_values as stream_values};
use cutape_registry::{CopyOp, Family, Function, GraphOp, Role, StreamMemoryOp};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::history::{
    At, Begun, Look, Memory, Part, Value, Work, Written, fits, time_of_look, written,
};
use crate::rows::read_by;
use crate::threads::known;

/// What work has written that the program may know without a proof.
pub(crate) struct Shown {
    /// The thread whose work it is.
    pub(crate) thread: u32,
    /// After this call the recorder had found that nothing of it was there.
    pub(crate) after: Option<u64>,
    pub(crate) written: Written,
}

/// What it knows.
#[derive(Default)]
pub(crate) struct RecordedMemory {
    /// By thread and number of a copy: where it wrote, and the bytes.
    brought: FxHashMap<(u32, u64), Vec<(u64, Snapshot<'static>)>>,
    /// By call, and whether after it: where the recorder looked.
    looked: FxHashMap<(u64, bool), Vec<Look>>,
    /// By call that proves work complete: what that has written.
    proved: FxHashMap<u64, Vec<Written>>,
    /// The same by call that may have told the program of it without a proof.
    shown: FxHashMap<u64, Vec<Shown>>,
    /// By thread: its calls that prove work complete which has written such memory, and when.
    proofs: FxHashMap<u32, Vec<(u64, u64)>>,
    /// Calls with a part of memory that has to be seen.
    seen: FxHashSet<u64>,
    /// Calls before which the program may poll, in ascending order: work is in flight that may write host
    /// memory.
    after_work: Vec<u64>,
    /// Calls that read host memory which pending work may write, or that are captured.
    readers_of_pending: FxHashSet<u64>,
    /// Copies whose bytes the program gives.
    given: FxHashSet<u64>,
    /// By call: where its work may write.
    writes: FxHashMap<u64, Vec<Range<u64>>>,
}

impl RecordedMemory {
    /// Reads a trace for it.
    pub(crate) fn of(trace: &'static Trace) -> Self {
        let mut found = Self::default();
        let mut writes = HostWrites::keeping_completed();
        let mut calls = Vec::new();
        let mut looks = Vec::new();
        let mut begun = FxHashMap::default();
        let mut values = FxHashMap::default();
        for call in trace.calls() {
            calls.resize(call.index as usize, (0, 0, 0));
            calls.push((call.thread, call.ticks, time_of_look(&call, true)));
            writes.enter(&call);
            if writes.has_pending() {
                found.after_work.push(call.index);
            }
            let Some(function) = known(&call) else {
                writes.apply(&call);
                continue;
            };
            found.add_reads(&mut writes, function, &call);
            if call.has_notes() {
                found.add_notes(&writes, &call, &mut looks);
            }
            writes.apply(&call);
            if writes.has_written(&call) {
                let own = stream_values(function, &call);
                if !own.is_empty() {
                    values.insert(call.index, own);
                }
                let copy = matches!(function.family, Family::Copy(_));
                let copy = copy.then_some((call.thread, call.number));
                let looked = time_of_look(&call, false);
                let has_source = has_source(function, &call) && !found.reads_pending(call.index);
                if has_source {
                    found.given.insert(call.index);
                }
                let is_given = has_source || gives_bytes(function, &call);
                let is_graph = function.family == Family::Graph(GraphOp::Launch);
                begun.insert(call.index, (looked, is_given, copy, is_graph));
            }
        }
        let of_call = |call: u64| calls.get(call as usize).copied().unwrap_or_default();
        let begun = |call| {
            let &(looked, is_given, copy, is_graph) = begun.get(&call)?;
            let is_brought = copy.is_some_and(|copy| found.brought.contains_key(&copy));
            Some(Begun {
                looked,
                is_known: is_given || is_brought,
                is_graph,
            })
        };
        let completed = writes.completed();
        let mut written_values = Vec::new();
        let followed = next_calls(&calls);
        let followed = |call: u64| followed.get(call as usize).copied().unwrap_or(u64::MAX);
        let works = Work::all(&completed, begun, followed);
        for one in &completed {
            if !matches!(one.proof, CompletedBy::Also(..)) {
                let of_call = found.writes.entry(one.write.call).or_default();
                of_call.push(one.write.bytes.clone());
            }
            if let CompletedBy::Call(call, time) | CompletedBy::Also(call, time) = one.proof {
                let proofs = found.proofs.entry(of_call(call).0).or_default();
                proofs.push((call, time));
            }
            if let CompletedBy::Call(_, time) = one.proof {
                let values = values.get(&one.write.call).into_iter().flatten();
                let values = values.filter(|value| value.0 == one.write.bytes);
                let Begun { looked, .. } = begun(one.write.call).unwrap_or_default();
                written_values.extend(values.map(|value| Value {
                    value: value.clone(),
                    begun: looked,
                    written: time,
                }));
            }
        }
        for proofs in found.proofs.values_mut() {
            proofs.sort_unstable();
            proofs.dedup();
        }
        let told = |call| of_call(call).1;
        let looks_after = looks_after_calls(&looks);
        for (at, memory) in written(trace, &looks, &works, &written_values, told) {
            match at {
                At::Proof(call) => {
                    found.seen.insert(call);
                    found.proved.entry(call).or_default().push(memory);
                }
                At::Told(call) => {
                    let (thread, _, returned) = of_call(memory.call);
                    // Of calls in progress at once, any may be the first when the program is played;
                    // a graph may tell of its own work.
                    if memory.call == call || returned < of_call(call).1 {
                        let told = found.shown.entry(call).or_default();
                        told.extend(by_last_look(
                            (thread, memory),
                            &looks_after,
                            of_call(call).1,
                        ));
                    }
                }
            }
        }
        found
    }

    fn add_reads(&mut self, writes: &mut HostWrites, function: &Function, call: &Call<'static>) {
        let read = read_by(function, call);
        let is_captured = !read.is_empty() && writes.is_captured(call);
        let is_pending = read.into_iter().any(|(_, rows)| {
            let mut rows = rows.into_iter();
            rows.any(|(start, length)| {
                let bytes = start..start.saturating_add(length);
                !writes.pending_for(call, &bytes).is_empty()
            })
        });
        if is_pending || is_captured {
            self.readers_of_pending.insert(call.index);
        }
    }

    fn add_notes(&mut self, writes: &HostWrites, call: &Call<'static>, looks: &mut Vec<Look>) {
        for note in call.notes() {
            match note {
                Note::Readback(note, snapshot) => {
                    let of_copy = self.brought.entry((note.thread, note.number)).or_default();
                    of_copy.push((note.address, snapshot));
                    self.seen.insert(call.index);
                }
                Note::HostChanged(note, bytes) => {
                    let shared = writes.shared_at(note.address);
                    let Some((addresses, id)) = shared.filter(|(addresses, _)| fits(addresses))
                    else {
                        continue;
                    };
                    let is_after = note.is_after != 0;
                    let time = time_of_look(call, is_after);
                    let look = Look {
                        memory: Memory {
                            id,
                            addresses,
                            named: (call.index, note.address),
                        },
                        address: note.address,
                        bytes,
                        time,
                        waited: is_after.then_some((call.index, call.ticks)),
                    };
                    let known = self.looked.entry((call.index, is_after));
                    known.or_default().push(look.clone());
                    self.seen.insert(call.index);
                    if is_after {
                        let proofs = self.proofs.entry(call.thread).or_default();
                        proofs.push((call.index, time));
                    }
                    looks.push(look);
                }
                _ => {}
            }
        }
    }

    /// When a call of a thread had proved that work is complete which has written host memory.
    pub(crate) fn proof(&self, thread: u32, call: u64) -> Option<u64> {
        let (at, time) = self.proof_from(thread, call)?;
        (at == call).then_some(time)
    }

    /// The first call of a thread, from an index on, that proves that; and when it had.
    pub(crate) fn proof_from(&self, thread: u32, call: u64) -> Option<(u64, u64)> {
        let proofs = self.proofs.get(&thread)?;
        let from = proofs.partition_point(|known| known.0 < call);
        proofs.get(from).copied()
    }

    /// Whether something is to be done about memory when the program makes a call.
    pub(crate) fn is_seen(&self, call: u64) -> bool {
        self.seen.contains(&call)
    }

    /// Whether the program may poll anywhere.
    pub(crate) fn has_polled(&self) -> bool {
        !self.after_work.is_empty()
    }

    /// Whether the program may poll before a call.
    pub(crate) fn may_poll(&self, call: u64) -> bool {
        self.after_work.binary_search(&call).is_ok()
    }

    /// Where the recorder looked before a call, or after it.
    pub(crate) fn looked(&self, call: u64, is_after: bool) -> &[Look] {
        let looked = self.looked.get(&(call, is_after));
        looked.map_or(&[], Vec::as_slice)
    }

    /// What work has written that a call proves complete.
    pub(crate) fn proved(&self, call: u64) -> &[Written] {
        self.proved.get(&call).map_or(&[], Vec::as_slice)
    }

    /// What work has written that is complete as soon as the work of a call begins which may tell
    /// the program of that.
    pub(crate) fn shown(&self, call: u64) -> &[Shown] {
        self.shown.get(&call).map_or(&[], Vec::as_slice)
    }

    /// Where the work of a call may write.
    pub(crate) fn writes(&self, call: u64) -> &[Range<u64>] {
        self.writes.get(&call).map_or(&[], Vec::as_slice)
    }

    /// The bytes that a copy brought, by thread and number: the next from a recorded address on.
    pub(crate) fn take_brought(
        &mut self,
        copy: (u32, u64),
        address: u64,
    ) -> Option<Snapshot<'static>> {
        let of_copy = self.brought.get_mut(&copy)?;
        let at = of_copy.iter().position(|known| known.0 == address)?;
        Some(of_copy.remove(at).1)
    }

    /// Whether the program gives the bytes that a copy writes.
    pub(crate) fn is_given(&self, call: u64) -> bool {
        self.given.contains(&call)
    }

    /// Whether a call reads host memory that pending work may write: the bytes are not the
    /// program's. Or it is captured, and what it reads is read when the graph runs.
    pub(crate) fn reads_pending(&self, call: u64) -> bool {
        self.readers_of_pending.contains(&call)
    }
}

/// When the thread of each call, which are thread, entry and return, entered the next one.
fn next_calls(calls: &[(u32, u64, u64)]) -> Vec<u64> {
    let mut of_threads: FxHashMap<u32, u64> = FxHashMap::default();
    let next = calls.iter().rev().map(|&(thread, entered, _)| {
        let next = of_threads.insert(thread, entered);
        next.unwrap_or(u64::MAX)
    });
    let mut next: Vec<u64> = next.collect();
    next.reverse();
    next
}

/// The looks of the recorder after calls, by allocation: time, call; in ascending order.
fn looks_after_calls(looks: &[Look]) -> FxHashMap<ObjectId, Vec<(u64, u64)>> {
    let mut after: FxHashMap<ObjectId, Vec<(u64, u64)>> = FxHashMap::default();
    for look in looks {
        if let Some((call, _)) = look.waited {
            let of_memory = after.entry(look.memory.id).or_default();
            of_memory.push((look.time, call));
        }
    }
    after.values_mut().for_each(|all| all.sort_unstable());
    after
}

/// What work of a thread has written, by the last call since a time after which the recorder had looked
/// there and not found it; `looks` are those after calls, in ascending order.
fn by_last_look(
    (thread, written): (u32, Written),
    looks: &FxHashMap<ObjectId, Vec<(u64, u64)>>,
    since: u64,
) -> impl Iterator<Item = Shown> {
    let Written {
        memory,
        parts,
        missing,
        call,
    } = written;
    let looks = looks.get(&memory.id).map_or(&[][..], Vec::as_slice);
    let mut by_look: BTreeMap<Option<u64>, Vec<Part>> = BTreeMap::new();
    for part in parts {
        let before = looks.partition_point(|&(time, _)| time < part.found);
        let last = before.checked_sub(1).and_then(|at| looks.get(at));
        let last = last.filter(|&&(time, _)| time >= since);
        let after = last.map(|&(_, call)| call);
        by_look.entry(after).or_default().push(part);
    }
    by_look.into_iter().map(move |(after, parts)| Shown {
        thread,
        after,
        written: Written {
            memory: memory.clone(),
            parts,
            missing: missing.clone(),
            call,
        },
    })
}

/// Whether the program gives the bytes that a call writes, or the call has them when it returns.
pub(crate) fn gives_bytes(function: &Function, call: &Call<'_>) -> bool {
    match function.family {
        Family::Memset | Family::StreamMemory(StreamMemoryOp::Write | StreamMemoryOp::Batch) => {
            true
        }
        Family::Copy(_) => {
            let mut after = call.leave.iter().flat_map(|leave| leave.snapshots());
            after.any(|snapshot| is_copied(function, &snapshot))
        }
        _ => false,
    }
}

/// Whether the recording has the bytes of host memory that a copy reads, which are one range.
fn has_source(function: &Function, call: &Call<'_>) -> bool {
    let Family::Copy(op) = function.family else {
        return false;
    };
    let is_source = |snapshot: Snapshot<'_>| {
        let param = function.params.get(usize::from(snapshot.parameter));
        let is_read = param.is_some_and(|param| matches!(param.role, Role::HostRead(_)));
        snapshot.field == field::HOST_BYTES || snapshot.field == field::POINTEE && is_read
    };
    matches!(
        op,
        CopyOp::Unified(_) | CopyOp::Described(_) | CopyOp::Linear(_)
    ) && call.snapshots().any(is_source)
}

/// Whether a snapshot of a call that has returned is what it has copied to the host.
pub(crate) fn is_copied(function: &Function, snapshot: &Snapshot<'_>) -> bool {
    let param = function.params.get(usize::from(snapshot.parameter));
    match (snapshot.field, param.map(|param| param.role)) {
        (field::POINTEE, Some(Role::HostWrite(_))) => true,
        (field::HOST_BYTES, _) => matches!(function.family, Family::Copy(_)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use cutape_format::layout::HostChangedNote;
    use cutape_format::{NewCall, NewSnapshot, TraceBuilder};

    use super::*;

    const PINNED: u64 = 0x10_0000;
    const STREAM: u64 = 0x5000;

    /// What changes in memory where other memory was is not of work from before.
    #[test]
    fn memory_at_the_same_address_is_other_memory() {
        for (is_freed, expected) in [(false, 1), (true, 0)] {
            let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
            let mut ticks = 0;
            let mut call = |builder: &mut TraceBuilder, name, arguments: &[u64], before: &[_]| {
                ticks += 10;
                builder.at(ticks).call(NewCall {
                    // The recorder may not have taken in the launch of the other thread.
                    thread: u32::from(name == "cuStreamSynchronize"),
                    name,
                    arguments,
                    snapshots: before,
                    ..NewCall::default()
                });
                builder.at(ticks + 1);
            };
            let handle = |handle: &u64| handle.to_le_bytes();
            call(&mut builder, "cuCtxSetCurrent", &[0x77], &[]);
            builder.leave(0, 0, &[]);
            call(&mut builder, "cuMemHostAlloc", &[0, 64, 0], &[]);
            builder.leave(0, 0, &[NewSnapshot::pointee(0, &handle(&PINNED))]);
            call(&mut builder, "cuStreamCreate", &[0, 1], &[]);
            builder.leave(0, 0, &[NewSnapshot::pointee(0, &handle(&STREAM))]);
            let words = handle(&PINNED);
            let parameters = [NewSnapshot::piece(9, field::KERNEL_PARAMETERS, &words)];
            let launch = [0x900, 1, 1, 1, 1, 1, 1, 0, STREAM, 0x1000, 0];
            call(&mut builder, "cuLaunchKernel", &launch, &parameters);
            let note = |is_after| HostChangedNote {
                address: PINNED,
                is_after,
            };
            builder.host_changed_note(0, note(0), NewSnapshot::pointee(0, &[3; 8]));
            builder.leave(0, 0, &[]);
            call(&mut builder, "cuStreamSynchronize", &[STREAM], &[]);
            builder.leave(1, 0, &[]);
            let proof = 4;
            if is_freed {
                call(&mut builder, "cuMemFreeHost", &[PINNED], &[]);
                builder.leave(0, 0, &[]);
                call(&mut builder, "cuMemHostAlloc", &[0, 64, 0], &[]);
                builder.leave(0, 0, &[NewSnapshot::pointee(0, &handle(&PINNED))]);
            }
            call(&mut builder, "cuCtxSynchronize", &[], &[]);
            builder.host_changed_note(0, note(1), NewSnapshot::pointee(0, &[7; 8]));
            builder.leave(0, 0, &[]);
            let name = format!("cutape-recorded-memory-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            builder.write(&path).unwrap();
            let trace: &'static Trace = Box::leak(Box::new(Trace::open(&path).unwrap()));
            std::fs::remove_file(&path).unwrap();
            let memory = RecordedMemory::of(trace);
            assert_eq!(memory.proved(proof).len(), expected, "{is_freed}");
        }
    }
}
