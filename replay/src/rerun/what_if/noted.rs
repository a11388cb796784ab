//! What is noted of the calls while they are played.

use std::collections::BTreeMap;

use cutape_format::layout::field;
use cutape_registry::{CopyOp, Family, LaunchOp, Role};

use super::host_side::HostSide;
use crate::calls::steps::Step;
use crate::compare::payload::Payload;
use crate::place::address::Found;
use crate::plan::length::length_of;
use crate::player::Player;
use crate::player::current::Decoded;

/// What is noted of the calls while they are played.
#[derive(Debug, Default)]
pub(in crate::rerun) struct Noted {
    /// The host memory of copies.
    pub host: BTreeMap<u64, HostSide>,
    /// Allocations that the parameters of a launch point into: recorded start and end.
    pub reached: BTreeMap<u64, Vec<(u64, u64)>>,
    /// Those of them that the program's CPU code can write: start and end here.
    pub shared: Shared,
}

/// Memory of the host that kernels may use, by launch: start and end here.
pub(super) type Shared = BTreeMap<u64, Vec<(u64, u64)>>;

impl Noted {
    /// A call was played; `steps` has what the driver got for it.
    pub(in crate::rerun) fn note<'t>(
        &mut self,
        player: &Player<'t>,
        next: &Decoded<'t>,
        steps: &[Step],
    ) {
        // The last call of the steps, if it is this one.
        let mut calls = steps.iter().rev().filter_map(|step| match step {
            Step::Call(issued) => Some(issued),
            _ => None,
        });
        let last = calls.next().filter(|one| one.index == next.call.index);
        let Some(issued) = last else { return };
        if let Some(side) = HostSide::of(player, next, issued) {
            self.host.insert(issued.index, side);
        }
        self.note_reached(player, next);
    }

    /// Notes which memory a call's work may use.
    fn note_reached<'t>(&mut self, player: &Player<'t>, next: &Decoded<'t>) {
        let Some(function) = next.function else {
            return;
        };
        let call = &next.call;
        let (mut ranges, mut shared) = (Vec::new(), Vec::new());
        let mut area = |address: u64| {
            if let Found::Live(range, _) = player.ranges.find(address) {
                ranges.push((range.start, range.end()));
                if range.is_of_host() {
                    shared.push((range.live, range.live.saturating_add(range.length)));
                }
            }
        };
        match function.family {
            Family::Launch(LaunchOp::Arguments(_) | LaunchOp::Config(_)) => {
                let snapshots = call.snapshots();
                let packed = snapshots.filter(|one| one.field == field::KERNEL_PARAMETERS);
                for snapshot in packed {
                    let Payload::Here(bytes) = player.payload(&snapshot) else {
                        return;
                    };
                    // Pointers are aligned (CUDA C++ Programming Guide, kernel parameters).
                    for word in bytes.chunks_exact(8) {
                        area(word.try_into().map_or(0, u64::from_le_bytes));
                    }
                }
            }
            Family::Copy(CopyOp::Linear(_)) | Family::Memset => {
                for (position, param) in function.params.iter().enumerate() {
                    if let Role::DeviceRead(length) | Role::DeviceWrite(length) = param.role {
                        let start = call.argument(position);
                        ranges.push((
                            start,
                            start.saturating_add(length_of(call, function, length)),
                        ));
                    }
                }
            }
            _ => return,
        }
        self.reached.insert(call.index, ranges);
        if !shared.is_empty() {
            self.shared.insert(call.index, shared);
        }
    }
}
