//! Memory at a call: what a replay knows of it.

use cutape_history::Bytes;
use cutape_replay::{Seen, Stop, WatchedRange};

/// Changes of some ranges, one entry for each, and what could not be looked at.
pub type Changes = (Vec<Seen>, Vec<String>);

/// A replay that stops at calls. Addresses are those of the recording; errors are one line.
pub trait Memory {
    /// As many of the bytes as the memory has.
    ///
    /// # Errors
    /// Why they cannot be read.
    fn read(&mut self, stop: Stop, bytes: Bytes) -> Result<Vec<u8>, String>;

    /// Writes bytes, until the replay goes back.
    ///
    /// # Errors
    /// Why they cannot be written.
    fn write(&mut self, stop: Stop, address: u64, bytes: &[u8]) -> Result<(), String>;

    /// The first changes between two stops.
    ///
    /// # Errors
    /// Why there is no answer.
    fn first_change(
        &mut self,
        from: Stop,
        to: Stop,
        ranges: &[WatchedRange],
    ) -> Result<Changes, String>;

    /// The last changes before a stop.
    ///
    /// # Errors
    /// Why there is no answer.
    fn last_change(&mut self, before: Stop, ranges: &[WatchedRange]) -> Result<Changes, String>;

    /// Differences of the replay from the recording so far.
    fn divergences(&self) -> u64;
}
