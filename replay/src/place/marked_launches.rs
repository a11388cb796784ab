//! Puts marks around launches, and waits for launches that have marks.

use std::time::Duration;

use cutape_model::PendingWrite;
use cutape_registry::Kind;

use crate::issue::player::{Job, Player};
use crate::issue::stream::stream_argument;
use crate::place::launch_marks::{MOST_MARKS, Mark, PATIENCE_BEFORE, PAUSE, Seen};

impl Job<'_, '_> {
    /// Before a launch that may write memory which host and device share: marks the place before
    /// it. Not while a stream captures, since marks would be captured.
    pub(crate) fn begin_mark(&mut self) -> Option<Mark> {
        let call = self.call.index;
        if !self.plan.pending_writes.is_inexact(call)
            || self.captures.any_open()
            || !self.call.succeeded()
        {
            return None;
        }
        let marks = &mut self.player.lent.launch_marks;
        let oldest = match marks.by_call.len() >= MOST_MARKS {
            true => marks.by_call.pop_first().map(|(_, mark)| mark),
            false => None,
        };
        let api = &self.player.api;
        let context = api.current_context().ok()?;
        let oldest = oldest.filter(|mark| mark.context == context);
        let mark = match oldest {
            Some(oldest) => Mark { call, ..oldest },
            None => Mark {
                call,
                kernel: 0,
                context,
                before: api.create_mark().ok()?,
                after: api.create_mark().ok()?,
            },
        };
        let kernel = self.call.argument(0);
        self.record_mark(mark.before)?;
        Some(Mark { kernel, ..mark })
    }

    /// Behind that launch.
    pub(crate) fn end_mark(&mut self, mark: Mark) {
        if self.record_mark(mark.after).is_some() {
            let marks = &mut self.player.lent.launch_marks;
            marks.by_call.insert(mark.call, mark);
        }
    }

    fn record_mark(&mut self, event: u64) -> Option<()> {
        let stream = stream_argument(self.call, self.function).unwrap_or(0);
        let live = self.live_handle(Kind::Stream, stream).ok()?;
        let per_thread = self.function.per_thread;
        self.api.record_mark(event, live, per_thread).ok()
    }
}

impl Player<'_> {
    /// Waits until these launches are complete, or one of them waits for a value of the host. Not
    /// while a stream captures.
    pub(crate) fn await_launches(&mut self, writers: &[PendingWrite], recorded: Duration) -> Seen {
        if self.captures.any_open() || writers.is_empty() {
            return Seen::Complete;
        }
        let mut watch = self.lent.launch_marks.watch(writers, recorded, None);
        if watch.patience > 1 {
            watch.patience = watch.patience.max(PATIENCE_BEFORE);
        }
        if watch.marks.is_empty() {
            // They were not re-issued, or are complete since long.
            return Seen::Complete;
        }
        self.while_lent(|api| {
            loop {
                match watch.look(api) {
                    Seen::Progress => std::thread::sleep(PAUSE),
                    seen => return seen,
                }
            }
        })
    }
}
