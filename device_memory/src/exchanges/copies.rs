//! Copies of the program: which of them exchange data, and which addresses they put into device
//! memory.

use cutape_registry::{CopyOp, Family, MemoryType, Transfer};

use super::known_memory::Named;
use super::state::Exchanges;
use crate::recorder::Call;

/// Bytes of a copy from the host that are searched for addresses.
const MOST_SEARCHED: u64 = 1 << 20;
/// Of a batch with more copies, the first.
const MOST_COPIES: u64 = 1 << 12;

/// The operands of a copy of one piece: target, source, length.
fn transfer(call: &Call<'_>, transfer: Transfer) -> [u64; 3] {
    [transfer.target, transfer.source, transfer.bytes].map(|at| call.word(at))
}

impl Exchanges {
    /// What a copy changes, if it is an exchange.
    pub(super) fn exchange_of_copy(&self, call: &Call<'_>) -> Option<Named> {
        let Family::Copy(op) = call.function.family else {
            return None;
        };
        let table = self.lock();
        match op {
            CopyOp::Linear(at) | CopyOp::Peer(at) | CopyOp::Unified(at) => {
                let [target, source, length] = transfer(call, at);
                let is_host = |side| side == MemoryType::Host;
                if is_host(at.from) || is_host(at.to) {
                    return None;
                }
                table.memory.exchange_of_copy(target, source, length)
            }
            CopyOp::Described(_) => {
                let mut words = call.operands();
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
                    let at = call.word(array).checked_add(index.checked_mul(8)?)?;
                    call.recorder.word(at)
                };
                let count = call.word(count).min(MOST_COPIES);
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

    /// After a successful copy: which addresses are in device memory now.
    pub(super) fn note_copy(&self, call: &Call<'_>) {
        let Family::Copy(CopyOp::Linear(at) | CopyOp::Peer(at) | CopyOp::Unified(at)) =
            call.function.family
        else {
            return;
        };
        let [target, source, length] = transfer(call, at);
        {
            let mut table = self.lock();
            if at.to == MemoryType::Host || !table.memory.is_device(target) {
                return;
            }
            if at.from != MemoryType::Host && table.memory.is_device(source) {
                return table.memory.copied(target, source, length);
            }
        }
        let searched = length.min(MOST_SEARCHED) as usize;
        call.recorder.read(source, searched, &mut |bytes| {
            self.lock().memory.brought(target, length, bytes);
        });
    }
}
