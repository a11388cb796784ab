//! Copies to the host whose bytes the program may have used, and the recording lacks: a function of the
//! stream came after the copy, and then a copy to the same memory, before a call proved either complete.
//! The recorder read the memory then, and both have the bytes of the last one.

use std::sync::Arc;

use cutape_format::{Call, Note, Trace};
use cutape_registry::Family;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::threads::known;
use crate::unknown::Since;

/// A copy, by the thread and number of its call.
type CopyId = (u32, u64);

/// All of them.
#[derive(Default)]
pub(crate) struct LostCopies(FxHashSet<CopyId>);

impl LostCopies {
    /// Reads a trace for them; one with `--cassette` has the bytes that a function found.
    pub(crate) fn of(trace: &Trace) -> Self {
        let mut lost = FxHashSet::default();
        if trace.meta_value("cassette").is_some() {
            return Self(lost);
        }
        // By copy: its call and its stream.
        let mut copies: FxHashMap<CopyId, (u64, u64)> = FxHashMap::default();
        let mut functions: Vec<(u64, u64)> = Vec::new();
        for call in trace.calls() {
            let function = known(&call);
            if let Some(function) = function
                && let Some(stream) = function.stream
            {
                let enqueued = (call.index, call.argument(usize::from(stream)));
                match function.family {
                    Family::HostFunction | Family::StreamCallback => functions.push(enqueued),
                    Family::Copy(_) => {
                        copies.insert((call.thread, call.number), enqueued);
                    }
                    _ => {}
                }
            }
            if !functions.is_empty() && call.has_notes() {
                let is_used = |copy: &CopyId, last: u64| {
                    copies.get(copy).is_some_and(|&(index, stream)| {
                        let mut functions = functions.iter();
                        functions.any(|&(at, of)| of == stream && index < at && at < last)
                    })
                };
                lost.extend(
                    overwritten(&call, &copies)
                        .filter(|(copy, last)| is_used(copy, *last))
                        .map(|one| one.0),
                );
            }
        }
        Self(lost)
    }

    /// Why the bytes of a copy are not known, if they are not.
    pub(crate) fn why(&self, copy: CopyId) -> Option<Since> {
        let is_lost = self.0.contains(&copy);
        is_lost.then(|| {
            Arc::from(
                "a function of its stream may have used them, and then another copy came to the same \
                 memory before the recorder looked there; record it with --cassette",
            )
        })
    }
}

/// The copies whose bytes were recorded after a call, and to whose memory another one of these came later;
/// with the call of the last.
fn overwritten(
    call: &Call<'_>,
    copies: &FxHashMap<CopyId, (u64, u64)>,
) -> impl Iterator<Item = (CopyId, u64)> {
    let noted = call.notes().filter_map(|note| match note {
        Note::Readback(note, _) => Some((note.address, (note.thread, note.number))),
        _ => None,
    });
    let mut by_address: FxHashMap<u64, Vec<(u64, CopyId)>> = FxHashMap::default();
    for (address, copy) in noted {
        if let Some(&(index, _)) = copies.get(&copy) {
            by_address.entry(address).or_default().push((index, copy));
        }
    }
    by_address.into_values().flat_map(|all| {
        let last = all.iter().map(|one| one.0).max().unwrap_or(0);
        let earlier = all.into_iter().filter(move |one| one.0 < last);
        earlier.map(move |(_, copy)| (copy, last))
    })
}
