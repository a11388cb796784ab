//! Bytes that asynchronous copies bring, from the copy to the call that proves their arrival.

use std::collections::HashMap;

use cutape_format::{Call, Note};
use cutape_registry::Function;

use crate::buffer::Buffer;
use crate::frame::read_memory;
use crate::interpret::Player;

/// Where the bytes of a copy lie.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// The copy's call index.
    pub call: u64,
    pub function: &'static Function,
    /// Pieces in the order in which they were recorded: address, length.
    pub pieces: Vec<(u64, usize)>,
    /// Memory that the replayer lent for them.
    buffers: Vec<Buffer>,
}

/// All copies whose bytes have not been compared.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// By thread and number of the copy in its thread.
    waiting: HashMap<(u32, u64), Arrival>,
}

impl Arrivals {
    /// A copy to host memory was enqueued.
    pub(crate) fn expect(&mut self, call: &Call, function: &'static Function, address: u64, length: usize) {
        self.expect_pieces(call, function, vec![(address, length)]);
    }

    /// A copy to rows of host memory was enqueued.
    pub(crate) fn expect_pieces(
        &mut self,
        call: &Call,
        function: &'static Function,
        pieces: Vec<(u64, usize)>,
    ) {
        let arrival = Arrival { call: call.index, function, pieces, buffers: Vec::new() };
        self.waiting.insert((call.thread, call.number), arrival);
    }

    /// Keeps memory that was lent for a copy until its bytes have been compared; hands back what no copy waits for.
    pub(crate) fn adopt(&mut self, call: &Call, buffers: Vec<Buffer>) -> Vec<Buffer> {
        match self.waiting.get_mut(&(call.thread, call.number)) {
            Some(arrival) => {
                arrival.buffers.extend(buffers);
                Vec::new()
            }
            None => buffers,
        }
    }

    /// True if a copy still waits for bytes in that memory.
    pub(crate) fn any_in(&self, start: u64, end: u64) -> bool {
        self.waiting.values().flat_map(|arrival| &arrival.pieces).any(|&(at, _)| at >= start && at < end)
    }

    /// Copies what lies in memory that is about to go; all copies into it must be complete.
    pub(crate) fn rescue(&mut self, start: u64, end: u64) {
        for arrival in self.waiting.values_mut() {
            if arrival.pieces.iter().any(|&(at, _)| at >= start && at < end) {
                let buffer = Buffer::of(&gather(&arrival.pieces));
                arrival.pieces = vec![(buffer.address(), buffer.len())];
                arrival.buffers = vec![buffer];
            }
        }
    }

    fn take(&mut self, thread: u32, number: u64) -> Option<Arrival> {
        self.waiting.remove(&(thread, number))
    }
}

/// Reads pieces of host memory one after the other.
pub(crate) fn gather(pieces: &[(u64, usize)]) -> Vec<u8> {
    pieces.iter().flat_map(|&(address, length)| read_memory(address, length)).collect()
}

impl<'t> Player<'t> {
    /// Compares the bytes that the recording says had arrived when this call returned.
    pub(crate) fn arrive(&mut self, call: &Call<'t>, function: &'static Function) {
        let mut waited = false;
        for note in call.notes() {
            let Note::Arrived(note, expected) = note else { continue };
            let Some(arrival) = self.arrivals.take(note.thread, note.number) else {
                self.report.bytes_not_compared += expected.bytes.length().unwrap_or(0);
                continue;
            };
            if !waited {
                // The call that proved it may have been left out, or may prove less here.
                waited = true;
                if let Err(code) = self.api.synchronize() {
                    tracing::debug!("call {}: waiting for copies: result {code}", call.index);
                }
            }
            let received = gather(&arrival.pieces);
            let position = usize::from(expected.parameter);
            let _ = function;
            self.compare_bytes(call, arrival.function, position, &expected, &received, Some(arrival.call));
        }
    }
}
