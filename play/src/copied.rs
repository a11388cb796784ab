//! Host memory that the device writes: bytes that copies bring, and what the device wrote itself.
//!
//! Under `play`, no work of the driver writes memory of the program but memsets and values, whose
//! bytes are the program's. A copy writes the bytes that the recording has of it, at its place in the
//! order of work. What the recorder found in memory that host and device share, apart from what the
//! program has written, comes at the call that proved the work complete; and before a host function,
//! or a value that the program can poll, if that may tell the program of the work.

use cutape_diff::OneByOne;
use cutape_format::{Call, Note, Snapshot, Trace};
use cutape_registry::{Function, Waits};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::call_id::CallId;
use crate::cassette::Cassette;
use crate::history::Written;
use crate::host_pointers::HostPointers;
use crate::lost_copies::LostCopies;
use crate::recorded_memory::{RecordedMemory, is_copied};
use crate::rows::{Copied, written_by};
use crate::seen::Seen;
use crate::unknown::Since;
use crate::values::{MissingBytes, write_rows};

/// A copy that is not complete.
struct Pending {
    /// The recorded call.
    call: u64,
    /// The recorded address.
    address: u64,
    /// Where the program has the rows.
    rows: Rows,
    /// What it brings; `None` if the recorder has not seen it.
    bytes: Option<Snapshot<'static>>,
    /// Its call returns when it is complete.
    is_complete: bool,
    /// Since when its bytes are not those of the recording.
    unknown: Option<Since>,
}

/// Copies that are not complete, and memory that host and device share.
pub(crate) struct Copies {
    pub(crate) pointers: HostPointers,
    recorded: RecordedMemory,
    cassette: Cassette,
    lost: LostCopies,
    /// By thread and number.
    pending: FxHashMap<(u32, u64), Vec<Pending>>,
    seen: Seen,
    /// Recorded calls that the program has made and that show something of memory.
    returned: FxHashSet<u64>,
    /// By call: what the program knows already, and the recorder had not found then.
    behind: FxHashMap<u64, Vec<Written>>,
}

impl Copies {
    pub(crate) fn of(trace: &'static Trace) -> Self {
        Self {
            pointers: HostPointers::default(),
            recorded: RecordedMemory::of(trace),
            cassette: Cassette::of(trace),
            lost: LostCopies::of(trace),
            pending: FxHashMap::default(),
            seen: Seen::default(),
            returned: FxHashSet::default(),
            behind: FxHashMap::default(),
        }
    }

    /// Where an address in a recorded call is in the program.
    pub(crate) fn live(
        &self,
        comparison: &OneByOne<'_>,
        recorded: u64,
        address: u64,
    ) -> Option<u64> {
        live(comparison, &self.pointers, recorded, address)
    }

    /// As [`RecordedMemory::proof`].
    pub(crate) fn proof(&self, thread: u32, call: u64) -> Option<u64> {
        self.recorded.proof(thread, call)
    }

    /// As [`RecordedMemory::proof_from`].
    pub(crate) fn proof_from(&self, thread: u32, call: u64) -> Option<(u64, u64)> {
        self.recorded.proof_from(thread, call)
    }

    /// Whether a recorded call tells the program of work of that call or of a later one of its thread.
    pub(crate) fn tells_of(&self, recorded: u64, call: &Call<'_>) -> bool {
        let mut shown = self.recorded.shown(recorded).iter();
        shown.any(|one| one.thread == call.thread && one.written.call >= call.index)
    }

    /// As [`RecordedMemory::is_seen`].
    pub(crate) fn is_seen(&self, recorded: u64) -> bool {
        self.recorded.is_seen(recorded)
    }

    /// As [`RecordedMemory::reads_pending`].
    pub(crate) fn reads_pending(&self, recorded: u64) -> bool {
        self.recorded.reads_pending(recorded)
    }

    /// Rows in the program's memory, of which a recorded call names the first.
    fn live_rows(
        &self,
        comparison: &OneByOne<'_>,
        recorded: u64,
        (start, rows): &Copied,
    ) -> Result<Rows, MissingBytes> {
        let live = target(comparison, &self.pointers, recorded, *start)?;
        let moved = rows.iter().map(|&(address, length)| {
            let offset = address.wrapping_sub(*start);
            (live.wrapping_add(offset), length)
        });
        Ok(moved.collect())
    }

    /// Looks where the recorder looked before a call, or after it.
    fn look(&mut self, comparison: &OneByOne<'_>, recorded: u64, is_after: bool) {
        for look in self.recorded.looked(recorded, is_after) {
            if let Some(live) = self.live(comparison, recorded, look.address) {
                self.seen.look(look, live);
            }
        }
    }

    /// The program makes a recorded call: what it is to copy to the host, and what the recorder found
    /// before it. Since `since`, the bytes that it brings are unknown.
    pub(crate) fn begin(
        &mut self,
        comparison: &OneByOne<'_>,
        (function, recorded): (&Function, &Call<'static>),
        since: Option<Since>,
    ) -> Result<(), MissingBytes> {
        self.look(comparison, recorded.index, false);
        for addresses in self.recorded.writes(recorded.index) {
            self.seen.begin(addresses);
        }
        let id = (recorded.thread, recorded.number);
        let leave = recorded.leave.iter().flat_map(|leave| leave.snapshots());
        let mut complete = leave.filter(|snapshot| is_copied(function, snapshot));
        for target in written_by(function, recorded) {
            let bytes = complete.next();
            let is_complete = bytes.is_some();
            let rows = match self.live_rows(comparison, recorded.index, &target) {
                Err(missing) if is_complete => return Err(missing),
                // Memory of the device, of a copy between any two.
                Err(_) => continue,
                Ok(rows) => rows,
            };
            let bytes = bytes.or_else(|| self.recorded.take_brought(id, target.0));
            self.pending.entry(id).or_default().push(Pending {
                call: recorded.index,
                address: target.0,
                rows,
                bytes,
                is_complete,
                unknown: since.clone().or_else(|| self.lost.why(id)),
            });
        }
        Ok(())
    }

    /// The work of a call copies to an address of the program now. False if the driver has to do that:
    /// the program gives the bytes.
    pub(crate) fn deliver(
        &mut self,
        trace: &Trace,
        call: CallId,
        address: u64,
    ) -> Result<bool, MissingBytes> {
        let at = |one: &Pending| one.rows.first().is_some_and(|row| row.0 == address);
        match self.take((call.thread, call.number), at) {
            Some(copy) if copy.bytes.is_some() => self.write(trace, &copy).map(|()| true),
            // A further row, or what the recorder looks for in shared memory.
            _ => Ok(!self.recorded.is_given(call.index)),
        }
    }

    fn write(&mut self, trace: &Trace, copy: &Pending) -> Result<(), MissingBytes> {
        if let Some(since) = &copy.unknown {
            return Err(MissingBytes(format!("they are unknown: {since}")));
        }
        if let Some(bytes) = &copy.bytes {
            write_rows(trace, bytes, &copy.rows)?;
        }
        for &(address, length) in &copy.rows {
            self.seen.wrote(address, length, copy.call);
        }
        Ok(())
    }

    /// Work of the device has written memory.
    pub(crate) fn wrote(&mut self, address: u64, length: u64, call: u64) {
        self.seen.wrote(address, length, call);
    }

    /// Before the program may learn from a call that work is complete which nothing has proved to be.
    pub(crate) fn show(
        &mut self,
        comparison: &OneByOne<'_>,
        call: u64,
    ) -> Result<(), MissingBytes> {
        for one in self.recorded.shown(call) {
            match one.after {
                Some(after) if !self.returned.contains(&after) => {
                    let behind = self.behind.entry(after).or_default();
                    behind.push(one.written.clone());
                }
                _ => put(comparison, &self.pointers, &mut self.seen, &one.written)?,
            }
        }
        Ok(())
    }

    /// Whether the program may poll anywhere.
    pub(crate) fn has_polled(&self) -> bool {
        self.cassette.has_polled() || self.recorded.has_polled()
    }

    /// As [`RecordedMemory::may_poll`].
    pub(crate) fn may_poll(&self, call: u64) -> bool {
        self.recorded.may_poll(call)
    }

    /// Puts what work in flight had written before a call, if the program has not seen it: with `all`,
    /// also what the program has more likely written. What cannot be put is left out; what `is_made`
    /// does not know to be enqueued by now, comes later.
    pub(crate) fn show_polled(
        &mut self,
        comparison: &OneByOne<'_>,
        call: u64,
        all: bool,
        is_made: impl Fn(u64) -> bool,
    ) {
        for one in self.cassette.take_before(call, all, is_made) {
            let _ = put(comparison, &self.pointers, &mut self.seen, &one);
        }
    }

    /// A recorded call has returned that the program makes: what the device wrote by then.
    pub(crate) fn returned(
        &mut self,
        (trace, comparison): (&Trace, &OneByOne<'_>),
        function: &Function,
        recorded: &Call<'_>,
    ) -> Result<(), MissingBytes> {
        let id = (recorded.thread, recorded.number);
        // What the driver has left out.
        while let Some(copy) = self.take(id, |copy| copy.is_complete) {
            self.write(trace, &copy)?;
        }
        if function.waits != Waits::No {
            self.show(comparison, recorded.index)?;
        }
        for one in self.recorded.proved(recorded.index) {
            put(comparison, &self.pointers, &mut self.seen, one)?;
        }
        for one in self.cassette.take_after(recorded.index) {
            put(comparison, &self.pointers, &mut self.seen, &one)?;
        }
        self.look(comparison, recorded.index, true);
        if self.recorded.is_seen(recorded.index) {
            self.returned.insert(recorded.index);
        }
        for one in self.behind.remove(&recorded.index).unwrap_or_default() {
            put(comparison, &self.pointers, &mut self.seen, &one)?;
        }
        if recorded.has_notes() {
            for note in recorded.notes() {
                let Note::Readback(note, _) = note else {
                    continue;
                };
                let is_it = |copy: &Pending| copy.address == note.address;
                if let Some(copy) = self.take((note.thread, note.number), is_it) {
                    self.write(trace, &copy)?;
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, id: (u32, u64), is_it: impl Fn(&Pending) -> bool) -> Option<Pending> {
        let copies = self.pending.get_mut(&id)?;
        let copy = copies.remove(copies.iter().position(is_it)?);
        if copies.is_empty() {
            self.pending.remove(&id);
        }
        Some(copy)
    }
}

/// Rows of the program's memory: address, length.
type Rows = Vec<(u64, u64)>;

fn live(
    comparison: &OneByOne<'_>,
    pointers: &HostPointers,
    recorded: u64,
    address: u64,
) -> Option<u64> {
    let of_object = comparison.live_address(recorded, address);
    of_object.or_else(|| pointers.live(address))
}

/// The same, of memory that something is written to.
fn target(
    comparison: &OneByOne<'_>,
    pointers: &HostPointers,
    recorded: u64,
    address: u64,
) -> Result<u64, MissingBytes> {
    live(comparison, pointers, recorded, address).ok_or_else(|| {
        MissingBytes(format!(
            "where the program has the memory that was at {address:#x} is not known"
        ))
    })
}

/// Puts what work has written where the program has the memory.
fn put(
    comparison: &OneByOne<'_>,
    pointers: &HostPointers,
    seen: &mut Seen,
    one: &Written,
) -> Result<(), MissingBytes> {
    let (named, address) = one.memory.named;
    let live = target(comparison, pointers, named, address)?;
    let start = live.wrapping_sub(address.wrapping_sub(one.memory.addresses.start));
    seen.put_all(one, start)
}
