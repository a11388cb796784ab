//! Host memory that the device wrote: bytes that copies brought, and what it wrote itself.

use cutape_diff::OneByOne;
use cutape_format::layout::field;
use cutape_format::{Call, Note, Snapshot, Trace};
use cutape_registry::{Family, Function, Role};
use rustc_hash::FxHashMap;

use crate::host_pointers::HostPointers;
use crate::rows::{Copied, written_by};
use crate::values::{MissingBytes, write_rows};

/// Copies whose bytes a later call has, and where the program's memory is.
#[derive(Default)]
pub(crate) struct Copies {
    pub(crate) pointers: HostPointers,
    /// By thread and number of the copy: the recorded address, and where the program has the rows.
    pending: FxHashMap<(u32, u64), Vec<Copied>>,
}

impl Copies {
    /// Where an address in a recorded call is in the program.
    pub(crate) fn live(
        &self,
        comparison: &OneByOne<'_>,
        recorded: u64,
        address: u64,
    ) -> Option<u64> {
        let of_object = comparison.live_address(recorded, address);
        of_object.or_else(|| self.pointers.live(address))
    }

    /// Rows in the program's memory, of which a recorded call names the first.
    fn live_rows(
        &self,
        comparison: &OneByOne<'_>,
        recorded: u64,
        (start, rows): &Copied,
    ) -> Result<Rows, MissingBytes> {
        let live = self.live(comparison, recorded, *start).ok_or_else(|| {
            MissingBytes(format!(
                "where the program has the memory that was at {start:#x} is not known"
            ))
        })?;
        let moved = rows.iter().map(|&(address, length)| {
            let offset = address.wrapping_sub(*start);
            (live.wrapping_add(offset), length)
        });
        Ok(moved.collect())
    }

    /// Writes what a recorded call had copied to the host when it returned; remembers what it has
    /// still to bring.
    pub(crate) fn returned(
        &mut self,
        (trace, comparison): (&Trace, &OneByOne<'_>),
        function: &Function,
        recorded: &Call<'_>,
    ) -> Result<(), MissingBytes> {
        let targets = written_by(function, recorded);
        if targets.is_empty() {
            return Ok(());
        }
        let is_copied = |snapshot: &Snapshot<'_>| {
            let param = function.params.get(usize::from(snapshot.parameter));
            match (snapshot.field, param.map(|param| param.role)) {
                (field::POINTEE, Some(Role::HostWrite(_))) => true,
                (field::HOST_BYTES, _) => matches!(function.family, Family::Copy(_)),
                _ => false,
            }
        };
        let leave = recorded.leave.iter().flat_map(|leave| leave.snapshots());
        let mut is_complete = false;
        for (snapshot, target) in leave.filter(is_copied).zip(&targets) {
            let rows = self.live_rows(comparison, recorded.index, target)?;
            write_rows(trace, &snapshot, &rows)?;
            is_complete = true;
        }
        if !is_complete {
            let rows = targets.iter().filter_map(|target| {
                // Memory of the device, of a copy between any two.
                let rows = self.live_rows(comparison, recorded.index, target).ok()?;
                Some((target.0, rows))
            });
            let rows = rows.collect();
            self.pending
                .insert((recorded.thread, recorded.number), rows);
        }
        Ok(())
    }

    /// Writes what the notes of a recorded call say about host memory.
    pub(crate) fn notes(
        &mut self,
        (trace, comparison): (&Trace, &OneByOne<'_>),
        recorded: &Call<'_>,
    ) -> Result<(), MissingBytes> {
        if !recorded.has_notes() {
            return Ok(());
        }
        for note in recorded.notes() {
            match note {
                Note::Readback(note, snapshot) => {
                    let rows = self.take((note.thread, note.number), note.address);
                    if let Some(rows) = rows {
                        write_rows(trace, &snapshot, &rows)?;
                    }
                }
                Note::HostChanged(note, snapshot) if note.is_after != 0 => {
                    let length = snapshot.bytes.length().unwrap_or(0);
                    let place = (note.address, vec![(note.address, length)]);
                    let rows = self.live_rows(comparison, recorded.index, &place)?;
                    if length > 0 {
                        write_rows(trace, &snapshot, &rows)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The rows that a copy writes from a recorded address on; `None` if the program has not made
    /// the copy.
    fn take(&mut self, copy: (u32, u64), address: u64) -> Option<Rows> {
        let targets = self.pending.get_mut(&copy)?;
        let at = targets.iter().position(|target| target.0 == address)?;
        let (_, rows) = targets.remove(at);
        if targets.is_empty() {
            self.pending.remove(&copy);
        }
        Some(rows)
    }
}

/// Rows of the program's memory: address, length.
type Rows = Vec<(u64, u64)>;
