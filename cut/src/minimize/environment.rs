//! What a search needs from its caller.

use std::path::Path;

use cutape_format::Trace;
use cutape_replay::{CallImage, Report};

use crate::error::Error;

/// What a search needs from its caller.
pub trait Environment {
    /// Opens a trace of the search.
    ///
    /// # Errors
    /// If it cannot be read.
    fn open(&self, path: &Path) -> Result<Trace, Error>;

    /// Replays a trace in a guarded child process.
    ///
    /// # Errors
    /// Why it cannot be replayed at all.
    fn replay(&self, trace: &Trace, other: &OtherReplay) -> Result<Report, Error>;

    /// Fails if a file is at the place of the output that may not be replaced.
    ///
    /// # Errors
    /// A message that says so.
    fn may_replace(&self, target: &Path) -> Result<(), Error>;

    /// Begins a walk over a trace; returns what is called for each of its calls.
    fn walk(&self, trace: &Trace) -> Box<dyn FnMut()>;

    /// Called before each attempt with its number.
    fn begins_attempt(&self, number: u64);

    /// Called when the search goes on with a trace of that many calls in this folder.
    fn goes_on(&self, folder: &Path, calls: u64);

    /// Whether the user wants the search to end.
    fn is_interrupted(&self) -> bool;
}

/// How a trace is replayed.
#[derive(Clone, Debug, Default)]
pub struct OtherReplay {
    /// Go on after a divergence.
    pub keeps_going: bool,
    /// As `--reissue-fatal`.
    pub reissues_fatal: bool,
    /// As `--replace-image`.
    pub images: Vec<CallImage>,
    /// Drop what the driver prints.
    pub is_quiet: bool,
}

impl OtherReplay {
    /// As recorded but for these images.
    pub(super) fn with(images: Vec<CallImage>) -> Self {
        Self {
            images,
            ..Self::default()
        }
    }

    /// The same, going on after a divergence.
    pub(super) fn keeping_going(self) -> Self {
        Self {
            keeps_going: true,
            ..self
        }
    }
}
