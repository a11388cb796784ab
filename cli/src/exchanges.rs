//! What a trace keeps of exchanges with other processes: `record --outputs-of-exchanges`.

use std::collections::{BTreeMap, HashSet};

use cutape_format::layout::exchange_skip;
use cutape_format::{Note, Trace};
use serde::Serialize;

use crate::quantity;

/// The exchanges of a trace.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Exchanges {
    /// Launches and copies that reach memory which processes share.
    pub(crate) calls: u64,
    /// Those whose memory was compared, and was read before the trace ended.
    pub(crate) complete: u64,
    /// Memory that was compared before and behind them.
    pub(crate) compared_bytes: u64,
    /// What of it they have changed, which the trace has.
    pub(crate) changed_bytes: u64,
    /// Those of which some memory was not compared, by reason.
    pub(crate) left_out: BTreeMap<&'static str, u64>,
    /// That memory.
    pub(crate) left_out_bytes: u64,
    /// Those that compare memory.
    #[serde(skip)]
    compared: u64,
    #[serde(skip)]
    seen: HashSet<(u32, u64)>,
}

impl Exchanges {
    pub(crate) fn add(&mut self, note: &Note<'_>) {
        match note {
            Note::Exchange(note) => {
                self.calls += 1;
                self.compared += u64::from(note.kept > 0);
                self.compared_bytes = self.compared_bytes.saturating_add(note.kept);
                self.left_out_bytes = self.left_out_bytes.saturating_add(note.left_out);
                if let Some(reason) = of_some(note.reason) {
                    *self.left_out.entry(reason).or_default() += 1;
                }
            }
            Note::ExchangeOutput(note, snapshot) => {
                self.complete += u64::from(self.seen.insert((note.thread, note.number)));
                self.changed_bytes += snapshot.bytes.length().unwrap_or(0);
            }
            _ => {}
        }
    }

    /// Those of a whole trace.
    pub(crate) fn of(trace: &Trace) -> Self {
        let mut exchanges = Self::default();
        // Damage is reported by whoever reads the trace next.
        let _ = trace.walk().run(|call| {
            if call.has_notes() {
                call.notes().for_each(|note| exchanges.add(&note));
            }
            Ok::<_, cutape_format::Error>(())
        });
        exchanges
    }

    /// Those that compare memory which was not read before the trace ended.
    pub(crate) fn incomplete(&self) -> u64 {
        self.compared.saturating_sub(self.complete)
    }

    /// What is missing, in parts of a sentence.
    pub(crate) fn gaps(&self) -> Vec<String> {
        let mut gaps: Vec<String> = self
            .left_out
            .iter()
            .map(|(reason, number)| format!("{} {reason}", quantity::grouped(*number)))
            .collect();
        if let number @ 1.. = self.incomplete() {
            let number = quantity::grouped(number);
            gaps.push(format!("{number} not complete when the recording ended"));
        }
        if self.left_out_bytes > 0 {
            let bytes = quantity::bytes(self.left_out_bytes);
            gaps.push(format!("not kept: {bytes}"));
        }
        gaps
    }
}

/// Why memory of some exchanges is not compared: what follows their number.
fn of_some(reason: u8) -> Option<&'static str> {
    Some(match reason {
        exchange_skip::NONE => return None,
        exchange_skip::GRAPH => "in captures",
        exchange_skip::FULL => "without room: a larger --outputs-of-exchanges=SIZE gives more",
        exchange_skip::LONG => {
            "with more from an address on than is kept: a larger --outputs-of-exchanges=SIZE keeps more"
        }
        exchange_skip::REFUSED => "whose copies the driver refused",
        _ => "with a reason that a later cutape gives",
    })
}
