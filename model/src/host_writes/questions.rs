//! What is asked of the account while it goes through the calls, and answered behind the last one.

use std::ops::Range;

use cutape_format::Call;
use cutape_order::Moment;
use rustc_hash::FxHashMap;

use super::{HostWrites, PendingWrite, Returned, looked};

/// What is asked about the moment at which that call has returned.
#[derive(Debug)]
pub(super) struct Question {
    call: u64,
    about: About,
}

#[derive(Debug)]
enum About {
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

impl HostWrites {
    /// Asks which work may still write the memory around an address when the recorder looked there
    /// behind a call: since that has returned, also what other threads have enqueued meanwhile. To
    /// be called behind [`HostWrites::apply`] of that call.
    pub fn ask_behind(&mut self, call: &Call<'_>, address: u64) {
        if let Some(bytes) = self.state.shared_around(address) {
            let asked = |since| {
                Returned::Asked(Question {
                    call: call.index,
                    about: About::Bytes(bytes.clone(), since),
                })
            };
            self.at_return(call, asked(Moment::MAX));
            if let (Some(looked), Some(leave)) = (looked(call), call.leave) {
                self.at(looked, call, asked(leave.ticks));
            }
        }
    }

    /// Asks which work that other threads enqueued during that call may write these bytes: the
    /// recorder looked at them after the call was entered. To be called behind
    /// [`HostWrites::apply`] of that call.
    pub fn ask_later(&mut self, call: &Call<'_>, bytes: Range<u64>) {
        let question = Question {
            call: call.index,
            about: About::Later(bytes, call.ticks),
        };
        self.at_return(call, Returned::Asked(question));
    }

    /// Asks since when the program may know that a copy is complete, whose bytes were recorded when a
    /// call had returned. To be called behind [`HostWrites::apply`] of that call.
    pub fn ask_since(&mut self, call: &Call<'_>, copy: (u32, u64)) {
        let question = Question {
            call: call.index,
            about: About::Copy(copy),
        };
        self.at_return(call, Returned::Asked(question));
    }

    pub(super) fn answer(&mut self, question: &Question) {
        let at = question.call;
        let entered_since = |moment| move |write: &&PendingWrite| write.entered >= moment;
        match &question.about {
            About::Copy(copy) => {
                let since = self.known.remove(copy).filter(|&since| since != at);
                self.answers
                    .known
                    .extend(since.map(|since| ((at, *copy), since)));
            }
            About::Bytes(bytes, moment) => {
                let pending = self.pending.iter().map(|(_, _, write)| write);
                let recent = self.recent.iter().filter(entered_since(*moment));
                let found = pending.chain(self.in_progress()).chain(recent);
                let found = found.filter(|write| write.overlaps(bytes));
                let found: Vec<_> = found.map(|write| (at, write.clone())).collect();
                self.answers.pending.extend(found);
            }
            About::Later(bytes, moment) => {
                let recent = self.recent.iter().filter(entered_since(*moment));
                let found = recent.filter(|write| write.call != at && write.overlaps(bytes));
                self.answers
                    .later
                    .extend(found.map(|write| (at, write.clone())));
            }
        }
    }

    /// What was found, of all that has been asked; to be called behind the last call.
    pub fn answers(mut self) -> Answers {
        self.return_before(Moment::MAX);
        self.answers
    }
}
