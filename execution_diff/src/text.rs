//! What a comparison found, as text.

use std::fmt::{Result, Write};

use cutape_render::quantity::{count, grouped};
use cutape_replay::Mismatch;

use crate::report::{DifferingMemory, Finding, IntroducedBy, LaunchFacts, Origin, Report, Verdict};

/// How many lines of a list are shown.
const SHOWN: usize = 8;

/// The text of a report on traces with these names.
pub fn text(report: &Report, names: [&str; 2]) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_all(report, names, &mut out);
    out
}

fn write_all(report: &Report, names: [&str; 2], out: &mut String) -> Result {
    match &report.first {
        Some(first) => write_finding(first, out)?,
        None if report.unread > 0 => writeln!(
            out,
            "no difference in the launches that were read; {} with other digests are left (--most)",
            launches(report.unread)
        )?,
        None if report.differs => {
            let compared = launches(report.launches);
            writeln!(
                out,
                "no difference in {compared}, but some are in one trace only"
            )?;
        }
        None if report.launches == 0 => writeln!(out, "no launches were compared")?,
        None => writeln!(
            out,
            "no differences: {} compared",
            launches(report.launches)
        )?,
    }
    for (name, path) in ["A", "B"].iter().zip(names) {
        writeln!(out, "{name}  {path}")?;
    }
    if report.first.is_some() {
        let (compared, differing) = (launches(report.launches), grouped(report.differing));
        let introduced = grouped(report.introduced);
        writeln!(
            out,
            "{compared} compared: {differing} with other outputs, {introduced} of these with equal inputs"
        )?;
    }
    if !report.kernels.is_empty() {
        writeln!(out, "\nintroduced by\n launches  first call  kernel")?;
        for by in &report.kernels {
            writeln!(out, "{}", introduced_line(by))?;
        }
    }
    write_rest(report, out)
}

/// What does not count, and what was not looked at.
fn write_rest(report: &Report, out: &mut String) -> Result {
    let mut lines = Vec::new();
    if !report.same_on_inputs.is_empty() {
        let kernels = shown(&report.same_on_inputs);
        lines.push(format!(
            "on A's inputs, B's kernels write the same: {kernels}"
        ));
    }
    if let Some(varying) = &report.not_reproducible {
        let varied = launches(varying.launches);
        lines.push(format!(
            "not counted: {varied} with other outputs in a second replay of A, first {}",
            place(&varying.first)
        ));
    }
    if !report.dismissed.is_empty() {
        let calls: Vec<String> = report.dismissed.iter().map(u64::to_string).collect();
        lines.push(format!(
            "not counted: within the tolerance, or only in addresses: calls {}",
            shown(&calls)
        ));
    }
    for (name, only) in ["A", "B"].iter().zip(report.only) {
        if only > 0 {
            let of_one = launches(only);
            lines.push(format!("{of_one} of {name} only: `cutape diff` lists them"));
        }
    }
    for (name, reasons) in ["A", "B"].iter().zip(&report.not_compared) {
        for (why, &number) in reasons {
            let left = launches(number);
            lines.push(format!("not compared: {left} of {name}: {why}"));
        }
    }
    for what in &report.left_out {
        lines.push(format!("not looked at: {what}"));
    }
    if report.launches > 0 {
        lines.push(
            "digests cover device memory that parameters point into: not variables, arrays, managed \
             or host memory, nor what pointers in memory lead to"
                .to_owned(),
        );
    }
    if !lines.is_empty() {
        writeln!(out)?;
    }
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// `1 launch`, `12,345 launches`.
fn launches(number: u64) -> String {
    let noun = if number == 1 { "launch" } else { "launches" };
    format!("{} {noun}", grouped(number))
}

fn shown(list: &[String]) -> String {
    let more = match list.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {} more", grouped(more as u64)),
    };
    let shown: Vec<&str> = list.iter().take(SHOWN).map(String::as_str).collect();
    shown.join(", ") + &more
}

fn write_finding(found: &Finding, out: &mut String) -> Result {
    let [a, b] = &found.launches;
    let what = match found.verdict {
        Verdict::Introduced => "introduced: equal inputs, other outputs",
        Verdict::Inherited if !found.inputs.is_empty() => "inherited: other inputs",
        Verdict::Inherited if !found.arguments.is_empty() => "inherited: other arguments",
        Verdict::Inherited => "inherited: inputs that differ within the tolerance",
    };
    writeln!(
        out,
        "first difference: call {} of A, {} of B: {}: {what}",
        a.call,
        b.call,
        kernels(a, b)
    )?;
    for (name, launch) in [("A", a), ("B", b)] {
        let from = launch.facts.from.as_deref();
        let from = from.map_or(String::new(), |from| format!(", {from}"));
        writeln!(out, "    launch {} of {name}{from}", launch.launch)?;
    }
    for argument in &found.arguments {
        writeln!(out, "    {argument}")?;
    }
    write_memory("reads", &found.inputs, out)?;
    if let Some(origin) = &found.origin {
        writeln!(out, "    {}", origin_line(origin))?;
    } else if !found.inputs.is_empty() {
        writeln!(out, "    no copy or memset that differs was found for it")?;
    }
    write_memory("writes", &found.outputs, out)?;
    if let Some(differs) = found.differs_on_same_inputs {
        let what = if differs {
            "something else"
        } else {
            "the same"
        };
        writeln!(out, "    on A's inputs, B's kernel writes {what}")?;
    }
    if let Some(why) = &found.not_read {
        writeln!(out, "    its memory was not read: {why}")?;
    }
    Ok(())
}

fn write_memory(verb: &str, memory: &[DifferingMemory], out: &mut String) -> Result {
    for one in memory.iter().take(SHOWN) {
        writeln!(out, "    {verb} {}", memory_line(one))?;
    }
    match memory.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => writeln!(
            out,
            "    {verb} {} of memory",
            count(more as u64, "further part")
        ),
    }
}

pub(crate) fn memory_line(memory: &DifferingMemory) -> String {
    let parameters = match &memory.parameters[..] {
        [] => String::new(),
        [one] => format!(" (parameter {one})"),
        all => {
            let numbers: Vec<String> = all.iter().map(u32::to_string).collect();
            format!(" (parameters {})", numbers.join(", "))
        }
    };
    let how = match &memory.mismatch {
        Some(mismatch) => mismatch_text(mismatch),
        None => format!("differs somewhere in {}", count(memory.length, "byte")),
    };
    format!("{}{parameters}: {how}", memory.memory)
}

fn mismatch_text(mismatch: &Mismatch) -> String {
    let Mismatch {
        compared_as,
        offset,
        expected,
        received,
        differing,
        elements,
        largest,
    } = mismatch;
    let largest = largest.map_or(String::new(), |by| format!(", by at most {by:e}"));
    format!(
        "{} of {} {compared_as} differ{largest}, first at +{offset:#x}: {expected} → {received}",
        grouped(*differing),
        grouped(*elements),
    )
}

fn origin_line(origin: &Origin) -> String {
    let from = origin.facts.from.as_deref();
    let from = from.map_or(String::new(), |from| format!(", {from}"));
    let what = match origin.kinds.contains(&"data") {
        true => "other input data",
        false => "other arguments",
    };
    let function = &origin.facts.function;
    format!("{what} from call {} of A: {function}{from}", origin.call)
}

fn introduced_line(by: &IntroducedBy) -> String {
    let (launches, call) = (grouped(by.launches), grouped(by.first));
    let changed = by.changed.as_ref().map_or(String::new(), |changed| {
        format!("  {}: {}", changed.memory, mismatch_text(&changed.mismatch))
    });
    let run = if by.was_run {
        "  (run on A's inputs)"
    } else {
        ""
    };
    format!("{launches:>9}  {call:>10}  {}{run}{changed}", by.kernel)
}

fn kernels(a: &LaunchFacts, b: &LaunchFacts) -> String {
    let name = |launch: &LaunchFacts| {
        let kernel = launch.facts.kernel.clone();
        let name = kernel.unwrap_or_else(|| launch.facts.function.clone());
        match launch.node {
            Some(node) => format!("node {node} {name}"),
            None => name,
        }
    };
    match (name(a), name(b)) {
        (a, b) if a == b => a,
        (a, b) => format!("{a} → {b}"),
    }
}

fn place(launch: &LaunchFacts) -> String {
    format!("call {}: {}", launch.call, kernels(launch, launch))
}
