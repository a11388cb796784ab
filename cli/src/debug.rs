//! `cutape debug`: a session on a trace, at a prompt, from a script or for an editor.

mod checkpoints;
mod prompt;
mod replayer;

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use cutape_debugger::dap::Connection;
use cutape_debugger::{Debugger, End, run_script};
use cutape_render::quantity::parse_bytes;

use self::checkpoints::{Checkpoints, Policy};
use self::replayer::Replayer;
pub(crate) use self::replayer::{CHILD, ChildArguments, run_child};
use crate::replay_options::ReplayOptions;
use cutape_terminal::failure::{FOUND, Failure};
use cutape_terminal::private_folder::PrivateFolder;
use cutape_terminal::{input, library, message, output};

const EPILOGUE: &str = "\
Examples:
  cutape debug app.cutape              a prompt; `help` lists its words
  cutape debug app.cutape -x script    does what the lines of a file ask for
  echo 'info memory' | cutape debug app.cutape

Moving needs no replay and no GPU; reading and watching memory does.

Exit status: 1 if a line of a script fails, otherwise 0.";

/// A folder for temporary files may be in memory: this leaves most of it to others on a machine with
/// 32 GiB, as those with a GPU have (assumed).
const CHECKPOINTS: &str = "4GiB";

/// What `debug` takes.
#[derive(clap::Args)]
#[command(after_help = EPILOGUE)]
#[command(override_usage = "cutape debug [OPTIONS] <TRACE>\n       cutape debug --dap")]
pub(crate) struct Arguments {
    /// The trace; with --rank, a folder with the traces of several ranks.
    #[arg(required_unless_present = "dap")]
    trace: Option<PathBuf>,
    /// Do what the lines of this file ask for, and end at the first that fails.
    #[arg(short = 'x', long = "execute", value_name = "FILE")]
    script: Option<PathBuf>,
    /// Speak the Debug Adapter Protocol on stdin and stdout, for an editor.
    #[arg(long, conflicts_with = "script")]
    dap: bool,
    /// The most that checkpoints of memory take in the folder for temporary files.
    ///
    /// Going back replays from the nearest one. They are taken where that saves more
    /// time than it costs; 0 takes none.
    #[arg(long, value_name = "SIZE", default_value = CHECKPOINTS, value_parser = parse_bytes)]
    #[arg(verbatim_doc_comment)]
    checkpoints: u64,
    /// For tests: takes checkpoints whatever they cost.
    #[arg(long, hide = true)]
    eager_checkpoints: bool,
    #[command(flatten)]
    replay: ReplayOptions,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let folder = match arguments.checkpoints {
        0 => None,
        _ => Some(PrivateFolder::create("debug")?),
    };
    let folder = folder.as_ref();
    if arguments.dap {
        return serve(&arguments, folder);
    }
    let given = arguments.trace.as_deref().unwrap_or(Path::new(""));
    let script = arguments.script.as_deref().map(open_script).transpose()?;
    with_debugger(
        (given, folder),
        &arguments,
        |mut debugger, trace| match script {
            Some((path, lines)) => execute(&mut debugger, &path.display().to_string(), lines),
            None if io::stdin().is_terminal() => prompt::run(&mut debugger, trace),
            None => execute(&mut debugger, "stdin", Box::new(io::stdin().lock())),
        },
    )
}

/// Opens a trace for a session, whose checkpoints go to a folder.
fn with_debugger<T>(
    (given, folder): (&Path, Option<&PrivateFolder>),
    arguments: &Arguments,
    work: impl FnOnce(Debugger<'_>, &Path) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let source = arguments.replay.source(given)?;
    let trace = Arc::new(input::open(source.path())?);
    let replayer = Replayer {
        program: library::own_path()?,
        driver: arguments.replay.driver()?,
        guarded: &arguments.replay.guarded,
        source: &source,
    };
    // What a rank shared with others is known by the calls of its whole trace.
    let folder = folder.filter(|_| !source.is_of_rank());
    let policy = Policy {
        budget: arguments.checkpoints,
        is_eager: arguments.eager_checkpoints,
    };
    let replays = Checkpoints::new(&replayer, Arc::clone(&trace), folder, policy);
    work(Debugger::new(&trace, replays)?, source.path())
}

/// Talks to an editor on stdin and stdout.
fn serve(arguments: &Arguments, folder: Option<&PrivateFolder>) -> Result<ExitCode, Failure> {
    // A message has the number of its bytes: nothing is escaped, and a client shows it.
    #[expect(clippy::disallowed_methods, reason = "no terminal reads it")]
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let mut connection = Connection::new(&mut input, &mut output);
    while let Some(launch) = connection.launch()? {
        let named = launch.trace.as_deref().map(Path::new);
        let Some(given) = named.or(arguments.trace.as_deref()) else {
            connection.refuse(&launch, "launch needs `trace`, the path of a trace")?;
            continue;
        };
        let mut is_open = false;
        let ran = with_debugger((given, folder), arguments, |debugger, _| {
            is_open = true;
            Ok(connection.run(&launch, debugger)?)
        });
        match ran {
            Err(failure) if !is_open => connection.refuse(&launch, &failure.message)?,
            ended => return ended.map(|()| ExitCode::SUCCESS),
        }
    }
    Ok(ExitCode::SUCCESS)
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
    let mut out = output::stdout();
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
