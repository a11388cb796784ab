//! `--pin-memory`: copies use page-locked host memory.

use std::collections::BTreeMap;

use super::edited::{Edited, Known};
use super::job::{Applied, WhatIf};
use crate::api::result_name;
use crate::calls::steps::Step;
use crate::compare::received::read_memory;

/// Unit of places in the page-locked memory.
const ALIGNMENT: u64 = 4096;

pub(super) fn apply(
    edited: &mut Edited,
    known: Known<'_, '_>,
    job: &WhatIf,
) -> Result<Applied, String> {
    let sides = edited.host.iter();
    let wanted = sides.filter(|(call, side)| job.pin_memory.contains(call) && !side.is_pinned);
    // Copies of the same memory share it here, too.
    let mut places: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for (_, side) in wanted {
        places.insert((side.live, side.length), 0);
    }
    if places.is_empty() {
        return Err(
            "none of the calls is a copy of pageable host memory (a linear one: cuMemcpyHtoD, \
             cuMemcpyDtoH, cuMemcpy and their asynchronous forms)"
                .to_owned(),
        );
    }
    let api = &known.player.api;
    let lengths = places
        .keys()
        .map(|place| place.1.next_multiple_of(ALIGNMENT));
    let room: u64 = lengths.sum();
    let start = api.allocate_portable(room).map_err(|code| {
        format!(
            "{room} bytes of page-locked memory: the driver returned {}",
            result_name(code)
        )
    })?;
    edited.made.pinned.push(start);
    let mut next = start;
    for (&(live, length), place) in &mut places {
        *place = next;
        next += length.next_multiple_of(ALIGNMENT);
        let bytes = read_memory(live, usize::try_from(length).unwrap_or(0));
        // SAFETY: the allocation has room for all places, each of its own length.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), *place as *mut u8, bytes.len()) };
    }
    let (mut copies, mut bytes) = (0, 0);
    let Edited { steps, host, .. } = edited;
    for step in steps {
        let issued = match step {
            Step::Call(issued) => issued,
            Step::Store { address, bytes } => {
                if let Some(&place) = places.get(&(*address, bytes.len() as u64)) {
                    *address = place;
                }
                continue;
            }
            Step::Put { .. } | Step::Pause(_) => continue,
        };
        let Some(side) = host.get_mut(&issued.index) else {
            continue;
        };
        let place = places.get(&(side.live, side.length));
        let (true, false, Some(&place)) = (
            job.pin_memory.contains(&issued.index),
            side.is_pinned,
            place,
        ) else {
            continue;
        };
        if let Some(argument) = issued.args.get_mut(side.argument) {
            *argument = place;
        }
        (side.live, side.is_pinned) = (place, true);
        copies += 1;
        bytes += side.length;
    }
    Ok(Applied {
        edit: "pin-memory".to_owned(),
        calls: copies,
        what: format!("{copies} copies of {bytes} bytes with page-locked memory"),
    })
}
