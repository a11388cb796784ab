//! `cutape mcp`: a server of the Model Context Protocol, through which an assistant asks about
//! traces.

mod bounded;
mod child;
mod folders;
mod server;
mod tools;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Command;
use cutape_terminal::failure::Failure;
use cutape_terminal::library;
use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use rmcp::transport::stdio_pipes;

use self::folders::Folders;
use self::server::Server;

const EPILOGUE: &str = "\
The client starts the server and speaks with it on stdin and stdout. The tools only
read: each is a verb in a process of its own, which is given options that name no files
but traces in the folders.";

/// What `mcp` takes.
#[derive(clap::Args)]
#[command(after_help = EPILOGUE)]
pub(crate) struct Arguments {
    /// Where the traces are that a client may ask about. Links do not lead out.
    #[arg(value_name = "FOLDER", default_value = ".")]
    folders: Vec<PathBuf>,
    /// Also offer the tools that replay a trace on the GPU: inspect, why, first, profile.
    #[arg(long)]
    allow_replay: bool,
    /// The driver for replays: a path, or `null`. Default: this machine's.
    #[arg(long, value_name = "PATH")]
    driver: Option<PathBuf>,
    /// How long an answer may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    time_limit: u64,
    /// The most bytes of an answer; longer ones are shortened, and say so.
    #[arg(long, value_name = "SIZE", default_value = "64K")]
    #[arg(value_parser = cutape_render::quantity::parse_bytes)]
    most_bytes: u64,
}

pub(crate) fn run(arguments: Arguments, command: &Command) -> Result<ExitCode, Failure> {
    let replays = arguments.allow_replay.then(|| {
        let driver = arguments.driver.into_iter();
        let words = driver.flat_map(|path| [OsString::from("--driver"), path.into_os_string()]);
        words.collect()
    });
    let server = Server::new(
        command,
        Folders::open(&arguments.folders)?,
        library::own_path()?,
        replays,
        usize::try_from(arguments.most_bytes).unwrap_or(usize::MAX),
        Duration::from_secs(arguments.time_limit),
    );
    // Tokio panics where it cannot have the thread that reads stdin.
    let thread = thread::Builder::new().spawn(|| ()).map_err(cannot_start)?;
    // It cannot have failed.
    let _ = thread.join();
    // One thread: it starts the processes, which end with the thread that has started them.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(cannot_start)?;
    let served = runtime.block_on(async {
        match server.serve(stdio_pipes()).await {
            Ok(service) => service.waiting().await.map(drop).map_err(Failure::unusable),
            Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(Failure::unusable(format!("no client of MCP: {error}"))),
        }
    });
    // A thread of it may still wait for stdin.
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}

#[expect(clippy::needless_pass_by_value, reason = "maps errors")]
fn cannot_start(error: io::Error) -> Failure {
    Failure::unusable(format!("cannot start a server: {error}"))
}
