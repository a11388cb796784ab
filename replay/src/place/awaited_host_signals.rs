//! Notes and awaits the work of which the program may have learned without a call.

use cutape_registry::{Family, Kind, StreamMemoryOp};

use crate::issue::player::Job;
use crate::issue::stream::stream_argument;
use crate::place::address::Found;
use crate::place::launch_marks::PAUSE;
use crate::place::notices::{MOST, Notice};

/// How many looks without any progress show that the work waits for something that the program does
/// later. Looks are counted and not time, so that a replay that is slow does the same.
const PATIENCE: u32 = 1000;

impl Job<'_, '_> {
    /// After a call was issued: remembers work of it whose end the program may learn.
    pub(crate) fn note_notice(&mut self) {
        if !self.tells_program() || !self.call.succeeded() || self.captures.any_open() {
            return;
        }
        let stream = stream_argument(self.call, self.function).unwrap_or(0);
        let Ok(live) = self.live_handle(Kind::Stream, stream) else {
            return;
        };
        let Ok(context) = self.api.current_context() else {
            return;
        };
        let notices = &mut self.player.lent.notices;
        if notices.pending.len() >= MOST {
            let oldest = notices.pending.remove(0);
            notices.free.push(oldest.mark);
        }
        let free = notices.free.iter().position(|free| free.1 == context);
        let mark = match free {
            Some(at) => Ok(notices.free.swap_remove(at).0),
            None => self.api.create_mark(),
        };
        let Ok(mark) = mark else { return };
        let per_thread = self.function.per_thread;
        if self.api.record_mark(mark, live, per_thread).is_ok() {
            let stream = (stream, self.call.thread);
            let notices = &mut self.player.lent.notices;
            let mark = (mark, context);
            notices.pending.push(Notice { mark, stream });
        }
    }

    fn tells_program(&self) -> bool {
        match self.function.family {
            Family::HostFunction | Family::StreamCallback => true,
            Family::StreamMemory(StreamMemoryOp::Write) => {
                let found = self.ranges.find(self.call.argument(1));
                matches!(found, Found::Live(range, _) if range.is_of_host())
            }
            Family::StreamMemory(StreamMemoryOp::Batch) => true,
            _ => false,
        }
    }

    /// Before a call that enqueues work: waits for what the program may have known to be complete in
    /// other streams.
    pub(crate) fn await_notices(&mut self) {
        let enqueues = self.function.stream.is_some()
            || matches!(self.function.family, Family::Copy(_) | Family::Memset);
        if !enqueues || self.captures.any_open() {
            return;
        }
        let own = stream_argument(self.call, self.function).unwrap_or(0);
        let own = (own, self.call.thread);
        let pending = self.lent.notices.pending.iter();
        let others = pending.filter(|notice| notice.stream != own);
        let marks: Vec<(u64, u64)> = others.map(|notice| notice.mark).collect();
        if marks.is_empty() {
            return;
        }
        let left = self.player.while_lent(|api| {
            let (mut left, mut standing) = (marks.len(), 0);
            loop {
                let now = marks.iter().filter(|mark| !api.is_mark_passed(mark.0));
                let now = now.count();
                standing = if now < left { 0 } else { standing + 1 };
                left = now;
                if left == 0 || standing > PATIENCE {
                    return left;
                }
                std::thread::sleep(PAUSE);
            }
        });
        if left > 0 {
            self.report.note(
                "host functions or values of streams that were not waited for: what is before them \
                 seems to wait for later calls",
            );
        }
        let notices = &mut self.player.lent.notices;
        notices.pending.retain(|notice| notice.stream == own);
        notices.free.extend(marks);
    }
}
