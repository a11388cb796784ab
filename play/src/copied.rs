//! Host memory that the device wrote: bytes that copies brought, and what it wrote itself.

use cutape_diff::OneByOne;
use cutape_format::layout::field;
use cutape_format::{Call, Note, Snapshot, Trace};
use cutape_registry::{Family, Function, Role};
use rustc_hash::FxHashMap;

use crate::answers::{MissingBytes, write_rows};
use crate::host_pointers::HostPointers;
use crate::rows::{Copied, written_by};

/// Copies whose bytes a later call has, and where the program's memory is.
#[derive(Default)]
pub(crate) struct Copies {
    pub(crate) pointers: HostPointers,
    /// By thread and number of the copy.
    pending: FxHashMap<(u32, u64), Vec<Copied>>,
}

impl Copies {
    /// Where a recorded address is in the program.
    pub(crate) fn live(&self, comparison: &OneByOne<'_>, recorded: u64) -> Option<u64> {
        comparison
            .live_address(recorded)
            .or_else(|| self.pointers.live(recorded))
    }

    fn write(
        &self,
        (trace, comparison): (&Trace, &OneByOne<'_>),
        snapshot: &Snapshot<'_>,
        rows: &[(u64, u64)],
    ) -> Result<(), MissingBytes> {
        if rows.iter().all(|(_, length)| *length == 0) {
            return Ok(());
        }
        let live = rows.iter().map(|&(address, length)| {
            let live = self.live(comparison, address);
            let live = live.ok_or_else(|| {
                MissingBytes(format!(
                    "where the program has the memory that was at {address:#x} is not known"
                ))
            })?;
            Ok((live, length))
        });
        write_rows(
            trace,
            snapshot,
            &live.collect::<Result<Vec<_>, MissingBytes>>()?,
        )
    }

    /// Writes what a recorded call had copied to the host when it returned; remembers what it has
    /// still to bring.
    pub(crate) fn returned(
        &mut self,
        at: (&Trace, &OneByOne<'_>),
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
        for (snapshot, (_, rows)) in leave.filter(is_copied).zip(&targets) {
            self.write(at, &snapshot, rows)?;
            is_complete = true;
        }
        if !is_complete {
            self.pending
                .insert((recorded.thread, recorded.number), targets);
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
                        self.write((trace, comparison), &snapshot, &rows)?;
                    }
                }
                Note::HostChanged(note, snapshot) if note.is_after != 0 => {
                    let length = snapshot.bytes.length().unwrap_or(0);
                    self.write((trace, comparison), &snapshot, &[(note.address, length)])?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The rows that a copy writes from a recorded address on; `None` if the program has not made
    /// the copy.
    fn take(&mut self, copy: (u32, u64), address: u64) -> Option<Vec<(u64, u64)>> {
        let targets = self.pending.get_mut(&copy)?;
        let at = targets.iter().position(|target| target.0 == address)?;
        let (_, rows) = targets.remove(at);
        if targets.is_empty() {
            self.pending.remove(&copy);
        }
        Some(rows)
    }
}
