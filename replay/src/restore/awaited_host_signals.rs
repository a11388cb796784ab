//! Notes work that signals the host, and waits for it.

use cutape_format::Note;
use cutape_model::written_values;
use cutape_registry::{Family, StreamMemoryOp};

use crate::lent::host_signals::{HostSignal, MOST};
use crate::lent::launch_marks::PAUSE;
use crate::place::address::Found;
use crate::player::Job;
use crate::player::stream::stream_argument;

/// How many looks without any progress show that the work waits for something that the program does
/// later. Looks are counted and not time, so that a replay that is slow does the same.
const PATIENCE: u32 = 1000;

impl Job<'_, '_> {
    /// After a call was issued: notes that its work signals the host.
    pub(crate) fn note_host_signal(&mut self) {
        if !self.signals_host() || !self.call.succeeded() {
            return;
        }
        let Some((live, per_thread)) = self.uncaptured_stream() else {
            return;
        };
        self.note_written_values();
        let Ok(context) = self.api.current_context() else {
            return;
        };
        let host_signals = &mut self.player.lent.host_signals;
        if host_signals.pending.len() >= MOST {
            let oldest = host_signals.pending.remove(0);
            host_signals.free.push((oldest.mark, oldest.context));
        }
        let free = host_signals.free.iter().position(|free| free.1 == context);
        let mark = match free {
            Some(at) => Ok(host_signals.free.swap_remove(at).0),
            None => self.api.create_mark(),
        };
        let Ok(mark) = mark else { return };
        if self.api.record_mark(mark, live, per_thread).is_ok() {
            let stream = stream_argument(self.call, self.function).unwrap_or(0);
            let signal = HostSignal {
                mark,
                context,
                stream: (stream, self.call.thread),
            };
            self.player.lent.host_signals.pending.push(signal);
        }
    }

    /// Notes the values that a stream writes, which the recorder may see.
    fn note_written_values(&mut self) {
        for (bytes, value) in written_values(self.function, self.call) {
            let (value, length) = (value.to_le_bytes(), bytes.end - bytes.start);
            let value = value.get(..length as usize).unwrap_or(&value);
            let host_signals = &mut self.player.lent.host_signals;
            host_signals.write(bytes.start, value, self.call.index);
        }
    }

    /// Whether the work of the call signals the host.
    fn signals_host(&self) -> bool {
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

    /// Before a call that enqueues work: waits for signals of other streams, on which it may rely.
    pub(crate) fn await_host_signals(&mut self) {
        let enqueues = self.function.stream.is_some()
            || matches!(self.function.family, Family::Copy(_) | Family::Memset);
        if !enqueues {
            return;
        }
        // The default streams of two contexts have the same handles.
        let context = self.api.current_context().ok();
        let stream = stream_argument(self.call, self.function).unwrap_or(0);
        let own = (stream, self.call.thread);
        self.await_signals_but(|signal| signal.stream == own && Some(signal.context) == context);
    }

    /// Before what the program had written is put: what it overwrites, earlier work may have to read,
    /// of whose end it knew by a signal.
    pub(crate) fn await_readers(&mut self) {
        if !self.lent.host_signals.any() {
            return;
        }
        let is_put = |note| matches!(note, Note::HostChanged(note, _) if note.is_after == 0);
        if self.call.notes().any(is_put) {
            self.await_signals_but(|_| false);
        }
    }

    /// Waits for signals, except some.
    fn await_signals_but(&mut self, is_excepted: impl Fn(&HostSignal) -> bool) {
        let pending = self.lent.host_signals.pending.iter();
        let others = pending.filter(|signal| !is_excepted(signal));
        let marks: Vec<(u64, u64)> = others.map(|signal| (signal.mark, signal.context)).collect();
        if marks.is_empty() {
            return;
        }
        let left = self.player.while_relaxed(|api| {
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
        let host_signals = &mut self.player.lent.host_signals;
        host_signals.pending.retain(is_excepted);
        host_signals.free.extend(marks);
    }
}
