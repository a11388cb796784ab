//! The snapshots of device memory in a trace: `record --memory`.

use cutape_format::Note;
use cutape_format::layout::memory_snapshot;
use cutape_render::quantity;
use serde::Serialize;

/// How often device memory was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemorySnapshots {
    /// Snapshots that were taken.
    pub taken: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Memory that could not be read.
    pub left_out_bytes: u64,
    /// For how long calls were kept waiting.
    pub nanoseconds: u64,
    /// Those that do not count, because a call of another thread did not wait.
    pub void: u64,
    /// How often none could be taken where one was due.
    pub missed: u64,
}

impl MemorySnapshots {
    /// Takes a note of a call.
    pub(super) fn add(&mut self, note: &Note<'_>) {
        let Note::MemorySnapshot(note) = note else {
            return;
        };
        match note.state {
            memory_snapshot::TAKEN => {
                self.taken += 1;
                self.bytes = self.bytes.saturating_add(note.bytes);
                self.left_out_bytes = self.left_out_bytes.saturating_add(note.left_out);
                self.nanoseconds = self.nanoseconds.saturating_add(note.nanoseconds);
            }
            memory_snapshot::VOID => self.void += 1,
            _ => self.missed += 1,
        }
    }

    /// `3 of device memory, 12.0 MiB in 8.1 ms; 1 void`.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} of device memory, {} in {}",
            quantity::grouped(self.taken),
            quantity::bytes(self.bytes),
            quantity::time(self.nanoseconds)
        );
        if self.left_out_bytes > 0 {
            text += &format!(
                "; {} could not be read",
                quantity::bytes(self.left_out_bytes)
            );
        }
        for (count, what) in [(self.void, "void"), (self.missed, "missed")] {
            if count > 0 {
                text += &format!("; {} {what}", quantity::grouped(count));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutape_format::layout::MemorySnapshotNote;

    #[test]
    fn snapshots_are_counted_by_what_became_of_them() {
        let mut snapshots = MemorySnapshots::default();
        for (state, bytes, left_out) in [
            (memory_snapshot::TAKEN, 4096, 0),
            (memory_snapshot::TAKEN, 0, 512),
            (memory_snapshot::VOID, 0, 0),
            (memory_snapshot::BUSY, 0, 0),
            (memory_snapshot::RUNNING, 0, 0),
        ] {
            snapshots.add(&Note::MemorySnapshot(MemorySnapshotNote {
                bytes,
                left_out,
                nanoseconds: 1_000_000,
                state,
                ..MemorySnapshotNote::default()
            }));
        }
        assert_eq!(
            snapshots.text(),
            "2 of device memory, 4.0 KiB in 2.00 ms; 512 bytes could not be read; 1 void; 2 missed"
        );
    }
}
