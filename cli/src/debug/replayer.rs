//! The replays of a session: how they are started, and the child that is one.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use cutape_format::Trace;
use cutape_replay::{Options, Session};
use cutape_terminal::failure::{Failure, UNUSABLE};

use crate::guarded::GuardedOptions;
use crate::one_rank::{ChildSource, Source};

/// The hidden verb of the guarded child.
pub(crate) const CHILD: &str = "debug-child";

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

/// How traces are replayed in this session.
pub(super) struct Replayer<'a> {
    pub(super) program: PathBuf,
    pub(super) driver: PathBuf,
    pub(super) guarded: &'a GuardedOptions,
    /// The whole trace.
    pub(super) source: &'a Source,
}

impl Replayer<'_> {
    /// A replay of a trace that stops where it is asked to.
    pub(super) fn session(&self, trace: &Arc<Trace>, source: &Source) -> Session {
        let (program, driver) = (self.program.clone(), self.driver.clone());
        let (hidden, options) = (source.for_child(), self.guarded.for_child());
        let path = trace.path().to_owned();
        let command = move || {
            let mut command = Command::new(&program);
            command.arg(CHILD).arg("--child-driver").arg(&driver);
            command.args(&hidden).args(&options).arg("--").arg(&path);
            command
        };
        Session::new(Arc::clone(trace), command, self.guarded.guard())
    }
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
