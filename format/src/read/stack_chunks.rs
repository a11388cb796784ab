//! The chunks of a trace that hold call stacks.

use std::collections::HashMap;
use std::sync::Mutex;

/// The chunks of stacks, and where in them what is.
#[derive(Debug, Default)]
pub(crate) struct StackChunks {
    pub(crate) chunks: Vec<usize>,
    pub(crate) found: Mutex<Found>,
}

#[derive(Debug, Default)]
pub(crate) struct Found {
    /// For each chunk, the end of the records that were looked at.
    pub(crate) ends: Vec<usize>,
    /// Chunk and offset, by note kind and id.
    pub(crate) records: HashMap<(u16, u64), (usize, usize)>,
}

impl StackChunks {
    pub(crate) fn add_chunk(&mut self, number: usize) {
        self.chunks.push(number);
    }
}
