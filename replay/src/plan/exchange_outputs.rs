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
}

impl OutputCollector {
    pub(crate) fn new(trace: &Trace) -> Self {
        Self {
            found: AllExchangeOutputs {
                are_recorded: trace.meta_value("outputs-of-exchanges").is_some(),
                ..AllExchangeOutputs::default()
            },
            calls: HashMap::new(),
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
                    let exchange = self.calls.get(&(note.thread, note.number));
                    let outputs = exchange.and_then(|call| self.found.by_call.get_mut(call));
                    let Some(outputs) = outputs else {
                        continue;
                    };
                    let bytes = match snapshot.bytes {
                        Bytes::Inline(bytes) => Stored::Inline(bytes.to_vec()),
                        Bytes::Blob(blob) => Stored::Blob(blob),
                        _ => Stored::Missing,
                    };
                    outputs.pieces.push(Piece {
                        address: note.address,
                        bytes,
                    });
                }
                _ => {}
            }
        }
    }

    pub(crate) fn finish(self) -> AllExchangeOutputs {
        self.found
    }
}
