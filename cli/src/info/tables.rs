//! The summary as tables for people.

use std::borrow::Cow;
use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};

use cutape_analyzer::demangle::{bare, demangle};
use cutape_format::{Secret, Secrets};
use cutape_render::quantity::{bytes, count, grouped, time, time_or_unknown, utc};
use cutape_report::summary::{
    CallFacts, MachineFacts, ProcessFacts, Revealed, Summary, TraceFacts,
};
use cutape_terminal::output::{printable, shortened, without_middle};

/// The most rows of a table; JSON has all.
const MOST_ROWS: usize = 40;

/// The least width of a column.
const LEAST_COLUMN: usize = 16;
/// Longer names of kernels lose their namespaces.
const LONG_NAME: usize = 50;
/// The width of a fact's name.
const FACT: usize = 12;
/// The most terminal lines of a call.
const CALL_LINES: usize = 3;

/// Writes the summary in lines of at most `columns` characters, except for paths and calls.
pub(crate) fn write(summary: &Summary, columns: usize, out: &mut dyn Write) -> io::Result<()> {
    write_facts(summary, columns, out)?;
    let mut page = Page { columns, out };
    write_functions(summary, &mut page)?;
    write_kernels(summary, &mut page)?;
    write_ranges(summary, &mut page)?;
    write_images(summary, &mut page)?;
    write_payload_files(summary, &mut page)?;
    write_memory(summary, &mut page)?;
    write_digests(summary, &mut page)?;
    write_exchanges(summary, &mut page)?;
    write_objects(summary, &mut page)?;
    write_revealed(&summary.reveals, &mut page)?;
    write_calls(
        "Failed calls",
        summary.calls.failed,
        &summary.failed,
        &mut page,
    )?;
    write_calls(
        "In flight at the end",
        summary.calls.in_flight,
        &summary.in_flight,
        &mut page,
    )?;
    let Page { out, .. } = page;
    if !summary.remarks.is_empty() {
        writeln!(out, "\nRemarks of the recorder")?;
        for remark in &summary.remarks {
            writeln!(out, "  {}", printable(remark))?;
        }
    }
    Ok(())
}

/// The output of tables.
struct Page<'o> {
    columns: usize,
    out: &'o mut dyn Write,
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

/// A fact's name and value.
type Fact = (&'static str, String);

fn write_facts(summary: &Summary, columns: usize, out: &mut dyn Write) -> io::Result<()> {
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

/// A table without rules. The first `left` columns are texts, which are cut if the table is wider
/// than `columns`; the others are numbers.
pub(super) fn table(
    header: &[&str],
    mut rows: Vec<Vec<String>>,
    left: usize,
    columns: usize,
) -> Vec<String> {
    narrow(header, &mut rows, left, columns);
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.iter().copied());
    table.add_rows(rows);
    for place in left..header.len() {
        if let Some(column) = table.column_mut(place) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

/// Cuts texts until a row fits, the last column first.
fn narrow(header: &[&str], rows: &mut [Vec<String>], left: usize, columns: usize) {
    let length = |text: &str| text.chars().count();
    for cell in rows.iter_mut().flatten() {
        if let Cow::Owned(clean) = printable(cell) {
            *cell = clean;
        }
    }
    let mut widths: Vec<usize> = header.iter().map(|title| length(title)).collect();
    for row in rows.iter() {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(length(cell));
        }
    }
    // One space before the table and one on either side of each column; the last is trimmed.
    let too_wide = |widths: &[usize]| widths.iter().map(|width| width + 2).sum::<usize>() > columns;
    for least in [2 * LEAST_COLUMN, LEAST_COLUMN] {
        while too_wide(&widths) {
            // The first column identifies the row, so it is cut last.
            let wide = |width: &&mut usize| **width > least;
            match widths[..left].iter_mut().rev().find(wide) {
                Some(width) => *width -= 1,
                None => break,
            }
        }
    }
    for row in rows {
        for (cell, &width) in row.iter_mut().zip(&widths[..left]) {
            if length(cell) > width {
                *cell = without_middle(cell, width).into_owned();
            }
        }
    }
}

fn write_table(
    title: &str,
    header: &[&str],
    mut rows: Vec<Vec<String>>,
    left: usize,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let Page { columns, out } = page;
    if rows.is_empty() {
        return Ok(());
    }
    let more = rows.len().saturating_sub(MOST_ROWS);
    rows.truncate(MOST_ROWS);
    writeln!(out, "\n{title}")?;
    for line in table(header, rows, left, *columns) {
        writeln!(out, " {line}")?;
    }
    if more > 0 {
        writeln!(out, "  … {more} more, all in --format json")?;
    }
    Ok(())
}

fn write_functions(summary: &Summary, page: &mut Page<'_>) -> io::Result<()> {
    let rows = summary.functions.iter().map(|entry| {
        vec![
            entry.function.clone(),
            grouped(entry.calls),
            grouped(entry.failed),
            time_or_unknown(entry.total_ns),
            time_or_unknown(entry.mean_ns),
            time_or_unknown(entry.max_ns),
        ]
    });
    let header = ["function", "calls", "failed", "total", "mean", "max"];
    write_table("Calls by function", &header, rows.collect(), 1, page)
}

/// A kernel's name without its result and its parameters; short, if it is long.
fn kernel_name(name: &str) -> String {
    let readable = demangle(name);
    let bare = bare(&readable);
    match bare.chars().count() > LONG_NAME {
        true => unqualified(bare),
        false => bare.to_owned(),
    }
}

/// A C++ name without namespaces, which hide the differences between long names.
fn unqualified(name: &str) -> String {
    let name = name.replace("(anonymous namespace)::", "");
    let mut short = String::with_capacity(name.len());
    let mut rest = name.as_str();
    while let Some(place) = rest.find("::") {
        let (before, behind) = rest.split_at(place);
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let kept = before.trim_end_matches(word);
        short.push_str(kept);
        if kept.len() == before.len() {
            // The class has template arguments: without it the rest says too little.
            short.push_str("::");
        }
        rest = &behind["::".len()..];
    }
    short + rest
}

fn write_kernels(summary: &Summary, page: &mut Page<'_>) -> io::Result<()> {
    let has_graphs = summary.graph_kernels != 0;
    let rows = summary.kernels.iter().map(|entry| {
        let name = entry
            .name
            .as_deref()
            .map_or_else(|| "(name unknown)".into(), kernel_name);
        let shown: Vec<String> = entry
            .first_grids
            .iter()
            .map(|[x, y, z]| format!("{x}x{y}x{z}"))
            .collect();
        let mut grids = shown.join(" ");
        if entry.grids > shown.len() as u64 {
            grids += &format!(" and {} more", entry.grids - shown.len() as u64);
        }
        let mut row = vec![name, grids, grouped(entry.launches)];
        row.extend(has_graphs.then(|| grouped(entry.in_graphs)));
        row.push(grouped(entry.failed));
        row
    });
    let header: &[&str] = match has_graphs {
        true => &["kernel", "grids", "launches", "in graphs", "failed"],
        false => &["kernel", "grids", "launches", "failed"],
    };
    write_table("Launches by kernel", header, rows.collect(), 2, page)
}

/// What the trace reveals, a line for each kind of secret.
fn write_revealed(revealed: &Revealed, page: &mut Page<'_>) -> io::Result<()> {
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

fn write_exchanges(summary: &Summary, page: &mut Page<'_>) -> io::Result<()> {
    let exchanges = summary.exchanges.as_ref();
    let rows = exchanges
        .into_iter()
        .flat_map(|exchanges| &exchanges.by_kernel);
    let rows = rows.map(|entry| {
        let kernel = entry
            .kernel
            .as_deref()
            .map_or_else(String::new, kernel_name);
        let changed = bytes(entry.changed_bytes);
        vec![
            entry.function.clone(),
            kernel,
            grouped(entry.calls),
            bytes(entry.compared_bytes),
            changed,
            bytes(entry.left_out_bytes),
        ]
    });
    let header = [
        "function", "kernel", "calls", "compared", "changed", "not kept",
    ];
    write_table(
        "Exchanges with other processes",
        &header,
        rows.collect(),
        2,
        page,
    )
}

fn write_ranges(summary: &Summary, page: &mut Page<'_>) -> io::Result<()> {
    let named = |domain: &Option<String>, name: &str| match domain {
        Some(domain) => format!("{domain}@{name}"),
        None => name.to_owned(),
    };
    let rows = summary.ranges.iter().map(|entry| {
        let open = match entry.open {
            0 => String::new(),
            open => format!(" ({} open)", grouped(open)),
        };
        vec![
            named(&entry.domain, &entry.range) + &open,
            grouped(entry.count),
            grouped(entry.calls),
            grouped(entry.launches),
            time_or_unknown(entry.total_ns),
            time_or_unknown(entry.mean_ns),
            time_or_unknown(entry.max_ns),
        ]
    });
    let header = [
        "range", "count", "calls", "launches", "total", "mean", "max",
    ];
    write_table("Ranges", &header, rows.collect(), 1, page)?;
    let rows = summary.marks.iter().map(|entry| {
        vec![
            named(&entry.domain, &entry.mark),
            grouped(entry.count),
            time_or_unknown(entry.first_ns),
        ]
    });
    write_table(
        "Marks",
        &["mark", "count", "first at"],
        rows.collect(),
        1,
        page,
    )
}

fn write_images(summary: &Summary, page: &mut Page<'_>) -> io::Result<()> {
    let rows = summary.images.iter().map(|image| {
        let facts = &image.facts;
        let kernels = facts.kernels.iter().take(4).map(|name| kernel_name(name));
        let mut kernels: Vec<String> = kernels.collect();
        if facts.kernels.len() > 4 {
            kernels.push(format!("and {} more", facts.kernels.len() - 4));
        }
        vec![
            facts.name.to_owned(),
            facts.targets.join(" "),
            match &facts.problem {
                Some(problem) => format!("cannot be read: {problem}"),
                None => kernels.join(" "),
            },
            format!("call {}", image.call),
            bytes(facts.bytes),
            grouped(facts.entries as u64),
            grouped(image.uses),
        ]
    });
    let header = [
        "image",
        "for",
        "kernels",
        "first seen",
        "size",
        "entries",
        "uses",
    ];
    write_table("Images", &header, rows.collect(), 4, page)?;
    if summary.images_not_kept > 0 {
        writeln!(
            page.out,
            "  {} without bytes in the trace",
            count(summary.images_not_kept, "image use")
        )?;
    }
    Ok(())
}

/// The files that have payloads of the trace.
fn write_payload_files(summary: &Summary, page: &mut Page<'_>) -> io::Result<()> {
    let rows = summary.payload_files.iter().map(|file| {
        vec![
            printable(&file.path).into_owned(),
            bytes(file.bytes),
            grouped(file.parts),
            match &file.changed {
                None => "as it was".to_owned(),
                Some(_) => "missing or changed".to_owned(),
            },
        ]
    });
    let header = ["payloads in file", "size", "parts", "file now"];
    write_table("Data files", &header, rows.collect(), 1, page)?;
    for why in summary
        .payload_files
        .iter()
        .filter_map(|file| file.changed.as_ref())
    {
        writeln!(page.out, "  {}", printable(why))?;
    }
    Ok(())
}

fn write_memory(summary: &Summary, page: &mut Page<'_>) -> io::Result<()> {
    let rows = summary.memory.0.iter().map(|(kind, account)| {
        vec![
            kind.name().to_owned(),
            grouped(account.allocations),
            grouped(account.freed),
            bytes(account.total_bytes),
            bytes(account.peak_bytes),
            bytes(account.live_bytes),
        ]
    });
    let header = [
        "memory",
        "allocations",
        "freed",
        "total",
        "peak",
        "at the end",
    ];
    write_table("Memory", &header, rows.collect(), 1, page)?;
    let copies = &summary.copies;
    let rows = [
        ("host to device", copies.host_to_device_bytes),
        ("device to host", copies.device_to_host_bytes),
        ("device to device", copies.device_to_device_bytes),
        ("host to host", copies.host_to_host_bytes),
        ("filled", copies.filled_bytes),
    ];
    let rows = rows
        .iter()
        .filter(|row| row.1 > 0)
        .map(|(name, number)| vec![(*name).to_owned(), bytes(*number)]);
    write_table("Copies", &["direction", "bytes"], rows.collect(), 1, page)?;
    if copies.unknown_copies > 0 {
        let number = grouped(copies.unknown_copies);
        writeln!(page.out, "  {number} more of unknown size or direction")?;
    }
    Ok(())
}

fn write_digests(summary: &Summary, page: &mut Page<'_>) -> io::Result<()> {
    let digests = &summary.digests;
    let rows = digests.places.iter().map(|place| {
        vec![
            place.place.to_owned(),
            place.memory.to_owned(),
            grouped(place.calls),
            grouped(place.digests),
            bytes(place.bytes),
        ]
    });
    let header = ["taken", "memory", "calls", "digests", "bytes"];
    write_table("Digests of device memory", &header, rows.collect(), 2, page)?;
    if digests.with_value + digests.void < digests.digests {
        let missing = digests.digests - digests.with_value - digests.void;
        let missing = grouped(missing);
        writeln!(
            page.out,
            "  {missing} without a value: the recording ended before they were read"
        )?;
    }
    if digests.void > 0 {
        let void = grouped(digests.void);
        writeln!(
            page.out,
            "  {void} do not count: a call of another thread overlapped"
        )?;
    }
    for (reason, number) in &digests.not_taken {
        writeln!(page.out, "  {} not taken: {reason}", grouped(*number))?;
    }
    if digests.contexts_refused > 0 {
        let contexts = count(digests.contexts_refused, "context");
        writeln!(
            page.out,
            "  none in {contexts}: the driver refused to prepare it"
        )?;
    }
    Ok(())
}

fn write_objects(summary: &Summary, page: &mut Page<'_>) -> io::Result<()> {
    let rows = summary.never_destroyed.iter().map(|left| {
        let mut first: Vec<String> = left
            .first
            .iter()
            .map(|object| {
                format!(
                    "{:#x} ({}, call {})",
                    object.handle, object.function, object.call
                )
            })
            .collect();
        if left.count > first.len() as u64 {
            first.push(format!("and {} more", left.count - first.len() as u64));
        }
        vec![left.name.to_owned(), first.join(", "), grouped(left.count)]
    });
    let header = ["kind", "created by", "count"];
    write_table("Never destroyed", &header, rows.collect(), 2, page)
}

fn write_calls(
    title: &str,
    total: u64,
    calls: &[CallFacts],
    page: &mut Page<'_>,
) -> io::Result<()> {
    if calls.is_empty() {
        return Ok(());
    }
    let Page { columns, out } = page;
    writeln!(out, "\n{title}")?;
    for call in calls {
        let result = match &call.result {
            Some(result) => result.text(),
            None => "? (did not return)".to_owned(),
        };
        let text = shortened(&call.text, CALL_LINES * *columns);
        writeln!(out, "  {} @{} {text} = {result}", call.call, call.thread)?;
    }
    if total > calls.len() as u64 {
        writeln!(out, "  … {} more", grouped(total - calls.len() as u64))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_fit() {
        let long = "void at::native::vectorized_elementwise_kernel<4>".repeat(20);
        for (columns, cells, widest) in [
            (80, ["short", "1x1x1", "7"], 25),
            (80, [&long, "1x1x1", "7"], 80),
            (100, [&long, "1x1x1", "7"], 100),
            (80, [&long, &long, "7"], 80),
            // Numbers are never cut.
            (80, ["short", "1x1x1", &long], long.len() + 17),
        ] {
            let rows = vec![cells.map(str::to_owned).to_vec(), vec![String::new(); 3]];
            let lines = table(&["kernel", "grids", "launches"], rows, 2, columns);
            let width = lines.iter().map(|line| 1 + line.chars().count()).max();
            assert_eq!(width, Some(widest), "{lines:#?}");
        }
    }

    #[test]
    fn names_of_kernels() {
        for (name, shown) in [
            ("saxpy", "saxpy"),
            ("_Z1kv", "k"),
            ("_Z1kILi4EEvPfi", "k<4>"),
            (
                "_ZN12_GLOBAL__N_11kIiEEvT_",
                "(anonymous namespace)::k<int>",
            ),
            ("(odd)", "(odd)"),
            ("odd)", "odd)"),
            ("at::native::short", "at::native::short"),
            (
                "at::native::elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1> >",
                "elementwise_kernel<4, FillFunctor<float>, array<char*, 1> >",
            ),
            (
                "void at::(anonymous namespace)::scan<at::Wide<float>::value_type, __at::more_and_more>(int)",
                "scan<Wide<float>::value_type, more_and_more>",
            ),
            ("", ""),
        ] {
            assert_eq!(kernel_name(name), shown);
        }
    }

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
