//! The digests of device memory that a trace has: `record --digests`.

use std::collections::{BTreeMap, HashSet};

use cutape_format::layout::DigestNote;
use cutape_format::{Note, Trace};
use cutape_registry::{Family, Function, GraphOp};
use serde::Serialize;

use super::facts::text;
use cutape_render::notes;

/// The digests of a trace; one for each range of memory, each time.
#[derive(Debug, Default, Serialize)]
pub struct Digests {
    /// When they were taken: `end`, `sync` or `launch`; `null` if they were not.
    pub when: Option<String>,
    /// Contexts that the recorder prepared for them.
    pub contexts: u64,
    /// Contexts in which the driver refused that.
    pub contexts_refused: u64,
    /// All digests.
    pub digests: u64,
    /// Those whose value the trace has. The others cannot be compared.
    pub with_value: u64,
    /// Those that do not count, because a call of another thread overlapped.
    pub void: u64,
    /// By where they were taken and of which memory.
    pub places: Vec<DigestPlace>,
    /// Digests that were due and are not there, by reason.
    pub not_taken: BTreeMap<&'static str, u64>,
}

/// Digests that were taken at calls of one kind.
#[derive(Debug, Serialize)]
pub struct DigestPlace {
    /// `after kernel launches`, `after graph launches`, `after waits`, `before contexts end`.
    pub place: &'static str,
    /// Which memory.
    pub memory: &'static str,
    /// How many calls.
    pub calls: u64,
    /// How many digests.
    pub digests: u64,
    /// The same memory as often as it was digested.
    pub bytes: u64,
}

/// Counts the digests of calls.
#[derive(Debug)]
pub(super) struct DigestCounter {
    digests: Digests,
    /// Numbers whose value is known.
    values: HashSet<u64>,
    /// Numbers (first, behind the last) that do not count.
    void: Vec<(u64, u64)>,
}

impl DigestCounter {
    pub(super) fn new(trace: &Trace) -> Self {
        Self {
            digests: Digests {
                when: text(trace, "digests"),
                ..Digests::default()
            },
            values: HashSet::new(),
            void: Vec::new(),
        }
    }

    /// Looks at a note of a call.
    pub(super) fn add(&mut self, note: &Note<'_>, function: Option<&Function>) {
        let digests = &mut self.digests;
        match note {
            Note::DigestSetup(note) if note.result == 0 => digests.contexts += 1,
            Note::DigestSetup(_) => digests.contexts_refused += 1,
            Note::Digest(note, ranges) => self.add_digests(note, ranges, function),
            Note::DigestValues(values) => {
                self.values.extend(values.iter().map(|value| value.0));
            }
            Note::DigestVoid(note) => {
                let end = note.first.saturating_add(note.count);
                self.void.push((note.first, end));
            }
            Note::DigestSkipped(note) => {
                let reason = notes::digest_skip_reason(note.reason);
                *digests.not_taken.entry(reason).or_default() += 1;
            }
            _ => {}
        }
    }

    fn add_digests(
        &mut self,
        note: &DigestNote,
        ranges: &[(u64, u64)],
        function: Option<&Function>,
    ) {
        let place = match function.map(|function| function.family) {
            _ if note.is_before != 0 => "before contexts end",
            Some(Family::Launch(_)) => "after kernel launches",
            Some(Family::Graph(GraphOp::Launch)) => "after graph launches",
            _ => "after waits",
        };
        let memory = notes::reach(note);
        let known = &mut self.digests.places;
        let at = known
            .iter()
            .position(|known| (known.place, known.memory) == (place, memory));
        let at = at.unwrap_or_else(|| {
            known.push(DigestPlace {
                place,
                memory,
                calls: 0,
                digests: 0,
                bytes: 0,
            });
            known.len() - 1
        });
        let Some(place) = known.get_mut(at) else {
            return;
        };
        place.calls += 1;
        place.digests += ranges.len() as u64;
        place.bytes += ranges.iter().map(|range| range.1).sum::<u64>();
        self.digests.digests += ranges.len() as u64;
    }

    /// All digests.
    pub(super) fn finish(mut self) -> Digests {
        let is_void = |number: &u64| {
            let mut void = self.void.iter();
            void.any(|&(first, end)| (first..end).contains(number))
        };
        self.digests.void = self.void.iter().map(|(first, end)| end - first).sum();
        let with_value = self.values.iter().filter(|number| !is_void(number));
        self.digests.with_value = with_value.count() as u64;
        self.digests
    }
}
