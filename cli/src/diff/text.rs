//! Differences as text.

use std::fmt::Write;
use std::path::Path;

use cutape_diff::{
    CallSite, Difference, FEWEST_CALLS, Kind, Report, Setting, Spread, Times, UnsetBytes,
};

use cutape_analyzer::demangle::demangle;
use cutape_render::quantity::{count, grouped, time};
use cutape_terminal::output::{printable, shortened, shown};

/// Longer names of kernels are cut.
const KERNEL_WIDTH: usize = 60;
/// How settings of the environment begin.
const ENVIRONMENT: &str = "environment ";
/// How many lines of times are printed.
const MOST_TIMES: usize = 30;

/// The whole output.
pub(super) fn text(paths: [&Path; 2], report: &Report, all: bool) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_all(paths, report, all, &mut out);
    out
}

fn write_all(paths: [&Path; 2], report: &Report, all: bool, out: &mut String) -> std::fmt::Result {
    writeln!(out, "{}", first_line(report))?;
    for ((name, path), side) in ["A", "B"].iter().zip(paths).zip(&report.sides) {
        let calls = count(side.calls, "call");
        let threads = count(side.threads, "thread");
        writeln!(out, "{name}  {}: {calls} in {threads}", shown(path))?;
    }
    write_settings(&report.settings, out)?;
    if report.lengths_only {
        writeln!(
            out,
            "copied bytes are compared by length only: recorded with --payloads or --outputs none"
        )?;
    }
    if !report.differences.is_empty() {
        writeln!(out)?;
        for (kind, number) in &report.counts {
            writeln!(out, "{:>9}  {}", grouped(*number), kind.meaning())?;
        }
        writeln!(out)?;
        for difference in &report.differences {
            writeln!(out, "{}", line(difference))?;
        }
        if report.omitted > 0 {
            let hint = if all { "" } else { "; --all lists them" };
            writeln!(out, "and {} more{hint}", grouped(report.omitted))?;
        }
    }
    if let Some(noise) = report.noise {
        let differences = count(noise, "difference");
        writeln!(
            out,
            "{differences} left out, where A differs from its other recordings (--noise) too"
        )?;
    }
    write_unset(&report.unset, all, out)?;
    write_left_out(report, all, out)?;
    if !report.times.is_empty() {
        write_times(&report.times, out)?;
    }
    Ok(())
}

/// The first difference, or that there is none.
pub(super) fn first_line(report: &Report) -> String {
    let first = report.first.and_then(|first| report.differences.get(first));
    match first {
        Some(first) if report.differs() => format!("first difference: {}", line(first)),
        Some(_) => "no differences but in what the driver says about the machine".to_owned(),
        None => {
            let [a, b] = &report.sides;
            let calls = match a.calls == b.calls {
                true => count(a.calls, "call"),
                false => format!("{} and {} calls", grouped(a.calls), grouped(b.calls)),
            };
            format!("no differences: {calls}")
        }
    }
}

/// `call 12 of A, 14 of B: cuLaunchKernel saxpy: block 256x1x1 → 128x1x1 (3 times)`
fn line(difference: &Difference) -> String {
    let place = match &difference.sites {
        [Some(a), Some(b)] => format!("call {} of A, {} of B: ", a.index, b.index),
        [Some(a), None] => format!("call {} of A: ", a.index),
        [None, Some(b)] => format!("call {} of B: ", b.index),
        [None, None] => String::new(),
    };
    let times = match (difference.count, is_row(difference)) {
        (2.., false) => format!(" ({} times)", grouped(difference.count)),
        _ => String::new(),
    };
    format!("{place}{}{times}", title(difference))
}

/// Whether the count is that of calls in a row, which the title names.
fn is_row(difference: &Difference) -> bool {
    difference.sites.iter().flatten().count() == 1 && difference.kinds.contains(&Kind::Call)
}

/// The title with the kernels' names as in their source.
pub(super) fn title(difference: &Difference) -> String {
    let mut title = difference.title.clone();
    let mut kernels: Vec<&str> = difference
        .sites
        .iter()
        .flatten()
        .filter_map(kernel)
        .collect();
    kernels.dedup();
    for kernel in kernels {
        let readable = demangle(kernel);
        title = title.replace(kernel, &shortened(&readable, KERNEL_WIDTH));
    }
    printable(&title).into_owned()
}

fn kernel(site: &CallSite) -> Option<&str> {
    site.kernel.as_deref()
}

/// Variables of the environment, of which there may be many, by name only.
fn write_settings(settings: &[Setting], out: &mut String) -> std::fmt::Result {
    let is_variable = |setting: &&Setting| setting.what.starts_with(ENVIRONMENT);
    for setting in settings.iter().filter(|setting| !is_variable(setting)) {
        writeln!(out, "other {}", setting_text(setting))?;
    }
    let names: Vec<&str> = settings
        .iter()
        .filter_map(|setting| setting.what.strip_prefix(ENVIRONMENT))
        .collect();
    if !names.is_empty() {
        writeln!(out, "other environment: {}", printable(&names.join(", ")))?;
    }
    Ok(())
}

/// `driver: CUDA 13.0 → CUDA 12.9`
fn setting_text(setting: &Setting) -> String {
    let value = |value: &Option<String>| match value {
        Some(value) => shortened(&printable(value), 80).into_owned(),
        None => "none".to_owned(),
    };
    let [a, b] = &setting.values;
    format!("{}: {} → {}", setting.what, value(a), value(b))
}

/// Bytes of kernel parameters that may be unset: in a line, with `all` by kernel.
fn write_unset(unset: &[UnsetBytes], all: bool, out: &mut String) -> std::fmt::Result {
    if unset.is_empty() {
        return Ok(());
    }
    let launches = unset.iter().map(|one| one.launches).sum();
    writeln!(
        out,
        "\nnot counted: {} whose struct parameters differ in bytes that may be unset, as padding \
         is: what was copied back later is equal{}",
        launch_count(launches),
        if all {
            ""
        } else {
            " (--all lists them, --strict counts them)"
        }
    )?;
    for one in unset.iter().filter(|_| all) {
        let kernel = shortened(&demangle(&one.kernel), KERNEL_WIDTH).into_owned();
        let bytes = one.bytes.iter().map(|range| match range.end - range.start {
            1 => format!("{}", range.start),
            _ => format!("{}..{}", range.start, range.end),
        });
        let bytes = bytes.collect::<Vec<_>>().join(", ");
        let launches = launch_count(one.launches);
        writeln!(
            out,
            "  {}: bytes {bytes} of its parameters, {launches}",
            printable(&kernel)
        )?;
    }
    Ok(())
}

fn launch_count(launches: u64) -> String {
    match launches {
        1 => "1 launch".to_owned(),
        launches => format!("{} launches", grouped(launches)),
    }
}

fn write_left_out(report: &Report, all: bool, out: &mut String) -> std::fmt::Result {
    let changed = report.left_out.iter();
    let changed: Vec<_> = changed
        .filter(|one| all || one.counts[0] != one.counts[1])
        .collect();
    if changed.is_empty() && report.moved == 0 && report.reordered_ends == 0 {
        return Ok(());
    }
    writeln!(out)?;
    for one in changed {
        let [a, b] = one.counts;
        writeln!(
            out,
            "not compared: {} ({}): {} in A, {} in B",
            one.sort,
            one.function,
            grouped(a),
            grouped(b)
        )?;
    }
    if report.moved > 0 {
        let moved = count(report.moved, "call");
        writeln!(out, "not counted: {moved} that another thread makes in B")?;
    }
    if report.reordered_ends > 0 {
        let ends = count(report.reordered_ends, "call");
        writeln!(out, "not counted: {ends} that end objects in another order")?;
    }
    Ok(())
}

fn write_times(times: &[Times], out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "\nDurations of calls on the host: median, and the middle half; one recording each"
    )?;
    for one in times.iter().take(MOST_TIMES) {
        let mut name = one.function.clone();
        if let Some(kernel) = &one.kernel {
            name += &format!(" {}", shortened(&demangle(kernel), KERNEL_WIDTH));
        }
        let verdict = match one.change {
            None if one.sides.iter().any(|side| side.calls < FEWEST_CALLS) => {
                "too few calls".to_owned()
            }
            None => "within the noise".to_owned(),
            Some(percent @ 0..) => format!("{percent} % slower in B"),
            Some(percent) => format!("{} % faster in B", percent.unsigned_abs()),
        };
        let [a, b] = one.sides.map(spread_text);
        writeln!(out, "  {name}: {a} → {b}: {verdict}")?;
    }
    if times.len() > MOST_TIMES {
        writeln!(
            out,
            "  and {} more, of shorter calls",
            times.len() - MOST_TIMES
        )?;
    }
    Ok(())
}

fn spread_text(spread: Spread) -> String {
    match spread.calls {
        0 => "no call".to_owned(),
        calls => format!(
            "{} ({} to {}, {})",
            time(spread.median),
            time(spread.low),
            time(spread.high),
            count(calls, "call")
        ),
    }
}
