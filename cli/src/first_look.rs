//! `cutape TRACE`: what a trace is, in a few lines, and what to do with it.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use crate::info;
use cutape_render::quantity::{bytes, count, grouped, time};
use cutape_report::summary::Summary;
use cutape_terminal::failure::Failure;
use cutape_terminal::input;
use cutape_terminal::output;

/// Whether the only argument of the command line is meant as a trace: no verb has its name.
pub(crate) fn is_trace(argument: &OsStr) -> bool {
    let path = Path::new(argument);
    let is_option = argument.to_string_lossy().starts_with('-');
    let has_ending = path.extension().is_some_and(|ending| ending == "cutape");
    // A path is no verb. An ending that was forgotten is suggested.
    let is_path = argument.to_string_lossy().contains('/');
    let lacks_ending = || path.with_added_extension("cutape").is_file();
    !is_option && (path.is_file() || has_ending || is_path || lacks_ending())
}

/// Prints the lines.
pub(crate) fn run(path: &Path) -> Result<ExitCode, Failure> {
    let trace = input::open_for_walk(path)?;
    let summary = info::summary(&trace)?;
    output::print(&text(&summary, path))?;
    Ok(ExitCode::SUCCESS)
}

fn text(summary: &Summary, path: &Path) -> String {
    let Summary {
        program,
        machine,
        calls,
        copies,
        ..
    } = summary;
    let name = output::shown(path);
    let file = program
        .path
        .as_deref()
        .map(Path::new)
        .and_then(Path::file_name);
    let file = file.map_or("unknown".into(), |name| name.to_string_lossy());
    // The first argument is the program as it was called.
    let arguments = program.arguments.iter().skip(1).map(String::as_str);
    let words: Vec<&str> = std::iter::once(&*file).chain(arguments).collect();
    let program_name = words.join(" ");
    let mut text = String::new();
    let mut line = |label: &str, value: String| {
        // Writing to a String never fails.
        let _ = writeln!(text, "  {label:<9}{}", output::printable(&value));
    };
    let program_name = output::printable(&program_name).into_owned();
    let ended = info::end(&program.process);
    let lasted = summary
        .duration_ns
        .map_or_else(String::new, |ns| format!(" after {}", time(ns)));
    line(
        "program",
        format!("{}, {ended}{lasted}", output::shortened(&program_name, 60)),
    );
    let version = machine.driver_version.map_or_else(
        || "unknown driver".to_owned(),
        |version| format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
    );
    let mut devices: Vec<String> = Vec::new();
    for device in &machine.devices {
        let name = device
            .name
            .clone()
            .unwrap_or_else(|| "unknown GPU".to_owned());
        if !devices.contains(&name) {
            devices.push(name);
        }
    }
    let devices = match machine.devices.len() {
        0 => "no GPU".to_owned(),
        1 => devices.join(", "),
        several => format!("{several} × {}", devices.join(", ")),
    };
    let system = machine
        .kernel
        .clone()
        .map_or_else(String::new, |kernel| format!(", {kernel}"));
    line("machine", format!("{devices}, {version}{system}"));
    let mut counts = format!(
        "{} of {}",
        grouped(calls.total),
        count(summary.threads.len() as u64, "thread")
    );
    if calls.failed > 0 {
        let _ = write!(counts, ", {} failed", grouped(calls.failed));
    }
    if calls.in_flight > 0 {
        let _ = write!(counts, ", {} did not return", grouped(calls.in_flight));
    }
    line("calls", counts);
    let kernels = summary.kernels.len() as u64;
    line(
        "launches",
        format!(
            "{} of {}",
            grouped(summary.launches),
            count(kernels, "kernel")
        ),
    );
    line(
        "copied",
        format!(
            "{} to devices, {} back, {} between devices",
            bytes(copies.host_to_device_bytes),
            bytes(copies.device_to_host_bytes),
            bytes(copies.device_to_device_bytes)
        ),
    );
    let what_next = [
        ("check", "finds misuse of the API"),
        ("view", "browses the calls"),
        ("info", "summarises them in tables"),
        ("replay", "re-issues them and compares"),
    ];
    let mut page = format!("{name}: {}\n{text}\n", bytes(summary.trace.bytes));
    for (verb, what) in what_next {
        let command = format!("cutape {verb} {name}");
        let _ = writeln!(page, "  {command:<44}  {what}");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_trace() {
        for (argument, expected) in [
            ("app.cutape", true),
            ("/no/such/app.cutape", true),
            ("Cargo.toml", true),
            ("chekc", false),
            ("--help", false),
            ("-x.cutape", false),
            ("src", false),
            ("./src", true),
            ("/dev/null", true),
        ] {
            assert_eq!(is_trace(OsStr::new(argument)), expected, "{argument}");
        }
    }
}
