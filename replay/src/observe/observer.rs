//! The state of an observation between calls.

use std::io;

use rustc_hash::FxHashMap;

use crate::error::Error;
use crate::observe::job::{Observation, ObservedCall};
use crate::observe::memory::Region;
use crate::observe::pages::Pages;
use crate::place::mapped::Mapped;

/// Observes calls of a replay.
#[derive(Debug)]
pub(crate) struct Observer {
    pub(super) job: Observation,
    pub(super) pages: Pages,
    pub(super) mapped: Mapped,
    /// The call in progress.
    pub(super) pending: Option<Pending>,
    pub(super) done: Vec<ObservedCall>,
    /// By the call that loaded a module: hashes of its variables, before the first launch of one
    /// of its kernels.
    pub(super) first_seen: FxHashMap<u64, FxHashMap<String, blake3::Hash>>,
    /// A stream may wait for a value in memory that a later call writes: waiting for it would not
    /// end.
    pub(super) waits_for_memory: bool,
    /// Memory is read through it.
    pub(super) buffer: Vec<u8>,
}

/// A call that is observed, between before and after.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) observed: ObservedCall,
    /// The memory behind the entries of `observed.memory`, in their order.
    pub(super) regions: Vec<Region>,
    pub(super) after: bool,
}

impl Observer {
    /// Creates the file of contents.
    pub(crate) fn new(job: Observation) -> Result<Self, Error> {
        let pages = Pages::create(&job.contents, job.most_bytes)
            .map_err(|error| cannot_write(&job, &error))?;
        Ok(Self {
            job,
            pages,
            mapped: Mapped::default(),
            pending: None,
            done: Vec::new(),
            first_seen: FxHashMap::default(),
            waits_for_memory: false,
            buffer: Vec::new(),
        })
    }

    /// What was observed, with the bytes in the file.
    pub(crate) fn finish(mut self) -> Result<(Vec<ObservedCall>, u64), Error> {
        let finished = self.pages.finish();
        finished.map_err(|error| cannot_write(&self.job, &error))?;
        Ok((self.done, self.pages.length))
    }
}

fn cannot_write(job: &Observation, error: &io::Error) -> Error {
    Error::Contents {
        path: job.contents.clone(),
        why: error.to_string(),
    }
}
