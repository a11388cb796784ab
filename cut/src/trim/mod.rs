//! Parts of a trace: chosen calls, with the calls that they need or what memory held before them.

mod launches;
mod memory;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use cutape_format::{CallChange, PackSummary, Provenance, Trace, file_hash};
use cutape_model::Needs;

use crate::Observe;
use crate::error::Error;
use crate::images::image_changes;
use crate::part::Walks;
use crate::part::{Part, needs_of, part};
use crate::state::MemoryState;
use crate::write::{provenance, write};

pub use launches::calls_of_launches;

/// A part of a trace, ready to be written.
#[derive(Debug)]
pub struct Cut<'t> {
    trace: &'t Trace,
    /// Its calls.
    pub part: Part,
    needs: Needs,
    state: Option<MemoryState>,
    provenance: Provenance,
    changes: BTreeMap<u64, CallChange>,
}

/// How memory is read in a replay of the source.
pub struct StateReplay<'a> {
    /// The driver.
    pub driver: &'a Path,
    /// It is the null driver, which runs no kernels.
    pub is_null_driver: bool,
    /// Takes the memory even if it may not be what the program had.
    pub is_forced: bool,
    /// Takes all memory, not only what the part may read.
    pub takes_all: bool,
    /// The file for the contents of memory.
    pub contents: &'a Path,
    /// Replays the trace.
    pub observe: &'a Observe<'a>,
}

impl<'t> Cut<'t> {
    /// The chosen calls with all that they need, so also the calls that wrote the memory that they
    /// read. `choice` is what was asked for.
    ///
    /// # Errors
    /// If the trace lacks bytes that the part needs; errors of reading the trace.
    pub fn with_calls(
        trace: &'t Trace,
        chosen: &[u64],
        choice: String,
        walks: &Walks<'_>,
    ) -> Result<Self, Error> {
        let needs = needs_of(trace, chosen, &mut *walks(trace))?;
        let part = part(&needs, chosen);
        payloads_are_there(trace, &needs, &part, false)?;
        Self::new(trace, (part, needs), None, choice)
    }

    /// The chosen calls with what they need, and with what memory held before them in a replay.
    ///
    /// # Errors
    /// As [`Self::with_calls`]; if memory cannot be read, or may not be what it was.
    pub fn with_memory(
        trace: &'t Trace,
        chosen: &[u64],
        choice: String,
        walks: &Walks<'_>,
        replay: &StateReplay<'_>,
    ) -> Result<Self, Error> {
        let taken = memory::take(trace, chosen, walks, replay)?;
        let mut cut = Self::new(trace, (taken.part, taken.needs), Some(taken.state), choice)?;
        cut.provenance.state = Some(taken.origin);
        Ok(cut)
    }

    fn new(
        trace: &'t Trace,
        (part, needs): (Part, Needs),
        state: Option<MemoryState>,
        choice: String,
    ) -> Result<Self, Error> {
        let path = trace.path();
        let hash = file_hash(path).map_err(|error| Error::unreadable(path, &error))?;
        let of = part.calls.len() as u64;
        Ok(Self {
            provenance: provenance(trace, hash, choice, (part.indices().collect(), of)),
            trace,
            part,
            needs,
            state,
            changes: BTreeMap::new(),
        })
    }

    /// Leaves out the code of images that the part does not run.
    #[must_use]
    pub fn without_unused_code(mut self) -> Self {
        self.changes = image_changes(self.trace, &self.part);
        self.provenance.changed = self.changes.keys().copied().collect();
        self
    }

    /// Writes the part to `target`, which must not exist. Calls `progress` for each call of the
    /// source.
    ///
    /// # Errors
    /// Those of reading the trace and of writing.
    pub fn write(&self, target: &Path, progress: &dyn Fn()) -> io::Result<PackSummary> {
        write(
            self.trace,
            (&self.part, &self.needs),
            &self.provenance,
            self.state.as_ref(),
            target,
            &self.changes,
            progress,
        )
    }
}

/// Bytes that a replay needs must be in the trace: of a part, or of all calls before it too.
fn payloads_are_there(
    trace: &Trace,
    needs: &Needs,
    part: &Part,
    are_all_before: bool,
) -> Result<(), Error> {
    let before = needs.first_that_lacks_bytes();
    let before = before.filter(|&call| are_all_before && call < part.start);
    let of_part = || part.indices().find(|&call| needs.lacks_bytes(call));
    let Some(missing) = before.or_else(of_part) else {
        return Ok(());
    };
    let call = trace.calls().nth(missing as usize);
    Err(Error::Unusable(format!(
        "{}: call {missing} {} is needed, and the bytes that it copied are not in the trace; record \
         with --payloads all",
        trace.path().display(),
        call.map_or("", |call| &call.signature.name)
    )))
}
