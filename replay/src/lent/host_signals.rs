//! Work that signals the host: a host function, or a value that a stream writes and the CPU may poll.
//! The program then knows without a call that the work before it is complete, and what it enqueues in
//! another stream may rely on that. A replay runs no host functions and polls nothing, so it waits for
//! such work first.

use std::collections::{BTreeMap, HashMap};

use cutape_model::PendingWrite;

/// If there are more, the oldest are not waited for.
pub(crate) const MOST: usize = 64;

/// Work that is not known to be complete here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostSignal {
    /// An event behind it.
    pub mark: u64,
    /// Its context.
    pub context: u64,
    /// The recorded handle of its stream, and the thread.
    pub stream: (u64, u32),
}

/// The signals that the replay has not waited for.
#[derive(Debug, Default)]
pub(crate) struct HostSignals {
    pub pending: Vec<HostSignal>,
    /// Events to be used again, and their contexts.
    pub free: Vec<(u64, u64)>,
    /// By recorded address: a value that a stream writes into host memory, and the call.
    values: BTreeMap<u64, (Vec<u8>, u64)>,
    /// Calls whose value the recorder has seen there, and the call at which it has: their work, and
    /// all before it, was complete.
    seen: HashMap<u64, u64>,
}

impl HostSignals {
    /// Whether there is any.
    pub(crate) fn any(&self) -> bool {
        !self.pending.is_empty()
    }

    /// A context has ended, and with it its events.
    pub(crate) fn end_context(&mut self, context: u64) {
        self.pending.retain(|signal| signal.context != context);
        self.free.retain(|mark| mark.1 != context);
    }

    /// A call makes a stream write a value at a recorded address.
    pub(crate) fn write(&mut self, address: u64, value: &[u8], call: u64) {
        self.values.insert(address, (value.to_vec(), call));
    }

    /// The values that streams write into host memory from a recorded address on, each with its offset
    /// there; those that the recorder has not seen.
    pub(crate) fn values_in(&self, start: u64, length: usize) -> Vec<(usize, Vec<u8>)> {
        let values = self
            .values
            .range(start..start.saturating_add(length as u64));
        values
            .map(|(address, (value, _))| ((address - start) as usize, value.clone()))
            .collect()
    }

    /// The recording says at a call that host memory, from a recorded address on, holds new bytes
    /// instead of old ones, which are as many.
    pub(crate) fn look(&mut self, at: u64, start: u64, old: &[u8], new: &[u8]) {
        let end = start.saturating_add(new.len() as u64);
        let is_seen = |(&address, (value, _)): (&u64, &(Vec<u8>, u64))| {
            let at = (address - start) as usize;
            let there = |bytes: &[u8]| bytes.get(at..at + value.len()) == Some(value);
            (there(new) && !there(old)).then_some(address)
        };
        let found: Vec<u64> = self.values.range(start..end).filter_map(is_seen).collect();
        for address in found {
            let value = self.values.remove(&address);
            self.seen.extend(value.map(|(_, call)| (call, at)));
        }
    }

    /// Whether the recorder has seen a value behind this work, at a call before that one: the work was
    /// complete then.
    pub(crate) fn is_over(&self, write: &PendingWrite, before: u64) -> bool {
        let seen = write.known_since.and_then(|call| self.seen.get(&call));
        seen.is_some_and(|&at| at < before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_seen_where_it_was_not_before() {
        type Case = (u64, &'static [u8], &'static [u8], bool);
        let table: [(&str, Case); 5] = [
            ("it is new", (6, &[0, 0, 0, 0, 9], &[0, 0, 1, 2, 9], true)),
            ("it was there", (8, &[1, 2], &[1, 2], false)),
            ("another is there", (8, &[0, 0], &[2, 1], false)),
            ("only a part is seen", (8, &[0], &[1], false)),
            ("elsewhere", (10, &[0, 0], &[1, 2], false)),
        ];
        for (what, (start, old, new, expected)) in table {
            let mut signals = HostSignals::default();
            signals.write(8, &[1, 2], 5);
            signals.look(7, start, old, new);
            let write = PendingWrite {
                bytes: 0..4,
                is_exact: true,
                call: 4,
                copy: None,
                entered: 0,
                is_before: false,
                hides_others: false,
                known_since: Some(5),
            };
            assert_eq!(signals.is_over(&write, 8), expected, "{what}");
            assert!(!signals.is_over(&write, 7), "{what}");
        }
    }
}
