//! Gaps: places where calls are missing that only gave the device work, ordered it, waited for it, or
//! asked. Which objects exist is known after a gap as before it. What memory holds, which work is
//! complete and what graphs have allocated is not.

use cutape_format::layout::GapNote;
use cutape_format::{Call, Note};
use cutape_registry::Kind;

use crate::state::{Data, State};

/// Where calls of a trace are missing. Expects every call, in order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gaps {
    /// The recording is paused.
    is_open: bool,
    /// Calls that the gaps so far have left out.
    calls: u64,
}

/// The note of a call before which calls are missing.
pub fn gap_of(call: &Call<'_>) -> Option<GapNote> {
    if !call.has_notes() {
        return None;
    }
    call.notes().find_map(|note| match note {
        Note::Gap(gap) => Some(gap),
        _ => None,
    })
}

impl Gaps {
    /// Whether calls may be missing directly before this one, by which the device may have got or
    /// finished work.
    #[inline]
    pub fn is_before(&mut self, call: &Call<'_>) -> bool {
        match gap_of(call) {
            Some(gap) => {
                self.is_open = gap.resumed == 0;
                self.calls = self.calls.saturating_add(gap.calls);
                true
            }
            None => self.is_open,
        }
    }

    /// Whether calls may be missing behind the last one of a trace, whose recorder has left out so
    /// many in all.
    pub fn is_at_end(&self, left_out: u64) -> bool {
        self.is_open || left_out > self.calls
    }
}

/// Whether device memory may lack what calls did that are missing.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryGaps {
    lacks: bool,
    /// When memory was last known, in ticks.
    known: u64,
}

impl MemoryGaps {
    /// Whether memory may lack something.
    pub fn lack_memory(&self) -> bool {
        self.lacks
    }

    /// Calls are missing. False if memory was known after them: a thread says only in its next call
    /// what it has left out.
    pub fn apply(&mut self, gap: &GapNote) -> bool {
        let is_new = gap.resumed == 0 || gap.resumed > self.known;
        self.lacks |= is_new;
        is_new
    }

    /// A call that was entered at these ticks says what all memory held.
    pub fn know_memory(&mut self, ticks: u64) {
        self.lacks = false;
        self.known = ticks;
    }
}

impl<X> State<X> {
    /// Calls are missing here: all work may be complete, graphs may have been launched and uploaded,
    /// and streams or the program have waited for events.
    pub fn apply_gap(&mut self) {
        let everything = self.order.everything();
        self.order.complete(&everything);
        self.last_launches.clear();
        self.graphs.forget_launches();
        self.records_elsewhere |= self.graphs.any_execs();
        let events = self.objects.iter();
        let events = events.filter(|(_, object)| object.kind == Kind::Event);
        let events: Vec<_> = events.map(|(id, _)| id).collect();
        for id in events {
            if let Some(Data::Event(event)) = self.objects.get_mut(id).map(|event| &mut event.data)
            {
                event.waited |= event.record.is_some() || event.early_wait.is_some();
            }
        }
    }
}
