//! An answer as text.

use std::fmt::Write as _;

use cutape_analyzer::demangle::demangle;
use cutape_render::Element;
use cutape_render::quantity::count;
use cutape_replay::{Change, EXACT, Writer};

use crate::calls::CallFacts;
use crate::chain::{Answer, Input, Write};
use crate::difference::{Difference, differing, shown};
use crate::explore::{Explored, Interleaving};
use crate::first::FirstAnswer;
use crate::race::{Outcome, Race};

/// Columns by which what a writer read is moved to the right.
const STEP: usize = 4;
/// Numbers of one change that are shown.
const SHOWN: usize = 4;
/// Bytes of a page.
const PAGE: u64 = cutape_driver::dirty::PAGE;

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
    let (by, call) = (written_by(&change.by, change.call, by_call), change.call);
    let _ = writeln!(out, "{:indent$}{by}", "");
    if change.since != call {
        let since = since(change.since);
        let _ = writeln!(out, "{:indent$}  {since}", "");
    }
    let numbers = numbers(change, element);
    if !numbers.is_empty() {
        let _ = writeln!(out, "{:indent$}  {numbers}", "");
    }
    // Bytes of numbers that follow each other change here and there: only long ranges have parts.
    let is_long = change.parts.iter().any(|(at, _)| *at > EXACT);
    if is_long && let Some(parts) = parts(change) {
        let _ = writeln!(out, "{:indent$}  {parts}", "");
    }
}

/// Who has written, and where the program is then: `written by call 12 cuMemsetD8_v2`.
pub fn written_by(by: &Writer, call: u64, by_call: &CallFacts) -> String {
    let function = &by_call.function;
    let kernel = by_call.kernel.as_deref();
    let kernel = kernel.map(|name| format!(" {name}")).unwrap_or_default();
    let by = match by {
        Writer::Call => format!("written by call {call} {function}{kernel}"),
        Writer::Node(number, what) => {
            let what = demangle(what);
            format!("written by node {number} ({what}) of the graph of call {call} {function}")
        }
        Writer::Host => format!("written by the program's CPU code before call {call} {function}"),
        Writer::Begins => format!("its memory is made by call {call} {function}"),
        Writer::Ends => format!("its memory ended with call {call} {function}"),
    };
    match &by_call.from {
        Some(from) => format!("{by}, {from}"),
        None => by,
    }
}

fn since(call: u64) -> String {
    format!(
        "or by a call since {call}: a stream was capturing, so that the replay could not look \
         between them"
    )
}

/// The text of the first calls that wrote what was looked for.
pub fn first_text(answer: &FirstAnswer, element: Option<&Element>) -> String {
    let mut out = String::new();
    if answer.findings.is_empty() {
        out.push_str("no call of the replay wrote that\n");
    }
    let mut last = None;
    for finding in &answer.findings {
        let by = written_by(&finding.by, finding.call, &finding.by_call);
        let place = match &finding.label {
            Some(label) => format!("{label} ({:#x})", finding.address),
            None => format!("{:#x}", finding.address),
        };
        let writer = Some((&finding.by, finding.call));
        if finding.hit.is_some() || writer != std::mem::replace(&mut last, writer) {
            let _ = writeln!(out, "{by}");
        }
        if finding.since != finding.call {
            let _ = writeln!(out, "  {}", since(finding.since));
        }
        if let Some(hit) = &finding.hit {
            let value = Element::named(hit.element).map(|element| {
                let bytes = hit.value.to_le_bytes();
                let size = element.bytes as usize;
                element.text(bytes.get(..size).unwrap_or(&bytes))
            });
            let doubt = match hit.is_certain {
                true => "",
                false => ", if the numbers there are of that type (--type)",
            };
            let (kind, value) = (hit.element, value.unwrap_or_default());
            let _ = writeln!(
                out,
                "  {kind} {value} at {place}; {} such in that page of 16 KiB, {} in all{doubt}",
                hit.count,
                count(hit.pages, "page"),
            );
        }
        if let Some(change) = &finding.change {
            let _ = writeln!(out, "  {place}: {}", numbers(change, element));
            if let Some(parts) = parts(change) {
                let _ = writeln!(out, "  {parts}");
            }
        }
    }
    out
}

/// The text of pairs that nothing orders.
pub fn race_text(races: &[Race], element: Option<&Element>) -> String {
    let mut out = String::new();
    for race in races {
        let Race {
            first,
            second,
            label,
            ..
        } = race;
        let [one, other] = race.by_calls.each_ref().map(|facts| {
            let kernel = facts.kernel.as_deref().map(|name| format!(" {name}"));
            let from = facts.from.as_deref().map(|from| format!(", {from}"));
            let (kernel, from) = (kernel.unwrap_or_default(), from.unwrap_or_default());
            format!("{}{kernel}{from}", facts.function)
        });
        let _ = writeln!(out, "call {first} {one}\ncall {second} {other}");
        let why = match race.is_programmatic {
            true => "in one stream, and the second may start early",
            false => "in two streams, and nothing orders them",
        };
        if !label.is_empty() {
            let _ = writeln!(out, "  use {label} {why}");
        }
        let differing =
            |difference: &Difference| differing(difference, race.is_programmatic, element);
        outcome_text(&race.outcome, &differing, "  ", &mut out);
        let missing = match race.is_programmatic {
            true => "griddepcontrol.wait (cudaGridDependencySynchronize) in the second kernel"
                .to_owned(),
            false => format!(
                "record an event after call {first}, and let the stream of call {second} wait for \
                 it (cuEventRecord, cuStreamWaitEvent)"
            ),
        };
        if matches!(race.outcome, Outcome::Proven(_)) {
            let _ = writeln!(out, "  missing: {missing}");
        }
    }
    out
}

/// The text of other orders.
pub fn explored_text(explored: &[Explored], element: Option<&Element>) -> String {
    let mut out = String::new();
    let list = |calls: &[u64]| {
        let calls: Vec<String> = calls.iter().map(u64::to_string).collect();
        calls.join(" ")
    };
    for Explored { calls, tried } in explored {
        let orders = count(tried.len() as u64, "other order");
        let _ = writeln!(out, "calls {}: {orders}", list(calls));
        for Interleaving { calls, outcome } in tried {
            let _ = writeln!(out, "  order {}", list(calls));
            let differing = |difference: &Difference| differing(difference, false, element);
            outcome_text(outcome, &differing, "    ", &mut out);
        }
    }
    out
}

fn outcome_text(
    outcome: &Outcome,
    differing: &dyn Fn(&Difference) -> String,
    indent: &str,
    out: &mut String,
) {
    let lines = match outcome {
        Outcome::Proven(differences) => {
            let lines = differences
                .iter()
                .map(|found| format!("proven: {}", differing(found)));
            lines.collect()
        }
        Outcome::Same => vec!["not shown: both orders leave the same memory".to_owned()],
        Outcome::Varies => {
            vec!["not shown: the memory differs between replays of one order already".to_owned()]
        }
        Outcome::NotTried(why) => vec![format!("not tried: {why}")],
    };
    for line in lines {
        let _ = writeln!(out, "{indent}{line}");
    }
}

/// Which bytes have changed, if some of them are not shown: `12 bytes in 2 parts: +0 4, +640 8`.
fn parts(change: &Change) -> Option<String> {
    let end = change.parts.last().map(|(at, length)| at + length)?;
    if !change.in_pages && end <= change.at + change.after.len() as u64 {
        return None;
    }
    let bytes = change.parts.iter().map(|part| part.1).sum();
    let how_many = count(change.parts.len() as u64, "part");
    let shown = change.parts.iter().take(SHOWN);
    let shown: Vec<String> = shown
        .map(|(at, length)| format!("+{at} {length}"))
        .collect();
    let more = if change.parts.len() > SHOWN {
        ", …"
    } else {
        ""
    };
    let doubt = match change.in_pages {
        true => ", some of them whole pages of 16 KiB that were not compared",
        false => "",
    };
    let (bytes, shown) = (count(bytes, "byte"), shown.join(", "));
    Some(format!("{bytes} in {how_many}: {shown}{more}{doubt}"))
}

/// The first numbers that have changed, or those of memory that begins: `+4: 7 -> 8`.
pub fn numbers(change: &Change, element: Option<&Element>) -> String {
    let Change {
        at, before, after, ..
    } = change;
    if before.is_empty()
        && change.in_pages
        && let Some((first, _)) = change.parts.first()
    {
        let pages = change.parts.iter().map(|part| part.1.div_ceil(PAGE)).sum();
        return format!("{} of 16 KiB, the first at +{first}", count(pages, "page"));
    }
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
