//! Async readbacks: bytes that asynchronous copies bring to the host, until a call proves that the
//! copy is complete.

use std::collections::HashMap;

use cutape_format::Call;
use cutape_model::PendingWrite;
use cutape_registry::Function;

use crate::api::buffer::Buffer;
use crate::compare::received::{append_memory, holds};

/// Where the bytes of a copy lie.
#[derive(Debug)]
pub(crate) struct Readback {
    /// The copy's call index.
    pub call: u64,
    pub function: &'static Function,
    /// One; several of a batch.
    targets: Vec<Target>,
    /// Memory that was lent for them.
    buffers: Vec<Buffer>,
}

/// Host memory that a copy writes.
#[derive(Debug)]
pub(crate) struct Target {
    /// As recorded: address, length.
    pub rows: Vec<(u64, usize)>,
    /// The same bytes in the same order, here: live address, length.
    pub pieces: Vec<(u64, usize)>,
}

impl Target {
    /// Its first recorded address.
    pub(crate) fn address(&self) -> u64 {
        self.rows.first().map_or(0, |row| row.0)
    }

    /// Bytes of all pieces.
    pub(crate) fn length(&self) -> usize {
        length_of_pieces(&self.pieces)
    }
}

impl Readback {
    fn new(call: &Call, function: &'static Function, targets: Vec<Target>) -> Self {
        Self {
            call: call.index,
            function,
            targets,
            buffers: Vec::new(),
        }
    }

    /// In the order in which they were recorded: live address, length.
    pub(crate) fn pieces(&self) -> Vec<(u64, usize)> {
        let targets = self.targets.iter();
        targets.flat_map(|target| &target.pieces).copied().collect()
    }

    /// The memory that was lent for it.
    pub(crate) fn take_buffers(&mut self) -> Vec<Buffer> {
        std::mem::take(&mut self.buffers)
    }

    /// Bytes that the copy brings.
    pub(crate) fn length(&self) -> usize {
        self.targets.iter().map(Target::length).sum()
    }

    /// Which of the bytes, offset of the first and behind the last, other work may write that these
    /// writes are of.
    pub(crate) fn written_by(&self, writes: &[PendingWrite]) -> Vec<(usize, usize)> {
        let mut parts = Vec::new();
        let mut at = 0;
        for &(row, length) in self.targets.iter().flat_map(|target| &target.rows) {
            let end = row.saturating_add(length as u64);
            for write in writes.iter().filter(|write| write.call != self.call) {
                let (first, behind) = (write.bytes.start.max(row), write.bytes.end.min(end));
                if first < behind {
                    parts.push((at + (first - row) as usize, at + (behind - row) as usize));
                }
            }
            at += length;
        }
        parts
    }

    fn is_in(&self, start: u64, end: u64) -> bool {
        self.targets
            .iter()
            .flat_map(|target| &target.pieces)
            .any(|&(at, _)| at >= start && at < end)
    }
}

/// All copies whose bytes have not been compared.
#[derive(Debug, Default)]
pub(crate) struct Readbacks {
    /// By thread and number of the copy in its thread.
    waiting: HashMap<(u32, u64), Readback>,
    /// Those of launched graphs: by thread and number of the launch, recorded address and length,
    /// since a launch brings several.
    pub of_graphs: HashMap<(u32, u64, (u64, u64)), Readback>,
    lent: usize,
}

impl Readbacks {
    /// A copy to host memory was enqueued.
    pub(crate) fn expect(
        &mut self,
        call: &Call,
        function: &'static Function,
        targets: Vec<Target>,
    ) {
        let readback = Readback::new(call, function, targets);
        self.waiting.insert((call.thread, call.number), readback);
    }

    /// A graph was launched of which a copy writes there. What an earlier launch puts there is no
    /// longer awaited, since the recorder does not record it either.
    pub(crate) fn expect_of_graph(
        &mut self,
        call: &Call,
        function: &'static Function,
        target: Target,
    ) {
        let (address, length) = (target.address(), target.length());
        self.of_graphs
            .retain(|key, _| key.2 != (address, length as u64));
        let key = (call.thread, call.number, (address, length as u64));
        let readback = Readback::new(call, function, vec![target]);
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
            .any(|readback| readback.is_in(start, end))
    }

    /// Copies what lies in memory that is about to go; all copies into it must be complete.
    pub(crate) fn rescue(&mut self, start: u64, end: u64) {
        for readback in self.waiting.values_mut().chain(self.of_graphs.values_mut()) {
            if readback.is_in(start, end) {
                let before: usize = readback.buffers.iter().map(Buffer::len).sum();
                let mut buffers = Vec::new();
                for target in &mut readback.targets {
                    let buffer = Buffer::of(&gather(&target.pieces));
                    target.pieces = vec![(buffer.address(), buffer.len())];
                    buffers.push(buffer);
                }
                readback.buffers = buffers;
                self.lent = (self.lent + readback.length()).saturating_sub(before);
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
        self.waiting
            .drain()
            .map(|(_, readback)| readback)
            .chain(self.of_graphs.drain().map(|(_, readback)| readback))
            .map(|readback| readback.length() as u64)
            .sum()
    }

    /// What a copy brings to a recorded address, where a batch brings several; else all of it.
    pub(crate) fn take(&mut self, thread: u32, number: u64, address: u64) -> Option<Readback> {
        let whole = self.waiting.get_mut(&(thread, number))?;
        if whole.targets.len() > 1 {
            let mut targets = whole.targets.iter();
            let position = targets.position(|target| target.address() == address)?;
            return Some(Readback {
                call: whole.call,
                function: whole.function,
                targets: vec![whole.targets.remove(position)],
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
