//! The host memory of copies.

use cutape_registry::{CopyOp, Family, MemoryType, Waits};

use crate::calls::steps::Issued;
use crate::player::Player;
use crate::player::current::Decoded;

/// The host memory that a linear copy reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rerun) struct HostSide {
    /// Its address in the recording.
    pub recorded: u64,
    /// Its address here.
    pub live: u64,
    pub length: u64,
    /// Which argument it is.
    pub argument: usize,
    /// The copy writes it.
    pub is_written: bool,
    /// It is page-locked.
    pub is_pinned: bool,
    /// The copy may go on after its call.
    pub is_async: bool,
}

impl HostSide {
    /// `None` if the call is no linear copy with one side on the host.
    pub(super) fn of(player: &Player<'_>, next: &Decoded<'_>, issued: &Issued) -> Option<Self> {
        let Family::Copy(CopyOp::Linear(copy) | CopyOp::Unified(copy)) = issued.function.family
        else {
            return None;
        };
        let is_host = |memory: MemoryType, at: u8| match memory {
            MemoryType::Host => true,
            MemoryType::Unified => {
                let address = next.call.argument(usize::from(at));
                !player.ranges.is_device(address)
            }
            MemoryType::Device | MemoryType::Array => false,
        };
        let (from, to) = (
            is_host(copy.from, copy.source),
            is_host(copy.to, copy.target),
        );
        let argument = usize::from(match (from, to) {
            (true, false) => copy.source,
            (false, true) => copy.target,
            _ => return None,
        });
        let recorded = next.call.argument(argument);
        let length = next.call.argument(usize::from(copy.bytes));
        let side = Self {
            recorded,
            live: issued.args.get(argument).copied()?,
            length,
            argument,
            is_written: to,
            is_pinned: player.live_host(recorded, length).is_some(),
            is_async: issued.function.waits == Waits::No && issued.function.stream.is_some(),
        };
        (length > 0).then_some(side)
    }

    /// Whether the copy may still use the memory when its call has returned: of pageable memory,
    /// the driver has taken or brought the bytes by then (CUDA Driver API, API synchronization
    /// behavior).
    pub(super) fn outlasts_its_call(&self) -> bool {
        self.is_async && self.is_pinned
    }

    pub(super) fn recorded_end(&self) -> u64 {
        self.recorded.saturating_add(self.length)
    }
}
