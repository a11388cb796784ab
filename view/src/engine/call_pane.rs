//! All about a call: its result, arguments, objects, payloads, call stack and notes.

use std::collections::HashSet;
use std::fmt::Write as _;

use cutape_analyzer::TraceContext as _;
use cutape_analyzer::decode::{Argument, function_of, piece_name};
use cutape_analyzer::demangle::demangle;
use cutape_calls::Markers;
use cutape_format::{Call, Snapshot, Trace, TraceClock};
use cutape_model::{Effect, Effects, Lookup, ObjectId, Operands};
use cutape_registry::Kind;
use cutape_render::{RenderedCall, Renderer, notes, quantity};
use cutape_symbols::{Resolver, SymbolContext, stacks};
use cutape_terminal::output;

use super::object_pane;
use super::rows::outcome;
use crate::state::object_key::ObjectKey;
use crate::state::pane_line::{Link, PaneLine, Role};
use crate::state::row::Outcome;

/// Bytes of a payload that are shown.
const SHOWN_BYTES: usize = 256;
const BYTES_PER_LINE: usize = 16;
/// Objects that are listed.
const MOST_OBJECTS: usize = 64;
/// Characters of an object's name in its line.
const LONGEST_NAME: usize = 48;

/// What the panes of a trace share.
pub(super) struct PaneSource<'t> {
    pub(super) trace: &'t Trace,
    pub(super) resolver: &'t Resolver,
    pub(super) markers: &'t Markers,
    pub(super) threads: &'t [cutape_format::Thread],
}

/// The lines for a call that the renderer has observed.
pub(super) fn lines(
    source: &PaneSource<'_>,
    renderer: &mut Renderer<'_>,
    call: &Call<'_>,
) -> Vec<PaneLine> {
    let rendered = renderer.render(call);
    let mut lines = vec![head(call, &rendered)];
    lines.extend(circumstances(source, call));
    section(&mut lines, "Arguments", arguments(&rendered));
    section(&mut lines, "Wrote", outputs(&rendered));
    section(&mut lines, "Objects", objects(renderer, call));
    for snapshot in call.snapshots() {
        payload(source, call, snapshot, "before the call", &mut lines);
    }
    for snapshot in call.leave.iter().flat_map(|leave| leave.snapshots()) {
        payload(source, call, snapshot, "after the call", &mut lines);
    }
    let stack = call
        .stack()
        .and_then(|id| stacks::frames(source.trace, source.resolver, id));
    let frames = (0..)
        .zip(stack.into_iter().flatten())
        .map(|(number, frame): (u32, _)| {
            let role = if frame.is_own {
                Role::Strong
            } else {
                Role::Plain
            };
            PaneLine::new(format!("  #{number} {}", frame.in_full()), role)
        });
    section(&mut lines, "Call stack", frames.collect());
    let notes = call
        .notes()
        .filter_map(|note| notes::text(&note, &renderer.calls));
    let notes = notes.map(|note| PaneLine::new(format!("  {note}"), Role::Plain));
    section(&mut lines, "Notes", notes.collect());
    lines
}

/// Adds lines below a heading, if there are any.
fn section(lines: &mut Vec<PaneLine>, heading: &str, content: Vec<PaneLine>) {
    if !content.is_empty() {
        lines.push(PaneLine::new(heading, Role::Strong));
        lines.extend(content);
    }
}

fn head(call: &Call<'_>, rendered: &RenderedCall<'_>) -> PaneLine {
    let line = PaneLine::new(call.signature.name.to_string(), Role::Strong).and(" ", Role::Plain);
    match outcome(call, rendered) {
        Outcome::Failure(name) => line.and(format!("returned {name}"), Role::Failure),
        Outcome::InFlight => line.and("did not return", Role::Failure),
        Outcome::Success => {
            let code = call.result().unwrap_or(0).to_string();
            let name = rendered.result.clone().unwrap_or(code);
            line.and(format!("returned {name}"), Role::Success)
        }
    }
}

/// When and where the call was made.
fn circumstances(source: &PaneSource<'_>, call: &Call<'_>) -> Vec<PaneLine> {
    let clock = TraceClock::of(source.trace);
    let mut text = format!("call {} of thread {}", call.index, call.thread);
    let thread = source.threads.get(call.thread as usize);
    if let Some(thread) = thread.filter(|thread| thread.number != 0) {
        let _ = write!(
            text,
            " ({} \"{}\")",
            thread.number,
            thread.name.escape_debug()
        );
    }
    if let Some(time) = clock.since_start(call.ticks) {
        let _ = write!(text, ", at +{} ms", quantity::milliseconds(time));
    }
    if let Some(took) = call
        .leave
        .and_then(|leave| clock.between(call.ticks, leave.ticks))
    {
        let _ = write!(text, ", took {}", quantity::time(took));
    }
    let mut lines = vec![PaneLine::new(text, Role::Dim)];
    if call.caller != 0 {
        let symbol = SymbolContext::new(source.trace, source.resolver).symbol(call.caller);
        let caller = symbol.unwrap_or_else(|| format!("{:#x}", call.caller));
        lines.push(PaneLine::new(format!("from {caller}"), Role::Dim));
    }
    let ranges = source.markers.ranges.iter().enumerate();
    let around = ranges.filter(|(_, range)| range.contains(call.ticks));
    // Of nested ranges the inner one names the others.
    let parents: HashSet<usize> = around
        .clone()
        .filter_map(|(_, range)| range.parent)
        .collect();
    for (at, _) in around.filter(|(at, _)| !parents.contains(at)) {
        let path = source.markers.path(at);
        lines.push(PaneLine::new(
            format!("in range {}", path.escape_debug()),
            Role::Dim,
        ));
    }
    lines
}

fn arguments(rendered: &RenderedCall<'_>) -> Vec<PaneLine> {
    if let Some(launch) = &rendered.launch {
        let parts = launch.parts().into_iter();
        return parts
            .map(|(name, value)| PaneLine::named(&name, &value))
            .collect();
    }
    let mut lines = Vec::new();
    for Argument {
        name,
        value,
        pointee,
        pieces,
    } in &rendered.decoded.arguments
    {
        let mut text = String::new();
        value.write(&mut text);
        if let Some(pointee) = pointee {
            text.push_str(" → ");
            pointee.write(&mut text);
        }
        lines.push(PaneLine::named(name, &text));
        for (piece, value) in pieces {
            let mut text = String::new();
            value.write(&mut text);
            lines.push(PaneLine::named(&format!("  {piece}"), &text));
        }
    }
    lines
}

fn outputs(rendered: &RenderedCall<'_>) -> Vec<PaneLine> {
    let mut lines = Vec::new();
    for output in &rendered.decoded.outputs {
        let mut text = String::new();
        output.value.write(&mut text);
        lines.push(PaneLine::named(&output.full_name(), &text));
    }
    lines
}

/// What a call names: the objects that it uses, ends and creates.
fn objects(renderer: &Renderer<'_>, call: &Call<'_>) -> Vec<PaneLine> {
    let Some(function) = function_of(call.signature) else {
        return Vec::new();
    };
    let operands = Operands::of(function, call);
    let state = &renderer.state.state;
    let at_address = |address: u64| {
        let found = state.last_place_at(address)?;
        let object = state.objects.get(found)?;
        Some((object.kind, object.handle, Lookup::Ended(found)))
    };
    let found = |kind, handle| {
        let found = state.objects.resolve(kind, handle);
        let object = found.known().and_then(|id| state.objects.get(id));
        // A kernel's handle may stand for a function.
        (object.map_or(kind, |object| object.kind), handle, found)
    };
    let used = operands.handles.iter().filter(|(_, handle)| *handle != 0);
    let used = used.map(|&(kind, handle)| match kind.is_address() {
        true => at_address(handle).unwrap_or(found(kind, handle)),
        false => found(kind, handle),
    });
    let addresses = operands.addresses().filter_map(at_address);
    let words = operands.words.iter().filter_map(|&word| at_address(word));
    let effects = Effects::of(function);
    let made = effects.objects.iter().filter_map(|&(position, effect)| {
        let (kind, word) = match effect {
            Effect::Create(kind, _) => (kind, "creates"),
            Effect::Find(kind, _) | Effect::FindMany(kind, _) => (kind, "finds"),
            Effect::Get(kind) => (kind, "gets"),
            Effect::Destroy(_) => return None,
        };
        let handle = call
            .out(position)
            .filter(|handle| *handle != 0 && call.succeeded())?;
        Some((found(kind, handle), word))
    });
    let ends = |kind: Kind, handle: u64| {
        effects.objects.iter().any(|&(position, effect)| {
            matches!(effect, Effect::Destroy(ended) if ended == kind)
                && call.argument(position) == handle
        })
    };
    let uses = used.chain(addresses).chain(words);
    let uses = uses.map(|object| {
        (
            object,
            if ends(object.0, object.1) {
                "ends"
            } else {
                "uses"
            },
        )
    });
    let mut seen = HashSet::new();
    let mut lines = Vec::new();
    for ((kind, handle, lookup), word) in uses.chain(made) {
        if kind == Kind::Device || !seen.insert((kind, handle)) || lines.len() == MOST_OBJECTS {
            continue;
        }
        lines.push(object_line(
            renderer,
            call.index,
            (kind, handle),
            lookup.known(),
            word,
        ));
    }
    lines
}

fn object_line(
    renderer: &Renderer<'_>,
    call: u64,
    (kind, handle): (Kind, u64),
    id: Option<ObjectId>,
    word: &str,
) -> PaneLine {
    let mut text = object_pane::name(renderer, kind, handle);
    let object = id.and_then(|id| renderer.state.state.objects.get(id));
    let mut about = String::new();
    if let Some(object) = object {
        if let Some(name) = &object.name {
            let name = demangle(name);
            let _ = write!(
                text,
                " {}",
                output::without_middle(&name, LONGEST_NAME).escape_debug()
            );
        }
        if object.size > 0 {
            let _ = write!(about, ", {} bytes", quantity::grouped(object.size));
        }
        if object.created.index != call {
            let _ = write!(about, ", from call {}", object.created.index);
        }
    }
    PaneLine::new(format!("  {word} "), Role::Dim)
        .and(text, Role::Link)
        .and(about, Role::Dim)
        .to(Link::Object(ObjectKey { kind, handle, call }))
}

/// The first bytes behind a pointer, if they are a payload.
fn payload(
    source: &PaneSource<'_>,
    call: &Call<'_>,
    snapshot: Snapshot<'_>,
    when: &str,
    lines: &mut Vec<PaneLine>,
) {
    let length = snapshot.bytes.length().unwrap_or(0);
    // Shorter ones are decoded among the arguments.
    if length <= 8 {
        return;
    }
    let position = usize::from(snapshot.parameter);
    let parameter = call.signature.parameters.get(position);
    let mut name = parameter.map_or("?".into(), |parameter| parameter.name.to_string());
    if let Some(piece) = piece_name(snapshot.field) {
        let _ = write!(name, ".{piece}");
    }
    let title = format!("Bytes of {name} {when}");
    let about = format!(": {}", quantity::bytes(length));
    let heading = PaneLine::new(title, Role::Strong).and(about, Role::Dim);
    match source.trace.resolve(snapshot.bytes) {
        Ok(bytes) => {
            lines.push(heading);
            lines.extend(hexadecimal(&bytes));
        }
        Err(why) => lines.push(heading.and(format!(", {}", why.what), Role::Dim)),
    }
}

fn hexadecimal(bytes: &[u8]) -> impl Iterator<Item = PaneLine> {
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
    let rest = bytes.len() - shown.len();
    let lines = shown
        .chunks(BYTES_PER_LINE)
        .enumerate()
        .map(|(number, bytes)| {
            let mut text = String::new();
            for byte in bytes {
                let _ = write!(text, "{byte:02x} ");
            }
            let characters: String = bytes
                .iter()
                .map(|&byte| {
                    if (0x20..0x7f).contains(&byte) {
                        char::from(byte)
                    } else {
                        '.'
                    }
                })
                .collect();
            PaneLine::new(format!("  {:04x}  ", number * BYTES_PER_LINE), Role::Dim)
                .and(format!("{text:<48} "), Role::Plain)
                .and(characters, Role::Dim)
        });
    let more = (rest > 0).then(|| {
        let rest = quantity::grouped(rest as u64);
        PaneLine::new(format!("  … {rest} more"), Role::Dim)
    });
    lines.chain(more).collect::<Vec<_>>().into_iter()
}
