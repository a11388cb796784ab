//! What is mapped into address reservations, which the table of ranges does not have.

use std::collections::BTreeMap;

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_registry::layout::{offset_of, size_of};
use cutape_registry::{Family, Function, VirtualMemoryOp};

use crate::api::buffer::number;

/// Mapped pieces of reservations.
#[derive(Debug, Default)]
pub(crate) struct Mapped {
    /// By recorded address.
    pieces: BTreeMap<u64, MappedPiece>,
}

/// Memory that one call has mapped.
#[derive(Debug)]
pub(crate) struct MappedPiece {
    /// As recorded.
    pub start: u64,
    pub length: u64,
    /// The call, and its function.
    pub made: u64,
    pub made_by: &'static Function,
    /// Recorded ordinals of the devices that may read and write it.
    pub devices: Vec<i32>,
}

impl Mapped {
    /// Applies a call that was played.
    pub(crate) fn follow(&mut self, call: &Call<'_>, function: Option<&'static Function>) {
        let Some(function) = function else { return };
        let Family::VirtualMemory(op) = function.family else {
            return;
        };
        if !call.succeeded() {
            return;
        }
        let (start, length) = (call.argument(0), call.argument(1));
        match op {
            VirtualMemoryOp::Map { .. } => {
                let piece = MappedPiece {
                    start,
                    length,
                    made: call.index,
                    made_by: function,
                    devices: Vec::new(),
                };
                self.pieces.insert(start, piece);
            }
            VirtualMemoryOp::SetAccess { .. } => {
                let end = start.saturating_add(length);
                for (device, is_usable) in access(call) {
                    for (_, piece) in self.pieces.range_mut(start..end) {
                        piece.devices.retain(|&known| known != device);
                        let is_inside = piece.start.saturating_add(piece.length) <= end;
                        piece
                            .devices
                            .extend((is_usable && is_inside).then_some(device));
                    }
                }
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
        let pieces = self.pieces.values();
        pieces.map(|piece| (piece.start, piece.length, piece.made))
    }

    /// The piece that a recorded address lies in.
    pub(crate) fn find(&self, address: u64) -> Option<&MappedPiece> {
        let (start, piece) = self.pieces.range(..=address).next_back()?;
        (address - start < piece.length).then_some(piece)
    }
}

/// The devices of a cuMemSetAccess, and whether they may read and write from then on.
fn access(call: &Call<'_>) -> Vec<(i32, bool)> {
    const DESCRIPTIONS: usize = 2;
    const BYTES: usize = size_of("CUmemAccessDesc");
    const FLAGS: usize = offset_of("CUmemAccessDesc", "flags");
    const DEVICE: u64 = 1;
    const READ_WRITE: u64 = 3;
    let snapshot = call.snapshot(DESCRIPTIONS, field::POINTEE);
    let bytes = snapshot.and_then(|snapshot| snapshot.bytes.inline());
    let device = |description: &[u8]| {
        let word = |at: usize| description.get(at..at + 4).map(number);
        let device = word(4)? as i32;
        (word(0)? == DEVICE).then_some((device, word(FLAGS)? == READ_WRITE))
    };
    let descriptions = bytes.unwrap_or_default().chunks_exact(BYTES);
    descriptions.filter_map(device).collect()
}
