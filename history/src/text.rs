//! An answer as text.

use std::fmt::Write as _;

use cutape_analyzer::demangle::demangle;
use cutape_render::Element;
use cutape_render::quantity::count;
use cutape_replay::{Change, Writer};

use crate::calls::CallFacts;
use crate::chain::{Answer, Input, Write};

/// Columns by which what a writer read is moved to the right.
const STEP: usize = 4;
/// Numbers of one change that are shown.
const SHOWN: usize = 4;
/// Bytes that are shown of memory that begins.
const BYTES: usize = 16;

/// The text of an answer, with numbers of that type.
pub fn text(answer: &Answer, element: Option<&Element>) -> String {
    let mut out = String::new();
    let when = match answer.before {
        Some(call) => format!("before call {call}"),
        None => "at the end".to_owned(),
    };
    let _ = writeln!(out, "{}, {when}", place(answer));
    body(answer, element, 0, &mut out);
    out
}

fn place(answer: &Answer) -> String {
    let Answer {
        address, length, ..
    } = answer;
    let bytes = count(*length, "byte");
    match &answer.label {
        Some(label) => format!("{label} ({address:#x}, {bytes})"),
        None => format!("{address:#x}, {bytes}"),
    }
}

fn body(answer: &Answer, element: Option<&Element>, indent: usize, out: &mut String) {
    let of_memory = answer.of_last_memory();
    let is_end = |write: &&Write| write.change.by == Writer::Ends;
    let ended = of_memory.iter().take_while(is_end).count();
    let Some((last, earlier)) = of_memory.get(ended..).and_then(<[Write]>::split_first) else {
        let _ = writeln!(out, "{:indent$}no call of the replay had memory there", "");
        return;
    };
    write(last, element, indent, out);
    for end in of_memory.iter().take(ended) {
        write(end, element, indent, out);
    }
    for input in &answer.inputs {
        let _ = writeln!(out, "{:indent$}{}", "", read(input));
        body(&input.answer, element, indent + STEP, out);
    }
    if indent > 0 {
        return;
    }
    if !earlier.is_empty() {
        let _ = writeln!(out, "before that");
    }
    for write_before in earlier {
        write(write_before, element, STEP, out);
    }
    let listed = of_memory.len() as u64;
    if answer.changes > listed {
        let more = count(answer.changes - listed, "earlier change");
        let _ = writeln!(out, "    and {more}");
    }
}

fn read(input: &Input) -> String {
    match input.parameter {
        Some(number) => format!("its parameter {number} points at {}", place(&input.answer)),
        None => format!("it reads {}", place(&input.answer)),
    }
}

fn write(write: &Write, element: Option<&Element>, indent: usize, out: &mut String) {
    let Write { change, by_call } = write;
    let (call, by) = (change.call, writer(change, by_call));
    let from = by_call
        .from
        .as_deref()
        .map(|from| format!(", {from}"))
        .unwrap_or_default();
    let _ = writeln!(out, "{:indent$}{by}{from}", "");
    if change.since != call {
        let since = change.since;
        let _ = writeln!(
            out,
            "{:indent$}  or by a call since {since}: a stream was capturing, so that the replay \
             could not look between them",
            ""
        );
    }
    let numbers = changed_numbers(change, element);
    if !numbers.is_empty() {
        let _ = writeln!(out, "{:indent$}  {numbers}", "");
    }
}

/// Who made a change, with that call: `written by call 12 cuMemsetD8_v2`.
pub fn writer(change: &Change, by_call: &CallFacts) -> String {
    let call = change.call;
    let function = &by_call.function;
    let kernel = by_call
        .kernel
        .as_deref()
        .map(|name| format!(" {name}"))
        .unwrap_or_default();
    match &change.by {
        Writer::Call => format!("written by call {call} {function}{kernel}"),
        Writer::Node(number, what) => {
            let what = demangle(what);
            format!("written by node {number} ({what}) of the graph of call {call} {function}")
        }
        Writer::Host => format!("written by the program's CPU code before call {call} {function}"),
        Writer::Begins => format!("its memory is made by call {call} {function}"),
        Writer::Ends => format!("its memory ended with call {call} {function}"),
    }
}

/// The first numbers that a change has changed, or those of memory that begins: `+4: 7 -> 8`.
pub fn changed_numbers(change: &Change, element: Option<&Element>) -> String {
    let Change {
        at, before, after, ..
    } = change;
    if before.is_empty() {
        return shown(element, after);
    }
    let size = element.map_or(1, |element| element.bytes as usize);
    let pairs = before.chunks_exact(size).zip(after.chunks_exact(size));
    let changed = (0u64..)
        .zip(pairs)
        .filter(|(_, (before, after))| before != after);
    let changed: Vec<_> = changed.take(SHOWN + 1).collect();
    let texts = changed.iter().take(SHOWN).map(|(number, (before, after))| {
        let place = at + number * size as u64;
        let [before, after] = [before, after].map(|bytes| shown(element, bytes));
        format!("+{place}: {before} -> {after}")
    });
    let mut texts: Vec<String> = texts.collect();
    if changed.len() > SHOWN {
        texts.push("…".to_owned());
    }
    texts.join(", ")
}

/// Numbers, or bytes in hexadecimal.
fn shown(element: Option<&Element>, bytes: &[u8]) -> String {
    if let Some(element) = element {
        return element.text(bytes);
    }
    let mut texts: Vec<String> = bytes
        .iter()
        .take(BYTES)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    if bytes.len() > BYTES {
        texts.push("…".to_owned());
    }
    texts.join(" ")
}
