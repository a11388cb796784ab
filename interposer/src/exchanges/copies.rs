//! Copies of the program: which of them exchange data, and which addresses they put into device
//! memory.

use cutape_registry::{CopyOp, Family, MemoryType, Transfer};

use super::in_progress::TABLE;
use super::known_memory::Named;
use crate::device_work::operands;
use crate::hot::frame::Frame;
use crate::process::memory::{self, Scratch};

/// Bytes of a copy from the host that are searched for addresses.
const MOST_SEARCHED: u64 = 1 << 20;

/// The operands of a copy of one piece: target, source, length.
fn transfer(frame: &Frame, transfer: Transfer) -> [u64; 3] {
    [transfer.target, transfer.source, transfer.bytes].map(|at| frame.word(at))
}

/// What a copy changes, if it is an exchange.
pub(super) fn exchange_of_copy(frame: &Frame) -> Option<Named> {
    let Family::Copy(op) = frame.description().family else {
        return None;
    };
    let table = TABLE.lock();
    match op {
        CopyOp::Linear(at) | CopyOp::Peer(at) | CopyOp::Unified(at) => {
            let [target, source, length] = transfer(frame, at);
            let is_host = |side| side == MemoryType::Host;
            if is_host(at.from) || is_host(at.to) {
                return None;
            }
            table.memory.exchange_of_copy(target, source, length)
        }
        CopyOp::Described(_) => {
            let mut words = operands(frame);
            words.retain(|&word| table.memory.is_device(word));
            match words.len() {
                0 | 1 => None,
                _ => table.memory.exchange_of_launch(&words),
            }
        }
        CopyOp::Batch {
            targets,
            sources,
            count,
            ..
        } => {
            let word = |array: u8, index: u64| {
                memory::word(frame.word(array).checked_add(index.checked_mul(8)?)?)
            };
            let count = frame.word(count).min(MOST_COPIES);
            let of = |array| (0..count).map_while(move |index| word(array, index));
            let pairs = of(targets).zip(of(sources));
            let pairs = pairs.filter(|&(target, source)| {
                table.memory.is_device(target) && table.memory.is_device(source)
            });
            let words: Vec<u64> = pairs
                .flat_map(|(target, source)| [target, source])
                .collect();
            table.memory.exchange_of_launch(&words)
        }
        CopyOp::Batch3D { .. } => None,
    }
}

/// Of a batch with more copies, the first.
const MOST_COPIES: u64 = 1 << 12;

/// After a successful copy: which addresses are in device memory now.
pub(super) fn note_copy(frame: &Frame) {
    let Family::Copy(CopyOp::Linear(at) | CopyOp::Peer(at) | CopyOp::Unified(at)) =
        frame.description().family
    else {
        return;
    };
    let [target, source, length] = transfer(frame, at);
    {
        let mut table = TABLE.lock();
        if at.to == MemoryType::Host || !table.memory.is_device(target) {
            return;
        }
        if at.from != MemoryType::Host && table.memory.is_device(source) {
            return table.memory.copied(target, source, length);
        }
    }
    let searched = length.min(MOST_SEARCHED) as usize;
    // Not from the program's allocator.
    let Some(mut scratch) = Scratch::new(searched) else {
        return;
    };
    let bytes = scratch.bytes().get_mut(..searched).unwrap_or_default();
    let read = memory::read(source, bytes);
    let bytes = bytes.get(..read).unwrap_or_default();
    TABLE.lock().memory.brought(target, length, bytes);
}
