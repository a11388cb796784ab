//! `cutape debug`: a session on a trace, at a prompt or from a script.

mod prompt;

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use cutape_debugger::{Debugger, End, NoReplay, run_script};
use cutape_format::Trace;
use cutape_replay::{Options, Session};

use crate::guarded::GuardedOptions;
use crate::one_rank::{ChildSource, RankOption, Source};
use cutape_terminal::failure::{FOUND, Failure, UNUSABLE};
use cutape_terminal::{input, library, message};

/// The hidden verb of the guarded child.
pub(crate) const CHILD: &str = "debug-child";

const EPILOGUE: &str = "\
Examples:
  cutape debug app.cutape              a prompt; `help` lists its words
  cutape debug app.cutape -x script    does what the lines of a file ask for
  echo 'info memory' | cutape debug app.cutape

Moving needs no replay and no GPU; reading and watching memory does.

Exit status: 1 if a line of a script fails, otherwise 0.";

/// What `debug` takes.
#[derive(clap::Args)]
#[command(after_help = EPILOGUE)]
pub(crate) struct Arguments {
    /// The trace; with --rank, a folder with the traces of several ranks.
    trace: PathBuf,
    /// Do what the lines of this file ask for, and end at the first that fails.
    #[arg(short = 'x', long = "execute", value_name = "FILE")]
    script: Option<PathBuf>,
    /// The driver to replay on: a path, or `null`. Default: this machine's.
    #[arg(long, value_name = "PATH")]
    driver: Option<PathBuf>,
    #[command(flatten)]
    rank: RankOption,
    #[command(flatten)]
    guarded: GuardedOptions,
}

/// The arguments of the guarded child.
#[derive(clap::Args)]
pub(crate) struct ChildArguments {
    /// The resolved driver.
    #[arg(long)]
    child_driver: PathBuf,
    #[command(flatten)]
    source: ChildSource,
    trace: PathBuf,
    #[command(flatten)]
    guarded: GuardedOptions,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let script = arguments.script.as_deref().map(open_script).transpose()?;
    let source = arguments
        .rank
        .source(&arguments.trace, &arguments.guarded)?;
    let trace = Arc::new(input::open(source.path())?);
    let mut debugger = match library::driver(arguments.driver.as_deref()) {
        Ok(driver) => {
            let session = session((&trace, &source), driver, &arguments.guarded)?;
            Debugger::new(&trace, session)?
        }
        Err(_) if arguments.driver.is_none() => {
            let why = "no driver of CUDA is on this machine; give one with --driver PATH, or null";
            Debugger::new(&trace, NoReplay(why.to_owned()))?
        }
        Err(failure) => return Err(failure),
    };
    match script {
        Some((path, lines)) => execute(&mut debugger, &path.display().to_string(), lines),
        None if io::stdin().is_terminal() => prompt::run(&mut debugger),
        None => execute(&mut debugger, "stdin", Box::new(io::stdin().lock())),
    }
}

type Script<'p> = (&'p Path, Box<dyn BufRead>);

fn open_script(path: &Path) -> Result<Script<'_>, Failure> {
    let file = File::open(path);
    let file = file.map_err(|error| Failure::unusable(format!("{}: {error}", path.display())))?;
    Ok((path, Box::new(BufReader::new(file))))
}

/// Does what lines ask for; `name` is that of their file.
fn execute(
    debugger: &mut Debugger<'_>,
    name: &str,
    mut lines: Box<dyn BufRead + '_>,
) -> Result<ExitCode, Failure> {
    let mut out = io::stdout().lock();
    let end = run_script(debugger, &mut lines, &mut out)?;
    out.flush()?;
    Ok(match end {
        End::Whole | End::Quit => ExitCode::SUCCESS,
        End::Failed(line, why) => {
            message!("{name}:{line}: {why}");
            ExitCode::from(FOUND)
        }
    })
}

/// A replay of the trace that stops where it is asked to.
fn session(
    (trace, source): (&Arc<Trace>, &Source),
    driver: PathBuf,
    guarded: &GuardedOptions,
) -> Result<Session, Failure> {
    let program = library::own_path()?;
    let (hidden, options) = (source.for_child(), guarded.for_child());
    let path = trace.path().to_owned();
    let command = move || {
        let mut command = Command::new(&program);
        command.arg(CHILD).arg("--child-driver").arg(&driver);
        command.args(&hidden).args(&options).arg("--").arg(&path);
        command
    };
    Ok(Session::new(Arc::clone(trace), command, guarded.guard()))
}

/// The guarded child: replays, and obeys its parent through a socket.
pub(crate) fn run_child(child: ChildArguments) -> Result<ExitCode, Failure> {
    let trace = Trace::open(child.source.path(&child.trace))?;
    let options = Options {
        keep_going: true,
        alone: child.source.alone()?,
        ..child
            .guarded
            .replay(child.child_driver.clone(), child.source.rank())
    };
    let status = cutape_replay::serve_as_child(&trace, &options);
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(UNUSABLE)))
}
