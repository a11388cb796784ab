//! What a trace keeps of exchanges with other processes: `record --outputs-of-exchanges`.

use std::collections::{BTreeMap, HashMap};

use cutape_format::layout::exchange_skip;
use cutape_format::{Call, Note, Trace};
use serde::Serialize;

use cutape_render::quantity;

/// The exchanges of a trace.
#[derive(Debug, Default, Serialize)]
pub struct Exchanges {
    /// Launches and copies that reach memory which processes share.
    pub calls: u64,
    /// Those whose memory was compared, and was read before the trace ended.
    pub complete: u64,
    /// Memory that was compared before and behind them.
    pub compared_bytes: u64,
    /// What of it they have changed, which the trace has.
    pub changed_bytes: u64,
    /// Those of which some memory was not compared, by reason.
    pub left_out: BTreeMap<&'static str, u64>,
    /// That memory.
    pub left_out_bytes: u64,
    /// Those whose memory was compared, also if it was not read before the trace ended.
    pub compared: u64,
    /// By number of calls.
    pub by_kernel: Vec<ExchangesOfKernel>,
    /// By thread and number in the thread. What changed may come before the exchange, in a wait of
    /// another thread that was entered earlier.
    #[serde(skip)]
    seen: HashMap<(u32, u64), Seen>,
}

/// Exchanges that launch one kernel, or that are calls of one function.
#[derive(Debug, Serialize)]
pub struct ExchangesOfKernel {
    /// The exported name.
    pub function: String,
    /// The kernel's name in its image; `null` for copies and if it is not known.
    pub kernel: Option<String>,
    /// How many.
    pub calls: u64,
    /// Memory that was compared.
    pub compared_bytes: u64,
    /// What of it they have changed.
    pub changed_bytes: u64,
    /// Memory that was not compared.
    pub left_out_bytes: u64,
}

/// What is known of one exchange.
#[derive(Debug, Default)]
struct Seen {
    /// Its position in `by_kernel`.
    kernel: Option<usize>,
    changed_bytes: u64,
    is_complete: bool,
}

impl Exchanges {
    /// Takes a note of a call; `kernel` is what the call launches.
    pub(super) fn add(&mut self, call: &Call<'_>, kernel: Option<&str>, note: &Note<'_>) {
        match note {
            Note::Exchange(note) => {
                self.calls += 1;
                self.compared += u64::from(note.kept > 0);
                self.compared_bytes = self.compared_bytes.saturating_add(note.kept);
                self.left_out_bytes = self.left_out_bytes.saturating_add(note.left_out);
                if let Some(reason) = of_some(note.reason) {
                    *self.left_out.entry(reason).or_default() += 1;
                }
                let at = self.position_of(&call.signature.name, kernel);
                if let Some(of) = self.by_kernel.get_mut(at) {
                    of.calls += 1;
                    of.compared_bytes = of.compared_bytes.saturating_add(note.kept);
                    of.left_out_bytes = of.left_out_bytes.saturating_add(note.left_out);
                }
                let seen = self.seen.entry((call.thread, call.number)).or_default();
                seen.kernel = Some(at);
            }
            Note::ExchangeOutput(note, snapshot) => {
                let seen = self.seen.entry((note.thread, note.number)).or_default();
                self.complete += u64::from(!std::mem::replace(&mut seen.is_complete, true));
                let bytes = snapshot.bytes.length().unwrap_or(0);
                seen.changed_bytes += bytes;
                self.changed_bytes += bytes;
            }
            _ => {}
        }
    }

    fn position_of(&mut self, function: &str, kernel: Option<&str>) -> usize {
        let known = self
            .by_kernel
            .iter()
            .position(|known| known.function == function && known.kernel.as_deref() == kernel);
        known.unwrap_or_else(|| {
            self.by_kernel.push(ExchangesOfKernel {
                function: function.to_owned(),
                kernel: kernel.map(str::to_owned),
                calls: 0,
                compared_bytes: 0,
                changed_bytes: 0,
                left_out_bytes: 0,
            });
            self.by_kernel.len() - 1
        })
    }

    /// After the last call.
    pub(super) fn finish(&mut self) {
        for seen in std::mem::take(&mut self.seen).into_values() {
            let of = seen.kernel.and_then(|at| self.by_kernel.get_mut(at));
            if let Some(of) = of {
                of.changed_bytes += seen.changed_bytes;
            }
        }
        self.by_kernel.sort_by(|a, b| {
            let key = |of: &ExchangesOfKernel| (of.calls, of.changed_bytes);
            let names = |of: &ExchangesOfKernel| (of.kernel.clone(), of.function.clone());
            key(b).cmp(&key(a)).then_with(|| names(a).cmp(&names(b)))
        });
    }

    /// Those of a whole trace.
    pub fn of(trace: &Trace) -> Self {
        let mut exchanges = Self::default();
        // Damage is reported by whoever reads the trace next.
        let _ = trace.walk().run(|call| {
            if call.has_notes() {
                call.notes()
                    .for_each(|note| exchanges.add(call, None, &note));
            }
            Ok::<_, cutape_format::Error>(())
        });
        exchanges.finish();
        exchanges
    }

    /// Those that compare memory which was not read before the trace ended.
    pub fn incomplete(&self) -> u64 {
        self.compared.saturating_sub(self.complete)
    }

    /// All of them, in one line.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} with other processes: {} of own memory compared, {} changed and kept",
            quantity::grouped(self.calls),
            quantity::bytes(self.compared_bytes),
            quantity::bytes(self.changed_bytes)
        );
        for gap in self.gaps() {
            text += "; ";
            text += &gap;
        }
        text
    }

    /// What is missing, in parts of a sentence.
    pub fn gaps(&self) -> Vec<String> {
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
