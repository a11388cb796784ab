//! The exchanges in progress: the copies before and after them, and what these show.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;

use cutape_format::layout::{ExchangeNote, ExchangeOutputNote, exchange_skip, note_kind};
use cutape_format::write::Record;
use cutape_registry::{Family, LaunchOp};

use super::changes;
use super::known_memory::Named;
use super::state::{Begun, Copies, Exchanges, Pending};
use crate::recorder::{Call, Recorder};

/// How long the recorder waits for copies before memory, a context or the process ends.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_micros(50);

impl Exchanges {
    /// Enqueues the copies that come before an exchange.
    pub(super) fn begin(&self, call: &Call<'_>, named: Named) {
        let recorder = call.recorder;
        // Which makes room.
        self.collect(recorder);
        let Named {
            mut ranges,
            left_out,
            reason,
        } = named;
        let stream = call.stream();
        let is_several = matches!(
            call.function.family,
            Family::Launch(LaunchOp::MultiDevice { .. } | LaunchOp::Legacy { .. })
        );
        let mut begun = Begun {
            slot: None,
            copies: Vec::new(),
            stream: stream.unwrap_or(0),
            left_out,
            reason,
        };
        let refusal = match stream {
            None => Some(exchange_skip::REFUSED),
            // Copies cannot be in all of its streams.
            Some(_) if is_several => Some(exchange_skip::REFUSED),
            Some(stream) if recorder.is_capturing(stream) => Some(exchange_skip::GRAPH),
            Some(_) => None,
        };
        if let Some(why) = refusal {
            // Also where nothing would be compared: what the work does when it runs is not seen.
            begun.reason = why;
            begun.left_out += ranges.drain(..).map(|range| range.1).sum::<u64>();
        }
        // The longest are left out first.
        ranges.sort_unstable_by_key(|range| range.1);
        let context = recorder.context();
        while let Some(&(_, longest)) = ranges.last() {
            match self.lock().take(&ranges, context, &self.copies) {
                Ok((slot, copies)) => {
                    begun.slot = Some(slot);
                    begun.copies = copies;
                    break;
                }
                Err(why) => {
                    begun.left_out += longest;
                    begun.reason = why;
                }
            }
            ranges.pop();
        }
        self.copy(recorder, &mut begun, |copies| copies.before);
        let mut table = self.lock();
        if begun.copies.is_empty()
            && let Some(slot) = begun.slot.take()
        {
            // Nothing was enqueued that would need a mark.
            table.ring.give_back(slot.place);
        }
        table.begun.insert(call.thread, begun);
    }

    /// Enqueues one copy of each range; those that the driver refuses are left out.
    fn copy(&self, recorder: &dyn Recorder, begun: &mut Begun, place: impl Fn(&Copies) -> u64) {
        let stream = begun.stream;
        begun.copies.retain(|copies| {
            let source = (copies.address, copies.length);
            let is_copied = self.copies.copy(recorder, place(copies), source, stream);
            if !is_copied {
                begun.left_out += copies.length;
                begun.reason = exchange_skip::REFUSED;
            }
            is_copied
        });
    }

    /// Enqueues the copies that come after an exchange, and writes what is kept.
    pub(super) fn finish_exchange(&self, call: &Call<'_>) {
        let recorder = call.recorder;
        let begun = self.lock().begun.remove(&call.thread);
        let Some(mut begun) = begun else { return };
        if call.has_succeeded {
            self.copy(recorder, &mut begun, |copies| copies.after);
        }
        if let Some(slot) = begun.slot {
            // A place that gets no mark is never given back: devices may still write there.
            let context = recorder.context();
            if self
                .copies
                .mark(recorder, slot.place, slot.mark, begun.stream)
            {
                let pending = Pending {
                    slot,
                    copies: begun.copies.clone(),
                    context,
                    thread: call.thread,
                    number: call.number,
                    is_void: !call.has_succeeded,
                };
                let mut table = self.lock();
                table.pending.push(pending);
                self.pending_count
                    .store(table.pending.len(), Ordering::Release);
            } else {
                self.lock().without_marks.push(context);
                let lengths = begun.copies.drain(..).map(|copies| copies.length);
                begun.left_out += lengths.sum::<u64>();
                begun.reason = exchange_skip::REFUSED;
            }
        }
        if call.has_succeeded {
            let note = ExchangeNote {
                kept: begun.copies.iter().map(|copies| copies.length).sum(),
                left_out: begun.left_out,
                reason: begun.reason,
            };
            recorder.note(note_kind::EXCHANGE, &mut |record| record.put_encoded(note));
        }
    }

    /// Writes what complete exchanges have changed.
    pub(super) fn collect(&self, recorder: &dyn Recorder) {
        if self.pending_count.load(Ordering::Acquire) == 0 {
            return;
        }
        let complete: Vec<Pending> = {
            let mut table = self.lock();
            let is_complete = |pending: &mut Pending| pending.is_complete(&self.copies);
            let complete = table.pending.extract_if(.., is_complete).collect();
            self.pending_count
                .store(table.pending.len(), Ordering::Release);
            complete
        };
        for pending in complete {
            if !pending.is_void {
                self.write(recorder, &pending);
            }
            self.lock().ring.give_back(pending.slot.place);
        }
    }

    fn write(&self, recorder: &dyn Recorder, pending: &Pending) {
        let put = |address, bytes: &[u8]| {
            let note = ExchangeOutputNote {
                thread: pending.thread,
                number: pending.number,
                address,
            };
            let put = &mut |record: &mut Record<'_>| record.put_encoded(note);
            recorder.note_bytes(note_kind::EXCHANGE_OUTPUT, put, bytes);
        };
        let mut written = 0;
        for copies in &pending.copies {
            let [before, after] =
                [copies.before, copies.after].map(|place| self.copies.bytes(place, copies.length));
            for piece in changes::pieces(before, after) {
                let address = copies.address + piece.start as u64;
                put(address, after.get(piece).unwrap_or_default());
                written += 1;
            }
        }
        if written == 0
            && let Some(copies) = pending.copies.first()
        {
            put(copies.address, &[]);
        }
    }

    /// Waits while there are pending exchanges of a kind, but not for long.
    pub(super) fn wait_while(&self, is_awaited: impl Fn(&Pending) -> bool) {
        let start = Instant::now();
        let is_any_awaited = || {
            let table = self.lock();
            let mut pending = table.pending.iter();
            pending.any(|pending| !pending.is_complete(&self.copies) && is_awaited(pending))
        };
        while self.pending_count.load(Ordering::Acquire) != 0
            && is_any_awaited()
            && start.elapsed() < LONGEST_WAIT
        {
            std::thread::sleep(POLL);
        }
    }

    /// Waits a little for pending exchanges, and writes what is complete.
    pub(crate) fn finish(&self, recorder: &dyn Recorder) {
        self.wait_while(|_| true);
        self.collect(recorder);
    }
}
