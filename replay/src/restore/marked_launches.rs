//! Puts marks around launches, and waits for launches that have marks.

use std::time::{Duration, Instant};

use cutape_model::PendingWrite;
use cutape_registry::Family;

use crate::compare::received::read_memory;
use crate::lent::launch_marks::{LONGEST_HELD, MOST_MARKS, Mark, PATIENCE, PAUSE, Seen};
use crate::place::address::Found;
use crate::player::{Job, Player};

impl Job<'_, '_> {
    /// Before a call whose work writes memory which host and device share: marks the place before
    /// it, if its end matters, and keeps what is there, if that does.
    pub(crate) fn begin_mark(&mut self) -> Option<Mark> {
        let call = self.call.index;
        if !self.plan.pending_writes.is_marked(call) || !self.call.succeeded() {
            return None;
        }
        // A mark would be captured.
        self.uncaptured_stream()?;
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
        let kernel = match self.function.family {
            Family::Launch(op) => op.function().map(|at| self.call.argument(usize::from(at))),
            _ => None,
        };
        let kernel = kernel.unwrap_or(0);
        self.record_mark(mark.before)?;
        let unproven = self.player.plan.pending_writes.unproven(call);
        if !unproven.is_empty() {
            // What writes there earlier is before it in its stream, or complete.
            let is_settled = self.player.await_mark(mark.before);
            unproven
                .iter()
                .for_each(|write| self.hold(write, is_settled));
        }
        Some(Mark { kernel, ..mark })
    }

    /// Keeps what memory holds before work writes there. `is_settled`: earlier such work is complete.
    fn hold(&mut self, write: &PendingWrite, is_settled: bool) {
        let bytes = &write.bytes;
        let length = bytes.end - bytes.start;
        let Found::Live(range, offset) = self.ranges.find(bytes.start) else {
            return;
        };
        let known = self.lent.shadows.get(&range.start);
        let is_known = is_settled && known.is_some_and(|(made, _)| *made == range.made);
        if length > LONGEST_HELD || offset + length > range.length || !range.is_of_host() {
            return;
        }
        let held = read_memory(range.live.wrapping_add(offset), length as usize);
        self.player
            .lent
            .launch_marks
            .hold(write.call, bytes.start, held, is_known);
    }

    /// After that call.
    pub(crate) fn end_mark(&mut self, mark: Mark) {
        if self.record_mark(mark.after).is_some() {
            self.player.lent.launch_marks.add(mark);
        }
    }

    fn record_mark(&mut self, event: u64) -> Option<()> {
        let (stream, per_thread) = self.uncaptured_stream()?;
        self.api.record_mark(event, stream, per_thread).ok()
    }
}

impl Player<'_> {
    /// Waits until work has come to a mark; false if what is before may wait for the host.
    fn await_mark(&mut self, mark: u64) -> bool {
        self.while_relaxed(|api| {
            let since = Instant::now();
            loop {
                // Looked at again after the time is over: the process may have been stopped.
                let is_over = since.elapsed() >= PATIENCE;
                let is_passed = api.is_mark_passed(mark);
                if is_passed || is_over {
                    return is_passed;
                }
                std::thread::sleep(PAUSE);
            }
        })
    }

    /// Waits until these launches are complete, or one of them waits for a value of the host.
    pub(crate) fn await_launches(&mut self, writers: &[PendingWrite], recorded: Duration) -> Seen {
        if writers.is_empty() {
            return Seen::Complete;
        }
        let mut watch = self.lent.launch_marks.watch(writers, recorded, None);
        if watch.marks.is_empty() {
            // They were not re-issued, or are complete since long.
            return Seen::Complete;
        }
        self.while_relaxed(|api| {
            loop {
                match watch.look(api) {
                    Seen::Progress if watch.is_stuck() => return Seen::Waiting,
                    Seen::Progress => std::thread::sleep(PAUSE),
                    seen => return seen,
                }
            }
        })
    }
}
