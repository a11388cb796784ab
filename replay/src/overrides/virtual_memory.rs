//! Address reservations of the program, inside the replayer's own.

use crate::place::address::Way;
use crate::player::{Job, Played};
use crate::process::slots::SLOT;

/// cuMemAddressReserve: the slots around it are reserved already.
pub(crate) fn reserve(job: &mut Job<'_, '_>) -> Played {
    let length = job.call.argument(1);
    let Some(start) = job.call.out(0).filter(|_| job.call.succeeded()) else {
        return job.plain();
    };
    if job.placement.reserves(start, length) && !job.placement.is_mapped(start, length) {
        let mut frame = job.marshal(&[])?;
        frame.answer(0, start);
        frame.way = Some(Way::Reserved);
        return job.answer(frame, 0);
    }
    // A hint that the driver does not take makes it choose another place than no hint: what is not
    // a multiple of a slot lies in what the driver has reserved already (measured on driver 580).
    if job.is_natural() && !(start | length).is_multiple_of(SLOT) {
        return job.plain();
    }
    // The hint is what makes the driver choose that place.
    let mut frame = job.marshal(&[(3, start)])?;
    frame.refusal = Some("its range could not be reserved".to_owned());
    job.reissue(frame)
}

/// cuMemAddressFree.
pub(crate) fn free(job: &mut Job<'_, '_>) -> Played {
    let reserved = job.ranges.reservation_at(job.call.argument(0));
    if job.call.succeeded() && reserved.is_some_and(|range| range.way == Way::Reserved) {
        let frame = job.marshal(&[])?;
        return job.answer(frame, 0);
    }
    job.plain()
}
