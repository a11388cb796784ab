//! Device and pinned memory at its recorded address. The replay answers calls about it from its own
//! table of ranges.

use cutape_registry::{Family, Kind, MemoryOp};

use crate::api::{
    Code, HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, INVALID_CONTEXT,
    INVALID_VALUE, Location,
};
use crate::buffer::Buffer;
use crate::issue::frame::Frame;
use crate::issue::length::made_length;
use crate::issue::player::{Job, Played, Player};
use crate::issue::skip::skip;
use crate::place::address::{Found, Range, Way};
use crate::place::placement::Refusal;

/// Longest registration that is replayed in memory of the replayer's own.
const LONGEST: u64 = 64 << 30;

/// cuMemAlloc, cuMemAllocPitch. A recorded failure is left to the driver.
pub(crate) fn allocate(Job(player, call, function): Job<'_, '_>) -> Played {
    let mut frame = player.marshal(call, function, &[])?;
    if let Some(start) = call.out(0).filter(|_| call.succeeded()) {
        if let Some(answer) = context_missing(player) {
            return player.answer(call, function, frame, answer);
        }
        let length = made_length(call, function);
        let device = player.api.current_device().unwrap_or(0);
        match player
            .placement
            .map(&player.api, start, length, Location::Device(device))
        {
            Ok(()) => {
                frame.answer(0, start);
                if let Family::Memory(MemoryOp::AllocatePitch { pitch }) = function.family {
                    let pitch = usize::from(pitch);
                    frame.answer(pitch, call.out(pitch).unwrap_or(0));
                }
                frame.way = Some(Way::Granules);
                return player.answer(call, function, frame, 0);
            }
            // The device is full: the program's own call would have failed as well.
            Err(Refusal::Driver(code)) if code == OUT_OF_MEMORY => {
                return player.answer(call, function, frame, code);
            }
            Err(refusal) => frame.refusal = Some(player.refusal_text(&refusal)),
        }
    }
    player.reissue(call, function, frame)
}

const OUT_OF_MEMORY: Code = 2;

/// The driver's answer to a call without a current context, if there is none.
fn context_missing(player: &Player<'_>) -> Option<Code> {
    match player.api.current_context() {
        Ok(0) => Some(INVALID_CONTEXT),
        Ok(_) => None,
        Err(code) => Some(code),
    }
}

/// cuMemFree, cuMemFreeAsync. The driver returns INVALID_VALUE for a pointer that is not the start
/// of a live allocation (observed); the replay answers that itself for addresses that it knows.
pub(crate) fn free(Job(player, call, function): Job<'_, '_>) -> Played {
    let address = call.argument(0);
    let live = player.ranges.at(address).cloned();
    match live {
        Some(range) if range.way == Way::Granules && call.succeeded() => {
            let frame = player.marshal(call, function, &[])?;
            before_end(player, &range);
            player
                .placement
                .unmap(&player.api, range.start, range.length);
            player.answer(call, function, frame, 0)
        }
        Some(_) => player.plain(call, function),
        None if address != 0 && call.result() == Some(INVALID_VALUE) && known(player, address) => {
            player.answer_with(call, function, INVALID_VALUE, &[])
        }
        None => player.plain(call, function),
    }
}

/// True for an address that some allocation of the trace had, or in a reservation of the replay.
fn known(player: &Player<'_>, address: u64) -> bool {
    !matches!(player.ranges.find(address), Found::Unknown) || player.placement.reserves(address, 1)
}

/// Work that still uses memory ends before it is unmapped, and what copies have put there is saved.
fn before_end(player: &mut Player<'_>, range: &Range) {
    if let Err(code) = player.wait_for_device() {
        tracing::debug!("waiting before unmapping {:#x}: result {code}", range.start);
    }
    if player.readbacks.any_in(range.start, range.end()) {
        player.readbacks.rescue(range.start, range.end());
    }
}

/// cuMemAllocHost, cuMemHostAlloc.
pub(crate) fn allocate_host(Job(player, call, function): Job<'_, '_>) -> Played {
    let mut frame = player.marshal(call, function, &[])?;
    let Some(start) = call.out(0).filter(|_| call.succeeded()) else {
        return player.reissue(call, function, frame);
    };
    if let Some(answer) = context_missing(player) {
        return player.answer(call, function, frame, answer);
    }
    match put_back(player, start, made_length(call, function)) {
        Ok(way) => {
            frame.answer(0, start);
            frame.way = Some(way);
            player.answer(call, function, frame, 0)
        }
        Err(refusal) => {
            frame.refusal = Some(player.refusal_text(&refusal));
            player.reissue(call, function, frame)
        }
    }
}

/// Host memory at its recorded address, usable by the device.
fn put_back(player: &mut Player<'_>, start: u64, length: u64) -> Result<Way, Refusal> {
    if player.plan.in_device_slots(start, length) {
        let location = player.placement.host_location();
        player.placement.map(&player.api, start, length, location)?;
        return Ok(Way::PinnedGranules);
    }
    let context = player.api.current_context().unwrap_or(0);
    player
        .placement
        .register(&player.api, start, length, context)?;
    Ok(Way::HostRegion)
}

/// cuMemFreeHost.
pub(crate) fn free_host(Job(player, call, function): Job<'_, '_>) -> Played {
    let address = call.argument(0);
    match player.ranges.at(address).cloned() {
        Some(range) if range.kind == Kind::HostMemory => {
            end_host(Job(player, call, function), &range)
        }
        _ if address != 0 && known(player, address) => {
            player.answer_with(call, function, INVALID_VALUE, &[])
        }
        _ => player.plain(call, function),
    }
}

/// Frees or unregisters host memory.
fn end_host(Job(player, call, function): Job<'_, '_>, range: &Range) -> Played {
    let frame = player.marshal(call, function, &[])?;
    before_end(player, range);
    match range.way {
        Way::Plain => return player.reissue(call, function, frame),
        Way::PinnedGranules => {
            let placement = &mut player.placement;
            placement.unmap(&player.api, range.start, range.length);
        }
        _ => {}
    }
    player.answer(call, function, frame, 0)
}

/// cuMemHostRegister: the program's own memory, which the replay provides.
pub(crate) fn register(Job(player, call, function): Job<'_, '_>) -> Played {
    let (start, length) = (call.argument(0), made_length(call, function));
    let mut frame = Frame::default();
    if player.ranges.overlapping(start, length).is_some() {
        return player.answer(call, function, frame, HOST_MEMORY_ALREADY_REGISTERED);
    }
    if !call.succeeded() {
        // What it registered is not there; only NULL and nothing can be tried again.
        if start == 0 || length == 0 {
            return player.plain(call, function);
        }
        return skip("failed to register host memory of the program, which replay does not have");
    }
    if let Some(answer) = context_missing(player) {
        return player.answer(call, function, frame, answer);
    }
    let context = player.api.current_context().unwrap_or(0);
    let key = (Kind::Registration, start);
    match put_back(player, start, length) {
        Ok(way) => {
            frame.way = Some(way);
            player.answer(call, function, Frame::default(), 0)?;
            player.add_range(call, function, &frame, key, start, None, context);
            Ok(())
        }
        Err(refusal) => {
            if length > LONGEST {
                return skip("registers more host memory than replay provides");
            }
            // Page-aligned memory of our own takes its place.
            let page = crate::plan::PAGE;
            let own = Buffer::zeroed((length + 2 * page) as usize);
            let live = own.address().next_multiple_of(page) + start % page;
            player.lent.kept.push(own);
            let issued = Frame {
                args: vec![live, length, call.argument(2)],
                ..Frame::default()
            };
            let result = player.issue(call, function, &issued)?;
            player.conclude(call, function, issued, result)?;
            if result == 0 {
                frame.refusal = Some(player.refusal_text(&refusal));
                player.add_range(call, function, &frame, key, live, None, context);
            }
            Ok(())
        }
    }
}

/// cuMemHostUnregister.
pub(crate) fn unregister(Job(player, call, function): Job<'_, '_>) -> Played {
    let address = call.argument(0);
    match player.ranges.at(address).cloned() {
        Some(range) if range.kind == Kind::Registration => {
            end_host(Job(player, call, function), &range)
        }
        _ if known(player, address) => {
            let code = match player.ranges.find(address) {
                Found::Freed(range) if range.kind == Kind::Registration => {
                    HOST_MEMORY_NOT_REGISTERED
                }
                _ => INVALID_VALUE,
            };
            let recorded = call.result().filter(|&recorded| recorded != 0);
            player.answer_with(call, function, recorded.unwrap_or(code), &[])
        }
        _ => player.plain(call, function),
    }
}

/// The placed range that an address lies in.
pub(crate) fn placed(player: &Player<'_>, address: u64) -> Option<(Range, u64)> {
    match player.ranges.find(address) {
        Found::Live(range, offset) if range.way != Way::Plain && range.way != Way::Reserved => {
            Some((range.clone(), offset))
        }
        _ => None,
    }
}

/// cuMemGetAddressRange.
pub(crate) fn address_range(Job(player, call, function): Job<'_, '_>) -> Played {
    let Some((range, _)) = placed(player, call.argument(2)).filter(|_| call.succeeded()) else {
        return player.plain(call, function);
    };
    let values = [(0, range.start), (1, range.length)];
    player.answer_with(call, function, 0, &values)
}

/// cuMemHostGetDevicePointer: placed memory has one address for host and device.
pub(crate) fn device_pointer(Job(player, call, function): Job<'_, '_>) -> Played {
    let address = call.argument(1);
    match placed(player, address) {
        Some((range, _)) if range.is_host_memory() && call.succeeded() => {
            player.answer_with(call, function, 0, &[(0, address)])
        }
        _ => player.plain(call, function),
    }
}

/// cuMemHostGetFlags: the flags of the allocation. With unified addressing the driver always sets
/// `CU_MEMHOSTALLOC_DEVICEMAP`, and it drops `..._PORTABLE` (driver 580.159.04: 2 for memory
/// allocated with 3).
pub(crate) fn host_flags(Job(player, call, function): Job<'_, '_>) -> Played {
    match placed(player, call.argument(1)) {
        Some((range, _)) if range.kind == Kind::HostMemory && call.succeeded() => {
            let recorded = call.out(0).unwrap_or(0);
            // The driver adds bits of its own.
            const PORTABLE: u64 = 1;
            let reported = range.flags & !PORTABLE;
            let flags = match recorded & reported == reported {
                true => recorded,
                false => range.flags,
            };
            player.answer_with(call, function, 0, &[(0, flags)])
        }
        _ => player.plain(call, function),
    }
}
