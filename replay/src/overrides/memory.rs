//! Device and pinned memory at its recorded address; what the driver would answer about it comes from the books.

use cutape_registry::Kind;

use crate::api::{
    Code, HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, INVALID_CONTEXT,
    INVALID_VALUE, Location,
};
use crate::buffer::Buffer;
use crate::issue::frame::Frame;
use crate::issue::length::made_length;
use crate::issue::player::{Job, Played, Player};
use crate::issue::skip::Skip;
use crate::place::address::{Found, Range, Way};
use crate::place::placement::Refusal;

/// Longest registration that is replayed in memory of the replayer's own.
const LONGEST: u64 = 64 << 30;

/// cuMemAlloc, cuMemAllocPitch. A recorded failure is left to the driver.
pub(crate) fn allocate(Job(player, call, function): Job<'_, '_>) -> Played {
    let mut frame = player.marshal(call, function, &[])?;
    let recorded = call.out(0).filter(|_| call.succeeded());
    if let Some(start) = recorded
        && let Some(answer) = context_missing(player)
    {
        let _ = start;
        return player.answer(call, function, frame, answer);
    }
    if let Some(start) = recorded {
        let length = made_length(call, function);
        let device = player.api.current_device().unwrap_or(0);
        match player
            .placement
            .map(&player.api, start, length, Location::Device(device))
        {
            Ok(()) => {
                frame.answer(0, start);
                if function.base == "cuMemAllocPitch" {
                    frame.answer(1, call.out(1).unwrap_or(0));
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

/// cuMemFree, cuMemFreeAsync. A pointer that is no live allocation's is INVALID_VALUE (observed); the driver is not
/// asked where the books know.
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
            let frame = player.marshal(call, function, &[])?;
            player.answer(call, function, frame, INVALID_VALUE)
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
    let range = player
        .ranges
        .at(address)
        .filter(|range| range.kind == Kind::HostMemory)
        .cloned();
    let frame = player.marshal(call, function, &[])?;
    match range {
        Some(range) if range.way != Way::Plain => {
            before_end(player, &range);
            if range.way == Way::PinnedGranules {
                player
                    .placement
                    .unmap(&player.api, range.start, range.length);
            }
            player.answer(call, function, frame, 0)
        }
        Some(range) => {
            before_end(player, &range);
            player.reissue(call, function, frame)
        }
        None if address != 0 && known(player, address) => {
            player.answer(call, function, frame, INVALID_VALUE)
        }
        None => player.reissue(call, function, frame),
    }
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
        return Err(Skip::because(
            "failed to register host memory of the program, which replay does not have",
        ));
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
                return Err(Skip::because(
                    "registers more host memory than replay provides",
                ));
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
    let range = player
        .ranges
        .at(address)
        .filter(|range| range.kind == Kind::Registration)
        .cloned();
    let frame = player.marshal(call, function, &[])?;
    match range {
        Some(range) => {
            before_end(player, &range);
            match range.way {
                Way::Plain => return player.reissue(call, function, frame),
                Way::PinnedGranules => {
                    player
                        .placement
                        .unmap(&player.api, range.start, range.length)
                }
                _ => {}
            }
            player.answer(call, function, frame, 0)
        }
        None if known(player, address) => {
            let registered_once = matches!(
                player.ranges.find(address),
                Found::Freed(range) if range.kind == Kind::Registration
            );
            let code = if registered_once {
                HOST_MEMORY_NOT_REGISTERED
            } else {
                INVALID_VALUE
            };
            let code = call
                .result()
                .filter(|&recorded| recorded != 0)
                .unwrap_or(code);
            player.answer(call, function, frame, code)
        }
        None => player.reissue(call, function, frame),
    }
}

/// The placed range that an address lies in.
fn placed(player: &Player<'_>, address: u64) -> Option<(Range, u64)> {
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
    let mut frame = player.marshal(call, function, &[])?;
    frame.answer(0, range.start);
    frame.answer(1, range.length);
    player.answer(call, function, frame, 0)
}

/// cuMemHostGetDevicePointer: placed memory has one address for host and device.
pub(crate) fn device_pointer(Job(player, call, function): Job<'_, '_>) -> Played {
    let address = call.argument(1);
    let host = |range: &Range| matches!(range.kind, Kind::HostMemory | Kind::Registration);
    match placed(player, address) {
        Some((range, _)) if host(&range) && call.succeeded() => {
            let mut frame = player.marshal(call, function, &[])?;
            frame.answer(0, address);
            player.answer(call, function, frame, 0)
        }
        _ => player.plain(call, function),
    }
}

/// cuMemHostGetFlags: what the memory was allocated with, `CU_MEMHOSTALLOC_DEVICEMAP` being always on where addressing is
/// unified, and `..._PORTABLE` not being told (driver 580.159.04: 2 for memory allocated with 3).
pub(crate) fn host_flags(Job(player, call, function): Job<'_, '_>) -> Played {
    match placed(player, call.argument(1)) {
        Some((range, _)) if range.kind == Kind::HostMemory && call.succeeded() => {
            let mut frame = player.marshal(call, function, &[])?;
            let recorded = call.out(0).unwrap_or(0);
            // The bits that the driver adds by itself are not the program's doing.
            const PORTABLE: u64 = 1;
            let told = range.flags & !PORTABLE;
            let flags = if recorded & told == told {
                recorded
            } else {
                range.flags
            };
            frame.answer(0, flags);
            player.answer(call, function, frame, 0)
        }
        _ => player.plain(call, function),
    }
}
