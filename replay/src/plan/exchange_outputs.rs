//! What the recorder has kept of the changes that exchanges with other processes made.

use std::collections::{BTreeMap, HashMap};

use cutape_format::layout::BlobRef;
use cutape_format::{Bytes, Call, Note, Trace};

/// What an exchange changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExchangeOutputs {
    /// Bytes that the recorder has compared.
    pub kept: u64,
    /// Bytes that it has not.
    pub left_out: u64,
    /// Why, a number of [`cutape_format::layout::exchange_skip`].
    pub reason: u8,
    /// What differs behind it, in order.
    pub pieces: Vec<Piece>,
}

/// Bytes that differ.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub address: u64,
    pub bytes: Stored,
}

/// Where the trace has them.
#[derive(Clone, Debug)]
pub(crate) enum Stored {
    Inline(Vec<u8>),
    Blob(BlobRef),
    /// Nowhere.
    Missing,
}

/// Those of all exchanges of a trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllExchangeOutputs {
    are_recorded: bool,
    by_call: BTreeMap<u64, ExchangeOutputs>,
}

impl AllExchangeOutputs {
    /// Whether the recorder has kept them.
    pub(crate) fn are_recorded(&self) -> bool {
        self.are_recorded
    }

    /// What a call changed, if it is an exchange.
    pub(crate) fn of(&self, call: u64) -> Option<&ExchangeOutputs> {
        self.by_call.get(&call)
    }
}

/// Collects them while calls are given in order.
#[derive(Debug)]
pub(crate) struct OutputCollector {
    found: AllExchangeOutputs,
    /// Calls by thread and number in the thread.
    calls: HashMap<(u32, u64), u64>,
    /// What differs, by the same. It may come first: in a wait that was entered before the exchange
    /// of another thread, or in the exchange itself if the trace was cut.
    pieces: HashMap<(u32, u64), Vec<Piece>>,
}

impl OutputCollector {
    pub(crate) fn new(trace: &Trace) -> Self {
        Self {
            found: AllExchangeOutputs {
                are_recorded: trace.meta_value("outputs-of-exchanges").is_some(),
                ..AllExchangeOutputs::default()
            },
            calls: HashMap::new(),
            pieces: HashMap::new(),
        }
    }

    /// Takes a call with notes.
    pub(crate) fn observe(&mut self, call: &Call<'_>) {
        for note in call.notes() {
            match note {
                Note::Exchange(note) => {
                    self.calls.insert((call.thread, call.number), call.index);
                    let outputs = ExchangeOutputs {
                        kept: note.kept,
                        left_out: note.left_out,
                        reason: note.reason,
                        pieces: Vec::new(),
                    };
                    self.found.are_recorded = true;
                    self.found.by_call.insert(call.index, outputs);
                }
                Note::ExchangeOutput(note, snapshot) => {
                    let bytes = match snapshot.bytes {
                        Bytes::Inline(bytes) => Stored::Inline(bytes.to_vec()),
                        Bytes::Blob(blob) => Stored::Blob(blob),
                        _ => Stored::Missing,
                    };
                    let pieces = self.pieces.entry((note.thread, note.number)).or_default();
                    pieces.push(Piece {
                        address: note.address,
                        bytes,
                    });
                }
                _ => {}
            }
        }
    }

    pub(crate) fn finish(mut self) -> AllExchangeOutputs {
        for (key, pieces) in self.pieces {
            let exchange = self.calls.get(&key);
            if let Some(outputs) = exchange.and_then(|call| self.found.by_call.get_mut(call)) {
                outputs.pieces = pieces;
            }
        }
        self.found
    }
}

#[cfg(test)]
mod tests {
    use cutape_format::layout::{ExchangeNote, ExchangeOutputNote, note_kind};
    use cutape_format::{NewCall, TraceBuilder};

    use super::*;

    #[test]
    fn changes_may_come_before_their_exchange() {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        let output = |number| ExchangeOutputNote {
            thread: 1,
            number,
            address: 0x1000,
        };
        let note = ExchangeNote {
            kept: 8,
            left_out: 0,
            reason: 0,
        };
        let call = |thread| NewCall {
            thread,
            name: "cuCtxSynchronize",
            ..NewCall::default()
        };
        // A wait of another thread, and, in a trace that was cut, the exchange itself.
        builder
            .call(call(0))
            .exchange_output_note(0, output(0), &[1])
            .call(call(1))
            .note(1, note_kind::EXCHANGE, note, &[])
            .leave(1, 0, &[])
            .call(call(1))
            .exchange_output_note(1, output(1), &[2])
            .exchange_output_note(1, output(1), &[3])
            .exchange_output_note(1, output(7), &[4])
            .note(1, note_kind::EXCHANGE, note, &[])
            .leave(1, 0, &[])
            .leave(0, 0, &[]);
        let path = std::env::temp_dir().join(format!("exchanges-{}", std::process::id()));
        builder.write(&path).unwrap();
        let trace = Trace::open(&path).unwrap();
        let mut collector = OutputCollector::new(&trace);
        trace.calls().for_each(|call| collector.observe(&call));
        let found = collector.finish();
        let pieces = |call| found.of(call).map(|outputs| outputs.pieces.len());
        assert_eq!([0, 1, 2].map(pieces), [None, Some(1), Some(2)]);
        std::fs::remove_file(path).unwrap();
    }
}
