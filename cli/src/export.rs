//! `cutape export`: writes what a trace shows for other programs.

mod chosen;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use cutape_export::rows::{Rows, Sink};
use cutape_export::tables::{JsonLines, ParquetFolder, TableSink};
use cutape_export::timeline::{ChromeTrace, LARGEST_FILE, Perfetto, TimelineSink};
use cutape_export::{Error, Replayed};
use cutape_format::Trace;

use self::chosen::Chosen;
use crate::profile_file;
use cutape_calls::{self, CallSet};
use cutape_render::quantity::count;
use cutape_symbols::Resolver;
use cutape_symbols::SymbolContext;
use cutape_terminal::failure::Failure;
use cutape_terminal::input;
use cutape_terminal::output::{self, shown};
use cutape_terminal::output_folder::Folder;
use cutape_terminal::overwrite::Overwrite;
use cutape_terminal::progress::Progress;

/// What `export` takes.
#[derive(clap::Args)]
#[command(after_help = EPILOGUE)]
pub(crate) struct Arguments {
    /// The trace, or a folder of traces to export as one data set.
    #[arg(value_name = "TRACE|FOLDER")]
    trace: PathBuf,
    /// What to write.
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: ExportFormat,
    /// The file to write, or with `parquet` the folder; must not exist, except
    /// with --overwrite.
    #[arg(short, long, value_name = "PATH", verbatim_doc_comment)]
    output: PathBuf,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Only these calls: what they launch, copy, wait for and allocate, and findings
    /// about them. Objects, images and ranges of the trace are written all.
    #[arg(long, value_name = "SET", verbatim_doc_comment, long_help = cutape_calls::help(
        "Only these calls: what they launch, copy, wait for and allocate, and findings\n\
         about them. Objects, images and ranges of the trace are written all."
    ))]
    calls: Option<String>,
    /// Also write the decoded arguments of every call (parquet, jsonl).
    #[arg(long)]
    arguments: bool,
    /// Add when the GPU ran what calls enqueued, from a replay: what `cutape profile
    /// --format json -o FILE` wrote of this trace. Timelines get the replay as a
    /// process of its own.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    profile: Option<PathBuf>,
}

const EPILOGUE: &str = "\
Times are those of the host: a trace does not show when the GPU ran something;
with --profile, a replay does.
Files of parquet and jsonl name their columns; DuckDB shows them:
  DESCRIBE SELECT * FROM 'app.parquet/calls/*.parquet'";

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ExportFormat {
    /// A timeline for ui.perfetto.dev and trace_processor.
    Perfetto,
    /// Tables for DuckDB, Spark, pandas: a folder with a folder for each table, in it a file
    /// for each trace.
    Parquet,
    /// The same tables as lines of JSON.
    Jsonl,
    /// A timeline in the JSON of chrome://tracing.
    Chrome,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let format = arguments.format;
    let is_table = matches!(format, ExportFormat::Parquet | ExportFormat::Jsonl);
    if arguments.arguments && !is_table {
        return Err(Failure::unusable(
            "--arguments: a timeline has no arguments; use it with --format parquet or jsonl",
        ));
    }
    if arguments.profile.is_some() && arguments.trace.is_dir() {
        return Err(Failure::unusable(
            "--profile: a profile is of one trace; name that trace instead of a folder",
        ));
    }
    let profile = arguments.profile.as_deref().map(profile_file::read);
    let replayed = profile.transpose()?.map(Replayed::new).map(Arc::new);
    let traces = match arguments.trace.is_dir() {
        true => input::traces_of(&arguments.trace)?,
        false => vec![arguments.trace],
    };
    let target = &arguments.output;
    let overwrite = arguments.overwrite;
    let folder = match format {
        ExportFormat::Parquet => Folder::create(target, overwrite)?,
        _ => Folder::for_file(target, overwrite)?,
    };
    let name = target.file_name().unwrap_or_default();
    let path = folder.path(&name.to_string_lossy());
    let cannot = |error: io::Error| Failure::cannot_write(target, &error);
    let failed = |error: Error| match error {
        Error::Trace(error) => error.into(),
        Error::OtherTrace(_) => Failure::unusable(format!("--profile: {error}")),
        Error::Write(error) => cannot(error),
    };
    let file = || Ok::<_, Failure>(BufWriter::new(File::create_new(&path).map_err(cannot)?));
    let export = Export {
        traces: &traces,
        set: arguments.calls.as_deref(),
        with_findings: true,
        failed: &failed,
    };
    let (calls, files) = match format {
        ExportFormat::Parquet => {
            let writer = ParquetFolder::new(folder.partial());
            let mut sink = TableSink::new(writer, arguments.arguments).with_replay(replayed);
            let calls = export.write(&mut sink)?;
            sink.finish().map_err(failed)?.finish().map_err(cannot)?;
            (calls, None)
        }
        ExportFormat::Jsonl => {
            let writer = JsonLines::new(file()?).map_err(cannot)?;
            let mut sink = TableSink::new(writer, arguments.arguments).with_replay(replayed);
            let calls = export.write(&mut sink)?;
            sink.finish().map_err(failed)?.finish().map_err(cannot)?;
            (calls, Some(vec![path.clone()]))
        }
        ExportFormat::Perfetto => {
            let writer = Perfetto::create(&path, LARGEST_FILE).map_err(cannot)?;
            let mut sink = TimelineSink::new(writer).with_replay(replayed);
            let calls = export.write(&mut sink)?;
            let files = sink.finish().map_err(failed)?.finish().map_err(cannot)?;
            (calls, Some(files))
        }
        ExportFormat::Chrome => {
            let writer = ChromeTrace::new(file()?).map_err(cannot)?;
            let mut sink = TimelineSink::new(writer).with_replay(replayed);
            let calls = export.write(&mut sink)?;
            sink.finish().map_err(failed)?.finish().map_err(cannot)?;
            (calls, Some(vec![path.clone()]))
        }
    };
    let written = match files {
        Some(files) => folder.finish_files(&files)?,
        None => {
            folder.finish()?;
            vec![target.clone()]
        }
    };
    let what = format!(
        "{} of {}",
        count(calls, "call"),
        count(traces.len() as u64, "trace")
    );
    let names: Vec<String> = written.iter().map(|path| shown(path).to_string()).collect();
    output::print(&format!("{}: {what}\n", names.join(", ")))?;
    Ok(ExitCode::SUCCESS)
}

/// The traces to export, and what of them.
pub(crate) struct Export<'a> {
    pub(crate) traces: &'a [PathBuf],
    /// `--calls`.
    pub(crate) set: Option<&'a str>,
    /// Findings take longer than all else.
    pub(crate) with_findings: bool,
    /// What an error means where the rows go.
    pub(crate) failed: &'a dyn Fn(Error) -> Failure,
}

impl Export<'_> {
    /// Writes the rows of all traces; returns the number of calls.
    pub(crate) fn write<S: Sink<Error = Error>>(&self, sink: &mut S) -> Result<u64, Failure> {
        let (mut written, mut unmatched) = (0, None);
        for path in self.traces {
            let trace = input::open_for_walk(path)?;
            let chosen = self.set.map(|text| {
                CallSet::for_trace(text, &trace).and_then(|set| set.some_calls(text, &trace))
            });
            let mut progress = Progress::over_calls("exporting", [&trace]);
            let mut calls = 0;
            let each = &mut || {
                calls += 1;
                progress.step();
            };
            let Some(chosen) = chosen else {
                self.write_trace(&trace, sink, each)?;
                written += calls;
                continue;
            };
            // A trace of a folder may have none of them.
            let chosen: BTreeSet<u64> = match chosen {
                Ok(chosen) => chosen.into_iter().collect(),
                Err(error) => {
                    unmatched = Some(error);
                    BTreeSet::new()
                }
            };
            written += chosen.len() as u64;
            let mut sink = Chosen {
                sink,
                calls: chosen,
            };
            self.write_trace(&trace, &mut sink, each)?;
        }
        match unmatched.filter(|_| written == 0) {
            Some(error) => Err(error.into()),
            None => Ok(written),
        }
    }

    fn write_trace<S: Sink<Error = Error>>(
        &self,
        trace: &Trace,
        sink: &mut S,
        each: &mut dyn FnMut(),
    ) -> Result<(), Failure> {
        let resolver = Resolver::default();
        let context = SymbolContext::new(trace, &resolver);
        let rows = match self.with_findings {
            true => Rows::of(trace).with_findings(&context),
            false => Rows::of(trace),
        };
        let walked = rows.run_with(sink, each).map_err(self.failed)?;
        input::known_functions(trace, walked.unknown_function())
    }
}
