//! The notes of a call, as text and as JSON.

use std::fmt::Write;

use cutape_analyzer::decode::{hexadecimal, piece_name, text as text_of};
use cutape_format::layout::{
    BreadcrumbNote, DescriptorNote, DigestNote, ExchangeNote, ExchangeOutputNote, GapNote,
    HostChangedNote, MemoryNote, MemorySnapshotNote, OriginNote, ReadbackNote, SharedMappingNote,
    breadcrumb, digest_reach, digest_skip, exchange_skip, host_skip, memory_snapshot,
};
use cutape_format::{Note, Snapshot};
use serde_json::{Value as Json, json};

use crate::quantity;
use crate::renderer::CallRenderer;

/// A note for people; `None` if the arguments already show it.
pub fn text<'t>(note: &Note<'t>, renderer: &CallRenderer<'t>) -> Option<String> {
    let bytes = |snapshot| {
        let mut text = String::new();
        renderer.readback(snapshot).write(&mut text);
        text
    };
    Some(match note {
        // `dump --stacks` shows stacks.
        Note::Snapshots(_) | Note::Stack(_) => return None,
        Note::Thread(thread) => {
            format!(
                "thread is {} \"{}\"",
                thread.number,
                text_of(&thread.name).escape_debug()
            )
        }
        Note::Layout(handle, layout) => layout_text(*handle, layout),
        Note::Origin(origin, name) => origin_text(origin, name),
        Note::Readback(note, snapshot) => {
            readback(note, &bytes(*snapshot), piece_name(snapshot.field))
        }
        Note::HostChanged(note, snapshot) => host_changed(note, &bytes(*snapshot)),
        Note::HostSeen(note, snapshot) => host_seen(note, &bytes(*snapshot)),
        Note::Looked(note) => format!(
            "host memory was read after the call until {}",
            moment(note.ticks, renderer)
        ),
        Note::LookedBefore(note) => format!(
            "host memory was read before the call until {}",
            moment(note.ticks, renderer)
        ),
        Note::NestedCall(note) => format!(
            "the program called {} inside this call: {} (from {:#x}); not recorded",
            renderer.function(note.function),
            result_name(note.result),
            note.caller,
        ),
        Note::HostFunction(note) => format!(
            "call {} of thread {} had enqueued a function of the program: it ran from {} to {}",
            note.number,
            note.thread,
            moment(note.begun, renderer),
            moment(note.ended, renderer)
        ),
        Note::Gap(note) => gap(note, renderer),
        Note::Breadcrumb(note) => breadcrumb_text(note),
        Note::MemorySnapshot(note) => memory_snapshot_text(note),
        Note::HostSkipped(note) => format!(
            "host memory at {:#x} ({} bytes), which the device can read, is not recorded: {}",
            note.address,
            note.length,
            skip_reason(note.reason),
        ),
        Note::Memory(note, name, snapshot) => {
            let contents = snapshot.map_or_else(|| repeated(note), bytes);
            let memory = memory(note, name);
            format!("{memory} holds before the call: {contents}")
        }
        Note::AddressSpace(ranges) => {
            format!("the process has {} mapped address ranges", ranges.len())
        }
        Note::Zeroed(note) => format!(
            "the recorder set memory at {:#x} ({} bytes) to zeros",
            note.address, note.length
        ),
        Note::DigestSetup(note) => format!(
            "the recorder prepared context {:#x} for digests: {}",
            note.context,
            result_name(note.result)
        ),
        Note::Digest(note, ranges) => digest(note, ranges),
        Note::DigestValues(values) => digest_values(values),
        Note::DigestVoid(note) => format!(
            "digests {} to {} do not count: this call was entered before theirs",
            note.first,
            note.first.saturating_add(note.count).saturating_sub(1)
        ),
        Note::DigestSkipped(note) => {
            format!("no digest: {}", digest_skip_reason(note.reason))
        }
        Note::SourceChanged(note) => format!(
            "the CPU has changed {:#x} ({} bytes) since call {} of thread {}, which copies from it",
            note.address, note.length, note.number, note.thread
        ),
        Note::Descriptor(note) => descriptor(note),
        Note::SharedMapping(note, name) => shared_mapping(note, name),
        Note::Exchange(note) => exchange(note),
        Note::ExchangeOutput(note, snapshot) => {
            let is_empty = snapshot.bytes.length() == Some(0);
            exchange_output(note, (!is_empty).then(|| bytes(*snapshot)))
        }
        Note::DriverMessage(note, text) => {
            format!(
                "the driver's log: {}: {}",
                level(note.level),
                text.trim_end().escape_debug()
            )
        }
        Note::Stopped(why) => format!("recording stopped here: {why}"),
        Note::UnknownSymbol(name) => {
            format!(
                "the program requested `{}`, which the recorder does not know",
                name.escape_debug()
            )
        }
        Note::Other(kind, bytes) => {
            format!("note of unknown kind {kind}, {} bytes", bytes.len())
        }
    })
}

fn gap(note: &GapNote, renderer: &CallRenderer<'_>) -> String {
    let calls = match note.calls {
        0 => "calls of other threads may be missing".to_owned(),
        1 => "1 call of this thread is missing".to_owned(),
        calls => format!("{calls} calls of this thread are missing"),
    };
    let when = match (note.paused, note.resumed) {
        (0, 0) => String::new(),
        (paused, 0) => format!(" since {}", moment(paused, renderer)),
        (0, resumed) => format!(" until {}", moment(resumed, renderer)),
        (paused, resumed) => format!(
            " from {} to {}",
            moment(paused, renderer),
            moment(resumed, renderer)
        ),
    };
    match note.pause {
        0 => format!("{calls} before this one{when}"),
        pause => format!("{calls} before this one: recording was paused{when} (pause {pause})"),
    }
}

fn gap_json(note: &GapNote, renderer: &CallRenderer<'_>) -> Json {
    json!({
        "kind": "gap",
        "calls": note.calls,
        "pause": note.pause,
        "paused_ns": time(note.paused, renderer),
        "resumed_ns": time(note.resumed, renderer),
    })
}

/// A moment in nanoseconds, if it is known.
fn time(ticks: u64, renderer: &CallRenderer<'_>) -> Option<u64> {
    (ticks != 0).then(|| renderer.nanoseconds(ticks))
}

/// A moment as the lines of calls have it.
fn moment(ticks: u64, renderer: &CallRenderer<'_>) -> String {
    let time = renderer.nanoseconds(ticks);
    format!("+{}ms", quantity::milliseconds(time))
}

/// A note for programs: `kind` determines the keys; `None` if the arguments already show it.
pub fn json<'t>(note: &Note<'t>, renderer: &CallRenderer<'t>) -> Option<Json> {
    let data = |snapshot| renderer.readback(snapshot).json();
    Some(match note {
        // `dump --stacks` shows stacks.
        Note::Snapshots(_) | Note::Stack(_) => return None,
        Note::Thread(thread) => json!({
            "kind": "thread",
            "number": thread.number,
            "name": text_of(&thread.name),
        }),
        Note::Layout(handle, layout) => layout_json(*handle, layout),
        Note::Origin(origin, name) => origin_json(origin, name),
        Note::Readback(note, snapshot) => readback_json(note, snapshot, data(*snapshot)),
        Note::HostChanged(note, snapshot) => {
            host_changed_json("host_changed", note, data(*snapshot))
        }
        Note::HostSeen(note, snapshot) => host_changed_json("host_seen", note, data(*snapshot)),
        Note::Looked(note) => json!({
            "kind": "looked",
            "time_ns": renderer.nanoseconds(note.ticks),
        }),
        Note::LookedBefore(note) => json!({
            "kind": "looked_before",
            "time_ns": renderer.nanoseconds(note.ticks),
        }),
        Note::NestedCall(note) => json!({
            "kind": "nested_call",
            "function": renderer.function(note.function),
            "caller": format!("{:#x}", note.caller),
            "result": result_name(note.result),
        }),
        Note::HostFunction(note) => json!({
            "kind": "host_function",
            "thread": note.thread,
            "number": note.number,
            "begun_ns": renderer.nanoseconds(note.begun),
            "ended_ns": renderer.nanoseconds(note.ended),
        }),
        Note::Gap(note) => gap_json(note, renderer),
        Note::Breadcrumb(note) => breadcrumb_json(note),
        Note::MemorySnapshot(note) => memory_snapshot_json(note),
        Note::HostSkipped(note) => json!({
            "kind": "host_skipped",
            "address": format!("{:#x}", note.address),
            "length": note.length,
            "reason": skip_reason(note.reason),
        }),
        Note::Memory(note, name, snapshot) => memory_json(note, name, snapshot.map(data)),
        Note::AddressSpace(ranges) => address_space_json(ranges),
        Note::Zeroed(note) => json!({
            "kind": "zeroed",
            "address": format!("{:#x}", note.address),
            "length": note.length,
        }),
        Note::DigestSetup(note) => json!({
            "kind": "digest_setup",
            "context": format!("{:#x}", note.context),
            "result": result_name(note.result),
        }),
        Note::Digest(note, ranges) => digest_json(note, ranges),
        Note::DigestValues(values) => digest_values_json(values),
        Note::DigestVoid(note) => json!({
            "kind": "digest_void",
            "first": note.first,
            "count": note.count,
        }),
        Note::DigestSkipped(note) => json!({
            "kind": "digest_skipped",
            "reason": digest_skip_reason(note.reason),
        }),
        Note::SourceChanged(note) => json!({
            "kind": "source_changed",
            "thread": note.thread,
            "number": note.number,
            "address": note.address,
            "length": note.length,
        }),
        Note::Descriptor(note) => descriptor_json(note),
        Note::SharedMapping(note, name) => shared_mapping_json(note, name),
        Note::Exchange(note) => json!({
            "kind": "exchange",
            "kept": note.kept,
            "left_out": note.left_out,
            "reason": exchange_skip_reason(note.reason),
        }),
        Note::ExchangeOutput(note, snapshot) => json!({
            "kind": "exchange_output",
            "thread": note.thread,
            "number": note.number,
            "address": format!("{:#x}", note.address),
            "data": data(*snapshot),
        }),
        Note::DriverMessage(note, text) => json!({
            "kind": "driver_message",
            "level": level(note.level),
            "text": text.trim_end(),
        }),
        Note::Stopped(why) => json!({ "kind": "stopped", "why": why }),
        Note::UnknownSymbol(name) => json!({ "kind": "unknown_symbol", "name": name }),
        Note::Other(kind, bytes) => json!({
            "kind": "other",
            "number": kind,
            "hex": hexadecimal(bytes.get(..256).unwrap_or(bytes)),
            "bytes": bytes.len(),
        }),
    })
}

/// The parameters of a kernel.
fn layout_text(handle: u64, layout: &[(u32, u32)]) -> String {
    let parameters: Vec<String> = layout
        .iter()
        .map(|(offset, size)| format!("{size} at {offset}"))
        .collect();
    format!(
        "parameters of {handle:#x}: {}",
        match parameters.is_empty() {
            true => "none".to_owned(),
            false => format!("bytes {}", parameters.join(", ")),
        }
    )
}

/// What an asynchronous copy has brought.
fn readback(note: &ReadbackNote, bytes: &str, piece: Option<&str>) -> String {
    format!(
        "readback at {:#x}, by call {} of thread {}{}: {}",
        note.address,
        note.number,
        note.thread,
        piece.map_or_else(String::new, |name| format!(" ({name})")),
        bytes,
    )
}

/// What an exchange has left in memory; without bytes, nothing.
fn exchange_output(note: &ExchangeOutputNote, bytes: Option<String>) -> String {
    let what = match bytes {
        Some(bytes) => format!("left at {:#x}: {bytes}", note.address),
        None => "changed no memory that is compared".to_owned(),
    };
    format!(
        "call {} of thread {}, an exchange, {what}",
        note.number, note.thread
    )
}

/// Which memory was digested, and when.
fn digest(note: &DigestNote, ranges: &[(u64, u64)]) -> String {
    let ranges: Vec<String> = ranges
        .iter()
        .map(|(address, length)| format!("{address:#x} ({length} bytes)"))
        .collect();
    format!(
        "digests from {} on of {} {}: {}",
        note.first,
        reach(note),
        match note.is_before {
            0 => "after the call",
            _ => "before the call",
        },
        match ranges.is_empty() {
            true => "none".to_owned(),
            false => ranges.join(", "),
        }
    )
}

/// An open file.
fn descriptor(note: &DescriptorNote) -> String {
    format!(
        "file descriptor {}: {} {} of device {:#x}, {} bytes",
        note.descriptor,
        file_type(note.mode),
        note.inode,
        note.device,
        note.size
    )
}

/// Memory that processes share.
fn shared_mapping(note: &SharedMappingNote, name: &str) -> String {
    format!(
        "{:#x} ({} bytes) is shared memory: {} at {:#x} (file {} of device {:#x})",
        note.address,
        note.length,
        name.escape_debug(),
        note.offset,
        note.inode,
        note.device
    )
}

/// Where a handle is from that no recorded call returned.
fn origin_text(origin: &OriginNote, name: &str) -> String {
    format!(
        "{:#x} is `{}` of {} {:#x}; no recorded call returned it",
        origin.handle,
        name.escape_debug(),
        owner_kind(origin),
        origin.owner,
    )
}

/// Digests by their numbers.
fn digest_values(values: &[(u64, u64)]) -> String {
    let values: Vec<String> = values
        .iter()
        .map(|(number, value)| format!("{number} is {value:#018x}"))
        .collect();
    format!("digests: {}", values.join(", "))
}

/// What host memory holds.
fn host_changed(note: &HostChangedNote, bytes: &str) -> String {
    format!(
        "host memory at {:#x} {}: {}",
        note.address,
        match note.is_after {
            0 => "held before the call",
            _ => "holds after the call",
        },
        bytes,
    )
}

fn host_seen(note: &HostChangedNote, bytes: &str) -> String {
    format!("{}, as the program could see it", host_changed(note, bytes))
}

fn host_changed_json(kind: &str, note: &HostChangedNote, data: Json) -> Json {
    json!({
        "kind": kind,
        "address": format!("{:#x}", note.address),
        "after": note.is_after != 0,
        "data": data,
    })
}

/// What becomes of the word of a stream.
fn breadcrumb_text(note: &BreadcrumbNote) -> String {
    let (value, address, stream) = (note.value, note.address, note.stream);
    match note.kind {
        breadcrumb::BEFORE => format!(
            "stream {stream:#x} writes {value} to {address:#x} before the call's work (breadcrumb)"
        ),
        breadcrumb::AFTER => format!(
            "stream {stream:#x} writes {value} to {address:#x} after the call's work (breadcrumb)"
        ),
        breadcrumb::READ => {
            format!("the breadcrumb of stream {stream:#x} at {address:#x} is {value}")
        }
        breadcrumb::REFUSED => format!(
            "the driver refused the breadcrumb of stream {stream:#x}: {}",
            result_name(value as i32)
        ),
        other => format!("a breadcrumb of stream {stream:#x} of kind {other}"),
    }
}

/// What became of a snapshot of device memory.
fn memory_snapshot_text(note: &MemorySnapshotNote) -> String {
    let MemorySnapshotNote { number, result, .. } = *note;
    match note.state {
        memory_snapshot::TAKEN => {
            let left_out = match note.left_out {
                0 => String::new(),
                bytes => format!("; {} could not be read", quantity::bytes(bytes)),
            };
            format!(
                "snapshot {number} of device memory before this call: {} in {}{left_out}",
                quantity::bytes(note.bytes),
                quantity::time(note.nanoseconds)
            )
        }
        memory_snapshot::VOID => format!(
            "snapshot {number} of device memory does not count: a call of another thread did not wait \
             for its end"
        ),
        memory_snapshot::BUSY => "no snapshot of device memory: other threads were in calls that \
                                  change memory"
            .to_owned(),
        memory_snapshot::RUNNING => "no snapshot of device memory: work was not complete in \
                                     time"
            .to_owned(),
        memory_snapshot::REFUSED => format!(
            "no snapshot of device memory: the driver returned {}",
            result_name(result)
        ),
        other => format!("a snapshot of device memory of state {other}"),
    }
}

fn memory_snapshot_json(note: &MemorySnapshotNote) -> Json {
    let state = match note.state {
        memory_snapshot::TAKEN => "taken",
        memory_snapshot::VOID => "void",
        memory_snapshot::BUSY => "busy",
        memory_snapshot::RUNNING => "running",
        memory_snapshot::REFUSED => "refused",
        _ => "unknown",
    };
    json!({
        "kind": "memory_snapshot",
        "state": state,
        "number": note.number,
        "bytes": note.bytes,
        "left_out": note.left_out,
        "nanoseconds": note.nanoseconds,
        "result": note.result,
    })
}

fn breadcrumb_json(note: &BreadcrumbNote) -> Json {
    let action = match note.kind {
        breadcrumb::BEFORE => "write_before",
        breadcrumb::AFTER => "write_after",
        breadcrumb::READ => "read",
        breadcrumb::REFUSED => "refused",
        _ => "unknown",
    };
    json!({
        "kind": "breadcrumb",
        "action": action,
        "context": format!("{:#x}", note.context),
        "stream": format!("{:#x}", note.stream),
        "address": format!("{:#x}", note.address),
        "value": note.value,
    })
}

/// Memory that a replay has read.
fn readback_json(note: &ReadbackNote, snapshot: &Snapshot<'_>, data: Json) -> Json {
    json!({
        "kind": "readback",
        "thread": note.thread,
        "number": note.number,
        "address": format!("{:#x}", note.address),
        "parameter": snapshot.parameter,
        "piece": piece_name(snapshot.field),
        "data": data,
    })
}

fn memory_json(note: &MemoryNote, name: &str, data: Option<Json>) -> Json {
    json!({
        "kind": "memory",
        "variable": (note.owner != 0).then_some(name),
        "owner": (note.owner != 0).then(|| format!("{:#x}", note.owner)),
        "address": (note.owner == 0).then(|| format!("{:#x}", note.address)),
        "offset": (note.owner != 0).then_some(note.address),
        "length": note.length,
        "repeats": data.is_none().then(|| format!("{:#x}", note.fill)),
        "data": data,
    })
}

/// Which memory was digested, and when.
fn digest_json(note: &DigestNote, ranges: &[(u64, u64)]) -> Json {
    json!({
        "kind": "digest",
        "first": note.first,
        "context": format!("{:#x}", note.context),
        "before": note.is_before != 0,
        "reach": reach(note),
        "ranges": ranges
            .iter()
            .map(|(address, length)| {
                json!({ "address": format!("{address:#x}"), "length": length })
            })
            .collect::<Vec<_>>(),
    })
}

/// Digests by their numbers.
fn digest_values_json(values: &[(u64, u64)]) -> Json {
    json!({
        "kind": "digest_values",
        "values": values
            .iter()
            .map(|(number, value)| {
                json!({ "number": number, "digest": format!("{value:#018x}") })
            })
            .collect::<Vec<_>>(),
    })
}

/// Memory that processes share.
fn shared_mapping_json(note: &SharedMappingNote, name: &str) -> Json {
    json!({
        "kind": "shared_mapping",
        "address": note.address,
        "length": note.length,
        "device": note.device,
        "inode": note.inode,
        "offset": note.offset,
        "name": name,
    })
}

/// The parameters of a kernel.
fn layout_json(handle: u64, layout: &[(u32, u32)]) -> Json {
    json!({
        "kind": "layout",
        "handle": format!("{handle:#x}"),
        "parameters": layout
            .iter()
            .map(|(offset, size)| json!({ "offset": offset, "size": size }))
            .collect::<Vec<_>>(),
    })
}

/// An open file.
fn descriptor_json(note: &DescriptorNote) -> Json {
    json!({
        "kind": "descriptor",
        "descriptor": note.descriptor,
        "mode": note.mode,
        "device": note.device,
        "inode": note.inode,
        "size": note.size,
    })
}

/// The address ranges that are mapped.
fn address_space_json(ranges: &[(u64, u64)]) -> Json {
    let hexadecimal = |range: &(u64, u64)| [range.0, range.1].map(|at| format!("{at:#x}"));
    json!({
        "kind": "address_space",
        "mapped": ranges.iter().map(hexadecimal).collect::<Vec<_>>(),
    })
}

/// Where a handle is from that no recorded call returned.
fn origin_json(origin: &OriginNote, name: &str) -> Json {
    json!({
        "kind": "origin",
        "handle": format!("{:#x}", origin.handle),
        "name": name,
        "owner": format!("{:#x}", origin.owner),
        "owner_kind": owner_kind(origin),
    })
}

/// Which memory a note is about.
fn memory(note: &MemoryNote, name: &str) -> String {
    match (note.owner, note.is_library) {
        (0, _) => format!("memory at {:#x} ({} bytes)", note.address, note.length),
        (owner, is_library) => format!(
            "variable `{}` of {} {owner:#x} ({} bytes from {})",
            name.escape_debug(),
            if is_library == 0 { "module" } else { "library" },
            note.length,
            note.address
        ),
    }
}

/// What memory of one repeated word holds.
fn repeated(note: &MemoryNote) -> String {
    match note.fill {
        0 => "zeros".to_owned(),
        word => format!("the bytes {}, repeated", hexadecimal(&word.to_le_bytes())),
    }
}

/// The name of a `CUlogLevel`.
fn level(number: u32) -> String {
    match number {
        0 => "error".to_owned(),
        1 => "warning".to_owned(),
        other => format!("level {other}"),
    }
}

/// Why host memory is not recorded.
pub fn skip_reason(reason: u8) -> &'static str {
    match reason {
        host_skip::LONG => "it is longer than 64 MiB",
        host_skip::FULL => "such memory exceeds 1 GiB in total",
        host_skip::EXCLUSIVE => "the host must not access it while the device works",
        host_skip::UNREADABLE => "its pages could not be read",
        _ => "for an unknown reason, given by a later cutape",
    }
}

/// Why no digest was taken.
pub fn digest_skip_reason(reason: u8) -> &'static str {
    match reason {
        digest_skip::CONCURRENT => "another thread was in a call that enqueues work",
        digest_skip::REFUSED => "the driver refused a call of the recorder",
        digest_skip::WAITS_FOR_MEMORY => "streams wait for values in memory",
        digest_skip::UNPREPARED => "the context is not prepared for digests",
        digest_skip::PARAMETERS => "the kernel's parameters are not known",
        _ => "for an unknown reason, given by a later cutape",
    }
}

/// What is kept of an exchange.
fn exchange(note: &ExchangeNote) -> String {
    let mut text = format!(
        "exchange with another process: {} bytes of memory compared",
        note.kept
    );
    if let Some(reason) = exchange_skip_reason(note.reason) {
        let _ = write!(text, ", {} bytes not: {reason}", note.left_out);
    }
    text
}

/// Why memory is not compared that an exchange may change.
pub fn exchange_skip_reason(reason: u8) -> Option<&'static str> {
    Some(match reason {
        exchange_skip::NONE => return None,
        exchange_skip::GRAPH => "the call is captured",
        exchange_skip::FULL => "the recorder's memory for copies was full",
        exchange_skip::LONG => "a range is longer than what is kept of one",
        exchange_skip::REFUSED => "the driver refused a copy of the recorder",
        _ => "for an unknown reason, given by a later cutape",
    })
}

/// Which memory was digested.
pub fn reach(note: &DigestNote) -> &'static str {
    match note.reach {
        digest_reach::PARAMETERS => "what the parameters point into",
        digest_reach::ALL => "all memory of the context",
        _ => "memory",
    }
}

/// Names a result code.
fn result_name(code: i32) -> String {
    match cutape_registry::result_name(code) {
        Some(name) => name.to_owned(),
        None => format!("result {code}"),
    }
}

/// The kind of object that owns a function.
fn owner_kind(origin: &OriginNote) -> &'static str {
    if origin.is_kernel == 0 {
        "module"
    } else {
        "library"
    }
}

/// The type of file in an `st_mode`, for people.
fn file_type(mode: u32) -> &'static str {
    match mode & 0o170_000 {
        0o020_000 => "character device",
        0o060_000 => "block device",
        0o100_000 => "file",
        0o140_000 => "socket",
        _ => "object",
    }
}
