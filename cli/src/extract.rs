//! `cutape extract`: images, and launches as programs that check themselves.
//!
//! `images` writes every image once and unpacked. For launches, a guarded replay reads the memory
//! that each can reach (`observation`); `description` writes the text that the programs read, which
//! are the same for all launches (`program/`). `folder` puts the result in place when it is whole.

mod description;
pub(crate) mod image_files;
mod images;
mod programs;
mod readme;
mod selection;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::guarded::{GuardedOptions, ReportOption};
use crate::one_rank::RankOption;
use cutape_calls::{self, CallSet};
use cutape_terminal::failure::Failure;
use cutape_terminal::output_folder::{self, Folder};
use cutape_terminal::overwrite::Overwrite;
use selection::Number;

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
    #[arg(long, value_name = "BYTES", default_value = LONGEST, value_parser = size)]
    #[arg(verbatim_doc_comment)]
    longest: u64,
    /// Leave out launches when the contents of memory take that many bytes.
    ///
    /// K, M and G are 2^10, 2^20 and 2^30. Equal pages count once, zeros not at all.
    #[arg(long, value_name = "BYTES", default_value = LIMIT, value_parser = size)]
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

/// Parses 512, 64K, 100M, 2G.
fn size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: Option<u64> = digits.parse().ok();
    let bytes = number.and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| "give a number of bytes, e.g. 4096, 64K, 100M or 2G".to_owned())
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    output_folder::hold_signals();
    let source = arguments
        .rank
        .source(&arguments.trace, &arguments.guarded)?;
    let trace = cutape_terminal::input::open(source.path())?;
    let output = arguments.report.prepare()?;
    if arguments.images {
        let folder = Folder::create(&arguments.folder, arguments.overwrite)?;
        let index = images::write(&trace, &folder)?;
        folder.finish()?;
        output.write(&index, &images::summary(&index, &arguments.folder))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(number) = arguments.launch {
        let launch = selection::launch(&trace, number)?;
        let folder = Folder::create(&arguments.folder, arguments.overwrite)?;
        let (extracted, text) = programs::one((&trace, &source), &arguments, &launch, &folder)?;
        folder.finish()?;
        output.write(&extracted, &text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let calls = arguments.calls.as_deref();
    let set = calls
        .map(|text| CallSet::for_trace(text, &trace))
        .transpose()?;
    let launches = selection::launches(&trace, set.as_ref());
    if launches.is_empty() {
        if let (Some(text), Some(set)) = (calls, &set) {
            set.some_calls(text, &trace)?;
        }
        let shown = trace.path().display();
        return Err(Failure::unusable(match calls {
            Some(text) => {
                format!("--calls {text}: none of these calls launches a kernel or a graph")
            }
            None => format!("{shown}: no call of the trace launches a kernel"),
        }));
    }
    let launches = match arguments.sample {
        Some(most) => selection::sample(launches, most.max(1)),
        None => launches,
    };
    let folder = Folder::create(&arguments.folder, arguments.overwrite)?;
    let index = programs::all((&trace, &source), &arguments, &launches, &folder)?;
    index.check()?;
    folder.finish()?;
    output.write(&index, &index.summary(&arguments.folder))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, expected) in [
            ("0", Some(0)),
            ("512", Some(512)),
            ("64K", Some(64 << 10)),
            ("3M", Some(3 << 20)),
            ("16G", Some(16 << 30)),
            ("", None),
            ("K", None),
            ("1k", None),
            ("-1", None),
            ("99999999999G", None),
        ] {
            assert_eq!(size(text).ok(), expected, "{text}");
        }
    }
}
