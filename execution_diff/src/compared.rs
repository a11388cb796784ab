//! What is compared, and who replays it.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use cutape_diff::Aligned;
use cutape_format::Trace;
use cutape_replay::{Observation, Observed, Outcome, Replacement, Report, Tolerance};

/// One of the two traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The trace that is compared with.
    A,
    /// The other one.
    B,
}

/// Replays the traces. Errors are messages.
pub trait Replays {
    /// Digests each launch before and after, with new memory filled.
    ///
    /// # Errors
    /// The replay is not possible, or the process died.
    fn launches(&mut self, side: Side) -> Result<Report, String>;

    /// Reads memory around launches, with new memory filled.
    ///
    /// # Errors
    /// As [`Self::launches`].
    fn observe(&mut self, side: Side, observation: &Observation) -> Result<Observed, String>;

    /// Runs kernels on the inputs of launches of A.
    ///
    /// # Errors
    /// As [`Self::launches`], or a kernel cannot be loaded.
    fn run(
        &mut self,
        kernels: HashMap<u64, Replacement>,
        tolerance: &Tolerance,
    ) -> Result<Outcome, String>;
}

/// What is compared.
#[derive(Debug)]
pub struct Compared<'t> {
    /// A and B; the same trace if B is A with another image.
    pub traces: [&'t Trace; 2],
    /// Which calls correspond.
    pub aligned: &'t Aligned,
    /// The image that B has instead of A's, and its file.
    pub image: Option<(Arc<[u8]>, String)>,
    /// By how much numbers may differ. Empty: bytes are compared.
    pub tolerance: Tolerance,
    /// How many launches are read in one replay.
    pub most: usize,
    /// Where contents of memory go.
    pub folder: PathBuf,
}

/// Counts by reason.
pub(crate) type Reasons = BTreeMap<String, u64>;
