//! How a verb replays that asks a trace something: on which driver, which rank, and how the child is
//! guarded.

use std::path::{Path, PathBuf};

use cutape_terminal::failure::Failure;
use cutape_terminal::library;

use crate::guarded::GuardedOptions;
use crate::one_rank::{RankOption, Source};

/// The options.
#[derive(clap::Args)]
pub(crate) struct ReplayOptions {
    /// The driver to replay on: a path, or `null`. Default: this machine's.
    #[arg(long, value_name = "PATH")]
    driver: Option<PathBuf>,
    #[command(flatten)]
    rank: RankOption,
    #[command(flatten)]
    pub(crate) guarded: GuardedOptions,
}

impl ReplayOptions {
    /// The trace that is replayed.
    pub(crate) fn source(&self, given: &Path) -> Result<Source, Failure> {
        self.rank.source(given, &self.guarded)
    }

    /// The driver's file.
    pub(crate) fn driver(&self) -> Result<PathBuf, Failure> {
        library::driver(self.driver.as_deref())
    }
}
