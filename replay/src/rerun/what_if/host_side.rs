//! The host memory of copies. Copies from the same pageable memory of the program have the same
//! memory here: it is in the processor's caches, and the driver knows its pages.

use std::collections::{BTreeMap, HashMap};

use cutape_registry::{CopyOp, Family, MemoryType, Waits};

use crate::calls::steps::{Issued, Step};
use crate::compare::received::read_memory;
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

/// Lets copies that read the same pageable memory of the program read the same memory here, and
/// writes what the program had written there meanwhile.
pub(super) fn share_sources(steps: &mut Vec<Step>, host: &mut BTreeMap<u64, HostSide>) {
    let mut groups: HashMap<(u64, u64), Vec<u64>> = HashMap::new();
    for (&call, side) in host.iter() {
        if !side.is_written && !side.is_pinned {
            let place = (side.recorded, side.length);
            groups.entry(place).or_default().push(call);
        }
    }
    // What the program has written before a call.
    let mut stores: HashMap<u64, Step> = HashMap::new();
    for ((_, length), calls) in groups.into_iter().filter(|group| group.1.len() > 1) {
        let length = usize::try_from(length).unwrap_or(0);
        let sides: Vec<HostSide> = calls
            .iter()
            .filter_map(|call| host.get(call))
            .copied()
            .collect();
        let Some(address) = sides.first().map(|side| side.live) else {
            continue;
        };
        let bytes: Vec<Vec<u8>> = sides
            .iter()
            .map(|side| read_memory(side.live, length))
            .collect();
        let changes = bytes.windows(2).any(|pair| pair.first() != pair.last());
        let mut held: Option<&Vec<u8>> = None;
        for (call, bytes) in calls.iter().zip(&bytes) {
            if let Some(side) = host.get_mut(call) {
                side.live = address;
            }
            if changes && held != Some(bytes) {
                let bytes = bytes.clone();
                stores.insert(*call, Step::Store { address, bytes });
            }
            held = Some(bytes);
        }
    }
    let all = std::mem::take(steps);
    steps.reserve(all.len() + stores.len());
    for mut step in all {
        if let Step::Call(issued) = &mut step
            && let Some(side) = host.get(&issued.index)
        {
            if let Some(argument) = issued.args.get_mut(side.argument) {
                *argument = side.live;
            }
            steps.extend(stores.remove(&issued.index));
        }
        steps.push(step);
    }
}
