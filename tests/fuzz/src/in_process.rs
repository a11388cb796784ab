//! Readers of traces and images that run in the process which makes the inputs.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use cutape_analyzer::output::{self, Style};
use cutape_analyzer::{Analyzer, FindingLimits, FindingList};
use cutape_format::layout::BlobRef;
use cutape_format::{
    Call, ClockStart, Error, Leave, Note, Provenance, Snapshot, StackFrame, Trace, TraceClock,
    WalkSummary, marked_ranges,
};
use cutape_image::{code, entries_for, extent, kind, parse, unpack, without_unused_code};
use cutape_model::{
    ExchangeBuilder, HostWrites, NeedsBuilder, PendingWork, Scope, TraceState, looked,
};
use rustix::fs::{MemfdFlags, memfd_create};

/// A file in memory that holds one input after another.
#[derive(Debug)]
pub(crate) struct InputFile {
    file: File,
    path: PathBuf,
}

impl InputFile {
    /// # Errors
    /// If the system has no such files.
    pub(crate) fn new() -> io::Result<Self> {
        let file = File::from(memfd_create("input.cutape", MemfdFlags::CLOEXEC)?);
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        Ok(Self { file, path })
    }

    /// Opens these bytes as a trace, damaged or not. The trace before it must be closed.
    ///
    /// # Panics
    /// If memory is full.
    pub(crate) fn open(&self, input: &[u8]) -> Result<Trace, Error> {
        self.file.write_all_at(input, 0).unwrap();
        self.file.set_len(input.len() as u64).unwrap();
        Trace::open_damaged(&self.path)
    }
}

/// Whether a reader that refuses damaged traces would take it.
fn is_taken(trace: &Trace, walked: &Result<WalkSummary, Error>) -> bool {
    trace.damage().is_empty() && walked.is_ok()
}

fn walk(trace: &Trace, mut each: impl FnMut(&Call<'_>)) -> Result<WalkSummary, Error> {
    trace.walk().run(|call| {
        each(call);
        Ok(())
    })
}

/// Decodes all that a trace holds.
pub(crate) fn decode(trace: &Trace) -> bool {
    let walked = walk(trace, |call| decode_call(trace, call));
    // Another way to the same calls.
    let _ = trace.calls().count();
    for (position, length) in trace.blobs() {
        let _ = trace.blob(BlobRef { position, length });
        let _ = trace.blob_position(position);
    }
    for id in trace.stack_ids() {
        for frame in trace.stack(id).unwrap_or_default().frames {
            match frame {
                StackFrame::Native(address) => drop(trace.source_of(address)),
                StackFrame::Python { code, .. } => drop(trace.python_code(code)),
            }
        }
    }
    let _ = marked_ranges(&trace.markers());
    let _ = (trace.threads(), trace.memory_snapshots(), trace.left_out());
    let _ = (
        trace.shortfall(),
        trace.has_all_calls(),
        trace.last_entered(),
    );
    let _ = (Provenance::of(trace), ClockStart::of(trace));
    trace.each_failed(&mut HashMap::new(), &mut |_| {});
    if let Ok(summary) = &walked {
        let _ = (summary.damage(trace), summary.unknown_function());
        let _ = (
            summary.missing_file_ranges(trace),
            summary.payload_files(trace),
        );
    }
    is_taken(trace, &walked)
}

fn decode_call(trace: &Trace, call: &Call<'_>) {
    let clock = TraceClock::of(trace);
    let left = call.leave.map_or(call.ticks, |leave| leave.ticks);
    let _ = (
        clock.since_start(call.ticks),
        clock.between(call.ticks, left),
    );
    let mut arguments = [0; 16];
    call.arguments(&mut arguments);
    let _ = call.packed_arguments();
    for position in 0..=call.signature.parameters.len() {
        let _ = (call.argument(position), call.argument_bytes(position));
        let _ = (call.string(position), call.out(position));
    }
    let read = |snapshot: Snapshot<'_>| {
        let _ = (snapshot.bytes.length(), trace.resolve(snapshot.bytes));
    };
    call.snapshots().for_each(read);
    let leave = call.leave.iter();
    leave.flat_map(Leave::snapshots).for_each(read);
    for note in call.notes() {
        match note {
            Note::Readback(_, snapshot)
            | Note::HostChanged(_, snapshot)
            | Note::HostSeen(_, snapshot)
            | Note::ExchangeOutput(_, snapshot)
            | Note::Memory(_, _, Some(snapshot)) => read(snapshot),
            Note::Snapshots(snapshots) => snapshots.for_each(read),
            Note::Stack(id) => drop(trace.stack(id)),
            _ => {}
        }
    }
}

/// Follows the driver's state in each way that the model has.
pub(crate) fn state(trace: &Trace) -> bool {
    let mut states = [Scope::Kernels, Scope::Work].map(TraceState::new);
    let mut pending = PendingWork::default();
    let mut writes = HostWrites::default();
    let mut needs = NeedsBuilder::of_chosen(&[3, 9]);
    let mut live = NeedsBuilder::of_live();
    let mut exchanges = ExchangeBuilder::default();
    let walked = walk(trace, |call| {
        for state in &mut states {
            state.state.settle(call.ticks, call.thread);
            let _ = state.launched_kernel(call);
            let _ = state.observe(call);
        }
        pending.observe(call, &mut |address| Some(address as u32));
        follow_writes(&mut writes, call);
        let read = |bytes: cutape_format::Bytes<'_>| {
            let owned = trace.resolve(bytes).ok()?;
            Some(owned.into_owned().into())
        };
        needs.push(call, &read);
        live.push(call, &read);
        exchanges.observe(call);
    });
    for state in &mut states {
        state.state.settle(u64::MAX, 0);
    }
    for word in pending.unfinished_words() {
        pending.found(word, u32::MAX);
    }
    for stream in pending.streams() {
        for work in stream.work {
            let _ = pending.before(stream.number, work);
        }
    }
    for wait in pending.in_flight() {
        let _ = pending.awaited_by(wait);
    }
    let _ = (writes.answers(), exchanges.finish());
    let (needs, reads) = needs.finish_with_reads();
    for call in 0..needs.calls() {
        let _ = needs.of(call).count();
    }
    drop((reads, live.finish_live()));
    is_taken(trace, &walked)
}

fn follow_writes(writes: &mut HostWrites, call: &Call<'_>) {
    writes.enter(call);
    let changed = call.notes().filter_map(|note| match note {
        Note::HostChanged(note, snapshot) => {
            let length = snapshot.bytes.length().unwrap_or(0);
            Some(note.address..note.address.saturating_add(length))
        }
        _ => None,
    });
    let changed: Vec<_> = changed.collect();
    for bytes in &changed {
        let _ = writes.pending_for(call, bytes);
    }
    writes.apply(call);
    let _ = looked(call);
    for bytes in changed {
        writes.ask_behind(call, bytes.start);
        writes.ask_later(call, bytes);
    }
    writes.ask_since(call, (call.thread, call.number));
}

/// Checks a trace by all rules, and writes what is found in every form.
pub(crate) fn check(trace: &Trace) -> bool {
    let mut analyzer = Analyzer::new();
    analyzer.collect_pairs();
    let mut list = FindingList::new(FindingLimits {
        all: true,
        ..FindingLimits::default()
    });
    let walked = walk(trace, |call| list.extend(analyzer.push(trace, call)));
    list.extend(analyzer.finish(trace, trace.has_all_calls()));
    list.count_repeats(analyzer.take_repeats());
    let _ = analyzer.take_pairs();
    for finding in &list.findings {
        let _ = output::text(finding, &Style::COLOUR);
    }
    let _ = output::json(&list.findings, &list.omitted).to_string();
    let _ = output::sarif(&list.findings, "in.cutape", "/").to_string();
    let _ = output::junit_cases(&list.findings);
    is_taken(trace, &walked)
}

/// Parses an image as all crates do; whether it can be parsed.
pub(crate) fn image(bytes: &[u8]) -> bool {
    let _ = (
        kind(bytes),
        extent(bytes),
        cutape_image::wrapper_data(bytes),
    );
    let _ = code(bytes);
    let _ = entries_for(bytes, &[(8, 0), (9, 0)]);
    let _ = without_unused_code(bytes, &|name| name.len() % 2 == 0);
    let _ = unpack(bytes, |_, _| {});
    parse(bytes).is_ok()
}
