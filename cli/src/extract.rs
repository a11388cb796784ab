//! `cutape extract`: images, and launches as programs that check themselves.

use std::path::PathBuf;
use std::process::ExitCode;

use cutape_calls::{self, CallSet};
use cutape_cut::extract::{self, Extraction, Launch, Number, OutputFolder};
use cutape_format::Trace;
use cutape_render::quantity::parse_bytes;
use cutape_terminal::failure::Failure;
use cutape_terminal::library;
use cutape_terminal::output_folder::Folder;
use cutape_terminal::overwrite::Overwrite;

use crate::guarded::{GuardedOptions, JsonReport, ReportOption};
use crate::observation;
use crate::one_rank::{RankOption, Source};

/// Contents of memory are bounded by this, unless the user says otherwise.
const LIMIT: &str = "16G";

/// Longer allocations are not taken whole, unless the user says otherwise.
const LONGEST: &str = "64M";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cutape extract app.cutape --images images      every cubin and PTX text
  cutape extract app.cutape --launch 57 one      call 57 as a program
  cutape extract app.cutape --launch 912.3 two   kernel node 3 of a graph
  cutape extract app.cutape --all launches       all launches; then:
  python3 launches/run_all.py                    runs them, prints a table")]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(crate) struct Arguments {
    /// The trace; with --rank, a folder with the traces of several ranks.
    trace: PathBuf,
    #[command(flatten)]
    rank: RankOption,
    /// The folder to write; must not exist, except with --overwrite.
    folder: PathBuf,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Write every image once, with its cubins and PTX texts unpacked.
    ///
    /// index.txt lists their kernels and variables, index.json too. Machine code is
    /// disassembled if nvdisasm or cuobjdump is on the search path.
    #[arg(long, group = "what", verbatim_doc_comment)]
    images: bool,
    /// Write the launch of call N as a program that checks itself.
    ///
    /// It has the image, the parameters, and the memory that the kernel can reach,
    /// before and after, from a replay. It needs the driver and nothing else.
    /// 912.3 is kernel node 3 of the graph that call 912 launches.
    #[arg(long, group = "what", value_name = "N", value_parser = Number::parse)]
    #[arg(verbatim_doc_comment)]
    launch: Option<Number>,
    /// Write all launches and the kernel nodes of launched graphs, with a script
    /// that runs each and prints a table.
    #[arg(long, group = "what", verbatim_doc_comment)]
    all: bool,
    /// With --all: only the launches among these calls.
    #[arg(long, value_name = "SET", conflicts_with_all = ["images", "launch"])]
    #[arg(long_help = cutape_calls::help("With --all: only the launches among these calls."))]
    calls: Option<String>,
    /// With --all: only N launches, of all kernels and from all over the trace.
    #[arg(long, value_name = "N", conflicts_with_all = ["images", "launch"])]
    sample: Option<usize>,
    /// Of allocations longer than that, take that many bytes from each address.
    ///
    /// Some programs allocate most of the device at once, JAX for example. A kernel
    /// that reads or writes further than that from an address that it is given does
    /// not give the recorded results.
    #[arg(long, value_name = "BYTES", default_value = LONGEST, value_parser = parse_bytes)]
    #[arg(verbatim_doc_comment)]
    longest: u64,
    /// Leave out launches when the contents of memory take that many bytes.
    ///
    /// K, M and G are 2^10, 2^20 and 2^30. Equal pages count once, zeros not at all.
    #[arg(long, value_name = "BYTES", default_value = LIMIT, value_parser = parse_bytes)]
    #[arg(verbatim_doc_comment)]
    limit_bytes: u64,
    /// The driver to replay on: a path, or `null`. Default: this machine's.
    #[arg(long, value_name = "PATH")]
    driver: Option<PathBuf>,
    #[command(flatten)]
    guarded: GuardedOptions,
    #[command(flatten)]
    report: ReportOption,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let source = arguments
        .rank
        .source(&arguments.trace, &arguments.guarded)?;
    let trace = cutape_terminal::input::open(source.path())?;
    let report = arguments.report.prepare()?;
    if arguments.images {
        let folder = Folder::create(&arguments.folder, arguments.overwrite)?;
        let index = extract::write_images(&trace, &output(&folder, &arguments))
            .map_err(Failure::unusable)?;
        folder.finish()?;
        report.write(&index, &index.summary(&arguments.folder))?;
        return Ok(ExitCode::SUCCESS);
    }
    let launches = match arguments.launch {
        Some(number) => vec![extract::launch(&trace, number).map_err(Failure::unusable)?],
        None => chosen_launches(&trace, &arguments)?,
    };
    extract_launches(&arguments, (&trace, &source), &launches, &report)?;
    Ok(ExitCode::SUCCESS)
}

/// The folder in progress, as the extraction writes it.
fn output<'a>(folder: &'a Folder, arguments: &'a Arguments) -> OutputFolder<'a> {
    OutputFolder {
        partial: folder.partial(),
        target: &arguments.folder,
    }
}

/// The launches of `--all`.
fn chosen_launches(trace: &Trace, arguments: &Arguments) -> Result<Vec<Launch>, Failure> {
    let mut launches = extract::launches(trace);
    if let Some(text) = &arguments.calls {
        let chosen = CallSet::for_trace(text, trace)?.some_calls(text, trace)?;
        launches.retain(|launch| chosen.binary_search(&launch.call).is_ok());
    }
    if launches.is_empty() {
        let shown = trace.path().display();
        return Err(Failure::unusable(match &arguments.calls {
            Some(text) => {
                format!("--calls {text}: none of these calls launches a kernel or a graph")
            }
            None => format!("{shown}: no call of the trace launches a kernel"),
        }));
    }
    Ok(match arguments.sample {
        Some(most) => extract::sample(launches, most.max(1)),
        None => launches,
    })
}

/// Replays the trace and writes the launches as programs.
fn extract_launches(
    arguments: &Arguments,
    (trace, source): (&Trace, &Source),
    launches: &[Launch],
    report: &JsonReport,
) -> Result<(), Failure> {
    let folder = Folder::create(&arguments.folder, arguments.overwrite)?;
    let driver = library::driver(arguments.driver.as_deref())?;
    let extraction = Extraction {
        trace,
        longest: arguments.longest,
        most_bytes: arguments.limit_bytes,
        sample: arguments.sample,
        is_null_driver: library::is_null_driver(&driver),
        observe: &observation::observer((trace, source), &driver, &arguments.guarded, || {
            observation::replaying(trace)
        }),
    };
    let output = output(&folder, arguments);
    match (arguments.launch, launches) {
        (Some(_), [launch]) => {
            let (extracted, text) = extraction.one(launch, &output).map_err(Failure::unusable)?;
            folder.finish()?;
            report.write(&extracted, &text)
        }
        _ => {
            let index = extraction
                .all(launches, &output)
                .map_err(Failure::unusable)?;
            folder.finish()?;
            report.write(&index, &index.summary(&arguments.folder))
        }
    }
}
