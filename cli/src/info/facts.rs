//! The summary's facts: a name and a value in each line.

use std::io::{self, Write};

use cutape_format::{Secret, Secrets};
use cutape_render::quantity::{bytes, count, grouped, time, utc};
use cutape_report::summary::{MachineFacts, ProcessFacts, Revealed, Summary, TraceFacts};
use cutape_terminal::output::{printable, shortened};

use super::page::Page;

/// The width of a fact's name.
const FACT: usize = 12;

/// A fact's name and value.
type Fact = (&'static str, String);

pub(super) fn write_facts(
    summary: &Summary,
    columns: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut rows = program_facts(summary, columns);
    rows.extend(machine_facts(&summary.machine));
    rows.extend(trace_facts(summary));
    rows.extend(call_facts(summary));
    for (name, value) in rows {
        writeln!(out, "{name:<FACT$}{}", printable(&value))?;
    }
    Ok(())
}

fn program_facts(summary: &Summary, columns: usize) -> Vec<Fact> {
    let program = &summary.program;
    let process = &program.process;
    let mut rows = vec![("program", program.path.clone().unwrap_or_else(unknown))];
    if !program.arguments.is_empty() {
        let words: Vec<String> = program.arguments.iter().map(|word| quoted(word)).collect();
        rows.push(("command", cut(&words.join(" "), columns)));
    }
    if let Some(directory) = &program.directory {
        rows.push(("directory", directory.clone()));
    }
    for (name, value) in &program.environment {
        rows.push(("environment", cut(&format!("{name}={value}"), columns)));
    }
    rows.push(("process", process.process.to_string()));
    rows.push(("ended", ending(process)));
    let parallel = [("rank", process.rank), ("local rank", process.local_rank)];
    for (name, rank) in parallel {
        rows.extend(rank.map(|rank| (name, rank.to_string())));
    }
    rows.push(("started", utc(summary.started_unix_ns)));
    rows.push(("duration", summary.duration_ns.map_or_else(unknown, time)));
    rows
}

fn machine_facts(machine: &MachineFacts) -> Vec<Fact> {
    let mut rows = Vec::new();
    if let Some(kernel) = &machine.kernel {
        rows.push(("system", kernel.clone()));
    }
    let version = machine.driver_version.map_or_else(unknown, |version| {
        format!("CUDA {}.{}", version / 1000, version % 1000 / 10)
    });
    let kind = match machine.driver_kind.as_deref() {
        Some("null") => " (null driver: does not run kernels)",
        _ => "",
    };
    let path = machine.driver_path.clone().unwrap_or_else(unknown);
    rows.push(("driver", format!("{version}, {path}{kind}")));
    for device in &machine.devices {
        let mut text = device.name.clone().unwrap_or_else(unknown);
        if let Some(capability) = &device.compute_capability {
            text += &format!(", compute capability {capability}");
        }
        if let Some(memory) = device.memory_bytes {
            text += &format!(", {}", bytes(memory));
        }
        rows.push(("GPU", text));
        if let Some(uuid) = &device.uuid {
            rows.push(("", gpu_uuid(uuid)));
        }
    }
    rows
}

fn trace_facts(summary: &Summary) -> Vec<Fact> {
    let trace = &summary.trace;
    let packed = if trace.packed { ", packed" } else { "" };
    let mut rows = vec![(
        "trace",
        format!(
            "{}, {}{packed}, format {}, {} with {}",
            trace.path,
            bytes(trace.bytes),
            trace.format,
            count(trace.blobs, "blob"),
            bytes(trace.blob_bytes)
        ),
    )];
    if let Some(kept) = &trace.kept {
        rows.push(("kept", kept.text()));
    }
    if let Some(cut) = &trace.cut {
        rows.push(("cut from", cut.text(summary.calls.total)));
        if let Some(state) = &cut.state {
            rows.push(("memory", state.text()));
        }
    }
    let recorder = trace.recorder_version.clone().unwrap_or_else(unknown);
    rows.push(("recorder", format!("version {recorder}")));
    rows.push(("payloads", payloads(trace)));
    rows.push(("call stacks", stacks(trace)));
    rows.extend(when_digested(summary).map(|when| ("digests", when)));
    let exchanges = summary.exchanges.as_ref();
    rows.extend(exchanges.map(|exchanges| ("exchanges", exchanges.text())));
    let snapshots = summary.memory_snapshots.as_ref();
    rows.extend(snapshots.map(|snapshots| ("snapshots", snapshots.text())));
    rows
}

fn call_facts(summary: &Summary) -> Vec<Fact> {
    let mut rows = Vec::new();
    for thread in &summary.threads {
        let name = match thread.name.as_str() {
            "" => String::new(),
            name => format!(" \"{}\"", name.escape_debug()),
        };
        let calls = count(thread.calls, "call");
        rows.push((
            "thread",
            format!("@{} = {}{name}, {calls}", thread.ordinal, thread.number),
        ));
    }
    rows.push((
        "calls",
        format!(
            "{}, {} failed, {} in flight",
            grouped(summary.calls.total),
            grouped(summary.calls.failed),
            grouped(summary.calls.in_flight)
        ),
    ));
    rows
}

fn unknown() -> String {
    "unknown".into()
}

/// The policies for bytes copied to and from devices.
fn payloads(trace: &TraceFacts) -> String {
    let kept = |policy: &Option<String>| match policy.as_deref() {
        Some("all") => "all bytes",
        Some("hash") if trace.packed => "only hashes",
        Some("hash") => "all bytes, only hashes once packed",
        Some("none") => "only lengths",
        _ => "unknown",
    };
    match (kept(&trace.payloads), kept(&trace.outputs)) {
        (to, from) if to == from => to.to_owned(),
        (to, from) => format!("copied to devices: {to}; copied from devices: {from}"),
    }
}

/// Which calls have a call stack.
fn stacks(trace: &TraceFacts) -> String {
    let which = match trace.stacks.as_deref() {
        Some("some") => "of calls that create, destroy, load, unload, wait or fail",
        Some("all") => "of all calls",
        _ => return "none; `record --stacks` keeps them".to_owned(),
    };
    format!("{which}; {} distinct", trace.distinct_stacks)
}

/// When device memory was digested; `None` if it was not.
fn when_digested(summary: &Summary) -> Option<String> {
    let when = match summary.digests.when.as_deref()? {
        "sync" => "after waits, ",
        "launch" => "after launches, ",
        _ => "",
    };
    Some(format!(
        "of device memory, {when}when contexts end and at the exit"
    ))
}

/// A value cut to one line; JSON has all of it.
fn cut(value: &str, columns: usize) -> String {
    shortened(&printable(value), columns.saturating_sub(FACT)).into_owned()
}

/// Formats sixteen bytes as `nvidia-smi -L` does: `GPU-8-4-4-4-12`; returns other texts unchanged.
fn gpu_uuid(text: &str) -> String {
    if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return text.to_owned();
    }
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| &text[range]);
    format!("GPU-{}", parts.join("-"))
}

/// A word of a command line, quoted if necessary.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("{word:?}")
    }
}

fn ending(process: &ProcessFacts) -> String {
    let end = super::end(process);
    match (process.exit_signal, process.exit_status) {
        (Some(_), _) => format!("by {end}"),
        (None, Some(_)) => format!("with exit {end}"),
        (None, None) => end,
    }
}

/// What the trace reveals, a line for each kind of secret.
pub(super) fn write_revealed(revealed: &Revealed, page: &mut Page<'_>) -> io::Result<()> {
    let payloads = match (revealed.payloads, revealed.hashed_payloads) {
        (0, 0) => None,
        (0, hashes) => Some(format!("{} as hashes", grouped(hashes))),
        (number, _) => Some(format!(
            "{} with {}",
            grouped(number),
            bytes(revealed.payload_bytes)
        )),
    };
    let parameters = revealed.kernel_parameters;
    let redacted = Secrets::of_words(revealed.redacted.as_deref().unwrap_or_default());
    let what = match redacted.has(Secret::Parameters) {
        true => "addresses only, ",
        false => "",
    };
    let parameters = (parameters > 0).then(|| format!("{what}{} kernels", grouped(parameters)));
    let mut environment = revealed.environment.join(", ");
    if revealed.arguments > 0 {
        let comma = if environment.is_empty() { "" } else { "; " };
        environment += &format!("{comma}{}", count(revealed.arguments, "argument"));
    }
    let users = match revealed.users.is_empty() {
        true => String::new(),
        false => format!(", with the users {}", revealed.users.join(", ")),
    };
    let paths = (revealed.paths > 0).then(|| format!("{}{users}", grouped(revealed.paths)));
    let images = (revealed.images > 0).then(|| {
        let [ptx, sources] = [revealed.images_with_ptx, revealed.images_with_sources].map(grouped);
        let images = grouped(revealed.images);
        format!("{images}, {ptx} with PTX, {sources} with names of source files")
    });
    let words = |list: &Option<String>| list.as_ref().map(|list| list.replace(',', ", "));
    let rows = [
        ("payloads", payloads),
        ("parameters", parameters),
        (
            "environment",
            Some(environment).filter(|text| !text.is_empty()),
        ),
        ("paths", paths),
        ("images", images),
        ("removed", words(&revealed.redacted)),
        ("not yet removed", words(&revealed.to_be_redacted)),
    ];
    writeln!(
        page.out,
        "\nWhat the trace reveals; `cutape redact` removes it"
    )?;
    for (name, value) in rows {
        if let Some(value) = value {
            writeln!(page.out, "  {name:<16}{}", cut(&value, page.columns))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids() {
        for (text, shown) in [
            (
                "6375746170652d6e756c6c2d00000000",
                "GPU-63757461-7065-2d6e-756c-6c2d00000000",
            ),
            ("GPU-1", "GPU-1"),
            ("", ""),
        ] {
            assert_eq!(gpu_uuid(text), shown);
        }
    }
}
