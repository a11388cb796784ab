//! What is mapped into address reservations, which the table of ranges does not have.

use std::collections::BTreeMap;

use cutape_format::Call;
use cutape_registry::{Family, Function, VirtualMemoryOp};

/// Mapped pieces of reservations.
#[derive(Debug, Default)]
pub(crate) struct Mapped {
    /// Recorded address, bytes, and the call.
    pieces: BTreeMap<u64, (u64, u64)>,
}

impl Mapped {
    /// Applies a call that was played.
    pub(crate) fn follow(&mut self, call: &Call<'_>, function: Option<&Function>) {
        let Some(Family::VirtualMemory(op)) = function.map(|function| function.family) else {
            return;
        };
        if !call.succeeded() {
            return;
        }
        let (start, length) = (call.argument(0), call.argument(1));
        match op {
            VirtualMemoryOp::Map { .. } => {
                self.pieces.insert(start, (length, call.index));
            }
            VirtualMemoryOp::Unmap { .. } => {
                let end = start.saturating_add(length);
                self.pieces.retain(|&at, _| at < start || at >= end);
            }
            _ => {}
        }
    }

    /// Recorded address, bytes and the call of each piece, by address.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let pieces = self.pieces.iter();
        pieces.map(|(&start, &(length, call))| (start, length, call))
    }
}
