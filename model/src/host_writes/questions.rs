//! What is asked of the account while it goes through the calls, and answered behind the last one.

use std::collections::VecDeque;
use std::ops::Range;

use cutape_format::Call;
use cutape_order::Moment;
use rustc_hash::FxHashMap;

use super::writes::PendingWrite;

/// What is asked about the moment at which that call has returned.
#[derive(Debug)]
pub(super) struct Question {
    call: u64,
    pub(super) about: About,
}

#[derive(Debug)]
pub(super) enum About {
    /// The work that may still write these bytes, and all that calls have enqueued since that moment.
    Bytes(Range<u64>, Moment),
    /// What calls have enqueued since that moment that may write these bytes.
    Later(Range<u64>, Moment),
    /// Since when the program may know that a copy is complete: its thread, and its number there.
    Copy((u32, u64)),
}

/// What was found.
#[derive(Debug, Default)]
pub struct Answers {
    /// By call: work that may still write the bytes it asked about.
    pub pending: Vec<(u64, PendingWrite)>,
    /// By call: what other threads enqueued during it that may write the bytes it asked about.
    pub later: Vec<(u64, PendingWrite)>,
    /// By call and copy: another call, since which the program may know that the copy is complete.
    pub known: FxHashMap<(u64, (u32, u64)), u64>,
}

impl Question {
    pub(super) fn new(call: &Call<'_>, about: About) -> Self {
        Self {
            call: call.index,
            about,
        }
    }
}

impl Answers {
    /// Answers a question from what may still write now, the last writes that calls enqueued, and the
    /// call since which the program may know that the copy in question is complete.
    pub(super) fn add<'w>(
        &mut self,
        question: &Question,
        pending: impl Iterator<Item = &'w PendingWrite>,
        recent: &'w VecDeque<PendingWrite>,
        known: Option<u64>,
    ) {
        let at = question.call;
        let since = |moment| {
            let recent = recent.iter();
            recent.filter(move |write| write.entered >= moment)
        };
        match &question.about {
            About::Copy(copy) => {
                let known = known.filter(|&known| known != at);
                self.known.extend(known.map(|known| ((at, *copy), known)));
            }
            About::Bytes(bytes, moment) => {
                let found = pending.chain(since(*moment));
                let found = found.filter(|write| write.overlaps(bytes));
                self.pending.extend(found.map(|write| (at, write.clone())));
            }
            About::Later(bytes, moment) => {
                let found = since(*moment);
                let found = found.filter(|write| write.call != at && write.overlaps(bytes));
                self.later.extend(found.map(|write| (at, write.clone())));
            }
        }
    }
}
