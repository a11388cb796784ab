//! Device and pinned memory at its recorded address. The replay answers calls about it from its own
//! table of ranges.

use cutape_registry::{Family, Kind, MemoryOp};

use crate::api::{
    Code, HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, INVALID_CONTEXT,
    INVALID_VALUE, Location,
};
use crate::calls::frame::Frame;
use crate::objects::handles::Belongs;
use crate::objects::skip::{Skip, skip};
use crate::place::address::{Found, Range, Way};
use crate::place::placement::Refusal;
use crate::plan::PAGE;
use crate::plan::length::made_length;
use crate::player::{Job, Played, Player, ReplayState};
use crate::process::allocator;
use crate::process::pages::{Pages, check_available};

/// cuMemAlloc, cuMemAllocPitch. A recorded failure is left to the driver.
pub(crate) fn allocate(job: &mut Job<'_, '_>) -> Played {
    let mut frame = job.marshal(&[])?;
    if let Some(start) = job.call.out(0).filter(|_| job.call.succeeded()) {
        if let Some(answer) = context_missing(job) {
            return job.answer(frame, answer);
        }
        let length = made_length(job.call, job.function);
        let device = job.api.current_device().unwrap_or(0);
        let state = &mut **job.player;
        match state
            .placement
            .map(&state.api, start, length, Location::Device(device))
        {
            Ok(()) => {
                frame.answer(0, start);
                if let Family::Memory(MemoryOp::AllocatePitch { pitch }) = job.function.family {
                    let pitch = usize::from(pitch);
                    frame.answer(pitch, job.call.out(pitch).unwrap_or(0));
                }
                frame.way = Some(Way::Granules);
                return job.answer(frame, 0);
            }
            // The device is full: the program's own call would have failed as well.
            Err(Refusal::Driver(code)) if code == OUT_OF_MEMORY => {
                return job.answer(frame, code);
            }
            Err(refusal) => frame.refusal = Some(job.refusal_text(&refusal)),
        }
    }
    job.reissue(frame)
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
pub(crate) fn free(job: &mut Job<'_, '_>) -> Played {
    let address = job.call.argument(0);
    if let Some(range) = allocated_again(job, address) {
        job.ranges.insert(range);
    }
    let live = job.ranges.at(address).cloned();
    match live {
        Some(range) if range.way == Way::Granules && job.call.succeeded() => {
            let frame = job.marshal(&[])?;
            before_end(job, &range);
            let state = &mut **job.player;
            let placement = &mut state.placement;
            placement.unmap(&state.api, range.start, range.length);
            job.answer(frame, 0)
        }
        Some(_) => job.plain(),
        None if address != 0 && job.call.result() == Some(INVALID_VALUE) && known(job, address) => {
            job.answer_with(INVALID_VALUE, &[])
        }
        None => job.plain(),
    }
}

/// Memory of a graph that was freed, and that a launch of the graph has allocated again: no call
/// returns its address a second time.
fn allocated_again(job: &Job<'_, '_>, address: u64) -> Option<Range> {
    match job.ranges.find(address) {
        Found::Freed(range)
            if job.call.succeeded() && range.start == address && range.way == Way::Plain =>
        {
            let ended = None;
            Some(Range {
                ended,
                ..range.clone()
            })
        }
        _ => None,
    }
}

/// True for an address that some allocation of the trace had, or in a reservation of the replay.
fn known(player: &Player<'_>, address: u64) -> bool {
    !matches!(player.ranges.find(address), Found::Unknown) || player.placement.reserves(address, 1)
}

/// Work that still uses memory ends before it is unmapped, and what copies have put there is saved.
fn before_end(player: &mut Player<'_>, range: &Range) {
    if let Err(code) = player.wait_for_all_work() {
        tracing::debug!("waiting before unmapping {:#x}: result {code}", range.start);
    }
    if player.readbacks.any_in(range.start, range.end()) {
        player.readbacks.rescue(range.start, range.end());
    }
}

/// cuMemAllocHost, cuMemHostAlloc.
pub(crate) fn allocate_host(job: &mut Job<'_, '_>) -> Played {
    let mut frame = job.marshal(&[])?;
    let Some(start) = job.call.out(0).filter(|_| job.call.succeeded()) else {
        return job.reissue(frame);
    };
    if let Some(answer) = context_missing(job) {
        return job.answer(frame, answer);
    }
    let length = made_length(job.call, job.function);
    // The driver refuses what does not fit.
    if let Err(why) = check_available(length) {
        frame.refusal = Some(why);
        return job.reissue(frame);
    }
    match put_back(job.player, start, length) {
        Ok(way) => {
            frame.answer(0, start);
            frame.way = Some(way);
            job.answer(frame, 0)
        }
        Err(refusal) => {
            frame.refusal = Some(job.refusal_text(&refusal));
            job.reissue(frame)
        }
    }
}

/// Host memory at its recorded address, usable by the device.
fn put_back(state: &mut ReplayState<'_>, start: u64, length: u64) -> Result<Way, Refusal> {
    if state.plan.in_device_slots(start, length) {
        let location = state.placement.host_location();
        state.placement.map(&state.api, start, length, location)?;
        return Ok(Way::PinnedGranules);
    }
    let context = state.api.current_context().unwrap_or(0);
    state
        .placement
        .register(&state.api, start, length, context)?;
    Ok(Way::HostRegion)
}

/// cuMemFreeHost.
pub(crate) fn free_host(job: &mut Job<'_, '_>) -> Played {
    let address = job.call.argument(0);
    match job.ranges.at(address).cloned() {
        Some(range) if range.kind == Kind::HostMemory => end_host(job, &range),
        _ if address != 0 && known(job, address) => job.answer_with(INVALID_VALUE, &[]),
        _ => job.plain(),
    }
}

/// Frees or unregisters host memory.
fn end_host(job: &mut Job<'_, '_>, range: &Range) -> Played {
    let frame = job.marshal(&[])?;
    before_end(job, range);
    match range.way {
        Way::Plain => return job.reissue(frame),
        Way::PinnedGranules => {
            let state = &mut **job.player;
            let placement = &mut state.placement;
            placement.unmap(&state.api, range.start, range.length);
        }
        _ => {}
    }
    job.answer(frame, 0)
}

/// cuMemHostRegister: the program's own memory, which the replay provides.
pub(crate) fn register(job: &mut Job<'_, '_>) -> Played {
    let (start, length) = (job.call.argument(0), made_length(job.call, job.function));
    let mut frame = Frame::default();
    if job.ranges.overlapping(start, length).is_some() {
        return job.answer(frame, HOST_MEMORY_ALREADY_REGISTERED);
    }
    if !job.call.succeeded() {
        // What it registered is not there; only NULL and nothing can be tried again.
        if start == 0 || length == 0 {
            return job.plain();
        }
        return skip("failed to register host memory of the program, which replay does not have");
    }
    if let Some(answer) = context_missing(job) {
        return job.answer(frame, answer);
    }
    check_available(length).map_err(Skip::because)?;
    let belongs = Belongs {
        parent: None,
        context: job.api.current_context().unwrap_or(0),
    };
    let key = (Kind::Registration, start);
    match put_back(job, start, length) {
        Ok(way) => {
            frame.way = Some(way);
            job.answer(Frame::default(), 0)?;
            job.add_range(&frame, key, start, belongs);
            Ok(())
        }
        Err(refusal) => {
            let end = start
                .checked_add(length)
                .and_then(|end| end.checked_next_multiple_of(PAGE))
                .filter(|_| job.is_natural());
            let first = start / PAGE * PAGE;
            let provided = end.filter(|&end| job.fillers.provide(first, end));
            let shared = job.shared_parts();
            let live = match provided {
                Some(end) => {
                    job.map_private(first, end);
                    job.map_shared(&shared, start, (first, end));
                    start
                }
                None if !shared.is_empty() => {
                    let length = (start % PAGE + length).next_multiple_of(PAGE);
                    let Some(pages) = allocator::map_pages(length) else {
                        return skip("registers more host memory than replay provides");
                    };
                    job.map_shared(&shared, start, (pages, pages + length));
                    pages + start % PAGE
                }
                // Page-aligned memory of our own takes its place.
                None => {
                    let length = (start % PAGE + length).next_multiple_of(PAGE);
                    let Some(own) = Pages::map(length) else {
                        return skip("registers more host memory than replay provides");
                    };
                    let live = own.start + start % PAGE;
                    if let Some(older) = job.lent.registered.insert(start, own) {
                        // Calls that use it may be made again.
                        std::mem::forget(older);
                    }
                    live
                }
            };
            if let Some(end) = end.filter(|_| live != start) {
                let call = job.call.index;
                job.player.fillers.is_taken(call, (first, end), live);
            }
            let issued = Frame {
                args: vec![live, length, job.call.argument(2)],
                ..Frame::default()
            };
            let result = job.issue(&issued)?;
            job.conclude(issued, result)?;
            if result == 0 {
                frame.refusal = Some(job.refusal_text(&refusal));
                job.add_range(&frame, key, live, belongs);
            }
            Ok(())
        }
    }
}

/// cuMemHostUnregister.
pub(crate) fn unregister(job: &mut Job<'_, '_>) -> Played {
    let address = job.call.argument(0);
    match job.ranges.at(address).cloned() {
        Some(range) if range.kind == Kind::Registration => end_host(job, &range),
        _ if known(job, address) => {
            let code = match job.ranges.find(address) {
                Found::Freed(range) if range.kind == Kind::Registration => {
                    HOST_MEMORY_NOT_REGISTERED
                }
                _ => INVALID_VALUE,
            };
            let recorded = job.call.result().filter(|&recorded| recorded != 0);
            job.answer_with(recorded.unwrap_or(code), &[])
        }
        _ => job.plain(),
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
pub(crate) fn address_range(job: &mut Job<'_, '_>) -> Played {
    let Some((range, _)) = placed(job, job.call.argument(2)).filter(|_| job.call.succeeded())
    else {
        return job.plain();
    };
    let values = [(0, range.start), (1, range.length)];
    job.answer_with(0, &values)
}

/// cuMemHostGetDevicePointer: placed memory has one address for host and device.
pub(crate) fn device_pointer(job: &mut Job<'_, '_>) -> Played {
    let address = job.call.argument(1);
    match placed(job, address) {
        Some((range, _)) if range.is_host_memory() && job.call.succeeded() => {
            job.answer_with(0, &[(0, address)])
        }
        _ => job.plain(),
    }
}

/// cuMemHostGetFlags: the flags of the allocation. With unified addressing the driver always sets
/// `CU_MEMHOSTALLOC_DEVICEMAP`, and it drops `..._PORTABLE` (driver 580.159.04: 2 for memory
/// allocated with 3).
pub(crate) fn host_flags(job: &mut Job<'_, '_>) -> Played {
    match placed(job, job.call.argument(1)) {
        Some((range, _)) if range.kind == Kind::HostMemory && job.call.succeeded() => {
            let recorded = job.call.out(0).unwrap_or(0);
            // The driver adds bits of its own.
            const PORTABLE: u64 = 1;
            let reported = range.flags & !PORTABLE;
            let flags = match recorded & reported == reported {
                true => recorded,
                false => range.flags,
            };
            job.answer_with(0, &[(0, flags)])
        }
        _ => job.plain(),
    }
}
