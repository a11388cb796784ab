//! `cutape report`: a trace as one HTML page.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cutape_analyzer::FindingLimits;
use cutape_analyzer::output::Style;
use cutape_export::rows::Rows;
use cutape_format::{TemporaryFile, Trace};
use cutape_measure::Benchmark;
use cutape_profile::Profile;
use cutape_render::quantity;
use cutape_replay::Skipped;
use cutape_report::{Added, Collector, Report};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::check::{Choice, FindingFilter};
use crate::profile_file;
use cutape_symbols::Resolver;
use cutape_symbols::SymbolContext;
use cutape_terminal::failure::Failure;
use cutape_terminal::message;
use cutape_terminal::overwrite::Overwrite;
use cutape_terminal::progress::Progress;
use cutape_terminal::{input, output};

/// What `report` takes.
#[derive(clap::Args)]
#[command(after_help = EPILOGUE)]
pub(crate) struct Arguments {
    /// The trace.
    trace: PathBuf,
    /// Where to write the page. Default: app.html for app.cutape, in this folder.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Show this report of a replay beside the trace: what `cutape replay
    /// --report FILE` wrote.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    replay: Option<PathBuf>,
    /// Show these measurements beside the trace: what `cutape bench
    /// --report FILE` wrote.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    bench: Option<PathBuf>,
    /// Show this answer beside the trace: what `cutape why --report FILE` wrote.
    #[arg(long, value_name = "FILE")]
    why: Option<PathBuf>,
    /// Show this profile beside the trace: what `cutape profile --format json -o FILE`
    /// wrote.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    profile: Option<PathBuf>,
    /// Leave out findings that this file lists, as in `check`.
    #[arg(long, value_name = "FILE")]
    suppress: Option<PathBuf>,
    /// Show findings of every class: also probes, expected errors, teardown.
    #[arg(long)]
    all: bool,
}

const EPILOGUE: &str = "\
The page is one file that any current browser opens; it needs no network. It
shows the summary, a timeline of threads and streams, memory over time, launches
by kernel, findings with the histories of their objects, images, and objects
that were never destroyed. Press ? in it for its keys and the filter's words.";

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let target = match &arguments.output {
        Some(path) => path.clone(),
        None => default_target(&arguments.trace)?,
    };
    arguments.overwrite.replaces(&target)?;
    let replay = arguments.replay.as_deref();
    let replay = replay.map(|path| read_json::<cutape_replay::Report>(path, "replay"));
    let bench = arguments.bench.as_deref();
    let bench = bench.map(|path| read_json::<Measurements>(path, "bench"));
    let why = arguments.why.as_deref();
    let why = why.map(|path| read_json::<cutape_history::Answer>(path, "why"));
    let others = Others {
        replay: replay.transpose()?,
        bench: bench.transpose()?,
        why: why.transpose()?,
        profile: arguments
            .profile
            .as_deref()
            .map(profile_file::read)
            .transpose()?,
    };
    let trace = input::open_for_walk(&arguments.trace)?;
    if let Some(profile) = &others.profile {
        profile_file::expect_of(profile, &trace)?;
    }
    let report = report_of(&trace, &arguments, others)?;
    let bytes = arguments.overwrite.write(&target, |path| {
        write(&report, path).map_err(|error| Failure::cannot_write(&target, &error))
    })?;
    message!(
        "{}: {}; open it in a browser",
        output::shown(&target),
        quantity::bytes(bytes)
    );
    Ok(ExitCode::SUCCESS)
}

/// `app.html` for `traces/app.cutape`.
fn default_target(trace: &Path) -> Result<PathBuf, Failure> {
    let name = trace.file_name().ok_or_else(|| {
        Failure::unusable(format!("{}: not a file; name a trace", trace.display()))
    })?;
    Ok(Path::new(name).with_extension("html"))
}

/// What other verbs wrote.
struct Others {
    replay: Option<Value>,
    bench: Option<Value>,
    why: Option<Value>,
    profile: Option<Profile>,
}

/// What the page reads of the report of `bench`.
#[derive(Serialize, Deserialize)]
struct Measurements {
    benchmarks: Vec<Measurement>,
    not_repeated: Vec<Skipped>,
    not_reissued: Vec<Skipped>,
    notes: BTreeMap<String, u64>,
    mismatches: Vec<Value>,
}

/// A row of it.
#[derive(Serialize, Deserialize)]
struct Measurement {
    #[serde(flatten)]
    benchmark: Benchmark,
    driver: String,
    verdict: String,
}

/// The report that another verb wrote as JSON. The page relies on its shape.
fn read_json<T: Serialize + DeserializeOwned>(path: &Path, verb: &str) -> Result<Value, Failure> {
    let fail = |why: String| {
        Failure::unusable(format!(
            "--{verb} {}: {why}; give what `cutape {verb} --report FILE` wrote",
            path.display()
        ))
    };
    let bytes = fs::read(path).map_err(|error| fail(error.to_string()))?;
    let report: T = serde_json::from_slice(&bytes)
        .map_err(|error| fail(format!("no report of `cutape {verb}`: {error}")))?;
    serde_json::to_value(&report).map_err(|error| fail(error.to_string()))
}

/// Reads the trace: once for the summary, once for rows and findings.
fn report_of(trace: &Trace, arguments: &Arguments, others: Others) -> Result<Report, Failure> {
    // Rules read the content of blobs.
    input::expect_undamaged(trace, &trace.verify_blobs())?;
    let summary = crate::info::summary(trace)?;
    let choice = Choice {
        suppress: arguments.suppress.as_deref(),
        limits: FindingLimits {
            all: arguments.all,
            ..FindingLimits::default()
        },
        ..Choice::default()
    };
    let mut filter = FindingFilter::new(&choice, false, Style::PLAIN)?;
    let resolver = Resolver::default();
    let context = SymbolContext::new(trace, &resolver);
    let mut progress = Progress::over_calls("checking", [trace]);
    let mut collector = Collector::new(
        trace,
        || progress.step(),
        |finding| filter.add(vec![finding.clone()]),
    );
    let walked = Rows::of(trace)
        .with_findings(&context)
        .run(&mut collector)?;
    input::known_functions(trace, walked.unknown_function())?;
    input::expect_undamaged(trace, &walked.damage(trace))?;
    let mut rows = collector.finish();
    filter.settle(rows.take_repeats());
    let mut findings = filter.list.findings;
    // The worst first; those of one severity stay in order.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity as u8));
    let name = trace
        .path()
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let summary = serde_json::to_value(&summary)
        .map_err(|error| Failure::unusable(format!("{}: {error}", trace.path().display())))?;
    let added = Added {
        title: format!("{name} – cutape"),
        summary,
        findings,
        omitted: filter.list.omitted.text(),
        replay: others.replay,
        bench: others.bench,
        why: others.why,
        profile: others.profile,
    };
    Ok(Report::new(rows, added))
}

/// Writes the page beside its place first; the bytes that it has.
fn write(report: &Report, target: &Path) -> std::io::Result<u64> {
    let temporary = TemporaryFile::beside(target)?;
    let mut out = BufWriter::new(temporary.file());
    report.write(&mut out)?;
    out.flush()?;
    drop(out);
    let bytes = temporary.file().metadata()?.len();
    temporary.publish(target)?;
    Ok(bytes)
}
