//! The exchanges in progress: the copies before and behind them, and what these show.

use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::collections::HashMap;
use std::time::Instant;

use cutape_format::layout::{ExchangeNote, ExchangeOutputNote, exchange_skip, field, note_kind};
use cutape_reach::Area;
use cutape_registry::{Family, LaunchOp};

use super::known_memory::{KnownMemory, Memory, Named};
use super::ring::{ALIGNMENT, Ring};
use super::{changes, host_copies};
use crate::device_work::stream_of;
use crate::hot::frame::Frame;
use crate::hot::thread::Thread;
use crate::process::process_lock::ProcessLock;
use crate::queries::{current_context, is_capturing};
use crate::snapshot;

/// How long the recorder waits for copies before memory, a context or the process ends.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_micros(50);

pub(super) static TABLE: ProcessLock<Table> = ProcessLock::new();
/// How many exchanges are pending: while there are none, waits take no lock.
pub(super) static PENDING: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) memory: KnownMemory,
    pub(super) ring: Ring,
    /// By thread: the exchange that is between the hooks of its call.
    pub(super) begun: HashMap<u32, Begun>,
    pub(super) pending: Vec<Pending>,
    pub(super) last_mark: u32,
    /// Contexts in which the driver has refused to write a mark.
    pub(super) without_marks: Vec<u64>,
    /// The context that has page-locked the memory for copies.
    pub(super) registered: Option<u64>,
    /// By thread: memory that its call in progress ends.
    pub(super) ending: HashMap<u32, Vec<Area<Memory>>>,
}

/// Copies of a range of memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copies {
    address: u64,
    length: u64,
    /// Places in the ring.
    before: u64,
    after: u64,
}

/// An exchange whose call is in progress.
#[derive(Debug)]
pub(super) struct Begun {
    /// `None` if nothing is kept.
    slot: Option<Slot>,
    copies: Vec<Copies>,
    stream: u64,
    left_out: u64,
    reason: u8,
}

/// A place in the ring, which begins with the mark.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) place: u64,
    mark: u32,
}

/// An exchange whose copies were enqueued.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) slot: Slot,
    copies: Vec<Copies>,
    pub(super) context: u64,
    thread: u32,
    number: u64,
    /// The call failed: nothing is written.
    is_void: bool,
}

impl Pending {
    pub(super) fn is_complete(&self) -> bool {
        host_copies::has_mark(self.slot.place, self.slot.mark)
    }

    pub(super) fn overlaps(&self, start: u64, length: u64) -> bool {
        let end = start.saturating_add(length);
        let mut copies = self.copies.iter();
        copies.any(|copies| copies.address < end && start < copies.address + copies.length)
    }
}

/// Enqueues the copies that come before an exchange.
pub(super) fn begin(thread: &Thread, frame: &Frame, named: Named) {
    // Which makes room.
    collect(thread);
    let Named {
        mut ranges,
        left_out,
        reason,
    } = named;
    let stream = stream_of(frame);
    let is_several = matches!(
        frame.description().family,
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
        Some(stream) if is_capturing(frame.description(), stream) => Some(exchange_skip::GRAPH),
        Some(_) => None,
    };
    if let Some(why) = refusal {
        // Also where nothing would be compared: what the work does when it runs is not seen.
        begun.reason = why;
        begun.left_out += ranges.drain(..).map(|range| range.1).sum::<u64>();
    }
    // The longest are left out first.
    ranges.sort_unstable_by_key(|range| range.1);
    let context = current_context();
    while let Some(&(_, longest)) = ranges.last() {
        match TABLE.lock().take(&ranges, context) {
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
    begun.copy(|copies| copies.before);
    let mut table = TABLE.lock();
    if begun.copies.is_empty()
        && let Some(slot) = begun.slot.take()
    {
        // Nothing was enqueued that would need a mark.
        table.ring.give_back(slot.place);
    }
    table.begun.insert(thread.ordinal.get(), begun);
}

impl Table {
    /// Places for the copies of ranges in a context, and the mark.
    fn take(&mut self, ranges: &[(u64, u64)], context: u64) -> Result<(Slot, Vec<Copies>), u8> {
        if self.registered.is_none() || self.without_marks.contains(&context) {
            return Err(exchange_skip::REFUSED);
        }
        let mut length = ALIGNMENT;
        let mut copies = Vec::with_capacity(ranges.len());
        for &(address, bytes) in ranges {
            let before = length;
            let after = before + bytes.next_multiple_of(ALIGNMENT);
            length = after + bytes.next_multiple_of(ALIGNMENT);
            copies.push(Copies {
                address,
                length: bytes,
                before,
                after,
            });
        }
        let place = self.ring.take(length).ok_or(exchange_skip::FULL)?;
        for copies in &mut copies {
            copies.before += place;
            copies.after += place;
        }
        // 0 is no mark.
        self.last_mark = self.last_mark.checked_add(1).unwrap_or(1);
        let mark = self.last_mark;
        host_copies::clear_mark(place);
        Ok((Slot { place, mark }, copies))
    }
}

impl Begun {
    /// Enqueues one copy of each range; those that the driver refuses are left out.
    fn copy(&mut self, place: impl Fn(&Copies) -> u64) {
        let stream = self.stream;
        self.copies.retain(|copies| {
            let is_copied = host_copies::copy(place(copies), copies.address, copies.length, stream);
            if !is_copied {
                self.left_out += copies.length;
                self.reason = exchange_skip::REFUSED;
            }
            is_copied
        });
    }
}

/// Enqueues the copies that come behind an exchange, and writes what is kept.
pub(super) fn finish_exchange(thread: &Thread, frame: &Frame) {
    let begun = TABLE.lock().begun.remove(&thread.ordinal.get());
    let Some(mut begun) = begun else { return };
    let succeeded = frame.succeeded();
    if succeeded {
        begun.copy(|copies| copies.after);
    }
    if let Some(slot) = begun.slot {
        // A place that gets no mark is never given back: devices may still write there.
        let context = current_context();
        if host_copies::mark(slot.place, slot.mark, begun.stream) {
            let pending = Pending {
                slot,
                copies: begun.copies.clone(),
                context,
                thread: thread.ordinal.get(),
                number: thread.calls.get().wrapping_sub(1),
                is_void: !succeeded,
            };
            let mut table = TABLE.lock();
            table.pending.push(pending);
            PENDING.store(table.pending.len(), Ordering::Release);
        } else {
            TABLE.lock().without_marks.push(context);
            let lengths = begun.copies.drain(..).map(|copies| copies.length);
            begun.left_out += lengths.sum::<u64>();
            begun.reason = exchange_skip::REFUSED;
        }
    }
    if succeeded {
        let note = ExchangeNote {
            kept: begun.copies.iter().map(|copies| copies.length).sum(),
            left_out: begun.left_out,
            reason: begun.reason,
        };
        thread.note(note_kind::EXCHANGE, |draft| draft.put_encoded(note));
    }
}

/// Writes what complete exchanges have changed.
pub(super) fn collect(thread: &Thread) {
    if PENDING.load(Ordering::Acquire) == 0 {
        return;
    }
    let complete: Vec<Pending> = {
        let mut table = TABLE.lock();
        let is_complete = |pending: &mut Pending| pending.is_complete();
        let complete = table.pending.extract_if(.., is_complete).collect();
        PENDING.store(table.pending.len(), Ordering::Release);
        complete
    };
    for pending in complete {
        if !pending.is_void {
            write(thread, &pending);
        }
        TABLE.lock().ring.give_back(pending.slot.place);
    }
}

fn write(thread: &Thread, pending: &Pending) {
    let put = |address, bytes: &[u8]| {
        let note = ExchangeOutputNote {
            thread: pending.thread,
            number: pending.number,
            address,
        };
        thread.note(note_kind::EXCHANGE_OUTPUT, |draft| {
            draft.put_encoded(note)?;
            snapshot::own(draft, 0, field::POINTEE, bytes)
        });
    };
    let mut written = 0;
    for copies in &pending.copies {
        let [before, after] =
            [copies.before, copies.after].map(|place| host_copies::bytes(place, copies.length));
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

pub(super) fn wait_while(is_awaited: impl Fn() -> bool) {
    let start = Instant::now();
    while PENDING.load(Ordering::Acquire) != 0 && is_awaited() && start.elapsed() < LONGEST_WAIT {
        std::thread::sleep(POLL);
    }
}

/// Waits a little for pending exchanges, and writes what is complete.
pub(super) fn finish(thread: &Thread) {
    wait_while(|| !TABLE.lock().pending.iter().all(Pending::is_complete));
    collect(thread);
}
