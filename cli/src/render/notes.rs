//! What was noted while a call was in progress, as text and as JSON.

use cutape_analyzer::decode::{hexadecimal, piece_name, text as text_of};
use cutape_format::Note;
use cutape_format::layout::{OriginNote, host_skip};
use serde_json::{Value as Json, json};

use super::renderer::Renderer;

/// A note for people; `None` for one that is shown with the arguments.
pub(crate) fn text(note: &Note<'_>, arrived: Option<String>) -> Option<String> {
    Some(match note {
        Note::Snapshots(_) => return None,
        Note::Thread(thread) => {
            format!(
                "thread is {} \"{}\"",
                thread.number,
                text_of(&thread.name).escape_debug()
            )
        }
        Note::Layout(handle, layout) => {
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
        Note::Origin(origin, name) => format!(
            "{:#x} is `{}` of {} {:#x}; no recorded call gave it",
            origin.handle,
            name.escape_debug(),
            owner_kind(origin),
            origin.owner,
        ),
        Note::Readback(note, snapshot) => format!(
            "arrived at {:#x}, of call {} of thread {}{}: {}",
            note.address,
            note.number,
            note.thread,
            piece_name(snapshot.field).map_or_else(String::new, |name| format!(" ({name})")),
            arrived.unwrap_or_default(),
        ),
        Note::HostChanged(note, _) => format!(
            "host memory at {:#x} {}: {}",
            note.address,
            seen(note.is_after),
            arrived.unwrap_or_default(),
        ),
        Note::HostSkipped(note) => format!(
            "host memory at {:#x}, {} bytes, is not recorded where the device reads it: {}",
            note.address,
            note.length,
            skip_reason(note.reason),
        ),
        Note::Stopped(why) => format!("recording stopped here: {why}"),
        Note::UnknownSymbol(name) => {
            format!(
                "the program asked for `{}`, which this cutape does not know",
                name.escape_debug()
            )
        }
        Note::Other(kind, bytes) => {
            format!(
                "note of kind {kind} by a later cutape, {} bytes",
                bytes.len()
            )
        }
    })
}

/// A note for programs: `kind` says which keys there are; `None` for one that is shown with the arguments.
pub(crate) fn json(note: &Note<'_>, arrived: Option<Json>) -> Option<Json> {
    Some(match note {
        Note::Snapshots(_) => return None,
        Note::Thread(thread) => json!({
            "kind": "thread",
            "number": thread.number,
            "name": text_of(&thread.name),
        }),
        Note::Layout(handle, layout) => json!({
            "kind": "layout",
            "handle": format!("{handle:#x}"),
            "parameters": layout
                .iter()
                .map(|(offset, size)| json!({ "offset": offset, "size": size }))
                .collect::<Vec<_>>(),
        }),
        Note::Origin(origin, name) => json!({
            "kind": "origin",
            "handle": format!("{:#x}", origin.handle),
            "name": name,
            "owner": format!("{:#x}", origin.owner),
            "owner_kind": owner_kind(origin),
        }),
        Note::Readback(note, snapshot) => json!({
            "kind": "arrived",
            "thread": note.thread,
            "number": note.number,
            "address": format!("{:#x}", note.address),
            "parameter": snapshot.parameter,
            "piece": piece_name(snapshot.field),
            "data": arrived,
        }),
        Note::HostChanged(note, _) => json!({
            "kind": "host_changed",
            "address": format!("{:#x}", note.address),
            "after": note.is_after != 0,
            "data": arrived,
        }),
        Note::HostSkipped(note) => json!({
            "kind": "host_skipped",
            "address": format!("{:#x}", note.address),
            "length": note.length,
            "reason": skip_reason(note.reason),
        }),
        Note::Stopped(why) => json!({ "kind": "stopped", "why": why }),
        Note::UnknownSymbol(name) => json!({ "kind": "unknown_symbol", "name": name }),
        Note::Other(kind, bytes) => json!({
            "kind": "other",
            "number": kind,
            "hex": hexadecimal(&bytes[..bytes.len().min(256)]),
            "bytes": bytes.len(),
        }),
    })
}

/// When changed host memory was seen.
fn seen(is_after: u8) -> &'static str {
    if is_after == 0 {
        "held before the call"
    } else {
        "holds after the call"
    }
}

/// Why host memory is not looked at, in words.
pub(crate) fn skip_reason(reason: u8) -> &'static str {
    match reason {
        host_skip::LONG => "it is longer than 64 MiB",
        host_skip::FULL => "more than 1 GiB of such memory in all",
        host_skip::EXCLUSIVE => "the host must not touch it while the device works",
        host_skip::UNREADABLE => "its pages could not be read",
        _ => "for a reason of a later cutape",
    }
}

/// What a function of unseen origin belongs to.
fn owner_kind(origin: &OriginNote) -> &'static str {
    if origin.is_kernel == 0 {
        "module"
    } else {
        "library"
    }
}

/// The bytes that a note brings, as text.
pub(crate) fn arrived_text<'t>(note: &Note<'t>, renderer: &Renderer<'t>) -> Option<String> {
    let (Note::Readback(_, snapshot) | Note::HostChanged(_, snapshot)) = note else {
        return None;
    };
    let mut out = String::new();
    renderer.readback(*snapshot).write(&mut out);
    Some(out)
}

/// The bytes that a note brings, as JSON.
pub(crate) fn arrived_json<'t>(note: &Note<'t>, renderer: &Renderer<'t>) -> Option<Json> {
    let (Note::Readback(_, snapshot) | Note::HostChanged(_, snapshot)) = note else {
        return None;
    };
    Some(renderer.readback(*snapshot).json())
}
