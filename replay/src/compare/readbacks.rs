//! Async readbacks: bytes that asynchronous copies bring to the host, until a call proves that the
//! copy is complete.

use std::collections::HashMap;

use cutape_format::Call;
use cutape_registry::Function;

use crate::buffer::Buffer;
use crate::compare::received::{append_memory, holds};

/// Where the bytes of a copy lie.
#[derive(Debug)]
pub(crate) struct Readback {
    /// The copy's call index.
    pub call: u64,
    pub function: &'static Function,
    /// Pieces in the order in which they were recorded: address, length.
    pub pieces: Vec<(u64, usize)>,
    /// Memory that was lent for them.
    buffers: Vec<Buffer>,
}

/// All copies whose bytes have not been compared.
#[derive(Debug, Default)]
pub(crate) struct Readbacks {
    /// By thread and number of the copy in its thread.
    waiting: HashMap<(u32, u64), Readback>,
    /// Those of launched graphs: by thread and number of the launch, and the recorded address,
    /// since a launch brings several.
    pub of_graphs: HashMap<(u32, u64, u64), Readback>,
    lent: usize,
}

impl Readbacks {
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
        let readback = Readback {
            call: call.index,
            function,
            pieces,
            buffers: Vec::new(),
        };
        self.waiting.insert((call.thread, call.number), readback);
    }

    /// A graph was launched of which a copy writes there; `address` is the recorded one. What an
    /// earlier launch puts there is no longer awaited, since the recorder does not tell it either.
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
        let readback = Readback {
            call: call.index,
            function,
            pieces,
            buffers: Vec::new(),
        };
        let key = (call.thread, call.number, address);
        self.of_graphs.insert(key, readback);
    }

    /// Keeps memory that was lent for a copy until its bytes have been compared; hands back what no
    /// copy waits for.
    pub(crate) fn adopt(&mut self, call: &Call, buffers: Vec<Buffer>) -> Vec<Buffer> {
        match self.waiting.get_mut(&(call.thread, call.number)) {
            Some(readback) => {
                self.lent += buffers.iter().map(Buffer::len).sum::<usize>();
                readback.buffers.extend(buffers);
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
            .flat_map(|readback| &readback.pieces)
            .any(|&(at, _)| at >= start && at < end)
    }

    /// Copies what lies in memory that is about to go; all copies into it must be complete.
    pub(crate) fn rescue(&mut self, start: u64, end: u64) {
        for readback in self.waiting.values_mut().chain(self.of_graphs.values_mut()) {
            if readback
                .pieces
                .iter()
                .any(|&(at, _)| at >= start && at < end)
            {
                let buffer = Buffer::of(&gather(&readback.pieces));
                readback.pieces = vec![(buffer.address(), buffer.len())];
                let before: usize = readback.buffers.iter().map(Buffer::len).sum();
                self.lent = (self.lent + buffer.len()).saturating_sub(before);
                readback.buffers = vec![buffer];
            }
        }
    }

    /// Bytes of memory that are lent to copies in flight.
    pub(crate) fn lent(&self) -> usize {
        self.lent
    }

    /// Forgets all copies; returns how many bytes were never compared. All copies must be complete.
    pub(crate) fn give_up(&mut self) -> u64 {
        self.lent = 0;
        let lengths = |readback: Readback| readback.pieces.into_iter().map(|piece| piece.1 as u64);
        self.waiting
            .drain()
            .map(|(_, readback)| readback)
            .chain(self.of_graphs.drain().map(|(_, readback)| readback))
            .flat_map(lengths)
            .sum()
    }

    /// The first pieces of a copy that are that many bytes together, where a batch brings several;
    /// else all of it.
    pub(crate) fn take(
        &mut self,
        thread: u32,
        number: u64,
        length: Option<u64>,
    ) -> Option<Readback> {
        let whole = self.waiting.get_mut(&(thread, number))?;
        let mut bytes = 0;
        let first = whole.pieces.iter().position(|piece| {
            bytes += piece.1 as u64;
            Some(bytes) == length
        });
        if let Some(last) = first.filter(|last| last + 1 < whole.pieces.len()) {
            return Some(Readback {
                call: whole.call,
                function: whole.function,
                pieces: whole.pieces.drain(..=last).collect(),
                buffers: Vec::new(),
            });
        }
        let readback = self.waiting.remove(&(thread, number))?;
        let lent: usize = readback.buffers.iter().map(Buffer::len).sum();
        self.lent = self.lent.saturating_sub(lent);
        Some(readback)
    }
}

/// Bytes of all pieces.
pub(crate) fn length_of_pieces(pieces: &[(u64, usize)]) -> usize {
    pieces.iter().map(|piece| piece.1).sum()
}

/// Reads pieces of host memory one after the other.
pub(crate) fn gather(pieces: &[(u64, usize)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length_of_pieces(pieces));
    for &(address, length) in pieces {
        append_memory(&mut bytes, address, length);
    }
    bytes
}

/// Whether pieces of host memory hold these bytes one after the other.
pub(crate) fn pieces_hold(pieces: &[(u64, usize)], bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let all_equal = pieces.iter().all(|&(address, length)| {
        rest.split_at_checked(length).is_some_and(|(part, behind)| {
            rest = behind;
            holds(address, part)
        })
    });
    all_equal && rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_compared_as_if_they_were_gathered() {
        let memory: Vec<u8> = (0..100).collect();
        let at = |offset: u64, length| (memory.as_ptr() as u64 + offset, length);
        for pieces in [
            vec![],
            vec![at(0, 100)],
            vec![at(10, 5), at(50, 0), at(90, 10)],
        ] {
            let mut bytes = gather(&pieces);
            assert_eq!(bytes.len(), length_of_pieces(&pieces));
            assert!(pieces_hold(&pieces, &bytes));
            bytes.push(0);
            assert!(!pieces_hold(&pieces, &bytes), "longer");
            bytes.pop();
            if let Some(last) = bytes.last_mut() {
                *last ^= 1;
                assert!(!pieces_hold(&pieces, &bytes), "another byte");
                bytes.pop();
                assert!(!pieces_hold(&pieces, &bytes), "shorter");
            }
        }
    }
}
