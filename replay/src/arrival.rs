//! Bytes that asynchronous copies bring, from the copy to the call that proves their arrival.

use std::collections::HashMap;

use cutape_format::{Call, Note};
use cutape_registry::Function;

use crate::buffer::Buffer;
use crate::interpret::Player;
use crate::received::read_memory;

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
    /// Those of launched graphs: by thread and number of the launch, and the recorded address, since a launch brings several.
    of_graphs: HashMap<(u32, u64, u64), Arrival>,
    lent: usize,
}

impl Arrivals {
    /// A copy to host memory was enqueued.
    pub(crate) fn expect(
        &mut self,
        call: &Call,
        function: &'static Function,
        address: u64,
        length: usize,
    ) {
        self.expect_pieces(call, function, vec![(address, length)]);
    }

    /// A copy to rows of host memory was enqueued.
    pub(crate) fn expect_pieces(
        &mut self,
        call: &Call,
        function: &'static Function,
        pieces: Vec<(u64, usize)>,
    ) {
        let arrival = Arrival {
            call: call.index,
            function,
            pieces,
            buffers: Vec::new(),
        };
        self.waiting.insert((call.thread, call.number), arrival);
    }

    /// A graph was launched of which a copy writes there; `address` is the recorded one. What an earlier launch puts there is
    /// no longer awaited, since the recorder does not tell it either.
    pub(crate) fn expect_of_graph(
        &mut self,
        call: &Call,
        function: &'static Function,
        address: u64,
        pieces: Vec<(u64, usize)>,
    ) {
        let length = |pieces: &[(u64, usize)]| pieces.iter().map(|piece| piece.1).sum::<usize>();
        self.of_graphs
            .retain(|key, old| key.2 != address || length(&old.pieces) != length(&pieces));
        let arrival = Arrival {
            call: call.index,
            function,
            pieces,
            buffers: Vec::new(),
        };
        let key = (call.thread, call.number, address);
        self.of_graphs.insert(key, arrival);
    }

    /// Keeps memory that was lent for a copy until its bytes have been compared; hands back what no copy waits for.
    pub(crate) fn adopt(&mut self, call: &Call, buffers: Vec<Buffer>) -> Vec<Buffer> {
        match self.waiting.get_mut(&(call.thread, call.number)) {
            Some(arrival) => {
                self.lent += buffers.iter().map(Buffer::len).sum::<usize>();
                arrival.buffers.extend(buffers);
                Vec::new()
            }
            None => buffers,
        }
    }

    /// True if a copy still waits for bytes in that memory.
    pub(crate) fn any_in(&self, start: u64, end: u64) -> bool {
        self.waiting
            .values()
            .chain(self.of_graphs.values())
            .flat_map(|arrival| &arrival.pieces)
            .any(|&(at, _)| at >= start && at < end)
    }

    /// Copies what lies in memory that is about to go; all copies into it must be complete.
    pub(crate) fn rescue(&mut self, start: u64, end: u64) {
        for arrival in self.waiting.values_mut().chain(self.of_graphs.values_mut()) {
            if arrival
                .pieces
                .iter()
                .any(|&(at, _)| at >= start && at < end)
            {
                let buffer = Buffer::of(&gather(&arrival.pieces));
                arrival.pieces = vec![(buffer.address(), buffer.len())];
                let before: usize = arrival.buffers.iter().map(Buffer::len).sum();
                self.lent = (self.lent + buffer.len()).saturating_sub(before);
                arrival.buffers = vec![buffer];
            }
        }
    }

    /// Bytes of memory that the replayer lends to copies in flight.
    pub(crate) fn lent(&self) -> usize {
        self.lent
    }

    /// Forgets all copies; returns how many bytes were never compared. All copies must be complete.
    pub(crate) fn give_up(&mut self) -> u64 {
        self.lent = 0;
        let lengths = |arrival: Arrival| arrival.pieces.into_iter().map(|piece| piece.1 as u64);
        self.waiting
            .drain()
            .map(|(_, arrival)| arrival)
            .chain(self.of_graphs.drain().map(|(_, arrival)| arrival))
            .flat_map(lengths)
            .sum()
    }

    /// The first pieces of a copy that are that many bytes together, where a batch brings several; else all of it.
    fn take(&mut self, thread: u32, number: u64, length: Option<u64>) -> Option<Arrival> {
        let whole = self.waiting.get_mut(&(thread, number))?;
        let mut bytes = 0;
        let first = whole.pieces.iter().position(|piece| {
            bytes += piece.1 as u64;
            Some(bytes) == length
        });
        if let Some(last) = first.filter(|last| last + 1 < whole.pieces.len()) {
            return Some(Arrival {
                call: whole.call,
                function: whole.function,
                pieces: whole.pieces.drain(..=last).collect(),
                buffers: Vec::new(),
            });
        }
        let arrival = self.waiting.remove(&(thread, number))?;
        let lent: usize = arrival.buffers.iter().map(Buffer::len).sum();
        self.lent = self.lent.saturating_sub(lent);
        Some(arrival)
    }
}

/// Reads pieces of host memory one after the other.
pub(crate) fn gather(pieces: &[(u64, usize)]) -> Vec<u8> {
    pieces
        .iter()
        .flat_map(|&(address, length)| read_memory(address, length))
        .collect()
}

impl<'t> Player<'t> {
    /// Compares the bytes that the recording says had arrived when this call returned.
    pub(crate) fn arrive(&mut self, call: &Call<'t>) {
        let mut waited = self.has_waited();
        for note in call.notes() {
            let Note::Arrived(note, expected) = note else {
                continue;
            };
            let of_graph = (note.thread, note.number, note.address);
            let arrivals = &mut self.arrivals;
            let arrival = match arrivals.of_graphs.remove(&of_graph) {
                Some(arrival) => Some(arrival),
                None => arrivals.take(note.thread, note.number, expected.bytes.length()),
            };
            let Some(arrival) = arrival else {
                self.report.bytes_not_compared += expected.bytes.length().unwrap_or(0);
                continue;
            };
            if !waited {
                // The call that proved it may have been left out, or may prove less here.
                waited = true;
                if let Err(code) = self.wait_for_device() {
                    tracing::debug!("call {}: waiting for copies: result {code}", call.index);
                }
            }
            if !self.comparing || !self.bytes_comparable {
                let length = arrival.pieces.iter().map(|piece| piece.1 as u64);
                self.report.bytes_not_compared += if self.comparing { length.sum() } else { 0 };
                continue;
            }
            let received = gather(&arrival.pieces);
            let position = usize::from(expected.parameter);
            self.compare_bytes(
                call,
                arrival.function,
                position,
                &expected,
                &received,
                Some(arrival.call),
            );
        }
    }
}
