//! The summary as tables for people.

use std::io::{self, Write};

use cutape_analyzer::demangle::{bare, demangle};
use cutape_render::quantity::{bytes, count, grouped, time_or_unknown};
use cutape_report::summary::{CallFacts, Summary};
use cutape_terminal::output::{printable, shortened};

use super::facts::{write_facts, write_revealed};
use super::page::{Page, write_table};

/// Longer names of kernels lose their namespaces.
const LONG_NAME: usize = 50;

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
}
