//! `cutape demo`: records a small program that has a bug, checks the trace, and replays it.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use cutape_terminal::failure::{self, Failure};
use cutape_terminal::library;
use cutape_terminal::output::{self, quoted};
use cutape_terminal::overwrite::Overwrite;

/// What `demo` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The driver to use: a path, or `null`. Default: this machine's, or the
    /// null driver if there is none.
    #[arg(long, value_name = "PATH", verbatim_doc_comment)]
    driver: Option<PathBuf>,
    /// The trace to write; must not exist, except with --overwrite. Default:
    /// link_demo.cutape in the current folder, or the first free name among
    /// link_demo.1.cutape and so on.
    #[arg(short, long, value_name = "FILE", verbatim_doc_comment)]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
}

const INTRODUCTION: &str = "\
link_demo is a small C program that comes with cutape. It links two PTX inputs, destroys the link
state, and then loads the cubin that the link state owned. Every call returns CUDA_SUCCESS, and the
exit status is 0.
";

/// Runs the three verbs as a user would; fails if one ends otherwise than described.
pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let program = library::demo_program()?;
    let trace = arguments.output.unwrap_or_else(free_name);
    let driver: Vec<&OsStr> = match &arguments.driver {
        Some(path) => vec!["--driver".as_ref(), path.as_os_str()],
        None => Vec::new(),
    };
    let trace = trace.as_os_str();
    let word = OsStr::new;
    output::print(INTRODUCTION)?;
    let overwrite = arguments.overwrite.overwrite.then(|| word("--overwrite"));
    let recorded = [
        &[word("record")],
        &*driver,
        overwrite.as_slice(),
        &[word("-o"), trace, word("--")],
    ]
    .concat();
    step(
        "Record every driver call of the program:",
        &[&recorded[..], &[program.as_os_str()]].concat(),
        0,
    )?;
    step(
        "Find misuse of the API in the trace:",
        &[word("check"), trace],
        failure::FOUND,
    )?;
    let replayed = [&[word("replay")], &*driver, &[trace]].concat();
    step(
        "Issue the same calls again, without the program, and compare:",
        &replayed,
        0,
    )?;
    let trace = quoted(trace);
    output::print(&format!(
        "\n{trace} stays here. To look at it:\n  cutape info {trace}\n  cutape dump {trace}\n\
         To record a program of yours:\n  cutape record -- PROGRAM [ARGUMENTS]...\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the command line and runs it; fails unless it ends with that status.
fn step(title: &str, words: &[&OsStr], expected: u8) -> Result<(), Failure> {
    let line = words.iter().map(|word| quoted(word));
    let line = format!("cutape {}", line.collect::<Vec<_>>().join(" "));
    output::print(&format!("\n{title}\n$ {line}\n"))?;
    let status = Command::new(library::own_path()?)
        .args(words)
        .status()
        .map_err(|error| Failure::unusable(format!("cannot run `{line}`: {error}")))?;
    if status.code() == Some(expected.into()) {
        return Ok(());
    }
    Err(Failure::unusable(format!(
        "the demo stops: `{line}` ended with {status}, expected status {expected}; `cutape doctor` \
         checks this machine"
    )))
}

/// The first name of a trace that no file in the current folder has.
fn free_name() -> PathBuf {
    let names = (1..).map(|number| format!("link_demo.{number}.cutape"));
    std::iter::once("link_demo.cutape".to_owned())
        .chain(names)
        .map(PathBuf::from)
        .find(|path| !path.exists())
        .unwrap_or_default()
}
