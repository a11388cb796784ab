//! What a reader knows of the parts of a trace that may still change.

use std::collections::{HashMap, VecDeque};

use crate::layout::ChunkHead;

/// A buffer that its thread fills again and again.
#[derive(Debug)]
pub(crate) struct ThreadBuffer {
    pub(crate) head: ChunkHead,
    pub(crate) position: usize,
    /// In a growing trace, the chunk with the buffer's present content.
    pub(crate) chunk: Option<usize>,
    /// That chunk has all that its thread wrote there.
    pub(crate) is_complete: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Growth {
    /// Where the search for further chunks continues.
    pub(crate) scanned: usize,
    /// When the last call was entered, in ticks, of a raw trace that was read at once.
    pub(crate) last_entered: u64,
    /// Positions of chunks that are read once they are closed.
    pub(crate) pending: Vec<usize>,
    /// Empty for a packed trace, and once a trace is complete.
    pub(crate) buffers: Vec<ThreadBuffer>,
    /// How often a growing trace was refreshed; 0 for another trace.
    pub(crate) refreshes: u64,
    /// For each refresh that is not settled: the end of the file's last chunk when it began, and
    /// the ticks before which all entered calls had been written by then.
    pub(crate) unsettled: VecDeque<(usize, u64)>,
    /// Ticks before which every entered call was in reach of a later refresh.
    pub(crate) settled: u64,
    /// For each thread, one more than the highest sequence of a chunk that has records.
    pub(crate) begun: HashMap<u32, u32>,
    /// Chunks of calls taken in, counting those that replaced a buffer's content.
    pub(crate) taken: usize,
}
